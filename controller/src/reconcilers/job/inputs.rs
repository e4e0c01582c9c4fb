//! The inputs of a decision about a job.

use std::{sync::Arc, time::Duration};

use switchyard_api::v1beta2::{ResourceFlavor, Workload};
use switchyard_config::Configuration;
use switchyard_jobs::{BuildOptions, PriorityLookup, TopologyGates};

use crate::{role::Role, workload::ReasonDetail};

/// The managed job above this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Ancestor {
    #[default]
    None,
    /// There is one, and its workload is admitted.
    Admitted,
    /// There is one, without an admitted workload.
    NotAdmitted,
    /// Too many owners are above to tell.
    TooDeep,
    /// The owners form a cycle.
    Cyclic,
    /// An owner is not watched and cannot be read now.
    Unread,
}

/// The prebuilt workload that a job names.
#[derive(Debug, Clone, Default)]
pub(crate) enum Prebuilt {
    #[default]
    NotNamed,
    /// It does not exist yet.
    Missing,
    Found(Arc<Workload>),
}

/// Kueue's feature gates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gates {
    /// Whether `AssignQueueLabelsForPods` is off: pods have no queue labels.
    pub without_queue_labels: bool,
    /// Whether `FinishOrphanedWorkloads` is off: orphaned workloads keep their status.
    pub leaves_orphans: bool,
    /// Which topology annotations count.
    pub topology: TopologyGates,
}

impl Gates {
    #[must_use]
    pub(crate) fn of(config: &Configuration) -> Self {
        Self {
            without_queue_labels: !config.enabled("AssignQueueLabelsForPods"),
            leaves_orphans: !config.enabled("FinishOrphanedWorkloads"),
            topology: config.topology_gates(),
        }
    }
}

/// All inputs of [`super::decide`] besides the job.
pub(crate) struct JobInputs<'a> {
    pub role: Role,
    /// Detail of the reasons for missing quota.
    pub reasons: ReasonDetail,
    /// `ElasticJobsViaWorkloadSlices`: jobs may be resized while they run.
    pub elastic: bool,
    /// `ReclaimablePods`: finished pods release quota before the job ends.
    pub reclaims: bool,
    /// `FastQuotaReleaseInPodIntegration`: pods that are being deleted do not count as active.
    pub releases_fast: bool,
    /// `DeferRayServiceFinalizationForRedisCleanup`: a job that is being deleted keeps its quota
    /// for its clean-up.
    pub defers_end: bool,
    /// Whether the job is managed: it has a queue, or all jobs of its namespace are managed.
    pub managed: bool,
    pub ancestor: Ancestor,
    /// Workloads that the job controls, by name. After its deletion, those that name it as
    /// controller.
    pub workloads: Vec<Arc<Workload>>,
    pub prebuilt: Prebuilt,
    /// On a hub: the MultiKueue check of the job's ClusterQueue.
    pub multi_kueue_check: Option<String>,
    /// Whether jobs below this one have active pods.
    pub below_active: &'a dyn Fn() -> bool,
    /// The resource and pod set of a workload whose pods now request more than its charge.
    pub exceeded: &'a dyn Fn(&Workload) -> Option<(String, String)>,
    /// On a hub: whether a cluster's answer is still expected.
    pub awaited: &'a dyn Fn(&str) -> bool,
    /// ResourceFlavors by name.
    pub flavor: &'a dyn Fn(&str) -> Option<Arc<ResourceFlavor>>,
    pub priorities: &'a dyn PriorityLookup,
    /// Labels and annotations to copy to the workload.
    pub copied: BuildOptions<'a>,
    /// When to write `PodsReady` first. `None` if `waitForPodsReady` is off.
    pub pods_ready: Option<PodsReadyDelay>,
    /// How long to keep an automatically deactivated job. `None`: for ever.
    pub keep_deactivated: Option<Duration>,
    pub gates: Gates,
}

/// When `PodsReady` is first written. A job that ends sooner saves the write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PodsReadyDelay {
    /// How long all pods have been ready.
    pub ready_for: Duration,
    /// How long they must be ready,
    pub after_ready: Duration,
    /// unless this long has passed since admission, which is well before the timeout.
    pub after_admission: Duration,
}

impl PodsReadyDelay {
    /// The remaining delay, that long after admission.
    pub(super) fn wait(&self, since_admission: Duration) -> Duration {
        let ready = self.after_ready.saturating_sub(self.ready_for);
        ready.min(self.after_admission.saturating_sub(since_admission))
    }
}
