//! Loss of the hub's store: its replicas restart with an empty store, and owners apply their jobs
//! again.

use std::collections::BTreeSet;

use switchyard_dispatcher::{StoreLoss, Uid, UnixMillis};
use switchyard_flags::simulate::Mutation;
use switchyard_ledger::{Meta, ObjectKind};

use crate::names::{FORGED, name, number, uid_in};
use crate::state::{Event, Object, Term, World};
use crate::time::{Ms, START};
use crate::violation::Law;

/// By then, owners have applied their jobs again.
const APPLIED: Ms = 40_000;

impl World {
    /// A workload's present uid on the hub.
    pub(crate) fn uid(&self, index: usize) -> Uid {
        let uids = (0..=self.lost_store.times).rev().map(|times| uid_in(index, times));
        let there = uids.clone().find(|uid| self.api.objects.contains_key(uid));
        there.unwrap_or_else(|| uid_in(index, self.lost_store.times))
    }

    pub(crate) fn back_up(&mut self) {
        self.lost_store.backup = Some(self.api.objects.clone());
    }

    /// Restores the backup. Owners apply newer workloads again.
    pub(crate) fn restore(&mut self) {
        let Some(backup) = self.lost_store.backup.take() else { return };
        self.lose_store(None);
        for (uid, object) in backup {
            let index = number(&uid);
            self.excuse_attempts_after(index, &object);
            let restored = self.with_past(index, object);
            self.lost_store.past.remove(&index);
            self.api.objects.insert(uid.clone(), restored);
            self.api_changed(&uid);
        }
        self.restart_after_loss(None);
    }

    /// If the backup has an attempt that was given up, the attempts committed after it are the
    /// duplicates now.
    fn excuse_attempts_after(&mut self, index: usize, backup: &Object) {
        let Some(restored) = backup.committed.last().copied() else { return };
        if !self.given_up(restored.0, index, restored.1) {
            return;
        }
        let Some(past) = self.lost_store.past.get(&index) else { return };
        let position = past.committed.iter().rposition(|it| *it == restored);
        let later = position.map(|at| past.committed[at + 1..].to_vec()).unwrap_or_default();
        for (cluster, attempt) in later {
            self.replace_attempt(cluster, index, attempt);
        }
    }

    /// Whether the hub lost its store and knows of it.
    pub(super) fn is_forgetful(&self) -> bool {
        self.lost_store.at.is_some() && !self.mutated(Mutation::ForgetMemory)
    }

    /// A new hub process's knowledge of the loss. `now` is its own clock; the API server's clock is
    /// right.
    pub(super) fn store_loss(&self, now: UnixMillis) -> Option<StoreLoss> {
        let true_time = |at: Ms| START + i64::try_from(at).unwrap_or(0);
        let since = self.lost_store.at.filter(|_| self.is_forgetful())?;
        Some(StoreLoss::new(true_time(since), true_time(self.now), now))
    }

    /// Crashes all replicas and empties the store.
    pub(crate) fn lose_store(&mut self, not_again: Option<usize>) {
        for hub in 0..self.hubs.len() {
            self.crash_hub(hub, true);
        }
        // The agents' states are lost with the store.
        for cluster in &mut self.clusters {
            (cluster.unstored_unable, cluster.reported_unable) = (None, false);
        }
        let version = self.api.version;
        let api = std::mem::take(&mut self.api);
        // Versions continue, so that late requests of a dead process never match.
        (self.api.version, self.api.lease_version) = (version, api.lease_version);
        for (uid, object) in api.objects {
            self.lost_store.past.insert(number(&uid), object);
        }
        (self.lost_store.times, self.lost_store.at) = (self.lost_store.times + 1, Some(self.now));
        // The lost store may have removed a job that is wanted again.
        for cluster in &mut self.clusters {
            for (uid, attempt) in std::mem::take(&mut cluster.removed) {
                let before = cluster.removed_before.entry(uid).or_default();
                *before = attempt.max(*before);
            }
        }
        self.note(|| format!("the store is lost; {not_again:?} is not applied again"));
    }

