//! Agents that run in this process, against workers that are reached by a kubeconfig.
//!
//! Only a leader runs them: two hubs never drive one worker by the same kubeconfig.

mod adopt;
mod duplicate_kubeconfigs;
mod keyed;
pub mod kubeconfig;
mod profile;
mod source;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use parking_lot::{Mutex, MutexGuard};
use switchyard_agent::DryRunCounts;
use switchyard_agent::foreign::ForeignMarks;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_platform::store::Store;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use duplicate_kubeconfigs::{Rank, Twins};
use source::Reference;
pub use source::{PATH_PREFIX, Profiles, Source};
use worker::Worker;

use crate::reachability::Reach;
use crate::server::{CopyKeys, Sessions};

/// What agents in this process call themselves.
pub const HOSTED_SOFTWARE: &str =
    concat!("switchyard-hub/", env!("CARGO_PKG_VERSION"), " (hosted)");

/// The feature gate of clusters that are reached by their ClusterProfile.
pub const CLUSTER_PROFILE_GATE: &str = "MultiKueueClusterProfile";

/// Whether each kubeconfig worker is reached, for its condition.
#[derive(Debug, Default)]
pub struct HostedStates {
    states: Mutex<BTreeMap<String, Reach>>,
    twins: Mutex<Twins>,
    /// Rung at each change.
    pub bell: Notify,
}

impl HostedStates {
    /// Of one worker, once the first try has ended.
    pub fn get(&self, cluster: &str) -> Option<Reach> {
        self.states.lock().get(cluster).cloned()
    }

    fn set(&self, cluster: &str, reach: Reach) {
        let mut states = self.states.lock();
        let news = states.get(cluster) != Some(&reach);
        states.insert(cluster.to_owned(), reach);
        drop(states);
        if news {
            self.bell.notify_one();
        }
    }

    fn forget(&self, cluster: &str) {
        self.states.lock().remove(cluster);
        self.twins().forget(cluster);
    }

    fn twins(&self) -> MutexGuard<'_, Twins> {
        self.twins.lock()
    }
}

/// What the hosted agents run with.
pub struct Hosting {
    /// The clusters.
    pub clusters: Store<MultiKueueCluster>,
    /// Their kubeconfigs.
    pub source: Source,
    /// Their sessions.
    pub sessions: Arc<Sessions>,
    /// What is told of them.
    pub states: Arc<HostedStates>,
    /// The hub's id.
    pub hub_id: String,
    /// `multiKueue.origin`.
    pub origin: String,
    /// The kinds of jobs that may be sent.
    pub frameworks: Vec<String>,
    /// By their keys the copies on each worker are known.
    pub copy_keys: Arc<CopyKeys>,
    /// Counts objects there that are no copies.
    pub foreign: ForeignMarks,
    /// The hub's own cluster.
    pub ctx: Arc<switchyard_controller::Context>,
    /// The term in which they may run.
    pub term: watch::Receiver<Option<u64>>,
}

struct Running {
    uid: String,
    reference: Reference,
    term: u64,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The agents that run, and those that were told to end. Of one cluster, the next waits for the one before; no cluster
/// waits for another's.
#[derive(Default)]
struct Agents {
    running: BTreeMap<String, Running>,
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

    /// Ends all, and waits until they have.
    async fn end_all(mut self) {
        for name in self.running.keys().cloned().collect::<Vec<_>>() {
            self.end(&name);
        }
        futures::future::join_all(self.ending.into_values().map(ended)).await;
    }
}

/// Runs an agent for each kubeconfig worker until shutdown.
pub async fn run(hosting: Hosting, shutdown: CancellationToken) {
    let bell = Arc::new(Notify::new());
    let ring = bell.clone();
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
            () = bell.notified() => {}
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
    let wanted: BTreeMap<String, (String, Reference)> = match term {
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
            // Two must never drive one cluster.
            if let Some(before) = before {
                ended(before).await;
            }
            worker.run(told).await;
        });
        agents.running.insert(name, Running { uid, reference, term, stop, task });
    }
}

/// All that have a kubeconfig: those whose cluster is known before others, by age.
fn ranks(source: &Source, clusters: &Store<MultiKueueCluster>) -> Vec<Rank> {
    let hosted = clusters.all().into_iter().filter(|cluster| wanted(source, cluster).is_some());
    let created =
        |cluster: &MultiKueueCluster| cluster.creation_timestamp().map_or(0, |at| at.0.as_second());
    let unknown = |cluster: &MultiKueueCluster| {
        let agent = cluster.status.as_ref().and_then(|status| status.agent.as_ref());
        agent.is_none_or(|agent| agent.cluster_uid.is_none())
    };
    hosted.map(|cluster| (unknown(&cluster), created(&cluster), cluster.name_any())).collect()
}

fn wanted(source: &Source, cluster: &MultiKueueCluster) -> Option<(String, (String, Reference))> {
    let reference = source.reference(cluster)?;
    let living = cluster.metadata.deletion_timestamp.is_none();
    living.then(|| (cluster.name_any(), (cluster.uid().unwrap_or_default(), reference)))
}

async fn ended(task: JoinHandle<()>) {
    if task.await.is_err() {
        tracing::error!("a hosted agent panicked");
    }
}
