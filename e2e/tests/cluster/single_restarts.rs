//! A controller that restarts, hands its Lease over, loses its API server, or has no rights.

use std::{collections::BTreeMap, time::Duration};

use crate::bed::{Bed, WAIT, controller};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::Api;
use switchyard_controller::{Handle, LeaderMode, Options};
use switchyard_e2e::{ClusterSpec, Environment, NodeSpec, fixture, job, wait};
use tokio::sync::OnceCell;

static ENVIRONMENT: OnceCell<Environment> = OnceCell::const_new();

/// Serializes the tests: each starts and stops controllers of its own.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn environment() -> &'static Environment {
    let start = async || {
        let one = ClusterSpec::new("one").node(NodeSpec::new("plain").cpu(500));
        let environment =
            Environment::builder("single-restarts").cluster(one).start().await.unwrap();
        environment.cluster("one").install().await.unwrap();
        environment
    };
    ENVIRONMENT.get_or_init(start).await
}

async fn stop(handle: Handle) {
    handle.shutdown();
    handle.ended().await.unwrap();
}

#[test]
fn a_restart_loses_nothing_and_repeats_nothing() {
    fixture::run(async {
        let _turn = TURN.lock().await;
        let environment = environment().await;
        let bed = Bed::on(environment, "restart").await;
        bed.simple(&[("cpu", "4")]).await;
        let names: Vec<String> = (0..24).map(|n| format!("job-{n}")).collect();
        let mut handle = controller(bed.cluster(), "restart").await;
        // While the first jobs run, and while some run, others wait and others have finished. Each round adds more jobs
        // than end before the next stop, so that some run at the stop on a slow machine, too.
        for (batch, finished) in names.chunks(8).zip([0, 4, 8]) {
            for name in batch {
                bed.job(name)
                    .cpu("1")
                    .run_for(Duration::from_secs(5))
                    .create(bed.admin())
                    .await
                    .unwrap();
            }
            progress_to(&bed, |running, complete| running > 0 && complete >= finished).await;
            stop(handle).await;
            quota_holds(&bed, 4).await;
            // The running job ends while no controller runs.
            progress_to(&bed, |running, _| running == 0).await;
            handle = controller(bed.cluster(), "restart").await;
        }
        for name in &names {
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
            bed.expect_true(name, "Finished").await;
        }
        bed.queue_status(0, 0, 0).await;
        // One workload and one pod a job: nothing was made or run twice.
        assert_eq!(bed.workloads().await.len(), names.len());
        let pods: Api<Pod> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        let mut by_job: BTreeMap<String, usize> = BTreeMap::new();
        for pod in pods.list(&Default::default()).await.unwrap() {
            *by_job
                .entry(pod.metadata.labels.unwrap_or_default()["job-name"].clone())
                .or_default() += 1;
        }
        assert!(
            by_job.len() == names.len() && by_job.values().all(|pods| *pods == 1),
            "{by_job:?}"
        );
        stop(handle).await;
    });
}

#[test]
fn another_replica_takes_over_with_a_higher_epoch() {
    fixture::run(async {
        let _turn = TURN.lock().await;
        let environment = environment().await;
        let bed = Bed::on(environment, "lead").await;
        bed.simple(&[("cpu", "8")]).await;
        let replica = async |identity: &str| {
            let (client, _) =
                bed.cluster().service_account("switchyard-system", "switchyard").await.unwrap();
            let mut options =
                Options::new(client, Default::default(), identity, "switchyard-system");
            options.leader = LeaderMode::Elect;
            let handle = switchyard_controller::start(options).unwrap();
            handle.context.stores.ready(WAIT).await.unwrap();
            handle
        };
        let first = replica("first").await;
        let mut leading = first.leadership();
        let lead = async |leadership: &mut tokio::sync::watch::Receiver<
            switchyard_platform::lease::Leadership,
        >| {
            tokio::time::timeout(WAIT, leadership.wait_for(|now| now.leading))
                .await
                .unwrap()
                .unwrap()
                .epoch
        };
        let epoch = lead(&mut leading).await;
        let second = replica("second").await;
        bed.job("a").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("a").await;
        assert!(!second.leadership().borrow().leading);
        // A leader that goes releases the Lease, and the follower needs no more than a retry.
        stop(first).await;
        let next = lead(&mut second.leadership()).await;
        assert!(next > epoch, "{next} after {epoch}");
        bed.job("b").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("b").await;
        bed.running("a").await;
        stop(second).await;
    });
}

/// How many jobs run, and how many are complete.
async fn progress(bed: &Bed) -> anyhow::Result<(usize, usize)> {
    let jobs: Api<Job> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let jobs = jobs.list(&Default::default()).await?.items;
    let suspended = |job: &Job| job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
    let (complete, open): (Vec<Job>, Vec<Job>) =
        jobs.into_iter().partition(|found| job::has_condition(found, "Complete"));
    Ok((open.iter().filter(|job| !suspended(job)).count(), complete.len()))
}

