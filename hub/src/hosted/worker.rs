//! One kubeconfig worker: loads and watches its kubeconfig, connects to its cluster, and runs the
//! same agent core that runs inside worker clusters.

mod conflicts;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use switchyard_agent::foreign::ForeignMarks;
use switchyard_agent::link;
use switchyard_agent::proof::{Keys, Seal};
use switchyard_agent::{CapacitySource, DryRunCounts, cluster_uid, run_core};
use switchyard_api::conditions::reasons::multi_kueue_cluster as reasons;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_controller::Context;
use switchyard_platform::api_server;
use switchyard_platform::store::Store;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::duplicate_kubeconfigs::server;
use super::multikueue_takeover::Adoption;
use super::source::{KubeconfigRef, KubeconfigSource};
use super::{HOSTED_SOFTWARE, HostedStates};
use crate::reachability::Reachability;
use crate::server::{CopyKeys, Sessions};
use switchyard_hub_pki::kubeconfig::BadKubeconfig;

/// How often the kubeconfig is read for a rotation.
const POLL: Duration = Duration::from_secs(3);
/// How often a connected cluster is probed, and the deadline of a probe.
const PROBE: Duration = Duration::from_secs(10);
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// Deadline of an exec plugin of a kubeconfig.
const EXEC_DEADLINE: Duration = Duration::from_secs(30);
/// Failed probes in a row that end the session.
const PROBES: u32 = 2;
/// How often a worker checks whether an older MultiKueueCluster's kubeconfig has been read.
const CLAIM_POLL: Duration = Duration::from_millis(100);
/// Kueue's back-off between connection attempts: 5 s, doubling up to 320 s.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const RETRY_STEPS: u32 = 7;

/// The pause after this many failures in a row.
fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY * (1 << failures.clamp(1, RETRY_STEPS).saturating_sub(1))
}

#[derive(Clone)]
pub(super) struct Worker {
    pub(super) cluster: String,
    pub(super) reference: KubeconfigRef,
    pub(super) source: KubeconfigSource,
    pub(super) sessions: Arc<Sessions>,
    pub(super) states: Arc<HostedStates>,
    pub(super) hub_id: String,
    pub(super) origin: String,
    pub(super) clusters: Store<MultiKueueCluster>,
    pub(super) frameworks: Vec<String>,
    pub(super) dry_runs: DryRunCounts,
    pub(super) copy_keys: Arc<CopyKeys>,
    pub(super) foreign: ForeignMarks,
    pub(super) ctx: Arc<Context>,
}

/// Why a connection ended.
enum ConnectionEnd {
    /// The kubeconfig changed.
    Rotated,
    /// The cluster does not answer.
    Lost(String),
    /// Another MultiKueueCluster leads to the cluster with this uid.
    Duplicate(String),
    /// The kubeconfig leads to the cluster with this uid, and the jobs are on another one.
    WrongCluster(String),
    /// The kubeconfig leads to the hub's own cluster.
    Own,
    /// The worker's key is enforced now.
    ProofEnforced,
    /// The term has ended, or the MultiKueueCluster is gone.
    Over,
}

