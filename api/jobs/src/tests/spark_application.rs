use rstest::rstest;

use super::plain::{admitted, changed, object, running, shape};
use super::*;

fn application(more: Value) -> (&'static dyn JobKind, Value) {
    let spec = json!({"mode": "cluster", "driver": {}, "executor": {"instances": 2}});
    object("sparkoperator.k8s.io", "SparkApplication", changed(&spec, more))
}

fn driver(more: Value) -> Value {
    let (kind, job) = application(json!({ "driver": more }));
    kind.pod_sets(&job).unwrap()[0].template.value().into_owned()
}

#[rstest]
#[case::executors_are_counted(json!({}), "driver x 1, executor x 2")]
#[case::none_by_default(json!({"executor": {"instances": null}}), "driver x 1, executor x 0")]
#[case::negative(json!({"executor": {"instances": -1}}), "spec.executor.instances: gives -1 pods; must be between 0 and 2147483647")]
#[case::no_driver(json!({"driver": null}), "spec.driver: is missing; a SparkApplication needs a driver and an executor")]
#[case::a_bad_amount(json!({"executor": {"coreLimit": "many"}}), "spec.executor.coreLimit: is \"many\": ")]
fn pod_sets(#[case] more: Value, #[case] want: &str) {
    let (kind, job) = application(more);
    let got = shape(kind, &job);
    assert!(got.starts_with(want), "{got}");
}

#[rstest]
#[case::nothing_said(json!({}), json!({"requests": {"cpu": "1", "memory": "1408Mi"}, "limits": {"memory": "1408Mi"}}))]
#[case::cpu(json!({"coreRequest": "500m", "coreLimit": "1"}), json!({"requests": {"cpu": "500m", "memory": "1408Mi"}, "limits": {"cpu": "1", "memory": "1408Mi"}}))]
#[case::cores(json!({"cores": 2}), json!({"requests": {"cpu": "2", "memory": "1408Mi"}, "limits": {"memory": "1408Mi"}}))]
#[case::javas_memory(json!({"memory": "512m", "memoryLimit": "2GB"}), json!({"requests": {"cpu": "1", "memory": "896Mi"}, "limits": {"memory": "2Gi"}}))]
#[case::gpus(json!({"gpu": {"name": "nvidia.com/gpu", "quantity": 2}}), json!({"requests": {"cpu": "1", "memory": "1408Mi"}, "limits": {"memory": "1408Mi", "nvidia.com/gpu": "2"}}))]
fn driver_requests_include_overhead(#[case] more: Value, #[case] want: Value) {
    assert_eq!(driver(more)["spec"]["containers"][0]["resources"], want);
}

