//! Follows the free amounts of nodes.
//!
//! Each computation reads all nodes and pods, so they are rare: the pause is at least [`INTERVAL`],
//! and [`SHARE`] times as long as the last computation. The watches begin with the first reader and
//! last as long as the [`RoomSource`]: a replica has none until its first session, and keeps them
//! after it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use switchyard_api::v1beta2::ResourceFlavor;
use switchyard_controller::stores::{Stores, watch_nodes};
use switchyard_platform::api_call::with_deadline;
use switchyard_platform::store::Store;
use switchyard_proto::v1;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::room::rooms;

/// The least pause between two computations.
const INTERVAL: Duration = Duration::from_secs(1);

/// The pause after a computation is at least this many times as long as the computation.
const SHARE: u32 = 50;

/// A watch that fails for longer makes the room unknown. A watch counts as failing for up to 95 s
/// after an error, unless an event comes before.
const STALE: Duration = Duration::from_secs(120);

/// The pause until nodes are watched again after they may not be read, or after a watch ended.
const PROBE_AGAIN: Duration = Duration::from_secs(300);

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
        Self::start(client, Some(stores), flavors)
    }

    /// Follows the nodes of a cluster, if the account may read them.
    pub(super) fn of_cluster(client: kube::Client, flavors: Store<ResourceFlavor>) -> Self {
        Self::start(client, None, flavors)
    }

    fn start(
        client: kube::Client,
        shared: Option<Arc<Stores>>,
        flavors: Store<ResourceFlavor>,
    ) -> Self {
        let sender = Arc::new(watch::Sender::default());
        let mut task = JoinSet::new();
        let follower = Follower { flavors, changed: Arc::default(), sender: sender.clone() };
        task.spawn(follower.run(client, shared));
        Self { sender, _task: task }
    }

    /// A new reader.
    #[must_use]
    pub fn subscribe(&self) -> RoomReceiver {
        self.sender.subscribe()
    }
}

/// The task of a [`RoomSource`].
struct Follower {
    flavors: Store<ResourceFlavor>,
    /// Nodes, pods or flavors may have changed.
    changed: Arc<Notify>,
    sender: Arc<watch::Sender<Arc<Vec<v1::FlavorRoom>>>>,
}

impl Follower {
    /// Follows `shared` once something fills it, and until then nodes and pods of its own.
    async fn run(self, client: kube::Client, shared: Option<Arc<Stores>>) {
        while self.sender.receiver_count() == 0 {
            tokio::time::sleep(INTERVAL).await;
        }
        let changed = self.changed.clone();
        self.flavors.subscribe(move |_| changed.notify_one());
        let Some(shared) = shared else { return self.own(client).await };
        tokio::select! {
            biased;
            () = shared.nodes_known() => {}
            () = self.own(client) => {}
        }
        self.follow(&shared).await;
    }

    /// Watches nodes and pods while the account may read them, and follows them. Never returns:
    /// the rights may come, and a watch that ended may work again.
    async fn own(&self, client: kube::Client) {
        let mut is_logged = false;
        loop {
            if may_read(&client).await {
                is_logged = false;
                self.watch_own(client.clone()).await;
                self.sender.send_replace(Arc::default());
            } else if !std::mem::replace(&mut is_logged, true) {
                tracing::info!(
                    "nodes and pods may not be read here, so room on nodes is not known"
                );
            }
            tokio::time::sleep(PROBE_AGAIN).await;
        }
    }

    /// Watches nodes and pods, and follows them until a watch ends.
    async fn watch_own(&self, client: kube::Client) {
        let stores = Stores::for_nodes();
        let (watched, shutdown) = (stores.clone(), CancellationToken::new());
        tokio::select! {
            ended = watch_nodes(watched, client, shutdown) => {
                if let Err(error) = ended {
                    tracing::warn!(error = format!("{error:#}"), "nodes are no longer watched");
                }
            }
            () = self.follow(&stores) => {}
        }
    }

    /// Follows stores that something else fills.
    async fn follow(&self, stores: &Stores) {
        stores.nodes_known().await;
        let changed = self.changed.clone();
        stores.on_free_nodes_change(move || changed.notify_one());
        loop {
            let start = Instant::now();
            let broken = [stores.nodes.broken_for(), stores.pods.broken_for()];
            let is_stale = broken.into_iter().flatten().any(|since| since > STALE);
            let next = if is_stale { Vec::new() } else { self.compute(stores.clone()).await };
            self.sender.send_if_modified(|current| {
                let differs = **current != next;
                *current = Arc::new(next);
                differs
            });
            tokio::time::sleep(INTERVAL.max(start.elapsed() * SHARE)).await;
            // A watch may fail, and work again, without a change.
            let pause = if is_stale { INTERVAL } else { STALE };
            let _ = tokio::time::timeout(pause, self.changed.notified()).await;
        }
    }

