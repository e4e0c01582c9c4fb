//! How many pods each domain can take.

use std::collections::BTreeMap;

use super::failure::ExcludedLeaves;
use super::filter::{Exclusion, PodFilter};
use super::plan::PlacementPlan;
use super::resources::{Amounts, Demand, bounded};
use super::tree::{DomainId, Leaf, TopologyTree};
use crate::{Name, Taint};

/// The capacity of a domain; after the distribution, its assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) pods: i32,
    /// The pods that fit beside the leader.
    pub(super) pods_led: i32,
    pub(super) slices: i32,
    /// The slices that fit beside the leader.
    pub(super) slices_led: i32,
    /// 1 if the leader fits in the domain, else 0.
    pub(super) leaders: i32,
}

/// The counts of all domains, and how many leaves are excluded for which reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    by_domain: Vec<Count>,
    states: Vec<LeafState>,
    tally: Tally,
    /// Earlier values, so that a search leaves no trace.
    undo: Vec<Undo>,
    recording: bool,
}

/// The state of a leaf in the count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LeafState {
    /// The domain is not a leaf, or does not exist.
    #[default]
    NoLeaf,
    Open,
    /// By the position of the limiting resource in the demand.
    Full(u16),
    /// By the position in [`Tally::taints`].
    Tainted(u16),
    NodeSelector,
    Affinity,
    Outside,
}

#[derive(Clone, Copy, Debug)]
enum Undo {
    Count(DomainId, Count),
    State(DomainId, LeafState),
}

/// Leaves by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    leaves: usize,
    node_selector: usize,
    affinity: usize,
    outside: usize,
    taints: Vec<(Taint, usize)>,
    /// In the order of the demand.
    resources: Vec<(Name, usize)>,
}

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
    pub(super) within: Within,
    /// Ignore the usage of workloads.
    pub(super) empty: bool,
}

/// The requests of one worker and of the leader.
pub(super) struct Demands {
    pub(super) worker: Demand,
    pub(super) leader: Option<Demand>,
}

impl Demands {
    pub(super) fn wanted<'a>(
        &'a self,
        filter: &'a PodFilter<'a>,
        within: Within,
        empty: bool,
    ) -> PlacementDemand<'a> {
        PlacementDemand {
            worker: &self.worker,
            leader: self.leader.as_ref(),
            filter,
            within,
            empty,
        }
    }
}

/// How the counts of children add up.
#[derive(Clone, Copy)]
pub(super) struct RollUp<'a> {
    pub(super) plan: &'a PlacementPlan,
    /// Whether slice layers below the first one count.
    pub(super) with_inner: bool,
}

/// Why a leaf takes no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeafRefusal<'a> {
    Excluded(Exclusion<'a>),
    /// Outside the domain of the search.
    Outside,
    /// By the position of the limiting resource in the demand.
    Full(usize),
}

/// A change of a leaf or of a domain above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Anything may have changed, even whether the domain exists.
    Whole,
    /// Only the usage of workloads changed.
    Usage,
}

impl Counts {
    /// Counts all domains.
    pub(super) fn new(
        tree: &TopologyTree,
        plan: &PlacementPlan,
        wanted: &PlacementDemand<'_>,
    ) -> Self {
        let resources = wanted.worker.names().map(|name| (name.clone(), 0)).collect();
        let mut counts = Self { tally: Tally { resources, ..Tally::default() }, ..Self::default() };
        counts.resize(tree.size());
        for (id, leaf) in tree.leaves() {
            counts.count_leaf(tree, (id, leaf), plan, wanted, None, false);
        }
        let roll_up = RollUp { plan, with_inner: true };
        for root in tree.at_level(0) {
            counts.roll_up(tree, root, roll_up);
        }
        counts
    }

    pub(super) fn get(&self, id: DomainId) -> Count {
        self.by_domain.get(id.index()).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, id: DomainId, count: Count) {
        let Some(place) = self.by_domain.get_mut(id.index()) else { return };
        if self.recording && *place != count {
            self.undo.push(Undo::Count(id, *place));
        }
        *place = count;
    }

    /// Computes a domain's count from all domains below.
    pub(super) fn roll_up(&mut self, tree: &TopologyTree, id: DomainId, how: RollUp<'_>) {
        for child in tree.children(id) {
            self.roll_up(tree, *child, how);
        }
        self.add_up(tree, id, how);
    }

    /// Computes a domain's count from its children.
    fn add_up(&mut self, tree: &TopologyTree, id: DomainId, how: RollUp<'_>) {
        let Some(domain) = tree.domain(id) else {
            return self.set(id, Count::default());
        };
        let mut count = if domain.children.is_empty() {
            self.get(id)
        } else {
            let inner = how.plan.inner(domain.level + 1).filter(|_| how.with_inner);
            sum(domain.children.iter().map(|child| self.get(*child)), inner, how.plan.leaders > 0)
        };
        count.divide(domain.level, how.plan);
        self.set(id, count);
    }

