//! Nodes that are cordoned, tainted, not ready or flapping under a running gang, and pods of others
//! on its nodes.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use switchyard_e2e::{
    fixture,
    job::RUN_FOR,
    wait::{always, eventually},
};

use super::node_of;
use super::racks::{BLOCK, HOST, HOSTS, RACK, REQUIRED, Racks};
use crate::bed::WAIT;

/// How long nothing may change.
const WHILE: Duration = Duration::from_secs(4);

/// A gang of two pods in one block, each on a host of its own; the pods.
async fn gang(racks: &Racks) -> Vec<Pod> {
    let job = racks.bed.job("gang").run_forever().cpu("3").parallelism(2).completions(2);
    let job = job.backoff_limit(6).pod_annotation(REQUIRED, BLOCK);
    job.create(racks.bed.admin()).await.unwrap();
    racks.running("gang", 2).await
}

fn uids(pods: &[Pod]) -> Vec<Option<String>> {
    let mut uids: Vec<_> = pods.iter().map(|pod| pod.uid()).collect();
    uids.sort();
    uids
}

/// The gang keeps its pods and hosts, and no node counts as failed.
async fn goes_on(racks: &Racks, before: &[Pod]) {
    let mut hosts: Vec<_> = before.iter().map(|pod| node_of(pod).to_owned()).collect();
    hosts.sort();
    let same = async || {
        let now = racks.running("gang", 2).await;
        ensure!(uids(&now) == uids(before), "other pods run: {:?}", uids(&now));
        ensure!(racks.assigned("gang").await == hosts, "other hosts are assigned");
        let status = racks.bed.workload_of("gang").await.status.unwrap_or_default();
        ensure!(status.unhealthy_nodes.is_empty(), "{:?}", status.unhealthy_nodes);
        Ok(())
    };
    always(WHILE, "the gang goes on", same).await.unwrap();
}

/// The gang has left a host; its other pod runs on.
async fn leaves(racks: &Racks, before: &[Pod], host: &str) {
    let left = async || {
        let hosts = racks.assigned("gang").await;
        ensure!(!hosts.contains(&host.to_owned()), "it is still on {hosts:?}");
        let status = racks.bed.workload_of("gang").await.status.unwrap_or_default();
        ensure!(status.unhealthy_nodes.is_empty(), "{:?}", status.unhealthy_nodes);
        Ok(())
    };
    eventually(WAIT, format!("the gang to leave {host}"), left).await.unwrap();
    let now = racks.running("gang", 2).await;
    assert!(now.iter().all(|pod| node_of(pod) != host), "{now:?}");
    racks.one_of(&now, BLOCK).await;
    let stays = before.iter().find(|pod| node_of(pod) != host).unwrap();
    assert!(now.iter().any(|pod| pod.uid() == stays.uid()), "the other pod runs on");
}

#[test]
fn cordoned_node_keeps_its_pods_and_takes_no_others() {
    fixture::run(async {
        let racks = Racks::new("cordon").await;
        let bed = &racks.bed;
        let before = gang(&racks).await;
        for index in 0..super::racks::HOSTS {
            racks.cordon(&racks.host(index), true).await;
        }
        racks.has_free(0.0).await;
        bed.job("next").run_forever().cpu("1").create(bed.admin()).await.unwrap();
        let message = "couldn't assign flavors to pod set main: no topology domains at level: kubernetes.io/hostname";
        bed.expect("next", "QuotaReserved", "False", "TopologyPlacementFailed", message).await;
        goes_on(&racks, &before).await;
        let mut hosts = (0..super::racks::HOSTS).map(|index| racks.host(index));
        let free = hosts.rfind(|host| before.iter().all(|pod| node_of(pod) != host)).unwrap();
        racks.cordon(&free, false).await;
        let next = racks.running("next", 1).await;
        assert_eq!(node_of(&next[0]), free);
        goes_on(&racks, &before).await;
    });
}

#[test]
fn tainted_node_is_left_once_its_pod_is_gone() {
    fixture::run(async {
        let racks = Racks::new("taint").await;
        let before = gang(&racks).await;
        let host = node_of(&before[0]);
        for (key, effect) in [("a", "PreferNoSchedule"), ("b", "NoSchedule")] {
            racks.taint(host, Some((key, effect))).await;
            goes_on(&racks, &before).await;
        }
        racks.taint(host, Some(("c", "NoExecute"))).await;
        // As Kubernetes evicts pods by this taint.
        racks.delete_by_force(&before[0]).await;
        leaves(&racks, &before, host).await;
    });
}

#[test]
fn flapping_node_disturbs_no_running_gang() {
    fixture::run(async {
        let racks = Racks::new("flaps").await;
        let before = gang(&racks).await;
        for _ in 0..10 {
            for pod in &before {
                racks.fails(node_of(pod), true).await;
            }
        }
        goes_on(&racks, &before).await;
        // It counts again.
        let bed = &racks.bed;
        let fills = bed.job("fills").run_forever().cpu("1").parallelism(14).completions(14);
        fills.create(bed.admin()).await.unwrap();
        racks.running("fills", 14).await;
    });
}

#[test]
fn node_that_is_not_ready_is_left_once_its_pod_is_gone() {
    fixture::run(async {
        let racks = Racks::new("unready").await;
        let before = gang(&racks).await;
        let host = node_of(&before[0]);
        racks.fails(host, false).await;
        goes_on(&racks, &before).await;
        racks.delete_by_force(&before[0]).await;
        leaves(&racks, &before, host).await;
        racks.recovers(host).await;
    });
}

