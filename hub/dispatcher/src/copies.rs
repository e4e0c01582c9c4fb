//! What runs on clusters since before this hub's memory.
//!
//! A hub whose etcd was lost, or restored from a backup, knows less than its clusters have. What they have and it does not
//! know stays as it is. A workload that stands for the same job as such a copy is not sent anywhere: it becomes the copy's
//! workload. It takes over the copy's cluster, its attempt, and the uid by which clusters know it, in one write; nothing
//! changes on the cluster. If the cluster is away by then, its policy says what follows, as for all that it runs.
//!
//! # The same job
//! Kind, namespace and name of the job, and the pod sets, by their hash. A copy that differs in the pod sets is not adopted
//! unless somebody says so, and the workload waits as long as the copy is there.
//!
//! # Clusters that have not spoken
//! A workload without a copy is sent nowhere until each cluster has told what it has since this process began, or would be
//! given up by its policy; but not for longer than [`CAREFUL`] after the memory began. Whoever wants it sooner declares the
//! cluster lost. A copy that does not run may be what is left of an attempt that was given up: it is adopted only then, too.
//!
//! # Copies whose job nobody knows
//! When the Workload of a copy was deleted on its cluster, the agent may not know any more which job the copy is of. The copy's job
//! runs until the cluster's controller stops it. While it runs, and while the hub waits for silent clusters, the hub sends no
//! workload of that namespace anywhere.
//!
//! # Copies that come late
//! The workload may have been sent elsewhere before the copy's cluster spoke, and wait for a cluster again: refused there,
//! evicted, or given up. A workload that waits for a cluster has nothing that runs, so the copy is adopted as if it had come
//! in time, once all have spoken. Its attempts are those of another uid: that they are lower says nothing.
//!
//! # Later attempts that do not run
//! Of a store that is an older one, a later attempt than the API knows may have been stopped by its fence, or have ended, on a
//! cluster that was away until another attempt was let run elsewhere. What runs goes on: the later one is as good as given up,
//! and is left alone. Only if the other is taken away, and nothing of it is left, does the later one go on; if the cluster of
//! the other is lost, that is given up like anything that is lost, no sooner and no faster. One that waits there for its turn
//! would run by itself: for one that runs it is removed, whoever else is silent.
//!
//! # Clusters of bad will
//! Only clusters of the workload's check can have a copy of it. None can claim an attempt that no hub can have given out, nor,
//! once those that had not spoken are not waited for, one that it says was made since. Nothing can adopt what is another's.

use super::entry::{Entry, Remote, Writing};
use super::machine::Dispatcher;
use super::orphans::Orphan;
use super::{Action, Adopt, MAX_LEAD, Name, Phase, State, Subject, Time, Uid, terminal};

/// For so long after its memory began does a hub wait for clusters that have not spoken. Milliseconds.
pub(super) const CAREFUL: i64 = 60 * 60_000;

/// What is to be done of a workload's past before it is sent anywhere.
enum Past {
    /// It is this copy's.
    Adopt(Copy),
    /// Not yet.
    Wait(String),
}

/// What became of the attempt that the API knows, where a later one is on another cluster.
#[derive(PartialEq, Eq)]
enum Earlier {
    /// It runs, or was told to.
    Runs,
    /// It has run, or may have, and is not gone, as far as its cluster has spoken.
    IsLeft,
    /// It is on no other cluster.
    Over,
}

/// A copy that may be adopted.
struct Copy {
    cluster: Name,
    theirs: Uid,
    attempt: u64,
    created: Time,
    /// Somebody says that it is the one.
    asked: bool,
    runs: bool,
    /// Its cluster did not evict it: of two copies of one attempt, the one that was evicted was only an offer.
    begun: bool,
}

impl Copy {
    /// Whether it is rather to be adopted than the other. Attempts of one uid are in order; times are of clocks that differ.
    fn beats(&self, other: &Self) -> bool {
        if self.asked != other.asked {
            self.asked
        } else if self.theirs == other.theirs {
            (self.attempt, self.begun) > (other.attempt, other.begun)
        } else {
            self.created > other.created
        }
    }
}

