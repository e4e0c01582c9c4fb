//! Pods that do not become ready, and jobs with the policy `onStuck`, in worlds with replicas.

use rand::Rng;

use super::cluster::Cluster;
use super::replicas::{is_later, parts};
use super::{CLUSTERS, World};
use crate::{
    DispatchAction, Observation, RetriedAttempt, STUCK, State, StuckPolicy, Uid, UnixMillis,
    WorkloadWrite,
};

/// The workloads with the policy: replicas of one object, and a job alone.
const WITH_POLICY: [&str; 3] = ["w0", "w1", "w3"];
const POLICY: StuckPolicy = StuckPolicy { after: 5_000, times: 2 };

/// Since when the reports of an attempt show no ready pod, without a gap.
pub(super) type Stalled = (u64, UnixMillis);

impl Cluster {
    /// The agent reads the pods of all jobs, and reports what changed.
    fn examine(&mut self) {
        let is_unready = |uid: &Uid| {
            let ready = |part: &Uid| self.runs(part) && !self.unready.contains(part);
            self.runs(uid) && !parts(uid).iter().any(ready)
        };
        let uids = self.remotes.iter().filter(|(uid, _)| is_unready(uid));
        let now = uids.map(|(uid, remote)| (uid.clone(), remote.attempt)).collect();
        let before = std::mem::replace(&mut self.without_ready_pod, now);
        let changed: Vec<Uid> = self
            .without_ready_pod
            .symmetric_difference(&before)
            .map(|(uid, _)| uid.clone())
            .collect();
        changed.iter().for_each(|uid| self.say(uid));
    }
}

impl World {
    pub(super) fn set_policies(&mut self) {
        for cluster in self.clusters.values_mut() {
            let unready = WITH_POLICY.map(Uid::from).into_iter();
            cluster.unready = unready.filter(|_| self.readiness_dice.random_bool(0.5)).collect();
        }
        for uid in WITH_POLICY {
            if let Some(object) = self.api.get_mut(uid) {
                object.facts.stuck.policy = Some(POLICY);
            }
        }
    }

    /// Pods become ready or lose it, and agents examine them.
    pub(super) fn change_readiness(&mut self) {
        if !self.has_replicas {
            return;
        }
        let name = CLUSTERS[self.readiness_dice.random_range(0..CLUSTERS.len())];
        let uid = Uid::from(WITH_POLICY[self.readiness_dice.random_range(0..WITH_POLICY.len())]);
        let (changes, examines) =
            (self.readiness_dice.random_bool(0.02), self.readiness_dice.random_bool(0.2));
        let faults = self.faults;
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if !faults {
            cluster.unready.clear();
        } else if changes && !cluster.unready.remove(&uid) {
            cluster.unready.insert(uid);
        }
        if examines {
            cluster.examine();
        }
        // Jobs get stuck in time, and other faults end most attempts within a few steps.
        if self.readiness_dice.random_bool(0.1) {
            self.tick();
        }
    }

    /// Keeps what a delivered report says.
    pub(super) fn note_report(&mut self, name: &'static str, report: &Observation) {
        let is_stalled = match report.state {
            State::Running => report.no_ready_pod,
            State::Reserved | State::Waiting => true,
            _ => false,
        };
        let key = (name, report.uid.clone());
        let known = self.stalled.get(&key).filter(|(attempt, _)| *attempt == report.attempt);
        let since = known.map_or(self.now, |(_, since)| *since);
        if is_stalled {
            self.stalled.insert(key, (report.attempt, since));
        } else {
            self.stalled.remove(&key);
        }
    }

    pub(super) fn forget_reports(&mut self, name: &'static str) {
        self.stalled.retain(|(cluster, _), _| *cluster != name);
    }

    /// Panics if a workload is withdrawn as stuck though a report showed a ready pod, too early, or
    /// if it follows another.
    pub(super) fn check_withdrawal(&mut self, action: &DispatchAction) {
        let DispatchAction::Write { uid, write } = action else { return };
        let Some((cluster, attempt)) = stuck_on(write) else { return };
        assert!(!is_later(uid), "a later replica is withdrawn as stuck");
        let reported = self.stalled.iter().find(|((at, of), _)| *at == cluster && of == uid);
        let since = reported.filter(|(_, (of, _))| *of == attempt).map(|(_, (_, since))| *since);
        assert!(
            since.is_some_and(|since| since + POLICY.after <= self.now),
            "{uid}/{attempt} is withdrawn from {cluster} at {}, without a ready pod since {since:?}",
            self.now
        );
        self.withdrawn_as_stuck[usize::from(&**uid != "w0")] += 1;
    }

    /// The API counts the moves. Panics if there are too many.
    pub(super) fn count_move(&mut self, uid: &Uid, write: &WorkloadWrite) {
        let Some((cluster, _)) = stuck_on(write) else { return };
        let Some(object) = self.api.get_mut(uid) else { return };
        object.facts.stuck.moves += 1;
        object.facts.stuck.clusters.push(cluster.into());
        assert!(object.facts.stuck.moves <= POLICY.times, "{uid} was moved too often");
    }
}

/// The cluster and attempt that a write withdraws for lack of a ready pod.
fn stuck_on(write: &WorkloadWrite) -> Option<(&str, u64)> {
    match write {
        WorkloadWrite::Retry {
            retried: Some(RetriedAttempt { cluster, attempt, reason, .. }),
            ..
        } if *reason == STUCK => Some((cluster, *attempt)),
        _ => None,
    }
}
