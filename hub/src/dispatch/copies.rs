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
//! cluster lost.

use super::entry::{Entry, Remote, Writing};
use super::machine::Dispatcher;
use super::orphans::Orphan;
use super::{Action, Name, Phase, State, Subject, Time, Uid, terminal};

/// For so long after its memory began does a hub wait for clusters that have not spoken. Milliseconds.
const CAREFUL: i64 = 60 * 60_000;

/// What is to be done of a workload's past before it is sent anywhere.
enum Past {
    /// It is this copy's.
    Adopt { cluster: Name, theirs: Uid, attempt: u64 },
    /// Not yet.
    Wait(String),
}

impl Remote {
    /// Whether it runs, or has ended, as an attempt that this process has not given out and the API does not know.
    fn is_ahead(&self, known: u64) -> bool {
        let made =
            self.state.is_some_and(|state| terminal(state) || matches!(state, State::Running | State::Suspended));
        self.phase.is_none() && self.attempt > known && !self.lost && made
    }
}

impl Entry {
    /// Where an attempt runs that is later than the API knows: it was written, and the API's store is an older one.
    fn ahead(&self) -> Option<(Name, u64)> {
        let ahead = self.remotes.iter().filter(|(_, remote)| remote.is_ahead(self.facts.attempt));
        ahead.max_by_key(|(_, remote)| remote.attempt).map(|(cluster, remote)| (cluster.clone(), remote.attempt))
    }
}

