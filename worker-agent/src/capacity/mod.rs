//! What the cluster could take, seen through each LocalQueue.

mod compute;
mod embedded;
mod watch;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use switchyard_proto::v1;
use tokio::sync::watch::Sender;

pub use compute::{Snapshot, compute};
pub use embedded::from_controller;
pub(crate) use watch::watch;

/// Tells the next capacity, if it is another.
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
