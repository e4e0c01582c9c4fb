use crate::{LocalQueueKey, Name, StopPolicy};

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct LocalQueue {
    pub key: LocalQueueKey,
    pub cluster_queue: Name,
    pub stop_policy: StopPolicy,
    /// In admission fair sharing, in thousandths.
    pub fair_weight_milli: i64,
    /// Being deleted: admits no more workloads.
    pub deleting: bool,
}

impl LocalQueue {
    /// Kueue's defaults.
    pub fn new(key: LocalQueueKey, cluster_queue: impl Into<Name>) -> Self {
        Self {
            key,
            cluster_queue: cluster_queue.into(),
            stop_policy: StopPolicy::None,
            fair_weight_milli: 1000,
            deleting: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct AdmissionCheck {
    pub name: Name,
    /// `spec.controllerName`.
    pub controller: String,
    /// Its `Active` condition is True.
    pub active: bool,
}
