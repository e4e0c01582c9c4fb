//! Wrong jobs, and jobs that change into something else, beside a right one. Each gets its answer, and the right one runs on.

mod groups;
mod owners;
mod refused;

use std::net::{Ipv4Addr, TcpListener};

use anyhow::ensure;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_api::v1beta2::Workload;
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_e2e::{job, ready, wait};
use switchyard_jobs::apply_merge;

use crate::{
    bed::{Bed, WAIT},
    common::{events, install_crds_of},
};

const SECTIONS: &str = "integrations: {frameworks: [batch/job, pod, workload.codeflare.dev/appwrapper, ray.io/rayjob, ray.io/raycluster]}";
const GATE: &str = "kueue.x-k8s.io/admission";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A namespace with a job that is right and runs.
struct Place {
    bed: Bed,
    pods: Api<Pod>,
    before: Value,
}

impl Place {
    async fn new(stem: &str) -> Self {
        let bed = Bed::with_options(stem, SECTIONS, |_, options| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
            options.webhook = Some(WebhookOptions::new(listener, Advertise::Url(url)));
        })
        .await;
        bed.simple(&[("cpu", "8")]).await;
        let pods: Api<Pod> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        ready::pod_webhook(bed.cluster(), (&bed.namespace, "queue"), WAIT).await.unwrap();
        ready::validating_webhooks(bed.cluster(), WAIT).await.unwrap();
        bed.plain_job("good").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("good").await;
        bed.expect_true("good", "Admitted").await;
        let mut place = Self { bed, pods, before: Value::Null };
        place.before = place.good().await;
        place
    }

    /// The constant parts of the right job: itself, its pods, its Workload and the time of its admission.
    async fn good(&self) -> Value {
        let job: Job = Api::namespaced(self.bed.admin().clone(), &self.bed.namespace)
            .get("good")
            .await
            .unwrap();
        let of_job = job::pods_of("good");
        let pods: Vec<Option<String>> = self
            .pods
            .list(&of_job)
            .await
            .unwrap()
            .items
            .iter()
            .map(kube::ResourceExt::uid)
            .collect();
        let workload = self.bed.workload_of("good").await;
        json!({
            "job": job.uid(), "spec": job.spec, "pods": pods, "workload": workload.uid(), "asks": workload.spec,
            "admitted": self.bed.time("good", "Admitted").await.to_string(),
            "evicted": self.bed.is_true("good", "Evicted").await,
        })
    }

    async fn undisturbed(&self) {
        let now = self.good().await;
        assert_eq!(now, self.before);
    }

    /// Creates a pod, again while the webhook has not read the pod's owners.
    async fn create(&self, pod: Pod) {
        let create = async || Ok(self.pods.create(&Default::default(), &pod).await?);
        wait::eventually(WAIT, format!("pod {} to be taken", pod.name_any()), create)
            .await
            .unwrap();
    }

    async fn until(&self, name: &str, what: &str, right: impl Fn(&Pod) -> bool) {
        let check = async || {
            let pod = self.pods.get(name).await?;
            ensure!(right(&pod), "{:?} {:?} {:?}", pod.metadata, pod.spec, pod.status);
            Ok(())
        };
        wait::eventually(WAIT, format!("pod {name} {what}"), check).await.unwrap();
    }

    async fn running(&self, name: &str) {
        self.until(name, "running", |pod| phase(pod) == "Running").await;
    }

    async fn gone(&self, name: &str) {
        let check = async || {
            ensure!(self.pods.get_opt(name).await?.is_none(), "it is still there");
            Ok(())
        };
        wait::eventually(WAIT, format!("pod {name} gone"), check).await.unwrap();
    }

    async fn limit(&self, pod: &str, seconds: &str) {
        let patch =
            json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": seconds}}});
        self.pods.patch(pod, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn told(&self, object: &str, reason: &str, note: &str) {
        events::told(self.bed.admin(), object, reason, note).await;
    }

    async fn group(&self) -> Workload {
        Api::namespaced(self.bed.admin().clone(), &self.bed.namespace).get("group").await.unwrap()
    }

    /// Installs the definitions of a module that Kueue takes in.
    async fn install(&self, module: &'static str, folder: &str) {
        install_crds_of(self.bed.cluster(), module, folder).await;
    }

    /// Creates an object of a kind whose definition is there.
    async fn object(
        &self,
        api_version: &str,
        kind: &str,
        object: &Value,
    ) -> Result<DynamicObject, kube::Error> {
        let api = self.bed.cluster().dynamic(api_version, kind, &self.bed.namespace).await.unwrap();
        let mut object = object.clone();
        apply_merge(&mut object, &json!({"apiVersion": api_version, "kind": kind}));
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await
    }

    async fn has_workload(&self, owner: &str) -> bool {
        let owned =
            |workload: &Workload| workload.owner_references().iter().any(|it| it.name == owner);
        self.bed.workloads().await.iter().any(owned)
    }
}

/// A pod in queue `queue` that asks for one cpu and runs until it is deleted, with this put into it.
fn pod(name: &str, more: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {QUEUE: "queue"}, "annotations": {job::RUN_FOR: "forever"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container("1")]},
    });
    apply_merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
}

fn container(cpu: &str) -> Value {
    json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}})
}

/// One of a group of `count`, of the role of those that ask for as much.
fn member(name: &str, count: usize, cpu: &str) -> Pod {
    let metadata = json!({
        "labels": {"kueue.x-k8s.io/pod-group-name": "group"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": count.to_string()},
    });
    pod(name, &json!({"metadata": metadata, "spec": {"containers": [container(cpu)]}}))
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == GATE)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// An AppWrapper of so many pods, each a pod set.
fn app_wrapper(namespace: &str, pods: usize) -> Value {
    let component = |at: usize| {
        let template = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{at}")},
            "spec": {"restartPolicy": "Never", "containers": [container("100m")]},
        });
        json!({ "template": template })
    };
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": "wide", "namespace": namespace, "labels": {QUEUE: "queue"}},
        "spec": {"suspend": true, "components": (0..pods).map(component).collect::<Vec<_>>()},
    })
}
