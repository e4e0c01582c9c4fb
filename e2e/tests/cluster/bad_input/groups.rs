//! Groups of pods that change their shape, meet another's Workload, or have too many pods.

use anyhow::ensure;
use kube::ResourceExt as _;
use serde_json::json;
use switchyard_e2e::{fixture, wait};

use super::{Place, container, is_gated, member, phase, pod};
use crate::bed::WAIT;

#[test]
fn a_group_changes_its_shape() {
    fixture::run(async {
        let place = Place::new("shape").await;
        let bed = &place.bed;
        // While it waits, its Workload follows.
        bed.stop_cluster_queue("Hold").await;
        for name in ["a", "b"] {
            place.create(member(name, 2, "1")).await;
        }
        let waiting = bed.workload_of("a").await;
        place.limit("a", "600").await;
        let follows = async || {
            let seconds = place.group().await.spec.maximum_execution_time_seconds;
            ensure!(seconds == Some(600), "{seconds:?}");
            Ok(())
        };
        wait::eventually(WAIT, "the group's other time", follows).await.unwrap();
        place.told("a", "UpdatedWorkload", "Updated not matching Workload for suspended job").await;
        assert_eq!(place.group().await.uid(), waiting.uid(), "it is the same one");
        place.limit("b", "600").await;
        place.undisturbed().await;

        // While it runs, another role is none of its own.
        bed.stop_cluster_queue("None").await;
        place.running("a").await;
        place.running("b").await;
        place.create(member("c", 2, "500m")).await;
        place.create(pod("later", &json!({}))).await;
        place.running("later").await;
        assert!(is_gated(&place.pods.get("c").await.unwrap()));
        assert_eq!(place.group().await.uid(), waiting.uid());
        for name in ["a", "b"] {
            assert_eq!(phase(&place.pods.get(name).await.unwrap()), "Running");
        }
        place.undisturbed().await;

        // Without its Workload all of them go, and a group of other roles may take the name.
        bed.delete_workload("group").await;
        for name in ["a", "b", "c"] {
            place.gone(name).await;
        }
        for name in ["d", "e"] {
            place.create(member(name, 2, "250m")).await;
        }
        place.running("d").await;
        place.running("e").await;
        assert_ne!(place.group().await.uid(), waiting.uid());
        place.undisturbed().await;
    });
}

#[test]
fn a_group_finds_a_workload_of_its_name_with_other_roles() {
    fixture::run(async {
        let place = Place::new("earlier").await;
        place.bed.stop_cluster_queue("Hold").await;
        let earlier = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": "group", "namespace": place.bed.namespace,
                "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
            },
            "spec": {
                "queueName": "queue",
                "podSets": [{"name": "earlier", "count": 3, "template": {"spec": {"containers": [container("1")]}}}],
            },
        });
        place.bed.cluster().apply([earlier]).await.unwrap();
        let earlier = place.group().await.uid();
        for name in ["a", "b"] {
            place.create(member(name, 2, "1")).await;
        }
        place.told("a", "UpdatedWorkload", "Updated not matching Workload for suspended job").await;
        place.bed.stop_cluster_queue("None").await;
        place.running("a").await;
        place.running("b").await;
        let group = place.group().await;
        assert_eq!((group.uid(), group.spec.pod_sets[0].count), (earlier, 2));
        place.undisturbed().await;
    });
}

#[test]
fn a_group_with_a_pod_too_many_loses_the_one_that_waits() {
    fixture::run(async {
        let place = Place::new("excess").await;
        for name in ["a", "b"] {
            place.create(member(name, 2, "1")).await;
        }
        place.running("a").await;
        place.running("b").await;
        place.create(member("c", 2, "1")).await;
        place.gone("c").await;
        place.told("c", "ExcessPodDeleted", "Excess pod deleted").await;
        for name in ["a", "b"] {
            assert_eq!(phase(&place.pods.get(name).await.unwrap()), "Running");
        }
        place.undisturbed().await;
    });
}