impl Remote {
    /// Its state, if its job was made as an attempt that this process has not given out and the API does not know.
    pub(super) fn ahead_of(&self, known: u64) -> Option<State> {
        let has_job = self.origin.as_ref().map(|origin| origin.has_job);
        let made = |state: &State| match state {
            State::Running | State::Suspended => true,
            // Its job waits to go on, or was taken away there and is about to be gone.
            State::Waiting | State::Reserved | State::Evicted => has_job == Some(true),
            // A Workload that ended without a job was an offer.
            state => terminal(*state) && has_job != Some(false),
        };
        let goes = self.state == Some(State::Running) && !self.runs();
        let state = if goes { Some(State::Evicted) } else { self.state };
        state.filter(made).filter(|_| self.phase.is_none() && self.attempt > known && !self.lost)
    }
}

impl Entry {
    /// Where there is an attempt that is later than the API knows: it was written, and the API's store is an older one.
    fn ahead(&self, counts: impl Fn(&Name, &Remote) -> bool) -> Option<(Name, u64, State)> {
        let known = self.facts.attempt;
        let ahead = self.remotes.iter().filter(|(name, remote)| counts(name, remote));
        let ahead = ahead.filter_map(|(name, remote)| {
            Some((name.clone(), remote.attempt, remote.ahead_of(known)?))
        });
        ahead.max_by_key(|(_, attempt, _)| *attempt)
    }
}

