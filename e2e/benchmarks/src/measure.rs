//! Resources that a system uses: CPU time, memory, API requests.

use std::collections::BTreeMap;
use std::time::Duration;

use switchyard_e2e::{Cluster, Environment, Part, Process, Requests};

/// Parts of the control planes besides API server and etcd.
const CONTROLLERS: [Part; 3] = [Part::ControllerManager, Part::Scheduler, Part::Kwok];

/// Whose use of the machine is measured.
pub(super) trait Measured {
    /// The control planes it runs on.
    fn environment(&self) -> &Environment;

    /// Calls `act` with each measured controller. Returns the results by cluster.
    ///
    /// # Errors
    /// The first error of `act`.
    fn controllers<T>(
        &self,
        act: impl FnMut(&Process) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<(String, T)>>;
}

/// Used between two moments.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage {
    /// CPU of the controllers under measurement, by cluster.
    pub(super) controllers: BTreeMap<String, Duration>,
    /// Their peak memory in bytes, since they were started.
    pub(super) memory: BTreeMap<String, u64>,
    /// CPU of the API servers and etcd.
    pub(super) api_servers: Duration,
    /// CPU of kube-controller-managers, kube-schedulers and kwoks.
    pub(super) kubernetes: Duration,
    /// Requests to each cluster, of all clients.
    pub(super) requests: BTreeMap<String, Requests>,
}

impl Usage {
    /// CPU of all controllers under measurement.
    pub(super) fn all_controllers(&self) -> Duration {
        self.controllers.values().sum()
    }

    /// The requests of each cluster, those of the workers (all but the one of this name) added up: (hub, workers).
    pub(super) fn by_side(&self, hub: &str) -> (Requests, Requests) {
        let mut sides = (Requests::default(), Requests::default());
        for (name, requests) in &self.requests {
            let side = if name == hub { &mut sides.0 } else { &mut sides.1 };
            for (request, count) in &requests.0 {
                *side.0.entry(request.clone()).or_insert(0) += count;
            }
        }
        sides
    }
}

/// The counters as they stood at the beginning.
pub(super) struct Gauge {
    before: Usage,
}

impl Gauge {
    /// Begins to measure.
    ///
    /// # Errors
    /// When a process has ended or an API server does not answer.
    pub(super) async fn start(system: &impl Measured) -> anyhow::Result<Self> {
        Ok(Self { before: read(system).await? })
    }

    /// Usage since then.
    ///
    /// # Errors
    /// As [`Gauge::start`].
    pub(super) async fn stop(self, system: &impl Measured) -> anyhow::Result<Usage> {
        let (before, after) = (self.before, read(system).await?);
        let since = |name: &String, time: &Duration| {
            time.saturating_sub(before.controllers.get(name).copied().unwrap_or_default())
        };
        let requests = after.requests.iter().map(|(name, requests)| {
            let earlier = before.requests.get(name).cloned().unwrap_or_default();
            (name.clone(), requests.since(&earlier))
        });
        Ok(Usage {
            controllers: after
                .controllers
                .iter()
                .map(|(name, time)| (name.clone(), since(name, time)))
                .collect(),
            memory: after.memory.clone(),
            api_servers: after.api_servers.saturating_sub(before.api_servers),
            kubernetes: after.kubernetes.saturating_sub(before.kubernetes),
            requests: requests.collect(),
        })
    }
}

async fn read(system: &impl Measured) -> anyhow::Result<Usage> {
    let mut usage =
        Usage { api_servers: system.environment().etcd().cpu_time()?, ..Usage::default() };
    usage.controllers = system.controllers(Process::cpu_time)?.into_iter().collect();
    usage.memory = system.controllers(Process::peak_rss)?.into_iter().collect();
    for cluster in system.environment().clusters() {
        usage.api_servers += cluster.cpu_time(Part::ApiServer)?;
        usage.kubernetes +=
            CONTROLLERS.iter().filter_map(|part| cluster.cpu_time(*part).ok()).sum::<Duration>();
        usage.requests.insert(cluster.name().to_owned(), requests(cluster).await?);
    }
    Ok(usage)
}

/// Requests without the background: leases, and requests for no resource, such as those of the measurement.
async fn requests(cluster: &Cluster) -> anyhow::Result<Requests> {
    let requests = cluster.requests().await?;
    Ok(requests.only(|request| request.resource != "leases" && !request.resource.is_empty()))
}
