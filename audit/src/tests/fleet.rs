//! A hub beside a worker.

use rstest::rstest;
use serde_json::{Value, json};

use super::{Of, here, messages, workload};
use crate::{Cluster, compare};

fn cluster(name: &str, workload: Option<Of>) -> Cluster {
    let cluster = Cluster { name: name.into(), ..here() };
    workload.into_iter().fold(cluster, Cluster::workload)
}

fn copy() -> Value {
    json!({"metadata": {"uid": "there", "annotations": {"switchyard.dev/workload-uid": "uid-j"}}})
}

fn of_stock() -> Value {
    json!({"metadata": {"uid": "there", "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"}}})
}

#[rstest]
#[case::as_much(Some(workload("j").admitted(2, "2")), workload("j").admitted(2, "2").with(copy()), None)]
#[case::less(
    Some(workload("j").admitted(2, "2")), workload("j").admitted(6, "6").with(copy()),
    Some("Workload ns/j is charged 6 cpu on west, and 2 on hub")
)]
#[case::less_by_a_kubeconfig(
    Some(workload("j").admitted(2, "2")), workload("j").admitted(6, "6").with(of_stock()),
    Some("Workload ns/j is charged 6 cpu on west, and 2 on hub")
)]
#[case::nothing_any_more(
    Some(workload("j")), workload("j").admitted(2, "2").with(copy()),
    Some("Workload ns/j is charged 2 cpu on west, and 0 on hub")
)]
#[case::of_a_job_that_is_gone(
    None, workload("j").admitted(2, "2").with(copy()), Some("Workload ns/j is charged 2 cpu on west, and 0 on hub")
)]
#[case::less_than_what_is_only_offered(
    Some(workload("j").admitted(2, "2")), workload("j").reserved(6, "6").with(copy()), None
)]
#[case::less_than_what_another_cluster_offers(
    Some(workload("j").admitted(2, "2").with(json!({"status": {"clusterName": "east"}}))),
    workload("j").admitted(6, "6").with(copy()), None
)]
#[case::less_than_what_is_none_of_its_own(None, workload("j").admitted(6, "6"), None)]
fn a_hub_charges(#[case] ours: Option<Of>, #[case] theirs: Of, #[case] want: Option<&str>) {
    let found = compare(&cluster("hub", ours), &[cluster("west", Some(theirs))]);
    assert_eq!(messages(&found), want.into_iter().collect::<Vec<_>>());
}
