//! The capacity of the cluster, per LocalQueue.

mod compute;
mod embedded;
mod node_watch;
mod room;
mod watch;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use switchyard_proto::v1;
use tokio::sync::watch::{Receiver, Sender};

pub use compute::{Snapshot, compute};
pub use embedded::from_controller;
pub use node_watch::{RoomReceiver, RoomSource};
pub(crate) use watch::watch;

/// The newest capacity; none until it is known.
pub type CapacityReceiver = Receiver<Option<Arc<v1::Capacity>>>;

/// The source of the capacity that the agent reports.
#[derive(Clone)]
pub enum CapacitySource {
    /// The exact capacity, from the admission controller in this process.
    Embedded(CapacityReceiver),
    /// Computed from the cluster's ClusterQueues, LocalQueues, Cohorts and ResourceFlavors,
    /// whatever controller manages them.
    Watch(kube::Client),
    /// The agent reports none.
    None,
}

/// Publishes the capacity if it differs.
fn replace(sender: &Sender<Option<Arc<v1::Capacity>>>, next: v1::Capacity) {
    let next = Some(Arc::new(next));
    sender.send_if_modified(|current| {
        let differs = *current != next;
        *current = next;
        differs
    });
}

fn wire_taint(taint: &Taint) -> v1::Taint {
    let value = taint.value.clone().unwrap_or_default();
    v1::Taint { key: taint.key.clone(), value, effect: taint.effect.clone() }
}
