//! The system under test as its users run it: Switchyard's programs as processes, on real clusters. Each program has only the
//! rights of `deploy/rbac`.

pub(crate) mod programs;
mod tenant;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;
use switchyard::join_token::{self, JoinToken};
use switchyard_api::conditions;
use switchyard_api::v1beta2::MultiKueueCluster;

use crate::forward::Forward;
pub use crate::names::{HUB, NAMESPACE};
use crate::process::{Process, Program};
use crate::usage_writer::RunningWriter;
use crate::wait::eventually;
use crate::{Cluster, ClusterSpec, Environment, NodeSpec, ports, queues, ready};
pub use programs::account_in;
use programs::{HubPorts, SwitchyardProgram, agent_program, hub_program, single_program};
pub use tenant::{Tenant, TenantBuilder};

/// The replicas of a hub that has two. The first one leads at the start.
pub const REPLICAS: [&str; 2] = ["hub-first", "hub-second"];

/// How long a program may take to be ready. It takes a second or two when nothing else runs.
const READY: Duration = Duration::from_secs(60);

/// Describes a fleet; [`FleetBuilder::start`] makes it.
#[derive(Debug)]
pub struct FleetBuilder {
    name: String,
    hub: ClusterSpec,
    agents: Vec<ClusterSpec>,
    others: Vec<ClusterSpec>,
    config: Option<String>,
    agent_config: Option<String>,
    manifests: Vec<serde_json::Value>,
    hub_flags: Vec<String>,
    two: bool,
    agent_webhooks: bool,
}

impl FleetBuilder {
    /// Adds a worker cluster with an agent.
    #[must_use]
    pub fn agent(mut self, cluster: ClusterSpec) -> Self {
        self.agents.push(cluster);
        self
    }

    /// Adds a cluster without programs, for a kubeconfig worker.
    #[must_use]
    pub fn bare(mut self, cluster: ClusterSpec) -> Self {
        self.others.push(cluster);
        self
    }

    /// Gives the hub's API server an audit log, for [`Cluster::requests_by`].
    #[must_use]
    pub fn audited(mut self) -> Self {
        self.hub = self.hub.audited();
        self
    }

    /// Gives the hub's cluster an etcd of its own; see [`ClusterSpec::own_etcd`].
    #[must_use]
    pub fn hub_etcd(mut self) -> Self {
        self.hub = self.hub.own_etcd();
        self
    }

    /// Runs more controllers of kube-controller-manager on the hub's cluster.
    #[must_use]
    pub fn hub_controllers<Name: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = Name>,
    ) -> Self {
        self.hub = names.into_iter().fold(self.hub, ClusterSpec::controller);
        self
    }

    /// Gives the hub's cluster a node, for the pods of Deployments.
    #[must_use]
    pub fn hub_node(mut self, node: NodeSpec) -> Self {
        self.hub = self.hub.node(node);
        self
    }

    /// Gives the hub a configuration file.
    #[must_use]
    pub fn config(mut self, yaml: impl Into<String>) -> Self {
        self.config = Some(yaml.into());
        self
    }

    /// Makes the agents serve webhooks, which gate the pods of kinds that are queued by their pods.
    #[must_use]
    pub fn agent_webhooks(mut self) -> Self {
        self.agent_webhooks = true;
        self
    }

    /// Gives each worker's program a configuration file.
    #[must_use]
    pub fn agent_config(mut self, yaml: impl Into<String>) -> Self {
        self.agent_config = Some(yaml.into());
        self
    }

    /// Applies further objects to each cluster with a program of Switchyard, before the program starts.
    #[must_use]
    pub fn manifests(mut self, objects: impl IntoIterator<Item = serde_json::Value>) -> Self {
        self.manifests.extend(objects);
        self
    }

    /// Gives the hub more flags.
    #[must_use]
    pub fn hub_flags<Flag: Into<String>>(mut self, flags: impl IntoIterator<Item = Flag>) -> Self {
        self.hub_flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Runs the hub as two replicas ([`REPLICAS`]) behind one address. Each has its own identity in the election, as pods
    /// have. So neither can see on this machine that the other has ended.
    #[must_use]
    pub fn two_replicas(mut self) -> Self {
        self.two = true;
        self
    }

    /// Starts the clusters, installs the objects of `deploy/`, and starts the hub. [`Fleet::connect`] starts the agents, once
    /// their MultiKueueClusters exist.
    ///
    /// # Errors
    /// When a component does not come up, with the end of its log.
    pub async fn start(self) -> anyhow::Result<Fleet> {
        let mut environment = Environment::builder(&self.name).cluster(self.hub);
        let agents: Vec<String> = self.agents.iter().map(|spec| spec.name().to_owned()).collect();
        for spec in self.agents.into_iter().chain(self.others) {
            environment = environment.cluster(spec);
        }
        let environment = environment.start().await?;
        for name in agents.iter().map(String::as_str).chain([HUB]) {
            environment
                .cluster(name)
                .install()
                .await
                .with_context(|| format!("deploy/ on {name}"))?;
            environment.cluster(name).apply(self.manifests.iter().cloned()).await?;
        }
        let hub = environment.cluster(HUB);
        let (mut programs, mut services) = (BTreeMap::new(), Vec::new());
        let mut ways = vec![(HUB, HubPorts::direct()?)];
        if self.two {
            let (sessions, webhooks) =
                ([ports::free()?, ports::free()?], [ports::free()?, ports::free()?]);
            services = vec![Forward::local(&sessions).await?, Forward::local(&webhooks).await?];
            let at = (services[0].port(), services[1].port());
            let way = |replica, sessions, webhooks| HubPorts {
                replica: Some(replica),
                sessions,
                sessions_at: at.0,
                webhooks,
                webhooks_at: at.1,
            };
            ways = REPLICAS
                .into_iter()
                .zip(sessions.into_iter().zip(webhooks))
                .map(|(replica, (s, w))| (replica, way(replica, s, w)))
                .collect();
        }
        for (name, ways) in &ways {
            let mut program = hub_program(hub, ways, self.config.as_deref()).await?;
            program.program = program.program.args(&self.hub_flags);
            programs.insert(*name, program);
        }
        let address = format!("127.0.0.1:{}", ways[0].1.sessions_at);
        let fleet = Fleet {
            agents,
            address,
            running: Mutex::default(),
            hub_programs: programs,
            _services: services,
            agent_config: self.agent_config,
            agent_webhooks: self.agent_webhooks,
            agent_programs: Mutex::default(),
            environment,
        };
        for (name, _) in &ways {
            fleet.start_replica(name).await?;
        }
        Ok(fleet)
    }
}

