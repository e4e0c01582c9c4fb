//! Which workloads belong to which job, and which jobs wait for which workload: kept from the stores' changes, so that a
//! look at one job costs the same with ten jobs as with a hundred thousand.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use switchyard_api::v1beta2::Workload;
use switchyard_jobs::{JobKind, kind_of_owner, meta, pod::Pod};

use crate::workload::is_group_workload;
use switchyard_platform::store::Key;

/// How long a workload that we created may take to arrive through the watch.
const CREATION_GRACE: Duration = Duration::from_secs(5);

/// How many jobs above or below a job are looked at. Deeper ones may only come from owners that own each other.
const MAX_DEPTH: usize = 8;

/// Names a job of any kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey {
    /// API group of its kind.
    pub(crate) group: &'static str,
    /// Its kind.
    pub(crate) kind: &'static str,
    /// Whether it is a group of objects of that kind.
    pub(crate) composed: bool,
    /// Namespace and name.
    pub(crate) key: Key,
}

impl JobKey {
    /// The key of a job.
    pub(crate) fn new(kind: &dyn JobKind, key: Key) -> Self {
        Self { group: kind.id().group, kind: kind.id().kind, composed: false, key }
    }

    /// The key of a group of objects.
    fn group(kind: &dyn JobKind, namespace: &str, name: &str) -> Self {
        Self { composed: true, ..Self::new(kind, Key::new(namespace, name)) }
    }

    /// The key of the job that an object is, alone or with others.
    pub(crate) fn of(kind: &dyn JobKind, key: &Key, object: &Value) -> Self {
        match kind.group_of(object) {
            Some(name) => Self::group(kind, &key.namespace, name),
            None => Self::new(kind, key.clone()),
        }
    }

    /// The key of the job that controls a workload, if it is one of the known kinds.
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

    /// The keys of what makes the pods of a group, for the group's workload.
    fn makers_of(workload: &Workload) -> Vec<Self> {
        if !is_group_workload(workload) {
            return Vec::new();
        }
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let owners = workload.metadata.owner_references.iter().flatten();
        let maker = |owner: &OwnerReference| {
            let kind = kind_of_owner(&owner.api_version, &owner.kind)
                .filter(|kind| kind.serving().is_some())?;
            Some(Self::new(kind, Key::new(namespace, &owner.name)))
        };
        owners.filter_map(maker).collect()
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} {}", self.kind, if self.composed { " group" } else { "" }, self.key)
    }
}

#[derive(Default)]
struct Maps {
    // Keys of the workloads that each job controls.
    owned: BTreeMap<JobKey, BTreeSet<Key>>,
    // The jobs that name each workload as made beforehand.
    named: BTreeMap<Key, BTreeSet<JobKey>>,
    // The jobs that each job controls: they run and stop with it.
    children: BTreeMap<JobKey, BTreeSet<JobKey>>,
    // The job that controls each of those.
    parents: BTreeMap<JobKey, JobKey>,
    // Those of them that have pods that run.
    active: BTreeSet<JobKey>,
    // The objects of each group.
    members: BTreeMap<JobKey, BTreeSet<Key>>,
    // The workloads that the makers of groups of pods own, and the pods that they make.
    served: BTreeMap<JobKey, BTreeSet<Key>>,
    parts: BTreeMap<JobKey, BTreeSet<Key>>,
    // Jobs whose workload was created and has not arrived through the watch.
    created: BTreeMap<JobKey, Instant>,
}

/// The index.
#[derive(Default)]
pub(crate) struct Index(Mutex<Maps>);

impl Index {
    /// Follows a change of a workload; gives the jobs to look at.
    pub(crate) fn workload(
        &self,
        key: &Key,
        old: Option<&Workload>,
        new: Option<&Workload>,
    ) -> BTreeSet<JobKey> {
        let mut maps = self.lock();
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
        for maker in old.into_iter().flat_map(JobKey::makers_of) {
            remove(&mut maps.served, &maker, key);
            affected.insert(maker);
        }
        for maker in new.into_iter().flat_map(JobKey::makers_of) {
            maps.served.entry(maker.clone()).or_default().insert(key.clone());
            maps.created.remove(&maker);
            affected.insert(maker);
        }
        affected.extend(maps.named.get(key).into_iter().flatten().cloned());
        let children: Vec<JobKey> =
            affected.iter().filter_map(|job| maps.children.get(job)).flatten().cloned().collect();
        affected.extend(children);
        affected
    }

