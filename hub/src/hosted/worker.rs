//! One kubeconfig worker: its kubeconfig is loaded and watched, its cluster is connected to, and the same agent core
//! that runs in a worker cluster runs here against it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt as _};
use switchyard_agent::foreign::ForeignMarks;
use switchyard_agent::link;
use switchyard_agent::proof::{Keys, Seal};
use switchyard_agent::{CapacitySource, DryRunCounts, cluster_uid, run_core};
use switchyard_api::conditions::reasons::multi_kueue_cluster as reasons;
use switchyard_api::names;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_controller::Context;
use switchyard_controller::store::Store;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::adopt::Adoption;
use super::duplicate_kubeconfigs::{Claim, server};
use super::kubeconfig::BadKubeconfig;
use super::source::{Reference, Source};
use super::{HOSTED_SOFTWARE, HostedStates, ranks};
use crate::api_objects::has_jobs;
use crate::reachability::{self, Reach};
use crate::server::{CopyKeys, Sessions};

/// How often the kubeconfig is looked at for a rotation.
const LOOK: Duration = Duration::from_secs(3);
/// How often a connected cluster is asked whether it is there, and for how long an answer is waited for.
const PROBE: Duration = Duration::from_secs(10);
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// Unanswered questions in a row that end the session.
const PROBES: u32 = 2;
/// How often it is looked whether an older cluster's kubeconfig has been read.
const CLAIM: Duration = Duration::from_millis(100);
/// Kueue's back-off between attempts to connect: 5 s, doubling up to 320 s.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const RETRY_STEPS: u32 = 7;

/// How long after the `failures`-th failure the next attempt is made.
fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY * (1 << failures.clamp(1, RETRY_STEPS).saturating_sub(1))
}

/// What a worker runs with.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) cluster: String,
    pub(super) reference: Reference,
    pub(super) source: Source,
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

/// Why a try has ended.
enum End {
    /// The kubeconfig is another now.
    Rotated,
    /// The cluster is not reached.
    Lost(String),
    /// Another MultiKueueCluster leads to the cluster with this uid.
    Taken(String),
    /// It is the cluster with this uid, and its jobs are on another one.
    Stranger(String),
    /// It is the hub's own cluster.
    Own,
    /// The key of the copies there has come into force.
    Keyed,
    /// The hub's term has ended, or the cluster's.
    Over,
}

