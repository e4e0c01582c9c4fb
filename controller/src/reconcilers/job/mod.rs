//! The reconciler of jobs: one matching workload for each job, jobs that run only while their workload is admitted.
//!
//! A change of a job, of its workload or of the workload that it names puts the job's key into a queue. A look at a key
//! gathers [`Facts`] from the stores, asks [`decide`] what to do, and performs that. All that decides is pure.

mod action;
pub(crate) mod ancestor;
mod case;
mod checks;
mod create;
mod decide;
mod edit;
mod ensure;
mod facts;
mod group;
mod index;
mod leaving;
pub(crate) mod lookup;
mod maker;
mod makers;
pub(crate) mod owners;
mod perform;
mod ready;
mod reclaim;
mod slices;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

pub use action::{Action, Decision, Next};
use ancestor::Top;
pub use case::finished_note;
use decide::asks_for_owners;
pub use decide::decide;
pub use facts::{Ancestor, Facts, Gates, PodsReadyDelay, Prebuilt};
use index::{Index, JobKey};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource as _, api::ApiResource, core::Selector};
use perform::{PerformError, Target, is_gone, perform, publish};
use ready::ReadyJobs;
use serde_json::Value;
use switchyard_api::{conditions::reasons::events, v1beta2::Workload};
use switchyard_config::{Configuration, GoDuration};
use switchyard_jobs::{
    BuildOptions, Held, JobKind, KindId, elastic, kind_for, kind_of_owner, meta, same_copy,
};
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    engine::convert,
    reconcilers::left_pods,
    role::Role,
    stores::JobStore,
    workload::{ReasonDetail, admitted_by},
};
use switchyard_platform::{
    events::EventType,
    object::Object,
    store::{Change, Key},
    work_queue::{self, Outcome, Queue},
};

/// Jobs looked at at once. Each waits for one or two API writes of a few milliseconds.
const CONCURRENCY: usize = 32;
/// After a conflict the watch brings the newer object; should it not, look again.
const AFTER_CONFLICT: Duration = Duration::from_secs(1);
/// What the server refused it will refuse again, unless something changes that we are not told of.
const AFTER_REFUSAL: Duration = Duration::from_secs(15);
/// Jobs whose pods run for less than this are spared the write that says that they are ready, one beside the four or so that a
/// job needs; whoever waits for the condition of a longer one hardly notices.
const PODS_READY_DELAY: Duration = Duration::from_secs(5);

/// Runs until `shutdown`. The stores must be ready: a job that is not there counts as deleted.
///
/// # Errors
/// When the configuration's namespace selector is not valid.
pub async fn run(ctx: Arc<Context>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let reconciler = Arc::new(Reconciler {
        pods_ready: pods_ready_delay(&ctx.config),
        ready: ReadyJobs::default(),
        managed_namespaces: lookup::managed_namespaces(&ctx.config, &ctx.namespace)?,
        keys_to_copy: ctx.config.keys_to_copy(),
        index: Index::default(),
        queue: Queue::default(),
        ctx,
    });
    reconciler.subscribe();
    let looks = work::run(reconciler.queue.clone(), CONCURRENCY, shutdown.clone(), |key| {
        reconciler.reconcile(key)
    });
    tokio::join!(looks, reconciler.follow_leadership(&shutdown));
    Ok(())
}

/// The members of a group, as events name them.
fn members(kind: &dyn JobKind, group: &Object, resource: &ApiResource) -> Vec<ObjectReference> {
    let members = kind.members(&group.value()).to_vec();
    members
        .into_iter()
        .filter_map(|member| Some(Object::new(member).ok()?.object_ref(resource)))
        .collect()
}

/// When PodsReady is first reported: well before the time-out, and at once where the next admission waits for it.
fn pods_ready_delay(config: &Configuration) -> PodsReadyDelay {
    let rules = &config.wait_for_pods_ready;
    if rules.block_admission && config.waits_for_pods_ready() {
        return PodsReadyDelay::default();
    }
    let timeout = rules.timeout.std();
    let after_ready = PODS_READY_DELAY.min(timeout / 4);
    PodsReadyDelay { ready_for: Duration::ZERO, after_ready, after_admission: timeout / 2 }
}