    /// Follows a change of an object of a kind of jobs; gives the jobs to look at. One that joins a group is no job of its own
    /// any more.
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

    /// Notes whether a job below another one has pods that run; whether they have just stopped.
    fn note_active(&self, job: &JobKey, is_active: bool) -> bool {
        let mut maps = self.lock();
        if is_active {
            maps.active.insert(job.clone());
            return false;
        }
        maps.active.remove(job)
    }

    /// Whether a job below this one has pods that run.
    pub(crate) fn is_active_below(&self, job: &JobKey) -> bool {
        let below = self.below(job);
        let maps = self.lock();
        below.iter().any(|job| maps.active.contains(job))
    }

    /// The jobs above a job: the one that controls it, the one that controls that one, and so on.
    fn above(&self, job: &JobKey) -> Vec<JobKey> {
        let maps = self.lock();
        std::iter::successors(maps.parents.get(job), |job| maps.parents.get(*job))
            .take(MAX_DEPTH)
            .cloned()
            .collect()
    }

    /// The jobs that a job controls, those that they control, and so on.
    fn below(&self, job: &JobKey) -> BTreeSet<JobKey> {
        let maps = self.lock();
        let mut level: Vec<&JobKey> = maps.children.get(job).into_iter().flatten().collect();
        let mut found = BTreeSet::new();
        for _ in 0..MAX_DEPTH {
            found.extend(level.iter().map(|job| (*job).clone()));
            level = level.into_iter().filter_map(|job| maps.children.get(job)).flatten().collect();
        }
        found
    }

    /// Follows a change of the job that controls a job.
    fn parent(&self, job: &JobKey, old: Option<JobKey>, new: Option<JobKey>) {
        if old == new {
            return;
        }
        let mut maps = self.lock();
        if let Some(old) = old {
            remove(&mut maps.children, &old, job);
            maps.parents.remove(job);
        }
        if let Some(new) = new {
            maps.children.entry(new.clone()).or_default().insert(job.clone());
            maps.parents.insert(job.clone(), new);
        }
    }

    /// Follows a change of the prebuilt workload that a job names; names are empty for none.
    fn prebuilt(&self, job: &JobKey, old: &str, new: &str) {
        if old == new {
            return;
        }
        let mut maps = self.lock();
        if !old.is_empty() {
            remove(&mut maps.named, &Key::new(&job.key.namespace, old), job);
        }
        if !new.is_empty() {
            maps.named.entry(Key::new(&job.key.namespace, new)).or_default().insert(job.clone());
        }
    }

