//! Explains a placement search that failed: the best domain of each level, and the leaves that take
//! no pod. Computed on demand.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::count_cache::borrow_counts;
use super::counts::{Assumed, Count, LeafRefusal, PlacementDemand, Within, count_in_leaf};
use super::failure::written;
use super::filter::Exclusion;
use super::place::{LeaderAndWorkers, PlacementRequest, Placer, grouped, roles};
use super::plan::PlacementPlan;
use super::resources::{Resources, bounded};
use super::search::DomainSearch;
use super::tree::{DomainId, Leaf};
use super::view::allocatable;
use crate::{Name, SliceLayer, Taint};

/// Leaves named for each obstacle.
const EXAMPLES: usize = 3;

/// A placement search that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementOutlook {
    /// The pod set; of a group, the workers.
    pub pod_set: Name,
    pub flavor: Name,
    pub topology: Name,
    /// Label key of the requested level.
    pub level: Name,
    pub strictness: Strictness,
    /// Without the leader of a group.
    pub pods: i32,
    /// The widest layer of slices.
    pub slice: Option<SliceLayer>,
    /// Pods that fit in all domains together.
    pub fits: i32,
    /// One for each level, highest level first.
    pub best: Vec<BestDomain>,
    /// All leaves of the flavor.
    pub leaves: usize,
    /// Leaves that take no pod, most leaves first.
    pub obstructed: Vec<ObstructedLeaves>,
}

/// How strictly a request names its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    Required,
    Preferred,
    /// Any free capacity will do.
    Unconstrained,
}

/// The domain of one level that takes the most pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestDomain {
    /// Label key.
    pub level: Name,
    /// Label values, highest level first.
    pub values: Vec<Name>,
    /// Pods that fit, whole slices only.
    pub fits: i32,
}

/// Leaves that take no pod for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObstructedLeaves {
    pub obstacle: LeafObstacle,
    pub leaves: usize,
    /// The first few, by name.
    pub examples: Vec<Name>,
}

/// Why a leaf takes no pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeafObstacle {
    /// A taint that the pods do not tolerate.
    Taint(Taint),
    NodeSelector,
    Affinity,
    /// Too little of a resource is free.
    Resource {
        resource: Name,
        taken_by: Occupant,
    },
}

/// The users of a leaf that is too full for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occupant {
    /// Nothing: the empty leaf is too small.
    Nothing,
    /// Pods outside topology-aware scheduling.
    OtherPods,
    Workloads,
}

impl Strictness {
    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "Required",
            Self::Preferred => "Preferred",
            Self::Unconstrained => "Unconstrained",
        }
    }

    fn of(plan: &PlacementPlan) -> Self {
        match plan {
            PlacementPlan { required: true, .. } => Self::Required,
            PlacementPlan { unconstrained: true, .. } => Self::Unconstrained,
            _ => Self::Preferred,
        }
    }
}

impl LeafObstacle {
    /// For users.
    pub fn message(&self) -> String {
        match self {
            Self::Taint(taint) => format!("the pods do not tolerate taint {}", written(taint)),
            Self::NodeSelector => "the pods' nodeSelector does not match".to_owned(),
            Self::Affinity => "the pods' required node affinity does not match".to_owned(),
            Self::Resource { resource, taken_by: Occupant::Nothing } => {
                format!("the node has less {resource} than a pod requests")
            }
            Self::Resource { resource, taken_by: Occupant::OtherPods } => {
                format!("other pods use its {resource}")
            }
            Self::Resource { resource, taken_by: Occupant::Workloads } => {
                format!("workloads use its {resource}")
            }
        }
    }
}

