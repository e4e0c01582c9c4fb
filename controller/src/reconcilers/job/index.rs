//! Which workloads belong to which job, and which jobs wait for which workload. Kept up to date
//! from the stores' changes, so that reconciling a job costs the same with ten jobs as with
//! 100,000.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use serde_json::Value;
use switchyard_api::v1beta2::Workload;
use switchyard_jobs::{JobKind, kind_of_owner, meta, pod::Pod};

use crate::workload::is_group_workload;
use switchyard_platform::store::Key;

/// How long the watch may take to bring a created workload.
const CREATION_GRACE: Duration = Duration::from_secs(5);

/// Bound of jobs followed above or below a job. Owners may form cycles.
const MAX_DEPTH: usize = 8;

/// Identifies a job of any kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    /// Whether it is a group of objects of that kind.
    pub(crate) composed: bool,
    pub(crate) key: Key,
}

impl JobKey {
    pub(crate) fn new(kind: &dyn JobKind, key: Key) -> Self {
        Self { group: kind.id().group, kind: kind.id().kind, composed: false, key }
    }

    /// The key of a group of objects.
    fn group(kind: &dyn JobKind, namespace: &str, name: &str) -> Self {
        Self { composed: true, ..Self::new(kind, Key::new(namespace, name)) }
    }

    /// The key of the job that an object belongs to, alone or in a group.
    pub(crate) fn of(kind: &dyn JobKind, key: &Key, object: &Value) -> Self {
        match kind.group_of(object) {
            Some(name) => Self::group(kind, &key.namespace, name),
            None => Self::new(kind, key.clone()),
        }
    }

    /// The key of the job that controls a workload.
    pub(crate) fn owner_of(workload: &Workload) -> Option<Self> {
        if is_group_workload(workload) {
            let name = workload.metadata.name.as_deref().unwrap_or_default();
            return Some(Self::group(
                &Pod,
                workload.metadata.namespace.as_deref().unwrap_or_default(),
                name,
            ));
        }
        let owner = workload
            .metadata
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))?;
        let kind = kind_of_owner(&owner.api_version, &owner.kind)?;
        Some(Self::new(
            kind,
            Key::new(workload.metadata.namespace.as_deref().unwrap_or_default(), &owner.name),
        ))
    }

    /// The keys of the owners that create a pod group's pods, from its workload.
    fn pod_group_owners_of(workload: &Workload) -> Vec<Self> {
        if !is_group_workload(workload) {
            return Vec::new();
        }
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let owners = workload.metadata.owner_references.iter().flatten();
        let group_owner = |owner: &OwnerReference| {
            let kind = kind_of_owner(&owner.api_version, &owner.kind)
                .filter(|kind| kind.serving().is_some())?;
            Some(Self::new(kind, Key::new(namespace, &owner.name)))
        };
        owners.filter_map(group_owner).collect()
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} {}", self.kind, if self.composed { " group" } else { "" }, self.key)
    }
}

#[derive(Default)]
struct Maps {
    // Workloads that each job controls.
    owned: BTreeMap<JobKey, BTreeSet<Key>>,
    // Jobs that name each prebuilt workload.
    named: BTreeMap<Key, BTreeSet<JobKey>>,
    // Jobs that each job controls. They run and stop with it.
    children: BTreeMap<JobKey, BTreeSet<JobKey>>,
    // The inverse of `children`.
    parents: BTreeMap<JobKey, JobKey>,
    // Children with active pods.
    active: BTreeSet<JobKey>,
    // Objects of each group.
    members: BTreeMap<JobKey, BTreeSet<Key>>,
    // Workloads that each pod group owner owns, and pods that it creates.
    served: BTreeMap<JobKey, BTreeSet<Key>>,
    parts: BTreeMap<JobKey, BTreeSet<Key>>,
    // Jobs with a created workload that has not arrived through the watch.
    created: BTreeMap<JobKey, Instant>,
}

/// The index.
#[derive(Default)]
pub(crate) struct Index(Mutex<Maps>);

