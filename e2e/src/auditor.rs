//! The auditor beside every test: no queue may be charged less than its pods ask for, for longer than an eviction takes.
//!
//! All clusters of the process are looked at every few seconds, as `switchyard audit` looks at them. A finding that outlasts
//! [`GRACE`] fails the test that runs then.

use std::collections::BTreeMap;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use switchyard::audit::see;
use switchyard_audit::{Cluster, Finding, audit, compare};
use tokio::time::{Instant, timeout};

use crate::fleet::HUB;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(5);
/// How long a finding may last: the grace period of an eviction, and statuses that are written a moment later.
const GRACE: Duration = Duration::from_secs(20);
/// How long the lists of a cluster may take.
const LISTS: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Watched {
    clusters: Vec<(String, Client)>,
    /// Why nothing is said of this process's clusters.
    left_alone: Option<&'static str>,
    /// What outlasted the grace, by its key.
    outlasted: BTreeMap<String, String>,
}

static WATCHED: Mutex<Watched> =
    Mutex::new(Watched { clusters: Vec::new(), left_alone: None, outlasted: BTreeMap::new() });

fn watched<T>(with: impl FnOnce(&mut Watched) -> T) -> T {
    with(&mut WATCHED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Has a cluster looked at from now on. One that is gone cannot be read, and nothing is said of it.
pub(crate) fn add(name: &str, client: &Client) {
    watched(|it| it.clusters.push((name.to_owned(), client.clone())));
}

/// Leaves the clusters of this process alone, for this reason: something other than Switchyard runs there, or the test brings about
/// what the auditor finds.
pub fn leave_alone(why: &'static str) {
    watched(|it| it.left_alone = Some(why));
}

/// Begins to look, once.
pub(crate) fn start(runtime: &tokio::runtime::Runtime) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(runtime.spawn(look_on())));
}

/// What outlasted the grace since the last call; nothing where the clusters are left alone.
pub(crate) fn outlasted() -> Vec<String> {
    watched(|it| {
        let outlasted = std::mem::take(&mut it.outlasted);
        if it.left_alone.is_some() { Vec::new() } else { outlasted.into_values().collect() }
    })
}

async fn look_on() {
    let mut since = BTreeMap::<String, Instant>::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let (clusters, left_alone) = watched(|it| (it.clusters.clone(), it.left_alone.is_some()));
        if left_alone {
            return;
        }
        let look = |(name, client): (String, Client)| async move {
            timeout(LISTS, see(&client, &name, None)).await.ok()?.ok()
        };
        let seen: Vec<Cluster> = join_all(clusters.into_iter().map(look)).await.into_iter().flatten().collect();
        let found = findings(&seen);
        let now = Instant::now();
        since.retain(|key, _| found.contains_key(key));
        for (key, finding) in found {
            let lasted = now.duration_since(*since.entry(key.clone()).or_insert(now));
            if lasted >= GRACE {
                let told = format!("{:?} on {} for {lasted:.0?}: {}", finding.kind, finding.cluster, finding.message);
                watched(|it| it.outlasted.insert(key, told));
            }
        }
    }
}

fn findings(seen: &[Cluster]) -> BTreeMap<String, Finding> {
    let (hubs, workers): (Vec<&Cluster>, Vec<&Cluster>) = seen.iter().partition(|cluster| cluster.name == HUB);
    let mut found: Vec<Finding> = seen.iter().flat_map(audit).collect();
    // Of two fleets in one process nobody can tell which workers belong to which hub.
    if let [hub] = hubs.as_slice() {
        let workers: Vec<Cluster> = workers.into_iter().cloned().collect();
        found.extend(compare(hub, &workers));
    }
    found.into_iter().map(|finding| (finding.key(), finding)).collect()
}
