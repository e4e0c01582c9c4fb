//! Elastic workloads (Kueue's gate `ElasticJobsViaWorkloadSlicesWithTAS`): pods that run stay where they are.

use super::counts::{Assumed, Within};
use super::failure::Failure;
use super::place::{Ask, Group, Placed, Placer};
use crate::TopologyAssignment;

impl Placer<'_> {
    /// Places a workload that comes in the place of another: only the pods that are more are searched places for, and
    /// of those that are less the last ones go. `None`: nothing of the other one can be kept.
    pub(super) fn resize(
        &self,
        group: &Group<'_, '_>,
        assumed: &mut Assumed,
    ) -> Option<Result<Placed, Failure>> {
        let Group { workers, leader } = *group;
        let previous = workers.previous?;
        let of_leader = leader.and_then(|leader| leader.previous);
        // A leader that was nowhere has nothing to keep, unless it comes with the pods that are more.
        let grows = workers.count > previous.pods();
        let no_leader = leader.is_some() && of_leader.is_none() && !grows;
        if no_leader
            || [Some(previous), of_leader]
                .into_iter()
                .flatten()
                .any(|known| self.stale(known).is_some())
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
        let more =
            Ask { count: workers.count - previous.pods(), previous: None, ..workers.clone() };
        let new_leader = leader.filter(|_| of_leader.is_none());
        let placed =
            self.search(&Group { workers: &more, leader: new_leader }, Within::Anywhere, assumed);
        Some(placed.map(|(new, its_leader)| {
            self.assume(&new, workers, assumed);
            if let Some((leader, assignment)) = new_leader.zip(its_leader.as_ref()) {
                self.assume(assignment, leader, assumed);
            }
            (self.merge(&new, previous), its_leader.or_else(|| of_leader.cloned()))
        }))
    }
}

/// The first places of an assignment, for so many pods.
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
