//! What each LocalQueue can still take: the view that a dispatcher places by.

use std::collections::BTreeMap;

/// All LocalQueues of the cluster at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Capacity {
    /// Grows by one with every change.
    pub revision: u64,
    /// By namespace and name.
    pub local_queues: Vec<LocalQueueCapacity>,
    /// Labels and taints of the flavors that are named in `local_queues`, by name.
    pub flavors: BTreeMap<String, FlavorInfo>,
}

/// One LocalQueue's share.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LocalQueueCapacity {
    /// Namespace of the LocalQueue.
    pub namespace: String,
    /// Name of the LocalQueue.
    pub name: String,
    /// Its ClusterQueue.
    pub cluster_queue: String,
    /// Whether workloads can be admitted through it now; else why not.
    pub inactive: Option<String>,
    /// In the order of the ClusterQueue's flavors.
    pub amounts: Vec<FlavorCapacity>,
    /// Workloads that wait in the ClusterQueue.
    pub pending: u32,
}

/// One resource of one flavor. Amounts are milli for cpu, base units for all else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlavorCapacity {
    /// ResourceFlavor.
    pub flavor: String,
    /// Resource.
    pub resource: String,
    /// The ClusterQueue's own quota.
    pub nominal: i64,
    /// Reserved by workloads, including reservations that are not written yet.
    pub used: i64,
    /// What can be reserved now, borrowing included. Negative when quota was cut below its use.
    pub available: i64,
    /// What could be reserved if nothing were.
    pub potential: i64,
}

/// What decides whether a pod may use a flavor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlavorInfo {
    /// Labels of the flavor's nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints that a pod must tolerate.
    pub taints: Vec<k8s_openapi::api::core::v1::Taint>,
}

impl Capacity {
    /// Takes the place of `current` with the next revision, unless it says the same. Returns whether it did.
    pub(crate) fn replaces(mut self, current: &mut std::sync::Arc<Self>) -> bool {
        self.revision = current.revision;
        if **current == self {
            return false;
        }
        self.revision += 1;
        *current = std::sync::Arc::new(self);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_grows_only_with_a_change() {
        let mut current = std::sync::Arc::new(Capacity::default());
        assert!(!Capacity::default().replaces(&mut current));
        let next = || Capacity {
            local_queues: vec![LocalQueueCapacity::default()],
            ..Capacity::default()
        };
        assert!(next().replaces(&mut current));
        assert!(!next().replaces(&mut current));
        assert_eq!(current.revision, 1);
    }
}