    /// The room of each flavor. With thousands of nodes this takes longer than a task may.
    async fn compute(&self, stores: Stores) -> Vec<v1::FlavorRoom> {
        let flavors = self.flavors.all();
        let compute = move || rooms(&stores.free_nodes(), &flavors);
        match tokio::task::spawn_blocking(compute).await {
            Ok(rooms) => rooms,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime ends.
            Err(_) => Vec::new(),
        }
    }
}

/// Whether the server lets the account read nodes and pods, as far as it answers.
async fn may_read(client: &kube::Client) -> bool {
    let one = ListParams::default().limit(1);
    let nodes = Api::<Node>::all(client.clone());
    let pods = Api::<Pod>::all(client.clone());
    let refused = |error: &kube::Error| matches!(error, kube::Error::Api(it) if it.code == 403);
    let nodes = with_deadline(nodes.list(&one)).await.err();
    let pods = with_deadline(pods.list(&one)).await.err();
    ![nodes, pods].iter().flatten().any(refused)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;
    use serde_json::json;
    use switchyard_platform::store::Feed;

    use super::*;

    /// A server that forbids all, and counts the requests.
    fn forbidding() -> (kube::Client, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let answer = tower::service_fn(move |_: http::Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                "reason": "Forbidden", "message": "no",
            });
            let body = Body::from(status.to_string().into_bytes());
            let answer = http::Response::builder().status(403).body(body);
            std::future::ready(answer)
        });
        (kube::Client::new(answer, "default"), requests)
    }

    fn flavor(name: &str) -> ResourceFlavor {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {}})).unwrap()
    }

    /// Stores with one node, as if their watches ran.
    fn with_node(stores: &Stores) {
        let node = json!({
            "metadata": {"name": "n"},
            "status": {
                "allocatable": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        stores.nodes.insert(serde_json::from_value(node).unwrap());
        stores.nodes.set_ready();
        stores.pods.set_ready();
    }

    #[tokio::test(start_paused = true)]
    async fn refused_nodes_are_probed_again_until_shared_ones_come() {
        let (client, requests) = forbidding();
        let stores = Stores::for_nodes();
        stores.resource_flavors.insert(flavor("f"));
        let source = RoomSource::beside_controller(client, Arc::new(stores.clone()));
        tokio::time::sleep(PROBE_AGAIN).await;
        assert_eq!(requests.load(Ordering::SeqCst), 0, "nothing reads it");
        let mut rooms = source.subscribe();
        tokio::time::sleep(PROBE_AGAIN * 2 + PROBE_AGAIN / 2).await;
        assert_eq!(requests.load(Ordering::SeqCst), 3 * 2, "nodes and pods");
        assert!(rooms.borrow_and_update().is_empty());

        // The controller's first Topology.
        with_node(&stores);
        tokio::time::timeout(INTERVAL, rooms.changed()).await.unwrap().unwrap();
        assert_eq!(rooms.borrow_and_update()[0].flavor, "f");
    }

    #[tokio::test(start_paused = true)]
    async fn new_flavor_gets_its_room_without_a_change_of_nodes() {
        let stores = Stores::for_nodes();
        with_node(&stores);
        let source = RoomSource::beside_controller(forbidding().0, Arc::new(stores.clone()));
        let mut rooms = source.subscribe();
        tokio::time::sleep(STALE / 2).await;
        assert!(rooms.borrow_and_update().is_empty());
        stores.resource_flavors.insert(flavor("f"));
        tokio::time::timeout(INTERVAL, rooms.changed()).await.unwrap().unwrap();
        assert_eq!(rooms.borrow_and_update()[0].flavor, "f");
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_known_again_soon_after_a_watch_recovers() {
        let stores = Stores::for_nodes();
        with_node(&stores);
        stores.resource_flavors.insert(flavor("f"));
        let source = RoomSource::beside_controller(forbidding().0, Arc::new(stores.clone()));
        let mut rooms = source.subscribe();
        tokio::time::sleep(INTERVAL * 2).await;
        assert_eq!(rooms.borrow_and_update().len(), 1);
        let watch = Feed::new(stores.nodes.clone());
        watch.failed();
        tokio::time::sleep(STALE * 2 + INTERVAL * 2).await;
        assert!(rooms.borrow_and_update().is_empty());
        watch.recovered();
        tokio::time::timeout(INTERVAL * 3, rooms.changed()).await.unwrap().unwrap();
        assert_eq!(rooms.borrow_and_update()[0].flavor, "f");
    }
}
