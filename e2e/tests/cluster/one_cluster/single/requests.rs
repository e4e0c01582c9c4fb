//! Requests of pods beyond those of their job: defaults and bounds of LimitRanges, overhead of RuntimeClasses.

use anyhow::ensure;
use k8s_openapi::api::{core::v1::LimitRange, node::v1::RuntimeClass};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_e2e::{fixture, wait};

use crate::bed::{Bed, WAIT};

/// A container that asks for nothing.
fn modest() -> Value {
    json!([{"name": "main", "image": "example.org/job:1"}])
}

fn cpu(workload: &Workload) -> Option<&str> {
    let admission = workload.status.as_ref()?.admission.as_ref()?;
    admission
        .pod_set_assignments
        .first()?
        .resource_usage
        .get("cpu")
        .map(|quantity| quantity.0.as_str())
}

/// Waits until a job is charged with so much.
async fn charged(bed: &Bed, job: &str, expected: &str) {
    let check = async || {
        let workload = bed.workload_of(job).await;
        ensure!(
            cpu(&workload) == Some(expected),
            "it is charged with {:?}: {:?}",
            cpu(&workload),
            workload.status
        );
        Ok(())
    };
    wait::eventually(WAIT, format!("{job} to be charged with {expected} CPUs"), check)
        .await
        .unwrap();
}

#[test]
fn limit_range_defaults_and_bounds_are_charged() {
    fixture::run(async {
        let bed = Bed::new("ranges").await;
        bed.simple(&[("cpu", "8")]).await;
        let range = |max: &str| {
            json!({"spec": {"limits": [
                {"type": "Container", "defaultRequest": {"cpu": "500m"}, "default": {"cpu": "700m"}, "max": {"cpu": max}},
            ]}})
        };
        let mut object = range("2");
        object["metadata"] = json!({"name": "range", "namespace": bed.namespace});
        let (kind, version) = (Value::from("LimitRange"), Value::from("v1"));
        (object["kind"], object["apiVersion"]) = (kind, version);
        bed.cluster().apply([object]).await.unwrap();

        // With a limit of its own: the default would be below what it asks for.
        let large = json!([{"name": "main", "image": "example.org/job:1", "resources": {
            "requests": {"cpu": "3"}, "limits": {"cpu": "3"},
        }}]);
        bed.job("large")
            .pod_field("containers", large)
            .run_forever()
            .create(bed.admin())
            .await
            .unwrap();
        let refused = async || {
            let status = bed.workload_of("large").await.status.unwrap_or_default();
            let told = conditions::find(&status.conditions, "QuotaReserved")
                .map(|it| (&it.reason, &it.message));
            let begins =
                "resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec.";
            let right = |(reason, message): (&String, &String)| {
                reason == "Misconfigured"
                    && message.starts_with(begins)
                    && message.contains("above the limitRange max")
            };
            ensure!(told.is_some_and(right), "{told:?}");
            Ok(())
        };
        wait::eventually(WAIT, "large to be told of the LimitRange", refused).await.unwrap();
        // No other job waits for that.
        let modest = bed.job("modest").pod_field("containers", modest()).run_forever();
        modest.create(bed.admin()).await.unwrap();
        charged(&bed, "modest", "500m").await;

        let api: Api<LimitRange> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        api.patch("range", &PatchParams::default(), &Patch::Merge(range("4"))).await.unwrap();
        charged(&bed, "large", "3").await;
        bed.running("large").await;
    });
}

#[test]
fn runtime_class_overhead_is_charged_and_followed() {
    fixture::run(async {
        let bed = Bed::new("overhead").await;
        bed.simple(&[("cpu", "2")]).await;
        let class = |cpu: &str| json!({"overhead": {"podFixed": {"cpu": cpu}}});
        let mut object = class("1500m");
        object["metadata"] = json!({"name": bed.name});
        (object["kind"], object["apiVersion"]) =
            (Value::from("RuntimeClass"), Value::from("node.k8s.io/v1"));
        object["handler"] = "sandbox".into();
        bed.cluster().apply([object]).await.unwrap();
        let sandboxed =
            bed.job("a").cpu("1").pod_field("runtimeClassName", bed.name.as_str().into());
        sandboxed.run_forever().create(bed.admin()).await.unwrap();
        let message = format!(
            "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor {}, previously considered podsets requests (0) + current podset request (2500m) > maximum capacity (2)",
            bed.name
        );
        bed.expect("a", "QuotaReserved", "False", "ExceedsMaxQuota", &message).await;
        let api: Api<RuntimeClass> = Api::all(bed.admin().clone());
        api.patch(&bed.name, &PatchParams::default(), &Patch::Merge(class("250m"))).await.unwrap();
        charged(&bed, "a", "1250m").await;
        bed.running("a").await;
    });
}
