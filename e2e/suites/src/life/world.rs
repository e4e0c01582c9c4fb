//! The fleet that the jobs live in, and its queues.

use futures::future::try_join_all;
use serde_json::{Value, json};
use switchyard_e2e::fleet::{Fleet, HUB};
use switchyard_e2e::queues::{self, ClusterQueue, Cohort, ResourceFlavor};
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, ready};

use super::plan::{CLASSES, CLUSTER_QUEUES, QUEUES, WORKERS, quota};
use super::{NAMESPACE, SOON};

const CONFIG: &str = "\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, pod, deployment, statefulset]
";
/// The AdmissionCheck and the cohort.
const NAME: &str = "life";

/// Starts a hub and two workers with agents, and makes the queues.
pub(crate) async fn start() -> anyhow::Result<Fleet> {
    let sets = "statefulset-controller";
    let mut fleet = Fleet::builder("life").config(CONFIG).agent_config(CONFIG).agent_webhooks();
    for name in WORKERS {
        fleet =
            fleet.agent(ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(64)).controller(sets));
    }
    let fleet = fleet.hub_controllers([
        "deployment-controller",
        "replicaset-controller",
        "cronjob-controller",
        sets,
    ]);
    let fleet = fleet.start().await?;
    fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await?;
    fleet.connect().await?;
    for cluster in fleet.environment().clusters() {
        cluster.apply(objects(cluster.name())).await?;
        cluster.await_service_account(NAMESPACE, "default").await?;
        await_queues(cluster).await?;
        ready::pod_webhook(cluster, (NAMESPACE, "a"), SOON).await?;
    }
    Ok(fleet)
}

/// The namespace, and all queues of a cluster.
fn objects(cluster: &str) -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        ResourceFlavor::new("default").build(),
        Cohort::new(NAME).build(),
    ];
    if cluster == HUB {
        objects.extend(queues::multikueue(NAME, &WORKERS));
    }
    objects.extend(
        CLASSES
            .into_iter()
            .zip(1..)
            .map(|(class, value)| queues::priority_class(class, value * 100)),
    );
    objects.extend(CLUSTER_QUEUES.map(|name| cluster_queue(cluster, name)));
    objects.extend(QUEUES.map(|name| local_queue(name, if name == "d" { "a" } else { name })));
    objects
}

/// `a` and `b` borrow from each other and take back what they lent, `c` is alone and strict.
fn cluster_queue(cluster: &str, name: &str) -> Value {
    let cpu = quota(cluster, name).to_string();
    let mut queue = ClusterQueue::new(name).group("default", &[("cpu", &cpu)]);
    queue = match name {
        "a" => queue.cohort(NAME).preemption("LowerPriority", "Any"),
        "b" => queue.cohort(NAME).preemption("LowerPriority", "LowerPriority"),
        _ => queue.strict_fifo(),
    };
    if cluster == HUB { queue.admission_check(NAME) } else { queue }.build()
}

/// A LocalQueue of the namespace.
pub(crate) fn local_queue(name: &str, cluster_queue: &str) -> Value {
    queues::local_queue(NAMESPACE, name, cluster_queue)
}

async fn await_queues(cluster: &Cluster) -> anyhow::Result<()> {
    let waits = QUEUES.iter().map(|name| ready::local_queue(cluster, NAMESPACE, name, SOON));
    try_join_all(waits).await.map(drop)
}