/// A job `gang` whose one pod has its host and cannot start: another controller's gate holds it.
/// The pod and the host.
async fn sent(racks: &Racks) -> (String, String) {
    let gates = json!([{"name": "example.com/later"}]);
    let job = racks.bed.job("gang").run_forever().cpu("3").backoff_limit(6);
    job.pod_field("schedulingGates", gates).create(racks.bed.admin()).await.unwrap();
    eventually(WAIT, "a selected host", async || selected(racks, "").await).await.unwrap()
}

/// The first pod with a host other than this, and its host.
async fn selected(racks: &Racks, other: &str) -> anyhow::Result<(String, String)> {
    let pods = racks.pods().list(&Default::default()).await?.items;
    let host = |pod: &Pod| pod.spec.as_ref()?.node_selector.as_ref()?.get(HOST).cloned();
    let sent = pods.iter().filter_map(|pod| Some((pod.name_any(), host(pod)?)));
    let mut elsewhere = sent.filter(|(_, host)| host != other);
    elsewhere.next().ok_or_else(|| anyhow::anyhow!("no host is selected"))
}

#[test]
fn pod_sent_to_a_deleted_node_is_ended_and_replaced() {
    fixture::run(async {
        let racks = Racks::new("sent").await;
        let (pod, host) = sent(&racks).await;
        racks.delete_node(&host).await;
        let again = async || selected(&racks, &host).await;
        let (next, _) = eventually(WAIT, "another host", again).await.unwrap();
        assert_ne!(next, pod);
        let ended = racks.pods().get(&pod).await.unwrap().status.unwrap_or_default();
        let conditions: Vec<_> =
            ended.conditions.into_iter().flatten().map(|it| it.type_).collect();
        for type_ in ["TerminatedByKueue", "DisruptionTarget"] {
            assert!(conditions.iter().any(|it| it == type_), "{:?}: {conditions:?}", ended.phase);
        }
    });
}

#[test]
fn pod_of_others_between_decision_and_start_makes_the_gang_wait() {
    fixture::run(async {
        let racks = Racks::new("between").await;
        let bed = &racks.bed;
        let (pod, host) = sent(&racks).await;
        let other: Pod = serde_json::from_value(json!({
            "metadata": {"name": "other", "annotations": {RUN_FOR: "forever"}},
            "spec": {
                "nodeName": host, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}],
            },
        }))
        .unwrap();
        let pods: Api<Pod> = racks.pods();
        pods.create(&PostParams::default(), &other).await.unwrap();
        let free = json!({"spec": {"schedulingGates": null}});
        pods.patch(&pod, &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
        let waits = async || {
            let pod = pods.get(&pod).await?;
            let status = pod.status.unwrap_or_default();
            let reasons: Vec<_> =
                status.conditions.into_iter().flatten().filter_map(|it| it.reason).collect();
            ensure!(reasons.iter().any(|it| it == "Unschedulable"), "{reasons:?}");
            Ok(())
        };
        eventually(WAIT, "the pod to be unschedulable", waits).await.unwrap();
        // The host has less than nothing left, which counts as none: others get the other hosts.
        racks.has_free(28.0).await;
        let rest = bed.job("rest").run_forever().cpu("1").parallelism(7 * 4).completions(7 * 4);
        rest.create(bed.admin()).await.unwrap();
        for placed in racks.running("rest", 7 * 4).await {
            assert_ne!(node_of(&placed), host);
        }
        racks.delete_pods(&[other]).await;
        let runs = racks.running("gang", 1).await;
        assert_eq!((node_of(&runs[0]), runs[0].name_any()), (host.as_str(), pod));
    });
}

#[test]
fn replacement_stays_within_the_required_rack() {
    fixture::run(async {
        let racks = Racks::new("within").await;
        let bed = &racks.bed;
        let job = bed.job("gang").run_forever().cpu("3").parallelism(2).completions(2);
        let job = job.backoff_limit(6).pod_annotation(REQUIRED, RACK);
        job.create(bed.admin()).await.unwrap();
        let before = racks.running("gang", 2).await;
        let rack = racks.one_of(&before, RACK).await;
        // The rack has two hosts, so nothing in it can replace one.
        racks.delete_node(node_of(&before[0])).await;
        let message = format!(
            "Workload was evicted as there was no replacement for unhealthy node(s): {}",
            node_of(&before[0])
        );
        let workload = bed.workload_of("gang").await.name_any();
        bed.event(&workload, "EvictedDueToNodeFailures", &message).await;
        racks.delete_by_force(&before[0]).await;
        let again = racks.running("gang", 2).await;
        assert_ne!(racks.one_of(&again, RACK).await, rack);
    });
}

/// As on clouds that label nodes with a DNS name. Kueue never replaces such a node.
#[test]
fn node_with_another_hostname_label_is_replaced() {
    fixture::run(async {
        let racks = Racks::new("hostname").await;
        let label = |node: &str| format!("{node}.example.com");
        for index in 0..HOSTS {
            let node = racks.host(index);
            racks.label(&node, HOST, &label(&node)).await;
        }
        let before = gang(&racks).await;
        let (lost, stays) = (&before[0], &before[1]);
        let mut hosts: Vec<String> = before.iter().map(|pod| label(node_of(pod))).collect();
        hosts.sort();
        assert_eq!(racks.assigned("gang").await, hosts, "domains are labels");
        racks.delete_node(node_of(lost)).await;
        let replaced = async || {
            let hosts = racks.assigned("gang").await;
            ensure!(!hosts.contains(&label(node_of(lost))), "it is still on {hosts:?}");
            ensure!(hosts.contains(&label(node_of(stays))), "the other has moved: {hosts:?}");
            Ok(())
        };
        eventually(WAIT, "another node", replaced).await.unwrap();
        racks.delete_by_force(lost).await;
        let after = racks.running("gang", 2).await;
        assert!(after.iter().any(|pod| pod.uid() == stays.uid()), "the other pod runs on");
    });
}
