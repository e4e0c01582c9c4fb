//! ProvisioningRequest checks, with the real CRD. The tests play the cluster autoscaler.
mod autoscaler;

use std::time::Duration;

use crate::bed::{Bed, WAIT};
use anyhow::ensure;
use autoscaler::Autoscaler;
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_api::conditions;
use switchyard_api::v1beta2::{AdmissionCheck, ClusterQueue};
use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const CONSUME: &str = "autoscaling.x-k8s.io/consume-provisioning-request";

/// The AdmissionCheck of this name, with the parameters of this name.
fn check(name: &str, config: &str) -> Value {
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config});
    let spec =
        json!({"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters});
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": spec})
}

/// One retry after a second; pods go where the autoscaler's detail `Pool` says.
fn config(name: &str, class: &str) -> Value {
    let selector = json!({"key": "pool", "valueFromProvisioningClassDetail": "Pool"});
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ProvisioningRequestConfig", "metadata": {"name": name},
        "spec": {
            "provisioningClassName": class,
            "parameters": {"MaxRunDuration": "60"},
            "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1},
            "podSetUpdates": {"nodeSelector": [selector]},
        },
    })
}

async fn check_says(bed: &Bed, status: &str, reason: &str, words: &str) {
    let checks: Api<AdmissionCheck> = Api::all(bed.admin().clone());
    let says = async || {
        let status_of = checks.get(&bed.name).await?.status.unwrap_or_default();
        let active = status_of.conditions.iter().find(|it| it.type_ == "Active");
        ensure!(
            active.is_some_and(|it| it.status == status
                && it.reason == reason
                && it.message.contains(words)),
            "{active:?}"
        );
        Ok(())
    };
    eventually(WAIT, format!("Active={status} {reason} {words:?}"), says).await.unwrap();
}

/// Waits until the state of the check on a job's workload is so.
async fn state(bed: &Bed, job: &str, state: &str, message: &str) {
    let right = async || {
        let checks = bed.workload_of(job).await.status.unwrap_or_default().admission_checks;
        let found = checks.iter().find(|it| it.name == bed.name);
        ensure!(
            found.is_some_and(|it| it.state.as_str() == state && it.message == message),
            "{found:?}"
        );
        Ok(())
    };
    eventually(WAIT, format!("the check of {job} to be {state}: {message:?}"), right)
        .await
        .unwrap();
}

async fn request_name(bed: &Bed, job: &str, attempt: u32) -> String {
    format!("{}-{}-{attempt}", bed.workload_of(job).await.name_any(), bed.name)
}

fn autoscaler(bed: &Bed) -> Autoscaler {
    Autoscaler::new(bed.admin(), &bed.namespace)
}

/// A job is admitted when there is room, and its pods go there.
async fn room_is_made(bed: &Bed) {
    let autoscaler = autoscaler(bed);
    let wanted = bed.job("wanted").annotation("provreq.kueue.x-k8s.io/ValidUntilSeconds", "0");
    wanted.run_forever().create(bed.admin()).await.unwrap();
    let name = request_name(bed, "wanted", 1).await;
    let request = autoscaler.asked(&name).await;
    assert_eq!(request.labels()["kueue.x-k8s.io/managed"], "true");
    assert_eq!(request.spec.provisioning_class_name, "class");
    assert_eq!(
        json!(request.spec.parameters),
        json!({"MaxRunDuration": "60", "ValidUntilSeconds": "0"})
    );
    assert_eq!(request.spec.pod_sets[0].count, 1);
    let template = autoscaler.template_of(&request).await;
    let pods = template.template.unwrap().spec.unwrap();
    assert_eq!(
        json!(pods.tolerations),
        json!([{"key": "spot", "value": "true", "operator": "Equal", "effect": "NoSchedule"}])
    );

    autoscaler.says(&name, "Accepted", true, "wait").await;
    autoscaler.says(&name, "Provisioned", false, "ETA: 2026-11-22T10:36:40Z").await;
    state(bed, "wanted", "Pending", "ETA: 2026-11-22T10:36:40Z").await;
    bed.suspended("wanted", true).await;
    autoscaler.detail(&name, "Pool", "gpu").await;
    autoscaler.says(&name, "Provisioned", true, "there is room").await;
    state(bed, "wanted", "Ready", "there is room").await;
    let running: Job = bed.running("wanted").await;
    let template = running.spec.unwrap().template;
    let annotations = template.metadata.unwrap().annotations.unwrap();
    assert_eq!(annotations[CONSUME], name);
    assert_eq!(annotations["autoscaling.x-k8s.io/provisioning-class-name"], "class");
    assert_eq!(template.spec.unwrap().node_selector.unwrap()["pool"], "gpu");
    // The state of the capacity does not matter once the pods are there.
    autoscaler.says(&name, "BookingExpired", true, "over").await;
    always(Duration::from_secs(2), "the job keeps its quota", async || {
        let status = bed.workload_of("wanted").await.status.unwrap_or_default();
        ensure!(!conditions::is_true(&status.conditions, "Evicted"), "it is evicted");
        Ok(())
    })
    .await
    .unwrap();
    bed.pods_succeed("wanted").await;
    job::complete(bed.admin(), &bed.namespace, "wanted", WAIT).await.unwrap();
    autoscaler.gone(&name).await;
    let workload = bed.workload_of("wanted").await.name_any();
    bed.event(
        &workload,
        "ProvisioningRequestCreated",
        &format!("Created ProvisioningRequest: {name:?}"),
    )
    .await;
    let note = format!(
        "Admission check {} updated state from Pending to Ready with message: there is room",
        bed.name
    );
    bed.event(&workload, "AdmissionCheckUpdated", &note).await;
}

