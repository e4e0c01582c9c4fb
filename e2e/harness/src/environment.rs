//! One etcd and any number of clusters.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::future::try_join_all;

use crate::certs::{Authority, Pair, token_keys};
use crate::cluster::Cluster;
use crate::nodes::RealNode;
use crate::process::{Process, Program};
use crate::spec::ClusterSpec;
use crate::wait::eventually;
use crate::workdir::WorkDir;
use crate::{ports, process};
use switchyard_parts::{Part, Parts};

/// How long etcd may take to serve.
const ETCD_TIME: Duration = Duration::from_secs(30);

/// Describes an environment; [`EnvironmentBuilder::start`] makes it.
#[derive(Debug)]
pub struct EnvironmentBuilder {
    name: String,
    clusters: Vec<ClusterSpec>,
}

impl EnvironmentBuilder {
    /// Adds a cluster.
    #[must_use]
    pub fn cluster(mut self, cluster: ClusterSpec) -> Self {
        self.clusters.push(cluster);
        self
    }

    /// Builds the parts that are missing, then starts everything, the clusters side by side. Returns when every API
    /// server is ready, every node is, and Jobs can be created in `default`.
    ///
    /// # Errors
    /// Which part did not come up, with the end of its log. Nothing is left running then.
    pub async fn start(self) -> anyhow::Result<Environment> {
        let name = self.name.clone();
        self.start_all().await.with_context(|| format!("environment {name}"))
    }

    async fn start_all(self) -> anyhow::Result<Environment> {
        let start = Instant::now();
        let parts = Parts::new()?;
        let wanted = self.parts();
        let binaries = tokio::task::spawn_blocking(move || build(&parts, &wanted)).await??;
        let built = start.elapsed();
        let dir = WorkDir::create(&self.name)?;
        let result = self.start_parts(binaries, &dir).await;
        match result {
            Ok((ground, clusters)) => {
                let started = start.elapsed() - built;
                tracing::debug!(
                    environment = self.name,
                    clusters = clusters.len(),
                    ?built,
                    ?started,
                    "started"
                );
                Ok(Environment { clusters, ground, dir })
            }
            Err(error) => {
                dir.keep();
                Err(error)
            }
        }
    }

    async fn start_parts(
        &self,
        binaries: Binaries,
        dir: &WorkDir,
    ) -> anyhow::Result<(Arc<Ground>, Vec<Cluster>)> {
        let real = self.clusters.iter().filter_map(|cluster| cluster.real_node.as_ref());
        let ground = Arc::new(
            Ground::start(&self.name, binaries, dir, real.map(RealNode::api_address)).await?,
        );
        let start =
            self.clusters.iter().map(|spec| Cluster::start(spec.clone(), Arc::clone(&ground), dir));
        let clusters = try_join_all(start).await?;
        Ok((ground, clusters))
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = vec![Part::Etcd, Part::ApiServer, Part::ControllerManager];
        if self.clusters.iter().any(|cluster| !cluster.nodes.is_empty()) {
            parts.push(Part::Kwok);
        }
        if self.clusters.iter().any(|cluster| cluster.real_node.is_some()) {
            parts.push(Part::Kubelet);
        }
        if self.clusters.iter().any(|cluster| cluster.has_nodes() && cluster.scheduler) {
            parts.push(Part::Scheduler);
        }
        parts
    }
}

/// The programs of an environment, built.
pub(crate) type Binaries = std::collections::BTreeMap<Part, std::path::PathBuf>;

fn build(parts: &Parts, wanted: &[Part]) -> anyhow::Result<Binaries> {
    wanted.iter().map(|&part| Ok((part, parts.binary(part)?))).collect()
}

/// Shared by all clusters of an environment.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) binaries: Binaries,
    pub(crate) etcd_url: String,
    pub(crate) ca_pem: String,
    pub(crate) authority: Authority,
    pub(crate) serving: Pair,
    pub(crate) admin: Pair,
    pub(crate) token_private: String,
    pub(crate) token_public: String,
    etcd: Process,
}