impl Placer<'_> {
    /// The search of the first pod set that finds no place. `None` if all are placed, or if the
    /// request itself is wrong.
    pub(crate) fn outlook(
        &self,
        requests: &[PlacementRequest<'_>],
        flavor: &Name,
        assumed: &mut Assumed,
    ) -> Option<PlacementOutlook> {
        for members in grouped(requests.iter().map(|ask| ask.request?.group.as_ref())) {
            let (workers, leader) = roles(requests, &members).ok()?;
            let group = LeaderAndWorkers {
                workers: requests.get(workers)?,
                leader: leader.and_then(|at| requests.get(at)),
            };
            match self.search(&group, Within::Anywhere, assumed) {
                Ok((of_workers, of_leader)) => {
                    self.assume(&of_workers, group.workers, assumed);
                    if let Some((ask, assignment)) = group.leader.zip(of_leader.as_ref()) {
                        self.assume(assignment, ask, assumed);
                    }
                }
                Err(_) => return self.failed(&group, flavor, assumed),
            }
        }
        None
    }

    fn failed(
        &self,
        group: &LeaderAndWorkers<'_, '_>,
        flavor: &Name,
        assumed: &Assumed,
    ) -> Option<PlacementOutlook> {
        let plan = self.plan(group).ok()?;
        let workers = group.workers;
        let demands = self.demands(group);
        let wanted = demands.wanted(&workers.filter, Within::Anywhere, self.options.empty);
        let (counts, loan) = borrow_counts(self.tree, &plan, &wanted, assumed);
        let search = DomainSearch { tree: self.tree, plan: &plan, counts };
        let fits = |level: usize, id: DomainId| pods_that_fit(search.count(id), level, &plan);
        let best_of = |(level, key): (usize, &Name)| {
            let id = self
                .tree
                .at_level(level)
                .max_by_key(|id| (fits(level, *id), Reverse(self.tree.rank(*id))))?;
            let values = self.tree.domain(id)?.path.to_vec();
            Some(BestDomain { level: key.clone(), values, fits: fits(level, id) })
        };
        let all = self.tree.at_level(0).map(|id| fits(0, id));
        let outlook = PlacementOutlook {
            pod_set: workers.name.clone(),
            flavor: flavor.clone(),
            topology: self.tree.topology.clone(),
            level: self.tree.levels.get(plan.level).cloned().unwrap_or_default(),
            strictness: Strictness::of(&plan),
            pods: plan.count,
            slice: workers.request.and_then(|request| request.layers().into_iter().next()),
            fits: all.fold(0, i32::saturating_add),
            best: self.tree.levels.iter().enumerate().filter_map(best_of).collect(),
            leaves: self.tree.leaves().count(),
            obstructed: self.obstructed(&wanted, assumed),
        };
        loan.give_back(self.tree, search.counts);
        Some(outlook)
    }

    fn obstructed(&self, wanted: &PlacementDemand<'_>, assumed: &Assumed) -> Vec<ObstructedLeaves> {
        let mut by_obstacle: BTreeMap<LeafObstacle, Vec<Name>> = BTreeMap::new();
        for (id, leaf) in self.tree.leaves() {
            let assumed = assumed.get(&leaf.id);
            let (_, refusal) = count_in_leaf(self.tree, (id, leaf), wanted, assumed);
            let obstacle =
                refusal.and_then(|refusal| obstacle(refusal, leaf, wanted, self.resources));
            if let Some(obstacle) = obstacle {
                let name = leaf.first().map_or_else(|| leaf.id.clone(), |it| it.name.clone());
                by_obstacle.entry(obstacle).or_default().push(name);
            }
        }
        let mut all: Vec<_> = by_obstacle
            .into_iter()
            .map(|(obstacle, mut names)| {
                let leaves = names.len();
                names.sort();
                names.truncate(EXAMPLES);
                ObstructedLeaves { obstacle, leaves, examples: names }
            })
            .collect();
        all.sort_by_key(|obstructed| Reverse(obstructed.leaves));
        all
    }
}

/// Slices exist only in domains at or above their level.
fn pods_that_fit(count: Count, level: usize, plan: &PlacementPlan) -> i32 {
    let led = plan.leaders > 0;
    match level <= plan.slice_level {
        true => count.capacity(true, led).saturating_mul(plan.size),
        false => count.capacity(false, led),
    }
}

fn obstacle(
    refusal: LeafRefusal<'_>,
    leaf: &Leaf,
    wanted: &PlacementDemand<'_>,
    resources: &Resources,
) -> Option<LeafObstacle> {
    let resource = match refusal {
        LeafRefusal::Excluded(Exclusion::Taint(taint)) => {
            return Some(LeafObstacle::Taint(taint.clone()));
        }
        LeafRefusal::Excluded(Exclusion::NodeSelector) => return Some(LeafObstacle::NodeSelector),
        LeafRefusal::Excluded(Exclusion::Affinity) => return Some(LeafObstacle::Affinity),
        LeafRefusal::Outside => return None,
        LeafRefusal::Full(resource) => wanted.worker.name(resource)?.clone(),
    };
    let allocatable = allocatable(leaf, resources);
    let fits = |free: &dyn Fn(usize) -> i64| wanted.worker.count_in(free).0 > 0;
    let taken_by = if !fits(&|number| bounded(allocatable.get(number))) {
        Occupant::Nothing
    } else if !fits(&|number| leaf.free(number, true)) {
        Occupant::OtherPods
    } else {
        Occupant::Workloads
    };
    Some(LeafObstacle::Resource { resource, taken_by })
}
