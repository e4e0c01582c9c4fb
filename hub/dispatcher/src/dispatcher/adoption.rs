//! Adoption: after a store loss, a workload takes over the copy that already runs its job.
//!
//! A hub whose etcd was lost or restored from a backup knows less than its clusters run. A workload
//! that stands for the same job as an unknown copy is not sent anywhere. One write gives it the
//! copy's cluster, attempt and uid; nothing changes on the cluster. From then on it is a committed
//! workload, and the cluster's [`crate::LossPolicy`] applies as usual.
//!
//! # The same job
//! Equal kind, namespace, name and hash of the pod sets. If only the pod sets differ, the workload
//! waits until an administrator decides ([`AdoptRequest`]) or the copy is gone.
//!
//! # Silent clusters
//! Until each cluster has reported its inventory in this process, a workload without a copy is sent
//! nowhere. The hub does not wait for a cluster that its policy gives up or that is declared lost,
//! and waits no longer than [`RECOVERY_WINDOW`](crate::settings::RECOVERY_WINDOW). A copy that does
//! not run may be the rest of an attempt that was given up; it is adopted only then, too.
//!
//! # Copies of unknown jobs
//! If the Workload of a copy was deleted on its cluster, the agent may not know the job. While such
//! a copy runs within the window, no workload of its namespace is sent anywhere.
//!
//! # Late copies
//! A copy may be reported after its workload was sent elsewhere. If that attempt ended without
//! running, and all clusters have reported, the copy is adopted. Its attempts were counted under
//! another uid, so they are not compared.
//!
//! # Untrusted clusters
//! Only clusters of the workload's check can have its copy. After the window, a copy must have been
//! created before the loss. No attempt above [`MAX_LEAD`] is believed, and the uid of a known
//! workload is never adopted.

use super::Dispatcher;
use super::orphans::Orphan;
use super::tracked_workload::TrackedWorkload;
use crate::{
    AdoptRequest, DispatchAction, JobIdentity, MAX_LEAD, Name, Phase, RequestedAssignment, State,
    Uid, UnixMillis,
};

/// Decision before a workload is sent anywhere.
enum AdoptionDecision {
    /// Adopt this copy.
    Adopt(AdoptableCopy),
    /// Wait, with this message.
    Wait(String),
}

/// A copy that the workload may adopt.
struct AdoptableCopy {
    cluster: Name,
    cluster_uid: Uid,
    attempt: u64,
    created: UnixMillis,
    /// An administrator chose it.
    asked: bool,
    runs: bool,
    /// Its cluster did not evict it. If one attempt has two copies, the evicted one was only an
    /// offer.
    begun: bool,
}

impl AdoptableCopy {
    /// Whether it is preferred. Attempts of one uid are ordered; clocks of clusters differ.
    fn beats(&self, other: &Self) -> bool {
        if self.asked != other.asked {
            self.asked
        } else if self.cluster_uid == other.cluster_uid {
            (self.attempt, self.begun) > (other.attempt, other.begun)
        } else {
            self.created > other.created
        }
    }
}

impl Dispatcher {
    /// Adopts a copy or waits for one. Returns whether the workload must not be sent anywhere now.
    pub(super) fn recover(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        if self.settings.store_loss.is_none() {
            return false;
        }
        let wait = |names: String| {
            AdoptionDecision::Wait(format!(
                "Waiting for worker clusters that may run it since before this hub's memory: {names}; see `switchyard \
                 cluster mark-lost`"
            ))
        };
        let past = match self.copy_of(entry, now, out) {
            Some(AdoptionDecision::Adopt(copy))
                if !copy.runs || copy.attempt <= entry.facts.state.attempt =>
            {
                Some(self.silent_clusters(entry, now).map_or(AdoptionDecision::Adopt(copy), wait))
            }
            Some(past) => Some(past),
            None => self
                .silent_clusters(entry, now)
                .map(wait)
                .or_else(|| self.unidentified_copy(entry, now).map(AdoptionDecision::Wait)),
        };
        match past {
            None => false,
            Some(AdoptionDecision::Adopt(AdoptableCopy {
                cluster, cluster_uid, attempt, ..
            })) => {
                if self.is_cleared(entry, now, out) {
                    self.commit_existing(entry, cluster, attempt, cluster_uid, now, out);
                }
                true
            }
            Some(AdoptionDecision::Wait(message)) => {
                entry.request_absence(None, now, out);
                self.record_when_late(entry, now, out, |_, _| message);
                true
            }
        }
    }

