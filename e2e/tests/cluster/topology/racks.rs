//! A bed whose ClusterQueue has one flavor with a Topology.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{PodSetAssignment, Topology, Workload};
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_e2e::{NOT_READY, NodeSpec, job, queues, ready, wait::eventually};

use crate::bed::{Bed, WAIT, metrics};
use crate::job_kinds::FRAMEWORKS;

/// The label of a block.
pub(super) const BLOCK: &str = "example.com/block";
/// The label of a rack.
pub(super) const RACK: &str = "example.com/rack";
/// The label of a host.
pub(super) const HOST: &str = "kubernetes.io/hostname";
/// How many hosts there are.
pub(super) const HOSTS: usize = 8;

/// The annotation of a required level.
pub(super) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
/// The annotation of a preferred level.
pub(super) const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// The annotation of the level of slices.
pub(super) const SLICE_LEVEL: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// The annotation of the pods of a slice.
pub(super) const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";

/// A namespace under a controller with all kinds of jobs, once the API server calls its webhooks.
async fn webhooked_bed(stem: &str) -> Bed {
    let sections = format!("{FRAMEWORKS}  - pod\n  - deployment\n  - statefulset\n");
    let bed = Bed::with_options(stem, &sections, |_, options| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        options.webhook = Some(WebhookOptions::new(listener, Advertise::Url(url)));
    })
    .await;
    let jobs: Api<Job> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let wrong = bed.job("probe").pod_annotation(REQUIRED, RACK).pod_annotation(PREFERRED, RACK);
    let wrong: Job = serde_json::from_value(wrong.build()).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let called = async || {
        let error = jobs.create(&dry, &wrong).await.err().context("it is let through")?.to_string();
        ensure!(error.contains("denied the request"), "{error}");
        Ok(())
    };
    eventually(WAIT, "the webhook of jobs", called).await.unwrap();
    // The API server learns of mutating webhooks at another moment than of validating ones.
    ready::pod_webhook(bed.cluster(), (bed.namespace.as_str(), "queue"), WAIT).await.unwrap();
    bed
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
        Self::with_queue(stem, |queue| queue).await
    }

    /// With changes to the ClusterQueue.
    pub(super) async fn with_queue(
        stem: &str,
        change: impl FnOnce(queues::ClusterQueue) -> queues::ClusterQueue,
    ) -> Self {
        let bed = webhooked_bed(stem).await;
        let cluster = bed.cluster();
        let name = &bed.name;
        cluster.add_nodes(&hosts(name)).await.unwrap();
        let levels = [BLOCK, RACK, HOST].map(|label| json!({"nodeLabel": label}));
        let topology = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": name},
            "spec": {"levels": levels},
        });
        let mut flavor = queues::ResourceFlavor::new(name).node_label("pool", name).build();
        flavor["spec"]["topologyName"] = json!(name);
        let queue =
            queues::ClusterQueue::new(name).group(name, &[("cpu", "100"), ("memory", "1000Gi")]);
        let queue = change(queue).build();
        let local = queues::local_queue(&bed.namespace, "queue", name);
        cluster.apply([topology, flavor, queue, local]).await.unwrap();
        let racks = Self { bed };
        // The nodes are Ready, and the controller knows them and the flavor.
        racks.has_free(32.0).await;
        racks
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.bed.admin().clone(), &self.bed.namespace)
    }

    /// The pods of a job, once so many run.
    pub(super) async fn running(&self, job: &str, count: usize) -> Vec<Pod> {
        let of_job = job::pods_of(job);
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
                "metadata": {"name": format!("other-{host}"), "annotations": {job::RUN_FOR: "forever"}},
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

    /// As Kubernetes does to pods whose node is gone. The pod may be gone, too.
    pub(super) async fn delete_by_force(&self, pod: &Pod) {
        let params = DeleteParams::default().grace_period(0);
        match self.pods().delete(&pod.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.unwrap()),
        }
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.bed.admin().clone())
    }

    /// Deletes an object of the namespace and all that belongs to it.
    pub(super) async fn delete_object(&self, api_version: &str, kind: &str, name: &str) {
        let cluster = self.bed.cluster();
        let api = cluster.dynamic(api_version, kind, &self.bed.namespace).await.unwrap();
        api.delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// The name of a host.
    pub(super) fn host(&self, index: usize) -> String {
        format!("{}-{index}", self.bed.name)
    }

    pub(super) async fn cordon(&self, node: &str, cordoned: bool) {
        let spec = json!({"spec": {"unschedulable": cordoned}});
        self.nodes().patch(node, &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
    }

    pub(super) async fn label(&self, node: &str, key: &str, value: &str) {
        let labels = json!({"metadata": {"labels": {key: value}}});
        self.nodes().patch(node, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    }

    /// Replaces the taints of a node: `key:Effect`, or none.
    pub(super) async fn taint(&self, node: &str, taint: Option<(&str, &str)>) {
        let taints: Vec<Value> =
            taint.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        let spec = json!({"spec": {"taints": taints}});
        self.nodes().patch(node, &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
    }

    /// Makes a node not ready. It stays so until [`Racks::recovers`], or if it `flaps` until kwok
    /// has seen it.
    pub(super) async fn fails(&self, node: &str, flaps: bool) {
        let params = PatchParams::default();
        if !flaps {
            let marked = json!({"metadata": {"annotations": {NOT_READY: "true"}}});
            self.nodes().patch(node, &params, &Patch::Merge(marked)).await.unwrap();
        }
        let now = jiff::Timestamp::now().to_string();
        let ready = json!({"type": "Ready", "status": "False", "reason": "KubeletNotReady",
            "message": "stopped", "lastTransitionTime": now, "lastHeartbeatTime": now});
        let status = json!({"status": {"conditions": [ready]}});
        self.nodes().patch_status(node, &params, &Patch::Strategic(status)).await.unwrap();
    }

    pub(super) async fn recovers(&self, node: &str) {
        let unmarked = json!({"metadata": {"annotations": {NOT_READY: null}}});
        self.nodes().patch(node, &PatchParams::default(), &Patch::Merge(unmarked)).await.unwrap();
    }

    /// The placed pod sets of an admitted Workload.
    pub(super) fn placed(workload: &Workload) -> Vec<PodSetAssignment> {
        let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
        let all = admission.map(|admission| admission.pod_set_assignments.clone());
        all.unwrap_or_default().into_iter().filter(|it| it.topology_assignment.is_some()).collect()
    }

    /// The racks of a pod set's domains.
    pub(super) fn racks_of(assignment: &PodSetAssignment) -> BTreeSet<usize> {
        let domains = assignment.topology_assignment.iter().flat_map(|it| it.domains());
        let hosts = domains.filter_map(|mut domain| domain.values.pop());
        hosts
            .filter_map(|host| host.rsplit('-').next()?.parse().ok())
            .map(|it: usize| it / 2)
            .collect()
    }

    /// Waits until the controller's metrics show this many free CPUs: it knows the pods and nodes.
    pub(super) async fn has_free(&self, cpu: f64) {
        let flavor = format!("flavor=\"{}\"", self.bed.name);
        let shown = async || {
            let page = metrics();
            let line = page.lines().find(|line| {
                line.starts_with("switchyard_topology_free{")
                    && line.contains(&flavor)
                    && line.contains("resource=\"cpu\"")
            });
            let free = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            ensure!(free == Some(cpu), "{free:?}");
            Ok(())
        };
        eventually(WAIT, format!("{cpu} free CPUs"), shown).await.unwrap();
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

    /// Deletes the Topology, once its finalizer keeps it.
    pub(super) async fn delete_topology(&self) {
        self.bed.kept_in_use("Topology", &self.bed.name).await;
        self.bed.delete("Topology", &self.bed.name).await;
    }
}
