//! API writes of a dispatched job, held to a written budget.

use std::time::{Duration, Instant};

use switchyard_e2e::{Requests, fixture, write_counts};

/// Jobs sent at once.
const JOBS: u64 = 20;
/// Writes per job of the hub on its own cluster, with one more allowed. It creates the Workload, writes its status once with
/// quota, cluster, attempt and admission, and unsuspends the job. It writes the job's status twice (running, finished), and
/// finishes the Workload. Where pods take longer, the first ready pod is shown on its own; where all takes long, so is each later
/// change.
const HUB: u64 = 6 + 1;
/// Writes per job of the agent on its cluster, with two more allowed. It creates the Workload and admits it, and creates the Job,
/// already started. It removes the finalizer of the Job, and deletes it and the Workload. If the hub takes some seconds to record
/// the end, the Workload is declared finished here, which releases its quota. And an object is sometimes gone before its write.
const WORKER: u64 = 6 + 2;
/// Events per job of hub and worker together, all on the hub: its Workload made, admitted, sent and finished. Waiting jobs,
/// preemptions and slow checks have further events.
const EVENTS: u64 = 4;
/// Events about clusters and queues, however many jobs there are.
const OTHERS: u64 = 10;
/// The status of each queue and cluster is written once a second at most, for any number of jobs: so many writes in all.
const STATUS: u64 = 60;
/// The same for each second of a run that takes longer than usual: of ClusterQueue, LocalQueue and MultiKueueCluster.
const STATUS_PER_SECOND: u64 = 3;
/// A run on an idle machine takes less.
const USUAL: Duration = Duration::from_secs(30);
/// Further writes and events per job in a longer run: interim states are shown, and conflicts repeat writes.
const SLOW: u64 = 2;

#[test]
fn a_dispatched_job_keeps_to_its_budget_of_writes() {
    fixture::run(async {
        let fleet = write_counts::fleet("budget").await.unwrap();
        let tenant = write_counts::tenant(&fleet, "budget").await.unwrap();
        let start = Instant::now();
        let writes =
            write_counts::count(&fleet, &tenant, usize::try_from(JOBS).unwrap()).await.unwrap();
        let elapsed = start.elapsed();
        let more = if elapsed > USUAL { SLOW } else { 0 };
        let most_status = STATUS.max(STATUS_PER_SECOND * elapsed.as_secs());
        let events = [&writes.hub, &writes.worker]
            .map(|all| all.only(|request| request.resource == "events"));
        let told = events.iter().map(Requests::total).sum::<u64>();
        println!("{:.2} events per job", told as f64 / JOBS as f64);
        let most_events = (EVENTS + more) * JOBS + OTHERS;
        assert!(told <= most_events, "{told} events for {JOBS} jobs: {events:#?}");
        for (cluster, requests, budget) in
            [("hub", writes.hub, HUB + more), ("worker", writes.worker, WORKER + more)]
        {
            let requests = requests.without_events();
            let shown = ["clusterqueues", "localqueues", "multikueueclusters", "admissionchecks"];
            let status = requests.only(|request| shown.contains(&request.resource.as_str()));
            let jobs = requests.total() - status.total();
            println!(
                "{cluster}: {:.2} writes per job, {} of status: {requests:#?}",
                jobs as f64 / JOBS as f64,
                status.total()
            );
            assert!(
                jobs <= budget * JOBS,
                "{cluster}: {jobs} writes for {JOBS} jobs, the budget is {budget} each"
            );
            assert!(
                status.total() <= most_status,
                "{cluster}: {} writes of queues' and clusters' status, {most_status} are allowed",
                status.total()
            );
        }
    });
}
