//! One cluster: an API server on the environment's etcd, its controllers, and kwok for its nodes.

mod accounts;
mod apply;
mod faults;
mod metrics;
mod start;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use parking_lot::Mutex;

use crate::ground::Ground;
use crate::process::Process;
use crate::spec::ClusterSpec;
use crate::usage_writer::UsageWriterState;
use switchyard_parts::Part;

pub use metrics::{Request, Requests};

/// How long an API server may take to be ready. It takes two seconds when nothing else runs.
const READY_TIME: Duration = Duration::from_secs(90);
/// How long nodes, service accounts and similar objects may take.
const SETTLE_TIME: Duration = Duration::from_secs(60);

/// A running cluster. All its methods take `&self`, so tests that run side by side can share it.
pub struct Cluster {
    spec: ClusterSpec,
    ground: Arc<Ground>,
    files: start::Files,
    port: u16,
    url: String,
    kubeconfig: PathBuf,
    /// A client with all rights, for the test itself. Programs under test use [`Cluster::service_account`].
    pub admin: Client,
    processes: Mutex<BTreeMap<Part, Process>>,
    kinds: apply::Kinds,
    pub(crate) usage_writer: Arc<UsageWriterState>,
    /// Serves the Services of a cluster with a real node.
    _services: Option<crate::nodes::Services>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.spec.name)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// The name from its description.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The API server's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port of the API server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name of its real node, if it has one.
    pub fn real_node_name(&self) -> Option<String> {
        self.spec.real_node.as_ref().map(|_| crate::nodes::name(&self.spec.name))
    }

    /// The address at which other clusters reach the first Service of type LoadBalancer. `None` without a real node.
    pub fn load_balancer(&self) -> Option<std::net::Ipv4Addr> {
        self.spec.real_node.as_ref().map(|node| node.load_balancer(1))
    }

    /// The certificate authority of the API server, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ground.ca_pem
    }

    /// A kubeconfig file with all rights, for kubectl.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The directory of its logs. Tests put the logs of their own programs there too.
    pub fn dir(&self) -> &Path {
        &self.files.logs
    }

    /// A directory for files that are deleted with the environment.
    pub fn state_dir(&self) -> &Path {
        &self.files.state
    }

    /// Resident memory of a part, in bytes.
    pub fn rss(&self, part: Part) -> anyhow::Result<u64> {
        self.with(part, Process::rss)
    }

    /// CPU time used by a part since its last start.
    pub fn cpu_time(&self, part: Part) -> anyhow::Result<Duration> {
        self.with(part, Process::cpu_time)
    }

    fn with<T>(
        &self,
        part: Part,
        act: impl FnOnce(&Process) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let processes = self.processes.lock();
        let process = processes
            .get(&part)
            .with_context(|| format!("{} has no {}", self.spec.name, part.name()))?;
        act(process)
    }

    pub(crate) fn begin_kill(&self) {
        for process in self.processes.lock().values() {
            process.begin_kill();
        }
    }
}