impl Dispatcher {
    /// Makes the attempt that runs the one that the API knows, if the API's store has gone back behind it. Whether there
    /// is nothing else to decide.
    pub(super) fn catch_up(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> bool {
        entry.kept = None;
        if self.settings.store_loss.is_none() || entry.facts.deleting || !entry.facts.active {
            return false;
        }
        let configured = self.configured(entry);
        let (early, forgotten) = (self.is_careful(now), self.settings.forgotten_until());
        let counts = |cluster: &Name, remote: &Remote| {
            let predates =
                remote.origin.as_ref().is_some_and(|origin| Some(origin.created) < forgotten);
            (configured.is_empty() || configured.contains(cluster)) && (early || predates)
        };
        let Some((cluster, attempt, state)) = entry.ahead(counts) else { return false };
        entry.kept = Some(cluster.clone());
        // A cluster that is away, or has just come back, may have stopped since what it said to run.
        let state = if state == State::Running && !self.has_told(&cluster) {
            State::Suspended
        } else {
            state
        };
        let charged =
            entry.facts.reserved || entry.memory.is_some() || entry.facts.cluster.is_some();
        if !charged || entry.facts.leaving() {
            // It runs on, and waits for its quota like others. An eviction that the API shows was over before it began.
            return false;
        }
        if state != State::Running {
            let on = entry.facts.cluster.clone().filter(|on| *on != cluster);
            let is_given_up = on.is_some_and(|on| self.lost(&on, entry, now));
            // What its cluster may let run by itself goes for what runs: at once, whoever else is silent.
            let may_stay = state == State::Suspended || terminal(state) || is_given_up;
            let earlier = self.earlier_than(entry, &cluster);
            if !may_stay && earlier == Earlier::Runs {
                entry.kept = None;
                return false;
            }
            if self.unheard(entry, now).is_some() {
                // A later one may run on a cluster that has not spoken.
                return false;
            }
            if earlier != Earlier::Over {
                entry.kept.take_if(|_| !may_stay);
                return false;
            }
            if self.is_left_elsewhere(entry, now, out) {
                return true;
            }
        }
        entry.nomination = None;
        let theirs = self.identities.theirs(&entry.facts.uid);
        self.commit_seen(entry, cluster, attempt, theirs, now, out);
        true
    }

    /// What became of the attempt that the API knows, if it is on another cluster than this later one. That its cluster is lost
    /// changes nothing: it is given up like any other, in its turn, and then the API knows none.
    fn earlier_than(&self, entry: &Entry, later: &Name) -> Earlier {
        let Some(on) = entry.facts.cluster.as_ref().filter(|on| *on != later) else {
            return Earlier::Over;
        };
        match entry.remotes.get(on).filter(|remote| remote.is_spoken_of()) {
            Some(remote) if remote.ran.is_some() && remote.goes_on() => Earlier::Runs,
            Some(remote) if remote.ran.is_some() => Earlier::IsLeft,
            Some(_) => Earlier::Over,
            None if self.clusters.get(on).is_some_and(|cluster| cluster.told) => Earlier::Over,
            None => Earlier::IsLeft,
        }
    }

    /// Whether something of the workload may run besides what is kept and what the API says to be sent. Takes it back.
    fn is_left_elsewhere(&self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> bool {
        if entry.facts.cluster.is_some() {
            return false;
        }
        entry.clear(None, now, out);
        let clusters: Vec<Name> = entry.remotes.keys().cloned().collect();
        for cluster in clusters {
            self.lost(&cluster, entry, now);
        }
        entry.may_run()
    }

    /// Looks for a copy of a workload that is to be sent somewhere. Whether it is not to be sent now.
    pub(super) fn recall(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> bool {
        if self.settings.store_loss.is_none() {
            return false;
        }
        let wait = |names: String| {
            Past::Wait(format!(
                "Waiting for worker clusters that may run it since before this hub's memory: {names}; see switchyard \
                 clusters declare-lost"
            ))
        };
        let past = match self.copy_of(entry, now, out) {
            Some(Past::Adopt(copy)) if !copy.runs || copy.attempt <= entry.facts.attempt => {
                Some(self.unheard(entry, now).map_or(Past::Adopt(copy), wait))
            }
            Some(past) => Some(past),
            None => self
                .unheard(entry, now)
                .map(wait)
                .or_else(|| self.unnamed(entry, now).map(Past::Wait)),
        };
        match past {
            None => false,
            Some(Past::Adopt(Copy { cluster, theirs, attempt, .. })) => {
                if self.is_nowhere(entry, now, out) {
                    self.commit_seen(entry, cluster, attempt, theirs, now, out);
                }
                true
            }
            Some(Past::Wait(message)) => {
                entry.clear(None, now, out);
                self.record_late(entry, now, out, |_, _| message);
                true
            }
        }
    }

    /// Whether the cluster of a committed attempt must wait with it: the attempt was not seen to run there, and another cluster
    /// has the end of a later one, or may have a later one.
    pub(super) fn may_be_behind(&self, entry: &mut Entry, cluster: &Name, now: Time) -> bool {
        let runs = |remote: &Remote| remote.phase.is_some() || remote.state == Some(State::Running);
        if entry.remotes.get(cluster).is_some_and(|remote| runs(remote)) {
            return false;
        }
        let told = self.clusters.get(cluster).is_some_and(|known| known.told);
        let has_ended =
            |at: &Name| entry.remotes.get(at).and_then(|it| it.state).is_some_and(terminal);
        let is_behind =
            !told && entry.kept.as_ref().is_some_and(|later| later != cluster && has_ended(later));
        is_behind || self.unheard(entry, now).is_some()
    }

    /// Whether a committed attempt, which is not known to run, is not to go on yet: it was committed over another one, or is
    /// found by a hub that was, and something of that may run. It may have run when it was committed, and been stopped since by its
    /// fence: of a cluster that is away, or has not told since it is back, nobody knows.
    pub(super) fn others_are_left(&self, entry: &mut Entry, cluster: &Name, now: Time) -> bool {
        let attempt = entry.facts.attempt;
        let has_told = self.has_told(cluster);
        let runs = |it: &Remote| {
            it.attempt == attempt && (it.phase == Some(Phase::Run) || (has_told && it.runs()))
        };
        if self.settings.store_loss.is_none()
            || entry.remotes.get(cluster).is_some_and(|remote| runs(remote))
        {
            return false;
        }
        let is_other = |at: &Name, it: &Remote| {
            at != cluster && entry.kept.as_ref() != Some(at) && it.may_run()
        };
        let others = entry.remotes.iter().filter(|(at, remote)| is_other(at, remote));
        let others: Vec<Name> = others.map(|(at, _)| at.clone()).collect();
        // Each sets the timer of its cluster's loss.
        others.iter().filter(|at| !self.lost(at, entry, now)).count() > 0
    }

    pub(super) fn commit_seen(
        &mut self,
        entry: &mut Entry,
        cluster: Name,
        attempt: u64,
        theirs: Uid,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        if entry.writing.is_none() && self.may_write(entry, now) {
            entry.writing = Some(Writing::Commit { cluster: cluster.clone(), attempt });
            out.push(Action::Commit {
                uid: entry.facts.uid.clone(),
                cluster,
                attempt,
                adopts: Some(theirs),
            });
        }
    }

    /// Whether the workload has nothing of its own on any cluster, where it is known by its own uid. Takes back what it has.
    pub(super) fn is_nowhere(&self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> bool {
        entry.clear(None, now, out);
        let up = |name: &Name| self.clusters.get(name).is_some_and(|cluster| cluster.up);
        // A cluster that is away has been offered it at most; what it still has it will name, and that goes as unknown.
        entry.remotes.retain(|name, remote| up(name) || remote.may_run());
        entry.remotes.is_empty()
    }

    /// Whether clusters that have not spoken are still waited for.
    pub(super) fn is_careful(&self, now: Time) -> bool {
        self.careful_until(now).is_some()
    }

    /// Until when clusters that have not spoken are waited for; none: not any more.
    fn careful_until(&self, now: Time) -> Option<Time> {
        self.settings.store_loss.map(|loss| loss.careful_until).filter(|end| now < *end)
    }

    /// Whether a workload may adopt a copy on this cluster: its check names the cluster, and the cluster exists.
    fn is_eligible(&self, configured: &[Name], cluster: &Name) -> bool {
        configured.contains(cluster) && self.clusters.get(cluster).is_some_and(|known| known.exists)
    }

    /// The copy of a workload, or why it waits for one.
    fn copy_of(&mut self, entry: &Entry, now: Time, out: &mut Vec<Action>) -> Option<Past> {
        let facts = &entry.facts;
        let subject = facts.subject.as_ref().filter(|_| facts.known_as.is_none())?;
        if facts.adopt == Some(Adopt::Nothing) {
            return None;
        }
        let configured = self.configured(entry);
        let copies: Vec<(Name, Uid)> =
            self.orphans.of_job(&facts.namespace, subject).cloned().collect();
        let (mut fitting, mut waits) = (Vec::new(), None);
        for (cluster, theirs) in copies {
            // The uid of a living workload is not to be had.
            if !self.is_eligible(&configured, &cluster)
                || self.entries.contains_key(&self.identities.ours(&theirs))
            {
                continue;
            }
            let Some(orphan) =
                self.orphans.get(&cluster, &theirs).filter(|it| it.predates(&self.settings))
            else {
                continue;
            };
            if orphan.removing {
                // Its end touches this workload. Until then the cluster may yet run what an earlier hub wanted.
                waits = Some(format!(
                    "Waiting for worker cluster \"{cluster}\" to remove a copy from before this hub's memory"
                ));
                continue;
            }
            let asked = facts.adopt.as_ref().is_some_and(|it| it.is_copy(&cluster, &theirs));
            match orphan.fits(subject, facts.attempt, asked) {
                Ok(created) => {
                    let (attempt, runs) = (orphan.attempt(), orphan.runs());
                    let begun = orphan.state() != State::Evicted;
                    fitting.push(Copy { cluster, theirs, attempt, created, asked, runs, begun });
                }
                Err(why) => {
                    waits = Some(format!(
                        "Worker cluster \"{cluster}\" has a copy from before this hub's memory: {why}"
                    ));
                    if orphan.has_job() {
                        self.orphans.change(&cluster, &theirs, |orphan| orphan.differs = Some(why));
                    } else {
                        self.remove_copy(&cluster, &theirs, now, out);
                    }
                }
            }
        }
        match self.choose(fitting) {
            Some(copy) => Some(Past::Adopt(copy)),
            None => waits.map(Past::Wait),
        }
    }

    /// Why a workload waits for a running copy whose job nobody knows: it may be this workload's. Sets the timer.
    fn unnamed(&self, entry: &mut Entry, now: Time) -> Option<String> {
        let end = self.careful_until(now)?;
        if entry.facts.known_as.is_some() || entry.facts.adopt == Some(Adopt::Nothing) {
            return None;
        }
        let configured = self.configured(entry);
        let may_be = |(cluster, uid): &&(Name, Uid)| {
            let holds_up = |orphan: &Orphan| orphan.holds_up(&self.settings);
            self.is_eligible(&configured, cluster)
                && self.orphans.get(cluster, uid).is_some_and(holds_up)
        };
        let (cluster, uid) = self.orphans.of_no_job(&entry.facts.namespace).find(may_be)?;
        let message = format!(
            "Worker cluster \"{cluster}\" has a copy from before this hub's memory that may be of this job (uid {uid}): \
             its Workload was deleted there; delete its job there, or see switchyard adopt"
        );
        entry.wake_at(end);
        Some(message)
    }

    /// The copy to adopt. Of the others it is said that they are not: those of the same uid go once this one is adopted.
    fn choose(&mut self, fitting: Vec<Copy>) -> Option<Copy> {
        let mut copies = fitting.into_iter();
        let (mut best, mut others) = (copies.next()?, Vec::new());
        for copy in copies {
            others.push(if copy.beats(&best) { std::mem::replace(&mut best, copy) } else { copy });
        }
        for other in others.iter().filter(|other| other.theirs != best.theirs) {
            let why = format!(
                "its job is the copy on worker cluster \"{}\"; delete this one on its cluster",
                best.cluster
            );
            self.orphans.change(&other.cluster, &other.theirs, |orphan| orphan.differs = Some(why));
        }
        Some(best)
    }

    /// Has what was never made into a job removed.
    fn remove_copy(&mut self, cluster: &Name, theirs: &Uid, now: Time, out: &mut Vec<Action>) {
        let Some(orphan) = self.orphans.get(cluster, theirs) else { return };
        let (uid, namespace, name, attempt) = orphan.place();
        tracing::info!(%cluster, workload_uid = %uid, attempt, now, "removing a copy whose job was never made");
        self.orphans.change(cluster, theirs, |orphan| orphan.removing = true);
        out.push(Action::Desire {
            cluster: cluster.clone(),
            uid,
            namespace,
            name,
            attempt,
            phase: Phase::Absent,
        });
    }

    /// The clusters that may have a copy of a workload and have not said so; none once each has spoken or is given up. One
    /// that the configuration names and that is not there may be about to be applied again. Sets the timer.
    pub(super) fn unheard(&self, entry: &mut Entry, now: Time) -> Option<String> {
        let end = self.careful_until(now)?;
        let configured = self.configured(entry);
        let missing = configured.iter().filter(|name| !self.clusters.contains_key(*name));
        let mut silent: Vec<&str> = missing.map(|name| &**name).collect();
        if !silent.is_empty() {
            entry.wake_at(end);
        }
        for (name, _) in self.clusters.iter().filter(|(_, cluster)| cluster.exists && !cluster.told)
        {
            let due = self.give_up_at(name, entry).unwrap_or(end).min(end);
            if now < due {
                silent.push(&**name);
                entry.wake_at(due);
            }
        }
        entry.waits_for_word |= !silent.is_empty();
        (!silent.is_empty()).then(|| silent.join(", "))
    }
}

impl Orphan {
    /// Whether it is a copy of this job: when it was made, or else why not and what mends it.
    fn fits(&self, subject: &Subject, known: u64, asked: bool) -> Result<Time, String> {
        let Some(origin) = self.origin() else { return Err("its origin is not known".to_owned()) };
        if !self.has_job() {
            Err("its job was never made, it is being removed".to_owned())
        } else if self.attempt() > known.saturating_add(MAX_LEAD) {
            Err(format!(
                "no hub gave out attempt {}; delete the copy on its cluster",
                self.attempt()
            ))
        } else if origin.subject.pod_sets != subject.pod_sets && !asked {
            let mend =
                "apply the job as it was, delete the copy on its cluster, or see switchyard adopt";
            Err(format!("its pod sets are others; {mend}"))
        } else {
            Ok(origin.created)
        }
    }
}
