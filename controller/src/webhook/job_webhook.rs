//! Defaulting and validation of one job kind: gathers the facts that the rules of [`job`] need.

use std::{borrow::Cow, sync::Arc};

use kube::core::Selector;
use serde_json::Value;
use switchyard_api::{names, v1beta2::Workload};
use switchyard_jobs::{JobKind, SuspendMode, elastic, meta, same_copy, serving::Group};

use super::{
    job, live_reads,
    review::{ReviewOutcome, ReviewRequest},
};
use crate::{
    context::Context,
    reconcilers::job::{ancestor::TopmostJob, lookup, owners},
    role::Role,
    workload,
};
use switchyard_platform::object::Object;

/// Why a pod is denied when neither the caches nor the API server know its owners.
const OWNERS_UNREADABLE: &str =
    "the owners cannot be read at the moment, so it is not known what queues this: try again";

/// The webhooks of one job kind.
#[derive(Clone)]
pub(super) struct JobWebhook {
    pub(super) ctx: Arc<Context>,
    pub(super) managed: Selector,
    pub(super) kind: &'static dyn JobKind,
    pub(super) ignores_queue_annotation: bool,
}

impl JobWebhook {
    fn facts(&self, request: &ReviewRequest<'_>, has_queued_owner: bool) -> job::JobFacts {
        let stores = &self.ctx.stores;
        job::JobFacts {
            is_namespace_managed: lookup::is_managed_namespace(
                stores,
                &self.managed,
                request.namespace,
            ),
            manages_unqueued: self.ctx.config.manage_jobs_without_queue_name,
            has_default_queue: lookup::has_default_queue(stores, request.namespace),
            has_default_priority_class: self.ctx.config.enabled("WorkloadPriorityClassDefaulting")
                && stores.workload_priority_classes.get("", names::DEFAULT).is_some(),
            is_implied_kind: lookup::is_implied(&self.ctx.config, self.kind, request.object),
            has_enabled_owner: lookup::owned_by_job(stores, &self.ctx.config, request.object),
            has_queued_owner,
            is_releasing_quota: request.old.is_some_and(|old| self.is_releasing_quota(old)),
            has_quota: request.old.is_some_and(|old| self.has_quota(old)),
            elastic: self.ctx.config.enabled(elastic::FEATURE_GATE),
            topology: self.ctx.config.topology_gates(),
            skips_ray_and_spark_updates: !self.ctx.config.enabled("ValidateRayAndSparkJobUpdates"),
            can_resize_groups: !self.ctx.config.enabled("LWSImmutableGroupSize"),
            ignores_admission_gates: !self.ctx.config.enabled("AdmissionGatedBy"),
            is_admitted_copy: request.old.is_none() && self.is_admitted_copy(request),
        }
    }

    /// Whether a queued job owns the object, at any distance. `None` if the caches lack an owner.
    fn has_queued_owner(&self, object: &Value) -> Option<bool> {
        match owners::cached_top(&self.ctx, object) {
            TopmostJob::Unread(_) => None,
            top => Some(!matches!(top, TopmostJob::None)),
        }
    }

    /// Whether a group scaled to zero still has quota, or a Workload that is being deleted.
    fn is_releasing_quota(&self, old: &Value) -> bool {
        let holds_or_ends = |it: &Workload| {
            it.metadata.deletion_timestamp.is_some() || workload::has_reservation(it)
        };
        self.any_group(old, |group, workload| group.is_scaled_down && holds_or_ends(workload))
    }

    /// Whether a group that should have pods has quota.
    fn has_quota(&self, old: &Value) -> bool {
        self.any_group(old, |group, workload| {
            !group.is_scaled_down && workload::has_reservation(workload)
        })
    }