    /// Restarts the replicas and applies unfinished workloads again.
    pub(crate) fn restart_after_loss(&mut self, not_again: Option<usize>) {
        for hub in 0..self.hubs.len() {
            if !self.hubs[hub].up {
                self.hub_boot(hub);
            }
        }
        let open = |(_, object): &(&usize, &Object)| {
            !object.facts.state.finished && !object.owner_gone && !object.deleted
        };
        let again: Vec<usize> =
            self.lost_store.past.iter().filter(open).map(|(index, _)| *index).collect();
        for index in again.into_iter().filter(|index| Some(*index) != not_again) {
            let delay = self.dice(0).between(1, APPLIED);
            self.after(delay, Event::Submit(index));
        }
    }

    /// A workload that is applied again, with the laws' knowledge about it.
    pub(super) fn with_past(&self, index: usize, object: Object) -> Object {
        match self.lost_store.past.get(&index) {
            None => object,
            Some(past) => Object {
                committed: past.committed.clone(),
                commit_decided: past.commit_decided,
                // Its owner applies another policy than the hub had last.
                changed: if past.facts.on_disconnect == object.facts.on_disconnect {
                    past.changed
                } else {
                    self.now
                },
                losses: past.losses.union(&object.losses).copied().collect(),
                // The end of a job is unknown once nothing of the job is left.
                ended: past
                    .ended
                    .iter()
                    .filter(|(at, attempt)| self.has_end(*at, index, *attempt))
                    .copied()
                    .collect(),
                ..object
            },
        }
    }

    /// Whether a cluster has the end of a job and keeps it: no hub has stored it.
    fn has_end(&self, cluster: usize, index: usize, attempt: u64) -> bool {
        !self.lost_store.past.get(&index).is_some_and(|past| past.facts.state.finished)
            && self.shows_end(cluster, index, attempt)
    }

    /// Whether a cluster has a job that shows its end.
    fn shows_end(&self, cluster: usize, index: usize, attempt: u64) -> bool {
        let job = self.clusters[cluster].objects.get(&(ObjectKind::Job, index));
        job.is_some_and(|stored| {
            !stored.foreign && stored.ended.is_some() && stored.object.meta().attempt == attempt
        })
    }

    /// The laws' knowledge about a workload, even a forgotten one.
    pub(crate) fn law_of(&self, uid: &Uid) -> Option<&Object> {
        self.api.objects.get(uid).or_else(|| self.lost_store.past.get(&number(uid)))
    }

    /// All workloads ever, by number, with the laws' knowledge about them.
    pub(crate) fn laws_objects(&self) -> impl Iterator<Item = (usize, &Object)> {
        let now = self.api.objects.iter().map(|(uid, object)| (number(uid), object));
        now.chain(self.lost_store.past.iter().map(|(index, object)| (*index, object)))
    }

    /// A job really ended.
    pub(crate) fn law_ended(&mut self, index: usize, cluster: usize, attempt: u64) {
        let uid = self.uid(index);
        let object = match self.api.objects.get_mut(&uid) {
            Some(object) => Some(object),
            None => self.lost_store.past.get_mut(&index),
        };
        if let Some(object) = object {
            object.ended.push((cluster, attempt));
        }
    }

    /// The uids that clusters may know for a workload's job.
    fn known_as(&self, index: usize) -> BTreeSet<Uid> {
        let uid = self.uid(index);
        match self.api.objects.get(&uid).filter(|object| !object.deleted) {
            Some(object) => {
                object.facts.state.cluster_uid.clone().into_iter().chain([uid]).collect()
            }
            None => BTreeSet::new(),
        }
    }

