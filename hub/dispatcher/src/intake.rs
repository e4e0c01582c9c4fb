//! What comes in: clusters, Workloads, observations, and the answers of writes.

use std::collections::BTreeMap;

use super::cluster::{Cluster, ClusterRules};
use super::entry::{Entry, Remote, Writing};
use super::machine::{Dispatcher, MAX_WRITE_BACKOFF};
use super::{
    Action, Facts, MAX_LEAD, Name, Observation, Outcome, Phase, State, Time, Uids, Written,
    terminal,
};

impl Dispatcher {
    pub(super) fn check(
        &mut self,
        name: Name,
        clusters: Vec<Name>,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let before = self.checks.get(&name).cloned().unwrap_or_default();
        if before == clusters {
            return;
        }
        let added: Vec<Name> =
            clusters.iter().filter(|cluster| !before.contains(cluster)).cloned().collect();
        if clusters.is_empty() {
            self.checks.remove(&name);
        } else {
            self.checks.insert(name, clusters);
        }
        self.touch_nominating();
        for cluster in added {
            self.wake_parked(&cluster, now, out);
        }
    }

    pub(super) fn cluster(
        &mut self,
        name: &Name,
        rules: ClusterRules,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let cluster = self.clusters.entry(name.clone()).or_insert_with(|| Cluster::new(now));
        if cluster.exists && cluster.rules == rules {
            return;
        }
        let released = cluster.exists && cluster.rules.release != rules.release;
        cluster.changed_policy |= cluster.exists && cluster.rules.loss != rules.loss;
        if rules.takes_more_than(&cluster.rules) || !cluster.exists {
            cluster.changed = self.events;
        }
        (cluster.exists, cluster.rules) = (true, rules);
        if released {
            self.release_breaker(now, out);
        }
        self.touch_on(name);
        self.wake_parked(name, now, out);
    }

    pub(super) fn cluster_gone(&mut self, name: &Name, now: Time, out: &mut Vec<Action>) {
        self.note_heard(name, now);
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        // What it had is forgotten, too: should it be made again, it has to tell.
        (cluster.exists, cluster.told) = (false, false);
        self.orphans.retain(name, |_, _| false);
        if cluster.up {
            cluster.turn(false, now);
        }
        self.mend_breaker(out);
        self.touch_on(name);
    }

    pub(super) fn cluster_up(&mut self, name: &Name, now: Time, out: &mut Vec<Action>) {
        self.note_heard(name, now);
        let cluster = self.clusters.entry(name.clone()).or_insert_with(|| Cluster::new(now));
        cluster.turn(true, now);
        cluster.changed = self.events;
        // What was given up there may run again until the cluster says that it does not.
        self.change_there(name, |remote| remote.lost = false);
        self.say_again(name);
        self.mend_breaker(out);
        self.touch_there(name);
        self.look_through(name, false, now, out);
    }

    pub(super) fn cluster_down(&mut self, name: &Name, now: Time, out: &mut Vec<Action>) {
        self.note_heard(name, now);
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if !cluster.up {
            return;
        }
        cluster.turn(false, now);
        // What it has from before the hub's memory is not forgotten again: its jobs are not started elsewhere.
        let settings = &self.settings;
        self.orphans.retain(name, |_, orphan| orphan.stays(settings));
        self.touch_there(name);
        self.look_through(name, false, now, out);
    }

    /// Whether the agent of a cluster can act there.
    pub(super) fn able(&mut self, name: &Name, able: bool, now: Time, out: &mut Vec<Action>) {
        let Some(cluster) =
            self.clusters.get_mut(name).filter(|it| it.up && it.unable.is_none() != able)
        else {
            return;
        };
        cluster.unable = (!able).then_some(now);
        if able {
            cluster.changed = self.events;
        }
        self.touch_there(name);
        self.look_through(name, true, now, out);
    }

    /// The agent of a cluster told another process that it cannot act. What it has told us since is newer.
    pub(super) fn was_unable(&mut self, name: &Name, now: Time) {
        let Some(cluster) =
            self.clusters.get_mut(name).filter(|it| !it.came && it.unable.is_none())
        else {
            return;
        };
        cluster.unable = Some(now);
        self.touch_on(name);
    }

