//! The inputs of a decision about a workload.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use switchyard_api::{
    v1beta2::{ClusterQueue, LocalQueue, Workload},
    variants,
};
use switchyard_config::{Configuration, GoDuration};
use switchyard_jobs::{external_kind, kind_of_owner};

use crate::{
    context::Context,
    engine::views::Views,
    role::Role,
    workload::{self, ReasonDetail},
};

/// The configuration's rules, equal for all workloads.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rules {
    /// `objectRetentionPolicies.workloads.afterFinished`. `None` keeps finished workloads.
    pub keep_finished: Option<Duration>,
    /// `waitForPodsReady`. `None` if it is off.
    pub pods_ready: Option<PodsReadyRules>,
    /// Detail of the reasons for missing quota.
    pub reasons: ReasonDetail,
    /// Whether the status lists the preemption gates of the spec (Kueue's
    /// `MultiKueueOrchestratedPreemption`).
    pub lists_preemption_gates: bool,
    /// Whether Kueue's `AdmissionGatedBy` is off.
    pub ignores_admission_gates: bool,
    /// Whether Kueue's `FinishOrphanedWorkloads` is off.
    pub leaves_orphans: bool,
    /// Whether a new workload gets its conditions at once (Kueue's
    /// `UnadmittedWorkloadsExplicitStatus`).
    pub explicit: bool,
}

impl Rules {
    #[must_use]
    pub(crate) fn of(config: &Configuration) -> Self {
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
pub(crate) struct PodsReadyRules {
    /// Time from admission until all pods must be ready.
    pub timeout: Duration,
    /// Time for a lost pod to recover. `None`: unlimited.
    pub recovery_timeout: Option<Duration>,
    /// Number of evictions after which a workload is deactivated. `None`: never.
    pub limit: Option<i32>,
    /// The first requeuing delay. It doubles each time.
    pub base: Duration,
    /// The longest requeuing delay.
    pub max: Duration,
}

/// Everything else that matters about one workload.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkloadInputs {
    pub local_queue: Option<Arc<LocalQueue>>,
    /// The ClusterQueue that admitted it, else its LocalQueue's.
    pub cluster_queue_name: Option<String>,
    pub cluster_queue: Option<Arc<ClusterQueue>>,
    /// Whether the ClusterQueue admits workloads now.
    pub cluster_queue_active: bool,
    /// On a hub, the ClusterQueue's MultiKueue checks.
    pub dispatching_checks: BTreeSet<String>,
    /// Whether it is the parent of variants. It is admitted with one of them, whose checks count.
    pub parent: bool,
    /// Whether it is a variant. Pods and execution time are its parent's.
    pub variant: bool,
    /// Whether it is being deleted and its owner job is gone.
    pub owner_gone: bool,
    /// Whether, on a hub, a copy may remain on a connected cluster.
    pub held_by_cluster: bool,
    /// Whether the workload's status shows whether its pods are ready.
    pub readiness: Readiness,
}

/// Whether a workload's status shows whether its pods are ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It runs here, or on a cluster that has reported to this process for [`STATUSES_WITHIN`].
    #[default]
    Shown,
    /// It is on a cluster whose reports are not current now. They may be after this time.
    Stale(Duration),
    /// It is on a cluster, and the status of its kind does not tell.
    Unknown,
}

/// After a cluster's return, and after a change of leader, jobs' statuses are current within this
/// time.
const STATUSES_WITHIN: Duration = Duration::from_secs(30);

/// Delay until a workload whose cluster is not connected is checked again.
const STALE_RECHECK: Duration = Duration::from_secs(60);

impl Readiness {
    fn of(ctx: &Context, subject: &Workload) -> Self {
        // It counts from its first call in a term. So every workload calls it, not only a late one.
        let led_for = ctx.led_for();
        let status = subject.status.as_ref();
        let Some(cluster) = status.and_then(|status| status.cluster_name.as_deref()) else {
            return Self::Shown;
        };
        let mut owners = subject.metadata.owner_references.iter().flatten();
        let is_external = owners.any(|owner| {
            kind_of_owner(&owner.api_version, &owner.kind)
                .is_none_or(|kind| external_kind(kind.id().framework).is_some())
        });
        if is_external {
            return Self::Unknown;
        }
        Self::by_reports(ctx.connection(cluster), led_for)
    }

    /// `connection`: whether the cluster is connected, and for how long. Pods may have become ready
    /// before this process led.
    fn by_reports(connection: Option<(bool, Duration)>, led_for: Duration) -> Self {
        match connection {
            Some((true, connected_for)) => {
                match STATUSES_WITHIN.saturating_sub(connected_for.min(led_for)) {
                    Duration::ZERO => Self::Shown,
                    left => Self::Stale(left),
                }
            }
            Some((false, _)) | None => Self::Stale(STALE_RECHECK),
        }
    }
}

impl WorkloadInputs {
    pub(super) fn gather(ctx: &Context, views: &Views, subject: &Workload) -> Self {
        let namespace = subject.metadata.namespace.as_deref().unwrap_or_default();
        let local_queue = ctx.stores.local_queues.get(namespace, workload::queue_name(subject));
        let behind = local_queue.as_ref().and_then(|queue| queue.spec.cluster_queue.clone());
        let cluster_queue_name = workload::admitted_by(subject).map(str::to_owned).or(behind);
        let cluster_queue =
            cluster_queue_name.as_deref().and_then(|name| ctx.stores.cluster_queues.get("", name));
        // Until the engine has considered the queue, it counts as active.
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
            readiness: Readiness::of(ctx, subject),
        }
    }
}

fn dispatching(ctx: &Context, queue: &ClusterQueue) -> BTreeSet<String> {
    let rules = queue.spec.admission_checks().iter();
    rules.map(|rule| &rule.name).filter(|name| ctx.is_dispatching(name)).cloned().collect()
}

/// Whether its controller was a job of a watched kind and is gone.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_count_some_time_after_connection_and_new_leader() {
        let seconds = Duration::from_secs;
        let stale = |left| Readiness::Stale(seconds(left));
        for (case, connection, led_for, expected) in [
            ("both long ago", Some((true, 90)), 30, Readiness::Shown),
            ("connected just now", Some((true, 4)), 90, stale(26)),
            ("leading just now", Some((true, 90)), 0, stale(30)),
            ("not connected", Some((false, 90)), 90, stale(60)),
            ("unknown", None, 90, stale(60)),
        ] {
            let connection = connection.map(|(is_active, lasted)| (is_active, seconds(lasted)));
            assert_eq!(Readiness::by_reports(connection, seconds(led_for)), expected, "{case}");
        }
    }
}
