//! A bed whose ClusterQueue has one flavor with a Topology.

use anyhow::ensure;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use switchyard_api::v1beta2::Topology;
use switchyard_config::Configuration;
use switchyard_e2e::{ClusterSpec, Environment, NodeSpec, queues, wait::eventually};
use tokio::sync::OnceCell;

use crate::bed::{Bed, WAIT, configured_controller};

/// The label of a block.
pub(super) const BLOCK: &str = "example.com/block";
/// The label of a rack.
pub(super) const RACK: &str = "example.com/rack";
/// The label of a host.
pub(super) const HOST: &str = "kubernetes.io/hostname";
/// How many hosts there are.
pub(super) const HOSTS: usize = 8;

static ENVIRONMENT: OnceCell<Environment> = OnceCell::const_new();
static CONTROLLER: OnceCell<switchyard_controller::Handle> = OnceCell::const_new();

async fn environment() -> &'static Environment {
    let start = async || {
        // Each test adds nodes of its own.
        let one = ClusterSpec::new("one").node(NodeSpec::new("plain").cpu(1));
        Environment::builder("topology").cluster(one).start().await.unwrap()
    };
    ENVIRONMENT.get_or_init(start).await
}

/// The nodes of a pool: two blocks of two racks of two hosts.
fn hosts(pool: &str) -> Vec<NodeSpec> {
    let node = |index: usize| {
        let (block, rack) = (index / 4, index / 2);
        let node = NodeSpec::new(format!("{pool}-{index}")).cpu(4).label("pool", pool);
        node.label(BLOCK, format!("block-{block}")).label(RACK, format!("rack-{rack}"))
    };
    (0..HOSTS).map(node).collect()
}

pub(super) struct Racks {
    pub(super) bed: Bed,
}

impl Racks {
    pub(super) async fn new(stem: &str) -> Self {
        let environment = environment().await;
        let cluster = environment.cluster("one");
        let start = async || {
            cluster.install().await.unwrap();
            configured_controller(cluster, "topology", Configuration::default()).await
        };
        CONTROLLER.get_or_init(start).await;
        let bed = Bed::on(environment, stem).await;
        let name = &bed.name;
        cluster.add_nodes(&hosts(name)).await.unwrap();
        let levels = [BLOCK, RACK, HOST].map(|label| json!({"nodeLabel": label}));
        let topology = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": name},
            "spec": {"levels": levels},
        });
        let mut flavor = queues::ResourceFlavor::new(name).node_label("pool", name).build();
        flavor["spec"]["topologyName"] = json!(name);
        let queue = queues::ClusterQueue::new(name).group(name, &[("cpu", "100")]).build();
        let local = queues::local_queue(&bed.namespace, "queue", name);
        cluster.apply([topology, flavor, queue, local]).await.unwrap();
        Self { bed }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.bed.admin().clone(), &self.bed.namespace)
    }

    /// The pods of a job, once so many run.
    pub(super) async fn running(&self, job: &str, count: usize) -> Vec<Pod> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        let run = async || {
            let pods = self.pods().list(&of_job).await?.items;
            let running = |pod: &&Pod| {
                let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
                phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
            };
            let running: Vec<Pod> = pods.iter().filter(running).cloned().collect();
            ensure!(running.len() == count, "{} of {} pods run", running.len(), pods.len());
            Ok(running)
        };
        eventually(WAIT, format!("{count} pods of {job} to run"), run).await.unwrap()
    }

    /// The value of a label that the nodes of all these pods have in common.
    pub(super) async fn one_of(&self, pods: &[Pod], label: &str) -> String {
        let nodes: Api<Node> = Api::all(self.bed.admin().clone());
        let value = async |pod: &Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap();
            nodes.get(&node).await.unwrap().labels()[label].clone()
        };
        let mut values = join_all(pods.iter().map(value)).await;
        values.sort();
        values.dedup();
        assert_eq!(values.len(), 1, "{label}: {values:?}");
        values.remove(0)
    }

    /// Puts a pod without a queue on each host, with this many CPUs.
    pub(super) async fn fill(&self, cpu: u32) -> Vec<Pod> {
        let mut pods = Vec::new();
        for host in 0..HOSTS {
            let pod = json!({
                "metadata": {"name": format!("other-{host}"), "annotations": {switchyard_e2e::job::RUN_FOR: "forever"}},
                "spec": {
                    "nodeName": format!("{}-{host}", self.bed.name), "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu.to_string()}}}],
                },
            });
            let pod = serde_json::from_value(pod).unwrap();
            pods.push(self.pods().create(&PostParams::default(), &pod).await.unwrap());
        }
        pods
    }

    pub(super) async fn delete_pods(&self, pods: &[Pod]) {
        for pod in pods {
            self.pods().delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
        }
    }

    /// As Kubernetes does to pods whose node is gone.
    pub(super) async fn delete_by_force(&self, pod: &Pod) {
        self.pods()
            .delete(&pod.name_any(), &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
    }

    pub(super) async fn delete_node(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.bed.admin().clone());
        nodes.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The hosts that the pods of a job are assigned to, in order.
    pub(super) async fn assigned(&self, job: &str) -> Vec<String> {
        let admission = self.bed.workload_of(job).await.status.and_then(|status| status.admission);
        let assignments =
            admission.map(|admission| admission.pod_set_assignments).unwrap_or_default();
        let topologies =
            assignments.iter().filter_map(|assignment| assignment.topology_assignment.as_ref());
        let mut hosts: Vec<_> = topologies
            .flat_map(|topology| topology.domains())
            .filter_map(|mut it| it.values.pop())
            .collect();
        hosts.sort();
        hosts
    }

    pub(super) async fn topology(&self) -> anyhow::Result<Option<Topology>> {
        let topologies: Api<Topology> = Api::all(self.bed.admin().clone());
        Ok(topologies.get_opt(&self.bed.name).await?)
    }
}
