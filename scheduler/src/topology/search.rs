//! Which domains of which level take the pods. Kueue: `pkg/cache/scheduler/tas_flavor_snapshot.go`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::counts::{Count, Counts};
use super::failure::{LayerCapacity, PlacementFailure};
use super::plan::PlacementPlan;
use super::tree::{DomainId, TopologyTree};
use crate::Name;

pub(super) struct DomainSearch<'a> {
    pub(super) tree: &'a TopologyTree,
    pub(super) plan: &'a PlacementPlan,
    pub(super) counts: Counts,
}

/// Domains of one level that together hold all pods.
pub(super) struct FoundDomains {
    pub(super) level: usize,
    pub(super) domains: Vec<DomainId>,
}

impl<'a> DomainSearch<'a> {
    /// A copy with its own counts.
    pub(super) fn fork(&self) -> Self {
        Self { tree: self.tree, plan: self.plan, counts: self.counts.fork() }
    }

    pub(super) fn count(&self, id: DomainId) -> Count {
        self.counts.get(id)
    }

    /// Searches the requested level. A preferred request goes on with the levels above (smaller
    /// indexes); at the highest one it takes several domains. An unconstrained request takes several
    /// domains of its own level.
    pub(super) fn levels(&self) -> Result<FoundDomains, PlacementFailure> {
        let mut level = self.plan.level;
        loop {
            if let Some(found) = self.level(level)? {
                return Ok(found);
            }
            level -= 1;
        }
    }

    /// Whether [`DomainSearch::levels`] finds domains.
    pub(super) fn finds_domains(&self) -> bool {
        let plan = self.plan;
        let (asked, required) = (plan.slices(), plan.required);
        if plan.leaders > 0 || asked <= 0 {
            return self.levels().is_ok();
        }
        let slices = |id: DomainId| self.count(id).slices;
        // Above the level of slices, a domain's count is the sum of its children's counts. So the sum
        // of the highest level's counts is the number of slices that fit in all domains together.
        match required {
            true => self.tree.at_level(plan.level).any(|id| slices(id) >= asked),
            false => self.tree.at_level(0).map(slices).fold(0, i32::saturating_add) >= asked,
        }
    }

    /// `None`: search the level above.
    fn level(&self, level: usize) -> Result<Option<FoundDomains>, PlacementFailure> {
        let plan = self.plan;
        let (asked, leaders) = (plan.slices(), plan.leaders);
        // In path order, in which the first one of equal domains comes first.
        let domains = || self.tree.at_level(level);
        if domains().next().is_none() {
            return Err(self.no_domains(level));
        }
        let fits = |count: Count| count.slices_led >= asked && count.leaders >= leaders;
        let fitting = domains().map(|id| (id, self.count(id))).filter(|(_, count)| fits(*count));
        if let Some((domain, _)) =
            fitting.min_by_key(|(_, count)| (count.slices_led, count.pods_led))
        {
            return Ok(Some(FoundDomains { level, domains: vec![domain] }));
        }
        if plan.required {
            let order = |count: Count| {
                let tight = self.tightness(count.slices_led, count.pods_led);
                (Reverse(count.leaders), tight)
            };
            let counts = || domains().map(|id| self.count(id));
            let fits = if plan.least_free {
                counts().max_by_key(|count| order(*count)).map(|last| last.pods)
            } else {
                counts().min_by_key(|count| order(*count)).map(|first| first.slices)
            };
            return Err(self.too_little_capacity(level, fits.unwrap_or(0)));
        }
        if level > 0 && !plan.unconstrained {
            return Ok(None);
        }
        if leaders > 0 || asked <= 0 {
            let sorted = self.sort_led(domains().collect());
            return self.several_domains(level, sorted).map(Some);
        }
        // A domain without capacity gets no pods.
        let open: Vec<_> = domains().filter(|id| self.count(*id).slices > 0).collect();
        let domains = if plan.least_free {
            self.fullest_domains(level, &open)
        } else {
            self.several_domains(level, self.sort(open)).map(|found| found.domains)
        };
        domains.map(|domains| Some(FoundDomains { level, domains }))
    }

    /// The domains with the fewest slices that together hold all pods. Few of many are needed, so
    /// only these are put in order.
    fn fullest_domains(
        &self,
        level: usize,
        open: &[DomainId],
    ) -> Result<Vec<DomainId>, PlacementFailure> {
        let asked = self.plan.slices();
        let order = |(place, id): (usize, &DomainId)| {
            let count = self.count(*id);
            Reverse((count.slices, count.pods, place))
        };
        let mut heap: BinaryHeap<_> = open.iter().enumerate().map(order).collect();
        let (mut domains, mut slices) = (Vec::new(), asked);
        while slices > 0
            && let Some(Reverse((of_domain, _, place))) = heap.pop()
        {
            domains.extend(open.get(place));
            slices -= of_domain;
        }
        if slices > 0 {
            return Err(self.too_little_capacity(level, asked - slices));
        }
        Ok(domains)
    }