    /// Whether a pod group of the object has a Workload for which `is` holds.
    fn any_group(&self, object: &Value, is: impl Fn(&Group, &Workload) -> bool) -> bool {
        let Some(serving) = self.kind.serving() else { return false };
        let workload =
            |group: &Group| self.ctx.stores.workloads.get(meta::namespace(object), &group.name);
        let named = lookup::with_older_name(&self.ctx.stores, serving, object);
        serving.groups(&named).iter().any(|group| workload(group).is_some_and(|it| is(group, &it)))
    }

    /// Whether the object is an agent's copy whose Workload is admitted. Suspending it would only
    /// delay it, as it would be resumed at once.
    fn is_admitted_copy(&self, request: &ReviewRequest<'_>) -> bool {
        let name = meta::prebuilt_workload_name(request.object);
        let workload = self.ctx.stores.workloads.get(request.namespace, name);
        workload
            .is_some_and(|it| workload::runs(&it) && same_copy(self.kind.id(), request.object, &it))
    }

    pub(super) fn default(&self, request: &ReviewRequest<'_>) -> ReviewOutcome {
        let queued = (request.old.is_none() && !self.ignores_queue_annotation)
            .then(|| job::with_annotated_queue(request.object))
            .flatten();
        let request =
            &ReviewRequest { object: queued.as_ref().unwrap_or(request.object), ..*request };
        let (stores, mut wanted) = (&self.ctx.stores, request.object.clone());
        let mut facts = self.facts(request, false);
        let matters = job::needs_owners(self.kind, request.object, &facts);
        let queued_owner =
            if matters { self.has_queued_owner(request.object) } else { Some(false) };
        facts.has_queued_owner = queued_owner.unwrap_or_default();
        let dispatches =
            |queue: &str| self.ctx.dispatching_check(request.namespace, queue).is_some();
        job::default(self.kind, &mut wanted, &facts, dispatches);
        let queue = meta::queue_name(&wanted);
        let late = self.ctx.role == Role::Hub
            && request.old.is_none()
            && !queue.is_empty()
            && !live_reads::is_cached(stores, request.namespace, queue);
        if queued_owner.is_some() && !late {
            return ReviewOutcome::Mutate(Box::new(wanted));
        }
        let (jobs, namespace, object) =
            (self.clone(), request.namespace.to_owned(), request.object.clone());
        ReviewOutcome::Deferred(Box::pin(async move {
            let request = ReviewRequest { namespace: &namespace, object: &object, old: None };
            jobs.default_live(&request, facts, queued_owner).await
        }))
    }

    /// Defaults a job whose owners or queue the caches lack, by asking the API server. If it does
    /// not answer either, the caches decide and the reconciler reports what is wrong; a pod is
    /// denied instead.
    async fn default_live(
        &self,
        request: &ReviewRequest<'_>,
        mut facts: job::JobFacts,
        queued_owner: Option<bool>,
    ) -> ReviewOutcome {
        let (ctx, mut wanted) = (&self.ctx, request.object.clone());
        facts.has_queued_owner = match queued_owner {
            Some(queued_owner) => queued_owner,
            None => match self.read_queued_owner(request, &facts).await {
                Ok(queued_owner) => queued_owner,
                Err(refused) => return refused,
            },
        };
        let hub = ctx.role == Role::Hub;
        job::default(self.kind, &mut wanted, &facts, |queue| {
            ctx.dispatching_check(request.namespace, queue).is_some()
        });
        let queue = meta::queue_name(&wanted);
        if !hub || queue.is_empty() || live_reads::is_cached(&ctx.stores, request.namespace, queue)
        {
            return ReviewOutcome::Mutate(Box::new(wanted));
        }
        let Some(found) =
            live_reads::read_queue(ctx, &self.managed, request.namespace, queue).await
        else {
            return ReviewOutcome::Mutate(Box::new(wanted));
        };
        if found.is_namespace_managed && !facts.is_namespace_managed {
            // The owners mattered only once the namespace turned out to be managed.
            facts.is_namespace_managed = true;
            if job::needs_owners(self.kind, request.object, &facts) {
                facts.has_queued_owner = match self.read_queued_owner(request, &facts).await {
                    Ok(queued_owner) => queued_owner,
                    Err(refused) => return refused,
                };
            }
        }
        let mut wanted = request.object.clone();
        job::default(self.kind, &mut wanted, &facts, |_| found.dispatches);
        ReviewOutcome::Mutate(Box::new(wanted))
    }