    /// Follows changes of the tree, without the usage that a search assumes.
    pub(super) fn follow(
        &mut self,
        tree: &TopologyTree,
        plan: &PlacementPlan,
        wanted: &PlacementDemand<'_>,
        changes: &[(DomainId, Change)],
    ) {
        self.resize(tree.size());
        let usage_counts = !wanted.empty;
        let mut changed: Vec<_> = changes
            .iter()
            .filter(|(_, change)| usage_counts || *change == Change::Whole)
            .copied()
            .collect();
        changed.sort_unstable();
        // A change of the whole leaf sorts before one of its usage.
        changed.dedup_by_key(|(id, _)| *id);
        self.recount(tree, plan, wanted, &changed, &|_| None);
    }

    /// Counts these leaves again, and the domains above them.
    pub(super) fn recount<'a>(
        &mut self,
        tree: &TopologyTree,
        plan: &PlacementPlan,
        wanted: &PlacementDemand<'_>,
        changes: &[(DomainId, Change)],
        assumed: &dyn Fn(DomainId) -> Option<&'a Amounts>,
    ) {
        let mut above: Vec<Vec<DomainId>> = vec![Vec::new(); tree.levels.len()];
        let mut mark = |id: DomainId| {
            let level = tree.domain(id).and_then(|domain| above.get_mut(domain.level));
            level.into_iter().for_each(|ids| ids.push(id));
        };
        for (id, change) in changes {
            let before = self.get(*id);
            let Some(leaf) = tree.leaf_at(*id) else {
                // Removed, or a domain above leaves by now.
                self.set_state(*id, LeafState::NoLeaf);
                match tree.domain(*id) {
                    Some(_) => mark(*id),
                    None => self.set(*id, Count::default()),
                }
                continue;
            };
            let state = self.state(*id);
            if *change == Change::Usage && state.is_filtered() {
                continue;
            }
            let is_admitted = *change == Change::Usage && state != LeafState::NoLeaf;
            self.count_leaf(tree, (*id, leaf), plan, wanted, assumed(*id), is_admitted);
            if *change == Change::Whole || self.get(*id) != before {
                tree.domain(*id).and_then(|domain| domain.parent).into_iter().for_each(&mut mark);
            }
        }
        let roll_up = RollUp { plan, with_inner: true };
        while let Some(mut ids) = above.pop() {
            ids.sort_unstable();
            ids.dedup();
            for id in ids {
                self.add_up(tree, id, roll_up);
                let parent = tree.domain(id).and_then(|domain| domain.parent);
                if let Some((parent, level)) = parent.zip(above.last_mut()) {
                    level.push(parent);
                }
            }
        }
    }

    fn count_leaf(
        &mut self,
        tree: &TopologyTree,
        (id, leaf): (DomainId, &Leaf),
        plan: &PlacementPlan,
        wanted: &PlacementDemand<'_>,
        assumed: Option<&Amounts>,
        is_admitted: bool,
    ) {
        let (mut count, refusal) = match is_admitted {
            true => count_free(leaf, wanted, assumed),
            false => count_in_leaf(tree, (id, leaf), wanted, assumed),
        };
        count.divide(tree.lowest(), plan);
        let position = |position: usize| u16::try_from(position).unwrap_or(u16::MAX);
        let state = match refusal {
            None => LeafState::Open,
            Some(LeafRefusal::Full(resource)) => LeafState::Full(position(resource)),
            Some(LeafRefusal::Outside) => LeafState::Outside,
            Some(LeafRefusal::Excluded(Exclusion::NodeSelector)) => LeafState::NodeSelector,
            Some(LeafRefusal::Excluded(Exclusion::Affinity)) => LeafState::Affinity,
            Some(LeafRefusal::Excluded(Exclusion::Taint(taint))) => {
                LeafState::Tainted(position(self.tally.taint(taint)))
            }
        };
        self.set_state(id, state);
        self.set(id, count);
    }

    fn state(&self, id: DomainId) -> LeafState {
        self.states.get(id.index()).copied().unwrap_or_default()
    }

    fn set_state(&mut self, id: DomainId, state: LeafState) {
        let Some(place) = self.states.get_mut(id.index()) else { return };
        let before = std::mem::replace(place, state);
        if before == state {
            return;
        }
        if self.recording {
            self.undo.push(Undo::State(id, before));
        }
        self.tally.shift(before, -1);
        self.tally.shift(state, 1);
    }

    fn resize(&mut self, size: usize) {
        if size > self.by_domain.len() {
            self.by_domain.resize(size, Count::default());
            self.states.resize(size, LeafState::NoLeaf);
        }
    }

    /// From now on, [`Counts::revert`] takes changes back.
    pub(super) fn record(&mut self) {
        self.recording = true;
    }

    pub(super) fn revert(&mut self) {
        self.recording = false;
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Count(id, count) => self.set(id, count),
                Undo::State(id, state) => self.set_state(id, state),
            }
        }
    }

    /// A copy that cannot be reverted.
    pub(super) fn fork(&self) -> Self {
        Self {
            by_domain: self.by_domain.clone(),
            states: Vec::new(),
            tally: Tally::default(),
            undo: Vec::new(),
            recording: false,
        }
    }

    pub(super) fn excluded(&self) -> ExcludedLeaves {
        let Tally { leaves, node_selector, affinity, outside, taints, resources } = &self.tally;
        let resources = resources.iter().filter(|(_, count)| *count > 0);
        ExcludedLeaves {
            total: *leaves,
            node_selector: *node_selector,
            affinity: *affinity,
            topology_domain: *outside,
            taints: taints.iter().filter(|(_, count)| *count > 0).cloned().collect(),
            resources: resources.cloned().collect(),
        }
    }
}