#[test]
fn spark_template_has_the_placement_fields() {
    let (kind, job) = application(json!({
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "unused", "emptyDir": {}}],
        "nodeSelector": {"zone": "a"},
        "driver": {
            "priorityClassName": "high", "labels": {"app": "x"},
            "template": {"metadata": {"labels": {"team": "t"}, "annotations": {"note": "n"}}},
            "volumeMounts": [{"name": "data", "mountPath": "/d"}],
            "initContainers": [{"name": "init"}], "sidecars": [{"name": "side"}],
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
    }));
    let want = json!({
        "metadata": {"labels": {"app": "x", "team": "t"}, "annotations": {"note": "n"}},
        "spec": {
            "containers": [
                {
                    "name": "spark-kubernetes-driver", "volumeMounts": [{"name": "data", "mountPath": "/d"}],
                    "resources": {"requests": {"cpu": "1", "memory": "1408Mi"}, "limits": {"memory": "1408Mi"}},
                },
                {"name": "side"},
            ],
            "initContainers": [{"name": "init"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "priorityClassName": "high",
            "nodeSelector": {"zone": "a"},
        },
    });
    assert_eq!(kind.pod_sets(&job).unwrap()[0].template.value().into_owned(), want);
}

#[test]
fn driver_template_adds_its_requests() {
    let claim = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
    let own = json!({
        "requests": {"cpu": "9", "ephemeral-storage": "1Gi"}, "limits": {"cpu": 10}, "claims": [{"name": "gpu"}],
    });
    let template = json!({"spec": {
        "containers": [
            {"name": "first", "resources": {"requests": {"cpu": 2}}},
            {"name": "spark-kubernetes-driver", "image": "i", "resources": own},
        ],
        "initContainers": [{"name": "starts"}], "runtimeClassName": "kata", "resourceClaims": claim,
        "resources": {"requests": {"cpu": "20"}}, "overhead": {"cpu": "1"}, "nodeSelector": {"zone": "b"},
    }});
    let role = json!({"template": template, "sidecars": [{"name": "side"}], "initContainers": [{"name": "init"}]});
    let resources = json!({
        "requests": {"cpu": "1", "memory": "1408Mi", "ephemeral-storage": "1Gi"},
        "limits": {"cpu": "10", "memory": "1408Mi"}, "claims": [{"name": "gpu"}],
    });
    let want = json!({"spec": {
        "containers": [
            {"name": "spark-kubernetes-driver", "resources": resources},
            {"name": "first", "resources": {"requests": {"cpu": "2"}}},
            {"name": "side"},
        ],
        "initContainers": [{"name": "starts"}, {"name": "init"}],
        "runtimeClassName": "kata", "resourceClaims": claim, "resources": {"requests": {"cpu": "20"}},
        "overhead": {"cpu": "1"},
    }});
    assert_eq!(driver(role), want);
    // Admission gates its pods with a template that requests nothing.
    let gated =
        json!({"template": {"spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}});
    assert_eq!(driver(gated), driver(json!({})));
}

#[test]
fn admission_goes_into_driver_and_executor_and_comes_out_again() {
    let (kind, job) =
        application(json!({"nodeSelector": {"zone": "a"}, "driver": {"labels": {"app": "x"}}}));
    let workload = admitted(kind, &job);
    let mut started = running(kind, &job);
    let spec = &started["spec"];
    assert_eq!(spec.get("nodeSelector"), None, "it excludes that of a role");
    for role in ["driver", "executor"] {
        assert_eq!(spec[role]["nodeSelector"], json!({"zone": "a", "accelerator": "a100"}));
        assert_eq!(spec[role]["tolerations"][0]["key"], "gpu");
        assert_eq!(spec[role]["labels"]["kueue.x-k8s.io/podset"], role);
        assert_eq!(spec[role].get("template"), None);
    }
    assert!(kind.restore(&mut started, &workload.spec.pod_sets));
    let spec = &started["spec"];
    assert_eq!(spec["driver"], json!({"labels": {"app": "x"}, "nodeSelector": {"zone": "a"}}));
    assert_eq!(spec["executor"], json!({"instances": 2, "nodeSelector": {"zone": "a"}}));
}

#[rstest]
#[case::new(json!({}), (false, false), None)]
#[case::submitted(json!({"applicationState": {"state": "SUBMITTED"}}), (false, false), None)]
#[case::the_driver_runs(json!({"applicationState": {"state": "RUNNING"}, "executorState": {"e1": "RUNNING", "e2": "PENDING"}}), (true, false), None)]
#[case::all_run(json!({"applicationState": {"state": "RUNNING"}, "executorState": {"e1": "RUNNING", "e2": "COMPLETED"}}), (true, true), None)]
#[case::completed(json!({"applicationState": {"state": "COMPLETED"}}), (false, false), Some((true, "")))]
#[case::failed(json!({"applicationState": {"state": "FAILED", "errorMessage": "driver"}}), (false, false), Some((false, "driver")))]
#[case::never_submitted(json!({"applicationState": {"state": "SUBMISSION_FAILED"}}), (false, false), Some((false, "")))]
fn app_wrapper_status_is_interpreted(
    #[case] status: Value,
    #[case] life: (bool, bool),
    #[case] end: Option<(bool, &str)>,
) {
    let (kind, job) = application(json!({}));
    let job = changed(&job, json!({ "status": status }));
    assert_eq!((kind.is_active(&job), kind.pods_ready(&job)), life);
    assert_eq!(
        kind.finished(&job),
        end.map(|(success, message)| JobEnd { success, message: message.into() })
    );
}

#[rstest]
#[case::never("Never", true)]
#[case::on_failure("OnFailure", false)]
#[case::always("Always", false)]
fn failed_submission_ends_it_only_without_restart_policy(#[case] policy: &str, #[case] ends: bool) {
    let (kind, job) = application(json!({"restartPolicy": {"type": policy}}));
    let job =
        changed(&job, json!({"status": {"applicationState": {"state": "SUBMISSION_FAILED"}}}));
    assert_eq!(kind.finished(&job).is_some(), ends);
}

#[test]
fn reset_status_keeps_required_fields() {
    let (kind, job) = application(json!({}));
    let job = changed(
        &job,
        json!({"status": {"driverInfo": {"podName": "p"}, "applicationState": {"state": "RUNNING"}}}),
    );
    let reset = kind.reset_status(&job, Timestamp::UNIX_EPOCH);
    assert_eq!(reset, Some(json!({"driverInfo": {"podName": "p"}})));
}

#[rstest]
#[case::cluster_mode(json!({}), "")]
#[case::client_mode(json!({"mode": "client"}), "spec.mode: Invalid value: \"client\": only Cluster mode is supported for a kueue managed job")]
#[case::dynamic(json!({"dynamicAllocation": {"enabled": true}}), "spec.dynamicAllocation.enabled: Invalid value: true: a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature gate is on and the job is an elastic job: a SparkApplication cannot be one")]
#[case::not_dynamic(json!({"dynamicAllocation": {"enabled": false}}), "")]
fn refusals(#[case] more: Value, #[case] want: &str) {
    let (kind, job) = application(more);
    let said: Vec<String> = kind.validate(&job).iter().map(ToString::to_string).collect();
    assert_eq!(said.join("\n"), want);
}
