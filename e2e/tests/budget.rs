//! How many API writes a dispatched job costs us, held to a written budget.

use switchyard_e2e::{figures, fixture};

/// Jobs sent at once.
const JOBS: u64 = 20;
/// Writes per job of the hub on its own cluster: create the Workload; one status write with quota, cluster, attempt and
/// admission; the job's status at most three times (running, ready, finished); the Workload finished.
const HUB: u64 = 6;
/// Writes per job of the agent on its cluster: create the Workload and admit it; create the Job and start it; note
/// that its pods are ready and that it has finished; let go of both and delete them.
const WORKER: u64 = 12;
/// What queues and clusters show of themselves is written once a second at most, however many jobs there are.
const STATUS: u64 = 60;

#[test]
fn a_dispatched_job_keeps_to_its_budget_of_writes() {
    fixture::run(async {
        let fleet = figures::fleet("budget").await.unwrap();
        let tenant = figures::tenant(&fleet, "budget").await.unwrap();
        let writes = figures::writes(&fleet, &tenant, usize::try_from(JOBS).unwrap()).await.unwrap();
        for (cluster, requests, budget) in [("hub", writes.hub, HUB), ("worker", writes.worker, WORKER)] {
            let requests = figures::without_events(&requests);
            let shown = ["clusterqueues", "localqueues", "multikueueclusters", "admissionchecks"];
            let status = requests.only(|request| shown.contains(&request.resource.as_str()));
            let jobs = requests.total() - status.total();
            println!(
                "{cluster}: {:.2} writes per job, {} of status: {requests:#?}",
                jobs as f64 / JOBS as f64,
                status.total()
            );
            assert!(jobs <= budget * JOBS, "{cluster}: {jobs} writes for {JOBS} jobs, the budget is {budget} each");
            assert!(status.total() <= STATUS, "{cluster}: {} writes of queues' and clusters' status", status.total());
        }
    });
}