impl Ground {
    /// `addresses` are those by which pods reach their API servers.
    async fn start(
        name: &str,
        binaries: Binaries,
        dir: &WorkDir,
        addresses: impl Iterator<Item = String>,
    ) -> anyhow::Result<Self> {
        let authority = Authority::new(&format!("switchyard-e2e-{name}"))?;
        let names: Vec<String> =
            ["127.0.0.1", "localhost"].map(str::to_owned).into_iter().chain(addresses).collect();
        let (token_private, token_public) = token_keys()?;
        let binary = binaries.get(&Part::Etcd).context("etcd not built")?;
        let (etcd, etcd_url) = start_etcd(binary, dir.path(), &dir.state()).await?;
        Ok(Self {
            binaries,
            etcd_url,
            ca_pem: authority.pem(),
            serving: authority.server(&names.iter().map(String::as_str).collect::<Vec<_>>())?,
            admin: authority.client("e2e-admin", "system:masters")?,
            authority,
            token_private,
            token_public,
            etcd,
        })
    }

    pub(crate) fn binary(&self, part: Part) -> anyhow::Result<&std::path::Path> {
        self.binaries
            .get(&part)
            .map(std::path::PathBuf::as_path)
            .with_context(|| format!("{} not built", part.name()))
    }
}

/// Starts an etcd whose log and data go to these directories, again on other ports when another process took one in between.
pub(crate) async fn start_etcd(
    binary: &Path,
    logs: &Path,
    state: &Path,
) -> anyhow::Result<(Process, String)> {
    for _ in 0..process::PORT_TRIES {
        let (port, peer_port) = (ports::free()?, ports::free()?);
        let (url, peer) =
            (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
        let etcd = Program::new("etcd", binary, logs.join("etcd.log"))
            .arg("--data-dir")
            .arg(state.join("etcd"))
            .arg("--unsafe-no-fsync")
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "warn"])
            .args(["--quota-backend-bytes", "8589934592"])
            .start()?;
        let up = eventually(ETCD_TIME, "etcd to listen", async || {
            etcd.check().map_err(crate::wait::never)?;
            anyhow::ensure!(ports::is_open(port), "nothing listens on {port}");
            Ok(())
        });
        match up.await {
            Ok(()) => return Ok((etcd, url)),
            Err(_) if process::lost_port(&etcd) => {
                tracing::debug!("a port of etcd was taken, again")
            }
            Err(error) => return Err(error),
        }
    }
    bail!("no port stays free for etcd")
}

/// A running environment. Dropping it ends every process and deletes its files; the logs stay when the thread panics,
/// after [`Environment::keep_logs`], or with `SWITCHYARD_KEEP` set.
#[derive(Debug)]
pub struct Environment {
    clusters: Vec<Cluster>,
    ground: Arc<Ground>,
    dir: WorkDir,
}

impl Environment {
    /// Begins the description of an environment. The name is that of its directory under `target/e2e-logs`.
    pub fn builder(name: impl Into<String>) -> EnvironmentBuilder {
        EnvironmentBuilder { name: name.into(), clusters: Vec::new() }
    }

    /// The cluster of this name.
    ///
    /// # Panics
    /// When there is none: the test is wrong.
    #[expect(
        clippy::panic,
        reason = "a test that asks for a cluster it has not described cannot go on"
    )]
    pub fn cluster(&self, name: &str) -> &Cluster {
        let found = self.clusters.iter().find(|cluster| cluster.name() == name);
        found.unwrap_or_else(|| panic!("no cluster {name} in this environment"))
    }

    /// All clusters, in the order of their description.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The store of all clusters that have none of their own.
    pub fn etcd(&self) -> &Process {
        &self.ground.etcd
    }

    /// The directory with the logs, `CLUSTER/PART.log`. Tests put their own programs' logs there too.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Keeps the logs, whatever happens, and prints where they are.
    pub fn keep_logs(&self) {
        self.dir.keep();
        eprintln!("logs kept in {}", self.dir.path().display());
    }

    /// Ends everything. The same as dropping it.
    pub fn stop(self) {}
}

impl Drop for Environment {
    fn drop(&mut self) {
        // All at once; dropping each then waits for it.
        for cluster in &self.clusters {
            cluster.begin_kill();
        }
        self.ground.etcd.begin_kill();
    }
}
