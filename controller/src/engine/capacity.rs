//! The remaining capacity of each LocalQueue, for dispatchers.

use std::collections::BTreeMap;

/// All LocalQueues of the cluster at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Capacity {
    /// Grows by one with every change.
    pub revision: u64,
    /// Ordered by namespace and name.
    pub local_queues: Vec<LocalQueueCapacity>,
    /// The flavors in `local_queues`, by name.
    pub flavors: BTreeMap<String, FlavorInfo>,
}

/// The capacity of one LocalQueue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LocalQueueCapacity {
    pub namespace: String,
    pub name: String,
    pub cluster_queue: String,
    /// Why no workload can be admitted through it now. `None` when active.
    pub inactive: Option<String>,
    /// Ordered as the ClusterQueue's flavors.
    pub amounts: Vec<FlavorCapacity>,
    /// Workloads pending in the ClusterQueue.
    pub pending: u32,
}

/// One resource of one flavor. Amounts are milli-units for cpu, base units for all others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlavorCapacity {
    pub flavor: String,
    pub resource: String,
    /// The ClusterQueue's own quota.
    pub nominal: i64,
    /// Reserved by workloads, including reservations that are not written yet.
    pub used: i64,
    /// Reservable now, borrowing included. Negative if quota was cut below usage.
    pub available: i64,
    /// Reservable if nothing were reserved.
    pub potential: i64,
    /// Free on the flavor's nodes by level of its topology, highest first.
    pub levels: Vec<LevelCapacity>,
}

/// The free amount on the nodes of a flavor, by one level of its topology.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LevelCapacity {
    /// Label key.
    pub level: String,
    /// Free in the domain that has the most.
    pub largest_free: i64,
    /// Free in all domains of the level.
    pub total_free: i64,
}

/// The properties of a flavor that decide whether a pod may use it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlavorInfo {
    /// Labels of the flavor's nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints that a pod must tolerate.
    pub taints: Vec<k8s_openapi::api::core::v1::Taint>,
}

impl Capacity {
    /// Replaces `current` with the next revision, unless both are equal. Returns whether it did.
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
    fn revision_grows_only_with_a_change() {
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
