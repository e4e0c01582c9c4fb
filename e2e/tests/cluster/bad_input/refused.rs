//! Objects that are refused, or from which no Workload can be made.

use anyhow::ensure;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use switchyard_e2e::{fixture, wait};

use super::{Place, QUEUE, app_wrapper, container, member};
use crate::{bed::WAIT, common::events};

#[test]
fn more_pod_sets_than_a_workload_may_have() {
    fixture::run(async {
        let place = Place::new("wide").await;
        let bed = &place.bed;
        for at in 0..19 {
            place.create(member(&format!("p{at:02}"), 19, &format!("{}m", 10 + at))).await;
        }
        place.told("p00", "ErrWorkloadCompose", "pod group can't include more than 18 roles").await;

        place.install("github.com/project-codeflare/appwrapper", "config/crd/bases").await;
        let api = bed
            .cluster()
            .dynamic("workload.codeflare.dev/v1beta2", "AppWrapper", &bed.namespace)
            .await
            .unwrap();
        let create = async |pods: usize| {
            let object: DynamicObject =
                serde_json::from_value(app_wrapper(&bed.namespace, pods)).unwrap();
            api.create(&Default::default(), &object).await
        };
        create(19).await.unwrap();
        place
            .told(
                "wide",
                "ErrWorkloadCompose",
                "spec.podSets: Too many: 19: must have at most 18 items",
            )
            .await;
        let times = |event: &k8s_openapi::api::events::v1::Event| {
            event.series.as_ref().map_or(1, |it| it.count)
        };
        let told = async || {
            anyhow::Ok(events::about(bed.admin(), "wide").await?.iter().map(times).sum::<i32>())
        };
        let quiet = async || {
            let before = told().await?;
            let same = async || {
                let now = told().await?;
                ensure!(now == before, "{before} events, then {now}");
                Ok(())
            };
            wait::always(std::time::Duration::from_secs(3), "nothing more is told", same).await
        };
        wait::eventually(WAIT, "it not to be tried again and again", quiet).await.unwrap();
        assert!(!place.has_workload("wide").await && !place.has_workload("p00").await);
        let held = api.get("wide").await.unwrap();
        assert_eq!(held.data["spec"]["suspend"], true);
        place.undisturbed().await;

        // A corrected one runs.
        api.delete("wide", &Default::default()).await.unwrap();
        let again = async || {
            create(18).await?;
            Ok(())
        };
        wait::eventually(WAIT, "the AppWrapper gone and made again", again).await.unwrap();
        bed.expect_true("wide", "Admitted").await;
        place.undisturbed().await;
    });
}

#[test]
fn wrong_objects_of_other_kinds_are_refused_or_say_why() {
    fixture::run(async {
        let place = Place::new("others").await;
        let bed = &place.bed;
        place.install("github.com/project-codeflare/appwrapper", "config/crd/bases").await;
        place.install("github.com/ray-project/kuberay/ray-operator", "config/crd/bases").await;
        let metadata = |name: &str| json!({"name": name, "namespace": bed.namespace, "labels": {QUEUE: "queue"}});
        let template =
            || json!({"spec": {"restartPolicy": "Never", "containers": [container("100m")]}});
        let cluster = |groups: usize| {
            let group = |at: usize| {
                json!({
                    "groupName": format!("g{at}"), "replicas": 1, "minReplicas": 1, "maxReplicas": 1,
                    "rayStartParams": {}, "template": template(),
                })
            };
            let groups: Vec<Value> = (0..groups).map(group).collect();
            json!({"headGroupSpec": {"rayStartParams": {}, "template": template()}, "workerGroupSpecs": groups})
        };
        let ray_job = |groups: usize| json!({"metadata": metadata("ray"), "spec": {"shutdownAfterJobFinishes": true, "rayClusterSpec": cluster(groups)}});
        let refused = async |kind: &str, object: Value, want: &str| {
            let error = place.object("ray.io/v1", kind, &object).await.unwrap_err().to_string();
            assert!(error.contains("denied the request") && error.contains(want), "{error}");
        };
        refused(
            "RayJob",
            ray_job(18),
            "spec.rayClusterSpec.workerGroupSpecs: Too many: 19: must have at most 18 items",
        )
        .await;
        let mut named = cluster(1);
        named["workerGroupSpecs"][0]["groupName"] = json!("head");
        let want = "spec.workerGroupSpecs[0].groupName: Forbidden: \"head\" is reserved for the head group";
        refused("RayCluster", json!({"metadata": metadata("ray"), "spec": named}), want).await;
        let mut kept = ray_job(1);
        kept["spec"]["shutdownAfterJobFinishes"] = json!(false);
        refused("RayJob", kept, "a kueue managed job should delete the cluster after finishing")
            .await;

        let mut wrapper = app_wrapper(&bed.namespace, 1);
        wrapper["metadata"]["name"] = json!("fewer");
        wrapper["spec"]["components"][0]["podSets"] = json!([{"path": "template", "replicas": -1}]);
        let wrapper =
            place.object("workload.codeflare.dev/v1beta2", "AppWrapper", &wrapper).await.unwrap();
        assert_eq!(wrapper.data["spec"]["suspend"], true);
        let want = "spec.components[0].podSets: gives -1 pods; must be between 0 and 2147483647";
        place.told("fewer", "ErrWorkloadCompose", want).await;
        assert!(!place.has_workload("fewer").await);
        place.undisturbed().await;
    });
}
