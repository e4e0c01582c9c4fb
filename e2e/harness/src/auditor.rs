//! The auditor beside every test. A queue may be charged less than its pods request only for as long as an eviction takes.
//!
//! The auditor examines all clusters of the process every few seconds, as `switchyard audit` does. A finding that outlasts
//! [`GRACE`] fails the test that runs then. Where a test has ended the program of a cluster, the usage in the statuses is old until
//! a program has caught up, and is not examined.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Once};
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use parking_lot::Mutex;
use switchyard::audit::list_cluster;
pub use switchyard_audit::FindingKind;
use switchyard_audit::{Cluster, Finding, audit, compare};
use tokio::time::{Instant, timeout};

use crate::names::HUB;
use crate::usage_writer::UsageWriterState;

/// Time between two audits.
const PERIOD: Duration = Duration::from_secs(8);
/// How long a finding may last: the grace period of an eviction, and statuses that are written a moment later.
const GRACE: Duration = Duration::from_secs(20);
/// How long the lists of a cluster may take.
const LISTS: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Watched {
    clusters: Vec<WatchedCluster>,
    /// Findings that the tests of this process cause.
    expected: Vec<Expected>,
    /// Findings that outlasted the grace and that no test has reported yet.
    outlasted: Vec<String>,
}

#[derive(Clone)]
struct WatchedCluster {
    name: String,
    client: Client,
    /// `None` if it is unknown.
    usage_writer: Option<Arc<UsageWriterState>>,
}

/// A finding that a test causes.
struct Expected {
    kind: FindingKind,
    /// `None` stands for all objects.
    namespace: Option<String>,
}

impl Expected {
    fn is(&self, finding: &Finding) -> bool {
        let near = |namespace: &String| finding.objects.iter().any(|it| it.namespace == *namespace);
        self.kind == finding.kind && self.namespace.as_ref().is_none_or(near)
    }
}

static WATCHED: Mutex<Watched> =
    Mutex::new(Watched { clusters: Vec::new(), expected: Vec::new(), outlasted: Vec::new() });

fn watched<T>(with: impl FnOnce(&mut Watched) -> T) -> T {
    with(&mut WATCHED.lock())
}

/// Audits a cluster from now on. A cluster that is gone cannot be read, and leads to no finding.
pub(crate) fn add(cluster: &crate::Cluster) {
    let cluster = WatchedCluster {
        name: cluster.name().to_owned(),
        client: cluster.admin.clone(),
        usage_writer: Some(Arc::clone(&cluster.usage_writer)),
    };
    watched(|it| it.clusters.push(cluster));
}

/// Excuses findings that the tests of this process cause on purpose, with the reason. They fail no test.
pub fn expect(kinds: &[FindingKind], _why: &str) {
    announce(None, kinds);
}

/// As [`expect`], for findings about objects of one namespace.
pub fn expect_in(namespace: &str, kinds: &[FindingKind], _why: &str) {
    announce(Some(namespace), kinds);
}

fn announce(namespace: Option<&str>, kinds: &[FindingKind]) {
    let expected =
        |kind: &FindingKind| Expected { kind: *kind, namespace: namespace.map(str::to_owned) };
    watched(|it| it.expected.extend(kinds.iter().map(expected)));
}

/// Starts the audits. Later calls do nothing.
pub(crate) fn start(runtime: &tokio::runtime::Runtime) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(runtime.spawn(audit_repeatedly())));
}

/// Findings that outlasted the grace since the last call.
pub(crate) fn outlasted() -> Vec<String> {
    watched(|it| std::mem::take(&mut it.outlasted))
}

async fn audit_repeatedly() {
    let (mut memory, mut told) = (Memory::default(), BTreeSet::new());
    loop {
        tokio::time::sleep(PERIOD).await;
        let clusters = watched(|it| it.clusters.clone());
        let mut found = findings(&list_all(clusters).await);
        watched(|it| found.retain(|_, finding| !it.expected.iter().any(|known| known.is(finding))));
        for (key, text) in memory.lasting(found, GRACE) {
            // Only one test reports it.
            if told.insert(key) {
                watched(|it| it.outlasted.push(text));
            }
        }
    }
}