    /// Follows a change of the job that an object belongs to. A group is told of the workload that has its name.
    fn member(&self, object: &Key, old: Option<&JobKey>, new: Option<&JobKey>) {
        if old == new {
            return;
        }
        let mut maps = self.lock();
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

    /// Follows a change of what made a pod.
    pub(crate) fn part(&self, pod: &Key, old: Option<&JobKey>, new: Option<&JobKey>) {
        if old == new {
            return;
        }
        let mut maps = self.lock();
        if let Some(old) = old {
            remove(&mut maps.parts, old, pod);
        }
        if let Some(new) = new {
            maps.parts.entry(new.clone()).or_default().insert(pod.clone());
        }
    }

    /// The pods that something makes.
    pub(crate) fn parts(&self, maker: &JobKey) -> Vec<Key> {
        self.lock().parts.get(maker).into_iter().flatten().cloned().collect()
    }

    /// The workloads of groups that their maker owns.
    pub(crate) fn served(&self, maker: &JobKey) -> Vec<Key> {
        self.lock().served.get(maker).into_iter().flatten().cloned().collect()
    }

    /// The objects of a group.
    pub(crate) fn members(&self, job: &JobKey) -> Vec<Key> {
        self.lock().members.get(job).into_iter().flatten().cloned().collect()
    }

    /// The workloads that a job controls.
    pub(crate) fn owned(&self, job: &JobKey) -> Vec<Key> {
        self.lock().owned.get(job).into_iter().flatten().cloned().collect()
    }

    /// All jobs that control a workload.
    pub(crate) fn owners(&self) -> Vec<JobKey> {
        self.lock().owned.keys().cloned().collect()
    }

    /// Notes that the job's workload was created.
    pub(crate) fn created(&self, job: &JobKey, now: Instant) {
        let mut maps = self.lock();
        if maps.owned.get(job).is_none_or(BTreeSet::is_empty) {
            maps.created.insert(job.clone(), now);
        }
    }

    /// Forgets that note, for a job that is gone.
    pub(crate) fn forget(&self, job: &JobKey) {
        self.lock().created.remove(job);
    }

    /// How long to wait for a workload that was created and has not arrived.
    pub(crate) fn arriving(&self, job: &JobKey, now: Instant) -> Option<Duration> {
        let mut maps = self.lock();
        let since = now.saturating_duration_since(*maps.created.get(job)?);
        let left = CREATION_GRACE.checked_sub(since).filter(|left| !left.is_zero());
        if left.is_none() {
            maps.created.remove(job);
        }
        left
    }

    fn lock(&self) -> MutexGuard<'_, Maps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
mod tests {
    use switchyard_jobs::batch_job::BatchJob;

    use super::*;

    fn workload(owner: &str) -> Workload {
        serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "w", "namespace": "ns",
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "u", "controller": true}],
            },
            "spec": {"podSets": []},
        }))
        .unwrap()
    }

    fn job(name: &str) -> JobKey {
        JobKey::new(&BatchJob, Key::new("ns", name))
    }

    #[test]
    fn a_workload_is_of_the_job_that_controls_it_alone() {
        let mut other = workload("a");
        other
            .metadata
            .owner_references
            .iter_mut()
            .flatten()
            .for_each(|owner| owner.controller = None);
        assert_eq!(JobKey::owner_of(&other), None);
        other.metadata.owner_references = None;
        assert_eq!(JobKey::owner_of(&other), None);
        assert_eq!(JobKey::owner_of(&workload("a")), Some(job("a")));
    }

    #[test]
    fn a_workload_that_changes_owner_concerns_both() {
        let (index, key) = (Index::default(), Key::new("ns", "w"));
        assert_eq!(index.workload(&key, None, Some(&workload("a"))), BTreeSet::from([job("a")]));
        assert_eq!(index.owned(&job("a")), vec![key.clone()]);
        let affected = index.workload(&key, Some(&workload("a")), Some(&workload("b")));
        assert_eq!(affected, BTreeSet::from([job("a"), job("b")]));
        assert!(index.owned(&job("a")).is_empty());
        index.workload(&key, Some(&workload("b")), None);
        assert!(index.owners().is_empty());
    }

    #[test]
    fn a_job_hears_of_the_workload_that_it_names() {
        let (index, key) = (Index::default(), Key::new("ns", "w"));
        index.prebuilt(&job("a"), "", "w");
        let unowned = Workload { metadata: kube::core::ObjectMeta::default(), ..workload("a") };
        assert_eq!(index.workload(&key, None, Some(&unowned)), BTreeSet::from([job("a")]));
        index.prebuilt(&job("a"), "w", "");
        assert!(index.workload(&key, Some(&unowned), None).is_empty());
    }

    #[test]
    fn a_job_hears_of_the_workload_of_the_job_that_owns_it() {
        let (index, key) = (Index::default(), Key::new("ns", "w"));
        index.parent(&job("child"), None, Some(job("a")));
        assert_eq!(
            index.workload(&key, None, Some(&workload("a"))),
            BTreeSet::from([job("a"), job("child")])
        );
        index.parent(&job("child"), Some(job("a")), None);
        assert_eq!(index.workload(&key, Some(&workload("a")), None), BTreeSet::from([job("a")]));
    }

    #[test]
    fn jobs_above_hear_when_the_pods_of_a_job_are_gone() {
        let index = Index::default();
        let child = |owner: &str, status: Value| {
            let owner = serde_json::json!([
                {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "u", "controller": true}
            ]);
            serde_json::json!({"metadata": {"name": "child", "namespace": "ns", "ownerReferences": owner}, "status": status})
        };
        let key = Key::new("ns", "child");
        let ending = child("a", serde_json::json!({"terminating": 1}));
        let stopped = child("a", serde_json::json!({}));
        index.parent(&job("a"), None, Some(job("top")));
        assert_eq!(
            index.object(&BatchJob, &key, None, Some(&ending)),
            BTreeSet::from([job("child")])
        );
        assert_eq!(index.below(&job("top")), BTreeSet::from([job("a"), job("child")]));
        let all = BTreeSet::from([job("child"), job("a"), job("top")]);
        // The old object has its metadata only.
        let was = serde_json::json!({"metadata": ending["metadata"]});
        assert!(index.is_active_below(&job("top")) && !index.is_active_below(&job("child")));
        assert_eq!(index.object(&BatchJob, &key, Some(&was), Some(&stopped)), all);
        assert!(!index.is_active_below(&job("top")));
        assert_eq!(
            index.object(&BatchJob, &key, Some(&stopped), None),
            BTreeSet::from([job("child")])
        );
        assert_eq!(index.below(&job("top")), BTreeSet::from([job("a")]));
    }

    #[test]
    fn a_circle_of_owners_has_an_end() {
        let index = Index::default();
        index.parent(&job("a"), None, Some(job("b")));
        index.parent(&job("b"), None, Some(job("a")));
        assert_eq!(index.below(&job("a")), BTreeSet::from([job("a"), job("b")]));
        assert_eq!(index.above(&job("a")).len(), MAX_DEPTH);
    }

    #[test]
    fn a_group_hears_of_the_workload_of_its_name_as_long_as_it_has_members() {
        let (index, key) = (Index::default(), Key::new("ns", "g"));
        let member = |name: &str| {
            let metadata =
                serde_json::json!({"name": name, "labels": {"kueue.x-k8s.io/pod-group-name": "g"}});
            JobKey::of(&Pod, &Key::new("ns", name), &serde_json::json!({ "metadata": metadata }))
        };
        let group = member("a");
        assert!(group.composed && group.key == key && group == member("b"));
        index.member(&Key::new("ns", "a"), None, Some(&group));
        index.member(&Key::new("ns", "b"), None, Some(&group));
        assert_eq!(index.members(&group), [Key::new("ns", "a"), Key::new("ns", "b")]);
        assert_eq!(
            index.workload(&key, None, Some(&workload("x"))),
            BTreeSet::from([job("x"), group.clone()])
        );
        index.member(&Key::new("ns", "a"), Some(&group), None);
        index.member(&Key::new("ns", "b"), Some(&group), None);
        assert_eq!(index.workload(&key, Some(&workload("x")), None), BTreeSet::from([job("x")]));
    }

    #[test]
    fn a_pod_that_joins_a_group_later_is_no_job_of_its_own_any_more() {
        let (index, key) = (Index::default(), Key::new("ns", "a"));
        let owner = serde_json::json!([
            {"apiVersion": "batch/v1", "kind": "Job", "name": "above", "uid": "u", "controller": true}
        ]);
        let pod = |labels: Value| {
            serde_json::json!({"metadata": {
                "name": "a", "namespace": "ns", "ownerReferences": owner, "labels": labels,
                "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "w"},
            }})
        };
        let alone = pod(serde_json::json!({"kueue.x-k8s.io/prebuilt-workload-name": "w"}));
        let member = pod(serde_json::json!({"kueue.x-k8s.io/pod-group-name": "g"}));
        let (lone, group) = (JobKey::new(&Pod, key.clone()), JobKey::of(&Pod, &key, &member));
        let told = || {
            let unowned = Workload { metadata: kube::core::ObjectMeta::default(), ..workload("x") };
            let mut told = index.workload(&Key::new("ns", "w"), None, Some(&unowned));
            told.extend(index.workload(
                &Key::new("ns", "of-above"),
                None,
                Some(&workload("above")),
            ));
            told.contains(&lone)
        };
        assert_eq!(index.object(&Pod, &key, None, Some(&alone)), BTreeSet::from([lone.clone()]));
        assert!(told() && index.members(&group).is_empty());
        let both = BTreeSet::from([lone.clone(), group.clone()]);
        assert_eq!(index.object(&Pod, &key, Some(&alone), Some(&member)), both);
        assert!(!told());
        assert_eq!(index.members(&group), std::slice::from_ref(&key));
        assert_eq!(index.object(&Pod, &key, Some(&member), Some(&alone)), both);
        assert!(told() && index.members(&group).is_empty());
        index.object(&Pod, &key, Some(&alone), None);
        assert!(!told());
    }

    #[test]
    fn a_created_workload_is_awaited_for_a_while() {
        let (index, now) = (Index::default(), Instant::now());
        assert_eq!(index.arriving(&job("a"), now), None);
        index.created(&job("a"), now);
        assert_eq!(
            index.arriving(&job("a"), now + Duration::from_secs(4)),
            Some(Duration::from_secs(1))
        );
        assert_eq!(index.arriving(&job("a"), now + Duration::from_secs(5)), None);
        index.created(&job("a"), now);
        index.workload(&Key::new("ns", "w"), None, Some(&workload("a")));
        assert_eq!(index.arriving(&job("a"), now), None);
    }
}
