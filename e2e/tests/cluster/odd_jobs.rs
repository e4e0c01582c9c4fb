//! Jobs that are right but odd: each runs on a worker like any other, or is refused with the reason.

use std::time::Duration;

use crate::common::fleet;
use kube::ResourceExt as _;
use serde_json::json;
use switchyard_e2e::{fixture, job};

const SOON: Duration = Duration::from_secs(60);
const CPU: [(&str, &str); 1] = [("cpu", "4")];

#[test]
fn a_job_of_one_mebibyte_runs() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet.tenant("large").hub(&CPU).worker("west", &CPU).make().await.unwrap();
        // Half in a pod's annotation, which its Workload also holds, and half in the environment of its container.
        let half = "x".repeat(240 * 1024);
        let containers = json!([{
            "name": "main", "image": "example.org/job:1", "resources": {"requests": {"cpu": "1"}},
            "env": (0..3).map(|i| json!({"name": format!("E{i}"), "value": half})).collect::<Vec<_>>(),
        }]);
        let large = tenant
            .job("large")
            .pod_annotation("example.com/payload", &half)
            .pod_field("containers", containers);
        tenant.submit(large.run_for(Duration::from_secs(1))).await.unwrap();
        job::complete(&fleet.hub().admin, tenant.name(), "large", SOON).await.unwrap();
        tenant.await_empty("west", SOON).await.unwrap();
    });
}

#[test]
fn a_job_with_the_longest_name_runs() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet.tenant("name").hub(&CPU).worker("west", &CPU).make().await.unwrap();
        let name = "n".repeat(63);
        tenant.submit(tenant.job(&name).run_for(Duration::from_secs(1))).await.unwrap();
        job::complete(&fleet.hub().admin, tenant.name(), &name, SOON).await.unwrap();
        tenant.await_empty("west", SOON).await.unwrap();
    });
}

#[test]
fn text_of_any_script_reaches_the_worker_as_it_is() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet.tenant("script").hub(&CPU).worker("east", &CPU).make().await.unwrap();
        let text = "größe Ω 学習 🚂 \"quoted\"\n";
        let odd = tenant
            .job("odd")
            .annotation("example.com/note", text)
            .pod_annotation("example.com/note", text);
        tenant.submit(odd.run_for(Duration::from_secs(20))).await.unwrap();
        fleet.await_pods("east", tenant.name(), 1).await.unwrap();
        let remote = tenant.worker_jobs("east").get("odd").await.unwrap();
        assert_eq!(remote.annotations().get("example.com/note").map(String::as_str), Some(text));
        let template = remote.spec.unwrap().template.metadata.unwrap().annotations.unwrap();
        assert_eq!(template.get("example.com/note").map(String::as_str), Some(text));
    });
}

#[test]
fn a_label_that_kubernetes_does_not_allow_is_refused_at_the_hub() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet.tenant("label").hub(&CPU).worker("east", &CPU).make().await.unwrap();
        let error =
            tenant.submit(tenant.job("odd").label("example.com/größe", "Ω")).await.unwrap_err();
        assert!(format!("{error:#}").contains("metadata.labels"), "{error:#}");
    });
}
