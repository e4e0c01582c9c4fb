//! Jobs that grow while they run: a new slice takes over the copy.

use rand::Rng;
use rand::seq::SliceRandom;

use super::{Object, World};
use crate::tests::facts;
use crate::{DispatchEvent, Uid, WorkloadFacts};

/// The most slices of one job.
const SLICES: usize = 4;

impl World {
    /// The slices of a job in order: `w3`, `w3+`, `w3++`.
    pub(super) fn chain(&self, uid: &Uid) -> Vec<Uid> {
        let first = uid.trim_end_matches('+');
        self.api.keys().filter(|other| other.trim_end_matches('+') == first).cloned().collect()
    }

    /// The slice that has the copies of a uid.
    pub(super) fn owner(&self, cluster_uid: &Uid) -> Uid {
        let chain = self.chain(cluster_uid);
        let has_it = |uid: &&Uid| {
            uid == &cluster_uid
                || self.api[*uid].facts.state.cluster_uid.as_ref() == Some(cluster_uid)
        };
        chain.iter().rev().find(has_it).unwrap_or(cluster_uid).clone()
    }

    /// The job's reconciler: adds a slice to a running job, or removes the last one if it does not
    /// run.
    pub(super) fn grow(&mut self, uid: &Uid) {
        if self.has_replicas {
            return;
        }
        let chain = self.chain(uid);
        let Some(last) = chain.last().cloned() else { return };
        let Object { facts: newest, deleted, .. } = &self.api[&last];
        if *deleted || newest.state.finished || newest.state.deleting {
            return;
        }
        if newest.state.attempt > 0 {
            if self.faults
                && newest.state.cluster.is_some()
                && !newest.state.evicted
                && chain.len() < SLICES
            {
                self.make(&last);
            }
        } else if let Some(before) = newest.replaces.clone()
            && !self.runs_by(&before)
        {
            self.end(&last);
        }
    }

    /// Whether the job belongs to this slice.
    fn runs_by(&self, uid: &Uid) -> bool {
        let object = &self.api[uid];
        !object.deleted
            && !object.facts.state.finished
            && !object.facts.state.deleting
            && object.facts.state.cluster.is_some()
    }

    fn make(&mut self, replaced: &Uid) {
        let uid: Uid = format!("{replaced}+").into();
        self.version += 1;
        let facts = WorkloadFacts {
            version: self.version,
            replaces: Some(replaced.clone()),
            ..facts(&uid)
        };
        self.trace.push(format!("{replaced} grows"));
        self.api.insert(uid, Object { facts, ends: 0, deleted: false });
    }

    /// The job shows its end, whichever slice writes it.
    pub(super) fn show_end(&mut self, uid: &Uid) {
        for uid in self.chain(uid) {
            if let Some(object) = self.api.get_mut(&uid) {
                object.facts.job_ended = Some(true);
            }
        }
    }

    pub(super) fn end(&mut self, uid: &Uid) {
        self.version += 1;
        let version = self.version;
        let Some(object) = self.api.get_mut(uid) else { return };
        (object.facts.version, object.facts.state.finished) = (version, true);
        self.engine.remove(uid);
        self.tell(uid);
    }

    /// Ends replaced slices. The dispatcher may learn of it before it knows the replacing slice.
    pub(super) fn end_replaced(&mut self, uid: &Uid) {
        let facts = &self.api[uid].facts;
        let Some(before) = facts.replaces.clone().filter(|_| facts.state.cluster_uid.is_some())
        else {
            return;
        };
        let replaced = &self.api[&before];
        if replaced.facts.state.finished || replaced.deleted {
            return;
        }
        let facts = facts.clone();
        self.introduce(&facts);
        self.end(&before);
    }

    /// A restarted process learns of slices in any order, mostly before it acts.
    pub(super) fn learn_all(&mut self) {
        let there = self.api.values().filter(|it| !it.deleted);
        let mut all: Vec<WorkloadFacts> = there.map(|it| self.as_seen(it.facts.clone())).collect();
        all.shuffle(&mut self.random);
        for facts in &all {
            if self.random.random_bool(0.5) {
                self.introduce(facts);
            }
        }
        for facts in all {
            self.apply(DispatchEvent::WorkloadChanged(facts));
        }
    }

    fn introduce(&mut self, facts: &WorkloadFacts) {
        let (known_as, replaces) = (facts.state.cluster_uid.as_ref(), facts.replaces.as_ref());
        self.dispatcher.register_uid_alias(&facts.uid, known_as, replaces, facts.state.finished);
    }

    /// The replaced slice is found while it exists.
    pub(super) fn as_seen(&self, facts: WorkloadFacts) -> WorkloadFacts {
        let there = |uid: &Uid| self.api.get(uid).is_some_and(|object| !object.deleted);
        let facts = self.with_replica(self.with_charge(facts));
        WorkloadFacts { replaces: facts.replaces.clone().filter(there), ..facts }
    }

    /// Panics if more than one attempt of the job may run.
    pub(super) fn check_chain(&self, uid: &Uid) {
        let chain = self.chain(uid);
        let runs = |of: &Uid| self.clusters.values().filter(|cluster| cluster.runs(of)).count();
        let running: usize = chain.iter().map(runs).sum();
        assert!(running <= 1, "{uid} runs {running} times, as one of {chain:?}");
    }
}
