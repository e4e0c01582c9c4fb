//! Changes that queue jobs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::{Resource as _, api::ApiResource};
use switchyard_api::{conditions::reasons::events, v1beta2::Workload};
use switchyard_jobs::{JobKind, KindId, kind_for, kind_of_owner, meta};
use switchyard_platform::{
    events::EventType,
    object::Object,
    store::{Change, Key},
};
use tokio_util::sync::CancellationToken;

use super::{Reconciler, checks, index::JobKey, lookup};

impl Reconciler {
    pub(super) fn subscribe(self: &Arc<Self>) {
        for jobs in &self.ctx.stores.jobs {
            let Some(kind) = kind_for(&jobs.resource.group, &jobs.resource.kind) else { continue };
            let this = self.clone();
            jobs.store.subscribe(move |change| this.job_changed(kind, change));
        }
        for needed in &self.ctx.stores.dependencies {
            let (this, resource) = (self.clone(), needed.resource.clone());
            needed.store.subscribe(move |change| {
                if !this.child_changed(&resource.group, &resource.kind, change) {
                    this.dependency_changed(&resource, &change.key);
                }
                this.part_changed(&resource.kind, change);
            });
        }
        let this = self.clone();
        self.ctx.stores.workloads.subscribe(move |change| {
            this.publish_check_messages(change);
            for job in
                this.index.workload(&change.key, change.old.as_deref(), change.new.as_deref())
            {
                this.queue.add(job);
            }
        });
        let this = self.clone();
        self.ctx.stores.namespaces.subscribe(move |change| this.namespace_changed(change));
    }

    /// Queues the jobs of a namespace that becomes managed: their reconciles did nothing before it
    /// was known or had its label. A label stops no running job, which a reconcile would do for
    /// want of a Workload. As in Kueue, that waits for the job's next change.
    fn namespace_changed(&self, change: &Change<Namespace>) {
        let is_managed = |it: &Namespace| lookup::is_selected(&self.managed_namespaces, it);
        let Some(new) = change.new.as_deref().filter(|it| is_managed(it)) else { return };
        let before = change.old.as_deref().filter(|old| old.metadata.uid == new.metadata.uid);
        if before.is_some_and(is_managed) {
            return;
        }
        let is_new = before.is_none();
        for jobs in &self.ctx.stores.jobs {
            let Some(kind) = kind_for(&jobs.resource.group, &jobs.resource.kind) else { continue };
            for job in jobs.store.in_namespace(&change.key.name) {
                if is_new || kind.is_suspended(&job.value()) {
                    self.queue.add(JobKey::of(kind, &Key::of(&*job), &job.head()));
                }
            }
        }
    }

    fn job_changed(&self, kind: &dyn JobKind, change: &Change<Object>) {
        self.part_changed(kind.id().kind, change);
        self.child_changed(kind.id().group, kind.id().kind, change);
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        // The old object is needed for its metadata only.
        let (before, after) = (old.map(|it| it.head()), new.map(|it| it.value()));
        let jobs = self.index.object(kind, &change.key, before.as_deref(), after.as_deref());
        let alone = JobKey::new(kind, change.key.clone());
        if jobs.contains(&alone) {
            let is_alone =
                after.is_some_and(|object| JobKey::of(kind, &change.key, &object) == alone);
            self.note_ready(kind, &alone, new.filter(|_| is_alone));
        } else if !self.index.owned(&alone).is_empty() {
            // It joined a group, and has a workload of its own from before.
            self.queue.add(alone);
        }
        jobs.into_iter().for_each(|job| self.queue.add(job));
    }

    /// Queues the job that an object of a dependent kind belongs to. Returns whether it belongs to
    /// one.
    fn child_changed(&self, group: &str, kind: &str, change: &Change<Object>) -> bool {
        let Some(object) = change.new.as_ref().or(change.old.as_ref()) else { return false };
        let Some(owner) = meta::controller_of(&object.head()) else { return false };
        let group_owner = kind_of_owner(&owner.api_version, &owner.kind);
        let depends = |group_owner: &&dyn JobKind| {
            group_owner.dependencies().iter().any(|it| it.group == group && it.kind == kind)
        };
        let Some(group_owner) = group_owner.filter(depends) else { return false };
        self.queue.add(JobKey::new(group_owner, Key::new(&change.key.namespace, &owner.name)));
        true
    }