    pub(super) fn inventory(&mut self, name: &Name, uids: &Uids, now: Time, out: &mut Vec<Action>) {
        if let Some(cluster) = self.clusters.get_mut(name) {
            let before = (cluster.synced, cluster.told);
            (cluster.synced, cluster.told) = (true, !cluster.cut_off);
            if before != (cluster.synced, cluster.told) {
                self.touch_there(name);
            }
        }
        // Others may have waited for what this one had from before the hub's memory.
        for orphan in self.orphans.retain(name, |uid, _| uids.contains(uid)) {
            self.touch_waiting_for(name, &orphan, now, out);
        }
        self.look_through(name, false, now, out);
    }

    pub(super) fn capacity(
        &mut self,
        name: &Name,
        queues: BTreeMap<(Name, Name), super::capacity::Queue>,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        cluster.report(queues, self.events);
        self.look_through(name, true, now, out);
    }

    pub(super) fn workload(&mut self, facts: Facts, out: &mut Vec<Action>) {
        self.introduce_facts(&facts);
        let uid = facts.uid.clone();
        let is_called = |parked: &Facts| {
            (parked.is_behind() && !facts.is_behind())
                || (facts.moving.is_some() && facts.moving != parked.moving)
        };
        if self.parked.get(&uid).is_some_and(is_called) {
            self.parked.remove(&uid);
            out.push(Action::Wake { uid: uid.clone() });
        }
        if let Some(parked) = self.parked.get_mut(&uid) {
            let other_rules = parked.affinity != facts.affinity;
            *parked = facts.clone();
            if other_rules {
                // It may be allowed where it was not.
                self.parked.remove(&uid);
                out.push(Action::Wake { uid: uid.clone() });
            }
        }
        match self.entries.get_mut(&uid) {
            Some(entry) => entry.take(facts),
            // Neither dispatched nor waiting for it, and no cluster has something of it: nothing to remember.
            None if facts.is_idle() && !self.orphans.has(&self.identities.theirs(&uid)) => return,
            None => {
                self.entries.insert(uid.clone(), Entry::new(facts));
            }
        }
        self.dirty.insert(uid);
    }

    /// Takes in what the API says of a workload even if nothing is to be dispatched: it was seen on a cluster.
    pub fn learn(&mut self, facts: Facts) {
        self.introduce_facts(&facts);
        let uid = facts.uid.clone();
        let entry = self.entries.entry(uid).or_insert_with(|| Entry::new(facts));
        self.index.list(entry);
    }

    pub(super) fn observed(
        &mut self,
        cluster: &Name,
        observation: Observation,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let ours = self.identities.ours(&observation.uid);
        if self.identities.is_superseded(&observation.uid) || !self.entries.contains_key(&ours) {
            self.orphaned(cluster, observation, now, out);
            return;
        }
        let from = out.len();
        self.observed_of(cluster, Observation { uid: ours, ..observation }, now, out);
        self.identities.translate(out.get_mut(from..).unwrap_or_default());
    }