#[cfg(test)]
impl Counts {
    /// Whether both count the same in all domains.
    pub(super) fn agrees_with(&self, tree: &TopologyTree, other: &Self) -> bool {
        let mut all = (0..tree.levels.len()).flat_map(|level| tree.at_level(level));
        all.all(|id| self.get(id) == other.get(id)) && self.excluded() == other.excluded()
    }
}

impl LeafState {
    /// Excluded whatever the usage.
    fn is_filtered(self) -> bool {
        matches!(self, Self::Tainted(_) | Self::NodeSelector | Self::Affinity | Self::Outside)
    }
}

impl Tally {
    fn taint(&mut self, taint: &Taint) -> usize {
        if let Some(known) = self.taints.iter().position(|(known, _)| known == taint) {
            return known;
        }
        // A taint's value may be a time, new with each taint. So entries without a leaf are reused.
        if let Some(free) = self.taints.iter().position(|(_, count)| *count == 0) {
            self.taints[free].0 = taint.clone();
            return free;
        }
        self.taints.push((taint.clone(), 0));
        self.taints.len() - 1
    }

    fn shift(&mut self, state: LeafState, sign: isize) {
        let step = |count: &mut usize| *count = count.saturating_add_signed(sign);
        if state != LeafState::NoLeaf {
            step(&mut self.leaves);
        }
        match state {
            LeafState::NoLeaf | LeafState::Open => {}
            LeafState::NodeSelector => step(&mut self.node_selector),
            LeafState::Affinity => step(&mut self.affinity),
            LeafState::Outside => step(&mut self.outside),
            LeafState::Full(at) => {
                let resource = self.resources.get_mut(usize::from(at));
                resource.into_iter().for_each(|(_, count)| step(count));
            }
            LeafState::Tainted(at) => {
                let taint = self.taints.get_mut(usize::from(at));
                taint.into_iter().for_each(|(_, count)| step(count));
            }
        }
    }
}

impl Count {
    /// Counts whole slices at their level.
    fn divide(&mut self, level: usize, plan: &PlacementPlan) {
        if level == plan.slice_level {
            self.slices = self.pods / plan.size;
            self.slices_led = self.pods_led / plan.size;
        }
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

/// The pods that a leaf takes, and why it takes none.
pub(super) fn count_in_leaf<'a>(
    tree: &TopologyTree,
    (id, leaf): (DomainId, &'a Leaf),
    wanted: &PlacementDemand<'_>,
    assumed: Option<&Amounts>,
) -> (Count, Option<LeafRefusal<'a>>) {
    if tree.is_by_host() {
        let excluded = leaf.first().and_then(|source| wanted.filter.exclusion(source));
        if let Some(excluded) = excluded {
            return (Count::default(), Some(LeafRefusal::Excluded(excluded)));
        }
    }
    if !is_within(tree, id, wanted.within) {
        return (Count::default(), Some(LeafRefusal::Outside));
    }
    count_free(leaf, wanted, assumed)
}

/// The pods that fit in the free amounts of a leaf.
fn count_free(
    leaf: &Leaf,
    wanted: &PlacementDemand<'_>,
    assumed: Option<&Amounts>,
) -> (Count, Option<LeafRefusal<'static>>) {
    let free = |number: usize| {
        let free = leaf.free(number, wanted.empty);
        assumed.map_or(free, |assumed| free.saturating_sub(bounded(assumed.get(number))))
    };
    let (pods, limit) = wanted.worker.count_in(free);
    let leader = wanted.leader.filter(|leader| leader.count_in(free).0 > 0);
    let pods_led = leader.map_or(pods, |leader| wanted.worker.count_in(leader.taken_from(free)).0);
    let count = Count { pods, pods_led, leaders: i32::from(leader.is_some()), ..Count::default() };
    (count, limit.filter(|_| pods == 0).map(LeafRefusal::Full))
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