    /// Queues the jobs whose pods depend on the object.
    fn dependency_changed(&self, resource: &ApiResource, changed: &Key) {
        for jobs in &self.ctx.stores.jobs {
            let Some(kind) = kind_for(&jobs.resource.group, &jobs.resource.kind) else { continue };
            let of_kind = |id: &KindId| id.group == resource.group && id.kind == resource.kind;
            if !kind.dependencies().iter().any(of_kind) {
                continue;
            }
            let depends = |job: &Object| {
                kind.depends_on(&job.value()).is_some_and(|needed| {
                    of_kind(&needed.kind)
                        && *needed.namespace == *changed.namespace
                        && *needed.name == *changed.name
                })
            };
            for job in jobs.store.all().into_iter().filter(|job| depends(job)) {
                self.queue.add(JobKey::of(kind, &Key::of(&*job), &job.head()));
            }
        }
    }

    pub(super) fn note_ready(&self, kind: &dyn JobKind, key: &JobKey, job: Option<&Arc<Object>>) {
        let job = job.map(|job| self.ctx.stores.attached(kind, job.clone()));
        let ready = job.and_then(|job| {
            let job = job.value();
            kind.finished(&job).is_none().then(|| kind.pods_ready(&job))
        });
        self.ready.note(key, ready, self.ctx.clock.monotonic());
    }

    /// Queues everything when this process becomes leader, because earlier changes were not acted
    /// upon.
    pub(super) async fn follow_leadership(&self, shutdown: &CancellationToken) {
        let mut leadership = self.ctx.leadership.clone();
        let mut led = None;
        loop {
            let now = *leadership.borrow_and_update();
            if now.leading && led != Some(now.epoch) {
                self.reconcile_all();
            }
            led = now.leading.then_some(now.epoch);
            tokio::select! {
                () = shutdown.cancelled() => return,
                // Without leader election the sender is gone, and nothing changes.
                changed = leadership.changed() => if changed.is_err() { return },
            }
        }
    }

    fn reconcile_all(&self) {
        for jobs in &self.ctx.stores.jobs {
            let Some(kind) = kind_for(&jobs.resource.group, &jobs.resource.kind) else { continue };
            for job in jobs.store.all() {
                self.queue.add(JobKey::of(kind, &Key::of(&*job), &job.head()));
            }
        }
        for owner in self.index.owners() {
            self.queue.add(owner);
        }
    }

    /// Publishes messages of a pending job's admission checks.
    fn publish_check_messages(&self, change: &Change<Workload>) {
        let Some(note) = change
            .new
            .as_ref()
            .and_then(|new| checks::new_check_messages(change.old.as_deref(), new))
        else {
            return;
        };
        let Some(key) =
            change.new.as_deref().and_then(JobKey::owner_of).filter(|_| self.ctx.leading())
        else {
            return;
        };
        let Some((jobs, kind)) =
            self.ctx.stores.job(key.group, key.kind).zip(kind_for(key.group, key.kind))
        else {
            return;
        };
        let Some(job) = self.job(kind, jobs, &key).filter(|job| kind.is_suspended(&job.value()))
        else {
            return;
        };
        let regarding = match key.composed {
            true => members(kind, &job, &jobs.resource),
            false => vec![job.object_ref(&jobs.resource)],
        };
        for object in regarding {
            self.ctx.events.publish(
                object,
                EventType::Normal,
                events::UPDATED_ADMISSION_CHECK,
                note.clone(),
            );
        }
    }
}

