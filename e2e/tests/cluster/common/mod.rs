//! The fleet that the tests of a file share: a hub, and two workers with agents. And what tests of several files look at.

pub(crate) mod events;
pub(crate) mod helm;
pub(crate) mod kueue_chart;
pub(crate) mod random;
pub(crate) mod shell;

use switchyard_config::Configuration;
use switchyard_e2e::fixture::Shared;
use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, Part, Parts, queues};

/// The workers of the shared fleet.
pub(crate) const WORKERS: [&str; 2] = ["west", "east"];

static FLEET: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let mut fleet = Fleet::builder("fleet");
        for worker in WORKERS {
            fleet =
                fleet.agent(ClusterSpec::new(worker).node(NodeSpec::new("n1").cpu(256).gpu(64)));
        }
        let fleet = fleet.start().await?;
        fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await?;
        fleet.connect().await?;
        Ok(fleet)
    })
});

/// Installs the CRDs of a Go module that Kueue itself requires, as the module has them.
pub(crate) async fn crds_of(cluster: &Cluster, module: &'static str) {
    let source = tokio::task::spawn_blocking(move || {
        Parts::new()?.source_dir(Part::Kueue, module).map_err(anyhow::Error::from)
    });
    cluster.apply_dir(source.await.unwrap().unwrap().join("config/crd")).await.unwrap();
}

/// A configuration whose webhooks validate all manifests of the tables: fields of these feature gates are validated
/// only where they are on.
pub(crate) fn that_judges_manifests() -> Configuration {
    let mut config = Configuration::default();
    for gate in ["ConcurrentAdmission", "PriorityBoost"] {
        config.feature_gates.insert(gate.to_owned(), true);
    }
    config
}

/// The shared fleet, started by the first test.
pub(crate) async fn fleet() -> &'static Fleet {
    FLEET.get().await.unwrap()
}
