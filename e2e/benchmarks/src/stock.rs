//! Stock MultiKueue: its release on the hub and on every worker, as shipped or with every client limit raised.

use std::time::Duration;

use futures::future::try_join_all;
use serde_json::json;
use switchyard_e2e::stock::{self, Kueue, Options};
use switchyard_e2e::{ClusterSpec, Environment, Process, SourceEdit, queues, ready};
use switchyard_flags::bench::burst::Form;

use super::setup::{CPUS, HUB, QUEUE, WORKERS, worker};

/// Where the Jobs are.
pub(super) const NAMESPACE: &str = "burst";
/// Names flavor, ClusterQueue, AdmissionCheck and MultiKueueConfig.
const ALL: &str = "all";
const SOON: Duration = Duration::from_secs(120);

/// Its clients to worker clusters keep the library's limits, which no setting changes.
const RAISED: &[SourceEdit] = &[SourceEdit {
    file: "pkg/controller/admissionchecks/multikueue/multikueuecluster.go",
    from: "\tdirectClient, err := client.NewWithWatch(restConfig, options)\n",
    to: "\trestConfig.QPS, restConfig.Burst = 1000, 2000\n\tdirectClient, err := client.NewWithWatch(restConfig, options)\n",
}];

/// Four Kueues on their clusters.
pub(super) struct Stock {
    // Before the clusters that they run on.
    kueues: Vec<(String, Kueue)>,
    environment: Environment,
}

impl Stock {
    pub(super) async fn start(form: Form, limits_raised: bool) -> anyhow::Result<Self> {
        let builder = Environment::builder("bench-stock").cluster(ClusterSpec::new(HUB));
        let environment =
            WORKERS.iter().fold(builder, |builder, name| builder.cluster(worker(name, form)));
        let environment = environment.start().await?;
        let options = if limits_raised { raised() } else { shipped() };
        let start = environment.clusters().iter().map(async |cluster| {
            let kueue = Kueue::start(cluster, &options).await?;
            anyhow::Ok((cluster.name().to_owned(), kueue))
        });
        let kueues = try_join_all(start).await?;
        let stock = Self { kueues, environment };
        stock.queues().await?;
        Ok(stock)
    }

    async fn queues(&self) -> anyhow::Result<()> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let local = queues::local_queue(NAMESPACE, QUEUE, ALL);
        let flavor = queues::ResourceFlavor::new(ALL).build();
        let queue = || queues::ClusterQueue::new(ALL).group(ALL, &[("cpu", CPUS)]);
        let hub = self.environment.cluster(HUB);
        let mut objects = vec![
            namespace.clone(),
            flavor.clone(),
            queue().admission_check(ALL).build(),
            local.clone(),
        ];
        for name in WORKERS {
            let worker = self.environment.cluster(name);
            worker
                .apply([namespace.clone(), flavor.clone(), queue().build(), local.clone()])
                .await?;
            let kubeconfig = std::fs::read_to_string(worker.kubeconfig())?;
            objects.push(queues::kubeconfig_secret(stock::NAMESPACE, name, &kubeconfig));
            objects.push(queues::kubeconfig_cluster(name, name));
        }
        objects.extend(queues::multikueue(ALL, &WORKERS));
        hub.apply(objects).await?;
        for name in WORKERS {
            ready::worker_cluster(hub, name, SOON).await?;
        }
        for cluster in self.environment.clusters() {
            ready::local_queue(cluster, NAMESPACE, QUEUE, SOON).await?;
        }
        Ok(())
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(super) fn controllers<T>(
        &self,
        act: &mut impl FnMut(&Process) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<(String, T)>> {
        self.kueues.iter().map(|(name, kueue)| Ok((name.clone(), act(kueue.process())?))).collect()
    }
}

/// The options that its release ships, except those that do not work here.
pub(super) fn shipped() -> Options {
    let concurrency = json!({
        "Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5,
        "Cohort.kueue.x-k8s.io": 1, "ClusterQueue.kueue.x-k8s.io": 5, "ResourceFlavor.kueue.x-k8s.io": 1,
    });
    let config = json!({"controller": {"groupKindConcurrency": concurrency}});
    Options { config, ..Options::default() }
}

/// The same with no limit of its clients that would be felt.
fn raised() -> Options {
    Options { qps: 1000, burst: 2000, edits: RAISED, ..shipped() }
}
