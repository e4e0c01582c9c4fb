//! Agents that run in this process for workers reached by a kubeconfig.
//!
//! Only the leader runs them, so two hub replicas never drive one worker.

mod copy_proof;
mod duplicate_kubeconfigs;
mod multikueue_takeover;
mod profile;
mod source;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use parking_lot::Mutex;
use switchyard_agent::DryRunCounts;
use switchyard_agent::foreign::ForeignMarks;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_platform::store::Store;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use duplicate_kubeconfigs::{ClaimRank, DuplicateKubeconfigs};
use source::KubeconfigRef;
pub use source::{ClusterProfiles, KubeconfigSource, PATH_PREFIX};
use worker::Worker;

use crate::reachability::Reachability;
use crate::server::{CopyKeys, Sessions};

/// The software name of hosted agents.
pub const HOSTED_SOFTWARE: &str =
    concat!("switchyard-hub/", env!("CARGO_PKG_VERSION"), " (hosted)");

/// Kueue's feature gate for ClusterProfiles.
pub const CLUSTER_PROFILE_GATE: &str = "MultiKueueClusterProfile";

/// The reachability of kubeconfig workers, for their conditions.
#[derive(Debug, Default)]
pub struct HostedStates {
    states: Mutex<BTreeMap<String, Reachability>>,
    duplicates: Mutex<DuplicateKubeconfigs>,
    pub changed: Notify,
}

impl HostedStates {
    /// None until the first attempt has ended.
    pub fn get(&self, cluster: &str) -> Option<Reachability> {
        self.states.lock().get(cluster).cloned()
    }

    fn set(&self, cluster: &str, reach: Reachability) {
        let mut states = self.states.lock();
        let news = states.get(cluster) != Some(&reach);
        states.insert(cluster.to_owned(), reach);
        drop(states);
        if news {
            self.changed.notify_one();
        }
    }

    fn forget(&self, cluster: &str) {
        self.states.lock().remove(cluster);
        self.duplicates.lock().forget(cluster);
    }
}

/// Parts of the hub that hosted agents use.
pub struct Hosting {
    pub clusters: Store<MultiKueueCluster>,
    pub source: KubeconfigSource,
    pub sessions: Arc<Sessions>,
    pub states: Arc<HostedStates>,
    pub hub_id: String,
    /// `multiKueue.origin` of the configuration.
    pub origin: String,
    /// The job kinds that may be sent.
    pub frameworks: Vec<String>,
    /// The keys that prove copies.
    pub copy_keys: Arc<CopyKeys>,
    /// Counts objects on workers that carry a mark but are no copies.
    pub foreign: ForeignMarks,
    /// The hub's own cluster.
    pub ctx: Arc<switchyard_controller::Context>,
    /// The term in which hosted agents may run.
    pub term: watch::Receiver<Option<u64>>,
}

struct RunningAgent {
    uid: String,
    reference: KubeconfigRef,
    term: u64,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Running agents, and cancelled ones that have not ended. A cluster's next agent waits for the one
/// before; other clusters do not.
#[derive(Default)]
struct Agents {
    running: BTreeMap<String, RunningAgent>,
    ending: BTreeMap<String, JoinHandle<()>>,
    dry_runs: DryRunCounts,
}

impl Agents {
    fn end(&mut self, name: &str) {
        if let Some(one) = self.running.remove(name) {
            one.stop.cancel();
            self.ending.insert(name.to_owned(), one.task);
        }
        self.ending.retain(|_, task| !task.is_finished());
    }