impl Worker {
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let mut failures = 0;
        let mut last_bad = None;
        // A plugin that hangs keeps its thread, so each worker runs at most one.
        let exec = Arc::new(Semaphore::new(1));
        while !shutdown.is_cancelled() {
            let loaded = self.source.load(&self.reference).await;
            let parsed = loaded.and_then(|bytes| {
                let config = self.reference.parse(&bytes)?;
                let server = server(&config).ok_or_else(|| {
                    BadKubeconfig::Unreadable(
                        "invalid configuration: the context names no cluster of the kubeconfig"
                            .to_owned(),
                    )
                })?;
                Ok((bytes, config, server))
            });
            let (bytes, config, server) = match parsed {
                Ok(parsed) => parsed,
                Err(bad) => {
                    if last_bad.as_ref() != Some(&bad) {
                        tracing::warn!(cluster = self.cluster, reason = bad.reason(), error = %bad, "kubeconfig not usable");
                        self.states
                            .set(&self.cluster, Reachability::failed(bad.reason(), bad.message()));
                        last_bad = Some(bad);
                    }
                    self.states.duplicates.lock().record(&self.cluster, None);
                    pause(POLL, &shutdown).await;
                    continue;
                }
            };
            last_bad = None;
            self.states.duplicates.lock().record(&self.cluster, Some(server));
            if !self.alone(&shutdown).await {
                continue;
            }
            match self.attempt(&bytes, (config, &exec), &mut failures, &shutdown).await {
                ConnectionEnd::Over => return,
                ConnectionEnd::Rotated => {
                    tracing::info!(cluster = self.cluster, "kubeconfig rotated, connecting again");
                    failures = 0;
                }
                ConnectionEnd::ProofEnforced => {
                    tracing::info!(
                        cluster = self.cluster,
                        "only what has a proof is a copy there, connecting again"
                    );
                    failures = 0;
                }
                ConnectionEnd::Duplicate(uid) => {
                    self.wait_while_duplicate(&bytes, &uid, &shutdown).await
                }
                ConnectionEnd::Own => self.wait_while_own(&bytes, &shutdown).await,
                ConnectionEnd::WrongCluster(uid) => {
                    self.wait_while_wrong_cluster(&bytes, &uid, &shutdown).await
                }
                ConnectionEnd::Lost(error) => {
                    failures += 1;
                    let wait = retry_after(failures);
                    self.failed(failures, wait, &error);
                    self.wait_for_change(&bytes, wait, &shutdown).await;
                }
            }
        }
    }

    fn failed(&self, failures: u32, wait: Duration, error: &str) {
        tracing::warn!(
            cluster = self.cluster,
            failures,
            ?wait,
            error,
            "worker cluster not reached"
        );
        let next = SignedDuration::try_from(wait)
            .ok()
            .and_then(|wait| Timestamp::now().checked_add(wait).ok());
        let next = next.and_then(|at| Timestamp::from_second(at.as_second()).ok());
        let next = next.map_or_else(|| "later".to_owned(), |at| format!("at {at}"));
        let message = format!("{error}; failed attempts: {failures}, next attempt {next}");
        self.states
            .set(&self.cluster, Reachability::failed(reasons::CLIENT_CONNECTION_FAILED, message));
    }

    /// Waits for the next attempt. A changed kubeconfig ends the wait.
    async fn wait_for_change(&self, bytes: &[u8], wait: Duration, shutdown: &CancellationToken) {
        tokio::select! {
            () = pause(wait, shutdown) => {}
            () = self.changed(bytes) => {}
        }
    }

    /// Returns when the kubeconfig has changed. An unavailable hub API server is no change.
    async fn changed(&self, bytes: &[u8]) {
        loop {
            tokio::time::sleep(POLL).await;
            match self.source.load(&self.reference).await {
                Ok(now) if now == bytes => {}
                Err(BadKubeconfig::Unavailable(_)) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    async fn attempt(
        &self,
        bytes: &[u8],
        (config, exec): (Kubeconfig, &Arc<Semaphore>),
        failures: &mut u32,
        shutdown: &CancellationToken,
    ) -> ConnectionEnd {
        let connected = tokio::select! {
            () = shutdown.cancelled() => return ConnectionEnd::Over,
            connected = connect(config, exec) => connected,
        };
        let client = match connected {
            Ok(client) => client,
            Err(error) => return ConnectionEnd::Lost(error),
        };
        let Some(epoch) = self.sessions.epoch() else {
            pause(Duration::from_secs(1), shutdown).await;
            return if shutdown.is_cancelled() {
                ConnectionEnd::Over
            } else {
                ConnectionEnd::Rotated
            };
        };
        let Ok(uid) = tokio::time::timeout(PROBE_DEADLINE, cluster_uid(&client)).await else {
            return ConnectionEnd::Lost(format!("no answer within {PROBE_DEADLINE:?}"));
        };
        if self.is_own(&uid).await {
            return ConnectionEnd::Own;
        }
        if self.known_elsewhere(&uid).is_some() {
            return ConnectionEnd::WrongCluster(uid);
        }
        if !uid.is_empty() && self.sessions.holder(&self.cluster, &uid).is_some() {
            return ConnectionEnd::Duplicate(uid);
        }
        let keys = tokio::select! {
            () = shutdown.cancelled() => return ConnectionEnd::Over,
            keys = self.initial_keys(&client, &uid) => keys,
        };
        let adoption = Adoption {
            ctx: &self.ctx,
            cluster: &self.cluster,
            seal: &Seal::new(&self.hub_id, keys.clone()),
            origin: &self.origin,
            frameworks: &self.frameworks,
            remote: &client,
        };
        let adopted = tokio::select! {
            () = shutdown.cancelled() => return ConnectionEnd::Over,
            adopted = adoption.run() => adopted,
        };
        if let Err(error) = adopted {
            return ConnectionEnd::Lost(error);
        }
        *failures = 0;
        self.states.set(&self.cluster, Reachability::connected());
        tracing::info!(cluster = self.cluster, "worker cluster connected");

        let (agent, hub) = link::pair();
        let stop = shutdown.child_token();
        let source = CapacitySource::Watch(client.clone());
        let settings = self.settings(uid.clone(), keys.clone());
        let mut core = tokio::spawn(run_core(
            client.clone(),
            link::once(agent),
            source,
            settings,
            stop.clone(),
        ));
        let (sessions, cluster) = (self.sessions.clone(), self.cluster.clone());
        let mut session = tokio::spawn(async move {
            let inbound = ReceiverStream::new(hub.to_hub).map(Ok);
            sessions
                .run(&cluster, "hosted", epoch, inbound, hub.to_agent, std::future::ready(true))
                .await;
        });
        let end = tokio::select! {
            biased;
            () = shutdown.cancelled() => ConnectionEnd::Over,
            ended = &mut core => match ended {
                Ok(Ok(())) => ConnectionEnd::Lost("the agent core ended".into()),
                Ok(Err(error)) => ConnectionEnd::Lost(format!("{error:#}")),
                Err(_) => ConnectionEnd::Lost("the agent core panicked".into()),
            },
            _ = &mut session => ConnectionEnd::Lost("the session ended".into()),
            () = self.changed(bytes) => ConnectionEnd::Rotated,
            () = self.contested() => ConnectionEnd::Rotated,
            () = self.proof_enforced(&client, &keys, &uid) => ConnectionEnd::ProofEnforced,
            error = gone(&client) => ConnectionEnd::Lost(error),
        };
        // The core drops its end of the link. Then the session ends and reports to the
        // dispatcher.
        stop.cancel();
        finish(core).await;
        finish(session).await;
        end
    }

    fn settings(&self, cluster_uid: String, keys: Keys) -> switchyard_agent::Settings {
        switchyard_agent::Settings {
            cluster: self.cluster.clone(),
            cluster_uid,
            hub_id: self.hub_id.clone(),
            origin: self.origin.clone(),
            boot_id: format!("{:016x}", rand::random::<u64>()),
            software: HOSTED_SOFTWARE.to_owned(),
            namespaces: switchyard_agent::AllowedNamespaces::All,
            frameworks: self.frameworks.clone(),
            allowed: switchyard_agent::Allowed::default(),
            dry_runs: Some(self.dry_runs.clone()),
            keys,
            foreign: self.foreign.of(&self.cluster),
            concurrency: 32,
            // `Fence` needs an agent in the worker cluster.
            memory: None,
        }
    }
}

/// Waits for a cancelled task. Two cores must never drive one cluster.
async fn finish<T>(mut task: tokio::task::JoinHandle<T>) {
    if !task.is_finished()
        && tokio::time::timeout(Duration::from_secs(10), &mut task).await.is_err()
    {
        tracing::warn!("a hosted agent did not end in time, aborted");
        task.abort();
        let _ = task.await;
    }
}

/// `exec`: the permit for one exec plugin.
async fn connect(config: Kubeconfig, exec: &Arc<Semaphore>) -> Result<Client, String> {
    let mut config = api_server::of_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .map_err(|error| error.to_string())?;
    // After a retry, the last answer does not show whether an earlier request took effect.
    config.default_retry = false;
    // Making the client may run an exec plugin, which blocks.
    let permit = exec
        .clone()
        .try_acquire_owned()
        .map_err(|_| "the exec plugin of an earlier attempt still runs".to_owned())?;
    let made = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        Client::try_from(config)
    });
    let client = match tokio::time::timeout(EXEC_DEADLINE, made).await {
        Ok(Ok(made)) => made.map_err(|error| error.to_string())?,
        Ok(Err(_)) => return Err("the client could not be made".to_owned()),
        Err(_) => return Err(format!("no credentials within {EXEC_DEADLINE:?}")),
    };
    probe(&client).await?;
    Ok(client)
}

/// A cheap call with the permission that all later calls need.
async fn probe(client: &Client) -> Result<(), String> {
    let workloads: kube::Api<switchyard_api::v1beta2::Workload> = kube::Api::all(client.clone());
    let one = kube::api::ListParams::default().limit(1);
    match tokio::time::timeout(PROBE_DEADLINE, workloads.list_metadata(&one)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {PROBE_DEADLINE:?}")),
    }
}

/// Returns when several probes in a row have failed.
async fn gone(client: &Client) -> String {
    let mut failed = 0;
    loop {
        tokio::time::sleep(PROBE).await;
        match probe(client).await {
            Ok(()) => failed = 0,
            Err(error) => {
                failed += 1;
                if failed >= PROBES {
                    return error;
                }
            }
        }
    }
}

async fn pause(duration: Duration, shutdown: &CancellationToken) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(duration) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_retries_follow_kueues_back_off() {
        let seconds: Vec<u64> = (1..10).map(|failures| retry_after(failures).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
    }
}
