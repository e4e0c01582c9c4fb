//! The fleet that the tests of a file share: a hub, and two workers with agents.

use switchyard_e2e::fixture::{Borrowed, Shared};
use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::{ClusterSpec, NodeSpec, queues};

/// The workers of the shared fleet.
const WORKERS: [&str; 2] = ["west", "east"];

static FLEET: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let mut fleet = Fleet::builder("fleet");
        for worker in WORKERS {
            fleet = fleet.agent(ClusterSpec::new(worker).node(NodeSpec::new("n1").cpu(256).gpu(64)));
        }
        let fleet = fleet.start().await?;
        fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await?;
        fleet.connect().await?;
        Ok(fleet)
    })
});

/// The shared fleet, started by the first test.
pub(crate) async fn fleet() -> Borrowed<Fleet> {
    FLEET.get().await.unwrap()
}
