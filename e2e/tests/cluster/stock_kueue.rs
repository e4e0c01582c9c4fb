//! Stock Kueue runs on the harness' clusters, alone and as MultiKueue manager and worker: the peer of other tests. And
//! a stock manager uses Switchyard's single mode as a worker like any other.
use std::time::{Duration, Instant};

use anyhow::ensure;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use switchyard_e2e::single::Single;
use switchyard_e2e::stock::{self, Kueue};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, fixture, job, queues,
};

const SOON: Duration = Duration::from_secs(120);
const QUOTA: &[(&str, &str)] = &[("cpu", "4")];

#[test]
fn a_stock_manager_dispatches_to_a_stock_worker() {
    fixture::run(async {
        let worker = ClusterSpec::new("worker").node(NodeSpec::new("n1"));
        let environment =
            Environment::builder("stock").cluster(ClusterSpec::new("manager")).cluster(worker);
        let environment = environment.start().await.unwrap();
        let (manager, worker) = (environment.cluster("manager"), environment.cluster("worker"));
        let start = Instant::now();
        let options = stock::Options::default();
        let peers =
            futures::try_join!(Kueue::start(manager, &options), Kueue::start(worker, &options))
                .unwrap();
        println!("two Kueues: {:.1?}", start.elapsed());

        let namespace = manager.namespace("team").await.unwrap();
        let same =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        worker.apply([same]).await.unwrap();
        worker.apply(queues::simple(&namespace, "all", QUOTA)).await.unwrap();

        let alone = JobBuilder::new(&namespace, "alone").queue("queue").suspended();
        alone.create(&worker.admin).await.unwrap();
        job::complete(&worker.admin, &namespace, "alone", SOON).await.unwrap();

        manage(manager, worker, &namespace).await;
        let start = Instant::now();
        sent(&namespace, "sent").create(&manager.admin).await.unwrap();
        job::complete(&manager.admin, &namespace, "sent", SOON).await.unwrap();
        println!("dispatched and complete after {:.1?}", start.elapsed());
        println!("manager's memory {} MB", peers.0.process().rss().unwrap() / 1_000_000);
    });
}

/// Has a stock manager send what comes into a namespace's queue to a worker.
async fn manage(manager: &Cluster, worker: &Cluster, namespace: &str) {
    let kubeconfig = std::fs::read_to_string(worker.kubeconfig()).unwrap();
    let mut objects = vec![queues::kubeconfig_secret(stock::NAMESPACE, "worker", &kubeconfig)];
    objects.push(queues::kubeconfig_cluster("worker", "worker"));
    objects.extend(queues::multikueue("mk", &["worker"]));
    objects.push(queues::ResourceFlavor::new("all").build());
    objects
        .push(queues::ClusterQueue::new("all").group("all", QUOTA).admission_check("mk").build());
    objects.push(queues::local_queue(namespace, "queue", "all"));
    manager.apply(objects).await.unwrap();
}

/// A job as the manager's webhook would make it.
fn sent(namespace: &str, name: &str) -> JobBuilder {
    let managed_by = json!("kueue.x-k8s.io/multikueue");
    JobBuilder::new(namespace, name).queue("queue").suspended().field("managedBy", managed_by)
}

#[test]
fn a_stock_manager_dispatches_to_our_single_mode() {
    fixture::run(async {
        let worker = ClusterSpec::new("worker").node(NodeSpec::new("n1").cpu(16));
        let environment = Environment::builder("manages-ours")
            .cluster(ClusterSpec::new("manager"))
            .cluster(worker);
        let environment = environment.start().await.unwrap();
        let (manager, worker) = (environment.cluster("manager"), environment.cluster("worker"));
        let _kueue = Kueue::start(manager, &stock::Options::default()).await.unwrap();
        worker.install().await.unwrap();
        let _ours = Single::start(worker).await.unwrap();
        let namespace = manager.namespace("team").await.unwrap();
        worker
            .apply([
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            ])
            .await
            .unwrap();
        // Room for two jobs of one CPU: what else the manager sends waits on the worker.
        worker.apply(queues::simple(&namespace, "all", &[("cpu", "2")])).await.unwrap();
        manage(manager, worker, &namespace).await;

        let client = &manager.admin;
        sent(&namespace, "good")
            .cpu("1")
            .run_for(Duration::from_secs(1))
            .create(client)
            .await
            .unwrap();
        job::complete(client, &namespace, "good", SOON).await.unwrap();
        sent(&namespace, "bad").cpu("1").fails().backoff_limit(0).create(client).await.unwrap();
        job::failed(client, &namespace, "bad", SOON).await.unwrap();

        for name in ["long-1", "long-2"] {
            sent(&namespace, name).cpu("1").run_forever().create(client).await.unwrap();
        }
        running(worker, &namespace, &["long-1", "long-2"]).await;
        sent(&namespace, "waits")
            .cpu("1")
            .run_for(Duration::from_millis(200))
            .create(client)
            .await
            .unwrap();
        // Its user deletes one on the manager: it goes on the worker, and what has waited there runs.
        let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
        jobs.delete("long-1", &DeleteParams::background()).await.unwrap();
        job::complete(client, &namespace, "waits", SOON).await.unwrap();
        running(worker, &namespace, &["long-2"]).await;
    });
}

/// Waits until these jobs, and no others, have pods that run on a cluster.
async fn running(cluster: &Cluster, namespace: &str, jobs: &[&str]) {
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), namespace);
    eventually(SOON, format!("pods of {jobs:?}"), async || {
        let found = pods.list(&ListParams::default()).await?.items;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let running = found.iter().filter(|pod| phase(pod).as_deref() == Some("Running"));
        let mut names: Vec<&str> = running
            .filter_map(|pod| Some(pod.metadata.labels.as_ref()?.get("job-name")?.as_str()))
            .collect();
        names.sort_unstable();
        ensure!(names == jobs, "{names:?} run");
        Ok(())
    })
    .await
    .unwrap();
}