#[derive(Debug)]
struct RunningProgram {
    process: Process,
    writer: RunningWriter,
}

/// A running hub and its workers. Dropping it ends all processes.
#[derive(Debug)]
pub struct Fleet {
    agents: Vec<String>,
    address: String,
    running: Mutex<BTreeMap<String, RunningProgram>>,
    hub_programs: BTreeMap<&'static str, SwitchyardProgram>,
    _services: Vec<Forward>,
    agent_config: Option<String>,
    agent_webhooks: bool,
    agent_programs: Mutex<BTreeMap<String, SwitchyardProgram>>,
    environment: Environment,
}

impl Fleet {
    /// Begins the description of a fleet with a hub.
    pub fn builder(name: impl Into<String>) -> FleetBuilder {
        let hub = ClusterSpec::new(HUB);
        FleetBuilder {
            name: name.into(),
            hub,
            agents: Vec::new(),
            others: Vec::new(),
            config: None,
            agent_config: None,
            manifests: Vec::new(),
            hub_flags: Vec::new(),
            two: false,
            agent_webhooks: false,
        }
    }

    /// The hub's cluster.
    pub fn hub(&self) -> &Cluster {
        self.environment.cluster(HUB)
    }

    /// A worker cluster.
    pub fn worker(&self, name: &str) -> &Cluster {
        self.environment.cluster(name)
    }

    /// The clusters.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The address at which agents reach the hub, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Enrols and starts the agent of each worker, and waits until the hub reports all as connected.
    ///
    /// # Errors
    /// The cluster that did not connect, with its condition on the hub.
    pub async fn connect(&self) -> anyhow::Result<()> {
        for name in &self.agents {
            let token = self.join_token(name).await?;
            self.start_agent(name, &token).await?;
        }
        for name in &self.agents {
            self.connected(name).await?;
        }
        Ok(())
    }

    /// A join token, made as an administrator makes it.
    ///
    /// # Errors
    /// As `switchyard cluster join-token`.
    pub async fn join_token(&self, cluster: &str) -> anyhow::Result<JoinToken> {
        join_token::make(self.hub().admin.clone(), &join_token::Args::new(cluster, NAMESPACE)).await
    }

