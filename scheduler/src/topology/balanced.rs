//! Balanced placement (Kueue's gate `TASBalancedPlacement`): the fewest domains, with as many pods
//! in each as possible. Kueue: `pkg/cache/scheduler/tas_balanced_placement.go`.
//!
//! Only for preferred levels. Without a result, the ordinary search continues.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use super::counts::{Count, RollUp};
use super::search::{DomainSearch, FoundDomains};
use super::tree::DomainId;

/// The outcome of taking domains in order.
struct Greedy {
    used: i32,
    last_led: Option<DomainId>,
    last: Option<DomainId>,
}

/// A set of domains, pruned so that each takes at least `least` slices.
struct BalancedSet<'a> {
    search: DomainSearch<'a>,
    domains: Vec<DomainId>,
    least: i32,
    used: i32,
}

impl<'a> DomainSearch<'a> {
    /// The balanced placement and its counts, if there is one.
    pub(super) fn balanced(&self) -> Option<(Self, FoundDomains)> {
        let best = self.best_set()?;
        let (mut search, mut domains, mut level) = (best.search, best.domains, self.plan.level);
        if level < self.plan.slice_level {
            let chosen = search.optimal(domains, true)?;
            domains = chosen.iter().flat_map(|id| self.tree.children(*id)).copied().collect();
            level += 1;
        }
        let domains = search.spread_evenly(domains, best.least)?;
        Some((search, FoundDomains { level, domains }))
    }

