//! Compares copies on workers with the hub's Workloads.

use serde_json::json;

use super::build::{Object, named, pod_set, quota, workload};
use super::messages;
use crate::{Cluster, FindingKind, compare};

fn hub(workloads: &[Object]) -> Cluster {
    workloads.iter().cloned().fold(named("hub"), Cluster::workload)
}

fn west(workloads: &[Object]) -> Cluster {
    workloads.iter().cloned().fold(named("west"), Cluster::workload)
}

/// Switchyard's copy of the hub's `w-j`.
fn copy() -> Object {
    let copy = workload("w-j").with(json!({"metadata": {"uid": "uid-there"}}));
    copy.annotation("switchyard.dev/workload-uid", "uid-w-j")
        .label("switchyard.dev/hub-id", "hub-id")
}

/// MultiKueue's copy of the hub's `w-j`.
fn stock_copy() -> Object {
    let copy = workload("w-j").with(json!({"metadata": {"uid": "uid-there"}}));
    copy.label("kueue.x-k8s.io/multikueue-origin", "multikueue")
}

fn sent_to(cluster: &str, workload: Object) -> Object {
    workload.with(json!({"status": {"clusterName": cluster}}))
}

#[test]
fn copy_is_charged_no_more_than_the_hub() {
    let ours = || workload("w-j").admitted(&[pod_set(2, "2")]);
    let admitted = |copy: Object| copy.admitted(&[pod_set(6, "6")]);
    let reserved = |copy: Object| copy.reserved(&[pod_set(6, "6")]);
    let above: &[&str] = &["Workload ns/w-j on west is charged 6 cpu, but its charge on hub is 2"];
    let unknown: &[&str] =
        &["Workload ns/w-j on west is charged 6 cpu, but hub has no Workload for it"];
    let adopted = workload("new")
        .admitted(&[pod_set(2, "2")])
        .with(json!({"status": {"dispatch": {"attempt": 1, "workloadUid": "uid-w-j"}}}));
    let slices = [copy().admitted(&[pod_set(1, "1")]).slice(""), {
        let grown = copy().with(json!({"metadata": {"name": "w2-j", "uid": "uid-there-2"}}));
        grown.admitted(&[pod_set(2, "2")]).slice("w-j")
    }];
    let table: [(&str, Cluster, Cluster, &[&str]); 12] = [
        (
            "both are charged the same",
            hub(&[ours()]),
            west(&[copy().admitted(&[pod_set(2, "2")])]),
            &[],
        ),
        ("the copy runs with all its pods", hub(&[ours()]), west(&[admitted(copy())]), above),
        (
            "the copy of MultiKueue is known by its name",
            hub(&[ours()]),
            west(&[admitted(stock_copy())]),
            above,
        ),
        ("a Workload that is no copy", hub(&[]), west(&[admitted(workload("w-j"))]), &[]),
        (
            "the hub has chosen the worker, which has not admitted yet",
            hub(&[sent_to("west", ours())]),
            west(&[reserved(copy())]),
            above,
        ),
        (
            "another worker was chosen",
            hub(&[sent_to("east", ours())]),
            west(&[reserved(copy())]),
            &[],
        ),
        (
            "the hub has given its quota back while the copy runs",
            hub(&[workload("w-j")]),
            west(&[admitted(copy())]),
            &["Workload ns/w-j on west is charged 6 cpu, but its charge on hub is 0"],
        ),
        (
            "the hub's Workload is gone while the copy runs",
            hub(&[]),
            west(&[admitted(copy())]),
            unknown,
        ),
        ("the hub's Workload is gone and the copy waits", hub(&[]), west(&[reserved(copy())]), &[]),
        (
            "a copy of another hub",
            hub(&[ours()]),
            west(&[
                copy().admitted(&[pod_set(2, "2")]),
                admitted(
                    workload("w-k")
                        .annotation("switchyard.dev/workload-uid", "k")
                        .label("switchyard.dev/hub-id", "other"),
                ),
            ]),
            &[],
        ),
        (
            "a Workload that has adopted the copy",
            hub(&[adopted]),
            west(&[copy().admitted(&[pod_set(2, "2")])]),
            &[],
        ),
        ("slices of an elastic copy", hub(&[ours()]), west(&slices), &[]),
    ];
    for (sentence, hub, west, expected) in table {
        assert_eq!(
            messages(&compare(&hub, &[west]), FindingKind::HubChargedLess),
            expected,
            "{sentence}"
        );
    }
}

#[test]
fn resources_that_the_hub_does_not_count_are_left_out() {
    let usage = json!({"name": "main", "count": 1, "flavors": {"cpu": "spot", "memory": "spot"}, "resourceUsage": {"cpu": "2", "memory": "1Gi"}});
    let ours = workload("w-j").admitted(&[pod_set(1, "2")]);
    assert_eq!(
        compare(&hub(&[ours]), &[west(&[copy().admitted(std::slice::from_ref(&usage))])]),
        []
    );

    // Without quota on the hub, the queue determines the covered resources.
    let waits = hub(&[workload("w-j")]).local_queue(&json!({}));
    let waits = waits.queue("cq", json!({"resourceGroups": [quota("default", "9", &json!({}))]}));
    let found = compare(&waits, &[west(&[copy().admitted(&[usage])])]);
    let expected = ["Workload ns/w-j on west is charged 2 cpu, but its charge on hub is 0"];
    assert_eq!(messages(&found, FindingKind::HubChargedLess), expected);
}
