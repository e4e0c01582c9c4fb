//! Distributes pods from the domains that hold all of them down to leaves.

use super::search::{DomainSearch, FoundDomains};
use super::tree::DomainId;

/// The pods and leaders to distribute.
#[derive(Clone, Copy)]
struct Distribution {
    pods: i32,
    leaders: i32,
    /// Pods that stay together.
    size: i32,
    /// Counts are slices, not pods.
    in_slices: bool,
}

impl Distribution {
    fn amount(&self) -> i32 {
        if self.in_slices { self.pods / self.size } else { self.pods }
    }

    fn pods_of(&self, amount: i32) -> i32 {
        if self.in_slices { amount.saturating_mul(self.size) } else { amount }
    }
}

impl DomainSearch<'_> {
    /// Returns the leaves; their counts are the assignment. `balanced`: the domains already have
    /// their shares.
    pub(super) fn descend(&mut self, found: FoundDomains, balanced: bool) -> Vec<DomainId> {
        let plan = self.plan;
        let load = Distribution {
            pods: plan.count,
            leaders: plan.leaders,
            size: plan.size,
            in_slices: true,
        };
        let mut domains = self.take(found.domains, load);
        let (mut level, lowest) = (found.level, self.tree.lowest());
        // Above the slice level only the number of domains matters.
        while level < lowest.min(plan.slice_level) && !balanced {
            let below = domains.iter().flat_map(|id| self.tree.children(*id)).copied().collect();
            domains = self.take(self.sort(below), load);
            level += 1;
        }
        while level < lowest {
            let inner = plan.inner(level + 1).unwrap_or(1);
            let size = if level < plan.slice_level { plan.size } else { inner };
            domains = domains.into_iter().flat_map(|id| self.take_below(id, size)).collect();
            level += 1;
        }
        domains
    }

    /// Whether these leaves have all pods of whole slices.
    pub(super) fn places_all(&self, leaves: &[DomainId]) -> bool {
        let pods = leaves.iter().fold(0, |sum: i32, id| sum.saturating_add(self.count(*id).pods));
        pods == self.plan.slices().saturating_mul(self.plan.size)
    }

    /// Distributes a domain's assignment over its children.
    fn take_below(&mut self, id: DomainId, size: i32) -> Vec<DomainId> {
        // Sorted by slices of the first layer, even if slices of another layer are counted.
        let children = self.sort(self.tree.children(id).to_vec());
        if size > 1 {
            for child in &children {
                let mut count = self.count(*child);
                (count.slices, count.slices_led) = (count.pods / size, count.pods_led / size);
                self.counts.set(*child, count);
            }
        }
        let count = self.count(id);
        self.take(
            children,
            Distribution { pods: count.pods, leaders: count.leaders, size, in_slices: size > 1 },
        )
    }

    /// Distributes over domains in order. The last one is the smallest that fits the rest.
    fn take(&mut self, domains: Vec<DomainId>, load: Distribution) -> Vec<DomainId> {
        let domains =
            self.leader_first(domains, load.pods, load.leaders, load.size, load.in_slices);
        let (mut rest, mut leaders) = (load.amount(), load.leaders);
        let mut taken = Vec::new();
        for (at, first) in domains.iter().enumerate() {
            let led = leaders > 0;
            let fits = |search: &Self, id: DomainId| {
                let count = search.count(id);
                count.capacity(load.in_slices, led) >= rest && count.leaders >= leaders
            };
            let mut id = *first;
            if !self.plan.least_free && fits(self, id) {
                id =
                    self.best(domains.get(at..).unwrap_or_default(), rest, leaders, load.in_slices);
            }
            let done = fits(self, id);
            let mut count = self.count(id);
            let amount = count.capacity(load.in_slices, led).min(rest);
            count.leaders = count.leaders.min(leaders);
            count.pods = load.pods_of(amount);
            match (load.in_slices, led && !done) {
                (true, true) => (count.slices, count.slices_led) = (amount, amount),
                (true, false) => count.slices = amount,
                (false, true) => count.pods_led = amount,
                (false, false) => {}
            }
            self.counts.set(id, count);
            taken.push(id);
            if done {
                return taken;
            }
            leaders -= count.leaders;
            rest -= amount;
        }
        // The counts promised more capacity than exists. Kueue logs this as its own bug and assigns
        // nothing.
        Vec::new()
    }

    /// Moves the first domain with room for the leader, and enough for the workers, to the front.
    pub(super) fn leader_first(
        &self,
        mut domains: Vec<DomainId>,
        pods: i32,
        leaders: i32,
        size: i32,
        in_slices: bool,
    ) -> Vec<DomainId> {
        if leaders == 0 || domains.len() < 2 {
            return domains;
        }
        let capacity = |id: &DomainId, led: bool| self.count(*id).capacity(in_slices, led);
        let needed = if in_slices { pods / size } else { pods };
        let all = domains.iter().fold(0, |sum: i32, id| sum.saturating_add(capacity(id, false)));
        let first = domains.iter().position(|id| {
            self.count(*id).leaders >= leaders
                && all.saturating_sub(capacity(id, false) - capacity(id, true)) >= needed
        });
        if let Some(first) = first {
            let id = domains.remove(first);
            domains.insert(0, id);
        }
        domains
    }
}