    pub(super) fn commit_existing(
        &mut self,
        entry: &mut TrackedWorkload,
        cluster: Name,
        attempt: u64,
        cluster_uid: Uid,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        if entry.pending_write.is_none() && self.may_write(entry, now) {
            entry.start_commit(cluster, attempt, Some(cluster_uid), out);
        }
    }

    /// Requests removal everywhere. Returns whether no cluster has the workload under its own uid.
    pub(super) fn is_cleared(
        &self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        entry.request_absence(None, now, out);
        let up = |name: &Name| self.clusters.get(name).is_some_and(|cluster| cluster.is_connected);
        // A disconnected cluster had an offer at most. When it reports the copy, it is an orphan.
        entry.remotes.retain(|name, remote| up(name) || remote.may_run());
        entry.remotes.is_empty()
    }

    /// Whether the hub still waits for silent clusters.
    pub(super) fn in_recovery_window(&self, now: UnixMillis) -> bool {
        self.recovery_until(now).is_some()
    }

    /// End of the recovery window, while it lasts.
    fn recovery_until(&self, now: UnixMillis) -> Option<UnixMillis> {
        self.settings.store_loss.map(|loss| loss.recovery_until).filter(|end| now < *end)
    }

    /// Whether copies on the cluster may be adopted: the check lists it, and it exists.
    fn is_eligible(&self, configured: &[Name], cluster: &Name) -> bool {
        configured.contains(cluster) && self.clusters.get(cluster).is_some_and(|known| known.exists)
    }

