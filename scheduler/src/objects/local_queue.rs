//! LocalQueues and AdmissionChecks.

use crate::{LocalQueueKey, Name, StopPolicy};

/// A namespace's door to a ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct LocalQueue {
    /// Its place.
    pub key: LocalQueueKey,
    /// The ClusterQueue behind it.
    pub cluster_queue: Name,
    /// Whether it is stopped.
    pub stop_policy: StopPolicy,
    /// Its weight in admission fair sharing, in thousandths.
    pub fair_weight_milli: i64,
    /// It is being deleted: it admits nothing more.
    pub deleting: bool,
}

impl LocalQueue {
    /// A LocalQueue with Kueue's defaults.
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

/// A step between reservation and admission.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct AdmissionCheck {
    /// Its name.
    pub name: Name,
    /// `spec.controllerName`.
    pub controller: String,
    /// Its `Active` condition is True.
    pub active: bool,
}