    /// A cluster speaks of a workload that is known.
    fn observed_of(
        &mut self,
        cluster: &Name,
        observation: Observation,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let uid = observation.uid.clone();
        let Some(entry) = self.entries.get_mut(&uid) else { return };
        if observation.attempt > entry.top.max(entry.facts.attempt).saturating_add(MAX_LEAD) {
            // No store that was lost explains it: somebody makes it up, and no attempt could follow it for ever.
            out.push(Action::Disbelieve {
                cluster: cluster.clone(),
                uid,
                attempt: observation.attempt,
            });
            return;
        }
        entry.top = entry.top.max(observation.attempt);
        if terminal(observation.state)
            && entry.is_current(cluster, observation.attempt)
            && !entry.gone
        {
            let success = observation.state == State::Succeeded;
            entry.ended = Some((cluster.clone(), observation.attempt, success));
        }
        let remote = entry.remotes.entry(cluster.clone()).or_default();
        if observation.attempt < remote.attempt {
            if observation.state == State::Gone {
                remote.ran.take_if(|ran| *ran <= observation.attempt);
            }
            if terminal(observation.state) && entry.ended.is_none() {
                let attempt = observation.attempt;
                out.push(Action::Ack { cluster: cluster.clone(), uid: uid.clone(), attempt });
            }
            self.dirty.insert(uid);
            return;
        }
        if observation.attempt > remote.attempt {
            // Where a later attempt is gone, what was asked for of an earlier one is done.
            let phase = remote
                .phase
                .filter(|phase| *phase == Phase::Absent && observation.state == State::Gone);
            **remote =
                Remote { attempt: observation.attempt, phase, since: now, ..Remote::default() };
        }
        remote.lost = false;
        remote.state = Some(observation.state);
        remote.reasons = observation.reasons;
        if observation.origin.is_some() {
            remote.origin = observation.origin;
        }
        // It speaks of this attempt, so the lower ones have been torn down.
        remote.gate.hear(observation.gate, now);
        remote.ran.take_if(|ran| *ran < observation.attempt);
        // Of a committed attempt that another process of the hub gave out, only the end says that it does not run; nor of one
        // that the API has forgotten, once it has a job.
        let has_job = remote.origin.as_ref().is_some_and(|origin| origin.has_job);
        let unknown =
            remote.phase.is_none() && (observation.attempt <= entry.facts.attempt || has_job);
        match observation.state {
            State::Gone => {
                remote.ran = None;
                remote.gate.is_gone();
            }
            State::Running | State::Suspended | State::Succeeded | State::Failed => {
                remote.ran = Some(observation.attempt);
            }
            _ if unknown => remote.ran = Some(observation.attempt),
            State::Waiting
            | State::Reserved
            | State::Unfit
            | State::Refused
            | State::Evicted
            | State::Unspecified => {}
        }
        let settled = matches!(observation.state, State::Reserved | State::Running);
        if let Some(known) = self.clusters.get_mut(cluster) {
            if settled || terminal(observation.state) {
                known.moved = now;
            }
            if settled {
                known.capacity.counted(&uid);
            } else if !remote.unanswered() {
                known.capacity.unassume(&uid);
            }
        }
        let committed_here = entry.facts.cluster.as_ref() == Some(cluster)
            && entry.facts.attempt == observation.attempt;
        // What a job shows while it is evicted or removed is not how it stands, and an end cannot be taken back.
        let runs = matches!(observation.state, State::Running | State::Suspended | State::Reserved);
        if committed_here && observation.job_status && runs && !entry.facts.finished {
            out.push(Action::Mirror {
                uid: uid.clone(),
                cluster: cluster.clone(),
                attempt: observation.attempt,
            });
        }
        self.dirty.insert(uid);
    }

    pub(super) fn written(&mut self, written: Written, now: Time, out: &mut Vec<Action>) {
        if let Some(facts) = &written.facts {
            self.introduce_facts(facts);
        }
        let Some(entry) = self.entries.get_mut(&written.uid) else { return };
        let writing = entry.writing.take();
        if let Some(facts) = written.facts {
            entry.take(facts);
        }
        // Whose copy it was to take over decides for itself again, if it has that still.
        self.dirty.extend(entry.facts.replaces.clone());
        match written.outcome {
            Outcome::Done => entry.failures = 0,
            Outcome::Superseded | Outcome::Failed => {
                // Even a conflict waits a moment: the news that caused it is on its way.
                entry.failures = (entry.failures + 1).min(16);
                let pause = (20_i64 << entry.failures.min(12)).min(MAX_WRITE_BACKOFF);
                entry.not_before = now + pause;
                entry.released = None;
            }
        }
        if let (Some(Writing::Commit { cluster, attempt }), Outcome::Done) =
            (&writing, written.outcome)
        {
            // Its cluster reported on it before the hub adopted it.
            entry.recall_end(cluster, *attempt);
            let remote = entry.remotes.get(cluster).filter(|remote| remote.attempt == *attempt);
            if remote.is_some_and(|remote| remote.state == Some(State::Running)) {
                let (uid, cluster) = (written.uid.clone(), cluster.clone());
                out.push(Action::Mirror { uid, cluster, attempt: *attempt });
            }
        }
        if let (Some(Writing::Finish { cluster, attempt }), Outcome::Done) =
            (writing, written.outcome)
        {
            let uid = self.identities.theirs(&written.uid);
            out.push(Action::Ack { cluster, uid, attempt });
            entry.ended = None;
            // What the answer did not show will be shown by the watch.
            entry.facts.finished = true;
        }
        self.dirty.insert(written.uid);
    }
}
