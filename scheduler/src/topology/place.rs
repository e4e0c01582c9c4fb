//! Placement of one workload's pods in one flavor.

use std::collections::BTreeMap;

use super::count_cache::borrow_counts;
use super::counts::{Assumed, Demands, Within};
use super::failure::PlacementFailure;
use super::filter::PodFilter;
use super::plan::{PlacementPlan, RequestKind};
use super::resources::{Amounts, Demand, Resources};
use super::search::DomainSearch;
use super::tree::{DomainId, TopologyTree, joined};
use crate::{Amount, AssignedDomain, Name, TopologyAssignment, TopologyRequest};

/// The pods of one pod set to place.
#[derive(Clone, Debug)]
pub(crate) struct PlacementRequest<'a> {
    pub(crate) name: &'a Name,
    pub(crate) count: i32,
    pub(crate) request: Option<&'a TopologyRequest>,
    /// Without a topology request, in a queue whose flavors all have a topology.
    pub(crate) implied: bool,
    /// The requests of one pod.
    pub(crate) requests: &'a BTreeMap<Name, Amount>,
    pub(crate) filter: PodFilter<'a>,
    /// A conflict among the `podSetUpdates` of its admission checks.
    pub(crate) bad_update: Option<String>,
    /// The topology assignment of the replaced slice. Only for elastic workloads.
    pub(crate) previous: Option<&'a TopologyAssignment>,
    /// Its own present assignment, in the second pass.
    pub(crate) own: Option<&'a TopologyAssignment>,
    /// The present assignment of the other pod set of its group, in the second pass.
    pub(crate) peer: Option<&'a TopologyAssignment>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlacementOptions {
    /// Kueue's gate `TASProfileMixed`: unconstrained pods go to the domains with the least free
    /// capacity.
    pub(crate) mixed: bool,
    /// Kueue's gate `TASBalancedPlacement`.
    pub(crate) balanced: bool,
    /// Ignore the usage of workloads.
    pub(crate) empty: bool,
}

/// The failed nodes of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unhealthy<'a> {
    /// As in Kueue, only the first one is replaced.
    pub(crate) node: &'a Name,
    /// The workload is a single pod, which cannot move.
    pub(crate) keep: bool,
}

/// Topology assignments; `None` for requests after a failure.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    pub(crate) assignments: Vec<Option<TopologyAssignment>>,
    /// The first pod set without a placement, by index.
    pub(crate) failure: Option<(usize, PlacementFailure)>,
}

#[derive(Clone, Copy)]
pub(crate) struct Placer<'a> {
    pub(crate) tree: &'a TopologyTree,
    pub(crate) resources: &'a Resources,
    pub(crate) options: PlacementOptions,
}

/// The pod sets of one search.
pub(super) struct LeaderAndWorkers<'a, 'b> {
    pub(super) workers: &'b PlacementRequest<'a>,
    pub(super) leader: Option<&'b PlacementRequest<'a>>,
}

/// Assignments of the workers and of the leader.
pub(super) type PlacedGroup = (TopologyAssignment, Option<TopologyAssignment>);

