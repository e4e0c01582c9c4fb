//! Placement of one workload's pods in one flavor.

use std::collections::BTreeMap;

use super::counts::{Assumed, Wanted, Within};
use super::failure::Failure;
use super::filter::PodFilter;
use super::plan::{Kind, Plan};
use super::resources::{Amounts, Demand, Resources};
use super::search::Search;
use super::tree::{DomainId, Tree, joined};
use crate::{Amount, AssignedDomain, Name, TopologyAssignment, TopologyRequest};

/// Pods of one pod set that are to be placed.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) name: &'a Name,
    pub(crate) count: i32,
    pub(crate) request: Option<&'a TopologyRequest>,
    /// It does not ask itself; its queue has no flavors without a topology.
    pub(crate) implied: bool,
    /// What one pod asks for.
    pub(crate) requests: &'a BTreeMap<Name, Amount>,
    pub(crate) filter: PodFilter<'a>,
    /// What is wrong with the updates of its admission checks.
    pub(crate) bad_update: Option<String>,
    /// Where the pods of the workload in whose place this one comes are. Of elastic workloads only.
    pub(crate) previous: Option<&'a TopologyAssignment>,
    /// Where its own pods are, if one of them must move.
    pub(crate) own: Option<&'a TopologyAssignment>,
}

/// How to place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Pods that may be anywhere go where the least is free (Kueue's `TASProfileMixed`).
    pub(crate) mixed: bool,
    /// Kueue's `TASBalancedPlacement`.
    pub(crate) balanced: bool,
    /// As if no workload used anything.
    pub(crate) empty: bool,
}

/// The failed places of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unhealthy<'a> {
    /// Only the first one is replaced, as in Kueue.
    pub(crate) node: &'a Name,
    /// The workload is a single pod, which cannot move.
    pub(crate) keep: bool,
}

/// Where pods go; for each [`Ask`], if it was reached.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    pub(crate) assignments: Vec<Option<TopologyAssignment>>,
    /// The first pod set that has no place, by its position, and why.
    pub(crate) failure: Option<(usize, Failure)>,
}

/// Places pods in one tree.
#[derive(Clone, Copy)]
pub(crate) struct Placer<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) resources: &'a Resources,
    pub(crate) options: Options,
}

/// What is to be placed in one search.
pub(super) struct Group<'a, 'b> {
    pub(super) workers: &'b Ask<'a>,
    pub(super) leader: Option<&'b Ask<'a>>,
}

/// Assignments of workers and leader.
pub(super) type Placed = (TopologyAssignment, Option<TopologyAssignment>);

