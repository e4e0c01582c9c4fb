//! Watches Workloads and ClusterQueues, and holds what it sees against the tree.
//!
//! Every prefix of a watch of one kind is one state of the store, so the sum of all Workloads is checked after each event.
//! The status of a ClusterQueue is written a little later and is checked by itself: it must be allowed and consistent. Its
//! agreement with the Workloads is checked once both are quiet.

use std::{collections::BTreeMap, fmt, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::{
    Api, Resource, ResourceExt,
    api::{WatchEvent, WatchParams},
};
use switchyard_api::{
    quantity::amount_of,
    v1beta2::{
        ClusterQueue, ClusterQueueStatus, FlavorUsage, LocalQueueFlavorUsage, LocalQueueStatus,
        Workload,
    },
};
use switchyard_controller::workload;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{agreement::Agreement, tree::Tree};
use crate::bed::Bed;

/// Amounts by name of the workload.
type Held = BTreeMap<String, Holding>;

/// When nothing more is seen for so long, nothing more comes.
const QUIET: Duration = Duration::from_secs(1);

/// The amounts of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) cluster_queue: String,
    /// Thousandths of a CPU.
    pub(crate) milli: i64,
    pub(crate) admitted: bool,
}

/// Its amounts, if it has any.
pub(crate) fn holdings(subject: &Workload) -> Option<Holding> {
    if !workload::has_reservation(subject) || workload::is_finished(subject) {
        return None;
    }
    let admission = subject.status.as_ref()?.admission.as_ref()?;
    let usage = admission
        .pod_set_assignments
        .iter()
        .filter_map(|assignment| assignment.resource_usage.get("cpu"));
    Some(Holding {
        cluster_queue: admission.cluster_queue.clone(),
        milli: usage.map(|quantity| amount_of("cpu", quantity)).sum(),
        admitted: workload::is_admitted(subject),
    })
}

/// The status of a ClusterQueue, in thousandths of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) reserved: i64,
    pub(crate) used: i64,
    pub(crate) pending: i32,
    pub(crate) reserving: i32,
    pub(crate) admitted: i32,
}

pub(crate) fn shown(status: &ClusterQueueStatus) -> Shown {
    let total = |usage: &[FlavorUsage]| {
        usage
            .iter()
            .flat_map(|flavor| &flavor.resources)
            .map(|used| amount_of("cpu", &used.total))
            .sum()
    };
    Shown {
        reserved: total(&status.flavors_reservation),
        used: total(&status.flavors_usage),
        pending: status.pending_workloads,
        reserving: status.reserving_workloads,
        admitted: status.admitted_workloads,
    }
}

/// The same of a LocalQueue.
pub(crate) fn shown_locally(status: &LocalQueueStatus) -> Shown {
    let total = |usage: &[LocalQueueFlavorUsage]| {
        usage
            .iter()
            .flat_map(|flavor| &flavor.resources)
            .map(|used| amount_of("cpu", &used.total))
            .sum()
    };
    Shown {
        reserved: total(&status.flavors_reservation),
        used: total(&status.flavors_usage),
        pending: status.pending_workloads,
        reserving: status.reserving_workloads,
        admitted: status.admitted_workloads,
    }
}

/// The observations.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) workload_events: usize,
    pub(crate) statuses: usize,
    pub(crate) violations: Vec<String>,
    pub(crate) agreement: Agreement,
    most_in_use: i64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} changes of workloads and {} statuses of queues seen, at most {}m CPU in use, {} violations",
            self.workload_events,
            self.statuses,
            self.most_in_use,
            self.violations.len()
        )
    }
}

/// Two watches that run beside the test.
pub(crate) struct Observer {
    stop: CancellationToken,
    workloads: JoinHandle<Seen>,
    queues: JoinHandle<Seen>,
}

impl Observer {
    pub(crate) async fn start(bed: &Bed, tree: Tree) -> Self {
        let (stop, prefix) = (CancellationToken::new(), bed.part(""));
        let watch = Watch::start(Api::namespaced(bed.admin().clone(), &bed.namespace)).await;
        let workloads =
            tokio::spawn(follow_workloads(watch, stop.clone(), tree.clone(), prefix.clone()));
        let watch = Watch::start(Api::all(bed.admin().clone())).await;
        let queues = tokio::spawn(follow_queues(watch, stop.clone(), tree, prefix));
        Self { stop, workloads, queues }
    }

    /// Ends the watches when nothing more comes, and gives what they saw.
    pub(crate) async fn finish(self) -> Seen {
        self.stop.cancel();
        let (mut seen, queues) = (self.workloads.await.unwrap(), self.queues.await.unwrap());
        seen.statuses = queues.statuses;
        seen.violations.extend(queues.violations);
        seen.agreement.join(queues.agreement);
        seen
    }
}

