//! Wrong jobs, and jobs that change into something else, beside a right one. Each gets its answer, and the right one runs on.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::ensure;
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_api::v1beta2::Workload;
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_e2e::{
    Part, Parts,
    auditor::{self, FindingKind},
    fixture,
    job::RUN_FOR,
    queues, wait,
};
use switchyard_jobs::apply_merge;

use crate::{
    bed::{Bed, WAIT},
    common::events,
};

const SECTIONS: &str = "integrations: {frameworks: [batch/job, pod, workload.codeflare.dev/appwrapper, ray.io/rayjob, ray.io/raycluster]}";
const GATE: &str = "kueue.x-k8s.io/admission";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A namespace with a job that is right and runs.
struct Place {
    bed: Bed,
    pods: Api<Pod>,
    before: Value,
}

impl Place {
    async fn new(stem: &str) -> Self {
        let bed = Bed::with_options(stem, SECTIONS, |_, options| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
            options.webhook = Some(WebhookOptions::new(listener, Advertise::Url(url)));
        })
        .await;
        bed.simple(&[("cpu", "8")]).await;
        let pods: Api<Pod> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        let called = async || {
            let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
            ensure!(
                is_gated(&pods.create(&dry, &pod("probe", &json!({}))).await?),
                "it is let through"
            );
            Ok(())
        };
        wait::eventually(WAIT, "the webhook of pods", called).await.unwrap();
        bed.plain_job("good").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("good").await;
        bed.expect_true("good", "Admitted").await;
        let mut place = Self { bed, pods, before: Value::Null };
        place.before = place.good().await;
        place
    }

    /// The constant parts of the right job: itself, its pods, its Workload and the time of its admission.
    async fn good(&self) -> Value {
        let job: Job = Api::namespaced(self.bed.admin().clone(), &self.bed.namespace)
            .get("good")
            .await
            .unwrap();
        let of_job = ListParams::default().labels("batch.kubernetes.io/job-name=good");
        let pods: Vec<Option<String>> = self
            .pods
            .list(&of_job)
            .await
            .unwrap()
            .items
            .iter()
            .map(kube::ResourceExt::uid)
            .collect();
        let workload = self.bed.workload_of("good").await;
        json!({
            "job": job.uid(), "spec": job.spec, "pods": pods, "workload": workload.uid(), "asks": workload.spec,
            "admitted": self.bed.time("good", "Admitted").await.to_string(),
            "evicted": self.bed.is_true("good", "Evicted").await,
        })
    }

    async fn undisturbed(&self) {
        let now = self.good().await;
        assert_eq!(now, self.before);
    }

    async fn create(&self, pod: Pod) {
        self.pods.create(&Default::default(), &pod).await.unwrap();
    }

    async fn until(&self, name: &str, what: &str, right: impl Fn(&Pod) -> bool) {
        let check = async || {
            let pod = self.pods.get(name).await?;
            ensure!(right(&pod), "{:?} {:?} {:?}", pod.metadata, pod.spec, pod.status);
            Ok(())
        };
        wait::eventually(WAIT, format!("pod {name} {what}"), check).await.unwrap();
    }

    async fn running(&self, name: &str) {
        self.until(name, "running", |pod| phase(pod) == "Running").await;
    }

    async fn gone(&self, name: &str) {
        let check = async || {
            ensure!(self.pods.get_opt(name).await?.is_none(), "it is still there");
            Ok(())
        };
        wait::eventually(WAIT, format!("pod {name} gone"), check).await.unwrap();
    }

    async fn limit(&self, pod: &str, seconds: &str) {
        let patch =
            json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": seconds}}});
        self.pods.patch(pod, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn told(&self, object: &str, reason: &str, note: &str) {
        events::told(self.bed.admin(), object, reason, note).await;
    }

    async fn group(&self) -> Workload {
        Api::namespaced(self.bed.admin().clone(), &self.bed.namespace).get("group").await.unwrap()
    }

    /// Installs the definitions of a module that Kueue takes in.
    async fn install(&self, module: &'static str, folder: &str) {
        let source = tokio::task::spawn_blocking(move || {
            Parts::new()?.source_dir(Part::Kueue, module).map_err(anyhow::Error::from)
        });
        self.bed.cluster().apply_dir(source.await.unwrap().unwrap().join(folder)).await.unwrap();
    }

    async fn has_workload(&self, owner: &str) -> bool {
        let owned =
            |workload: &Workload| workload.owner_references().iter().any(|it| it.name == owner);
        self.bed.workloads().await.iter().any(owned)
    }
}

/// A pod in queue `queue` that asks for one cpu and runs until it is deleted, with this put into it.
fn pod(name: &str, more: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {QUEUE: "queue"}, "annotations": {RUN_FOR: "forever"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container("1")]},
    });
    apply_merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
}

