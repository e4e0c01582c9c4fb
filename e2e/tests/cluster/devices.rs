//! Devices of Dynamic Resource Allocation: what a job claims, or gets in place of an extended resource, is charged. The
//! objects are Kubernetes' own; no driver is there, so pods that claim devices wait for their node.

use anyhow::ensure;
use serde_json::{Value, json};
use switchyard_e2e::{JobBuilder, fixture, wait};

use crate::bed::{Bed, WAIT};

const SECTIONS: &str = "
resources:
  deviceClassMappings:
  - {name: example.com/gpus, deviceClassNames: [gpu.example.com]}
  - {name: example.com/npus, deviceClassNames: [npu.example.com]}
";

async fn bed(stem: &str) -> Bed {
    let bed = Bed::configured(stem, SECTIONS).await;
    bed.simple(&[("cpu", "8"), ("example.com/gpus", "3"), ("example.com/tpu", "2")]).await;
    bed
}

fn object(kind: &str, metadata: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
}

async fn template(bed: &Bed, name: &str, class: &str, count: i64) {
    let request = json!({"name": "gpus", "exactly": {"deviceClassName": class, "count": count}});
    let spec = json!({"spec": {"devices": {"requests": [request]}}});
    let metadata = json!({"name": name, "namespace": bed.namespace});
    bed.cluster().apply([object("ResourceClaimTemplate", &metadata, &spec)]).await.unwrap();
}

/// A job with one pod that claims devices by a template.
fn claiming(bed: &Bed, name: &str, template: &str) -> JobBuilder {
    let claim = json!([{"name": "gpus", "resourceClaimTemplateName": template}]);
    bed.job(name).cpu("1").pod_field("resourceClaims", claim)
}

/// A job with one pod that asks for an extended resource.
fn asking(bed: &Bed, name: &str, count: u32) -> JobBuilder {
    let amounts = json!({"cpu": "1", "example.com/tpu": count});
    let container = json!([{"name": "main", "image": "example.org/job:1", "resources": {"requests": amounts, "limits": amounts}}]);
    bed.job(name).pod_field("containers", container)
}

/// A container that asks for an extended resource.
fn npus(name: &str, count: u32) -> Value {
    let amounts = json!({"cpu": "1", "example.com/npu": count});
    json!({"name": name, "image": "example.org/job:1", "resources": {"requests": amounts, "limits": amounts}})
}

async fn charged(bed: &Bed, job: &str, resource: &str, expected: &str) {
    let check = async || {
        let status = bed.workload_of(job).await.status.unwrap_or_default();
        let assigned =
            status.admission.as_ref().and_then(|admission| admission.pod_set_assignments.first());
        let used = assigned
            .and_then(|assigned| assigned.resource_usage.get(resource))
            .map(|quantity| &*quantity.0);
        ensure!(used == Some(expected), "{:?}, {:?}", status.admission, status.conditions);
        Ok(())
    };
    wait::eventually(WAIT, format!("{job} to be charged {expected} of {resource}"), check)
        .await
        .unwrap();
}

async fn refused(bed: &Bed, job: &str, message: &str) {
    bed.expect(job, "QuotaReserved", "False", "Misconfigured", message).await;
}

#[test]
fn claimed_devices_are_charged_as_the_resource_of_their_class() {
    fixture::run(async {
        let bed = bed("claims").await;
        template(&bed, "two", "gpu.example.com", 2).await;
        claiming(&bed, "first", "two").create(bed.admin()).await.unwrap();
        charged(&bed, "first", "example.com/gpus", "2").await;
        bed.next_second().await;
        claiming(&bed, "second", "two").create(bed.admin()).await.unwrap();
        let full = format!(
            "couldn't assign flavors to pod set main: insufficient unused quota for example.com/gpus in flavor {}, 1 more needed",
            bed.name
        );
        bed.expect("second", "QuotaReserved", "False", "WaitingForQuota", &full).await;
        bed.delete_job("first").await;
        charged(&bed, "second", "example.com/gpus", "2").await;
    });
}