async fn follow_workloads(
    mut watch: Watch<Workload>,
    until: CancellationToken,
    tree: Tree,
    prefix: String,
) -> Seen {
    let (mut seen, mut held) = (Seen::default(), Held::new());
    while let Some((subject, gone)) = watch.next(&until).await {
        let name = subject.name_any();
        match holdings(&subject).filter(|_| !gone) {
            Some(holding) => drop(held.insert(name.clone(), holding)),
            None => drop(held.remove(&name)),
        }
        seen.workload_events += 1;
        let sums = sums(&held, &prefix);
        let usage: BTreeMap<String, i64> =
            sums.iter().map(|(queue, (milli, _))| (queue.clone(), *milli)).collect();
        seen.agreement.held(revision(&subject), sums);
        seen.most_in_use = seen.most_in_use.max(usage.values().sum());
        let wrong = tree.violations(&usage).into_iter();
        let version = revision(&subject);
        seen.violations.extend(wrong.map(|wrong| format!("at {version}, after {name}: {wrong}")));
    }
    seen
}

async fn follow_queues(
    mut watch: Watch<ClusterQueue>,
    until: CancellationToken,
    tree: Tree,
    prefix: String,
) -> Seen {
    let mut seen = Seen::default();
    while let Some((queue, gone)) = watch.next(&until).await {
        let full = queue.name_any();
        let Some(name) = full.strip_prefix(&prefix).filter(|_| !gone) else { continue };
        let status = queue.status.clone().unwrap_or_default();
        seen.statuses += 1;
        let shown = shown(&status);
        seen.agreement.shown(revision(&queue), name, (shown.reserved, shown.reserving));
        let alone = BTreeMap::from([(name.to_owned(), shown.reserved)]);
        seen.violations.extend(
            tree.violations(&alone).into_iter().map(|wrong| format!("{name} shows that {wrong}")),
        );
        if shown.used > shown.reserved || shown.admitted > shown.reserving {
            seen.violations.push(format!("{name} shows {shown:?}"));
        }
        let node = tree.queues().find(|node| node.name == name);
        let nominal = node.map_or(0, |node| node.nominal * 1000);
        let member = node.is_some_and(|node| node.parent.is_some());
        for used in status.flavors_reservation.iter().flat_map(|flavor| &flavor.resources) {
            let (total, borrowed) =
                (amount_of("cpu", &used.total), amount_of("cpu", &used.borrowed));
            if borrowed != if member { (total - nominal).max(0) } else { 0 } {
                seen.violations.push(format!("{name} shows {borrowed} borrowed of {total}"));
            }
        }
    }
    seen
}

/// The amounts of the workloads of each ClusterQueue, by its short name, and their number.
fn sums(held: &Held, prefix: &str) -> BTreeMap<String, (i64, i32)> {
    let mut sums = BTreeMap::new();
    for holding in held.values() {
        let queue = holding.cluster_queue.strip_prefix(prefix).unwrap_or(&holding.cluster_queue);
        let sum: &mut (i64, i32) = sums.entry(queue.to_owned()).or_default();
        *sum = (sum.0 + holding.milli, sum.1 + 1);
    }
    sums
}

/// The revision of the store that an object is of.
fn revision(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap()
}

/// One kind's changes, in the order of the store, without gaps.
struct Watch<K> {
    api: Api<K>,
    version: String,
    listed: Vec<K>,
    changes: Option<BoxStream<'static, kube::Result<WatchEvent<K>>>>,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    async fn start(api: Api<K>) -> Self {
        let list = api.list(&Default::default()).await.unwrap();
        let version = list.metadata.resource_version.unwrap_or_default();
        Self { api, version, listed: list.items, changes: None }
    }

    /// The next change, and whether the object is gone; none when `until` is cancelled and nothing more comes for a moment.
    async fn next(&mut self, until: &CancellationToken) -> Option<(K, bool)> {
        if let Some(object) = self.listed.pop() {
            return Some((object, false));
        }
        loop {
            let ended = until.is_cancelled();
            let change = tokio::select! {
                biased;
                change = Self::change(&self.api, &self.version, &mut self.changes) => change,
                () = until.cancelled(), if !ended => continue,
                () = tokio::time::sleep(QUIET), if ended => return None,
            };
            let (object, gone) = match change {
                // The server ends a watch now and then; it goes on where it was.
                None | Some(Err(_)) => {
                    self.changes = None;
                    continue;
                }
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    (object, false)
                }
                Some(Ok(WatchEvent::Deleted(object))) => (object, true),
                Some(Ok(WatchEvent::Bookmark(mark))) => {
                    self.version = mark.metadata.resource_version;
                    continue;
                }
                Some(Ok(WatchEvent::Error(error))) => panic!("the watch has a gap: {error:?}"),
            };
            self.version = object.resource_version().unwrap_or_default();
            return Some((object, gone));
        }
    }

    async fn change(
        api: &Api<K>,
        version: &str,
        changes: &mut Option<BoxStream<'static, kube::Result<WatchEvent<K>>>>,
    ) -> Option<kube::Result<WatchEvent<K>>> {
        let params = WatchParams::default().timeout(250);
        let mut refused = 0;
        while changes.is_none() {
            match api.watch(&params, version).await {
                Ok(started) => *changes = Some(started.boxed()),
                // A busy API server refuses a watch now and then.
                Err(error) => {
                    refused += 1;
                    assert!(refused < 50, "the watch does not start: {error:?}");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
        changes.as_mut()?.next().await
    }
}