    /// The siblings with the largest minimum of slices per domain.
    fn best_set(&self) -> Option<BalancedSet<'a>> {
        let plan = self.plan;
        let sets: Vec<Vec<DomainId>> = match plan.level.checked_sub(1) {
            None => vec![self.tree.at_level(0).collect()],
            Some(above) => {
                self.tree.at_level(above).map(|id| self.tree.children(id).to_vec()).collect()
            }
        };
        let mut best: Option<BalancedSet<'a>> = None;
        for set in sets {
            let least_so_far = best.as_ref().map_or(0, |best| best.least);
            let Some(candidate) = self.candidate(&set, least_so_far) else { continue };
            let better = match &best {
                None => candidate.least > 0,
                Some(best) => {
                    (candidate.least, Reverse(candidate.used)) > (best.least, Reverse(best.used))
                }
            };
            if better {
                best = Some(candidate);
            }
        }
        best
    }

    fn candidate(&self, set: &[DomainId], least_so_far: i32) -> Option<BalancedSet<'a>> {
        let plan = self.plan;
        let low = match plan.level < plan.slice_level {
            true => set.iter().flat_map(|id| self.tree.children(*id)).copied().collect(),
            false => set.to_vec(),
        };
        let greedy = self.greedy(low)?;
        let mut least = plan.slices() / greedy.used.max(1);
        if let Some(id) = greedy.last_led {
            least = least.min(self.count(id).slices_led);
        }
        if let Some(id) = greedy.last {
            least = least.min(self.count(id).slices);
        }
        let reserved = match greedy.last.filter(|_| plan.leaders > 0) {
            Some(id) => least.min(self.count(id).slices_led),
            None => least,
        };
        if least < least_so_far {
            return None;
        }
        if let Some(candidate) = self.pruned(set, least) {
            return Some(candidate);
        }
        // Again with room for the leader in every domain.
        let again = reserved < least && reserved > 0 && reserved >= least_so_far;
        if again { self.pruned(set, reserved) } else { None }
    }

    /// The set without domains that take fewer slices, if the rest suffices.
    fn pruned(&self, set: &[DomainId], least: i32) -> Option<BalancedSet<'a>> {
        let mut search = self.fork();
        for child in set.iter().flat_map(|id| self.tree.children(*id)) {
            search.prune(*child, least);
        }
        for id in set {
            search.counts.roll_up(self.tree, *id, RollUp { plan: self.plan, with_inner: false });
            search.prune(*id, least);
        }
        let used = search.greedy(set.to_vec())?.used;
        Some(BalancedSet { search, domains: set.to_vec(), least, used })
    }

    fn prune(&mut self, id: DomainId, least: i32) {
        let count = self.count(id);
        if count.slices < least {
            self.change_below(id, &|_| Count::default());
        } else if self.plan.leaders > 0 && count.leaders > 0 && count.slices_led < least {
            self.change_below(id, &|count| Count {
                pods_led: 0,
                slices_led: 0,
                leaders: 0,
                ..count
            });
        }
    }

    fn change_below(&mut self, id: DomainId, change: &impl Fn(Count) -> Count) {
        self.counts.set(id, change(self.count(id)));
        for child in self.tree.children(id) {
            self.change_below(*child, change);
        }
    }

    /// Takes domains in order until everything is placed.
    fn greedy(&self, domains: Vec<DomainId>) -> Option<Greedy> {
        let (mut slices, mut leaders) = (self.plan.slices(), self.plan.leaders);
        let mut greedy = Greedy { used: 0, last_led: None, last: None };
        let mut rest = domains;
        if leaders > 0 {
            rest = self.sort_led(rest);
            let mut at = 0;
            while let Some(id) =
                rest.get(at).copied().filter(|id| leaders > 0 && self.count(*id).leaders > 0)
            {
                greedy.used += 1;
                greedy.last_led = Some(id);
                leaders -= self.count(id).leaders;
                slices -= self.count(id).slices_led;
                at += 1;
            }
            rest.drain(..at);
        }
        if leaders > 0 {
            return None;
        }
        for id in self.sort(rest) {
            if slices <= 0 || self.count(id).slices <= 0 {
                break;
            }
            greedy.used += 1;
            greedy.last = Some(id);
            slices -= self.count(id).slices;
        }
        (slices <= 0).then_some(greedy)
    }

    /// The fewest domains that hold all pods, with the least spare capacity.
    fn optimal(&self, domains: Vec<DomainId>, by_entropy: bool) -> Option<Vec<DomainId>> {
        let used = usize::try_from(self.greedy(domains.clone())?.used).ok()?;
        let mut ordered = domains;
        if by_entropy {
            ordered.sort_by(|a, b| self.compare_entropy(*a, *b));
        } else {
            ordered.sort_by_key(|id| self.tree.rank(*id));
        }
        // By number of domains: the remaining leaders and pods, with the first choice that leaves
        // them.
        type Left = (i32, i32);
        let mut reached: Vec<BTreeMap<Left, Vec<DomainId>>> = vec![BTreeMap::new(); used + 1];
        let all = (self.plan.leaders, self.plan.slices().saturating_mul(self.plan.size));
        reached.first_mut()?.insert(all, Vec::new());
        for id in ordered {
            let count = self.count(id);
            for number in (1..=used).rev() {
                let before = reached.get(number - 1)?.clone();
                let after = reached.get_mut(number)?;
                for ((leaders, pods), chosen) in before {
                    if leaders <= 0 && pods <= 0 {
                        continue;
                    }
                    let with = || chosen.iter().copied().chain([id]).collect();
                    if leaders > 0 && count.leaders > 0 {
                        after
                            .entry((leaders - count.leaders, pods.saturating_sub(count.pods_led)))
                            .or_insert_with(with);
                    }
                    if count.slices > 0 {
                        after
                            .entry((leaders, pods.saturating_sub(count.pods)))
                            .or_insert_with(with);
                    }
                }
            }
        }
        let enough = reached.last()?.range((0, i32::MIN)..=(0, 0));
        enough.into_iter().next_back().map(|(_, chosen)| chosen.clone())
    }

    /// The leader first, then the most slices, then the most equal children.
    fn compare_entropy(&self, a: DomainId, b: DomainId) -> Ordering {
        let (one, other) = (self.count(a), self.count(b));
        (other.leaders.cmp(&one.leaders))
            .then_with(|| other.slices_led.cmp(&one.slices_led))
            .then_with(|| self.entropy(b).total_cmp(&self.entropy(a)))
            .then_with(|| self.tree.rank(a).cmp(&self.tree.rank(b)))
    }

    /// How evenly a domain's pods are spread over its children. Summed from the smallest child, so
    /// that the result depends on the counts alone; Kueue sums in map order.
    fn entropy(&self, id: DomainId) -> f64 {
        let mut pods: Vec<i32> =
            self.tree.children(id).iter().map(|child| self.count(*child).pods).collect();
        pods.sort_unstable();
        let total: f64 = pods.iter().map(|pods| f64::from(*pods)).sum();
        let shares = pods.iter().filter(|pods| **pods > 0).map(|pods| f64::from(*pods) / total);
        shares.map(|share| -share * share.log2()).sum()
    }

    /// Gives each domain the minimum, and the first domains the rest.
    fn spread_evenly(&mut self, domains: Vec<DomainId>, least: i32) -> Option<Vec<DomainId>> {
        let chosen = self.sort_led(self.optimal(domains, false)?);
        let number = i32::try_from(chosen.len()).ok()?;
        let mut extra = self.plan.slices() - number.saturating_mul(least);
        if extra < 0 {
            return None;
        }
        let mut leaders = self.plan.leaders;
        for id in &chosen {
            let count = self.count(*id);
            let (more, leader) = match leaders {
                1.. => ((count.slices_led - least).min(extra), 1),
                _ if extra > 0 => ((count.slices - least).min(extra), 0),
                _ => (0, 0),
            };
            leaders -= leader;
            extra -= more;
            let slices = least + more;
            let pods = slices.saturating_mul(self.plan.size);
            let count = Count {
                pods,
                pods_led: pods - leader,
                slices,
                slices_led: slices,
                leaders: leader,
            };
            self.counts.set(*id, count);
        }
        (extra <= 0 && leaders <= 0).then_some(chosen)
    }
}
