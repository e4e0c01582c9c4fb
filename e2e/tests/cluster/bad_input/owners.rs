//! Jobs and pods below owners of several kinds, enabled or not.

use anyhow::ensure;
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_e2e::{
    auditor::{self, FindingKind},
    fixture,
    job::RUN_FOR,
    queues, wait,
};
use switchyard_jobs::apply_merge;

use super::{Place, QUEUE, app_wrapper, container, is_gated, phase, pod};
use crate::bed::WAIT;

/// An owner as its dependents name it.
fn owner(object: &DynamicObject) -> Value {
    let types = object.types.clone().unwrap();
    json!([{
        "apiVersion": types.api_version, "kind": types.kind, "name": object.name_any(), "uid": object.uid(),
        "controller": true,
    }])
}

impl Place {
    /// Whether a Job that is created with these metadata is suspended by the webhook.
    async fn is_suspended(&self, metadata: &Value) -> anyhow::Result<bool> {
        let mut job = serde_json::to_value(self.bed.plain_job("asked").cpu("1").build()).unwrap();
        apply_merge(&mut job, &json!({ "metadata": metadata }));
        let jobs: Api<Job> = Api::namespaced(self.bed.admin().clone(), &self.bed.namespace);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let job = jobs.create(&dry, &serde_json::from_value(job)?).await?;
        Ok(job.spec.and_then(|spec| spec.suspend).unwrap_or_default())
    }

    /// Gives the namespace a default queue, and waits until a pod without a queue is put into it.
    async fn default_queue(&self) {
        let queue = queues::local_queue(&self.bed.namespace, "default", &self.bed.name);
        self.bed.cluster().apply([queue]).await.unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let plain = pod("probe", &json!({"metadata": {"labels": {QUEUE: null}}}));
        let called = async || {
            ensure!(is_gated(&self.pods.create(&dry, &plain).await?), "it is let through");
            Ok(())
        };
        wait::eventually(WAIT, "a pod to be given the default queue", called).await.unwrap();
    }
}

#[test]
fn jobs_of_disabled_kinds_and_of_several_owners_are_ignored() {
    fixture::run(async {
        let place = Place::new("owners").await;
        let bed = &place.bed;
        auditor::expect_in(
            &bed.namespace,
            &[FindingKind::RunsWithoutAdmission, FindingKind::RunsAboveCharge],
            "a JobSet has a queue, and its kind is not enabled; `of-both` runs by the charge of `good`",
        );
        place.install("sigs.k8s.io/jobset", "config/components/crd/bases").await;
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container("1")]}});
        let set = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": "set", "namespace": bed.namespace, "labels": {QUEUE: "queue"}},
            "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {"template": template}}}]},
        });
        bed.cluster().apply([set]).await.unwrap();
        let sets = bed
            .cluster()
            .dynamic("jobset.x-k8s.io/v1alpha2", "JobSet", &bed.namespace)
            .await
            .unwrap();
        let set = sets.get("set").await.unwrap().uid().unwrap();
        let good = bed.job_uid("good").await;
        let of_set = json!([
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": set, "controller": true},
        ]);
        let beside_good =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "good", "uid": good}]);
        let of_both = json!([
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": set},
            {"apiVersion": "batch/v1", "kind": "Job", "name": "good", "uid": good, "controller": true},
        ]);
        for (name, owners, queued, own_workload) in [
            ("of-set", &of_set, false, false),
            ("of-set-queued", &of_set, true, true),
            ("beside-good", &beside_good, true, true),
            ("beside-good-unqueued", &beside_good, false, false),
            ("of-both", &of_both, true, false),
        ] {
            let mut job =
                serde_json::to_value(bed.plain_job(name).cpu("1").run_forever().build()).unwrap();
            let label = if queued { json!("queue") } else { Value::Null };
            apply_merge(
                &mut job,
                &json!({"metadata": {"ownerReferences": owners, "labels": {QUEUE: label}}}),
            );
            bed.cluster().apply([job]).await.unwrap();
            bed.running(name).await;
            assert_eq!(place.has_workload(name).await, own_workload, "{name}");
        }
        let set = sets.get("set").await.unwrap();
        assert_ne!(set.data["spec"]["suspend"], true, "it is left alone");
        assert!(!place.has_workload("set").await);
        place.undisturbed().await;
    });
}