/// The members of a group, as references for events.
fn members(kind: &dyn JobKind, group: &Object, resource: &ApiResource) -> Vec<ObjectReference> {
    let members = kind.members(&group.value()).to_vec();
    members
        .into_iter()
        .filter_map(|member| Some(Object::new(member).ok()?.object_ref(resource)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use switchyard_config::Configuration;

    use super::*;
    use crate::fixtures;

    const UNMANAGED: &str = "other";
    const MANAGED: &str = "batch";

    fn namespace(uid: &str, team: &str) -> Namespace {
        let labels = json!({"team": team});
        let metadata = json!({"name": "ns", "uid": uid, "labels": labels});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn pod(name: &str, group: &str, gates: &Value) -> Object {
        let labels =
            json!({"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": group});
        let metadata = json!({"name": name, "namespace": "ns", "labels": labels});
        Object::new(json!({"metadata": metadata, "spec": {"schedulingGates": gates}})).unwrap()
    }

    fn job(namespace: &str, name: &str, suspend: bool) -> Object {
        let metadata = json!({"name": name, "namespace": namespace});
        Object::new(json!({"metadata": metadata, "spec": {"suspend": suspend}})).unwrap()
    }

    /// A reconciler that has done nothing about these jobs, while `namespace` is known.
    async fn reconciler(namespace: Option<Namespace>) -> Arc<Reconciler> {
        let mut config = Configuration::default();
        config.integrations.frameworks = vec!["batch/job".into(), "pod".into()];
        let managed = json!({"matchLabels": {"team": MANAGED}});
        config.managed_jobs_namespace_selector = serde_json::from_value(managed).unwrap();
        let ctx = Arc::new(fixtures::context(fixtures::silent_client(), config));
        let reconciler = Arc::new(Reconciler::new(ctx).unwrap());
        reconciler.subscribe();
        let stores = &reconciler.ctx.stores;
        if let Some(namespace) = namespace {
            stores.namespaces.insert(namespace);
        }
        let jobs = &stores.job("batch", "Job").unwrap().store;
        jobs.insert(job("ns", "running", false));
        jobs.insert(job("ns", "suspended", true));
        jobs.insert(job("elsewhere", "suspended", true));
        let pods = &stores.job("", "Pod").unwrap().store;
        let gate = json!([{"name": "kueue.x-k8s.io/admission"}]);
        pods.insert(pod("gated", "", &gate));
        pods.insert(pod("started", "", &json!([])));
        pods.insert(pod("gated-member", "waiting", &gate));
        pods.insert(pod("started-member", "started", &json!([])));
        fixtures::drain(&reconciler.queue).await;
        reconciler
    }

    const SUSPENDED: &str = "Pod ns/gated, Pod group ns/waiting, Job ns/suspended";
    const ALL: &str = "Pod ns/gated, Pod ns/started, Pod group ns/started, \
                       Pod group ns/waiting, Job ns/running, Job ns/suspended";

    #[rstest::rstest]
    #[case::arrives(None, Some(namespace("a", MANAGED)), ALL)]
    #[case::arrives_unmanaged(None, Some(namespace("a", UNMANAGED)), "")]
    #[case::labelled(Some(namespace("a", UNMANAGED)), Some(namespace("a", MANAGED)), SUSPENDED)]
    #[case::unlabelled(Some(namespace("a", MANAGED)), Some(namespace("a", UNMANAGED)), "")]
    #[case::unchanged(Some(namespace("a", MANAGED)), Some(namespace("a", MANAGED)), "")]
    #[case::recreated(Some(namespace("a", MANAGED)), Some(namespace("b", MANAGED)), ALL)]
    #[case::deleted(Some(namespace("a", MANAGED)), None, "")]
    #[tokio::test]
    async fn namespace_that_becomes_managed_queues_its_jobs(
        #[case] before: Option<Namespace>,
        #[case] after: Option<Namespace>,
        #[case] queued: &str,
    ) {
        let reconciler = reconciler(before).await;
        match after {
            Some(after) => reconciler.ctx.stores.namespaces.insert(after),
            None => reconciler.ctx.stores.namespaces.remove(&Key::new("", "ns")),
        }
        let keys = fixtures::drain(&reconciler.queue).await;
        let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
        assert_eq!(keys.join(", "), queued);
    }
}
