//! Stock Kueue runs on the harness' clusters, alone and as MultiKueue manager and worker: the peer for our own tests.

use std::time::{Duration, Instant};

use serde_json::json;
use switchyard_e2e::stock::{self, Kueue};
use switchyard_e2e::{ClusterSpec, Environment, JobBuilder, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(60);
const QUOTA: &[(&str, &str)] = &[("cpu", "4")];

#[test]
fn a_stock_manager_dispatches_to_a_stock_worker() {
    fixture::run(async {
        let worker = ClusterSpec::new("worker").node(NodeSpec::new("n1"));
        let environment = Environment::builder("stock").cluster(ClusterSpec::new("manager")).cluster(worker);
        let environment = environment.start().await.unwrap();
        let (manager, worker) = (environment.cluster("manager"), environment.cluster("worker"));
        let start = Instant::now();
        let options = stock::Options::default();
        let peers = futures::try_join!(Kueue::start(manager, &options), Kueue::start(worker, &options)).unwrap();
        println!("two Kueues: {:.1?}", start.elapsed());

        let namespace = manager.namespace("team").await.unwrap();
        let same = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        worker.apply([same]).await.unwrap();
        worker.apply(queues::simple(&namespace, "all", QUOTA)).await.unwrap();

        let alone = JobBuilder::new(&namespace, "alone").queue("queue").suspended();
        alone.create(&worker.admin).await.unwrap();
        job::complete(&worker.admin, &namespace, "alone", SOON).await.unwrap();

        let kubeconfig = std::fs::read_to_string(worker.kubeconfig()).unwrap();
        let mut objects = vec![queues::kubeconfig_secret(stock::NAMESPACE, "worker", &kubeconfig)];
        objects.push(queues::kubeconfig_cluster("worker", "worker"));
        objects.extend(queues::multikueue("mk", &["worker"]));
        objects.push(queues::ResourceFlavor::new("all").build());
        objects.push(queues::ClusterQueue::new("all").group("all", QUOTA).admission_check("mk").build());
        objects.push(queues::local_queue(&namespace, "queue", "all"));
        manager.apply(objects).await.unwrap();
        let managed_by = json!("kueue.x-k8s.io/multikueue");
        let sent = JobBuilder::new(&namespace, "sent").queue("queue").suspended().field("managedBy", managed_by);
        let start = Instant::now();
        sent.create(&manager.admin).await.unwrap();
        job::complete(&manager.admin, &namespace, "sent", SOON).await.unwrap();
        println!("dispatched and complete after {:.1?}", start.elapsed());
        println!("manager's memory {} MB", peers.0.process().rss().unwrap() / 1_000_000);
    });
}
