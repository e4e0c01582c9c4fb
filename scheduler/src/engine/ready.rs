//! The ClusterQueues whose heads the next cycle takes.

use std::collections::BTreeMap;

use crate::Name;
use crate::cluster_queue::ClusterQueueEntry;
use crate::ids::NodeId;

/// Active ClusterQueues with a head, by name. Cycles take heads in this order.
#[derive(Debug, Default)]
pub(super) struct ReadyQueues {
    by_name: BTreeMap<Name, NodeId>,
}

impl ReadyQueues {
    /// Callers must call this after each change of a ClusterQueue's queue or activity.
    pub(super) fn note(&mut self, cq: &mut ClusterQueueEntry) {
        let ready = cq.is_active() && cq.queue.head().is_some();
        if ready == cq.ready {
            return;
        }
        cq.ready = ready;
        if ready {
            self.by_name.insert(cq.object.name.clone(), cq.node);
        } else {
            self.by_name.remove(&cq.object.name);
        }
    }

    pub(super) fn forget(&mut self, name: &Name) {
        self.by_name.remove(name);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn queues(&self) -> Vec<NodeId> {
        self.by_name.values().copied().collect()
    }
}