impl Placer<'_> {
    /// Places pod sets, those of one group together. What they take is added to `assumed`.
    pub(crate) fn place(
        &self,
        asks: &[Ask<'_>],
        unhealthy: Option<Unhealthy<'_>>,
        assumed: &mut Assumed,
    ) -> Placement {
        let mut placement = Placement { assignments: vec![None; asks.len()], failure: None };
        for members in grouped(asks.iter().map(|ask| ask.request?.group.as_ref())) {
            let placed = match unhealthy {
                Some(unhealthy) => {
                    self.replace_in(asks, &members, unhealthy, assumed, &mut placement)
                }
                None => self.place_group(asks, &members, assumed, &mut placement),
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
        asks: &[Ask<'_>],
        members: &[usize],
        unhealthy: Unhealthy<'_>,
        assumed: &mut Assumed,
        placement: &mut Placement,
    ) -> Result<(), (usize, Failure)> {
        for at in members {
            let Some((ask, own)) = asks.get(*at).and_then(|ask| Some((ask, ask.own?))) else {
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
        asks: &[Ask<'_>],
        members: &[usize],
        assumed: &mut Assumed,
        placement: &mut Placement,
    ) -> Result<(), (usize, Failure)> {
        let (workers, leader) = roles(asks, members)?;
        let Some(worker_ask) = asks.get(workers) else { return Ok(()) };
        let group = Group { workers: worker_ask, leader: leader.and_then(|at| asks.get(at)) };
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

    /// Searches places for workers and their leader.
    pub(super) fn search(
        &self,
        group: &Group<'_, '_>,
        within: Within,
        assumed: &Assumed,
    ) -> Result<Placed, Failure> {
        let Group { workers, leader } = *group;
        if let Some(message) = &workers.bad_update {
            return Err(Failure::BadUpdate {
                pod_set: workers.name.clone(),
                message: message.clone(),
            });
        }
        let kind = Kind::new(workers.request, workers.implied);
        let leaders = i32::from(leader.is_some());
        let plan = Plan::new(self.tree, &kind, workers.count, leaders, self.options.mixed)?;
        let worker = Demand::of_pod(workers.requests, self.resources);
        let leader_demand = leader.map(|leader| Demand::of_pod(leader.requests, self.resources));
        let wanted = Wanted {
            worker: &worker,
            leader: leader_demand.as_ref(),
            filter: &workers.filter,
            assumed,
            within,
            empty: self.options.empty,
        };
        let search = Search::new(self.tree, &plan, &wanted);
        let balanced = (self.options.balanced && !plan.required && !plan.unconstrained)
            .then(|| search.balanced());
        // Balanced placement looks at no layers of slices but the first, so that it may come to too few pods.
        let balanced = balanced.flatten().map(|(mut search, found)| {
            let leaves = search.descend(found, true);
            (search, leaves)
        });
        let (search, leaves) = match balanced.filter(|(search, leaves)| search.places_all(leaves)) {
            Some(placed) => placed,
            None => {
                let mut search = search;
                let found = search.levels()?;
                let leaves = search.descend(found, false);
                (search, leaves)
            }
        };
        let pods = |id: DomainId| search.count(id).pods;
        let leader_pods = |id: DomainId| search.count(id).leaders;
        let of_leader = leader.map(|_| self.assignment(&leaves, leader_pods));
        Ok((self.assignment(&leaves, pods), of_leader))
    }

    /// Leaves with their pods, in the order of their paths.
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

    /// The first level that an assignment names: of hosts it names no other.
    fn first_level(&self) -> usize {
        if self.tree.is_by_host() { self.tree.lowest() } else { 0 }
    }

    /// Adds what pods take to what is taken.
    pub(super) fn assume(
        &self,
        assignment: &TopologyAssignment,
        ask: &Ask<'_>,
        assumed: &mut Assumed,
    ) {
        let demand = Demand::of_pod(ask.requests, self.resources);
        for domain in &assignment.domains {
            let sum: &mut Amounts = assumed.entry(joined(&domain.values)).or_default();
            sum.add_demand(&demand, domain.count);
        }
    }

    /// One of the places of an assignment that is not there any more.
    pub(super) fn stale<'t>(
        &self,
        assignment: &'t TopologyAssignment,
    ) -> Option<&'t AssignedDomain> {
        assignment.domains.iter().find(|domain| self.leaf_of(domain).is_none())
    }

    pub(super) fn leaf_of(&self, domain: &AssignedDomain) -> Option<DomainId> {
        self.tree.leaf_id(&joined(&domain.values))
    }

    /// Both assignments, in the order of paths.
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

/// Positions of pod sets by the name of their group, in the order of the first of each.
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

/// Who of a group are the workers, and who leads: the smaller pod set, of equal ones the second.
fn roles(asks: &[Ask<'_>], members: &[usize]) -> Result<(usize, Option<usize>), (usize, Failure)> {
    let count = |at: usize| asks.get(at).map_or(0, |ask| ask.count);
    match *members {
        [one] => Ok((one, None)),
        [first, second] if count(second) > count(first) => Ok((second, Some(first))),
        [first, second] => Ok((first, Some(second))),
        _ => {
            let first = members.first().copied().unwrap_or_default();
            let group =
                asks.get(first).and_then(|ask| ask.request?.group.clone()).unwrap_or_default();
            Err((first, Failure::GroupTooLarge { group }))
        }
    }
}