    /// The first domains that together hold all pods: those with the leader first.
    fn several_domains(
        &self,
        level: usize,
        sorted: Vec<DomainId>,
    ) -> Result<FoundDomains, PlacementFailure> {
        let plan = self.plan;
        let asked = plan.slices();
        let (mut slices, mut leaders) = (asked, plan.leaders);
        let mut domains = Vec::new();
        let sorted = self.leader_first(sorted, plan.count, leaders, plan.size, true);
        let mut at = 0;
        while let Some(first) =
            sorted.get(at).copied().filter(|id| leaders > 0 && self.count(*id).leaders > 0)
        {
            let rest = sorted.get(at..).unwrap_or_default();
            let last = !plan.least_free && self.count(first).slices_led >= slices;
            let domain = if last { self.best(rest, slices, leaders, true) } else { first };
            domains.push(domain);
            leaders -= self.count(domain).leaders;
            slices -= self.count(domain).slices_led;
            at += 1;
        }
        if leaders > 0 {
            return Err(self.too_little_capacity(level, plan.leaders - leaders));
        }
        let sorted = self.sort(sorted.get(at..).unwrap_or_default().to_vec());
        for (at, first) in sorted.iter().enumerate() {
            if slices <= 0 {
                break;
            }
            let rest = sorted.get(at..).unwrap_or_default();
            let last = !plan.least_free && self.count(*first).slices >= slices;
            let domain = if last { self.best(rest, slices, 0, true) } else { *first };
            domains.push(domain);
            slices -= self.count(domain).slices;
        }
        if slices > 0 {
            return Err(self.too_little_capacity(level, asked - slices));
        }
        Ok(FoundDomains { level, domains })
    }

    /// The order of domains while the leader is not placed.
    pub(super) fn sort_led(&self, mut domains: Vec<DomainId>) -> Vec<DomainId> {
        domains.sort_by_cached_key(|id| {
            let count = self.count(*id);
            let tight = self.tightness(count.slices_led, count.pods_led);
            (Reverse(count.leaders), tight, self.tree.rank(*id))
        });
        domains
    }

    /// The order of domains for workers.
    pub(super) fn sort(&self, mut domains: Vec<DomainId>) -> Vec<DomainId> {
        domains.sort_by_cached_key(|id| {
            let count = self.count(*id);
            (self.tightness(count.slices, count.pods), self.tree.rank(*id))
        });
        domains
    }

    /// The most slices first, or with `least_free` the fewest; then the fewest pods.
    fn tightness(&self, slices: i32, pods: i32) -> (i64, i32) {
        let slices = i64::from(slices);
        (if self.plan.least_free { slices } else { -slices }, pods)
    }

    /// The first of the smallest domains that hold the need, else the first domain. Callers pass at
    /// least one domain.
    pub(super) fn best(
        &self,
        domains: &[DomainId],
        need: i32,
        leaders: i32,
        in_slices: bool,
    ) -> DomainId {
        let capacity = |id: DomainId| self.count(id).capacity(in_slices, leaders > 0);
        let holds = |id: &DomainId| self.count(*id).leaders >= leaders && capacity(*id) >= need;
        let best = domains.iter().copied().filter(holds).min_by_key(|id| capacity(*id));
        best.or(domains.first().copied()).unwrap_or_default()
    }

    fn no_domains(&self, level: usize) -> PlacementFailure {
        PlacementFailure::NoDomains { level: self.level_key(level) }
    }

    fn level_key(&self, level: usize) -> Name {
        self.tree.levels.get(level).cloned().unwrap_or_default()
    }

    fn too_little_capacity(&self, level: usize, fits: i32) -> PlacementFailure {
        let (topology, excluded) = (self.tree.topology.clone(), Box::new(self.counts.excluded()));
        if self.plan.layers.is_empty() {
            let (asked, slices) = (self.plan.slices(), self.plan.size != 1);
            return PlacementFailure::NoRoom { topology, fits, asked, slices, excluded };
        }
        let best = self
            .tree
            .at_level(level)
            .max_by_key(|id| (self.count(*id).slices, Reverse(self.tree.rank(*id))));
        let layers = self.plan.layers.iter().map(|(layer, at)| LayerCapacity {
            level: layer.topology.clone(),
            fits: best.map_or(0, |best| self.slices_below(best, *at, layer.size)),
            asked: self.plan.count / layer.size.max(1),
        });
        PlacementFailure::NoRoomInLayers { topology, layers: layers.collect(), excluded }
    }

    fn slices_below(&self, id: DomainId, level: usize, size: i32) -> i32 {
        match self.tree.domain(id) {
            Some(domain) if domain.level < level => {
                let below =
                    domain.children.iter().map(|child| self.slices_below(*child, level, size));
                below.fold(0, i32::saturating_add)
            }
            Some(domain) if domain.level == level => self.count(id).pods / size.max(1),
            _ => 0,
        }
    }
}

impl Count {
    pub(super) fn capacity(self, in_slices: bool, led: bool) -> i32 {
        match (in_slices, led) {
            (true, true) => self.slices_led,
            (true, false) => self.slices,
            (false, true) => self.pods_led,
            (false, false) => self.pods,
        }
    }
}
