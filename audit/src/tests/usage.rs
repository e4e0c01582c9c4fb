//! Compares queue statuses with the charges.

use serde_json::{Value, json};

use super::build::{cluster, pod_set, workload};
use super::check;
use crate::{Cluster, FindingKind, audit, lasting};

const KIND: FindingKind = FindingKind::UsageDiffers;

fn status(reserved: &str, admitted: &str) -> Value {
    let usage =
        |cpu: &str| json!([{"name": "default", "resources": [{"name": "cpu", "total": cpu}]}]);
    let ready = json!({
        "type": "Active", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-11-21T10:00:00Z",
    });
    json!({"conditions": [ready], "flavorsReservation": usage(reserved), "flavorsUsage": usage(admitted)})
}

/// One Workload is admitted with 2 cpu, another one reserves 3.
fn two() -> Cluster {
    let admitted = workload("w-a").admitted(&[pod_set(1, "2")]);
    cluster().workload(admitted).workload(workload("w-b").reserved(&[pod_set(1, "3")]))
}

fn cluster_queue(cluster: Cluster, status: Value) -> Cluster {
    cluster.queue_with("cq", json!({ "status": status }))
}

#[test]
fn status_is_compared_with_the_charges() {
    let replaced = || {
        let first = workload("w1-j").admitted(&[pod_set(1, "1")]).slice("");
        cluster()
            .workload(first)
            .workload(workload("w2-j").admitted(&[pod_set(2, "2")]).slice("w1-j"))
    };
    let variant = || {
        let parent = workload("w-j").label("kueue.x-k8s.io/concurrent-admission-parent", "true");
        let owner = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "w-j", "uid": "uid-w-j"});
        let variant = workload("v").with(json!({"metadata": {"ownerReferences": [owner]}}));
        cluster()
            .workload(parent.admitted(&[pod_set(1, "2")]))
            .workload(variant.admitted(&[pod_set(1, "2")]))
    };
    let finished = cluster().workload(workload("w-j").admitted(&[pod_set(1, "2")]).finished());
    let inactive = workload("w")
        .with(json!({"metadata": {"ownerReferences": null}, "spec": {"active": false}}));
    let without_any = json!({"flavorsReservation": null, "flavorsUsage": null});
    let mut unstated = status("0", "0");
    switchyard_jobs::apply_merge(&mut unstated, &without_any);
    check(
        KIND,
        [
            ("equal sums", cluster_queue(two(), status("5", "2")), &[][..]),
            (
                "both lists differ",
                cluster_queue(two(), status("4", "3")),
                &[
                    "status.flavorsUsage of ClusterQueue cq says 3 cpu of flavor default, but its Workloads that are admitted are charged 2",
                    "status.flavorsReservation of ClusterQueue cq says 4 cpu of flavor default, but its Workloads that hold quota are charged 5",
                ],
            ),
            (
                "a list without the flavor says that nothing is used",
                cluster_queue(
                    cluster().workload(workload("w-a").reserved(&[pod_set(1, "2")])),
                    unstated,
                ),
                &[
                    "status.flavorsReservation of ClusterQueue cq says 0 cpu of flavor default, but its Workloads that hold quota are charged 2",
                ],
            ),
            ("a queue that no controller has seen is not judged", two(), &[]),
            (
                "a finished Workload is charged nothing",
                cluster_queue(finished, status("0", "0")),
                &[],
            ),
            (
                "a replaced slice is charged nothing",
                cluster_queue(replaced(), status("2", "2")),
                &[],
            ),
            (
                "a Workload with variants is counted once",
                cluster_queue(variant(), status("2", "2")),
                &[],
            ),
            (
                "a deactivated Workload without a job is charged nothing",
                cluster_queue(
                    cluster().workload(inactive.reserved(&[pod_set(1, "2")])),
                    status("0", "0"),
                ),
                &[],
            ),
            (
                "a charge that cannot be read",
                cluster_queue(
                    two().workload(workload("w-c").reserved(&[pod_set(1, "much")])),
                    status("5", "2"),
                ),
                &[],
            ),
            ("equal sums of a LocalQueue", two().local_queue(&status("5", "2")), &[]),
            (
                "other sums of a LocalQueue",
                two().local_queue(&status("5", "5")),
                &[
                    "status.flavorsUsage of LocalQueue ns/lq says 5 cpu of flavor default, but its Workloads that are admitted are charged 2",
                ],
            ),
            (
                "in one namespace the sums are not known",
                Cluster { namespace: Some("ns".into()), ..cluster_queue(two(), status("4", "3")) },
                &[],
            ),
        ],
    );
}

#[test]
fn finding_lasts_while_status_and_charges_stay() {
    let found = |cluster: Cluster, cpu: &str| audit(&cluster_queue(cluster, status(cpu, "2")));
    let other = || {
        let admitted = workload("w-a").admitted(&[pod_set(1, "2")]);
        cluster().workload(admitted).workload(workload("w-c").reserved(&[pod_set(1, "3")]))
    };
    for (sentence, later, lasts) in [
        ("nothing changes", found(two(), "4"), 1),
        ("the status changes", found(two(), "6"), 0),
        ("another Workload is charged as much", found(other(), "4"), 0),
    ] {
        assert_eq!(lasting(&found(two(), "4"), later).len(), lasts, "{sentence}");
    }
}
