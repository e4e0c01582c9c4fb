//! Wrong charges of earlier releases, as a user saw them. Faults that stay invisible in pods,
//! Workloads and queues are left out, such as a charge above the requests or a job on the wrong
//! flavor.

use serde_json::json;

use super::build::{Object, cluster, named, owner, pod, pod_set, workload};
use crate::{Cluster, FindingKind, audit, compare};

const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

/// A queued owner `j` of this kind, with its Workload.
fn of(kind: &str, workload: Object) -> Cluster {
    cluster().owner(kind, owner("j").queued()).workload(workload)
}

fn member(name: &str, cpu: &str) -> Object {
    pod(name, cpu).label(MANAGED, "true").label(GROUP, "g").label("kueue.x-k8s.io/podset", "main")
}

/// The copy of the hub's `w-j` on a worker.
fn copy() -> Object {
    let copy = workload("w-j").with(json!({"metadata": {"uid": "uid-there"}}));
    copy.annotation("switchyard.dev/workload-uid", "uid-w-j")
        .label("switchyard.dev/hub-id", "hub-id")
}

/// The distinct kinds of findings.
fn kinds(clusters: &[Cluster]) -> Vec<&'static str> {
    let found = clusters.iter().flat_map(audit);
    let between =
        clusters.split_first().map(|(hub, workers)| compare(hub, workers)).unwrap_or_default();
    let mut kinds: Vec<FindingKind> = found.chain(between).map(|finding| finding.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.into_iter().map(FindingKind::name).collect()
}

#[test]
fn wrong_charges_of_running_pods_are_found() {
    let w = || workload("w-j");
    let overhead = pod("j-0", "1").of("j").with(json!({"spec": {"overhead": {"cpu": "4"}}}));
    let in_group = workload("g").with(json!({"metadata": {"ownerReferences": null}}));
    let rows: [(&str, Cluster); 8] = [
        (
            "reclaimable pods of a Job are counted while pods that may still run do",
            of("Job", w().admitted(&[pod_set(3, "6")]).reclaimable(3)).pods("j", 2, "2"),
        ),
        (
            "a limit without a request is charged as the default of a LimitRange",
            of("Job", w().admitted(&[pod_set(1, "1")])).pods("j", 1, "4"),
        ),
        (
            "a JobSet that restarts keeps the reclaimable pods of before",
            of("JobSet", w().admitted(&[pod_set(3, "9")]).reclaimable(2)).pods("j", 3, "3"),
        ),
        (
            "members of a group with a forged hash share the pod set of the smallest",
            cluster()
                .workload(in_group.admitted(&[pod_set(2, "200m")]))
                .pod(member("a", "100m"))
                .pod(member("b", "8")),
        ),
        (
            "a prebuilt Workload asks for less than its job",
            cluster()
                .owner("Job", owner("j").queued().label(PREBUILT, "w-j"))
                .workload(w().admitted(&[pod_set(1, "1")]))
                .pods("j", 1, "8"),
        ),
        (
            "the cpu of a SparkApplication's pods is not charged",
            of("SparkApplication", w().admitted(&[pod_set(2, "0")])).pods("j", 2, "1"),
        ),
        (
            "the overhead of a RuntimeClass grew after the reservation",
            of("Job", w().admitted(&[pod_set(1, "1250m")])).pod(overhead),
        ),
        (
            "an elastic job runs more pods than its slice has",
            of("Job", w().admitted(&[pod_set(2, "2")]).slice("")).pods("j", 3, "1"),
        ),
    ];
    for (row, cluster) in rows {
        assert_eq!(kinds(&[cluster]), ["RunsAboveCharge"], "{row}");
    }
}

#[test]
fn pods_that_run_without_a_charge_are_found() {
    let w = || workload("w-j");
    let one = [pod_set(1, "8")];
    let serving = |pod: Object| pod.label(MANAGED, "true").label(GROUP, "w-j").of("j");
    let rows: [(&str, Cluster); 4] = [
        (
            "a StatefulSet that waits gets another image, and its new pod has no gate",
            of("StatefulSet", w()).pod(serving(pod("j-0", "8"))),
        ),
        (
            "a deactivated job gives its quota back while its pods end",
            of("Job", w().with(json!({"spec": {"active": false}})))
                .pod(pod("j-0", "8").of("j").terminating()),
        ),
        (
            "a StatefulSet of no replicas gives its quota back while its pods end",
            of("StatefulSet", w()).pod(serving(pod("j-0", "8")).terminating()),
        ),
        (
            "a SparkApplication counts as finished while its retry runs",
            of("SparkApplication", w().admitted(&one).finished()).pod(pod("j-0", "8").of("j")),
        ),
    ];
    for (row, cluster) in rows {
        assert_eq!(kinds(&[cluster]), ["RunsWithoutAdmission"], "{row}");
    }
}

#[test]
fn copies_that_a_hub_charges_less_are_found() {
    let w = || workload("w-j");
    let rows: [(&str, Object, Object); 2] = [
        (
            "a worker runs all pods of a job that its hub admitted in part",
            w().admitted(&[pod_set(2, "2")]),
            copy().admitted(&[pod_set(6, "6")]),
        ),
        (
            "a hub gives the quota of a deactivated job back while it ends on its worker",
            w().with(json!({"spec": {"active": false}})),
            copy().admitted(&[pod_set(2, "2")]),
        ),
    ];
    for (row, ours, theirs) in rows {
        let clusters = [named("hub").workload(ours), named("west").workload(theirs)];
        assert_eq!(kinds(&clusters), ["HubChargedLess"], "{row}");
    }
}
