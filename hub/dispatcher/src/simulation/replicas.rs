//! Replicas of one object, in every third world: `w1` follows `w0`, on whose quota and cluster its
//! own depend. Both are deleted together, and `w0` ends last.

use rand::Rng;

use super::World;
use crate::tests::pods;
use crate::{DispatchAction, Phase, Replica, RequestedAssignment, Uid, WorkloadFacts};

const FIRST: &str = "w0";
const LATER: &str = "w1";
/// The requests of both together.
const ALL: i64 = 2_000;

/// The workloads whose pods the agent reports with this one.
pub(super) fn parts(uid: &Uid) -> Vec<Uid> {
    let later = (&**uid == FIRST).then(|| Uid::from(LATER));
    std::iter::once(uid.clone()).chain(later).collect()
}

/// Whether it is the later replica of an object.
pub(super) fn is_later(uid: &Uid) -> bool {
    &**uid == LATER
}

impl World {
    /// The workloads that a user deletes together.
    pub(super) fn whole(&self, uid: &Uid) -> Vec<Uid> {
        let both = [Uid::from(FIRST), Uid::from(LATER)];
        if self.has_replicas && both.contains(uid) { both.into() } else { self.chain(uid) }
    }

    /// Whether the workload may end now.
    pub(super) fn may_end(&self, uid: &Uid) -> bool {
        let later = &self.api[LATER];
        !self.has_replicas || &**uid != FIRST || later.deleted || later.facts.state.finished
    }

    /// Its place, as the caller of the dispatcher derives it from the API and the engine.
    pub(super) fn with_replica(&self, facts: WorkloadFacts) -> WorkloadFacts {
        let replica = match &*facts.uid {
            FIRST if self.has_replicas => Some(Replica::First(pods(ALL))),
            LATER if self.has_replicas => Some(self.first_place()),
            _ => None,
        };
        WorkloadFacts { replica, ..facts }
    }

    fn first_place(&self) -> Replica {
        let first = &self.api[FIRST];
        let state = &first.facts.state;
        if first.deleted || state.deleting || state.finished || !state.active {
            return Replica::FirstWithoutQuota;
        }
        match state.cluster.clone().filter(|_| !state.evicted) {
            Some(cluster) => Replica::FirstOnCluster(cluster),
            None if self.engine.contains(FIRST) || (state.reserved && !state.evicted) => {
                Replica::FirstWithoutCluster
            }
            None => Replica::FirstWithoutQuota,
        }
    }

    /// The dispatcher learns of a change of the first replica's place, sooner or later.
    pub(super) fn tell_later_replica(&mut self) {
        if !self.has_replicas || (self.faults && self.readiness_dice.random_bool(0.5)) {
            return;
        }
        let place = self.first_place();
        if self.told_place.as_ref() != Some(&place) {
            self.told_place = Some(place);
            self.tell(&Uid::from(LATER));
        }
    }

    /// Panics if a later replica is offered to a cluster.
    pub(super) fn check_offer(&self, action: &DispatchAction) {
        if let DispatchAction::Assign(RequestedAssignment { uid, phase: Phase::Reserve, .. }) =
            action
        {
            assert!(!self.has_replicas || !is_later(uid), "a later replica is offered: {action:?}");
        }
    }
}