    /// Starts the agent of a worker with a token.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_agent(&self, name: &str, token: &JoinToken) -> anyhow::Result<()> {
        self.start_agent_with(name, token, &[]).await
    }

    /// As [`Self::start_agent`], with further flags.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_agent_with(
        &self,
        name: &str,
        token: &JoinToken,
        flags: &[&str],
    ) -> anyhow::Result<()> {
        self.start_agent_as(name, token, |program| program.args(flags)).await
    }

    /// As [`Self::start_agent`], with further environment variables.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_agent_in(
        &self,
        name: &str,
        token: &JoinToken,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let set = |program: Program, (name, value): &(&str, &str)| program.env(name, value);
        self.start_agent_as(name, token, |program| environment.iter().fold(program, set)).await
    }

    async fn start_agent_as(
        &self,
        name: &str,
        token: &JoinToken,
        change: impl FnOnce(Program) -> Program,
    ) -> anyhow::Result<()> {
        let mut program =
            agent_program(self.worker(name), token, self.agent_config.as_deref()).await?;
        if self.agent_webhooks {
            program = program.with_webhooks()?;
        }
        program.program = change(program.program);
        self.agent_programs.lock().insert(name.to_owned(), program.clone());
        self.start(name, &program)
    }

    /// Starts an agent again with the flags of its last start. It uses its stored identity.
    ///
    /// # Errors
    /// When it was never started.
    pub fn restart_agent(&self, name: &str) -> anyhow::Result<()> {
        let program = self
            .agent_programs
            .lock()
            .get(name)
            .cloned()
            .with_context(|| format!("{name} had no agent"))?;
        self.start(name, &program)
    }

    /// Ends the hub, or the agent of a cluster, and starts it again from the binaries in another
    /// directory, such as those of another version. The hub is ready afterwards.
    ///
    /// # Errors
    /// When it was never started, or the end of its log.
    pub async fn restart_from(&self, name: &str, binaries: &Path) -> anyhow::Result<()> {
        let of_hub = self.hub_programs.get(name).cloned();
        let found = of_hub.clone().or_else(|| self.agent_programs.lock().get(name).cloned());
        let mut program = found.with_context(|| format!("{name} was never started"))?;
        program.program = program.program.from_dir(binaries);
        self.kill(name);
        self.start(name, &program)?;
        match of_hub {
            Some(hub) => self.ready(name, hub.health).await,
            None => Ok(()),
        }
    }

    /// Starts the hub and waits until it is ready.
    ///
    /// # Errors
    /// The end of its log.
    pub async fn start_hub(&self) -> anyhow::Result<()> {
        self.start_replica(HUB).await
    }

    /// Installs the objects of `deploy/` again on the hub's cluster after the loss of its store, and renews the hub's
    /// kubeconfig.
    ///
    /// # Errors
    /// When its API server refuses an object.
    pub async fn reinstall_hub(&self) -> anyhow::Result<()> {
        self.hub().install().await?;
        self.renew_hub_account().await
    }

    /// Renews the hub's kubeconfig, after its service account was made again.
    ///
    /// # Errors
    /// When the API server has no such account.
    pub async fn renew_hub_account(&self) -> anyhow::Result<()> {
        programs::account(self.hub(), "switchyard-hub").await.map(drop)
    }

    /// Starts the hub and does not wait for it.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn launch_hub(&self) -> anyhow::Result<()> {
        self.start(HUB, self.hub_programs.get(HUB).context("this fleet's hub has replicas")?)
    }

    /// Starts one of [`REPLICAS`] and waits until it is ready.
    ///
    /// # Errors
    /// The end of its log.
    pub async fn start_replica(&self, name: &str) -> anyhow::Result<()> {
        let program =
            self.hub_programs.get(name).with_context(|| format!("this fleet has no {name}"))?;
        self.start(name, program)?;
        self.ready(name, program.health).await
    }

    /// Installs the objects of `deploy/` on a bare cluster, and starts Switchyard in single mode there.
    ///
    /// # Errors
    /// The end of its log.
    pub async fn start_single(&self, name: &str) -> anyhow::Result<()> {
        let cluster = self.worker(name);
        cluster.install().await?;
        let program = single_program(cluster, self.agent_config.as_deref()).await?;
        self.start(name, &program)?;
        self.ready(name, program.health).await
    }

    /// As [`Self::start_single`], and connects the cluster to the hub as a kubeconfig worker.
    ///
    /// # Errors
    /// The end of its log, or the hub's condition.
    pub async fn add_single(&self, name: &str) -> anyhow::Result<()> {
        self.start_single(name).await?;
        let (_, kubeconfig) =
            self.worker(name).service_account(NAMESPACE, "switchyard-remote-hub").await?;
        let secret = queues::kubeconfig_secret(NAMESPACE, name, &kubeconfig);
        self.hub().apply([secret, queues::kubeconfig_cluster(name, name)]).await?;
        self.connected(name).await
    }

    /// Kills a program (SIGKILL): the hub, or a worker's agent by its cluster's name.
    pub fn kill(&self, name: &str) {
        let program = self.running.lock().remove(name);
        if let Some(RunningProgram { process, writer }) = program {
            drop(writer);
            process.kill();
        }
    }

    /// The cluster whose queues a program charges.
    fn cluster_of(&self, program: &str) -> &Cluster {
        let is_hub = self.hub_programs.contains_key(program);
        if is_hub { self.hub() } else { self.worker(program) }
    }

    /// Calls `act` with a running program, for example to read its memory.
    ///
    /// # Errors
    /// When it does not run.
    pub fn with<T>(&self, name: &str, act: impl FnOnce(&Process) -> T) -> anyhow::Result<T> {
        let running = self.running.lock();
        let program = running.get(name).with_context(|| format!("{name} does not run"))?;
        Ok(act(&program.process))
    }

    /// Waits until the hub reports a cluster as connected.
    ///
    /// # Errors
    /// The present condition.
    pub async fn connected(&self, name: &str) -> anyhow::Result<()> {
        ready::worker_cluster(self.hub(), name, READY).await
    }

    /// Waits until a cluster's condition `Active` has this reason, and `words` in its message.
    ///
    /// # Errors
    /// The present condition.
    pub async fn says(&self, name: &str, reason: &str, words: &str) -> anyhow::Result<()> {
        eventually(READY, format!("{name} to be {reason}"), async || {
            self.says_now(name, reason, words).await
        })
        .await
    }

    /// As [`Self::says`], without a wait.
    ///
    /// # Errors
    /// The present condition.
    pub async fn says_now(&self, name: &str, reason: &str, words: &str) -> anyhow::Result<()> {
        let clusters: Api<MultiKueueCluster> = Api::all(self.hub().admin.clone());
        let status = clusters.get(name).await?.status.unwrap_or_default();
        let active = conditions::find(&status.conditions, conditions::ACTIVE);
        let (is, text) = active
            .map(|active| (active.reason.as_str(), active.message.as_str()))
            .unwrap_or_default();
        ensure!(is == reason && text.contains(words), "{is}: {text}");
        Ok(())
    }

    /// Describes a tenant: objects of the fleet that only one test uses.
    pub fn tenant(&self, stem: &str) -> TenantBuilder<'_> {
        TenantBuilder::new(self, stem)
    }

    /// Number of a namespace's pods on a cluster that have not ended.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn pods(&self, cluster: &str, namespace: &str) -> anyhow::Result<usize> {
        let pods: Api<Pod> = Api::namespaced(self.worker(cluster).admin.clone(), namespace);
        let pods = pods.list(&ListParams::default()).await?.items;
        let ended = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        Ok(pods.iter().filter(|pod| !ended(pod)).count())
    }

    /// Waits until [`Self::pods`] is `count`.
    ///
    /// # Errors
    /// The number instead.
    pub async fn await_pods(
        &self,
        cluster: &str,
        namespace: &str,
        count: usize,
    ) -> anyhow::Result<()> {
        eventually(READY, format!("{count} pods of {namespace} on {cluster}"), async || {
            let found = self.pods(cluster, namespace).await?;
            ensure!(found == count, "{found} pods");
            Ok(())
        })
        .await
    }

    /// The loopback ports with `/metrics` of the hub's replicas and of the agents, by name.
    pub fn metrics_ports(&self) -> BTreeMap<String, u16> {
        let hub =
            self.hub_programs.iter().map(|(name, program)| ((*name).to_owned(), program.health));
        let agents = self.agent_programs.lock();
        hub.chain(agents.iter().map(|(name, program)| (name.clone(), program.health))).collect()
    }

    /// Commands with which a person reaches the clusters.
    pub fn directions(&self) -> String {
        let inside = crate::nodes::inside();
        let mut text = "Reach the clusters with:\n".to_owned();
        for cluster in self.environment.clusters() {
            text += &format!(
                "  {inside}kubectl --kubeconfig {} get jobs -A   # {}\n",
                cluster.kubeconfig().display(),
                cluster.name()
            );
        }
        let hub = self.hub().kubeconfig().display();
        let switchyard = crate::paths::binary("switchyard")
            .map_or_else(|_| "switchyard".to_owned(), |path| path.display().to_string());
        text += "and see the fleet with:\n";
        text += &format!("  {inside}{switchyard} --kubeconfig {hub} get jobs -A\n");
        text += &format!("  {inside}{switchyard} --kubeconfig {hub} get clusters --capacity");
        text
    }

    fn start(&self, name: &str, program: &SwitchyardProgram) -> anyhow::Result<()> {
        let process = program.program.start()?;
        let writer = self.cluster_of(name).usage_writer.start();
        self.running.lock().insert(name.to_owned(), RunningProgram { process, writer });
        Ok(())
    }

    async fn ready(&self, name: &str, health: u16) -> anyhow::Result<()> {
        let running = || self.with(name, Process::check)?;
        ready::program(name, running, (health, "/readyz"), READY).await
    }
}
