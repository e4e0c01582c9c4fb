//! Conversion of a capacity report from the wire.

use switchyard_proto::v1 as proto;
use switchyard_scheduler::{Taint, TaintEffect};

use super::{CapacityReport, FlavorQuota, FlavorRoom, LocalQueueCapacity, NodeBin, QueueFlavor};
use crate::Name;

/// The report, whose rooms the hub has checked: `switchyard_proto::room::check`.
pub fn from_wire(capacity: proto::Capacity) -> CapacityReport {
    let enforces_pins = capacity.enforces_pins;
    let rooms = capacity.rooms.into_iter().map(room).collect();
    let queue = |queue: proto::QueueCapacity| {
        let mut flavors: Vec<QueueFlavor> = Vec::new();
        for row in queue.flavors {
            let quota = FlavorQuota {
                nominal: row.nominal,
                used: row.used,
                available: row.available,
                potential: row.potential,
            };
            let index = match flavors.iter().position(|flavor| *flavor.name == *row.flavor) {
                Some(index) => index,
                None => {
                    flavors.push(QueueFlavor {
                        name: row.flavor.as_str().into(),
                        ..QueueFlavor::default()
                    });
                    flavors.len() - 1
                }
            };
            let flavor = &mut flavors[index];
            flavor.labels.extend(row.node_labels);
            for taint in row.taints.into_iter().map(taint) {
                if !flavor.taints.contains(&taint) {
                    flavor.taints.push(taint);
                }
            }
            flavor.resources.insert(row.resource.as_str().into(), quota);
        }
        let inactive = (!queue.active).then_some(queue.inactive_reason);
        let key = (Name::from(queue.namespace.as_str()), Name::from(queue.local_queue.as_str()));
        (
            key,
            LocalQueueCapacity {
                cluster_queue: queue.cluster_queue.as_str().into(),
                inactive,
                pending: queue.pending,
                flavors,
            },
        )
    };
    CapacityReport {
        queues: capacity.queues.into_iter().map(queue).collect(),
        enforces_pins,
        rooms,
    }
}

fn room(room: proto::FlavorRoom) -> (Name, FlavorRoom) {
    let bin = |bin: proto::NodeBin| NodeBin {
        nodes: i64::from(bin.nodes),
        free: bin.free.into_iter().map(|(name, amount)| (name.as_str().into(), amount)).collect(),
        taints: bin.taints.into_iter().map(taint).collect(),
    };
    let bins = room.bins.into_iter().map(bin).collect();
    let proto::FlavorRoom { shared, coarse, .. } = room;
    (room.flavor.as_str().into(), FlavorRoom { bins, shared, coarse })
}

fn taint(taint: proto::Taint) -> Taint {
    let effect = match taint.effect.as_str() {
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        _ => TaintEffect::NoSchedule,
    };
    Taint { key: taint.key, value: taint.value, effect }
}
