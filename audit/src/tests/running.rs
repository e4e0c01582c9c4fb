//! Pods beside their charge.

use rstest::rstest;
use serde_json::{Value, json};

use super::{here, messages, pod, workload};
use crate::{Cluster, audit};

fn queued() -> Value {
    json!({"kueue.x-k8s.io/queue-name": "lq"})
}

/// A queued job that runs with one pod.
fn job(workload: super::Of, pod: super::Of) -> Cluster {
    here().owner("Job", "j", "", queued()).workload(workload).pod_of("j", pod)
}

#[rstest]
#[case::by_an_admitted_workload(workload("j").admitted(1, "1"), json!({}), &[])]
#[case::by_one_that_only_reserves(
    workload("j").reserved(1, "1"), json!({}), &["Pod ns/p runs, and Workload ns/j is not admitted"]
)]
#[case::by_one_that_waits(workload("j"), json!({}), &["Pod ns/p runs, and Workload ns/j is not admitted"])]
#[case::by_one_of_another_job(workload("k").admitted(1, "1"), json!({}), &["Pod ns/p runs, and there is no Workload for it"])]
#[case::and_is_being_deleted(
    workload("j"), json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}}),
    &["Pod ns/p runs, and Workload ns/j is not admitted"]
)]
#[case::and_may_be_placed_at_any_moment(
    workload("j"), json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}}),
    &["Pod ns/p runs, and Workload ns/j is not admitted"]
)]
#[case::not_for_it_waits(workload("j"), json!({"spec": {"nodeName": null, "schedulingGates": [{"name": "any"}]}}), &[])]
#[case::not_for_it_has_ended(workload("j"), json!({"status": {"phase": "Failed"}}), &[])]
#[case::not_for_it_never_starts(
    workload("j"), json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}, "spec": {"nodeName": null}}), &[]
)]
fn a_pod_of_a_queued_job_runs(#[case] workload: super::Of, #[case] patch: Value, #[case] want: &[&str]) {
    assert_eq!(messages(&audit(&job(workload, pod("p", "1").with(patch)))), want);
}

#[rstest]
#[case::its_own_job(here().owner("Job", "j", "", queued()), "j", "j")]
#[case::the_job_of_its_job(here().owner("JobSet", "s", "", queued()).owner("Job", "j", "s", json!({})), "j", "s")]
#[case::one_that_the_job_names(
    here().owner("Job", "j", "", json!({"kueue.x-k8s.io/prebuilt-workload-name": "w"})), "j", "w"
)]
#[case::one_whose_job_is_gone(here(), "j", "j")]
fn the_workload_of_a_pod_is_found_by(#[case] cluster: Cluster, #[case] owner: &str, #[case] name: &str) {
    let with = |workload| cluster.clone().workload(workload).pod_of(owner, pod("p", "1"));
    assert_eq!(audit(&with(workload(name).admitted(1, "1"))), []);
    assert_eq!(audit(&with(workload(name))).len(), 1);
}

#[test]
fn pods_of_nobody_that_is_queued_are_left_alone() {
    let cluster = here().owner("Job", "j", "", json!({})).pod_of("j", pod("a", "99")).pod(pod("b", "99"));
    assert_eq!(audit(&cluster), []);
}

#[test]
fn owners_that_own_each_other_have_an_end() {
    let cluster = here().owner("Job", "a", "b", json!({})).owner("Job", "b", "a", queued()).pod_of("a", pod("p", "1"));
    assert_eq!(messages(&audit(&cluster)), ["Pod ns/p runs, and there is no Workload for it"]);
}

#[test]
fn more_pods_than_were_admitted() {
    let cluster = job(workload("j").admitted(1, "1"), pod("a", "1")).pod_of("j", pod("b", "1"));
    let found = audit(&cluster);
    assert_eq!(messages(&found), ["2 pods ask for 2 cpu, and Workload ns/j is charged 1"]);
    assert_eq!((found[0].is.as_deref(), found[0].should_be.as_deref()), (Some("2"), Some("1")));
}

#[test]
fn pods_whose_quota_was_given_back() {
    let reclaimed = json!({"status": {"reclaimablePods": [{"name": "main", "count": 2}]}});
    let two = |workload| job(workload, pod("a", "1")).pod_of("j", pod("b", "1"));
    assert_eq!(audit(&two(workload("j").admitted(3, "3"))), []);
    let found = audit(&two(workload("j").admitted(3, "3").with(reclaimed)));
    assert_eq!(messages(&found), ["2 pods ask for 2 cpu, and Workload ns/j is charged 1"]);
}

#[test]
fn what_was_not_charged_at_all_although_the_queue_counts_it() {
    let memory = json!([{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi", "example.com/x": "1"}}}]);
    let cluster = job(workload("j").admitted(1, "1"), pod("p", "1").with(json!({"spec": {"containers": memory}})));
    assert_eq!(messages(&audit(&cluster)), ["1 pod asks for 1Gi memory, and Workload ns/j is charged 0"]);
}

#[test]
fn overhead_and_sidecars_count() {
    let overhead = json!({"spec": {"overhead": {"cpu": "250m"}}});
    let cluster = job(workload("j").admitted(1, "1"), pod("p", "1").with(overhead));
    assert_eq!(messages(&audit(&cluster)), ["1 pod asks for 1250m cpu, and Workload ns/j is charged 1"]);
}

#[test]
fn pods_of_a_group_with_forged_roles() {
    let group = |name: &str, cpu: &str| {
        pod(name, cpu).with(json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}}))
    };
    let cluster = here().workload(workload("g").admitted(2, "200m")).pod(group("a", "100m")).pod(group("b", "8"));
    assert_eq!(messages(&audit(&cluster)), ["2 pods ask for 8100m cpu, and Workload ns/g is charged 200m"]);
}

#[test]
fn slices_of_an_elastic_job_are_charged_together() {
    let slice = json!({"metadata": {"annotations": {
        "kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/workload-slice-name": "j",
    }}});
    let other = json!({"metadata": {"ownerReferences": null}});
    let cluster = job(workload("j").admitted(1, "1").with(slice.clone()), pod("a", "1")).pod_of("j", pod("b", "1"));
    assert_eq!(audit(&cluster).len(), 1);
    assert_eq!(audit(&cluster.workload(workload("k").admitted(1, "1").with(slice).with(other))), []);
}

#[test]
fn pods_on_another_flavor_than_they_are_charged_for() {
    let assignment = |name: &str, flavor: &str, cpu: &str| json!({"name": name, "count": 1, "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": cpu}});
    let pod_set = |name: &str| json!({"name": name, "count": 1, "template": {}});
    let two = workload("j").admitted(1, "1").with(json!({
        "spec": {"podSets": [pod_set("a"), pod_set("b")]},
        "status": {"admission": {"podSetAssignments": [assignment("a", "spot", "4"), assignment("b", "default", "1")]}},
    }));
    let of =
        |name: &str, cpu: &str| pod(name, cpu).with(json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": name}}}));
    let cluster = Cluster { is_whole: false, ..job(two, of("a", "1")).pod_of("j", of("b", "2")) };
    assert_eq!(messages(&audit(&cluster)), ["2 pods ask for 2 cpu of flavor default, and Workload ns/j is charged 1"]);
}

#[test]
fn amounts_that_cannot_be_read_are_skipped() {
    let cluster = job(workload("j").admitted(1, "1"), pod("p", "much"));
    assert_eq!(audit(&cluster), []);
}
