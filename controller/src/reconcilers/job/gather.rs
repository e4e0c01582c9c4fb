//! Gathers the inputs of a decision about a job.

use std::sync::Arc;

use serde_json::Value;
use switchyard_api::v1beta2::Workload;
use switchyard_config::GoDuration;
use switchyard_jobs::{BuildOptions, JobKind, SuspendMode, elastic, meta, same_copy};
use switchyard_platform::{object::Object, store::Key};

use super::{
    Ancestor, Decision, Gates, JobInputs, PodsReadyDelay, Prebuilt, Reconciler,
    ancestor::{self, TopmostJob},
    asks_for_owners, decide,
    index::JobKey,
    lookup, owners,
};
use crate::{
    engine::convert,
    stores::JobStore,
    workload::{ReasonDetail, admitted_by},
};

impl Reconciler {
    /// The job of a key, with the objects that its pods depend on. A group is composed of its
    /// members.
    pub(super) fn job(
        &self,
        kind: &dyn JobKind,
        jobs: &JobStore,
        key: &JobKey,
    ) -> Option<Arc<Object>> {
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

    /// Gathers the inputs and decides. One function, because the inputs borrow closures.
    pub(super) fn gather_and_decide(
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
            // A group's workload has the group's name.
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
        let inputs = JobInputs {
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
            multi_kueue_check: ctx.dispatching_check(namespace, queue),
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
        decide(kind, job.map(|_| value), &inputs, ctx.clock.now())
    }

    /// Counts pods that became ready, long before the condition may be written.
    fn count_ready<'a>(&self, key: &JobKey, workloads: impl Iterator<Item = &'a Arc<Workload>>) {
        for workload in workloads {
            let first = self.ready.first(key, workload, self.ctx.clock.now());
            if let Some((readiness, cluster_queue)) = first.zip(admitted_by(workload)) {
                self.ctx.metrics.ready(workload, cluster_queue, readiness);
            }
        }
    }

    /// Labels and annotations to copy from a job to its workload.
    pub(super) fn copied(&self) -> BuildOptions<'_> {
        let (labels, annotations) = &self.keys_to_copy;
        BuildOptions { label_keys_to_copy: labels, annotation_keys_to_copy: annotations }
    }

    pub(super) fn owned(&self, key: &JobKey) -> Vec<Arc<Workload>> {
        self.index
            .owned(key)
            .iter()
            .filter_map(|workload| self.ctx.stores.workloads.by_key(workload))
            .collect()
    }

    /// Whether jobs like this one are managed in its namespace, if it has a queue.
    pub(super) fn is_managed(&self, kind: &dyn JobKind, job: &Value) -> bool {
        lookup::is_managed_namespace(
            &self.ctx.stores,
            &self.managed_namespaces,
            meta::namespace(job),
        ) && !lookup::is_implied(&self.ctx.config, kind, job)
    }

    /// The state of the topmost managed job above this one. For pods that was settled at their
    /// creation.
    pub(super) async fn ancestor(
        &self,
        kind: &dyn JobKind,
        key: &JobKey,
        job: Option<&Object>,
    ) -> Ancestor {
        let job = &*job.map(Object::value).unwrap_or_default();
        let queued =
            !meta::queue_name(job).is_empty() || self.ctx.config.manage_jobs_without_queue_name;
        let asks = kind.suspend_mode() != SuspendMode::Gate
            && asks_for_owners(kind, job, queued)
            && self.is_managed(kind, job);
        if !asks {
            return Ancestor::None;
        }
        match owners::top(&self.ctx, job).await {
            Ok(TopmostJob::None) => Ancestor::None,
            Ok(TopmostJob::TooDeep) => Ancestor::TooDeep,
            Ok(TopmostJob::Cyclic) => Ancestor::Cyclic,
            Ok(TopmostJob::Job(kind, parent)) => self.admission_of(kind, &parent),
            Ok(TopmostJob::Unread(_)) => Ancestor::Unread,
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
}