impl Placer<'_> {
    /// Places pod sets, those of one group together. Adds their usage to `assumed`.
    pub(crate) fn place(
        &self,
        requests_of_pod_sets: &[PlacementRequest<'_>],
        unhealthy: Option<Unhealthy<'_>>,
        assumed: &mut Assumed,
    ) -> Placement {
        let mut placement =
            Placement { assignments: vec![None; requests_of_pod_sets.len()], failure: None };
        for members in grouped(requests_of_pod_sets.iter().map(|ask| ask.request?.group.as_ref())) {
            let placed = match unhealthy {
                Some(unhealthy) => self.replace_in(
                    requests_of_pod_sets,
                    &members,
                    unhealthy,
                    assumed,
                    &mut placement,
                ),
                None => self.place_group(requests_of_pod_sets, &members, assumed, &mut placement),
            };
            if let Err((at, failure)) = placed {
                placement.failure = Some((at, failure));
                break;
            }
        }
        placement
    }

    fn replace_in(
        &self,
        requests_of_pod_sets: &[PlacementRequest<'_>],
        members: &[usize],
        unhealthy: Unhealthy<'_>,
        assumed: &mut Assumed,
        placement: &mut Placement,
    ) -> Result<(), (usize, PlacementFailure)> {
        for at in members {
            let Some((ask, own)) =
                requests_of_pod_sets.get(*at).and_then(|ask| Some((ask, ask.own?)))
            else {
                continue;
            };
            let whole = if unhealthy.keep {
                own.clone()
            } else {
                let (whole, new) = self
                    .replace(ask, own, unhealthy.node, assumed)
                    .map_err(|failure| (*at, failure))?;
                self.assume(&new, ask, assumed);
                whole
            };
            if let Some(place) = placement.assignments.get_mut(*at) {
                *place = Some(whole);
            }
        }
        Ok(())
    }

    fn place_group(
        &self,
        requests_of_pod_sets: &[PlacementRequest<'_>],
        members: &[usize],
        assumed: &mut Assumed,
        placement: &mut Placement,
    ) -> Result<(), (usize, PlacementFailure)> {
        let (workers, leader) = roles(requests_of_pod_sets, members)?;
        let Some(worker_ask) = requests_of_pod_sets.get(workers) else { return Ok(()) };
        let group = LeaderAndWorkers {
            workers: worker_ask,
            leader: leader.and_then(|at| requests_of_pod_sets.get(at)),
        };
        let placed = match self.resize(&group, assumed) {
            Some(placed) => placed,
            None => {
                self.search(&group, Within::Anywhere, assumed).inspect(|(of_workers, of_leader)| {
                    self.assume(of_workers, group.workers, assumed);
                    if let Some((ask, assignment)) = group.leader.zip(of_leader.as_ref()) {
                        self.assume(assignment, ask, assumed);
                    }
                })
            }
        };
        let first = members.first().copied().unwrap_or(workers);
        let (of_workers, of_leader) = placed.map_err(|failure| (first, failure))?;
        for (at, assignment) in [(Some(workers), Some(of_workers)), (leader, of_leader)] {
            if let Some(place) = at.and_then(|at| placement.assignments.get_mut(at)) {
                *place = assignment;
            }
        }
        Ok(())
    }

    pub(super) fn search(
        &self,
        group: &LeaderAndWorkers<'_, '_>,
        within: Within,
        assumed: &Assumed,
    ) -> Result<PlacedGroup, PlacementFailure> {
        let LeaderAndWorkers { workers, leader } = *group;
        if let Some(message) = &workers.bad_update {
            return Err(PlacementFailure::BadUpdate {
                pod_set: workers.name.clone(),
                message: message.clone(),
            });
        }
        let plan = self.plan(group)?;
        let demands = self.demands(group);
        let wanted = demands.wanted(&workers.filter, within, self.options.empty);
        let (counts, loan) = borrow_counts(self.tree, &plan, &wanted, assumed);
        let mut search = DomainSearch { tree: self.tree, plan: &plan, counts };
        let placed = self.search_counted(&mut search, leader.is_some());
        loan.give_back(self.tree, search.counts);
        placed
    }

    pub(super) fn demands(&self, group: &LeaderAndWorkers<'_, '_>) -> Demands {
        let of = |ask: &PlacementRequest<'_>| Demand::of_pod(ask.requests, self.resources);
        Demands { worker: of(group.workers), leader: group.leader.map(of) }
    }

    fn search_counted(
        &self,
        search: &mut DomainSearch<'_>,
        with_leader: bool,
    ) -> Result<PlacedGroup, PlacementFailure> {
        let plan = search.plan;
        let balanced = (self.options.balanced && !plan.required && !plan.unconstrained)
            .then(|| search.balanced());
        // Balanced placement ignores inner slice layers, so it may place too few pods.
        let balanced = balanced.flatten().map(|(mut search, found)| {
            let leaves = search.descend(found, true);
            (search, leaves)
        });
        let assignments = |search: &DomainSearch<'_>, leaves: &[DomainId]| {
            let of_workers = self.assignment(leaves, |id| search.count(id).pods);
            let of_leader =
                with_leader.then(|| self.assignment(leaves, |id| search.count(id).leaders));
            (of_workers, of_leader)
        };
        if let Some((search, leaves)) =
            balanced.filter(|(search, leaves)| search.places_all(leaves))
        {
            return Ok(assignments(&search, &leaves));
        }
        let found = search.levels()?;
        let leaves = search.descend(found, false);
        Ok(assignments(search, &leaves))
    }

    pub(super) fn plan(
        &self,
        group: &LeaderAndWorkers<'_, '_>,
    ) -> Result<PlacementPlan, PlacementFailure> {
        let LeaderAndWorkers { workers, leader } = *group;
        let kind = RequestKind::new(workers.request, workers.implied);
        let leaders = i32::from(leader.is_some());
        PlacementPlan::new(self.tree, &kind, workers.count, leaders, self.options.mixed)
    }

    /// The leaves with their pods, in path order.
    fn assignment(
        &self,
        leaves: &[DomainId],
        pods: impl Fn(DomainId) -> i32,
    ) -> TopologyAssignment {
        let mut leaves: Vec<_> = leaves.iter().copied().filter(|id| pods(*id) > 0).collect();
        leaves.sort_by_key(|id| self.tree.rank(*id));
        let first = self.first_level();
        let values = |id| {
            self.tree
                .domain(id)
                .and_then(|domain| domain.path.get(first..))
                .unwrap_or_default()
                .to_vec()
        };
        TopologyAssignment {
            levels: self.tree.levels.get(first..).unwrap_or_default().to_vec(),
            domains: leaves
                .into_iter()
                .map(|id| AssignedDomain { values: values(id), count: pods(id) })
                .collect(),
        }
    }

    /// The first level in an assignment. If the lowest level is the host, an assignment has no
    /// other.
    fn first_level(&self) -> usize {
        if self.tree.is_by_host() { self.tree.lowest() } else { 0 }
    }

    /// Adds the usage of pods to `assumed`.
    pub(super) fn assume(
        &self,
        assignment: &TopologyAssignment,
        ask: &PlacementRequest<'_>,
        assumed: &mut Assumed,
    ) {
        let demand = Demand::of_pod(ask.requests, self.resources);
        for domain in &assignment.domains {
            let sum: &mut Amounts = assumed.entry(joined(&domain.values)).or_default();
            sum.add_demand(&demand, domain.count);
        }
    }

    /// A domain of the assignment that no longer exists.
    pub(super) fn stale_domain<'t>(
        &self,
        assignment: &'t TopologyAssignment,
    ) -> Option<&'t AssignedDomain> {
        assignment.domains.iter().find(|domain| self.leaf_of(domain).is_none())
    }

    pub(super) fn leaf_of(&self, domain: &AssignedDomain) -> Option<DomainId> {
        self.tree.leaf_id(&joined(&domain.values))
    }

    /// Merges both assignments in path order.
    pub(super) fn merge(
        &self,
        one: &TopologyAssignment,
        other: &TopologyAssignment,
    ) -> TopologyAssignment {
        let mut all: Vec<_> = one.domains.iter().chain(&other.domains).cloned().collect();
        all.sort_by_key(|domain| self.leaf_of(domain).map_or(u64::MAX, |id| self.tree.rank(id)));
        all.dedup_by(|next, kept| {
            let same = next.values == kept.values;
            if same {
                kept.count = kept.count.saturating_add(next.count);
            }
            same
        });
        TopologyAssignment { levels: one.levels.clone(), domains: all }
    }
}

