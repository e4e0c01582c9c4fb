//! From the domains that hold all pods together down to leaves.

use super::search::{Found, Search};
use super::tree::DomainId;

/// How many pods, and leaders, are to be distributed.
#[derive(Clone, Copy)]
struct Load {
    pods: i32,
    leaders: i32,
    /// The pods that stay together.
    size: i32,
    /// Whole slices are counted, not pods.
    in_slices: bool,
}

impl Load {
    fn amount(&self) -> i32 {
        if self.in_slices { self.pods / self.size } else { self.pods }
    }

    fn pods_of(&self, amount: i32) -> i32 {
        if self.in_slices { amount.saturating_mul(self.size) } else { amount }
    }
}

impl Search<'_> {
    /// Leaves with their pods and leaders, in the counts. `balanced`: the domains have their shares already.
    pub(super) fn descend(&mut self, found: Found, balanced: bool) -> Vec<DomainId> {
        let plan = self.plan;
        let load =
            Load { pods: plan.count, leaders: plan.leaders, size: plan.size, in_slices: true };
        let mut domains = self.take(found.domains, load);
        let (mut level, lowest) = (found.level, self.tree.lowest());
        // Above the level of slices, whose share is whose does not matter: the fewest domains do.
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

    /// Distributes what a domain takes over its children.
    fn take_below(&mut self, id: DomainId, size: i32) -> Vec<DomainId> {
        // The order is by the slices of the first layer, also where those of another are counted.
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
            Load { pods: count.pods, leaders: count.leaders, size, in_slices: size > 1 },
        )
    }

    /// Distributes over domains in their order; the last one is the smallest that does.
    fn take(&mut self, domains: Vec<DomainId>, load: Load) -> Vec<DomainId> {
        let domains =
            self.leader_first(domains, load.pods, load.leaders, load.size, load.in_slices);
        let (mut rest, mut leaders) = (load.amount(), load.leaders);
        let mut taken = Vec::new();
        for (at, first) in domains.iter().enumerate() {
            let led = leaders > 0;
            let fits = |search: &Self, id: DomainId| {
                let count = search.count(id);
                count.room(load.in_slices, led) >= rest && count.leaders >= leaders
            };
            let mut id = *first;
            if !self.plan.least_free && fits(self, id) {
                id =
                    self.best(domains.get(at..).unwrap_or_default(), rest, leaders, load.in_slices);
            }
            let done = fits(self, id);
            let mut count = self.count(id);
            let amount = count.room(load.in_slices, led).min(rest);
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
        // Counts promised more than there is, which Kueue reports as a bug of its own and assigns nothing.
        Vec::new()
    }

    /// The first domain that can take the leader and leaves enough for the workers goes first.
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
        let room = |id: &DomainId, led: bool| self.count(*id).room(in_slices, led);
        let needed = if in_slices { pods / size } else { pods };
        let all = domains.iter().fold(0, |sum: i32, id| sum.saturating_add(room(id, false)));
        let first = domains.iter().position(|id| {
            self.count(*id).leaders >= leaders
                && all.saturating_sub(room(id, false) - room(id, true)) >= needed
        });
        if let Some(first) = first {
            let id = domains.remove(first);
            domains.insert(0, id);
        }
        domains
    }
}
