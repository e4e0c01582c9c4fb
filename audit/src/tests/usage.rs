//! Statuses of queues beside the sums of charges.

use serde_json::{Value, json};

use super::{here, messages, workload};
use crate::{Cluster, audit};

fn usage(cpu: &str) -> Value {
    json!([{"name": "default", "resources": [{"name": "cpu", "total": cpu}]}])
}

fn said(reservation: &str, admitted: &str) -> Value {
    json!({"flavorsReservation": usage(reservation), "flavorsUsage": usage(admitted)})
}

/// One Workload is admitted with two cpu, and another reserves three.
fn two(cluster: Cluster) -> Cluster {
    cluster.workload(workload("a").admitted(1, "2")).workload(workload("b").reserved(1, "3"))
}

fn cluster_queue(status: Value) -> Cluster {
    let mut cluster = here();
    cluster.cluster_queues.clear();
    cluster.queue("cq", "9", json!({ "status": status }))
}

#[test]
fn of_a_cluster_queue() {
    assert_eq!(audit(&two(cluster_queue(said("5", "2")))), []);
    let found = audit(&two(cluster_queue(said("4", "3"))));
    assert_eq!(
        messages(&found),
        [
            "ClusterQueue cq says in status.flavorsUsage that 3 cpu of flavor default are used, and its Workloads are charged 2",
            "ClusterQueue cq says in status.flavorsReservation that 4 cpu of flavor default are used, and its Workloads are charged 5",
        ]
    );
}

#[test]
fn of_a_local_queue() {
    assert_eq!(audit(&two(here().local_queue(said("5", "2")))), []);
    assert_eq!(audit(&two(here().local_queue(said("5", "5")))).len(), 1);
}

#[test]
fn in_one_namespace_nothing_is_said_of_queues() {
    let cluster = Cluster { is_whole: false, ..two(cluster_queue(said("4", "3"))) };
    assert_eq!(audit(&cluster), []);
}

#[test]
fn what_has_ended_is_charged_nothing() {
    let finished = json!({"status": {"conditions": [super::condition("QuotaReserved"), super::condition("Finished")]}});
    let cluster = cluster_queue(said("0", "0")).workload(workload("a").admitted(1, "2").with(finished));
    assert_eq!(audit(&cluster), []);
}

#[test]
fn sums_that_differ_otherwise_the_next_time_are_other_findings() {
    let key = |cpu: &str| audit(&two(cluster_queue(said(cpu, "2"))))[0].key();
    assert_ne!(key("4"), key("6"));
    assert_eq!(key("4"), key("4"));
}
