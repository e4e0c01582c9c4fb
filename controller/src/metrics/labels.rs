//! Label sets. The names are Kueue's.

use prometheus_client::encoding::EncodeLabelSet;

use super::series::BelongsToQueue;
use switchyard_platform::store::Key;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResultLabels {
    pub(super) result: &'static str,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct QueueLabels {
    pub(super) cluster_queue: String,
    pub(super) priority_class: String,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LocalQueueLabels {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) priority_class: String,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CohortLabels {
    pub(super) cohort: String,
    pub(super) priority_class: String,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EvictedLabels {
    cluster_queue: String,
    reason: String,
    underlying_cause: String,
    priority_class: String,
    replica_role: &'static str,
}

impl EvictedLabels {
    pub(super) fn new(queue: QueueLabels, reason: &str, cause: &str) -> Self {
        let QueueLabels { cluster_queue, priority_class, replica_role } = queue;
        Self {
            cluster_queue,
            reason: reason.into(),
            underlying_cause: cause.into(),
            priority_class,
            replica_role,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LocalQueueEvictedLabels {
    name: String,
    namespace: String,
    reason: String,
    underlying_cause: String,
    priority_class: String,
    replica_role: &'static str,
}

impl LocalQueueEvictedLabels {
    pub(super) fn new(queue: LocalQueueLabels, reason: &str, cause: &str) -> Self {
        let LocalQueueLabels { name, namespace, priority_class, replica_role } = queue;
        let (reason, underlying_cause) = (reason.into(), cause.into());
        Self { name, namespace, reason, underlying_cause, priority_class, replica_role }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ClusterQueueLabels {
    pub(super) cluster_queue: String,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReadyToEvictedLabels {
    pub(super) cluster_queue: String,
    pub(super) reason: String,
    pub(super) underlying_cause: String,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct UngatedLabels {
    pub(super) name: &'static str,
    pub(super) cluster_queue: String,
    pub(super) is_group: &'static str,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CreationLabels {
    pub(super) job_kind: &'static str,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BuildLabels {
    pub(super) git_version: &'static str,
    pub(super) git_commit: &'static str,
    pub(super) build_date: &'static str,
    pub(super) go_version: &'static str,
    pub(super) compiler: &'static str,
    pub(super) platform: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EvictionLatencyLabels {
    pub(super) cluster_queue: String,
    pub(super) reason: String,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PreemptedLabels {
    pub(super) preempting_cluster_queue: String,
    pub(super) reason: &'static str,
    pub(super) replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WriteLabels {
    pub(super) what: &'static str,
    pub(super) result: &'static str,
}

macro_rules! of_queue {
    ($($labels:ty: $queue:ident),+ $(,)?) => {
        $(impl BelongsToQueue for $labels {
            fn queue(&self) -> Key {
                Key::new("", &self.$queue)
            }
        })+
    };
}

of_queue!(
    QueueLabels: cluster_queue,
    CohortLabels: cohort,
    EvictedLabels: cluster_queue,
    ClusterQueueLabels: cluster_queue,
    EvictionLatencyLabels: cluster_queue,
    ReadyToEvictedLabels: cluster_queue,
    UngatedLabels: cluster_queue,
    PreemptedLabels: preempting_cluster_queue,
);

impl BelongsToQueue for LocalQueueLabels {
    fn queue(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

impl BelongsToQueue for LocalQueueEvictedLabels {
    fn queue(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}
