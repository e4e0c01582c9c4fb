//! The capacity that the admission controller in this process knows.

use std::sync::Arc;

use switchyard_controller::engine::capacity::{
    Capacity, FlavorInfo, LevelCapacity, LocalQueueCapacity,
};
use switchyard_proto::v1;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{CapacityReceiver, RoomReceiver};
use super::{replace, wire_taint};

/// Follows the controller's capacity and the room on nodes. The task ends with the returned set.
pub fn from_controller(
    mut source: watch::Receiver<Arc<Capacity>>,
    mut rooms: RoomReceiver,
) -> (CapacityReceiver, JoinSet<()>) {
    let mut tasks = JoinSet::new();
    let first = to_wire(&source.borrow_and_update(), &rooms.borrow_and_update());
    let (sender, receiver) = watch::channel(Some(Arc::new(first)));
    tasks.spawn(async move {
        loop {
            tokio::select! {
                changed = source.changed() => if changed.is_err() { return },
                Ok(()) = rooms.changed() => {}
            }
            let next = to_wire(&source.borrow_and_update(), &rooms.borrow_and_update());
            replace(&sender, next);
        }
    });
    (receiver, tasks)
}

fn to_wire(capacity: &Capacity, rooms: &[v1::FlavorRoom]) -> v1::Capacity {
    let queue = |queue: &LocalQueueCapacity| v1::QueueCapacity {
        namespace: queue.namespace.clone(),
        local_queue: queue.name.clone(),
        cluster_queue: queue.cluster_queue.clone(),
        active: queue.inactive.is_none(),
        inactive_reason: queue.inactive.clone().unwrap_or_default(),
        pending: queue.pending,
        flavors: queue
            .amounts
            .iter()
            .map(|amount| flavor(amount, capacity.flavors.get(&amount.flavor)))
            .collect(),
    };
    v1::Capacity {
        queues: capacity.local_queues.iter().map(queue).collect(),
        enforces_pins: true,
        rooms: rooms.to_vec(),
    }
}

fn flavor(
    amount: &switchyard_controller::engine::capacity::FlavorCapacity,
    info: Option<&FlavorInfo>,
) -> v1::FlavorCapacity {
    v1::FlavorCapacity {
        flavor: amount.flavor.clone(),
        resource: amount.resource.clone(),
        nominal: amount.nominal,
        used: amount.used,
        available: amount.available,
        potential: amount.potential,
        node_labels: info.map(|info| info.labels.clone().into_iter().collect()).unwrap_or_default(),
        taints: info.map(|info| info.taints.iter().map(wire_taint).collect()).unwrap_or_default(),
        levels: amount.levels.iter().map(level).collect(),
    }
}

fn level(level: &LevelCapacity) -> v1::LevelCapacity {
    v1::LevelCapacity {
        level: level.level.clone(),
        largest_free: level.largest_free,
        total_free: level.total_free,
    }
}
