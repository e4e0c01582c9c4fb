//! Deciding what follows for one workload: where it should be, what is to be written, when its quota may go.

use super::entry::{Entry, Writing};
use super::machine::{Dispatcher, MAX_WRITE_BACKOFF};
use super::replicas::FOLLOWS;
use super::{Action, Check, Facts, Left, Name, Phase, State, Time, terminal};

/// Reasons for which a workload leaves its cluster, in the history of its attempts.
const LOST: &str = "ClusterLost";
const VANISHED: &str = "GoneOnWorker";
const DRAINED: &str = "ClusterDrained";
/// Its job has run for as long as it may: it is not tried again.
pub const TIMED_OUT: &str = "ExecutionTimeExceeded";
/// What a worker's eviction for that says: Kueue's reason, and ours.
const EXECUTION_TIME_EXCEEDED: &str = "DeactivatedDueToMaximumExecutionTimeExceeded";
/// How soon it is looked again whether a cluster takes what is to be moved there.
const LOOK_AGAIN: i64 = 5_000;

impl Dispatcher {
    pub(super) fn settle(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        self.collect(entry, out);
        self.decide(entry, now, out);
        self.acknowledge_past(entry, out);
        self.tell_fences(entry, now, out);
        tell_priority(entry, out);
        // What has been given up on a cluster that does not exist is not asked for any more.
        self.collect(entry, out);
    }

    fn decide(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        entry.kept = None;
        if self.identities.is_succeeded(&entry.facts.uid) {
            return self.succeeded(entry, now, out);
        }
        if self.passes_on(entry) {
            return;
        }
        if entry.gone || entry.facts.finished {
            entry.memory = None;
            entry.nomination = None;
            // Nobody needs it any more.
            entry.ended = None;
            entry.clear(None, now, out);
            self.acknowledge_rest(entry, out);
            return;
        }
        self.withdraw(entry, now, out);
        if let Some(Writing::Commit { cluster, attempt }) = entry.writing.clone() {
            entry.recall_end(&cluster, attempt);
        }
        if let Some((cluster, attempt, success)) = entry.ended.clone() {
            if entry.is_current(&cluster, attempt) {
                self.finish(entry, &cluster, attempt, success, now, out);
                return;
            }
            // It was given up, and another attempt is what counts.
            entry.ended = None;
            out.push(Action::Ack { cluster, uid: entry.facts.uid.clone(), attempt });
        }
        if entry.facts.job_ended == Some(true) && !entry.facts.leaving() {
            self.wait_for_finish(entry);
            return;
        }
        if self.catch_up(entry, now, out) || self.follow_name(entry, now, out) {
            return;
        }
        match entry.facts.cluster.clone() {
            Some(cluster) => self.committed_on(entry, &cluster, now, out),
            None if entry.facts.leaving() => {
                if entry.memory.take().is_some() {
                    let message = "the workload is no longer to run".to_owned();
                    out.push(Action::GiveBack {
                        uid: entry.facts.uid.clone(),
                        message,
                        retry_at: now,
                    });
                }
                self.leave(entry, now, out);
            }
            None if entry.facts.reserved || entry.memory.is_some() => {
                self.nominate(entry, now, out)
            }
            None => {
                entry.nomination = None;
                if !matches!(entry.writing, Some(Writing::Commit { .. })) {
                    entry.clear(None, now, out);
                }
                self.acknowledge_rest(entry, out);
            }
        }
    }

    /// The job shows its end, and its Workload does not yet: they are two writes, and a store that was restored is from between
    /// them; or the end was written to the workload whose copy this one took over. Its cluster may have nothing of it any more, and would make it anew. Who looks after jobs writes the end; a cluster
    /// that still has it tells it.
    fn wait_for_finish(&mut self, entry: &mut Entry) {
        entry.nomination = None;
        if let Some(cluster) = entry.facts.cluster.clone() {
            entry.presume(&cluster, entry.facts.attempt);
        }
    }

    /// The engine gives the quota to another workload: what is in memory goes back at once. A write that is under way
    /// decides first; once the API shows the reservation, the engine evicts it there.
    pub(super) fn withdraw(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        if !entry.withdrawn || (entry.memory.is_some() && entry.writing.is_some()) {
            return;
        }
        entry.withdrawn = false;
        let uid = entry.facts.uid.clone();
        if entry.memory.take().is_some() {
            entry.nomination = None;
            let message = "preempted before a worker cluster had it".to_owned();
            out.push(Action::GiveBack { uid, message, retry_at: now });
        } else {
            out.push(Action::Recorded { uid });
        }
    }

