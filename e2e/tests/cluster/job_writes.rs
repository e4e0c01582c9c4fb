//! API writes of a job.

use std::time::{Duration, Instant};

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
/// Examined jobs that keep waiting get the reason.
const WRITES_MORE: f64 = 1.0;
/// Refused writes of a job. On a busy machine, more writes are of an object that has changed.
const REFUSED_PER_JOB: f64 = 0.05;
/// The status of the ClusterQueue and of its LocalQueue is written once a second at most, and when they begin.
const STATUS_PER_SECOND: u64 = 2;
const STATUS_MORE: u64 = 20;

#[test]
fn a_job_costs_few_writes() {
    fixture::run(async {
        const JOBS: u16 = 100;
        let environment = environment().await;
        let bed = Bed::on(environment, "cost").await;
        let handle = controller(bed.cluster(), "cost").await;
        bed.simple(&[("cpu", "20")]).await;
        bed.cluster_queue_condition("True", "Ready", "Can admit new workloads").await;
        let (before, start) = (ours(bed.cluster()), Instant::now());
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
        let queues = ["clusterqueues", "localqueues"];
        let status = written.only(|request| queues.contains(&request.resource.as_str()));
        let rest = written.only(|request| {
            request.group != "events.k8s.io" && !queues.contains(&request.resource.as_str())
        });
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
        let most_status = STATUS_PER_SECOND * start.elapsed().as_secs() + STATUS_MORE;
        assert!(status.total() <= most_status, "more than {most_status} of queues:\n{written}");
        let refused = rest.only(|request| request.code >= 300);
        println!("refused writes:\n{refused}");
        assert!(per_job(&refused) <= REFUSED_PER_JOB, "refused writes:\n{refused}");
        handle.shutdown();
        handle.ended().await.unwrap();
    });
}
