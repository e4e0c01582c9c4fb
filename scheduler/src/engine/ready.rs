//! Which ClusterQueues a cycle looks at.

use std::collections::BTreeMap;

use crate::Name;
use crate::cluster_queue::Cq;
use crate::tree::NodeId;

/// The active ClusterQueues that have a head, by name: cycles take heads in this order.
#[derive(Debug, Default)]
pub(super) struct Ready {
    by_name: BTreeMap<Name, NodeId>,
}

impl Ready {
    /// To be called after anything changed a ClusterQueue's queue or whether it is active.
    pub(super) fn note(&mut self, cq: &mut Cq) {
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

    /// The ClusterQueue is gone.
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