/// An AppWrapper that is admitted owns a Deployment, and a JobSet, which is of a kind that is not enabled.
#[test]
fn pods_below_disabled_kinds_run_by_quota_of_the_job_above() {
    fixture::run(async {
        let place = Place::new("below").await;
        let bed = &place.bed;
        place.install("github.com/project-codeflare/appwrapper", "config/crd/bases").await;
        place.install("sigs.k8s.io/jobset", "config/components/crd/bases").await;
        let mut wrapper = app_wrapper(&bed.namespace, 1);
        wrapper["metadata"]["name"] = json!("upper");
        let wrapper =
            place.object("workload.codeflare.dev/v1beta2", "AppWrapper", &wrapper).await.unwrap();
        bed.expect_true("upper", "Admitted").await;
        place.default_queue().await;

        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [container("100m")]}});
        let set = |name: &str, owners: Value| {
            json!({
                "metadata": {"name": name, "namespace": bed.namespace, "ownerReferences": owners},
                "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {"template": template}}}]},
            })
        };
        let jobset = "jobset.x-k8s.io/v1alpha2";
        let below = place.object(jobset, "JobSet", &set("below", owner(&wrapper))).await.unwrap();
        let alone = place.object(jobset, "JobSet", &set("alone", json!([]))).await.unwrap();
        // Together, the pods below the AppWrapper ask for what it is charged.
        for (name, of) in [("of-below", &below), ("of-alone", &alone)] {
            place
                .create(pod(
                    name,
                    &json!({
                        "metadata": {"labels": {QUEUE: null}, "ownerReferences": owner(of)},
                        "spec": {"containers": [container("50m")]},
                    }),
                ))
                .await;
            place.running(name).await;
        }
        assert!(
            !place.has_workload("of-below").await
                && !is_gated(&place.pods.get("of-below").await.unwrap())
        );
        assert!(place.has_workload("of-alone").await, "nobody else has quota for it");

        let web: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "web", "ownerReferences": owner(&wrapper)},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}, "annotations": {RUN_FOR: "forever"}},
                    "spec": {"containers": [container("50m")]},
                },
            },
        }))
        .unwrap();
        let deployments: Api<Deployment> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        deployments.create(&PostParams::default(), &web).await.unwrap();
        let of_web = ListParams::default().labels("app=web");
        let runs = async || {
            let pods = place.pods.list(&of_web).await?.items;
            let pod = pods.first().ok_or_else(|| anyhow::anyhow!("no pod"))?;
            ensure!(phase(pod) == "Running", "{:?}", pod.spec);
            Ok(pod.clone())
        };
        let pod = wait::eventually(WAIT, "the Deployment's pod to run", runs).await.unwrap();
        assert!(!place.has_workload(&pod.name_any()).await);
        assert_eq!(pod.labels().get(QUEUE), None);
        place.undisturbed().await;
    });
}

#[test]
fn a_job_with_a_queue_waits_unless_the_job_above_it_is_queued() {
    fixture::run(async {
        let place = Place::new("above").await;
        place.install("github.com/project-codeflare/appwrapper", "config/crd/bases").await;
        let mut wrapper = app_wrapper(&place.bed.namespace, 1);
        wrapper["metadata"]["name"] = json!("queued");
        let queued =
            place.object("workload.codeflare.dev/v1beta2", "AppWrapper", &wrapper).await.unwrap();
        apply_merge(&mut wrapper, &json!({"metadata": {"name": "plain", "labels": null}}));
        let plain =
            place.object("workload.codeflare.dev/v1beta2", "AppWrapper", &wrapper).await.unwrap();
        let mut stale = owner(&queued);
        stale[0]["uid"] = json!("00000000-0000-0000-0000-000000000000");
        for (sentence, owners, suspended) in [
            ("its owner is queued", owner(&queued), false),
            ("its owner has no queue", owner(&plain), true),
            ("its owner is of an earlier life", stale, true),
        ] {
            let metadata = json!({"ownerReferences": owners});
            let check = async || {
                let is = place.is_suspended(&metadata).await?;
                ensure!(is == suspended, "suspend is {is}");
                Ok(())
            };
            wait::eventually(WAIT, sentence, check).await.unwrap();
        }
        place.undisturbed().await;
    });
}
