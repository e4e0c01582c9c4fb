//! The systems that are struck: each a hub and two workers, with the first of them behind a gate.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use kube::Api;
use serde_json::json;
use switchyard_api::conditions;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fleet::{self, Fleet, HUB};
use switchyard_e2e::gate::Gate;
use switchyard_e2e::stock::{self, Kueue, Options};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, NodeSpec, Part, Process, queues};
use tokio::time::Instant;

use super::queues as jobs;
use super::{Fault, System};

/// The worker that is struck.
pub(super) const WEST: &str = "west";
/// The worker that jobs can go to.
pub(super) const EAST: &str = "east";
/// `multiKueue.workerLostTimeout` of stock MultiKueue, and of Switchyard for kubeconfig workers without a policy. The default
/// is 15 min, too long for a test.
const LOST: &str = "20s";
const SOON: Duration = Duration::from_secs(120);
/// A new hub of Switchyard gives nothing up for a minute, so the measurement starts after it.
const GRACE: Duration = Duration::from_secs(65);

/// Jobs of one policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// As the table names it.
    pub(super) policy: &'static str,
    /// Prefix of the names of its jobs.
    pub(super) stem: &'static str,
    /// The jobs' annotation.
    pub(super) on_disconnect: Option<&'static str>,
    /// Whether they may go elsewhere.
    pub(super) moves: bool,
}

const fn group(
    policy: &'static str,
    stem: &'static str,
    on_disconnect: Option<&'static str>,
) -> Group {
    Group { policy, stem, on_disconnect, moves: true }
}

const HOLD: Group = Group { moves: false, ..group("Hold", "hold", Some("Hold")) };
const FENCE: Group = group("Fence after 5 s", "fence", Some("Fence/5s"));
const DUPLICATE: Group = group("Duplicate after 5 s", "duplicate", Some("Duplicate/5s"));
const UNSAID: Group = group("workerLostTimeout 20 s", "unsaid", None);

/// The groups of jobs that are sent to a system.
fn groups(system: System) -> &'static [Group] {
    match system {
        System::Agents => &[HOLD, FENCE, DUPLICATE],
        System::Kubeconfig => &[HOLD, DUPLICATE, UNSAID],
        System::Stock => &[UNSAID],
    }
}

enum Ground {
    Fleet(Box<Fleet>),
    Environment(Environment),
}

/// One of the systems, running. Dropping it ends everything.
pub(super) struct Site {
    pub(super) system: System,
    /// Jobs of each group.
    pub(super) count: usize,
    gate: Gate,
    // Before the clusters that they run on.
    kueues: BTreeMap<&'static str, Kueue>,
    ground: Ground,
    started: Instant,
    away: Option<Fault>,
}