impl Index {
    /// Applies a change of a workload. Returns the jobs to reconcile.
    pub(crate) fn workload(
        &self,
        key: &Key,
        old: Option<&Workload>,
        new: Option<&Workload>,
    ) -> BTreeSet<JobKey> {
        let mut maps = self.0.lock();
        let mut affected = BTreeSet::new();
        if let Some(owner) = old.and_then(JobKey::owner_of) {
            remove(&mut maps.owned, &owner, key);
            affected.insert(owner);
        }
        if let Some(owner) = new.and_then(JobKey::owner_of) {
            maps.owned.entry(owner.clone()).or_default().insert(key.clone());
            maps.created.remove(&owner);
            affected.insert(owner);
        }
        for group_owner in old.into_iter().flat_map(JobKey::pod_group_owners_of) {
            remove(&mut maps.served, &group_owner, key);
            affected.insert(group_owner);
        }
        for group_owner in new.into_iter().flat_map(JobKey::pod_group_owners_of) {
            maps.served.entry(group_owner.clone()).or_default().insert(key.clone());
            maps.created.remove(&group_owner);
            affected.insert(group_owner);
        }
        affected.extend(maps.named.get(key).into_iter().flatten().cloned());
        let children: Vec<JobKey> =
            affected.iter().filter_map(|job| maps.children.get(job)).flatten().cloned().collect();
        affected.extend(children);
        affected
    }

