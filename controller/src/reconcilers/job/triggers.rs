//! Changes that queue jobs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource as _, api::ApiResource};
use switchyard_api::{conditions::reasons::events, v1beta2::Workload};
use switchyard_jobs::{JobKind, KindId, kind_for, kind_of_owner, meta};
use switchyard_platform::{
    events::EventType,
    object::Object,
    store::{Change, Key},
};
use tokio_util::sync::CancellationToken;

use super::{Reconciler, checks, index::JobKey};

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
