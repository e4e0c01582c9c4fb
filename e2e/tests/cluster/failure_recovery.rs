//! Pods on a node that is not reached are deleted by force where they allow it.
use crate::bed::{Bed, WAIT};
use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use switchyard_e2e::{fixture, job, wait::eventually};

async fn pod_of(bed: &Bed, job: &str) -> Pod {
    let pods: Api<Pod> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let of_job = job::pods_of(job);
    let bound = async || {
        let pod = pods.list(&of_job).await?.items.pop().context("no pod")?;
        ensure!(pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()), "it is not bound");
        Ok(pod)
    };
    eventually(WAIT, format!("the pod of {job}"), bound).await.unwrap()
}

#[test]
fn a_pod_that_hangs_on_a_node_that_is_not_reached_is_given_up() {
    fixture::run(async {
        let bed = Bed::configured("recovery", "featureGates: {FailureRecoveryPolicy: true}").await;
        bed.simple(&[("cpu", "4")]).await;
        let hangs = |name: &str| {
            let job = bed.job(name).run_forever().pod_annotation(job::STOP_AFTER, "1h");
            job.pod_field("terminationGracePeriodSeconds", json!(1))
        };
        let safe = hangs("safe").pod_annotation("kueue.x-k8s.io/safe-to-forcefully-delete", "true");
        safe.create(bed.admin()).await.unwrap();
        hangs("precious").create(bed.admin()).await.unwrap();
        let (safe, precious) = (pod_of(&bed, "safe").await, pod_of(&bed, "precious").await);
        bed.running("safe").await;
        bed.running("precious").await;

        let nodes: Api<Node> = Api::all(bed.admin().clone());
        for pod in [&safe, &precious] {
            let node = pod.spec.as_ref().unwrap().node_name.as_deref().unwrap();
            let taint = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"});
            let patch = Patch::Merge(json!({"spec": {"taints": [taint]}}));
            nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
        }
        let pods: Api<Pod> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        for pod in [&safe, &precious] {
            pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
        }
        let gone = async || {
            let left = pods.get_opt(&safe.name_any()).await?;
            ensure!(left.is_none_or(|left| left.uid() != safe.uid()), "it is still there");
            Ok(())
        };
        eventually(WAIT, "the pod to be gone", gone).await.unwrap();
        let note = "Pod forcefully terminated after 1m1s grace period due to unreachable node";
        bed.event(&safe.name_any(), "KueueForcefullyDeleted", note).await;
        // Its job notices it, and ends by its user's settings.
        job::failed(bed.admin(), &bed.namespace, "safe", WAIT).await.unwrap();
        let left = pods.get(&precious.name_any()).await.unwrap();
        assert!(left.metadata.deletion_timestamp.is_some());
        assert_eq!(left.uid(), precious.uid());
    });
}
