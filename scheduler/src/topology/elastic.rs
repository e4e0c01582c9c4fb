//! Elastic workloads (Kueue's gate `ElasticJobsViaWorkloadSlicesWithTAS`): running pods stay in
//! place. Kueue: `pkg/cache/scheduler/tas_elastic_workloads.go`.

use super::counts::{Assumed, Within};
use super::failure::PlacementFailure;
use super::place::{LeaderAndWorkers, PlacedGroup, PlacementRequest, Placer};
use crate::TopologyAssignment;

impl Placer<'_> {
    /// Places the replacement of a workload slice. Only additional pods get new domains; if there
    /// are fewer pods, the last ones go. `None` if no placement of the slice can be kept.
    pub(super) fn resize(
        &self,
        group: &LeaderAndWorkers<'_, '_>,
        assumed: &mut Assumed,
    ) -> Option<Result<PlacedGroup, PlacementFailure>> {
        let LeaderAndWorkers { workers, leader } = *group;
        let previous = workers.previous?;
        let of_leader = leader.and_then(|leader| leader.previous);
        // A leader without a placement has nothing to keep, unless it comes with additional pods.
        let grows = workers.count > previous.pods();
        let no_leader = leader.is_some() && of_leader.is_none() && !grows;
        if no_leader
            || [Some(previous), of_leader]
                .into_iter()
                .flatten()
                .any(|known| self.stale_domain(known).is_some())
        {
            return None;
        }
        if let Some((leader, assignment)) = leader.zip(of_leader) {
            self.assume(assignment, leader, assumed);
        }
        if !grows {
            let kept = truncated(previous, workers.count);
            self.assume(&kept, workers, assumed);
            return Some(Ok((kept, of_leader.cloned())));
        }
        self.assume(previous, workers, assumed);
        let more = PlacementRequest {
            count: workers.count - previous.pods(),
            previous: None,
            ..workers.clone()
        };
        let new_leader = leader.filter(|_| of_leader.is_none());
        let placed = self.search(
            &LeaderAndWorkers { workers: &more, leader: new_leader },
            Within::Anywhere,
            assumed,
        );
        Some(placed.map(|(new, its_leader)| {
            self.assume(&new, workers, assumed);
            if let Some((leader, assignment)) = new_leader.zip(its_leader.as_ref()) {
                self.assume(assignment, leader, assumed);
            }
            (self.merge(&new, previous), its_leader.or_else(|| of_leader.cloned()))
        }))
    }
}

/// The first domains of an assignment, for `pods` pods.
fn truncated(assignment: &TopologyAssignment, pods: i32) -> TopologyAssignment {
    let mut left = pods;
    let mut kept = assignment.clone();
    kept.domains.retain_mut(|domain| {
        domain.count = domain.count.min(left);
        left -= domain.count;
        domain.count > 0
    });
    kept
}