fn container(cpu: &str) -> Value {
    json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}})
}

/// One of a group of `count`, of the role of those that ask for as much.
fn member(name: &str, count: usize, cpu: &str) -> Pod {
    let metadata = json!({
        "labels": {"kueue.x-k8s.io/pod-group-name": "group"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": count.to_string()},
    });
    pod(name, &json!({"metadata": metadata, "spec": {"containers": [container(cpu)]}}))
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == GATE)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

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

/// An AppWrapper of so many pods, each a pod set.
fn app_wrapper(namespace: &str, pods: usize) -> Value {
    let component = |at: usize| {
        let template = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{at}")},
            "spec": {"restartPolicy": "Never", "containers": [container("100m")]},
        });
        json!({ "template": template })
    };
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": "wide", "namespace": namespace, "labels": {QUEUE: "queue"}},
        "spec": {"suspend": true, "components": (0..pods).map(component).collect::<Vec<_>>()},
    })
}

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
fn jobs_of_disabled_kinds_and_of_several_owners_are_ignored() {
    fixture::run(async {
        let place = Place::new("owners").await;
        let bed = &place.bed;
        auditor::expect(
            &[FindingKind::RunsWithoutAdmission],
            "a JobSet has a queue, and its kind is not enabled",
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

/// An owner as its dependents name it.
fn owner(object: &DynamicObject) -> Value {
    let types = object.types.clone().unwrap();
    json!([{
        "apiVersion": types.api_version, "kind": types.kind, "name": object.name_any(), "uid": object.uid(),
        "controller": true,
    }])
}

impl Place {
    /// Creates an object of a kind whose definition is there.
    async fn object(
        &self,
        api_version: &str,
        kind: &str,
        object: &Value,
    ) -> Result<DynamicObject, kube::Error> {
        let api = self.bed.cluster().dynamic(api_version, kind, &self.bed.namespace).await.unwrap();
        let mut object = object.clone();
        apply_merge(&mut object, &json!({"apiVersion": api_version, "kind": kind}));
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await
    }

    /// Whether a Job that is created with these metadata is suspended by the webhook.
    async fn is_suspended(&self, metadata: &Value) -> bool {
        let mut job = serde_json::to_value(self.bed.plain_job("asked").cpu("1").build()).unwrap();
        apply_merge(&mut job, &json!({ "metadata": metadata }));
        let jobs: Api<Job> = Api::namespaced(self.bed.admin().clone(), &self.bed.namespace);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let job = jobs.create(&dry, &serde_json::from_value(job).unwrap()).await.unwrap();
        job.spec.and_then(|spec| spec.suspend).unwrap_or_default()
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
        for (name, of) in [("of-below", &below), ("of-alone", &alone)] {
            place
                .create(pod(
                    name,
                    &json!({"metadata": {"labels": {QUEUE: null}, "ownerReferences": owner(of)}}),
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
                    "spec": {"containers": [container("100m")]},
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
            assert_eq!(place.is_suspended(&metadata).await, suspended, "{sentence}");
        }
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
