//! Follows the free amounts of nodes.
//!
//! Each computation reads all nodes and pods, so they are rare: the pause is at least [`INTERVAL`],
//! and [`SHARE`] times as long as the last computation. The watches begin with the first reader: a
//! replica without a session has none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use switchyard_api::v1beta2::ResourceFlavor;
use switchyard_controller::stores::{Stores, watch_nodes};
use switchyard_proto::v1;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::room::rooms;

/// The least pause between two computations.
const INTERVAL: Duration = Duration::from_secs(1);

/// A computation takes at most this part of the time.
const SHARE: u32 = 50;

/// A watch that fails for longer makes the room unknown.
const STALE: Duration = Duration::from_secs(60);

/// The newest room of each flavor; empty while nodes or pods are not known.
pub type RoomReceiver = watch::Receiver<Arc<Vec<v1::FlavorRoom>>>;

/// The newest room of each flavor, for readers that come and go. The task ends with this.
pub struct RoomSource {
    sender: Arc<watch::Sender<Arc<Vec<v1::FlavorRoom>>>>,
    _task: JoinSet<()>,
}

impl RoomSource {
    /// Follows the nodes of a cluster whose controller has these stores. The controller watches
    /// nodes and pods only where a Topology exists, and feeds each event to its engine. Elsewhere
    /// this watches them.
    pub(crate) fn beside_controller(client: kube::Client, stores: Arc<Stores>) -> Self {
        let flavors = stores.resource_flavors.clone();
        let flavors = move || flavors.all().iter().map(|flavor| (**flavor).clone()).collect();
        Self::start(client, Some(stores), flavors)
    }

    /// Follows the nodes of a cluster, if the account may read them.
    pub(super) fn of_cluster(
        client: kube::Client,
        flavors: impl Fn() -> Vec<ResourceFlavor> + Send + Sync + 'static,
    ) -> Self {
        Self::start(client, None, flavors)
    }

    fn start(
        client: kube::Client,
        shared: Option<Arc<Stores>>,
        flavors: impl Fn() -> Vec<ResourceFlavor> + Send + Sync + 'static,
    ) -> Self {
        let sender = Arc::new(watch::Sender::default());
        let mut task = JoinSet::new();
        let into = sender.clone();
        task.spawn(async move {
            while into.receiver_count() == 0 {
                tokio::time::sleep(INTERVAL).await;
            }
            let Some(shared) = shared else { return own(client, &flavors, &into).await };
            tokio::select! {
                biased;
                () = shared.nodes_known() => follow(&shared, &flavors, &into).await,
                () = own(client, &flavors, &into) => {}
            }
        });
        Self { sender, _task: task }
    }

    /// A new reader.
    #[must_use]
    pub fn subscribe(&self) -> RoomReceiver {
        self.sender.subscribe()
    }
}

/// Watches nodes and pods, if the account may read them, and follows them.
async fn own(
    client: kube::Client,
    flavors: &(impl Fn() -> Vec<ResourceFlavor> + Sync),
    sender: &watch::Sender<Arc<Vec<v1::FlavorRoom>>>,
) {
    let one = ListParams::default().limit(1);
    let nodes = Api::<Node>::all(client.clone());
    let pods = Api::<Pod>::all(client.clone());
    let refused = |error: &kube::Error| matches!(error, kube::Error::Api(it) if it.code == 403);
    for error in [nodes.list(&one).await.err(), pods.list(&one).await.err()].iter().flatten() {
        if refused(error) {
            tracing::info!("nodes and pods may not be read here, so room on nodes is not known");
            return;
        }
    }
    let stores = Stores::for_nodes();
    let (watched, shutdown) = (stores.clone(), CancellationToken::new());
    tokio::select! {
        ended = watch_nodes(watched, client, shutdown) => {
            if let Err(error) = ended {
                tracing::warn!(error = format!("{error:#}"), "nodes are no longer watched");
            }
            sender.send_replace(Arc::default());
        }
        () = follow(&stores, flavors, sender) => {}
    }
}

/// Follows stores that something else fills.
async fn follow(
    stores: &Stores,
    flavors: &(impl Fn() -> Vec<ResourceFlavor> + Sync),
    sender: &watch::Sender<Arc<Vec<v1::FlavorRoom>>>,
) {
    stores.nodes_known().await;
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    stores.on_free_nodes_change(move || notify.notify_one());
    loop {
        let start = Instant::now();
        let broken = [stores.nodes.broken_for(), stores.pods.broken_for()];
        let is_stale = broken.into_iter().flatten().any(|since| since > STALE);
        let next = if is_stale { Vec::new() } else { rooms(&stores.free_nodes(), &flavors()) };
        sender.send_if_modified(|current| {
            let differs = **current != next;
            *current = Arc::new(next);
            differs
        });
        tokio::time::sleep(INTERVAL.max(start.elapsed() * SHARE)).await;
        // Flavors change without a change of nodes, and a watch fails without one.
        let _ = tokio::time::timeout(STALE, changed.notified()).await;
    }
}
