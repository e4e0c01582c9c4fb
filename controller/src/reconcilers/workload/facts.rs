//! What a decision about a workload needs to know besides the workload.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use switchyard_api::{
    names,
    v1beta2::{ClusterQueue, LocalQueue, Workload},
    variants,
};
use switchyard_config::{Configuration, GoDuration};

use crate::{
    context::Context,
    engine::views::Views,
    role::Role,
    workload::{self, ReasonDetail},
};

/// What the configuration says. The same for all workloads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// `objectRetentionPolicies.workloads.afterFinished`: none keeps finished workloads.
    pub keep_finished: Option<Duration>,
    /// `waitForPodsReady`; none: not waited for.
    pub pods_ready: Option<PodsReadyRules>,
    /// How finely is said why there is no quota.
    pub reasons: ReasonDetail,
    /// Whether the status lists the preemption gates of the spec, as Kueue's `MultiKueueOrchestratedPreemption` has it.
    pub lists_preemption_gates: bool,
    /// Whether annotations do not hold workloads back: Kueue's `AdmissionGatedBy` is off.
    pub ignores_admission_gates: bool,
    /// Whether workloads whose owner let them go are left as they are: Kueue's `FinishOrphanedWorkloads` is off.
    pub leaves_orphans: bool,
    /// Whether a new workload says from the beginning that it waits: Kueue's `UnadmittedWorkloadsExplicitStatus`.
    pub explicit: bool,
}

impl Rules {
    /// The rules of a configuration.
    #[must_use]
    pub fn of(config: &Configuration) -> Self {
        let wait = &config.wait_for_pods_ready;
        let seconds = |n: i32| Duration::from_secs(u64::try_from(n).unwrap_or(0));
        let pods_ready = PodsReadyRules {
            timeout: wait.timeout.std(),
            recovery_timeout: wait.recovery_timeout().map(GoDuration::std),
            limit: wait.requeuing_strategy.backoff_limit_count,
            base: seconds(wait.requeuing_strategy.backoff_base_seconds),
            max: seconds(wait.requeuing_strategy.backoff_max_seconds),
        };
        let keep_finished =
            config.object_retention_policies.workloads.after_finished.map(GoDuration::std);
        Self {
            keep_finished,
            reasons: ReasonDetail::of(config),
            pods_ready: Some(pods_ready).filter(|_| config.waits_for_pods_ready()),
            lists_preemption_gates: config.enabled("MultiKueueOrchestratedPreemption"),
            leaves_orphans: !config.enabled("FinishOrphanedWorkloads"),
            explicit: config.enabled("UnadmittedWorkloadsExplicitStatus"),
            ignores_admission_gates: !config.enabled("AdmissionGatedBy"),
        }
    }
}

/// `waitForPodsReady` of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct PodsReadyRules {
    /// How long after admission all pods must be ready.
    pub timeout: Duration,
    /// How long a lost pod may take to come back; none: for ever.
    pub recovery_timeout: Option<Duration>,
    /// After how many evictions a workload is deactivated; none: never.
    pub limit: Option<i32>,
    /// The first wait before it is queued again; it doubles each time.
    pub base: Duration,
    /// The longest wait.
    pub max: Duration,
}

/// What else matters about one workload.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Its LocalQueue.
    pub local_queue: Option<Arc<LocalQueue>>,
    /// The name of its ClusterQueue: the one that admitted it, else its LocalQueue's.
    pub cluster_queue_name: Option<String>,
    /// Its ClusterQueue.
    pub cluster_queue: Option<Arc<ClusterQueue>>,
    /// Whether the ClusterQueue admits workloads now.
    pub cluster_queue_active: bool,
    /// The MultiKueue checks among those of the ClusterQueue, on a hub.
    pub dispatching_checks: BTreeSet<String>,
    /// It is admitted with one of its variants, whose checks count.
    pub parent: bool,
    /// It is a variant of another, whose pods and time count.
    pub variant: bool,
    /// It is being deleted and the job that owns it is gone.
    pub owner_gone: bool,
    /// On a hub: something of it is left on a cluster that is connected.
    pub held_by_cluster: bool,
}

impl Facts {
    /// Looks the facts about a workload up.
    pub(super) fn gather(ctx: &Context, views: &Views, subject: &Workload) -> Self {
        let namespace = subject.metadata.namespace.as_deref().unwrap_or_default();
        let local_queue = ctx.stores.local_queues.get(namespace, workload::queue_name(subject));
        let behind = local_queue.as_ref().and_then(|queue| queue.spec.cluster_queue.clone());
        let cluster_queue_name = workload::admitted_by(subject).map(str::to_owned).or(behind);
        let cluster_queue =
            cluster_queue_name.as_deref().and_then(|name| ctx.stores.cluster_queues.get("", name));
        // Before the engine has looked at it once nothing is wrong with it.
        let view = cluster_queue_name.as_deref().and_then(|name| views.cluster_queue(name));
        let cluster_queue_active = view.is_none_or(|view| view.inactive.is_empty());
        let owner_gone =
            subject.metadata.deletion_timestamp.is_some() && owner_gone(ctx, namespace, subject);
        let dispatching_checks =
            cluster_queue.as_deref().map(|queue| dispatching(ctx, queue)).unwrap_or_default();
        let families = ctx.config.enabled(variants::FEATURE_GATE);
        Self {
            local_queue,
            cluster_queue_name,
            cluster_queue,
            cluster_queue_active,
            dispatching_checks,
            parent: families && variants::is_parent(subject),
            variant: families && variants::parent_of(subject).is_some(),
            owner_gone,
            held_by_cluster: ctx.role == Role::Hub
                && workload::is_awaited_from_cluster(subject, |cluster| ctx.is_awaited(cluster)),
        }
    }
}

fn dispatching(ctx: &Context, queue: &ClusterQueue) -> BTreeSet<String> {
    let rules =
        queue.spec.admission_checks_strategy.iter().flat_map(|strategy| &strategy.admission_checks);
    let ours = |name: &&String| {
        let check = ctx.stores.admission_checks.get("", name);
        ctx.role == Role::Hub
            && check.is_some_and(|check| check.spec.controller_name == names::MULTIKUEUE_CONTROLLER)
    };
    rules.map(|rule| &rule.name).filter(ours).cloned().collect()
}

/// Whether the job that controls it was of a kind that we watch and is not there any more.
fn owner_gone(ctx: &Context, namespace: &str, subject: &Workload) -> bool {
    let owners = subject.metadata.owner_references.iter().flatten();
    let Some(owner) = owners.into_iter().find(|owner| owner.controller == Some(true)) else {
        return false;
    };
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let Some(jobs) = ctx.stores.job(group, &owner.kind) else { return false };
    let job = jobs.store.get(namespace, &owner.name);
    jobs.store.is_ready() && job.is_none_or(|job| job.metadata.uid.as_deref() != Some(&owner.uid))
}