    /// Drops tombstones of which nothing is left.
    fn collect(&self, entry: &mut Entry, out: &mut Vec<Action>) {
        let uid = entry.facts.uid.clone();
        let over = entry.gone || entry.facts.finished;
        let cleared = &mut entry.cleared;
        let committed = (entry.facts.cluster.as_ref(), entry.facts.attempt);
        entry.remotes.retain(|cluster, remote| {
            // The hub keeps the word that a committed attempt is gone until it has decided what follows.
            let awaited = matches!(remote.phase, Some(Phase::Run | Phase::Suspend))
                || remote.phase.is_none() && (Some(cluster), remote.attempt) == committed && !over;
            let gone = remote.state == Some(State::Gone) && !awaited;
            let nominated = remote.phase == Some(Phase::Reserve);
            let unasked = (over || !remote.may_run())
                && remote.phase == Some(Phase::Absent)
                && self.nobody_there(cluster);
            if gone && !nominated || unasked {
                if remote.phase == Some(Phase::Absent) {
                    let attempt = remote.attempt;
                    out.push(Action::Forget {
                        cluster: cluster.clone(),
                        uid: uid.clone(),
                        attempt,
                    });
                    cleared.insert(cluster.clone(), attempt);
                }
                return false;
            }
            true
        });
    }

    /// Terminal states that nobody needs: the workload has ended otherwise, or is not run by that cluster.
    fn acknowledge_rest(&self, entry: &Entry, out: &mut Vec<Action>) {
        if entry.writing.is_some() {
            return;
        }
        for (cluster, remote) in &entry.remotes {
            if remote.state.is_some_and(terminal) && entry.ended.is_none() {
                let (uid, attempt) = (entry.facts.uid.clone(), remote.attempt);
                out.push(Action::Ack { cluster: cluster.clone(), uid, attempt });
            }
        }
    }

    /// The end of an attempt that was given up, or is being removed, is of no use once another is what counts: its cluster need
    /// not keep it. The cluster of an attempt that is left alone keeps the end until it is told what to do, and is answered all
    /// the same: what it says next must not wait for as long as others go on or are silent.
    fn acknowledge_past(&self, entry: &Entry, out: &mut Vec<Action>) {
        let (committed, current) = (entry.facts.cluster.as_ref(), entry.facts.attempt);
        if entry.gone || entry.facts.finished || entry.ended.is_some() {
            return;
        }
        let is_chosen = matches!(entry.writing, Some(Writing::Commit { .. }));
        // What counts there is about to be written.
        let renamed = self.name_now(entry);
        for (cluster, remote) in
            entry.remotes.iter().filter(|(_, remote)| remote.state.is_some_and(terminal))
        {
            if renamed.as_ref() == Some(cluster) {
                continue;
            }
            let elsewhere = committed.is_some_and(|committed| committed != cluster);
            let left_alone = entry.kept.as_ref() == Some(cluster) && self.has_told(cluster);
            // While it is being committed, its end is acknowledged when that is written.
            let later = !is_chosen && (left_alone || remote.phase == Some(Phase::Absent));
            if remote.attempt < current || (elsewhere && remote.attempt == current) || later {
                let (uid, attempt) = (entry.facts.uid.clone(), remote.attempt);
                out.push(Action::Ack { cluster: cluster.clone(), uid, attempt });
            }
        }
    }

    /// A job that ended has ended, even while the hub evicts it or looks for another cluster: it must not run again.
    fn finish(
        &mut self,
        entry: &mut Entry,
        cluster: &Name,
        attempt: u64,
        success: bool,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        entry.nomination = None;
        if entry.memory.take().is_some() {
            let message = "the job has ended".to_owned();
            out.push(Action::GiveBack {
                uid: entry.facts.uid.clone(),
                message,
                retry_at: now + MAX_WRITE_BACKOFF,
            });
        }
        entry.clear(Some(cluster), now, out);
        if entry.writing.is_none() && self.may_write(entry, now) {
            entry.writing = Some(Writing::Finish { cluster: cluster.clone(), attempt });
            let uid = entry.facts.uid.clone();
            out.push(Action::Finish { uid, cluster: cluster.clone(), attempt, success });
        }
    }

