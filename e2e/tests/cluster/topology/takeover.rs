//! A cluster whose workloads stock Kueue has placed moves to Switchyard and back: assignments stay
//! as they are, and no pod is restarted.

use std::collections::BTreeMap;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, fixture, queues, wait::eventually,
};

use super::racks::{BLOCK, HOST, PREFERRED, RACK, REQUIRED};
use crate::bed::WAIT;
use crate::takeover::{start_kueue, start_switchyard, stop_kueue, stop_switchyard};

const NAME: &str = "placed";

/// Eight hosts of four CPUs: two blocks of two racks of two.
fn hosts() -> Vec<NodeSpec> {
    let host = |at: u32| {
        let node = NodeSpec::new(format!("host-{at}")).cpu(4).label("pool", NAME);
        node.label(BLOCK, format!("block-{}", at / 4)).label(RACK, format!("rack-{}", at / 2))
    };
    (0..8).map(host).collect()
}

struct Site<'a> {
    cluster: &'a Cluster,
    namespace: String,
}

impl<'a> Site<'a> {
    async fn new(cluster: &'a Cluster) -> Self {
        let namespace = cluster.namespace("team").await.unwrap();
        let levels = [BLOCK, RACK, HOST].map(|label| json!({"nodeLabel": label}));
        let topology = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": NAME},
            "spec": {"levels": levels},
        });
        let mut flavor = queues::ResourceFlavor::new(NAME).node_label("pool", NAME).build();
        flavor["spec"]["topologyName"] = json!(NAME);
        let queue = queues::ClusterQueue::new(NAME).group(NAME, &[("cpu", "100")]).build();
        let local = queues::local_queue(&namespace, "queue", NAME);
        cluster.apply([topology, flavor, queue, local]).await.unwrap();
        Self { cluster, namespace }
    }

    fn job(&self, name: &str, pods: u32, cpu: &str) -> JobBuilder {
        let job = JobBuilder::new(&self.namespace, name).queue("queue").cpu(cpu).run_forever();
        job.parallelism(pods).completions(pods)
    }

    async fn create(&self, job: JobBuilder) {
        job.create(&self.cluster.admin).await.unwrap();
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        pods.list(&ListParams::default()).await.unwrap().items
    }

    async fn running(&self, count: usize) {
        let check = async || {
            let pods = self.pods().await;
            let running = pods.iter().filter(|pod| {
                pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Running")
            });
            let running = running.count();
            ensure!(running == count, "{running} of {} pods run", pods.len());
            Ok(())
        };
        eventually(WAIT, format!("{count} pods to run"), check).await.unwrap();
    }

    async fn workload(&self, job: &str) -> anyhow::Result<Workload> {
        let workloads: Api<Workload> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let all = workloads.list(&ListParams::default()).await?.items;
        let owned = |it: &Workload| it.owner_references().iter().any(|owner| owner.name == job);
        all.into_iter().find(owned).ok_or_else(|| anyhow::anyhow!("{job} has no Workload"))
    }

    /// Waits until a job waits for a place.
    async fn waits(&self, job: &str) {
        let check = async || {
            let status = self.workload(job).await?.status.unwrap_or_default();
            let waits = conditions::find(&status.conditions, conditions::QUOTA_RESERVED);
            let message = waits.map(|it| it.message.clone()).unwrap_or_default();
            ensure!(message.contains("fit") && message.contains(NAME), "{message:?}");
            Ok(())
        };
        eventually(WAIT, format!("{job} to wait for a place"), check).await.unwrap();
    }

    /// Pods by name with uid and node, and Workloads with their admission.
    async fn state(&self) -> BTreeMap<String, Value> {
        let pod = |pod: &Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            (format!("Pod {}", pod.name_any()), json!({"uid": pod.uid(), "node": node}))
        };
        let pods = self.pods().await;
        let mut state: BTreeMap<String, Value> = pods.iter().map(pod).collect();
        let workloads: Api<Workload> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        for workload in workloads.list(&ListParams::default()).await.unwrap() {
            let status = workload.status.clone().unwrap_or_default();
            if let Some(admission) = status.admission {
                let name = format!("Workload {}", workload.name_any());
                state.insert(name, serde_json::to_value(admission).unwrap());
            }
        }
        state
    }

    async fn delete(&self, job: &str) {
        let jobs: Api<k8s_openapi::api::batch::v1::Job> =
            Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        jobs.delete(job, &kube::api::DeleteParams::background()).await.unwrap();
    }

    /// A job that needs a whole rack waits, since all four are in use. A smaller job runs beside the
    /// others. Afterwards all is as before.
    async fn unchanged(&self, before: &BTreeMap<String, Value>, stage: &str) {
        let (rack, fits) = (format!("{stage}-rack"), format!("{stage}-fits"));
        let pods = self.pods().await.len();
        self.create(self.job(&rack, 2, "4").pod_annotation(REQUIRED, RACK)).await;
        self.waits(&rack).await;
        self.create(self.job(&fits, 1, "1")).await;
        self.running(pods + 1).await;
        self.delete(&rack).await;
        self.delete(&fits).await;
        self.running(pods).await;
        let gone = async || {
            for job in [&rack, &fits] {
                ensure!(self.workload(job).await.is_err(), "{job} has a Workload");
            }
            // Ended pods count too.
            let left = self.pods().await.len();
            ensure!(left == pods, "{left} pods are left, not {pods}");
            Ok(())
        };
        eventually(WAIT, "the Workloads and pods to go", gone).await.unwrap();
        assert_eq!(&self.state().await, before, "{stage}");
    }
}

#[test]
fn placed_workloads_move_from_kueue_and_back_untouched() {
    fixture::run(async {
        let one = ClusterSpec::new("one").nodes(hosts());
        let environment = Environment::builder("placed-takeover").cluster(one);
        let environment = environment.start().await.unwrap();
        let cluster = environment.cluster("one");
        let kueue = start_kueue(cluster).await;
        let site = Site::new(cluster).await;
        // Each host gets one pod, and has 1500m left.
        let indexed = site.job("rack", 2, "2500m").field("completionMode", json!("Indexed"));
        site.create(indexed.pod_annotation(REQUIRED, RACK)).await;
        site.running(2).await;
        site.create(site.job("block", 4, "2500m").pod_annotation(PREFERRED, BLOCK)).await;
        site.running(6).await;
        site.create(site.job("implied", 2, "2500m")).await;
        site.running(8).await;
        let before = site.state().await;

        stop_kueue(cluster, kueue).await;
        let switchyard = start_switchyard(cluster).await;
        site.unchanged(&before, "switchyard").await;

        stop_switchyard(cluster, switchyard).await;
        let _kueue = start_kueue(cluster).await;
        site.unchanged(&before, "kueue").await;
    });
}