    /// Whether a cluster's copy of a workload is older than the loss of the store and was not
    /// adopted.
    pub(crate) fn is_forgotten(&self, cluster: usize, index: usize) -> bool {
        let known = self.known_as(index);
        let objects = &self.clusters[cluster].objects;
        let kinds = [ObjectKind::Job, ObjectKind::Workload];
        let of = kinds
            .iter()
            .find_map(|kind| objects.get(&(*kind, index)).filter(|stored| !stored.foreign));
        let attempt =
            self.api.objects.get(&self.uid(index)).map_or(0, |object| object.facts.state.attempt);
        of.is_some_and(|stored| {
            let meta = stored.object.meta();
            !known.contains(meta.workload_uid.as_str()) || meta.attempt > attempt
        })
    }

    /// Whether the hub shows the copy as an orphan, and keeps it.
    pub(crate) fn is_shown_as_forgotten(&self, cluster: usize, index: usize) -> bool {
        self.is_forgotten(cluster, index)
            && self.leading_terms().any(|term| {
                let shown = term.dispatcher.orphans_of(&name(cluster), usize::MAX);
                shown.iter().any(|it| it.is_kept() && number(&it.uid) == index)
            })
    }

    /// Whether the hub shows the copy as an orphan, or will once it has the cluster's inventory.
    pub(crate) fn will_be_shown_as_forgotten(&self, cluster: usize, index: usize) -> bool {
        let has_inventory = |term: &Term| term.dispatcher.has_reported_inventory(&name(cluster));
        self.is_shown_as_forgotten(cluster, index)
            || self.is_forgotten(cluster, index) && !self.leading_terms().any(has_inventory)
    }

    /// Checks a removal by the hub: it must not hit a forgotten job. A removal applies up to its
    /// attempt; it spares a later attempt that a backup has forgotten.
    pub(super) fn check_forgotten(&mut self, cluster: usize, uid: &Uid, attempt: u64) {
        let index = number(uid);
        if index >= FORGED {
            return;
        }
        let objects = &self.clusters[cluster].objects;
        let job = objects.get(&(ObjectKind::Job, index)).filter(|stored| !stored.foreign);
        let uid_now = self.uid(index);
        // Its end counts for the hub's attempt, although a backup has forgotten a later one.
        let unwanted = self.api.objects.get(&uid_now).is_some_and(|it| {
            let attempt = it.facts.state.attempt;
            let shown = (0..self.clusters.len()).any(|at| self.shows_end(at, index, attempt));
            let over = shown || it.ended.iter().any(|(_, ended)| *ended == attempt);
            it.owner_gone || it.deleted || it.facts.state.finished || over
        });
        let is_meant = |meta: &Meta| meta.workload_uid == **uid && meta.attempt <= attempt;
        let meant = !unwanted && job.is_some_and(|stored| is_meant(stored.object.meta()));
        // Created after the cluster reported no job, or performed long after its removal: it never
        // ran.
        let made_late = job.is_some_and(|stored| stored.run == 0);
        if !meant || made_late || !self.is_forgotten(cluster, index) {
            return;
        }
        let attempt = job.map_or(0, |stored| stored.object.meta().attempt);
        // A later attempt of the workload makes the earlier ones useless.
        let is_later = |at: &crate::state::Cluster| {
            let job = at.objects.get(&(ObjectKind::Job, index)).filter(|stored| !stored.foreign);
            job.is_some_and(|it| {
                it.object.meta().workload_uid == **uid && it.object.meta().attempt > attempt
            })
        };
        if self.clusters.iter().any(is_later) {
            self.count_excuse(
                "excuse: an earlier end, removed for a later one",
                cluster,
                index,
                attempt,
            );
        } else if !self.given_up(cluster, index, attempt) && !self.may_be_given_up(cluster, index) {
            self.report_violation(
                Law::Forgotten,
                format!("{uid} is to be removed from {cluster}, and the hub has forgotten it"),
            );
        }
    }
}