/// A job whose room cannot be made is tried again after a while, and given up at the limit.
async fn there_is_no_room(bed: &Bed) {
    let autoscaler = autoscaler(bed);
    bed.job("hopeless").create(bed.admin()).await.unwrap();
    for attempt in [1, 2] {
        let name = request_name(bed, "hopeless", attempt).await;
        autoscaler.asked(&name).await;
        autoscaler.says(&name, "Failed", true, "no machines").await;
        autoscaler.gone(&name).await;
    }
    let message = format!(
        "The workload is deactivated due to AdmissionCheck in Rejected state: {:?} (no machines)",
        bed.name
    );
    bed.expect("hopeless", "Evicted", "True", "DeactivatedDueToAdmissionCheck", &message).await;
    let workload = bed.workload_of("hopeless").await;
    assert_eq!(workload.spec.active, Some(false));
    let evictions = workload.status.unwrap().scheduling_stats.unwrap().evictions;
    let counted: Vec<(&str, i32)> =
        evictions.iter().map(|it| (it.reason.as_str(), it.count)).collect();
    assert_eq!(counted, [("AdmissionCheck", 1), ("Deactivated", 1)]);
    bed.delete_job("hopeless").await;
}

/// A running job whose room is taken away is stopped for good.
async fn room_is_taken_away(bed: &Bed) {
    let autoscaler = autoscaler(bed);
    bed.job("revoked").run_forever().create(bed.admin()).await.unwrap();
    let name = request_name(bed, "revoked", 1).await;
    autoscaler.asked(&name).await;
    autoscaler.detail(&name, "Pool", "gpu").await;
    autoscaler.says(&name, "Provisioned", true, "there is room").await;
    bed.running("revoked").await;
    autoscaler.says(&name, "CapacityRevoked", true, "the nodes are gone").await;
    bed.suspended("revoked", true).await;
    bed.expect("revoked", "Evicted", "True", "DeactivatedDueToAdmissionCheck", "").await;
    autoscaler.gone(&name).await;
    bed.delete_job("revoked").await;
}

/// A PodTemplate of the expected name whose owner a user has forged: the request asks for what the job has quota for.
async fn a_forged_template_is_overwritten(bed: &Bed) {
    let autoscaler = autoscaler(bed);
    bed.stop_cluster_queue("Hold").await;
    bed.job("forged").create(bed.admin()).await.unwrap();
    let workload = bed.workload_of("forged").await;
    let request = request_name(bed, "forged", 1).await;
    let owner = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": workload.name_any(),
        "uid": workload.uid(), "controller": true,
    });
    let resources = json!({"requests": {"cpu": "64"}});
    let template = json!({
        "apiVersion": "v1", "kind": "PodTemplate",
        "metadata": {
            "name": format!("ppt-{request}-main"), "namespace": bed.namespace, "ownerReferences": [owner],
            "labels": {"kueue.x-k8s.io/managed": "true"},
        },
        "template": {"spec": {"containers": [{"name": "forged", "image": "forged", "resources": resources}]}},
    });
    bed.cluster().apply([template]).await.unwrap();
    bed.stop_cluster_queue("None").await;
    let asked = autoscaler.asked(&request).await;
    let template = autoscaler.template_of(&asked).await;
    let containers = template.template.unwrap().spec.unwrap().containers;
    let names: Vec<&str> = containers.iter().map(|it| it.name.as_str()).collect();
    assert_ne!(names, ["forged"]);
    bed.delete_job("forged").await;
}

