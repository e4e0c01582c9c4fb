//! Topology-aware scheduling on one cluster: jobs run where their topology says, on nodes in two blocks of two racks of two
//! hosts with four CPUs each. kwok plays the nodes, the scheduler binds the pods.

mod gangs;
mod kinds;
mod nodes;
mod odd_input;
mod preemption;
mod racks;
mod seen;
mod takeover;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use switchyard_e2e::{fixture, wait::eventually};

use crate::bed::WAIT;
use racks::{BLOCK, HOST, RACK, Racks};

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap()
}

#[test]
fn a_job_that_needs_one_rack_gets_one_rack() {
    fixture::run(async {
        let racks = Racks::new("rack").await;
        let bed = &racks.bed;
        // Each rack has 8 CPUs of 1 each left: the second job fits in no rack with pods of the first.
        let job = |name: &str| {
            let job = bed.job(name).run_forever().cpu("1").parallelism(5).completions(5);
            job.pod_annotation("kueue.x-k8s.io/podset-required-topology", RACK)
        };
        for name in ["a", "b", "c", "d"] {
            job(name).create(bed.admin()).await.unwrap();
        }
        let mut used = Vec::new();
        for name in ["a", "b", "c", "d"] {
            used.push(racks.one_of(&racks.running(name, 5).await, RACK).await);
        }
        used.sort();
        used.dedup();
        assert_eq!(used.len(), 4, "each has its own: {used:?}");
        job("e").create(bed.admin()).await.unwrap();
        let message = format!(
            "couldn't assign flavors to pod set main: topology \"{}\" allows to fit only 3 out of 5 pod(s). \
             Total nodes: 8; excluded: resource \"cpu\": 4",
            bed.name
        );
        bed.expect("e", "QuotaReserved", "False", "WaitingForQuota", &message).await;
        bed.delete_job("b").await;
        racks.one_of(&racks.running("e", 5).await, RACK).await;
    });
}

#[test]
fn pods_of_a_job_with_indices_go_to_neighbours_in_their_order() {
    fixture::run(async {
        let racks = Racks::new("ranks").await;
        let bed = &racks.bed;
        let job = bed.job("a").run_forever().cpu("3").parallelism(4).completions(4);
        let job = job.field("completionMode", json!("Indexed"));
        let job = job.pod_annotation("kueue.x-k8s.io/podset-required-topology", BLOCK);
        job.create(bed.admin()).await.unwrap();
        let mut pods = racks.running("a", 4).await;
        pods.sort_by_key(|pod| {
            pod.metadata.annotations.as_ref().unwrap()["batch.kubernetes.io/job-completion-index"]
                .clone()
        });
        let hosts: Vec<&str> = pods
            .iter()
            .map(|pod| pod.spec.as_ref().unwrap().node_name.as_deref().unwrap())
            .collect();
        assert!(hosts.is_sorted(), "{hosts:?}");
    });
}

#[test]
fn a_job_that_asks_for_nothing_gets_places() {
    fixture::run(async {
        let racks = Racks::new("implied").await;
        let bed = &racks.bed;
        bed.job("a")
            .run_forever()
            .cpu("2")
            .parallelism(3)
            .completions(3)
            .create(bed.admin())
            .await
            .unwrap();
        for pod in racks.running("a", 3).await {
            let spec = pod.spec.unwrap();
            assert_eq!(spec.node_selector.unwrap().get(HOST), spec.node_name.as_ref());
        }
        let workload = bed.workload_of("a").await;
        let admission = workload.status.unwrap().admission.unwrap();
        let topology = admission.pod_set_assignments[0].topology_assignment.as_ref().unwrap();
        assert_eq!(topology.levels, [HOST]);
        assert_eq!(topology.domains().map(|domain| domain.count).sum::<i32>(), 3);
    });
}

#[test]
fn pods_of_others_take_room_and_give_it_back() {
    fixture::run(async {
        let racks = Racks::new("others").await;
        let bed = &racks.bed;
        let others: Vec<Pod> = racks.fill(3).await;
        racks.has_free(8.0).await;
        let job = bed.job("a").run_forever().cpu("2").parallelism(1).completions(1);
        job.create(bed.admin()).await.unwrap();
        let message = format!(
            "couldn't assign flavors to pod set main: topology \"{}\" doesn't allow to fit any of 1 pod(s). \
             Total nodes: 8; excluded: resource \"cpu\": 8",
            bed.name
        );
        bed.expect("a", "QuotaReserved", "False", "TopologyPlacementFailed", &message).await;
        racks.delete_pods(&others[..1]).await;
        racks.running("a", 1).await;
        racks.delete_pods(&others[1..]).await;
    });
}

#[test]
fn pods_of_a_node_that_is_gone_get_another_and_the_others_stay() {
    fixture::run(async {
        let racks = Racks::new("gone").await;
        let bed = &racks.bed;
        let job =
            bed.job("a").run_forever().cpu("3").parallelism(2).completions(2).backoff_limit(3);
        job.create(bed.admin()).await.unwrap();
        let before = racks.running("a", 2).await;
        let (lost, stays) = (&before[0], &before[1]);
        racks.delete_node(node_of(lost)).await;
        let replaced = async || {
            let hosts = racks.assigned("a").await;
            ensure!(!hosts.contains(&node_of(lost).to_owned()), "it is still on {hosts:?}");
            ensure!(hosts.contains(&node_of(stays).to_owned()), "the other has moved: {hosts:?}");
            Ok(())
        };
        eventually(WAIT, "another node", replaced).await.unwrap();
        racks.delete_by_force(lost).await;
        let after = racks.running("a", 2).await;
        assert!(
            after.iter().any(|pod| pod.metadata.uid == stays.metadata.uid),
            "the other pod runs on"
        );
        let mut hosts: Vec<&str> = after.iter().map(node_of).collect();
        hosts.sort_unstable();
        assert_eq!(hosts, racks.assigned("a").await);
        assert!(bed.workload_of("a").await.status.unwrap().unhealthy_nodes.is_empty());
    });
}

#[test]
fn a_job_without_a_place_for_the_pods_of_a_lost_node_is_evicted() {
    fixture::run(async {
        let racks = Racks::new("full").await;
        let bed = &racks.bed;
        bed.job("a")
            .run_forever()
            .cpu("3")
            .parallelism(8)
            .completions(8)
            .create(bed.admin())
            .await
            .unwrap();
        let pods = racks.running("a", 8).await;
        racks.delete_node(node_of(&pods[0])).await;
        let message = format!(
            "Workload was evicted as there was no replacement for unhealthy node(s): {}",
            node_of(&pods[0])
        );
        let workload = bed.workload_of("a").await.metadata.name.unwrap();
        bed.event(&workload, "EvictedDueToNodeFailures", &message).await;
        bed.suspended("a", true).await;
        racks.delete_by_force(&pods[0]).await;
        bed.expect("a", "QuotaReserved", "False", "TopologyPlacementFailed", "").await;
    });
}

#[test]
fn a_topology_stays_while_a_flavor_names_it() {
    fixture::run(async {
        let racks = Racks::new("topology").await;
        let bed = &racks.bed;
        racks.delete_topology().await;
        let kept = async || {
            let topology = racks.topology().await?;
            ensure!(
                topology.is_some_and(|it| it.metadata.deletion_timestamp.is_some()),
                "it is not being deleted"
            );
            Ok(())
        };
        eventually(WAIT, "the Topology to be kept", kept).await.unwrap();
        bed.delete("ClusterQueue", &bed.name).await;
        bed.delete("ResourceFlavor", &bed.name).await;
        bed.gone("Topology", &bed.name).await;
    });
}