    /// Whether a queued job owns the object, asked of the API server. A pod that is gated although
    /// its owner is queued stays gated and is charged twice, so an unknown owner denies it and its
    /// creator retries.
    async fn read_queued_owner(
        &self,
        request: &ReviewRequest<'_>,
        facts: &job::JobFacts,
    ) -> Result<bool, ReviewOutcome> {
        owner_or_deny(
            self.kind,
            live_reads::has_queued_owner(&self.ctx, request.object).await,
            facts.has_enabled_owner,
        )
    }

    pub(super) fn validate(&self, request: &ReviewRequest<'_>) -> ReviewOutcome {
        // Owners matter for kinds that are queued by their pods only.
        let queued_owner = if self.kind.suspend_mode() == SuspendMode::Pods {
            self.has_queued_owner(request.object)
        } else {
            Some(false)
        };
        if let Some(queued_owner) = queued_owner {
            return self.check(request, queued_owner);
        }
        let (jobs, namespace, object) =
            (self.clone(), request.namespace.to_owned(), request.object.clone());
        let old = request.old.cloned();
        ReviewOutcome::Deferred(Box::pin(async move {
            let request =
                ReviewRequest { namespace: &namespace, object: &object, old: old.as_ref() };
            let owned = lookup::owned_by_job(&jobs.ctx.stores, &jobs.ctx.config, &object);
            jobs.check(
                &request,
                live_reads::has_queued_owner(&jobs.ctx, &object).await.unwrap_or(owned),
            )
        }))
    }

    /// The job with the objects that its pods depend on attached, as far as the stores have them.
    fn attached<'a>(&self, job: &'a Value) -> Cow<'a, Value> {
        if self.kind.dependencies().is_empty() {
            return Cow::Borrowed(job);
        }
        let Ok(object) = Object::new(job.clone()) else { return Cow::Borrowed(job) };
        Cow::Owned(Arc::unwrap_or_clone(
            self.ctx.stores.attached(self.kind, Arc::new(object)).value(),
        ))
    }

    fn check(&self, request: &ReviewRequest<'_>, queued_owner: bool) -> ReviewOutcome {
        let facts = self.facts(request, queued_owner);
        let mut errors = job::validate(self.kind, request.old, request.object, &facts);
        let (old, job) = (request.old.map(|old| self.attached(old)), self.attached(request.object));
        errors.extend(job::validate_topology(self.kind, old.as_deref(), &job, &facts));
        if !errors.is_empty() {
            return ReviewOutcome::Deny(errors);
        }
        let annotated = !self.ignores_queue_annotation && facts.is_namespace_managed;
        let annotated =
            annotated.then(|| job::annotation_warning(request.old, request.object)).flatten();
        let warning = job::warning(self.kind, request.old, request.object, &facts);
        let warnings: Vec<String> = annotated.into_iter().chain(warning).collect();
        if warnings.is_empty() { ReviewOutcome::Allow } else { ReviewOutcome::Warn(warnings) }
    }
}

/// `queued_owner` if it was read. Otherwise the pod is denied, and `owned` decides for other kinds.
pub(super) fn owner_or_deny(
    kind: &dyn JobKind,
    queued_owner: Option<bool>,
    owned: bool,
) -> Result<bool, ReviewOutcome> {
    match queued_owner {
        Some(queued_owner) => Ok(queued_owner),
        None if kind.suspend_mode() == SuspendMode::Gate => {
            Err(ReviewOutcome::Deny(vec![OWNERS_UNREADABLE.to_owned()]))
        }
        None => Ok(owned),
    }
}