impl Dispatcher {
    /// Makes the attempt that runs the one that the API knows, if the API's store has gone back behind it. Whether there
    /// is nothing else to decide.
    pub(super) fn catch_up(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> bool {
        entry.kept = None;
        if self.settings.memory_since.is_none() || entry.facts.deleting || !entry.facts.active {
            return false;
        }
        let Some((cluster, attempt)) = entry.ahead() else { return false };
        entry.kept = Some(cluster.clone());
        let charged = entry.facts.reserved || entry.memory.is_some() || entry.facts.cluster.is_some();
        if !charged || entry.facts.leaving() {
            // It runs on, and waits for its quota like others. An eviction that the API shows was over before it began.
            return false;
        }
        entry.nomination = None;
        let theirs = self.identities.theirs(&entry.facts.uid);
        self.commit_seen(entry, cluster, attempt, theirs, now, out);
        true
    }

    /// Looks for a copy of a workload that is to be sent somewhere. Whether it is not to be sent now.
    pub(super) fn recall(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> bool {
        let Some(since) = self.settings.memory_since else { return false };
        let past = match self.copy_of(entry, now, out) {
            Some(past) => Some(past),
            None => self.unheard(entry, since, now).map(|names| {
                Past::Wait(format!(
                    "Waiting for worker clusters that may run it since before this hub's memory: {names}; see switchyard \
                     clusters declare-lost"
                ))
            }),
        };
        match past {
            None => false,
            Some(Past::Adopt { cluster, theirs, attempt }) => {
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

    /// Whether the cluster of a committed attempt is not to be told yet to run it: nobody has seen it there, and another may
    /// have a later one.
    pub(super) fn may_be_behind(&self, entry: &mut Entry, cluster: &Name, now: Time) -> bool {
        let Some(since) = self.settings.memory_since else { return false };
        let told = entry.remotes.get(cluster).is_some_and(|remote| remote.phase.is_some() || remote.state.is_some());
        !told && self.unheard(entry, since, now).is_some()
    }

    fn commit_seen(
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
            out.push(Action::Commit { uid: entry.facts.uid.clone(), cluster, attempt, adopts: Some(theirs) });
        }
    }

    /// Whether the workload has nothing of its own on any cluster, where it is known by its own uid. Takes back what it has.
    fn is_nowhere(&self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) -> bool {
        entry.clear(None, now, out);
        let up = |name: &Name| self.clusters.get(name).is_some_and(|cluster| cluster.up);
        // A cluster that is away has been offered it at most; what it still has it will name, and that goes as unknown.
        entry.remotes.retain(|name, remote| up(name) || remote.may_run());
        entry.remotes.is_empty()
    }

    /// The copy of a workload, or why it waits for one.
    fn copy_of(&mut self, entry: &Entry, now: Time, out: &mut Vec<Action>) -> Option<Past> {
        let facts = &entry.facts;
        let subject = facts.subject.as_ref().filter(|_| facts.known_as.is_none())?;
        let copies: Vec<(Name, Uid)> = self.orphans.of_job(&facts.namespace, subject).cloned().collect();
        let mut best: Option<(Name, Uid, Time, u64)> = None;
        let mut waits = None;
        for (cluster, theirs) in copies {
            if !self.clusters.get(&cluster).is_some_and(|known| known.exists) {
                continue;
            }
            let Some(orphan) = self.orphans.get_mut(&cluster, &theirs).filter(|it| it.predates(&self.settings)) else {
                continue;
            };
            let asked = facts.adopt.as_ref().is_some_and(|(at, uid)| *at == cluster && *uid == theirs);
            match orphan.fits(subject, facts.attempt, asked) {
                Ok(created) => {
                    let attempt = orphan.attempt();
                    let later =
                        best.as_ref().is_none_or(
                            |(_, uid, made, known)| {
                                if *uid == theirs { attempt > *known } else { created > *made }
                            },
                        );
                    if later {
                        best = Some((cluster, theirs, created, attempt));
                    }
                }
                Err(why) => {
                    waits =
                        Some(format!("Worker cluster \"{cluster}\" has a copy from before this hub's memory: {why}"));
                    if !orphan.has_job() {
                        orphan.remove(&cluster, now, out);
                    }
                }
            }
        }
        let adopt = best.map(|(cluster, theirs, _, attempt)| Past::Adopt { cluster, theirs, attempt });
        adopt.or(waits.map(Past::Wait))
    }

    /// The clusters that may have a copy of a workload and have not said so; none once each has spoken or is given up. Sets
    /// the timer.
    fn unheard(&self, entry: &mut Entry, since: Time, now: Time) -> Option<String> {
        let end = since.saturating_add(CAREFUL);
        if now >= end {
            return None;
        }
        let mut silent = Vec::new();
        for (name, _) in self.clusters.iter().filter(|(_, cluster)| cluster.exists && !cluster.told) {
            let due = self.give_up_at(name, entry).unwrap_or(end).min(end);
            if now < due {
                silent.push(&**name);
                entry.wake_at(due);
            }
        }
        (!silent.is_empty()).then(|| silent.join(", "))
    }
}

impl Orphan {
    /// Whether it is a copy of this job: when it was made, or else why not and what mends it.
    fn fits(&mut self, subject: &Subject, known: u64, asked: bool) -> Result<Time, String> {
        let Some(origin) = self.origin().cloned() else { return Err("its origin is not known".to_owned()) };
        if !origin.has_job {
            return Err("its job was never made, it is being removed".to_owned());
        }
        let why = if self.attempt() <= known {
            "the workload has been sent elsewhere since; delete the copy on its cluster".to_owned()
        } else if origin.subject.pod_sets != subject.pod_sets && !asked {
            "its pod sets are others; apply the job as it was, delete the copy on its cluster, or see switchyard adopt"
                .to_owned()
        } else {
            return Ok(origin.created);
        };
        self.differs = Some(why.clone());
        Err(why)
    }

    /// Has what was never made into a job removed.
    fn remove(&mut self, cluster: &Name, now: Time, out: &mut Vec<Action>) {
        let (uid, namespace, name, attempt) = self.place();
        tracing::info!(%cluster, workload_uid = %uid, attempt, now, "removing a copy whose job was never made");
        self.removing = true;
        out.push(Action::Desire { cluster: cluster.clone(), uid, namespace, name, attempt, phase: Phase::Absent });
    }
}