    /// The copy to adopt, or why the workload waits for one.
    fn copy_of(
        &mut self,
        entry: &TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> Option<AdoptionDecision> {
        let facts = &entry.facts;
        let subject = facts.subject.as_ref().filter(|_| facts.state.cluster_uid.is_none())?;
        if facts.adopt == Some(AdoptRequest::NoCopy) {
            return None;
        }
        let configured = self.configured_clusters(entry);
        let copies: Vec<(Name, Uid)> =
            self.orphans.of_job(&facts.namespace, subject).cloned().collect();
        let (mut fitting, mut waits) = (Vec::new(), None);
        for (cluster, cluster_uid) in copies {
            // The uid of a known workload is not adopted.
            if !self.is_eligible(&configured, &cluster)
                || self.entries.contains_key(&self.uid_aliases.hub_uid(&cluster_uid))
            {
                continue;
            }
            let Some(orphan) =
                self.orphans.get(&cluster, &cluster_uid).filter(|it| it.predates(&self.settings))
            else {
                continue;
            };
            if orphan.removing {
                // The cluster may still run the copy. Its removal marks this workload.
                waits = Some(format!(
                    "Waiting for worker cluster \"{cluster}\" to remove a copy from before this hub's memory"
                ));
                continue;
            }
            let asked = facts.adopt.as_ref().is_some_and(|it| it.is_copy(&cluster, &cluster_uid));
            match orphan.fits(subject, facts.state.attempt, asked) {
                Ok(created) => {
                    let (attempt, runs) = (orphan.attempt(), orphan.runs());
                    let begun = orphan.state() != State::Evicted;
                    fitting.push(AdoptableCopy {
                        cluster,
                        cluster_uid,
                        attempt,
                        created,
                        asked,
                        runs,
                        begun,
                    });
                }
                Err(why) => {
                    waits = Some(format!(
                        "Worker cluster \"{cluster}\" has a copy from before this hub's memory: {why}"
                    ));
                    if orphan.has_job() {
                        self.orphans
                            .change(&cluster, &cluster_uid, |orphan| orphan.mismatch = Some(why));
                    } else {
                        self.remove_jobless_copy(&cluster, &cluster_uid, now, out);
                    }
                }
            }
        }
        match self.choose(fitting) {
            Some(copy) => Some(AdoptionDecision::Adopt(copy)),
            None => waits.map(AdoptionDecision::Wait),
        }
    }

    /// Why the workload waits for a running copy of an unknown job, which may be its own. Sets the
    /// timer.
    fn unidentified_copy(&self, entry: &mut TrackedWorkload, now: UnixMillis) -> Option<String> {
        let end = self.recovery_until(now)?;
        if entry.facts.state.cluster_uid.is_some()
            || entry.facts.adopt == Some(AdoptRequest::NoCopy)
        {
            return None;
        }
        let configured = self.configured_clusters(entry);
        let may_be = |(cluster, uid): &&(Name, Uid)| {
            let blocks_namespace = |orphan: &Orphan| orphan.blocks_namespace(&self.settings);
            self.is_eligible(&configured, cluster)
                && self.orphans.get(cluster, uid).is_some_and(blocks_namespace)
        };
        let (cluster, uid) = self.orphans.of_unknown_job(&entry.facts.namespace).find(may_be)?;
        let message = format!(
            "Worker cluster \"{cluster}\" has a copy from before this hub's memory that may be of this job (uid {uid}): \
             its Workload was deleted there; delete its job there, or see switchyard recover adopt"
        );
        entry.wake_at(end);
        Some(message)
    }

    /// The preferred copy. Notes on the others that they are not; those of the same uid are removed
    /// after the adoption.
    fn choose(&mut self, fitting: Vec<AdoptableCopy>) -> Option<AdoptableCopy> {
        let mut copies = fitting.into_iter();
        let (mut best, mut others) = (copies.next()?, Vec::new());
        for copy in copies {
            others.push(if copy.beats(&best) { std::mem::replace(&mut best, copy) } else { copy });
        }
        for other in others.iter().filter(|other| other.cluster_uid != best.cluster_uid) {
            let why = format!(
                "its job is the copy on worker cluster \"{}\"; delete this one on its cluster",
                best.cluster
            );
            self.orphans
                .change(&other.cluster, &other.cluster_uid, |orphan| orphan.mismatch = Some(why));
        }
        Some(best)
    }

    /// Removes a copy whose job was never created.
    fn remove_jobless_copy(
        &mut self,
        cluster: &Name,
        cluster_uid: &Uid,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let Some(orphan) = self.orphans.get(cluster, cluster_uid) else { return };
        let (uid, namespace, name, attempt) = orphan.location();
        tracing::info!(%cluster, workload_uid = %uid, attempt, now, "removing a copy whose job was never made");
        self.orphans.change(cluster, cluster_uid, |orphan| orphan.removing = true);
        out.push(DispatchAction::Assign(RequestedAssignment {
            cluster: cluster.clone(),
            uid,
            namespace,
            name,
            attempt,
            phase: Phase::Absent,
        }));
    }

    /// Names of the clusters that may have a copy and have not reported. None after the window, or
    /// when each has reported or is given up. A configured cluster that does not exist may be
    /// created soon. Sets the timer.
    pub(super) fn silent_clusters(
        &self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
    ) -> Option<String> {
        let end = self.recovery_until(now)?;
        let configured = self.configured_clusters(entry);
        let missing = configured.iter().filter(|name| !self.clusters.contains_key(*name));
        let mut silent: Vec<&str> = missing.map(|name| &**name).collect();
        if !silent.is_empty() {
            entry.wake_at(end);
        }
        for (name, _) in
            self.clusters.iter().filter(|(_, cluster)| cluster.exists && !cluster.has_listed_all)
        {
            let due = self.give_up_at(name, entry).unwrap_or(end).min(end);
            if now < due {
                silent.push(&**name);
                entry.wake_at(due);
            }
        }
        entry.waits_for_inventories |= !silent.is_empty();
        (!silent.is_empty()).then(|| silent.join(", "))
    }
}

impl Orphan {
    /// Creation time of the copy if it is of this job, or why it is not and what helps.
    fn fits(&self, subject: &JobIdentity, known: u64, asked: bool) -> Result<UnixMillis, String> {
        let Some(origin) = self.origin() else { return Err("its origin is not known".to_owned()) };
        if !self.has_job() {
            Err("its job was never made, it is being removed".to_owned())
        } else if self.attempt() > known.saturating_add(MAX_LEAD) {
            Err(format!(
                "no hub gave out attempt {}; delete the copy on its cluster",
                self.attempt()
            ))
        } else if origin.subject.pod_sets != subject.pod_sets && !asked {
            let mend = "apply the job as it was, delete the copy on its cluster, or see switchyard recover adopt";
            Err(format!("its pod sets are others; {mend}"))
        } else {
            Ok(origin.created)
        }
    }
}
