use serde_json::json;

use super::*;
use switchyard_api::v1beta2::AdmissionCheckState;

fn check(name: &str, update: serde_json::Value) -> AdmissionCheckState {
    serde_json::from_value(json!({
        "name": name, "state": "Ready", "message": "", "lastTransitionTime": "2026-11-21T10:00:00Z",
        "podSetUpdates": [update],
    }))
    .unwrap()
}

fn infos(workload: &Workload) -> Result<Vec<PodSetInfo>, JobError> {
    let gpu = gpu();
    pod_set_infos(workload, |name| (name == "gpu").then_some(&gpu))
}

#[test]
fn flavors_checks_and_labels_come_together() {
    let mut workload = reserved(job().workload(), 2, true);
    workload
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert(switchyard_syntax::names::MULTIKUEUE_ORIGIN.into(), "hub".into());
    let update = json!({"name": "main", "labels": {"l": "1"}, "annotations": {"a": "1"}, "nodeSelector": {"n": "1"}, "tolerations": [{"key": "t"}]});
    workload.status.as_mut().unwrap().admission_checks = vec![check("prov", update)];
    let infos = infos(&workload).unwrap();
    insta::assert_debug_snapshot!((infos[0].count, &infos[0].labels, &infos[0].annotations, &infos[0].node_selector, infos[0].tolerations.len()), @r#"
    (
        2,
        {
            "kueue.x-k8s.io/cluster-queue-name": "cq",
            "kueue.x-k8s.io/local-queue-name": "lq",
            "kueue.x-k8s.io/multikueue-worker-workload-pod": "true",
            "kueue.x-k8s.io/podset": "main",
            "l": "1",
        },
        {
            "a": "1",
            "kueue.x-k8s.io/workload": "job-train-1b29a",
        },
        {
            "accelerator": "a100",
            "n": "1",
        },
        2,
    )
    "#);
}

#[test]
fn check_contradicting_a_flavor_is_named_in_the_error() {
    let mut workload = reserved(job().workload(), 1, true);
    let update = json!({"name": "main", "nodeSelector": {"accelerator": "h100"}});
    workload.status.as_mut().unwrap().admission_checks = vec![check("prov", update)];
    let error = infos(&workload).unwrap_err();
    assert!(error.is_permanent());
    insta::assert_snapshot!(error, @r#"in admission check "prov": invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key=accelerator, value1=a100, value2=h100"#);
}

#[test]
fn missing_flavor_is_not_permanent() {
    let workload = reserved(job().workload(), 1, true);
    let error = pod_set_infos(&workload, |_| None).unwrap_err();
    assert!(!error.is_permanent());
}

#[test]
fn cluster_queue_name_invalid_as_label_is_left_out() {
    let mut workload = reserved(job().workload(), 1, true);
    workload.status.as_mut().unwrap().admission.as_mut().unwrap().cluster_queue =
        "team.example".into();
    assert!(
        !infos(&workload).unwrap()[0]
            .labels
            .contains_key(switchyard_syntax::names::CLUSTER_QUEUE_NAME)
    );
}

#[test]
fn dns_labels() {
    for (name, want) in [
        ("a", true),
        ("a-1", true),
        ("", false),
        ("A", false),
        ("-a", false),
        ("a-", false),
        ("a.b", false),
    ] {
        assert_eq!(is_dns_label(name), want, "{name}");
    }
    assert!(is_dns_label(&"a".repeat(63)) && !is_dns_label(&"a".repeat(64)));
}
