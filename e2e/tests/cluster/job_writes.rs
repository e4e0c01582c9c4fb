//! API writes of a job.

use std::time::Duration;

use futures::future::join_all;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, NodeSpec, Requests, fixture, job};
use tokio::sync::OnceCell;

use crate::bed::{Bed, WAIT, controller};

const USER: &str = "system:serviceaccount:switchyard-system:switchyard";

static ENVIRONMENT: OnceCell<Environment> = OnceCell::const_new();

async fn environment() -> &'static Environment {
    let start = async || {
        let one = ClusterSpec::new("one").node(NodeSpec::new("plain").cpu(500)).audited();
        let environment = Environment::builder("job-writes").cluster(one).start().await.unwrap();
        environment.cluster("one").install().await.unwrap();
        environment
    };
    ENVIRONMENT.get_or_init(start).await
}

fn ours(cluster: &Cluster) -> Requests {
    cluster.requests_by(USER).unwrap().writes()
}

/// On paper: the Workload, its admission, the start of the Job, its end.
const WRITES_PER_JOB: f64 = 4.0;
/// Examined jobs that keep waiting get the reason; statuses of queues are written once a second.
const WRITES_MORE: f64 = 1.0;

#[test]
fn a_job_costs_few_writes() {
    fixture::run(async {
        const JOBS: u16 = 100;
        let environment = environment().await;
        let bed = Bed::on(environment, "cost").await;
        let handle = controller(bed.cluster(), "cost").await;
        bed.simple(&[("cpu", "20")]).await;
        bed.cluster_queue_condition("True", "Ready", "Can admit new workloads").await;
        let before = ours(bed.cluster());
        let names: Vec<String> = (0..JOBS).map(|n| format!("job-{n}")).collect();
        let create = |name: &String| {
            bed.job(name).cpu("1").run_for(Duration::from_secs(1)).create(bed.admin())
        };
        for created in join_all(names.iter().map(create)).await {
            created.unwrap();
        }
        for name in &names {
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
            bed.expect_true(name, "Finished").await;
        }
        bed.queue_status(0, 0, 0).await;
        let written = ours(bed.cluster()).since(&before);
        let events = written.only(|request| request.group == "events.k8s.io");
        let rest = written.only(|request| request.group != "events.k8s.io");
        let per_job = |requests: &Requests| {
            f64::from(u32::try_from(requests.total()).unwrap()) / f64::from(JOBS)
        };
        println!(
            "per job {:.2} writes and {:.2} of events\n{written}",
            per_job(&rest),
            per_job(&events)
        );
        assert!(
            per_job(&rest) <= WRITES_PER_JOB + WRITES_MORE,
            "{:.2} writes per job:\n{written}",
            per_job(&rest)
        );
        let refused = rest.only(|request| request.code >= 300);
        assert!(per_job(&refused) <= 0.05, "refused writes:\n{refused}");
        handle.shutdown();
        handle.ended().await.unwrap();
    });
}