/// Indexes of pod sets by group, in the order of each group's first pod set.
pub(crate) fn grouped<'a>(names: impl Iterator<Item = Option<&'a Name>>) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Option<&Name>, Vec<usize>)> = Vec::new();
    for (at, name) in names.enumerate() {
        match groups.iter_mut().find(|(known, _)| name.is_some() && *known == name) {
            Some((_, members)) => members.push(at),
            None => groups.push((name, vec![at])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// The workers and the leader of a group. The smaller pod set is the leader; of equal ones, the
/// second.
pub(super) fn roles(
    requests_of_pod_sets: &[PlacementRequest<'_>],
    members: &[usize],
) -> Result<(usize, Option<usize>), (usize, PlacementFailure)> {
    let count = |at: usize| requests_of_pod_sets.get(at).map_or(0, |ask| ask.count);
    match *members {
        [one] => Ok((one, None)),
        [first, second] if count(second) > count(first) => Ok((second, Some(first))),
        [first, second] => Ok((first, Some(second))),
        _ => {
            let first = members.first().copied().unwrap_or_default();
            let group = requests_of_pod_sets
                .get(first)
                .and_then(|ask| ask.request?.group.clone())
                .unwrap_or_default();
            Err((first, PlacementFailure::GroupTooLarge { group }))
        }
    }
}