    /// Stops all agents and waits for them.
    async fn end_all(mut self) {
        for name in self.running.keys().cloned().collect::<Vec<_>>() {
            self.end(&name);
        }
        futures::future::join_all(self.ending.into_values().map(join_agent)).await;
    }
}

/// Runs an agent for each kubeconfig worker until shutdown.
pub async fn run(hosting: Hosting, shutdown: CancellationToken) {
    let changed = Arc::new(Notify::new());
    let ring = changed.clone();
    hosting.clusters.subscribe(move |_| ring.notify_one());
    let mut term = hosting.term.clone();
    let mut agents = Agents::default();
    let counts = agents.dry_runs.clone();
    hosting
        .ctx
        .metrics
        .register(|registry| counts.register(registry.sub_registry_with_prefix("switchyard")));
    loop {
        let now = *term.borrow_and_update();
        reconcile(&hosting, now, &mut agents, &shutdown);
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = changed.notified() => {}
            changed = term.changed() => if changed.is_err() { break },
        }
    }
    agents.end_all().await;
}

fn reconcile(
    hosting: &Hosting,
    term: Option<u64>,
    agents: &mut Agents,
    shutdown: &CancellationToken,
) {
    let wanted: BTreeMap<String, (String, KubeconfigRef)> = match term {
        None => BTreeMap::new(),
        Some(_) => hosting
            .clusters
            .all()
            .iter()
            .filter_map(|cluster| wanted(&hosting.source, cluster))
            .collect(),
    };
    let over: Vec<String> = agents
        .running
        .iter()
        .filter(|(name, one)| {
            let same = wanted
                .get(*name)
                .is_some_and(|(uid, reference)| *uid == one.uid && *reference == one.reference);
            !same || Some(one.term) != term || one.task.is_finished()
        })
        .map(|(name, _)| name.clone())
        .collect();
    for name in over {
        agents.end(&name);
        hosting.states.forget(&name);
    }
    let Some(term) = term else { return };
    for (name, (uid, reference)) in wanted {
        if agents.running.contains_key(&name) {
            continue;
        }
        let before = agents.ending.remove(&name);
        let worker = Worker {
            cluster: name.clone(),
            reference: reference.clone(),
            source: hosting.source.clone(),
            sessions: hosting.sessions.clone(),
            states: hosting.states.clone(),
            hub_id: hosting.hub_id.clone(),
            origin: hosting.origin.clone(),
            clusters: hosting.clusters.clone(),
            frameworks: hosting.frameworks.clone(),
            dry_runs: agents.dry_runs.clone(),
            copy_keys: hosting.copy_keys.clone(),
            foreign: hosting.foreign.clone(),
            ctx: hosting.ctx.clone(),
        };
        let stop = shutdown.child_token();
        let told = stop.clone();
        let task = tokio::spawn(async move {
            // Two agents must never drive one cluster.
            if let Some(before) = before {
                join_agent(before).await;
            }
            worker.run(told).await;
        });
        agents.running.insert(name, RunningAgent { uid, reference, term, stop, task });
    }
}

/// The MultiKueueClusters with a kubeconfig, as [`ClaimRank`].
fn ranks(source: &KubeconfigSource, clusters: &Store<MultiKueueCluster>) -> Vec<ClaimRank> {
    let hosted = clusters.all().into_iter().filter(|cluster| wanted(source, cluster).is_some());
    let created =
        |cluster: &MultiKueueCluster| cluster.creation_timestamp().map_or(0, |at| at.0.as_second());
    let unknown = |cluster: &MultiKueueCluster| {
        let agent = cluster.status.as_ref().and_then(|status| status.agent.as_ref());
        agent.is_none_or(|agent| agent.cluster_uid.is_none())
    };
    hosted.map(|cluster| (unknown(&cluster), created(&cluster), cluster.name_any())).collect()
}

fn wanted(
    source: &KubeconfigSource,
    cluster: &MultiKueueCluster,
) -> Option<(String, (String, KubeconfigRef))> {
    let reference = source.reference(cluster)?;
    let living = cluster.metadata.deletion_timestamp.is_none();
    living.then(|| (cluster.name_any(), (cluster.uid().unwrap_or_default(), reference)))
}

async fn join_agent(task: JoinHandle<()>) {
    if task.await.is_err() {
        tracing::error!("a hosted agent panicked");
    }
}