    fn committed_on(
        &mut self,
        entry: &mut Entry,
        cluster: &Name,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        entry.nomination = None;
        entry.given_back = 0;
        let attempt = entry.facts.attempt;
        if let Some(known) = self.clusters.get_mut(cluster) {
            known.met = true;
        }
        let observed = entry
            .remotes
            .get(cluster)
            .filter(|remote| remote.attempt == attempt)
            .and_then(|r| r.state);

        if entry.facts.leaving() {
            self.leave(entry, now, out);
            return;
        }
        entry.clear(Some(cluster), now, out);
        let buried = entry
            .remotes
            .get(cluster)
            .is_some_and(|r| r.attempt == attempt && r.phase == Some(Phase::Absent));
        if self.may_be_behind(entry, cluster, now) || self.others_are_left(entry, cluster, now) {
            entry.presume(cluster, attempt);
        } else if !buried && !matches!(observed, Some(State::Gone | State::Evicted)) {
            // An attempt that its cluster evicted is queued again. Its copy may be gone: a cluster that has to run it would create it.
            entry.want(cluster, attempt, Phase::Run, now, out);
        }
        self.watch_running(entry, cluster, attempt, observed, now, out);
    }

    /// Whether what runs still does; if not, back to the queue.
    fn watch_running(
        &mut self,
        entry: &mut Entry,
        cluster: &Name,
        attempt: u64,
        observed: Option<State>,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let previously = entry.facts.check.as_ref().map_or("Ready", |(_, check)| match check {
            Check::Pending => "Pending",
            Check::Ready => "Ready",
            Check::Retry => "Retry",
            Check::Rejected => "Rejected",
        });
        let reasons =
            entry.remotes.get(cluster).map(|remote| remote.reasons.clone()).unwrap_or_default();
        let withdrawn = entry.remotes.get(cluster).is_some_and(|remote| {
            // A later one that is kept will be what counts, once it is known how it stands.
            let is_later = remote.attempt > attempt && entry.kept.as_ref() != Some(cluster);
            is_later || (remote.attempt == attempt && remote.phase == Some(Phase::Absent))
        });
        let said =
            reasons.iter().map(|reason| reason.message.as_str()).collect::<Vec<_>>().join("; ");
        let timed_out = reasons.iter().any(|reason| reason.code == EXECUTION_TIME_EXCEEDED);
        let (reason, message) = match observed {
            Some(State::Evicted) if timed_out => (
                TIMED_OUT,
                format!(
                    "Workload exceeded its maximum execution time on worker cluster: \"{cluster}\""
                ),
            ),
            Some(State::Evicted) => {
                let tail = format!("resetting for re-admission. Previously: \"{previously}\"");
                (
                    "EvictedOnWorker",
                    format!("Workload evicted on worker cluster: \"{cluster}\", {tail}"),
                )
            }
            // One that has not spoken may have a later one.
            Some(State::Gone) if self.unheard(entry, now).is_some() => return,
            Some(State::Gone) => (
                VANISHED,
                format!("Admitting remote no longer exists, Previously: \"{previously}\""),
            ),
            Some(State::Unfit | State::Refused) => {
                let message = format!(
                    "Worker cluster \"{cluster}\" cannot run it: {said}. Previously: \"{previously}\""
                );
                ("RefusedByWorker", message)
            }
            // A commit that was thought lost came true after the offer was withdrawn; or the hub's store was restored.
            _ if withdrawn => (
                "Withdrawn",
                format!(
                    "Worker cluster \"{cluster}\" was told to drop it. Previously: \"{previously}\""
                ),
            ),
            _ if self.lost(cluster, entry, now) => {
                (LOST, format!("Admitting remote lost, Previously: \"{previously}\""))
            }
            _ => match self.called_away(entry, cluster, now) {
                Some((reason, why)) => (reason, format!("{why}. Previously: \"{previously}\"")),
                None => return,
            },
        };
        if entry.writing.is_some() || !self.may_write(entry, now) {
            return;
        }
        let may = match reason {
            LOST | VANISHED => self.may_give_up(entry, cluster, now, out),
            DRAINED => self.in_pace(entry, now),
            _ => true,
        };
        if !may {
            return;
        }
        // A cluster that is lost, drained or left on request has refused nothing. Kueue's dispatchers ask the cluster that evicted at once.
        let was_evicted = observed == Some(State::Evicted);
        let evicted_for = was_evicted
            .then(|| reasons.first().map_or_else(String::new, |reason| reason.code.clone()));
        let said_no =
            matches!(observed, Some(State::Evicted | State::Unfit | State::Refused | State::Gone));
        if said_no && !(self.settings.mode.keeps_copies() && was_evicted) {
            self.refused_by(entry, cluster, now);
        }
        entry.writing = Some(Writing::Retry);
        let left = Some(Left { cluster: cluster.clone(), attempt, reason, evicted_for });
        out.push(Action::Retry { uid: entry.facts.uid.clone(), message, left });
    }