struct Reconciler {
    ctx: Arc<Context>,
    pods_ready: PodsReadyDelay,
    ready: ReadyJobs,
    managed_namespaces: Selector,
    // Of labels and of annotations.
    keys_to_copy: (Vec<String>, Vec<String>),
    index: Index,
    queue: Queue<JobKey>,
}

impl Reconciler {
    fn subscribe(self: &Arc<Self>) {
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
            this.tell_checks(change);
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
        // What was is looked at for its metadata alone.
        let (before, after) = (old.map(|it| it.head()), new.map(|it| it.value()));
        let jobs = self.index.object(kind, &change.key, before.as_deref(), after.as_deref());
        let alone = JobKey::new(kind, change.key.clone());
        if jobs.contains(&alone) {
            let is_alone =
                after.is_some_and(|object| JobKey::of(kind, &change.key, &object) == alone);
            self.note_ready(kind, &alone, new.filter(|_| is_alone));
        } else if !self.index.owned(&alone).is_empty() {
            // It has joined a group, and has a workload of its own from before.
            self.queue.add(alone);
        }
        jobs.into_iter().for_each(|job| self.queue.add(job));
    }

    /// Looks again at the job that an object belongs to which its kind depends on; whether it belongs to one.
    fn child_changed(&self, group: &str, kind: &str, change: &Change<Object>) -> bool {
        let Some(object) = change.new.as_ref().or(change.old.as_ref()) else { return false };
        let Some(owner) = meta::controller_of(&object.head()) else { return false };
        let maker = kind_of_owner(&owner.api_version, &owner.kind);
        let depends = |maker: &&dyn JobKind| {
            maker.dependencies().iter().any(|it| it.group == group && it.kind == kind)
        };
        let Some(maker) = maker.filter(depends) else { return false };
        self.queue.add(JobKey::new(maker, Key::new(&change.key.namespace, &owner.name)));
        true
    }

    /// Looks again at the jobs whose pods depend on the object.
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

    fn note_ready(&self, kind: &dyn JobKind, key: &JobKey, job: Option<&Arc<Object>>) {
        let job = job.map(|job| self.ctx.stores.attached(kind, job.clone()));
        let ready = job.and_then(|job| {
            let job = job.value();
            kind.finished(&job).is_none().then(|| kind.pods_ready(&job))
        });
        self.ready.note(key, ready, self.ctx.clock.monotonic());
    }

