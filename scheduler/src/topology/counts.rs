//! How many pods each domain can take.

use std::collections::BTreeMap;

use super::failure::ExcludedLeaves;
use super::filter::PodFilter;
use super::plan::Plan;
use super::resources::{Amounts, Demand, bounded};
use super::tree::{DomainId, Leaf, TopologyTree};
use crate::Name;

/// The capacity of a domain; after the distribution, its assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) pods: i32,
    /// With the leader in the domain.
    pub(super) pods_led: i32,
    pub(super) slices: i32,
    /// With the leader in the domain.
    pub(super) slices_led: i32,
    /// 1 if the leader fits in the domain, else 0.
    pub(super) leaders: i32,
}

/// By domain.
#[derive(Clone, Debug)]
pub(super) struct Counts(Vec<Count>);

/// Usage of earlier placements of the same call, by leaf.
pub(crate) type Assumed = BTreeMap<Name, Amounts>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    Anywhere,
    Below(DomainId),
    /// Kueue searches the host as if it were a domain above hosts, and finds none.
    Nowhere,
}

/// The pods to place.
#[derive(Clone, Copy)]
pub(super) struct PlacementDemand<'a> {
    pub(super) worker: &'a Demand,
    pub(super) leader: Option<&'a Demand>,
    pub(super) filter: &'a PodFilter<'a>,
    pub(super) assumed: &'a Assumed,
    pub(super) within: Within,
    /// Ignore the usage of workloads.
    pub(super) empty: bool,
}

/// How the counts of children add up.
#[derive(Clone, Copy)]
pub(super) struct RollUp<'a> {
    pub(super) plan: &'a Plan,
    /// Whether slice layers below the first one count.
    pub(super) with_inner: bool,
}

impl Counts {
    /// Counts all domains, and collects the excluded leaves.
    pub(super) fn new(
        tree: &TopologyTree,
        plan: &Plan,
        wanted: &PlacementDemand<'_>,
    ) -> (Self, ExcludedLeaves) {
        let mut counts = Self(vec![Count::default(); tree.size()]);
        let mut excluded = ExcludedLeaves::default();
        for (id, leaf) in tree.leaves() {
            excluded.total += 1;
            if let Some(count) = leaf_count(tree, (id, leaf), wanted, &mut excluded) {
                counts.set(id, count);
            }
        }
        let roll_up = RollUp { plan, with_inner: true };
        for root in tree.at_level(0) {
            counts.roll_up(tree, root, roll_up);
        }
        (counts, excluded)
    }

    pub(super) fn get(&self, id: DomainId) -> Count {
        self.0.get(id.index()).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, id: DomainId, count: Count) {
        if let Some(place) = self.0.get_mut(id.index()) {
            *place = count;
        }
    }

    /// Computes a domain's count from its children.
    pub(super) fn roll_up(&mut self, tree: &TopologyTree, id: DomainId, how: RollUp<'_>) {
        let Some(domain) = tree.domain(id) else { return };
        let plan = how.plan;
        let mut count = if domain.children.is_empty() {
            self.get(id)
        } else {
            for child in &domain.children {
                self.roll_up(tree, *child, how);
            }
            let inner = plan.inner(domain.level + 1).filter(|_| how.with_inner);
            let children = domain.children.iter().map(|child| self.get(*child));
            sum(children, inner, plan.leaders > 0)
        };
        if domain.level == plan.slice_level {
            count.slices = count.pods / plan.size;
            count.slices_led = count.pods_led / plan.size;
        }
        self.set(id, count);
    }
}

/// Sums the counts of children. With the leader, the parent has the sum minus the smallest cost of
/// the leader among its children.
fn sum(children: impl Iterator<Item = Count>, inner: Option<i32>, led: bool) -> Count {
    let mut sum = Count::default();
    let mut least: Option<(i32, i32)> = None;
    for child in children {
        let whole = |pods: i32| inner.map_or(pods, |size| pods / size * size);
        let (pods, pods_led) = (whole(child.pods), whole(child.pods_led));
        sum.pods = sum.pods.saturating_add(pods);
        sum.slices = sum.slices.saturating_add(child.slices);
        sum.leaders = sum.leaders.max(child.leaders);
        if !led || child.leaders > 0 {
            let cost = (pods - pods_led, child.slices - child.slices_led);
            let (of_pods, of_slices) = least.unwrap_or(cost);
            least = Some((of_pods.min(cost.0), of_slices.min(cost.1)));
        }
    }
    if let Some((pods, slices)) = least {
        (sum.pods_led, sum.slices_led) = (sum.pods - pods, sum.slices - slices);
    }
    sum
}

/// `None` if the pods may not run on the leaf.
pub(super) fn leaf_count(
    tree: &TopologyTree,
    (id, leaf): (DomainId, &Leaf),
    wanted: &PlacementDemand<'_>,
    excluded: &mut ExcludedLeaves,
) -> Option<Count> {
    if tree.is_by_host()
        && !leaf.first().is_some_and(|source| wanted.filter.admits(source, excluded))
    {
        return None;
    }
    if !is_within(tree, id, wanted.within) {
        excluded.topology_domain += 1;
        return None;
    }
    let assumed = (!wanted.assumed.is_empty()).then(|| wanted.assumed.get(&leaf.id)).flatten();
    let free = |number: usize| {
        let free = leaf.free(number, wanted.empty);
        assumed.map_or(free, |assumed| free.saturating_sub(bounded(assumed.get(number))))
    };
    let (pods, limit) = wanted.worker.count_in(free);
    if let Some(limit) = limit.filter(|_| pods == 0) {
        *excluded.resources.entry(limit.clone()).or_default() += 1;
    }
    let leader = wanted.leader.filter(|leader| leader.count_in(free).0 > 0);
    let pods_led = leader.map_or(pods, |leader| wanted.worker.count_in(leader.taken_from(free)).0);
    Some(Count { pods, pods_led, leaders: i32::from(leader.is_some()), ..Count::default() })
}

fn is_within(tree: &TopologyTree, id: DomainId, within: Within) -> bool {
    match within {
        Within::Anywhere => true,
        Within::Nowhere => false,
        Within::Below(top) => {
            let level = tree.domain(top).map_or(0, |domain| domain.level);
            tree.ancestor(id, level) == Some(top)
        }
    }
}
