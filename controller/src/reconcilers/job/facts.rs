//! What the reconciler of jobs must know about the cluster to decide.

use std::{sync::Arc, time::Duration};

use switchyard_api::v1beta2::{ResourceFlavor, Workload};
use switchyard_config::Configuration;
use switchyard_jobs::{BuildOptions, PriorityLookup, TopologyGates};

use crate::{role::Role, workload::ReasonDetail};

/// How the job stands to a job of ours that owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ancestor {
    /// No job of ours owns it.
    #[default]
    None,
    /// One owns it, and has a workload that is admitted.
    Admitted,
    /// One owns it, and has no workload that is admitted.
    NotAdmitted,
    /// Too many owners are above it to say.
    TooDeep,
    /// Its owners own each other.
    Cyclic,
    /// An owner is neither watched nor can it be read at the moment.
    Unread,
}

/// The workload that a job names as made beforehand.
#[derive(Debug, Clone, Default)]
pub enum Prebuilt {
    /// The job names none.
    #[default]
    NotNamed,
    /// It names one that does not exist (yet).
    Missing,
    /// It names this one.
    Found(Arc<Workload>),
}

/// What Kueue's feature gates switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gates {
    /// `AssignQueueLabelsForPods`: pods have no labels that name their queues.
    pub without_queue_labels: bool,
    /// `FinishOrphanedWorkloads`: workloads whose job is gone are let go as they are.
    pub leaves_orphans: bool,
    /// Which annotations ask for a topology.
    pub topology: TopologyGates,
}

impl Gates {
    /// Those of a configuration.
    #[must_use]
    pub fn of(config: &Configuration) -> Self {
        Self {
            without_queue_labels: !config.enabled("AssignQueueLabelsForPods"),
            leaves_orphans: !config.enabled("FinishOrphanedWorkloads"),
            topology: config.topology_gates(),
        }
    }
}

/// All that [`super::decide`] knows besides the job.
pub struct Facts<'a> {
    /// How this process takes part.
    pub role: Role,
    /// How finely is said why there is no quota.
    pub reasons: ReasonDetail,
    /// Whether jobs may change their size while they run (`ElasticJobsViaWorkloadSlices`).
    pub elastic: bool,
    /// Whether pods that are not needed any more give their quota back before the job ends (`ReclaimablePods`).
    pub reclaims: bool,
    /// Whether pods count as active no more once they are being deleted (`FastQuotaReleaseInPodIntegration`).
    pub releases_fast: bool,
    /// Whether a job that is being deleted keeps its quota for what cleans up after it
    /// (`DeferRayServiceFinalizationForRedisCleanup`).
    pub defers_end: bool,
    /// Whether the job is ours: it has a queue, or all jobs of its namespace are managed.
    pub managed: bool,
    /// The job that owns it.
    pub ancestor: Ancestor,
    /// Workloads that the job controls, by name; for a job that is gone, those that name it as controller.
    pub workloads: Vec<Arc<Workload>>,
    /// The workload named beforehand.
    pub prebuilt: Prebuilt,
    /// On a hub: the MultiKueue check of the job's ClusterQueue.
    pub multi_kueue_check: Option<String>,
    /// Whether jobs that the job controls, or that those control, have pods that run.
    pub below_active: &'a dyn Fn() -> bool,
    /// The resource of which the pods of a workload ask for more by now than they are charged, and the pod set.
    pub exceeded: &'a dyn Fn(&Workload) -> Option<(String, String)>,
    /// On a hub: whether a cluster is not lost for so long that nobody waits for its answer any more.
    pub awaited: &'a dyn Fn(&str) -> bool,
    /// ResourceFlavors by name.
    pub flavor: &'a dyn Fn(&str) -> Option<Arc<ResourceFlavor>>,
    /// Priority classes.
    pub priorities: &'a dyn PriorityLookup,
    /// What else of a job its workload gets.
    pub copied: BuildOptions<'a>,
    /// When to report the PodsReady condition first; none: pods are not waited for, and nothing is said of them.
    pub pods_ready: Option<PodsReadyDelay>,
    /// How long a job is kept that was deactivated for what it did; none: for ever.
    pub keep_deactivated: Option<Duration>,
    /// What else the configuration switches.
    pub gates: Gates,
}

/// When PodsReady is first reported of a workload: a job that ends sooner is spared the write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodsReadyDelay {
    /// For how long all pods of the job have been seen ready.
    pub ready_for: Duration,
    /// For how long they have to be,
    pub after_ready: Duration,
    /// unless this long has passed since admission: well before the time-out.
    pub after_admission: Duration,
}

impl PodsReadyDelay {
    /// How long to wait still, so long after admission.
    pub(super) fn wait(&self, since_admission: Duration) -> Duration {
        let ready = self.after_ready.saturating_sub(self.ready_for);
        ready.min(self.after_admission.saturating_sub(since_admission))
    }
}