    /// Whether people want it taken away from where it runs: all of the cluster, or this one.
    fn called_away(
        &self,
        entry: &mut Entry,
        cluster: &Name,
        now: Time,
    ) -> Option<(&'static str, String)> {
        if self.is_left(entry, cluster, now) {
            return Some((FOLLOWS, "The first replica is no longer there".to_owned()));
        }
        let known = self.clusters.get(cluster)?;
        if known.up && known.rules.draining {
            return Some((DRAINED, format!("Worker cluster \"{cluster}\" is being drained")));
        }
        let (attempt, to) = entry.facts.moving.clone().filter(|_| !entry.facts.follows())?;
        if attempt != entry.facts.attempt || to == *cluster || !known.up {
            return None;
        }
        if !self.takes(entry, &to, now) {
            entry.wake_at(now + LOOK_AGAIN);
            return None;
        }
        Some(("Moved", format!("Moved from worker cluster \"{cluster}\" to \"{to}\" on request")))
    }

    /// Evicted, deactivated or deleted: nothing may run anywhere before quota is given away.
    fn leave(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        entry.nomination = None;
        if matches!(entry.writing, Some(Writing::Commit { .. })) {
            return;
        }
        if let Some(cluster) = entry.facts.cluster.clone() {
            // Perhaps this process has never heard of it there: a restart. Ask for its absence all the same.
            let attempt = entry.facts.attempt;
            let cleared = entry.cleared.get(&cluster).is_some_and(|at| *at >= attempt);
            if !cleared {
                entry.presume(&cluster, attempt);
            }
        }
        entry.clear(None, now, out);
        self.acknowledge_rest(entry, out);
        let clusters: Vec<Name> = entry.remotes.keys().cloned().collect();
        for cluster in clusters {
            self.lost(&cluster, entry, now);
        }
        // A check that asks for an eviction is not one yet.
        let facts = &entry.facts;
        let going = facts.evicted || facts.deleting || !facts.active;
        if going
            && !entry.may_run()
            && self.sure(entry, now)
            && entry.released != Some(entry.facts.version)
            && entry.writing.is_none()
            && self.may_write(entry, now)
        {
            entry.released = Some(entry.facts.version);
            entry.writing = Some(Writing::Release);
            out.push(Action::Release { uid: entry.facts.uid.clone() });
        }
    }

    pub(super) fn may_write(&self, entry: &mut Entry, now: Time) -> bool {
        if entry.not_before > now {
            let at = entry.not_before;
            entry.wake_at(at);
            return false;
        }
        true
    }

    pub(super) fn park(&mut self, facts: Facts) {
        self.parked.insert(facts.uid.clone(), facts);
    }

    /// A cluster came or grew: those that were given back may fit now.
    pub(super) fn wake_parked(&mut self, name: &Name, now: Time, out: &mut Vec<Action>) {
        let Some(cluster) = self.clusters.get(name).filter(|cluster| cluster.usable()) else {
            return;
        };
        let mut woken = Vec::new();
        for (uid, facts) in self.parked.iter().filter(|(_, facts)| !facts.is_behind()) {
            let refused =
                self.entries.get(uid).is_some_and(|entry| self.refusal(entry, name, now).is_some());
            let refused = refused || self.ruled_out(facts, name).is_some();
            let verdict = cluster.capacity.judge(&facts.namespace, &facts.queue, &facts.pod_sets);
            if !refused && !matches!(verdict, super::capacity::Verdict::Never(_)) {
                woken.push(uid.clone());
            }
        }
        for uid in woken {
            self.parked.remove(&uid);
            out.push(Action::Wake { uid });
        }
    }
}

/// Tells clusters once more what they have, if its priority or the class has changed since. Only a WorkloadPriorityClass may be
/// exchanged, or have another value, while quota is reserved; other priorities stay what they were.
fn tell_priority(entry: &mut Entry, out: &mut Vec<Action>) {
    let Some(class) = entry.facts.priority_class.clone() else { return };
    let mut again = Vec::new();
    for (name, remote) in &mut entry.remotes {
        let Some(phase @ (Phase::Reserve | Phase::Run | Phase::Suspend)) = remote.phase else {
            continue;
        };
        let now = (remote.attempt, entry.facts.priority, class.clone());
        let told = remote.priority.replace(now.clone());
        // What told the cluster of this attempt has told it this as well.
        if told.is_some_and(|told| told.0 == now.0 && told != now) {
            again.push((name.clone(), remote.attempt, phase));
        }
    }
    out.extend(again.into_iter().map(|(name, attempt, phase)| entry.desire(&name, attempt, phase)));
}
