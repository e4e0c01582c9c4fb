//! A stock MultiKueue manager in full use stops, and the hub starts on the same objects. No job restarts or runs twice, and
//! waiting jobs go on.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use clap::Parser as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use switchyard_api::conditions;
use switchyard_api::v1beta2::Workload;
use switchyard_e2e::fleet::{Fleet, HUB, NAMESPACE, Tenant};
use switchyard_e2e::single::Single;
use switchyard_e2e::stock::{self, Kueue, Options};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, JobBuilder, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(180);

/// A job as the manager's webhook would make it.
fn sent(namespace: &str, name: &str) -> JobBuilder {
    let managed_by = json!("kueue.x-k8s.io/multikueue");
    JobBuilder::new(namespace, name)
        .queue("queue")
        .suspended()
        .cpu("1")
        .field("managedBy", managed_by)
}

/// The pods that each job has had on a cluster, and those of them that run.
async fn pods(
    cluster: &Cluster,
    namespace: &str,
) -> anyhow::Result<BTreeMap<String, Vec<(String, bool)>>> {
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), namespace);
    let mut of_jobs: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    for pod in pods.list(&ListParams::default()).await?.items {
        let runs =
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        let job = pod.metadata.labels.as_ref().and_then(|labels| labels.get("job-name").cloned());
        of_jobs
            .entry(job.unwrap_or_default())
            .or_default()
            .push((pod.metadata.uid.unwrap_or_default(), runs));
    }
    Ok(of_jobs)
}