impl Worker {
    /// Runs until shutdown.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let mut failures = 0;
        let mut last_bad = None;
        while !shutdown.is_cancelled() {
            let loaded = self.source.load(&self.reference).await;
            let parsed =
                loaded.and_then(|bytes| self.reference.parse(&bytes).map(|config| (bytes, config)));
            let (bytes, config) = match parsed {
                Ok(parsed) => parsed,
                Err(bad) => {
                    if last_bad.as_ref() != Some(&bad) {
                        tracing::warn!(cluster = self.cluster, reason = bad.reason(), error = %bad, "kubeconfig not usable");
                        self.states.set(&self.cluster, Reach::failed(bad.reason(), bad.message()));
                        last_bad = Some(bad);
                    }
                    self.states.twins().names(&self.cluster, None);
                    pause(LOOK, &shutdown).await;
                    continue;
                }
            };
            last_bad = None;
            self.states.twins().names(&self.cluster, server(&config));
            if !self.alone(&shutdown).await {
                continue;
            }
            match self.attempt(&bytes, config, &mut failures, &shutdown).await {
                End::Over => return,
                End::Rotated => {
                    tracing::info!(cluster = self.cluster, "kubeconfig rotated, connecting anew");
                    failures = 0;
                }
                End::Keyed => {
                    tracing::info!(
                        cluster = self.cluster,
                        "only what has a proof is a copy there, connecting anew"
                    );
                    failures = 0;
                }
                End::Taken(uid) => self.wait_for_twin(&bytes, &uid, &shutdown).await,
                End::Own => self.wait_while_own(&bytes, &shutdown).await,
                End::Stranger(uid) => self.wait_while_stranger(&bytes, &uid, &shutdown).await,
                End::Lost(error) => {
                    failures += 1;
                    let wait = retry_after(failures);
                    self.failed(failures, wait, &error);
                    self.wait_for_change(&bytes, wait, &shutdown).await;
                }
            }
        }
    }

    fn claim(&self) -> Claim {
        self.states.twins().claim(&self.cluster, &ranks(&self.source, &self.clusters))
    }

    /// Whether no other MultiKueueCluster has the worker. If one has, says so and waits a moment.
    async fn alone(&self, shutdown: &CancellationToken) -> bool {
        match self.claim() {
            Claim::Free => return true,
            Claim::Wait => pause(CLAIM, shutdown).await,
            Claim::Taken(by) => {
                let message = format!(
                    "its kubeconfig names the same API server as MultiKueueCluster \"{by}\"; delete one of the two"
                );
                self.states.set(&self.cluster, Reach::failed(reasons::DUPLICATE_CLUSTER, message));
                pause(LOOK, shutdown).await;
            }
        }
        false
    }

    /// Returns when another MultiKueueCluster turns out to have the worker.
    async fn contested(&self) {
        while !matches!(self.claim(), Claim::Taken(_)) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The uid of the cluster that this MultiKueueCluster was last connected to.
    pub(super) fn known_uid(&self) -> Option<String> {
        self.clusters.get("", &self.cluster)?.status.as_ref()?.agent.as_ref()?.cluster_uid.clone()
    }

    /// The uid of the cluster that has the jobs of this MultiKueueCluster, if that is another one. Its silence about them would
    /// be taken for their end.
    fn known_elsewhere(&self, uid: &str) -> Option<String> {
        let known = self.known_uid()?;
        (is_another(&known, uid) && has_jobs(&self.ctx.stores.workloads, &self.cluster))
            .then_some(known)
    }

    /// Waits until the cluster is no other one's, or the kubeconfig leads elsewhere.
    async fn wait_for_twin(&self, bytes: &[u8], uid: &str, shutdown: &CancellationToken) {
        let warn = |twin: &str| {
            tracing::warn!(
                cluster = self.cluster,
                twin,
                "not used: another MultiKueueCluster leads to the same cluster"
            );
        };
        let holder = || self.sessions.holder(&self.cluster, uid);
        self.wait_while(bytes, holder, reachability::twin, warn, shutdown).await;
    }

    /// Waits until the kubeconfig leads elsewhere, or no job is left that was sent to the other cluster.
    async fn wait_while_stranger(&self, bytes: &[u8], uid: &str, shutdown: &CancellationToken) {
        let warn = |known: &str| {
            tracing::warn!(
                cluster = self.cluster,
                known,
                found = uid,
                "not used: the kubeconfig leads to another cluster"
            );
        };
        let reach = |known: &str| reachability::stranger(known, uid);
        self.wait_while(bytes, || self.known_elsewhere(uid), reach, warn, shutdown).await;
    }

    /// Shows that another cluster is in the way while `conflict` names one, or until the kubeconfig leads elsewhere. Meanwhile
    /// this cluster claims no API server.
    async fn wait_while(
        &self,
        bytes: &[u8],
        conflict: impl Fn() -> Option<String>,
        reach: impl Fn(&str) -> Reach,
        warn: impl Fn(&str),
        shutdown: &CancellationToken,
    ) {
        self.states.twins().names(&self.cluster, None);
        let conflicts = async {
            while let Some(other) = conflict() {
                let reach = reach(&other);
                if self.states.get(&self.cluster).as_ref() != Some(&reach) {
                    warn(&other);
                    self.states.set(&self.cluster, reach);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = conflicts => {}
            () = self.changed(bytes) => {}
        }
    }

    /// Whether somebody wants the hub's own cluster to be a worker.
    fn may_be_own(&self) -> bool {
        let cluster = self.clusters.get("", &self.cluster);
        cluster.is_some_and(|it| {
            it.annotations().get(names::OWN_CLUSTER).is_some_and(|value| value == "allowed")
        })
    }

    /// Whether the cluster with this uid is the hub's own, and nobody asked for that. The hub's id may be that of a cluster from
    /// whose backup it was brought back.
    async fn is_own(&self, uid: &str) -> bool {
        if self.may_be_own() || uid.is_empty() {
            return false;
        }
        let own = tokio::time::timeout(PROBE_DEADLINE, cluster_uid(&self.ctx.client))
            .await
            .unwrap_or_default();
        uid == own || (own.is_empty() && uid == self.hub_id)
    }

    /// Waits until the kubeconfig leads elsewhere, or somebody wants the hub's own cluster to be used.
    async fn wait_while_own(&self, bytes: &[u8], shutdown: &CancellationToken) {
        let warn = |_: &str| {
            tracing::warn!(
                cluster = self.cluster,
                "not used: the kubeconfig leads to the hub's own cluster"
            );
        };
        let refused = || (!self.may_be_own()).then(|| self.hub_id.clone());
        self.wait_while(bytes, refused, |_| reachability::own_cluster(), warn, shutdown).await;
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
        self.states.set(&self.cluster, Reach::failed(reasons::CLIENT_CONNECTION_FAILED, message));
    }

    /// Waits for the next attempt, which a changed kubeconfig brings forward.
    async fn wait_for_change(&self, bytes: &[u8], wait: Duration, shutdown: &CancellationToken) {
        tokio::select! {
            () = pause(wait, shutdown) => {}
            () = self.changed(bytes) => {}
        }
    }

    /// Returns when the kubeconfig is another. That the hub's API server is away says nothing of it.
    async fn changed(&self, bytes: &[u8]) {
        loop {
            tokio::time::sleep(LOOK).await;
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
        config: Kubeconfig,
        failures: &mut u32,
        shutdown: &CancellationToken,
    ) -> End {
        let client = match connect(config).await {
            Ok(client) => client,
            Err(error) => return End::Lost(error),
        };
        let Some(epoch) = self.sessions.epoch() else {
            pause(Duration::from_secs(1), shutdown).await;
            return if shutdown.is_cancelled() { End::Over } else { End::Rotated };
        };
        let Ok(uid) = tokio::time::timeout(PROBE_DEADLINE, cluster_uid(&client)).await else {
            return End::Lost(format!("no answer within {PROBE_DEADLINE:?}"));
        };
        if self.is_own(&uid).await {
            return End::Own;
        }
        if self.known_elsewhere(&uid).is_some() {
            return End::Stranger(uid);
        }
        if !uid.is_empty() && self.sessions.holder(&self.cluster, &uid).is_some() {
            return End::Taken(uid);
        }
        let keys = tokio::select! {
            () = shutdown.cancelled() => return End::Over,
            keys = self.keys(&client, &uid) => keys,
        };
        let adoption = Adoption {
            ctx: &self.ctx,
            cluster: &self.cluster,
            seal: &Seal::new(&self.hub_id, keys.clone()),
            origin: &self.origin,
            remote: &client,
        };
        if let Err(error) = adoption.run().await {
            return End::Lost(error);
        }
        *failures = 0;
        self.states.set(&self.cluster, Reach::connected());
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
            () = shutdown.cancelled() => End::Over,
            ended = &mut core => match ended {
                Ok(Ok(())) => End::Lost("the agent core ended".into()),
                Ok(Err(error)) => End::Lost(format!("{error:#}")),
                Err(_) => End::Lost("the agent core panicked".into()),
            },
            _ = &mut session => End::Lost("the session ended".into()),
            () = self.changed(bytes) => End::Rotated,
            () = self.contested() => End::Rotated,
            () = self.keyed(&client, &keys, &uid) => End::Keyed,
            error = gone(&client) => End::Lost(error),
        };
        // The core drops its end of the link, and that ends the session, which tells the dispatcher.
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
            // Fence is not to be had for a worker without an agent of its own.
            memory: None,
        }
    }
}

/// Whether two uids are known and differ: a cluster that does not tell its own is taken for what it was known to be.
fn is_another(known: &str, found: &str) -> bool {
    !known.is_empty() && !found.is_empty() && known != found
}

/// Waits for a task that was told to end. Two cores must never drive one cluster.
async fn finish<T>(mut task: tokio::task::JoinHandle<T>) {
    if !task.is_finished()
        && tokio::time::timeout(Duration::from_secs(10), &mut task).await.is_err()
    {
        tracing::warn!("a hosted agent did not end in time, aborted");
        task.abort();
    }
}

async fn connect(config: Kubeconfig) -> Result<Client, String> {
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .map_err(|error| error.to_string())?;
    // Of a request that was repeated, the last answer does not say whether an earlier one happened.
    config.default_retry = false;
    let client = Client::try_from(config).map_err(|error| error.to_string())?;
    probe(&client).await?;
    Ok(client)
}

/// Asks for what every later call needs as well: an answer, and to be let in.
async fn probe(client: &Client) -> Result<(), String> {
    let workloads: kube::Api<switchyard_api::v1beta2::Workload> = kube::Api::all(client.clone());
    let one = kube::api::ListParams::default().limit(1);
    match tokio::time::timeout(PROBE_DEADLINE, workloads.list_metadata(&one)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {PROBE_DEADLINE:?}")),
    }
}

/// Returns when the cluster has not answered several times in a row.
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
    fn cluster_is_another_where_both_uids_are_known() {
        for (known, found, another) in
            [("a", "b", true), ("a", "a", false), ("", "b", false), ("a", "", false)]
        {
            assert_eq!(is_another(known, found), another, "{known:?} {found:?}");
        }
    }

    #[test]
    fn attempts_are_spaced_as_kueue_spaces_them() {
        let seconds: Vec<u64> = (1..10).map(|failures| retry_after(failures).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
    }
}