/// The first audit of each present finding.
#[derive(Debug, Default)]
pub struct Memory(BTreeMap<String, Instant>);

impl Memory {
    /// Findings of all audits within the last `grace`: key and text.
    pub fn lasting(
        &mut self,
        found: BTreeMap<String, Finding>,
        grace: Duration,
    ) -> Vec<(String, String)> {
        let now = Instant::now();
        self.0.retain(|key, _| found.contains_key(key));
        let lasts = |(key, it): (String, Finding)| {
            let lasted = now.duration_since(*self.0.entry(key.clone()).or_insert(now));
            let told =
                format!("{} on {} for {lasted:.0?}: {}", it.kind.name(), it.cluster, it.message);
            (lasted >= grace).then_some((key, told))
        };
        found.into_iter().filter_map(lasts).collect()
    }
}

/// The outcome of repeated audits.
#[derive(Debug, Default)]
pub struct AuditSummary {
    /// Number of audits.
    pub count: u32,
    /// Texts of findings that two audits in a row had.
    pub found: BTreeSet<String>,
}

/// Audits these clusters every second while `work` goes on.
pub async fn beside<T>(
    clusters: &[&crate::Cluster],
    work: impl Future<Output = T>,
) -> (T, AuditSummary) {
    const FAST_PERIOD: Duration = Duration::from_secs(1);
    let clusters: Vec<(String, Client)> =
        clusters.iter().map(|it| (it.name().to_owned(), it.admin.clone())).collect();
    let (mut memory, mut summary) = (Memory::default(), AuditSummary::default());
    let mut work = std::pin::pin!(work);
    loop {
        let next_audit = async {
            tokio::time::sleep(FAST_PERIOD).await;
            audit_once(clusters.clone()).await
        };
        tokio::select! {
            output = &mut work => return (output, summary),
            (_, found) = next_audit => {
                summary.count += 1;
                summary.found.extend(memory.lasting(found, FAST_PERIOD).into_iter().map(|(_, told)| told));
            }
        }
    }
}

/// Audits these clusters once. Returns how many could be listed, and the findings by key.
pub async fn audit_once(clusters: Vec<(String, Client)>) -> (usize, BTreeMap<String, Finding>) {
    let watch = |(name, client)| WatchedCluster { name, client, usage_writer: None };
    let listed = list_all(clusters.into_iter().map(watch).collect()).await;
    (listed.len(), findings(&listed))
}

struct ListedCluster {
    cluster: Cluster,
    usage_is_old: bool,
}

impl ListedCluster {
    fn findings(&self) -> impl Iterator<Item = Finding> {
        let is_old =
            |finding: &Finding| self.usage_is_old && finding.kind == FindingKind::UsageDiffers;
        audit(&self.cluster).into_iter().filter(move |finding| !is_old(finding))
    }
}

/// Lists the clusters that answer.
async fn list_all(clusters: Vec<WatchedCluster>) -> Vec<ListedCluster> {
    let list = |it: WatchedCluster| async move {
        let listed = timeout(LISTS, list_cluster(&it.client, &it.name, None)).await.ok()?;
        let is_behind = |writer: &Arc<UsageWriterState>| writer.is_behind(Instant::now());
        let usage_is_old = it.usage_writer.as_ref().is_some_and(is_behind);
        Some(ListedCluster { cluster: listed.ok()?, usage_is_old })
    };
    join_all(clusters.into_iter().map(list)).await.into_iter().flatten().collect()
}

fn findings(listed: &[ListedCluster]) -> BTreeMap<String, Finding> {
    let (hubs, workers): (Vec<&Cluster>, Vec<&Cluster>) =
        listed.iter().map(|it| &it.cluster).partition(|cluster| cluster.name == HUB);
    let mut found: Vec<Finding> = listed.iter().flat_map(ListedCluster::findings).collect();
    // With two fleets in one process, the workers of each hub are unknown.
    if let [hub] = hubs.as_slice() {
        let workers: Vec<Cluster> = workers.into_iter().cloned().collect();
        found.extend(compare(hub, &workers));
    }
    found.into_iter().map(|finding| (finding.key(), finding)).collect()
}
