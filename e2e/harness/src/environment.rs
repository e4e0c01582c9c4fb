//! One etcd and any number of clusters.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use futures::future::try_join_all;
use switchyard_parts::{Part, Parts};

use crate::auditor;
use crate::cluster::Cluster;
use crate::ground::{Binaries, Ground};
use crate::nodes::RealNode;
use crate::process::Process;
use crate::spec::ClusterSpec;
use crate::workdir::WorkDir;

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

    /// Builds missing parts, then starts all clusters at once. Returns when all API servers and nodes are ready, and Jobs can
    /// be created in `default`.
    ///
    /// # Errors
    /// The part that did not come up, with the end of its log. All processes have ended then.
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
        clusters.iter().for_each(auditor::add);
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

fn build(parts: &Parts, wanted: &[Part]) -> anyhow::Result<Binaries> {
    wanted.iter().map(|&part| Ok((part, parts.binary(part)?))).collect()
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
    /// Describes an environment. `name` is also the name of its directory under `target/e2e-logs`.
    pub fn builder(name: impl Into<String>) -> EnvironmentBuilder {
        EnvironmentBuilder { name: name.into(), clusters: Vec::new() }
    }

    /// The cluster of this name.
    ///
    /// # Panics
    /// When there is none, which is an error of the test.
    #[expect(
        clippy::panic,
        reason = "a test that asks for a cluster it has not described cannot go on"
    )]
    pub fn cluster(&self, name: &str) -> &Cluster {
        let found = self.clusters.iter().find(|cluster| cluster.name() == name);
        found.unwrap_or_else(|| panic!("no cluster {name} in this environment"))
    }

    /// All clusters, in the order in which they were added.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The etcd of all clusters without an etcd of their own.
    pub fn etcd(&self) -> &Process {
        &self.ground.etcd
    }

    /// The directory with the logs, `CLUSTER/PART.log`. Tests put their own programs' logs there too.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Keeps the logs even if no test fails, and prints their directory.
    pub fn keep_logs(&self) {
        self.dir.keep();
        eprintln!("logs kept in {}", self.dir.path().display());
    }

    /// Ends all processes, as dropping it does.
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