async fn progress_to(bed: &Bed, there: impl Fn(usize, usize) -> bool) {
    let check = async || {
        let (running, complete) = progress(bed).await?;
        anyhow::ensure!(there(running, complete), "{running} run, {complete} are complete");
        Ok(())
    };
    wait::eventually(WAIT, "jobs to get on", check).await.unwrap();
}

/// However many run, they fit.
async fn quota_holds(bed: &Bed, cpus: usize) {
    let check = async || {
        let (running, _) = progress(bed).await?;
        anyhow::ensure!(running <= cpus, "{running} jobs run");
        Ok(())
    };
    wait::always(Duration::from_millis(200), "no more run than fit", check).await.unwrap();
}

#[test]
fn an_outage_of_the_api_server_is_seen_and_survived() {
    fixture::run(async {
        let _turn = TURN.lock().await;
        let environment = environment().await;
        let bed = Bed::on(environment, "outage").await;
        bed.simple(&[("cpu", "1")]).await;
        let (client, _) =
            bed.cluster().service_account("switchyard-system", "switchyard").await.unwrap();
        let mut options = Options::new(client, Default::default(), "outage", "switchyard-system");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        options.health = Some(listener);
        let handle = switchyard_controller::start(options).unwrap();
        handle.ready(WAIT).await.unwrap();
        for name in ["a", "b"] {
            bed.job(name)
                .cpu("1")
                .run_for(Duration::from_secs(1))
                .create(bed.admin())
                .await
                .unwrap();
        }
        // Both are of one second, so either may go first.
        for name in ["a", "b"] {
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
        }

        let (status, body) = get(port, "/healthz").await;
        assert_eq!((status, body.as_str()), (200, "ok"));
        assert_eq!(get(port, "/readyz").await.0, 200);
        let lines = [
            format!(
                "kueue_admitted_workloads_total{{cluster_queue=\"{}\",priority_class=\"\",replica_role=\"standalone\"}} 2",
                bed.name
            ),
            format!(
                "kueue_quota_reserved_workloads_total{{cluster_queue=\"{}\",priority_class=\"\",replica_role=\"standalone\"}} 2",
                bed.name
            ),
            format!(
                "kueue_pending_workloads{{cluster_queue=\"{}\",replica_role=\"standalone\",status=\"active\"}} 0",
                bed.name
            ),
            format!(
                "kueue_cluster_queue_status{{cluster_queue=\"{}\",replica_role=\"standalone\",status=\"active\"}} 1",
                bed.name
            ),
            "kueue_admission_attempts_total{result=\"success\",replica_role=\"standalone\"}"
                .to_owned(),
            "kueue_build_info".to_owned(),
        ];
        let shown = async || {
            let (_, page) = get(port, "/metrics").await;
            for line in &lines {
                anyhow::ensure!(page.contains(line), "no {line} in\n{page}");
            }
            Ok(())
        };
        wait::eventually(WAIT, "the metrics", shown).await.unwrap();

        bed.cluster().stop_api_server().unwrap();
        let unready = async || {
            let (status, body) = get(port, "/readyz").await;
            anyhow::ensure!(
                status == 503 && body.contains("[-]watch/workloads the watch is broken"),
                "{status} {body}"
            );
            Ok(())
        };
        wait::eventually(WAIT, "readiness to tell of the outage", unready).await.unwrap();
        assert_eq!(get(port, "/livez").await.0, 200, "a restart would not help");
        bed.cluster().start_api_server().await.unwrap();
        let ready = async || {
            let (status, body) = get(port, "/readyz").await;
            anyhow::ensure!(status == 200, "{status} {body}");
            Ok(())
        };
        wait::eventually(WAIT, "readiness", ready).await.unwrap();
        bed.job("c").cpu("1").run_for(Duration::from_secs(1)).create(bed.admin()).await.unwrap();
        job::complete(bed.admin(), &bed.namespace, "c", WAIT).await.unwrap();
        bed.expect_true("c", "Finished").await;
        stop(handle).await;
    });
}

#[test]
fn without_rights_it_says_what_is_missing_and_ends() {
    fixture::run(async {
        let _turn = TURN.lock().await;
        let environment = environment().await;
        let cluster = environment.cluster("one");
        let namespace = cluster.namespace("rights").await.unwrap();
        let (client, _) = cluster.service_account(&namespace, "default").await.unwrap();
        let handle = switchyard_controller::start(Options::new(
            client,
            Default::default(),
            "rights",
            &namespace,
        ))
        .unwrap();
        let error = handle.ready(Duration::from_secs(3)).await.unwrap_err().to_string();
        assert!(
            error.contains("clusterqueues")
                && error.contains("may the service account list and watch them?"),
            "{error}"
        );
        stop(handle).await;
    });
}

async fn get(port: u16, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