    /// Applies a change of an object of a job kind. Returns the jobs to reconcile. An object that
    /// joins a group is no job of its own any more.
    pub(crate) fn object(
        &self,
        kind: &dyn JobKind,
        key: &Key,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> BTreeSet<JobKey> {
        let job_of = |object: Option<&Value>| object.map(|object| JobKey::of(kind, key, object));
        let (before, after) = (job_of(old), job_of(new));
        self.member(key, before.as_ref(), after.as_ref());
        let is_alone = |job: &Option<JobKey>| job.as_ref().is_some_and(|job| !job.composed);
        let (old, new) = (old.filter(|_| is_alone(&before)), new.filter(|_| is_alone(&after)));
        let job = JobKey::new(kind, key.clone());
        let named = |object: Option<&Value>| {
            object.map(meta::prebuilt_workload_name).unwrap_or_default().to_owned()
        };
        self.prebuilt(&job, &named(old), &named(new));
        let parent = |object: Option<&Value>| {
            let owner = meta::controller_of(object?)?;
            let kind = kind_of_owner(&owner.api_version, &owner.kind)?;
            Some(JobKey::new(kind, Key::new(&key.namespace, &owner.name)))
        };
        let mut affected: BTreeSet<JobKey> = [before, after].into_iter().flatten().collect();
        let is_active = parent(new).is_some() && new.is_some_and(|object| kind.is_active(object));
        if self.note_active(&job, is_active) {
            affected.extend(self.above(&job));
        }
        self.parent(&job, parent(old), parent(new));
        affected
    }

    /// Records whether a child job has active pods. Returns whether they just stopped.
    fn note_active(&self, job: &JobKey, is_active: bool) -> bool {
        let mut maps = self.0.lock();
        if is_active {
            maps.active.insert(job.clone());
            return false;
        }
        maps.active.remove(job)
    }

    /// Whether a job below this one has active pods.
    pub(crate) fn is_active_below(&self, job: &JobKey) -> bool {
        let below = self.below(job);
        let maps = self.0.lock();
        below.iter().any(|job| maps.active.contains(job))
    }

    /// The jobs above a job, its controller first.
    fn above(&self, job: &JobKey) -> Vec<JobKey> {
        let maps = self.0.lock();
        std::iter::successors(maps.parents.get(job), |job| maps.parents.get(*job))
            .take(MAX_DEPTH)
            .cloned()
            .collect()
    }

    /// All jobs below a job.
    fn below(&self, job: &JobKey) -> BTreeSet<JobKey> {
        let maps = self.0.lock();
        let mut level: Vec<&JobKey> = maps.children.get(job).into_iter().flatten().collect();
        let mut found = BTreeSet::new();
        for _ in 0..MAX_DEPTH {
            found.extend(level.iter().map(|job| (*job).clone()));
            level = level.into_iter().filter_map(|job| maps.children.get(job)).flatten().collect();
        }
        found
    }

    /// Applies a change of a job's controller.
    fn parent(&self, job: &JobKey, old: Option<JobKey>, new: Option<JobKey>) {
        if old == new {
            return;
        }
        let mut maps = self.0.lock();
        if let Some(old) = old {
            remove(&mut maps.children, &old, job);
            maps.parents.remove(job);
        }
        if let Some(new) = new {
            maps.children.entry(new.clone()).or_default().insert(job.clone());
            maps.parents.insert(job.clone(), new);
        }
    }

    /// Applies a change of the prebuilt workload that a job names. Empty names mean none.
    fn prebuilt(&self, job: &JobKey, old: &str, new: &str) {
        if old == new {
            return;
        }
        let mut maps = self.0.lock();
        if !old.is_empty() {
            remove(&mut maps.named, &Key::new(&job.key.namespace, old), job);
        }
        if !new.is_empty() {
            maps.named.entry(Key::new(&job.key.namespace, new)).or_default().insert(job.clone());
        }
    }

    /// Applies a change of the job that an object belongs to. The group's workload has the group's
    /// name.
    fn member(&self, object: &Key, old: Option<&JobKey>, new: Option<&JobKey>) {
        if old == new {
            return;
        }
        let mut maps = self.0.lock();
        if let Some(old) = old.filter(|job| job.composed) {
            remove(&mut maps.members, old, object);
            if !maps.members.contains_key(old) {
                remove(&mut maps.named, &old.key, old);
            }
        }
        if let Some(new) = new.filter(|job| job.composed) {
            maps.members.entry(new.clone()).or_default().insert(object.clone());
            maps.named.entry(new.key.clone()).or_default().insert(new.clone());
        }
    }

    /// Applies a change of a pod's group owner.
    pub(crate) fn part(&self, pod: &Key, old: Option<&JobKey>, new: Option<&JobKey>) {
        if old == new {
            return;
        }
        let mut maps = self.0.lock();
        if let Some(old) = old {
            remove(&mut maps.parts, old, pod);
        }
        if let Some(new) = new {
            maps.parts.entry(new.clone()).or_default().insert(pod.clone());
        }
    }

    /// The pods that a pod group owner creates.
    pub(crate) fn parts(&self, group_owner: &JobKey) -> Vec<Key> {
        self.0.lock().parts.get(group_owner).into_iter().flatten().cloned().collect()
    }

    /// The group workloads that a pod group owner owns.
    pub(crate) fn served(&self, group_owner: &JobKey) -> Vec<Key> {
        self.0.lock().served.get(group_owner).into_iter().flatten().cloned().collect()
    }

    /// The objects of a group.
    pub(crate) fn members(&self, job: &JobKey) -> Vec<Key> {
        self.0.lock().members.get(job).into_iter().flatten().cloned().collect()
    }

    /// The workloads that a job controls.
    pub(crate) fn owned(&self, job: &JobKey) -> Vec<Key> {
        self.0.lock().owned.get(job).into_iter().flatten().cloned().collect()
    }

    /// All jobs that control a workload.
    pub(crate) fn owners(&self) -> Vec<JobKey> {
        self.0.lock().owned.keys().cloned().collect()
    }

    /// Records that the job's workload was created.
    pub(crate) fn created(&self, job: &JobKey, now: Instant) {
        let mut maps = self.0.lock();
        if maps.owned.get(job).is_none_or(BTreeSet::is_empty) {
            maps.created.insert(job.clone(), now);
        }
    }

    /// Removes that record, for a deleted job.
    pub(crate) fn forget(&self, job: &JobKey) {
        self.0.lock().created.remove(job);
    }

    /// How long to wait for a created workload that has not arrived.
    pub(crate) fn arriving(&self, job: &JobKey, now: Instant) -> Option<Duration> {
        let mut maps = self.0.lock();
        let since = now.saturating_duration_since(*maps.created.get(job)?);
        let left = CREATION_GRACE.checked_sub(since).filter(|left| !left.is_zero());
        if left.is_none() {
            maps.created.remove(job);
        }
        left
    }
}

fn remove<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
