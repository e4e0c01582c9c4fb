//! One worker fails beside another that does not.
use std::time::Duration;

use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::{ClusterSpec, NodeSpec, Part, Process, fixture, job, queues};

use super::SOON;

/// Until as many jobs as fit on one worker have run to their end.
async fn all_run(fleet: &Fleet, tenant: &Tenant<'_>, stem: &str) {
    let names = [1, 2, 3, 4].map(|number| format!("{stem}-{number}"));
    for name in &names {
        tenant.submit(tenant.job(name).cpu("1").run_for(Duration::from_secs(1))).await.unwrap();
    }
    for name in &names {
        job::complete(&fleet.hub().admin, tenant.name(), name, SOON).await.unwrap();
    }
}

#[test]
fn jobs_do_not_wait_for_failing_cluster_if_another_fits() {
    fixture::run(async {
        let spec = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8)).own_etcd();
        let fleet = Fleet::builder("isolated")
            .agent(spec("west"))
            .agent(spec("east"))
            .start()
            .await
            .unwrap();
        fleet.hub().apply(["west", "east"].map(queues::agent_cluster)).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant = fleet
            .tenant("beside")
            .hub(&[("cpu", "8")])
            .worker("west", &quota)
            .worker("east", &quota)
            .make()
            .await;
        let tenant = tenant.unwrap();

        // Its connection is there, and silent.
        fleet.with("west", Process::pause).unwrap().unwrap();
        all_run(&fleet, &tenant, "asleep").await;
        fleet.with("west", Process::resume).unwrap().unwrap();
        fleet.connected("west").await.unwrap();

        // It speaks, and cannot do anything.
        let west = fleet.environment().cluster("west");
        west.kill(Part::ApiServer).unwrap();
        all_run(&fleet, &tenant, "blind").await;
        west.restart(Part::ApiServer).await.unwrap();

        // The requests in between leave nothing.
        fleet.connected("west").await.unwrap();
        tenant.await_empty("west", SOON).await.unwrap();
    });
}