#[test]
fn a_job_waits_for_its_template_and_for_a_class_that_is_mapped() {
    fixture::run(async {
        let bed = bed("templates").await;
        let field = "spec.podSets[0].template.spec.resourceClaims[0]";
        claiming(&bed, "early", "late").create(bed.admin()).await.unwrap();
        let missing = format!(
            "{field}: Internal error: failed to get claim spec for ResourceClaimTemplate late in podset main: ResourceClaimTemplate.resource.k8s.io \"late\" not found"
        );
        refused(&bed, "early", &missing).await;
        template(&bed, "late", "gpu.example.com", 1).await;
        charged(&bed, "early", "example.com/gpus", "1").await;

        template(&bed, "other", "nic.example.com", 1).await;
        claiming(&bed, "unmapped", "other").create(bed.admin()).await.unwrap();
        let unmapped = format!(
            "{field}.resourceClaimTemplateName: Not found: \"DeviceClass nic.example.com is not mapped in DRA configuration for podset main\""
        );
        refused(&bed, "unmapped", &unmapped).await;
        let shared = json!([{"name": "gpus", "resourceClaimName": "shared"}]);
        bed.job("sharing")
            .cpu("1")
            .pod_field("resourceClaims", shared)
            .create(bed.admin())
            .await
            .unwrap();
        refused(
            &bed,
            "sharing",
            "KueueDRAIntegration feature does not support use of resource claims",
        )
        .await;
        // No other job waits for these.
        bed.job("plain").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("plain").await;
    });
}

#[test]
fn extended_resource_is_charged_as_devices() {
    fixture::run(async {
        let bed = bed("extended").await;
        asking(&bed, "before", 1).create(bed.admin()).await.unwrap();
        charged(&bed, "before", "example.com/tpu", "1").await;
        let spec = json!({"extendedResourceName": "example.com/tpu"});
        bed.cluster()
            .apply([object("DeviceClass", &json!({"name": "gpu.example.com"}), &spec)])
            .await
            .unwrap();
        asking(&bed, "after", 3).create(bed.admin()).await.unwrap();
        charged(&bed, "after", "example.com/gpus", "3").await;
        // Admitted jobs keep their charge.
        charged(&bed, "before", "example.com/tpu", "1").await;
    });
}

#[test]
fn sidecars_devices_add_up_and_overhead_of_their_name_stays() {
    fixture::run(async {
        let bed = Bed::configured("sidecars", SECTIONS).await;
        bed.simple(&[("cpu", "8"), ("example.com/npus", "9"), ("example.com/npu", "1")]).await;
        let overhead = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "npu"}, "handler": "h",
            "overhead": {"podFixed": {"example.com/npu": "1"}},
        });
        bed.cluster().apply([overhead]).await.unwrap();
        let mut sidecar = npus("side", 2);
        sidecar["restartPolicy"] = "Always".into();
        let job = bed.job("job").pod_field("initContainers", json!([sidecar, npus("init", 3)]));
        let job = job
            .pod_field("containers", json!([npus("main", 1)]))
            .pod_field("runtimeClassName", json!("npu"));
        job.create(bed.admin()).await.unwrap();
        // Without a class, the overhead and the containers ask for one resource.
        let together = format!(
            "couldn't assign flavors to pod set main: insufficient quota for example.com/npu in flavor {}, previously considered podsets requests (0) + current podset request (6) > maximum capacity (1)",
            bed.name
        );
        bed.expect("job", "QuotaReserved", "False", "ExceedsMaxQuota", &together).await;
        let spec = json!({"extendedResourceName": "example.com/npu"});
        bed.cluster()
            .apply([object("DeviceClass", &json!({"name": "npu.example.com"}), &spec)])
            .await
            .unwrap();
        // The init container beside the sidecar.
        charged(&bed, "job", "example.com/npus", "5").await;
        charged(&bed, "job", "example.com/npu", "1").await;
        bed.delete_job("job").await;
    });
}
