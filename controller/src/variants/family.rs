//! What a workload is to others, and what its ClusterQueue says of variants.

use switchyard_api::{
    names,
    v1beta2::{ClusterQueue, ConcurrentAdmissionMigrationMode, Workload},
    variants,
};
use switchyard_scheduler::{self as engine, Name};

use crate::{stores::Stores, workload};

/// How workloads of a ClusterQueue try for several flavors at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    /// The flavors, the best first.
    pub(crate) flavors: Vec<String>,
    /// Whether one that runs stays where it is.
    pub(crate) retains: bool,
    /// The last flavor that is worth moving to.
    pub(crate) last: Option<String>,
}

impl Policy {
    /// What a ClusterQueue says, if it says anything. What is sent to other clusters goes there as one workload.
    pub(crate) fn of(queue: &ClusterQueue, is_sent: impl Fn(&str) -> bool) -> Option<Self> {
        let migration = &queue.spec.concurrent_admission_policy.as_ref()?.migration;
        let checks = queue
            .spec
            .admission_checks_strategy
            .iter()
            .flat_map(|strategy| &strategy.admission_checks);
        if checks.into_iter().any(|rule| is_sent(&rule.name)) {
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

    /// Where a flavor stands.
    pub(crate) fn rank(&self, flavor: &str) -> Option<usize> {
        self.flavors.iter().position(|other| other == flavor)
    }
}

/// What the ClusterQueue behind a workload's LocalQueue says; none while there is none.
pub(crate) fn policy(stores: &Stores, workload: &Workload) -> Option<Policy> {
    let is_sent = |name: &str| {
        let check = stores.admission_checks.get("", name);
        check.is_some_and(|check| check.spec.controller_name == names::MULTIKUEUE_CONTROLLER)
    };
    Policy::of(&*queue(stores, workload)?, is_sent)
}

/// The ClusterQueue behind a workload's LocalQueue.
pub(crate) fn queue(stores: &Stores, workload: &Workload) -> Option<std::sync::Arc<ClusterQueue>> {
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    let local = stores.local_queues.get(namespace, workload::queue_name(workload))?;
    stores.cluster_queues.get("", local.spec.cluster_queue.as_deref()?)
}

/// Tells the engine what a workload is to others. One that has variants, or is about to, is not queued, and what it shows
/// is its variant's quota.
pub(crate) fn tell(stores: &Stores, workload: &Workload, known: &mut engine::Workload) {
    known.flavors = variants::allowed_flavors(workload)
        .map(|flavors| flavors.into_iter().map(Name::from).collect());
    if let Some(parent) = variants::parent_of(workload) {
        known.parent = Some(Name::from(parent.uid.as_str()));
        // Variants are created within a second: the better flavor goes first.
        let rank =
            policy(stores, workload).and_then(|policy| policy.rank(variants::flavor_of(workload)?));
        let later = std::time::Duration::from_millis(u64::try_from(rank.unwrap_or(0)).unwrap_or(0));
        known.queue_time = known.queue_time.plus(later);
    } else if variants::is_parent(workload) || policy(stores, workload).is_some() {
        known.held = true;
        known.reservation = None;
    }
}