    /// What the metrics learn from pods that have got ready, long before the condition may say so.
    fn count_ready<'a>(&self, key: &JobKey, workloads: impl Iterator<Item = &'a Arc<Workload>>) {
        for workload in workloads {
            let first = self.ready.first(key, workload, self.ctx.clock.now());
            if let Some((readiness, cluster_queue)) = first.zip(admitted_by(workload)) {
                self.ctx.metrics.ready(workload, cluster_queue, readiness);
            }
        }
    }

    /// Looks at everything anew when we come to lead: what changed before was not acted upon.
    async fn follow_leadership(&self, shutdown: &CancellationToken) {
        let mut leadership = self.ctx.leadership.clone();
        let mut led = None;
        loop {
            let now = *leadership.borrow_and_update();
            if now.leading && led != Some(now.epoch) {
                self.look_at_all();
            }
            led = now.leading.then_some(now.epoch);
            tokio::select! {
                () = shutdown.cancelled() => return,
                // Without leader election there is no sender, and nothing to follow.
                changed = leadership.changed() => if changed.is_err() { return },
            }
        }
    }

    fn look_at_all(&self) {
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

    async fn reconcile(&self, key: JobKey) -> Outcome {
        if !self.ctx.leading() {
            return Outcome::Done;
        }
        let Some(jobs) = self.ctx.stores.job(key.group, key.kind) else { return Outcome::Done };
        let kind = kind_for(key.group, key.kind).filter(|kind| kind.makes_workloads());
        let Some(kind) = kind else { return Outcome::Done };
        if let Some(serving) = kind.serving() {
            return self.look_at_maker(&key, kind, serving).await;
        }
        let object = jobs.store.by_key(&key.key).filter(|_| !key.composed);
        if let Some(member) =
            object.filter(|object| JobKey::of(kind, &key.key, &object.value()) != key)
        {
            // It has joined a group, which is looked at instead.
            self.index.forget(&key);
            let decision = group::left_behind(kind, &member.value(), &self.owned(&key));
            return self
                .act(&Target { key: &key, jobs, kind, job: Some(&*member) }, decision)
                .await;
        }
        let job = self.job(kind, jobs, &key);
        if key.composed {
            self.note_ready(kind, &key, job.as_ref());
        }
        let target = Target { key: &key, jobs, kind, job: job.as_deref() };
        let workloads = self.owned(&key);
        if job.is_none() {
            self.index.forget(&key);
            match self.confirm_gone(&target, &workloads).await {
                Ok(true) => {
                    if let Some(wait) = self.wait_for_pods(&workloads).await {
                        return wait;
                    }
                }
                Ok(false) => return Outcome::Requeue(AFTER_CONFLICT),
                Err(error) => {
                    tracing::warn!(job = ?key, %error, "could not ask whether a job is gone");
                    return Outcome::Failed;
                }
            }
        } else if let Some(wait) = self.wait_while_deleted(&target, &workloads).await {
            return wait;
        } else if workloads.is_empty()
            && let Some(wait) = self.index.arriving(&key, self.ctx.clock.monotonic())
        {
            return Outcome::Requeue(wait);
        }
        let ancestor = self.ancestor(kind, &key, job.as_deref()).await;
        let decision = self.decide(kind, &key, job.as_deref(), ancestor, workloads);
        self.act(&target, decision).await
    }

    /// The job of a key with what its pods depend on. That of a group is composed of its members.
    fn job(&self, kind: &dyn JobKind, jobs: &JobStore, key: &JobKey) -> Option<Arc<Object>> {
        if !key.composed {
            return jobs.store.by_key(&key.key).map(|job| self.ctx.stores.attached(kind, job));
        }
        let members: Vec<Value> = self
            .index
            .members(key)
            .iter()
            .filter_map(|member| Some(Arc::unwrap_or_clone(jobs.store.by_key(member)?.value())))
            .collect();
        if members.is_empty() {
            return None;
        }
        Object::new(kind.compose(members)).ok().map(Arc::new)
    }

    async fn act(&self, target: &Target<'_>, decision: Decision) -> Outcome {
        let key = target.key;
        let told = decision.actions.iter().any(|action| matches!(action, Action::Event { .. }));
        if let Err(error) = perform(&self.ctx, &self.index, target, decision.actions).await {
            match &error {
                PerformError::Stale(_) | PerformError::Exists => {
                    tracing::debug!(job = ?key, %error, "looked at an old state");
                    return Outcome::Requeue(AFTER_CONFLICT);
                }
                PerformError::Refused { .. } => {
                    tracing::warn!(job = ?key, %error, "write refused");
                    publish(
                        &self.ctx,
                        target,
                        true,
                        events::ERR_WORKLOAD_COMPOSE,
                        error.to_string(),
                    );
                    return Outcome::Requeue(AFTER_REFUSAL);
                }
                PerformError::Failed(_) => tracing::warn!(job = ?key, %error, "write failed"),
            }
            return Outcome::Failed;
        }
        match decision.next {
            Next::OnChange => Outcome::Done,
            Next::After(delay) => Outcome::Requeue(delay),
            Next::Retry(reason) => {
                // Again and again as long as it lasts, so the log has it only where no event of the job does.
                if told {
                    tracing::debug!(job = ?key, reason, "job waits for something that is missing");
                } else {
                    tracing::info!(job = ?key, reason, "job waits for something that is missing");
                }
                Outcome::Failed
            }
        }
    }

    fn decide(
        &self,
        kind: &'static dyn JobKind,
        key: &JobKey,
        job: Option<&Object>,
        ancestor: Ancestor,
        workloads: Vec<Arc<Workload>>,
    ) -> Decision {
        let ctx = &self.ctx;
        let value = &*job.map(Object::value).unwrap_or_default();
        let (namespace, queue) = (meta::namespace(value), meta::queue_name(value));
        let prebuilt = match meta::prebuilt_workload_name(value) {
            // A group has the workload of its name.
            "" if key.composed => {
                ctx.stores.workloads.by_key(&key.key).map_or(Prebuilt::NotNamed, Prebuilt::Found)
            }
            "" => Prebuilt::NotNamed,
            name => {
                ctx.stores.workloads.get(namespace, name).map_or(Prebuilt::Missing, Prebuilt::Found)
            }
        };
        let copy = match &prebuilt {
            Prebuilt::Found(workload) if key.composed || same_copy(kind.id(), value, workload) => {
                Some(workload)
            }
            _ => None,
        };
        if ctx.config.waits_for_pods_ready() {
            self.count_ready(key, workloads.iter().chain(copy));
        }
        let managed = self.is_managed(kind, value);
        let facts = Facts {
            role: ctx.role,
            reasons: ReasonDetail::of(&ctx.config),
            elastic: ctx.config.enabled(elastic::FEATURE_GATE),
            reclaims: ctx.config.enabled("ReclaimablePods"),
            releases_fast: ctx.config.enabled("FastQuotaReleaseInPodIntegration"),
            managed: managed && (!queue.is_empty() || ctx.config.manage_jobs_without_queue_name),
            ancestor,
            defers_end: ctx.config.enabled("DeferRayServiceFinalizationForRedisCleanup"),
            workloads,
            prebuilt,
            multi_kueue_check: (ctx.role == Role::Hub)
                .then(|| lookup::multi_kueue_check(&ctx.stores, namespace, queue))
                .flatten(),
            exceeded: &|workload| convert::exceeded(ctx, workload),
            awaited: &|cluster| ctx.is_awaited(cluster),
            below_active: &|| self.index.is_active_below(key),
            flavor: &|name| ctx.stores.resource_flavors.get("", name),
            priorities: &*ctx.stores,
            copied: self.copied(),
            pods_ready: ctx.config.waits_for_pods_ready().then(|| PodsReadyDelay {
                ready_for: self.ready.ready_for(key, ctx.clock.monotonic()),
                ..self.pods_ready
            }),
            keep_deactivated: ctx
                .config
                .object_retention_policies
                .workloads
                .after_deactivated_by_kueue
                .map(GoDuration::std),
            gates: Gates::of(&ctx.config),
        };
        decide(kind, job.map(|_| value), &facts, ctx.clock.now())
    }

    /// What else of a job its workload gets.
    fn copied(&self) -> BuildOptions<'_> {
        let (labels, annotations) = &self.keys_to_copy;
        BuildOptions { label_keys_to_copy: labels, annotation_keys_to_copy: annotations }
    }

    fn owned(&self, key: &JobKey) -> Vec<Arc<Workload>> {
        self.index
            .owned(key)
            .iter()
            .filter_map(|workload| self.ctx.stores.workloads.by_key(workload))
            .collect()
    }

    /// A live read before workloads are finished because their job is gone.
    async fn confirm_gone(
        &self,
        target: &Target<'_>,
        workloads: &[Arc<Workload>],
    ) -> Result<bool, kube::Error> {
        let owners = workloads
            .iter()
            .flat_map(|workload| workload.metadata.owner_references.iter().flatten());
        let uids: Vec<String> = owners
            .filter(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid.clone())
            .collect();
        if uids.is_empty() {
            return Ok(true);
        }
        is_gone(&self.ctx, target, &uids).await
    }

    /// When to reconcile a job again that is being deleted and of which pods run. They are deleted if its Workload is evicted.
    async fn wait_while_deleted(
        &self,
        target: &Target<'_>,
        workloads: &[Arc<Workload>],
    ) -> Option<Outcome> {
        let job = target.job?.value();
        let kind = target.kind;
        if !meta::is_deleting(&job) || kind.is_composed(&job) || kind.cleans_up(&job) {
            return None;
        }
        for workload in workloads {
            let must_end = left_pods::must_end(&job, workload);
            // The status of such a kind says that none is left, and each change of it is a change of the job.
            if kind.counts_while_deleted() && !(must_end && kind.is_active(&job)) {
                continue;
            }
            let wait = match must_end {
                true => left_pods::end(&self.ctx, workload).await,
                false => left_pods::wait(&self.ctx, workload).await,
            };
            if wait.is_some() {
                return wait;
            }
        }
        None
    }

    /// When to reconcile again because pods of a deleted job run on. The life cycle releases Workloads that are being deleted.
    async fn wait_for_pods(&self, workloads: &[Arc<Workload>]) -> Option<Outcome> {
        for workload in workloads.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
            let wait = left_pods::wait(&self.ctx, workload).await;
            if wait.is_some() {
                return wait;
            }
        }
        None
    }

    /// Whether jobs like this one are managed where it is, if it has a queue.
    fn is_managed(&self, kind: &dyn JobKind, job: &Value) -> bool {
        lookup::is_managed_namespace(
            &self.ctx.stores,
            &self.managed_namespaces,
            meta::namespace(job),
        ) && !lookup::is_implied(&self.ctx.config, kind, job)
    }

    /// How the topmost job of ours above this one stands. Whether there is one above a pod was settled at its creation.
    async fn ancestor(&self, kind: &dyn JobKind, key: &JobKey, job: Option<&Object>) -> Ancestor {
        let job = &*job.map(Object::value).unwrap_or_default();
        let queued =
            !meta::queue_name(job).is_empty() || self.ctx.config.manage_jobs_without_queue_name;
        let asks = kind.held() != Held::Gated
            && asks_for_owners(kind, job, queued)
            && self.is_managed(kind, job);
        if !asks {
            return Ancestor::None;
        }
        match owners::top(&self.ctx, job).await {
            Ok(Top::None) => Ancestor::None,
            Ok(Top::TooDeep) => Ancestor::TooDeep,
            Ok(Top::Cyclic) => Ancestor::Cyclic,
            Ok(Top::Job(kind, parent)) => self.admission_of(kind, &parent),
            Ok(Top::Unread(_)) => Ancestor::Unread,
            Err(error) => {
                tracing::warn!(job = ?key, %error, "could not ask for the owners of a job");
                Ancestor::Unread
            }
        }
    }

    /// Whether a job that owns others may run.
    fn admission_of(&self, kind: &'static dyn JobKind, parent: &Object) -> Ancestor {
        let owned = self.owned(&JobKey::new(kind, Key::of(parent)));
        let parent = parent.value();
        let prebuilt = meta::prebuilt_workload_name(&parent);
        let named = self.ctx.stores.workloads.get(meta::namespace(&parent), prebuilt);
        let copy = named.filter(|workload| same_copy(kind.id(), &parent, workload));
        let admitted = ancestor::lets_run(kind, &parent, owned.iter().chain(&copy));
        if admitted { Ancestor::Admitted } else { Ancestor::NotAdmitted }
    }

    /// Tells a waiting job what the checks of its workload say.
    fn tell_checks(&self, change: &Change<Workload>) {
        let Some(note) =
            change.new.as_ref().and_then(|new| checks::news(change.old.as_deref(), new))
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
        let told = match key.composed {
            true => members(kind, &job, &jobs.resource),
            false => vec![job.object_ref(&jobs.resource)],
        };
        for one in told {
            self.ctx.events.publish(
                one,
                EventType::Normal,
                events::UPDATED_ADMISSION_CHECK,
                note.clone(),
            );
        }
    }
}