impl Site {
    pub(super) async fn start(system: System, count: usize) -> anyhow::Result<Self> {
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(64));
        let (west, east) = (worker(WEST).own_etcd(), worker(EAST));
        let lost = json!({"multiKueue": {"workerLostTimeout": LOST}});
        let options = Options { config: lost.clone(), ..Options::default() };
        let config = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmultiKueue: {{workerLostTimeout: {LOST}}}\n"
        );
        let name = "failover";
        let (ground, kueues, gate) = match system {
            System::Agents => {
                let fleet =
                    Fleet::builder(name).config(config).agent(west).agent(east).start().await?;
                fleet.hub().apply([WEST, EAST].map(queues::agent_cluster)).await?;
                let gate = Gate::open(fleet.address()).await?;
                for name in [WEST, EAST] {
                    let mut token = fleet.join_token(name).await?;
                    if name == WEST {
                        token.hub_address = gate.address();
                    }
                    fleet.start_agent(name, &token).await?;
                }
                (Ground::Fleet(Box::new(fleet)), BTreeMap::new(), gate)
            }
            System::Kubeconfig => {
                let fleet =
                    Fleet::builder(name).config(config).bare(west).bare(east).start().await?;
                let kueues =
                    kueues(fleet.environment(), &[WEST, EAST], &Options::default()).await?;
                let mut kubeconfigs = BTreeMap::new();
                for name in [WEST, EAST] {
                    let worker = fleet.worker(name);
                    worker.apply_dir(switchyard_e2e::paths::root().join("deploy/rbac")).await?;
                    let (_, kubeconfig) =
                        worker.service_account(fleet::NAMESPACE, "switchyard-remote-hub").await?;
                    kubeconfigs.insert(name, kubeconfig);
                }
                let gate = register(fleet.environment(), fleet::NAMESPACE, kubeconfigs).await?;
                (Ground::Fleet(Box::new(fleet)), kueues, gate)
            }
            System::Stock => {
                let environment = Environment::builder(name)
                    .cluster(ClusterSpec::new(HUB))
                    .cluster(west)
                    .cluster(east);
                let environment = environment.start().await?;
                let kueues = kueues(&environment, &[HUB, WEST, EAST], &options).await?;
                let admin = |name: &'static str| {
                    anyhow::Ok((
                        name,
                        std::fs::read_to_string(environment.cluster(name).kubeconfig())?,
                    ))
                };
                let kubeconfigs = BTreeMap::from([admin(WEST)?, admin(EAST)?]);
                let gate = register(&environment, stock::NAMESPACE, kubeconfigs).await?;
                (Ground::Environment(environment), kueues, gate)
            }
        };
        let started = Instant::now();
        let site = Self { system, count, gate, kueues, ground, started, away: None };
        for name in [WEST, EAST] {
            eventually(SOON, format!("cluster {name} to be active"), async || {
                ensure!(site.active(name).await?, "it is not");
                Ok(())
            })
            .await?;
        }
        jobs::make(site.hub(), &[site.cluster(WEST), site.cluster(EAST)]).await?;
        Ok(site)
    }

    pub(super) fn groups(&self) -> &'static [Group] {
        groups(self.system)
    }

    pub(super) fn cluster(&self, name: &str) -> &Cluster {
        match &self.ground {
            Ground::Fleet(fleet) => fleet.environment().cluster(name),
            Ground::Environment(environment) => environment.cluster(name),
        }
    }

    pub(super) fn hub(&self) -> &Cluster {
        self.cluster(HUB)
    }

    /// Whether the hub says that a cluster is active.
    pub(super) async fn active(&self, name: &str) -> anyhow::Result<bool> {
        let clusters: Api<MultiKueueCluster> = Api::all(self.hub().admin.clone());
        let status = clusters.get(name).await?.status.unwrap_or_default();
        Ok(conditions::is_true(&status.conditions, conditions::ACTIVE))
    }

    /// Waits until the hub has run for long enough.
    pub(super) async fn seasoned(&self) {
        if self.system != System::Stock {
            tokio::time::sleep_until(self.started + GRACE).await;
        }
    }

    fn kueue(&mut self, name: &str) -> anyhow::Result<&mut Kueue> {
        self.kueues.get_mut(name).with_context(|| format!("no Kueue on {name}"))
    }

    /// The fault begins.
    pub(super) fn strike(&mut self, fault: Fault) -> anyhow::Result<()> {
        self.away = Some(fault);
        match (fault, &self.ground) {
            (Fault::Cut, _) => self.gate.shut(),
            (Fault::Silence, _) => self.gate.mute(),
            (Fault::KillApiServer, _) => self.cluster(WEST).kill(Part::ApiServer)?,
            (Fault::KillEtcd, _) => self.cluster(WEST).kill(Part::Etcd)?,
            (Fault::Sleep, Ground::Fleet(fleet)) => fleet.with(WEST, Process::pause)??,
            (Fault::KillHub, Ground::Fleet(fleet)) => fleet.kill(HUB),
            (Fault::KillAgent, Ground::Fleet(fleet)) if self.system == System::Agents => {
                fleet.kill(WEST)
            }
            (Fault::KillHub, Ground::Environment(_)) => self.kueue(HUB)?.kill(),
            (Fault::KillAgent, _) => self.kueue(WEST)?.kill(),
            (Fault::Sleep, Ground::Environment(_)) => anyhow::bail!("no agent to stop"),
        }
        Ok(())
    }

    /// The fault ends: what was killed is started, and not waited for.
    pub(super) async fn restore(&mut self) -> anyhow::Result<()> {
        let Some(fault) = self.away.take() else { return Ok(()) };
        match (fault, &self.ground) {
            (Fault::Cut, _) => self.gate.unshut(),
            (Fault::Silence, _) => self.gate.unmute(),
            (Fault::KillApiServer, _) => self.cluster(WEST).restart(Part::ApiServer).await?,
            (Fault::KillEtcd, _) => self.cluster(WEST).restart(Part::Etcd).await?,
            (Fault::Sleep, Ground::Fleet(fleet)) => fleet.with(WEST, Process::resume)??,
            (Fault::KillHub, Ground::Fleet(fleet)) => fleet.launch_hub()?,
            (Fault::KillAgent, Ground::Fleet(fleet)) if self.system == System::Agents => {
                fleet.restart_agent(WEST)?
            }
            (Fault::KillHub, Ground::Environment(_)) => self.kueue(HUB)?.restart()?,
            (Fault::KillAgent, _) => self.kueue(WEST)?.restart()?,
            (Fault::Sleep, Ground::Environment(_)) => {}
        }
        if fault == Fault::KillHub {
            self.started = Instant::now();
        }
        Ok(())
    }

    /// Starts what has ended by itself, as its Deployment would.
    pub(super) fn tend(&mut self) -> anyhow::Result<()> {
        let (hub, agent) = (self.away != Some(Fault::KillHub), self.away != Some(Fault::KillAgent));
        if let Ground::Fleet(fleet) = &self.ground {
            let ended = |name| fleet.with(name, Process::is_running).is_ok_and(|runs| !runs);
            if hub && ended(HUB) {
                fleet.launch_hub()?;
            }
            for name in [WEST, EAST] {
                if (agent || name == EAST) && self.system == System::Agents && ended(name) {
                    fleet.restart_agent(name)?;
                }
            }
        }
        for (name, kueue) in &mut self.kueues {
            let meant = match *name {
                HUB => !hub,
                WEST => !agent,
                _ => false,
            };
            if !meant && !kueue.process().is_running() {
                kueue.restart()?;
            }
        }
        Ok(())
    }
}

async fn kueues(
    environment: &Environment,
    on: &[&'static str],
    options: &Options,
) -> anyhow::Result<BTreeMap<&'static str, Kueue>> {
    let start = on.iter().map(async |name| {
        anyhow::Ok((*name, Kueue::start(environment.cluster(name), options).await?))
    });
    Ok(try_join_all(start).await?.into_iter().collect())
}

/// Makes the workers known to the hub by their kubeconfigs, the first behind a gate.
async fn register(
    environment: &Environment,
    namespace: &str,
    mut kubeconfigs: BTreeMap<&'static str, String>,
) -> anyhow::Result<Gate> {
    let west = environment.cluster(WEST);
    let gate = Gate::open(&format!("127.0.0.1:{}", west.port())).await?;
    if let Some(kubeconfig) = kubeconfigs.get_mut(WEST) {
        *kubeconfig = kubeconfig.replace(west.url(), &gate.address());
    }
    let objects = kubeconfigs.iter().flat_map(|(name, kubeconfig)| {
        [
            queues::kubeconfig_secret(namespace, name, kubeconfig),
            queues::kubeconfig_cluster(name, name),
        ]
    });
    environment.cluster(HUB).apply(objects).await?;
    Ok(gate)
}