/// The request follows the configuration; without one there is no request.
async fn the_configuration_changes(bed: &Bed) {
    let autoscaler = autoscaler(bed);
    bed.job("patient").create(bed.admin()).await.unwrap();
    let name = request_name(bed, "patient", 1).await;
    let first = autoscaler.asked(&name).await;
    bed.cluster().apply([config(&bed.name, "another-class")]).await.unwrap();
    let second = autoscaler.asked_anew(&name, &first).await;
    assert_eq!(second.spec.provisioning_class_name, "another-class");
    autoscaler.template_of(&second).await;
    bed.cluster().apply([check(&bed.name, "missing")]).await.unwrap();
    check_says(bed, "False", "BadParametersRef", "\"missing\" not found").await;
    autoscaler.gone(&name).await;
    state(bed, "patient", "Pending", "the check is not active").await;
    bed.delete_job("patient").await;
}

#[test]
fn jobs_wait_for_the_room_that_the_autoscaler_makes() {
    fixture::run(async {
        let bed = Bed::new("provisioning").await;
        let flavor = queues::ResourceFlavor::new(&bed.name).toleration("spot", "true").build();
        let queue = queues::ClusterQueue::new(&bed.name)
            .group(&bed.name, &[("cpu", "4")])
            .admission_check(&bed.name);
        bed.cluster().apply([check(&bed.name, &bed.name)]).await.unwrap();
        check_says(&bed, "False", "BadParametersRef", "not found").await;
        bed.cluster().apply([config(&bed.name, "class")]).await.unwrap();
        // The cluster does not know such requests yet; the check waits for them.
        check_says(&bed, "False", "ProvisioningRequestNotSupported", "install the CRD").await;
        autoscaler::install(bed.cluster()).await;
        check_says(&bed, "True", "Active", "The admission check is active").await;
        let local = queues::local_queue(&bed.namespace, "queue", &bed.name);
        bed.cluster().apply([flavor, queue.build(), local]).await.unwrap();

        room_is_made(&bed).await;
        there_is_no_room(&bed).await;
        room_is_taken_away(&bed).await;
        a_forged_template_is_overwritten(&bed).await;
        the_configuration_changes(&bed).await;
    });
}

/// The worker's own controller asks the worker's autoscaler for the room of a job that a hub has sent.
#[test]
fn a_dispatched_job_waits_for_the_room_on_its_worker() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8).label("pool", "gpu"));
        let fleet = Fleet::builder("provisioned").agent(west).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("provisioned").hub(&quota).worker("west", &quota).make().await.unwrap();
        let (worker, name) = (fleet.worker("west"), tenant.name());
        autoscaler::install(worker).await;
        let queues: Api<ClusterQueue> = Api::all(worker.admin.clone());
        let patch =
            json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": name}]}}});
        queues.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let active = async |wanted: &str| {
            let check = async || {
                let known = queues.get(name).await?.status.unwrap_or_default().conditions;
                let active = known.into_iter().find(|it| it.type_ == "Active");
                ensure!(active.as_ref().is_some_and(|it| it.status == wanted), "{active:?}");
                Ok(())
            };
            eventually(WAIT, format!("the queue to be Active={wanted}"), check).await.unwrap();
        };
        // There is no such check yet: the worker has seen the change of the queue.
        active("False").await;
        worker.apply([config(name, "class"), check(name, name)]).await.unwrap();
        active("True").await;

        let job = tenant.job("far").annotation("provreq.kueue.x-k8s.io/ValidUntilSeconds", "0");
        tenant.submit(job.run_for(Duration::from_millis(200))).await.unwrap();
        let autoscaler = Autoscaler::new(&worker.admin, name);
        let request = autoscaler.any().await;
        assert_eq!(request.spec.parameters["ValidUntilSeconds"], "0");
        assert_eq!(fleet.pods("west", name).await.unwrap(), 0);
        autoscaler.detail(&request.name_any(), "Pool", "gpu").await;
        autoscaler.says(&request.name_any(), "Provisioned", true, "there is room").await;
        job::complete(&fleet.hub().admin, name, "far", WAIT).await.unwrap();
        autoscaler.gone(&request.name_any()).await;
        tenant.await_empty("west", WAIT).await.unwrap();
    });
}
