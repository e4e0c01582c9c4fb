//! Relations between workloads and variants, and the ClusterQueue's policy for them.

use switchyard_api::{
    v1beta2::{ClusterQueue, ConcurrentAdmissionMigrationMode, Workload},
    variants,
};
use switchyard_scheduler::{self as engine, Name};

use crate::{
    stores::{Stores, dispatching::is_dispatching},
    workload,
};

/// The ClusterQueue's `concurrentAdmissionPolicy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VariantPolicy {
    /// Flavors, the best first.
    pub(crate) flavors: Vec<String>,
    /// Whether a running workload stays on its flavor (`RetainFirstAdmission`).
    pub(crate) retains: bool,
    /// The worst flavor that is worth moving to (`lastAcceptableFlavorName`).
    pub(crate) last: Option<String>,
}

impl VariantPolicy {
    /// The policy of a ClusterQueue. `None` without one, or if an admission check dispatches: then
    /// the workload is dispatched as a whole. `is_sent`: whether a check dispatches.
    pub(crate) fn of(queue: &ClusterQueue, is_sent: impl Fn(&str) -> bool) -> Option<Self> {
        let migration = &queue.spec.concurrent_admission_policy.as_ref()?.migration;
        if queue.spec.admission_checks().iter().any(|rule| is_sent(&rule.name)) {
            return None;
        }
        let group = queue.spec.resource_groups.first()?;
        Some(Self {
            flavors: group.flavors.iter().map(|flavor| flavor.name.clone()).collect(),
            retains: migration.mode == ConcurrentAdmissionMigrationMode::RetainFirstAdmission,
            last: migration
                .constraints
                .as_ref()
                .and_then(|it| it.last_acceptable_flavor_name.clone()),
        })
    }

    /// Position of a flavor, the best is 0.
    pub(crate) fn rank(&self, flavor: &str) -> Option<usize> {
        self.flavors.iter().position(|other| other == flavor)
    }
}

/// The policy of the ClusterQueue behind a workload's LocalQueue; `None` without either queue.
pub(crate) fn policy(stores: &Stores, workload: &Workload) -> Option<VariantPolicy> {
    VariantPolicy::of(&*queue(stores, workload)?, |check| is_dispatching(stores, check))
}

pub(crate) fn queue(stores: &Stores, workload: &Workload) -> Option<std::sync::Arc<ClusterQueue>> {
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    let local = stores.local_queues.get(namespace, workload::queue_name(workload))?;
    stores.cluster_queues.get("", local.spec.cluster_queue.as_deref()?)
}

/// Sets a workload's flavors and parent for the engine. A workload with variants, or about to get
/// some, is held and charges nothing itself: its quota is its variant's.
pub(crate) fn set_engine_fields(
    stores: &Stores,
    workload: &Workload,
    known: &mut engine::Workload,
) {
    known.flavors = variants::allowed_flavors(workload)
        .map(|flavors| flavors.into_iter().map(Name::from).collect());
    if let Some(parent) = variants::parent_of(workload) {
        known.parent = Some(Name::from(parent.uid.as_str()));
        // Variants are created within one second, so their ranks order them.
        let rank =
            policy(stores, workload).and_then(|policy| policy.rank(variants::flavor_of(workload)?));
        let later = std::time::Duration::from_millis(u64::try_from(rank.unwrap_or(0)).unwrap_or(0));
        known.queue_time = known.queue_time.plus(later);
    } else if variants::is_parent(workload) || policy(stores, workload).is_some() {
        known.on_hold = true;
        known.reservation = None;
    }
}
