//! Handlers of Workload changes and of finished writes.
//!
//! The dispatcher tracks a Workload while it needs a cluster or a cluster has a copy.

use super::{Dispatcher, MAX_WRITE_BACKOFF};

use super::parked::ParkedWorkload;
use super::tracked_workload::TrackedWorkload;
use crate::{
    DispatchAction, Replica, State, UnixMillis, WorkloadFacts, WorkloadWrite, WriteOutcome,
    WriteResult,
};

impl Dispatcher {
    pub(super) fn update_workload(&mut self, facts: WorkloadFacts, out: &mut Vec<DispatchAction>) {
        self.register_facts(&facts);
        let uid = facts.uid.clone();
        let is_called = |parked: &ParkedWorkload| {
            let parked = &parked.facts;
            (parked.lacks_first_quota() && !facts.lacks_first_quota())
                || (facts.move_request.is_some() && facts.move_request != parked.move_request)
        };
        if self.parked.get(&uid).is_some_and(is_called) {
            self.parked.remove(&uid);
            out.push(DispatchAction::Requeue { uid: uid.clone() });
        }
        if let Some(parked) = self.parked.get_mut(&uid) {
            let has_moved = parked.facts.replica != facts.replica
                && matches!(facts.replica, Some(Replica::FirstOnCluster(_)));
            let other_rules = has_moved || parked.facts.affinity != facts.affinity;
            // It has no quota now: keep the flavors for which no cluster could take it.
            let charged = parked.facts.charged.clone();
            parked.facts = WorkloadFacts { charged, ..facts.clone() };
            if other_rules {
                // The new rules may allow clusters that the old ones excluded. The first replica may
                // have gone to a cluster with the charged flavors.
                self.parked.remove(&uid);
                out.push(DispatchAction::Requeue { uid: uid.clone() });
            }
        }
        match self.entries.get_mut(&uid) {
            Some(entry) => entry.take(facts),
            // Neither the hub nor a cluster has work for it.
            None if facts.is_idle() && !self.orphans.has(&self.uid_aliases.cluster_uid(&uid)) => {
                return;
            }
            None => {
                self.entries.insert(uid.clone(), TrackedWorkload::new(facts));
            }
        }
        self.dirty.insert(uid);
    }

    /// Tracks a Workload that needs no decision now, because a cluster reported it.
    pub fn track(&mut self, facts: WorkloadFacts) {
        self.register_facts(&facts);
        let uid = facts.uid.clone();
        let entry = self.entries.entry(uid).or_insert_with(|| TrackedWorkload::new(facts));
        self.index.list(entry);
    }

    pub(super) fn end_write(
        &mut self,
        written: WriteResult,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        if let Some(facts) = &written.facts {
            self.register_facts(facts);
        }
        let Some(entry) = self.entries.get_mut(&written.uid) else { return };
        let write = entry.pending_write.take();
        if let Some(facts) = written.facts {
            entry.take(facts);
        }
        // The workload whose copy this one took over decides for itself again.
        self.dirty.extend(entry.facts.replaces.clone());
        match written.outcome {
            WriteOutcome::Done => entry.failed_writes = 0,
            WriteOutcome::Superseded | WriteOutcome::Failed => {
                // Even after a conflict, wait for the watch event that caused it.
                entry.failed_writes = (entry.failed_writes + 1).min(16);
                let pause = (20_i64 << entry.failed_writes.min(12)).min(MAX_WRITE_BACKOFF);
                entry.retry_write_at = now + pause;
                entry.released_version = None;
            }
        }
        let done = write.filter(|_| written.outcome == WriteOutcome::Done);
        if let Some((cluster, attempt)) = done.as_deref().and_then(WorkloadWrite::committed) {
            // The cluster may have reported the end before the hub adopted the copy.
            entry.restore_end(cluster, attempt);
            let remote = entry.remotes.get(cluster).filter(|remote| remote.attempt == attempt);
            if remote.is_some_and(|remote| remote.state == Some(State::Running)) {
                let (uid, cluster) = (written.uid.clone(), cluster.clone());
                out.push(DispatchAction::MirrorStatus { uid, cluster, attempt });
            }
        }
        if let Some(WorkloadWrite::Finish { cluster, attempt, .. }) = done.as_deref() {
            let uid = self.uid_aliases.cluster_uid(&written.uid);
            let (cluster, attempt) = (cluster.clone(), *attempt);
            out.push(DispatchAction::AcknowledgeEnd { cluster, uid, attempt });
            entry.unsaved_end = None;
            // The answer may be older; the watch will confirm.
            entry.facts.state.finished = true;
        }
        self.dirty.insert(written.uid);
    }
}