/// Waits until jobs have pods that run.
async fn run(cluster: &Cluster, namespace: &str, jobs: &[&str]) {
    eventually(SOON, format!("{jobs:?} to run"), async || {
        let found = pods(cluster, namespace).await?;
        let runs =
            |job: &&&str| found.get(**job).is_some_and(|pods| pods.iter().any(|(_, runs)| *runs));
        ensure!(jobs.iter().filter(runs).count() == jobs.len(), "{found:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// The Workload of a job on a cluster, if there is one.
async fn workload(
    cluster: &Cluster,
    namespace: &str,
    job: &str,
) -> anyhow::Result<Option<Workload>> {
    let workloads: Api<Workload> = Api::namespaced(cluster.admin.clone(), namespace);
    let named = |workload: &Workload| {
        workload.metadata.name.as_ref().is_some_and(|name| name.starts_with(&format!("job-{job}-")))
    };
    Ok(workloads.list(&ListParams::default()).await?.items.into_iter().find(named))
}

/// `switchyard migrate preflight` with the manager's own kubeconfig of the worker.
async fn preflight_reads_the_worker(hub: &Cluster) {
    let kubeconfig = hub.kubeconfig().to_str().unwrap();
    let words = ["switchyard", "--kubeconfig", kubeconfig, "migrate", "preflight"];
    let words = words.into_iter().chain(["--kueue-version", "v0.19.2", "-o", "json"]);
    let args = switchyard::Args::try_parse_from(words).unwrap();
    let mut out = Vec::new();
    let verdict = switchyard::run(args, &mut out).await.unwrap();
    let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(verdict, switchyard::ExitStatus::Clean, "{report:#}");
    assert_eq!((&report["mode"], &report["waiting"]), (&"hub".into(), &1.into()), "{report:#}");
    let findings = report["findings"].as_array().unwrap();
    let of_worker: Vec<_> = findings.iter().filter(|it| it["subject"] == "worker").collect();
    assert_eq!(of_worker.len(), 1, "{report:#}");
    assert!(
        of_worker[0]["message"].as_str().unwrap().starts_with("it keeps its Kueue"),
        "{report:#}"
    );
    let steps: Vec<_> = report["steps"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert!(steps.contains(&&"Copy 1 kubeconfig Secrets to switchyard-system".into()), "{steps:?}");
}

#[test]
fn a_live_multikueue_hub_is_taken_over() {
    fixture::run(async {
        let node = NodeSpec::new("n1").cpu(16);
        let fleet = Fleet::builder("live")
            .bare(ClusterSpec::new("worker").node(node))
            .start()
            .await
            .unwrap();
        let (hub, worker) = (fleet.hub(), fleet.worker("worker"));
        // At first there is none of Switchyard.
        fleet.kill(HUB);
        Single::unregister(hub).await.unwrap();
        let manager = Kueue::start(hub, &Options::default()).await.unwrap();
        let _kueue = Kueue::start(worker, &Options::default()).await.unwrap();
        worker.apply_dir(switchyard_e2e::paths::root().join("deploy/rbac")).await.unwrap();
        let namespace = hub.namespace("live").await.unwrap();
        worker
            .apply([
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            ])
            .await
            .unwrap();
        worker.apply(queues::simple(&namespace, "all", &[("cpu", "2")])).await.unwrap();
        let admin = std::fs::read_to_string(worker.kubeconfig()).unwrap();
        let mut objects = vec![queues::kubeconfig_secret(stock::NAMESPACE, "worker", &admin)];
        objects.push(queues::kubeconfig_cluster("worker", "worker"));
        objects.extend(queues::multikueue("mk", &["worker"]));
        objects.push(queues::ResourceFlavor::new("all").build());
        objects.push(
            queues::ClusterQueue::new("all")
                .group("all", &[("cpu", "3")])
                .admission_check("mk")
                .build(),
        );
        objects.push(queues::local_queue(&namespace, "queue", "all"));
        hub.apply(objects).await.unwrap();

        // Two run, one waits for quota on the worker, one on the hub.
        sent(&namespace, "runs-on").run_forever().create(&hub.admin).await.unwrap();
        sent(&namespace, "ends").run_for(Duration::from_secs(8)).create(&hub.admin).await.unwrap();
        run(worker, &namespace, &["runs-on", "ends"]).await;
        sent(&namespace, "waits-there")
            .run_for(Duration::from_millis(500))
            .create(&hub.admin)
            .await
            .unwrap();
        eventually(SOON, "a copy of waits-there", async || {
            ensure!(workload(worker, &namespace, "waits-there").await?.is_some(), "there is none");
            Ok(())
        })
        .await
        .unwrap();
        sent(&namespace, "queued")
            .run_for(Duration::from_millis(500))
            .create(&hub.admin)
            .await
            .unwrap();
        // The manager has written down where they run.
        for job in ["runs-on", "ends"] {
            eventually(SOON, format!("{job} to be admitted"), async || {
                let found =
                    workload(hub, &namespace, job).await?.and_then(|workload| workload.status);
                let conditions = found.map(|status| status.conditions).unwrap_or_default();
                ensure!(conditions::is_true(&conditions, conditions::ADMITTED), "{conditions:?}");
                Ok(())
            })
            .await
            .unwrap();
        }
        let before = pods(worker, &namespace).await.unwrap();
        let remote: Api<Job> = Api::namespaced(worker.admin.clone(), &namespace);
        let job_before = remote.get("runs-on").await.unwrap().metadata.uid;

        preflight_reads_the_worker(hub).await;
        manager.stop().await;
        // As docs/migrate.md says: Switchyard's CRDs, the kubeconfig where the hub looks for it, the hub.
        hub.install().await.unwrap();
        let (_, kubeconfig) =
            worker.service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
        hub.apply([queues::kubeconfig_secret(NAMESPACE, "worker", &kubeconfig)]).await.unwrap();
        fleet.start_hub().await.unwrap();
        fleet.connected("worker").await.unwrap();
        for name in ["ends", "waits-there", "queued"] {
            job::complete(&hub.admin, &namespace, name, SOON).await.unwrap();
        }

        let after = pods(worker, &namespace).await.unwrap();
        assert_eq!(after.get("runs-on"), before.get("runs-on"), "the pods of runs-on");
        assert_eq!(
            remote.get("runs-on").await.unwrap().metadata.uid,
            job_before,
            "the job on the worker"
        );
        for (job, pods) in &after {
            assert_eq!(pods.len(), 1, "{job} ran {} times", pods.len());
        }
        for name in ["runs-on", "ends"] {
            let workload = workload(hub, &namespace, name).await.unwrap().unwrap();
            let status = workload.status.clone().unwrap_or_default();
            assert!(
                conditions::find(&status.conditions, "Evicted").is_none(),
                "{name}: {}",
                Tenant::told(&workload)
            );
            assert_eq!(status.dispatch.map(|dispatch| dispatch.attempt), Some(1), "{name}");
        }

        // It is the hub's now: deleted on the hub, it is deleted on the worker.
        let jobs: Api<Job> = Api::namespaced(hub.admin.clone(), &namespace);
        jobs.delete("runs-on", &DeleteParams::background()).await.unwrap();
        eventually(SOON, "nothing to be left on the worker", async || {
            let left = remote.list(&ListParams::default()).await?.items.len();
            ensure!(left == 0, "{left} jobs");
            Ok(())
        })
        .await
        .unwrap();
    });
}
