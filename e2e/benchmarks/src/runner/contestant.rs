//! The systems that admit the runner's Workloads, each on its own control plane.

use switchyard_e2e::single::Single;
use switchyard_e2e::stock::{Kueue, Options};
use switchyard_e2e::{Cluster, ClusterSpec, Environment, Part, Parts, Process, Program};
use switchyard_flags::bench::runner::Kind;

use super::super::measure::Measured;
use super::super::setup::HUB;
use super::super::stock::shipped;

/// One of them, running. Dropping it ends everything.
pub(super) struct Contestant {
    // Before the cluster that it runs on.
    controller: Controller,
    environment: Environment,
}

enum Controller {
    Ours(Single),
    Minimal(Process),
    Stock(Kueue),
}

impl Contestant {
    pub(super) async fn start(kind: Kind) -> anyhow::Result<Self> {
        // As the performance test starts its own API server: the generator has all its clients at work at once.
        let limits = ["--max-requests-inflight=5000", "--max-mutating-requests-inflight=2500"];
        let spec = ClusterSpec::new(HUB).api_server_args(limits);
        let environment = Environment::builder("bench-runner").cluster(spec).start().await?;
        let cluster = environment.cluster(HUB);
        let controller = match kind {
            Kind::Ours => {
                cluster.install().await?;
                Controller::Ours(Single::start(cluster).await?)
            }
            Kind::OursWithoutWebhooks => {
                cluster.install().await?;
                Controller::Ours(Single::start_without_webhooks(cluster).await?)
            }
            Kind::Minimal => Controller::Minimal(minimal(cluster).await?),
            Kind::Stock => Controller::Stock(Kueue::start(cluster, &shipped()).await?),
            Kind::StockRaised => {
                let raised = Options { qps: 1000, burst: 2000, ..shipped() };
                Controller::Stock(Kueue::start(cluster, &raised).await?)
            }
        };
        Ok(Self { controller, environment })
    }

    pub(super) fn cluster(&self) -> &Cluster {
        self.environment.cluster(HUB)
    }

    fn process(&self) -> &Process {
        match &self.controller {
            Controller::Ours(single) => single.process(),
            Controller::Minimal(process) => process,
            Controller::Stock(kueue) => kueue.process(),
        }
    }
}

impl Measured for Contestant {
    fn environment(&self) -> &Environment {
        &self.environment
    }

    fn controllers<T>(
        &self,
        mut act: impl FnMut(&Process) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<(String, T)>> {
        Ok(vec![(HUB.to_owned(), act(self.process())?)])
    }
}

async fn minimal(cluster: &Cluster) -> anyhow::Result<Process> {
    let (binary, source) = tokio::task::spawn_blocking(|| -> anyhow::Result<_> {
        let parts = Parts::new()?;
        Ok((parts.binary(Part::MinimalKueue)?, parts.own_source_dir(Part::MinimalKueue)?))
    })
    .await??;
    cluster.apply_dir(source.join("config/components/crd/bases")).await?;
    Program::new("minimalkueue", binary, cluster.dir().join("minimalkueue.log"))
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .start()
}
