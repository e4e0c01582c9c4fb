//! A stock MultiKueue manager has sent jobs of every kind. Switchyard takes it over, the manager takes
//! it back, and Switchyard takes it over again. Each copy stays as it is, its status and its end reach
//! the hub, and a deletion on the hub deletes it.

mod replicas;

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{CheckState, Workload};
use switchyard_api::{conditions, names};
use switchyard_e2e::fleet::{Fleet, HUB, NAMESPACE, Tenant};
use switchyard_e2e::job::RUN_FOR;
use switchyard_e2e::single::Single;
use switchyard_e2e::stock::{self, Kueue, Options};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, fixture, paths, queues, ready};

use crate::common::leader_worker_set;
use crate::job_kinds::external::hand_back;
use crate::job_kinds::samples::{Sample, samples};
use crate::job_kinds::table::{Jobs, SOON, install_crds};
use crate::job_kinds::{CONFIG, EXTERNAL, FRAMEWORKS, external};

use replicas::REPLICAS;

const SETS: &str = "statefulset-controller";
/// The account of a kubeconfig, from `deploy/rbac`.
const ACCOUNT: &str = "switchyard-remote-hub";
const QUOTA: &[(&str, &str)] = &[("cpu", "100"), ("memory", "100Gi")];
const NAME: &str = "sent";
/// The job of this kind ends while no program manages the hub.
const UNSEEN: &str = "PyTorchJob";
/// The second and third form a group.
const PODS: [&str; 3] = ["alone", "member-0", "member-1"];
const GROUP: &str = "group";
const SET: (&str, &str, &str) = ("apps/v1", "StatefulSet", "web");

/// A manager, its worker, and the jobs that the one has sent to the other.
struct Site {
    fleet: Fleet,
    namespace: String,
    samples: Vec<Sample>,
}

/// The program that manages the hub.
#[derive(PartialEq, Eq)]
enum Program {
    Kueue,
    Switchyard,
}

/// The uid and the spec of each copy and of each pod, by kind and name.
type Copies = BTreeMap<String, (String, Value)>;

impl Site {
    /// Starts Kueue on both clusters. Switchyard is installed on the hub, and does not run.
    async fn make() -> (Self, Kueue, Kueue) {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(64)).controller(SETS);
        let hub_config = format!("{CONFIG}{}", serde_saphyr::to_string(&config()).unwrap());
        let fleet = Fleet::builder("manager-kinds").config(hub_config).bare(west);
        let fleet = fleet.hub_controllers([SETS]).manifests(external::roles());
        let fleet = fleet.start().await.unwrap();
        let (hub, west) = (fleet.hub(), fleet.worker("west"));
        fleet.kill(HUB);
        Single::unregister(hub).await.unwrap();
        install_crds(&[hub, west]).await.unwrap();
        for cluster in [hub, west] {
            leader_worker_set::install(cluster).await;
            cluster.apply([external::crd()]).await.unwrap();
        }
        let (manager, worker) = tokio::join!(start_kueue(hub), start_kueue(west));
        let namespace = hub.namespace("kinds").await.unwrap();
        let mut samples = samples();
        // MultiKueue does not send SparkApplications. The webhook of a worker's Kueue refuses JAXJobs.
        samples.retain(|sample| !["SparkApplication", "JAXJob"].contains(&sample.kind));
        let site = Self { fleet, namespace, samples };
        site.objects().await;
        (site, manager, worker)
    }

    fn hub(&self) -> &Cluster {
        self.fleet.hub()
    }

    fn west(&self) -> &Cluster {
        self.fleet.worker("west")
    }

    async fn objects(&self) {
        let (west, namespace) = (self.west(), self.namespace.as_str());
        west.apply_dir(paths::root().join("deploy/rbac")).await.unwrap();
        west.apply(external::roles()).await.unwrap();
        let same =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        west.apply([same]).await.unwrap();
        let flavor = queues::ResourceFlavor::new("main").build();
        let queue = || queues::ClusterQueue::new("main").group("main", QUOTA);
        let local = queues::local_queue(namespace, "main", "main");
        west.apply([flavor.clone(), queue().build(), local.clone()]).await.unwrap();
        let (_, kubeconfig) = west.service_account(NAMESPACE, ACCOUNT).await.unwrap();
        let secret = |namespace| queues::kubeconfig_secret(namespace, "west", &kubeconfig);
        let mut objects = vec![secret(stock::NAMESPACE), secret(NAMESPACE)];
        objects.push(queues::kubeconfig_cluster("west", "west"));
        objects.extend(queues::multikueue("mk", &["west"]));
        objects.extend([flavor, queue().admission_check("mk").build(), local]);
        self.hub().apply(objects).await.unwrap();
        ready::worker_cluster(self.hub(), "west", SOON).await.unwrap();
        ready::managed_by_webhook(self.hub(), (namespace, "main"), SOON).await.unwrap();
    }

    /// Sends one job of each kind, and waits until all run on the worker.
    async fn send(&self) {
        let sent = self.samples.iter().map(async |sample| {
            let (here, there) = self.jobs(sample).await?;
            here.create(&self.namespace, "main", NAME).await?;
            let runs = |job: &Value| job.pointer(sample.suspend) != Some(&json!(true));
            there.until(NAME, "started", runs).await?;
            there.report(NAME, &sample.running).await
        });
        let flock = async {
            let [here, there] = [self.hub(), self.west()]
                .map(|cluster| cluster.dynamic(external::API, "Flock", &self.namespace));
            let (here, there) = futures::try_join!(here, there)?;
            external::submit(self.hub(), &here, &self.namespace, external::NAME).await?;
            eventually(SOON, "the Flock's copy", async || Ok(there.get(external::NAME).await?))
                .await
        };
        let pods = async {
            for name in PODS {
                self.create(pod(name)).await?;
            }
            self.create(stateful_set()).await?;
            self.create(replicas::leader_worker_set()).await?;
            replicas::make_stateful_sets(self.west(), &self.namespace).await?;
            eventually(SOON, "all pods to run", async || {
                let pods = self.pods().await?;
                let running = pods.iter().filter(|(_, phase)| phase == "Running").count();
                ensure!(running == PODS.len() + 2 + replicas::PODS, "{pods:?}");
                Ok(())
            })
            .await
        };
        let (sent, flock, pods) = tokio::join!(futures::future::join_all(sent), flock, pods);
        let failed = sent.into_iter().filter_map(Result::err);
        let failed: Vec<_> = failed.chain(flock.err()).chain(pods.err()).collect();
        assert!(failed.is_empty(), "{failed:#?}");
    }

    async fn create(&self, object: DynamicObject) -> anyhow::Result<()> {
        let types = object.types.clone().context("no type")?;
        let api = self.hub().dynamic(&types.api_version, &types.kind, &self.namespace).await?;
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn jobs<'a>(&self, sample: &'a Sample) -> anyhow::Result<(Jobs<'a>, Jobs<'a>)> {
        let here = Jobs::new(sample, self.hub(), &self.namespace).await?;
        Ok((here, Jobs::new(sample, self.west(), &self.namespace).await?))
    }

    /// The names and phases of the pods on the worker.
    async fn pods(&self) -> anyhow::Result<Vec<(String, String)>> {
        let pods: Api<Pod> = Api::namespaced(self.west().admin.clone(), &self.namespace);
        let phase =
            |pod: Pod| (pod.name_any(), pod.status.and_then(|it| it.phase).unwrap_or_default());
        Ok(pods.list(&ListParams::default()).await?.items.into_iter().map(phase).collect())
    }

    /// The copies on the worker.
    async fn copies(&self) -> anyhow::Result<Vec<DynamicObject>> {
        let sampled = self.samples.iter().map(|sample| (sample.api, sample.kind, NAME));
        let pods = PODS.map(|name| ("v1", "Pod", name));
        let others = [SET, REPLICAS, (external::API, "Flock", external::NAME)];
        let mut copies = Vec::new();
        for (api, kind, name) in sampled.chain(pods).chain(others) {
            let api = self.west().dynamic(api, kind, &self.namespace).await?;
            copies.push(api.get(name).await.with_context(|| format!("{kind} {name}"))?);
        }
        Ok(copies)
    }

    async fn specs(&self) -> Copies {
        let copies = self.copies().await.unwrap();
        let spec = |copy: DynamicObject| {
            let kind = copy.types.as_ref().map(|it| it.kind.clone()).unwrap_or_default();
            let key = format!("{kind} {}", copy.name_any());
            (key, (copy.uid().unwrap(), copy.data["spec"].clone()))
        };
        let mut specs: Copies = copies.into_iter().map(spec).collect();
        let pods = self.west().dynamic("v1", "Pod", &self.namespace).await.unwrap();
        let pods = pods.list(&ListParams::default()).await.unwrap().items;
        specs.extend(pods.into_iter().map(|pod| {
            let key = format!("Pod {}", pod.name_any());
            (key, (pod.uid().unwrap(), pod.data["spec"].clone()))
        }));
        specs
    }

    /// Waits until each copy has the hub's mark.
    async fn are_taken_over(&self) {
        eventually(SOON, "marks on all copies", async || {
            for copy in self.copies().await? {
                let name = copy.name_any();
                let marks = copy.labels();
                ensure!(marks.contains_key(names::HUB_ID), "{:?} {name}: {marks:?}", copy.types);
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Each Workload runs as its first attempt, and was not evicted. A job that ended before Kueue
    /// came back, or since then, has no attempt.
    async fn are_first_attempts(&self, ended: &[Sample]) {
        let workloads: Api<Workload> = Api::namespaced(self.hub().admin.clone(), &self.namespace);
        eventually(SOON, "first attempts", async || {
            for workload in workloads.list(&ListParams::default()).await? {
                let (name, told) = (workload.name_any(), Tenant::told(&workload));
                let owners = workload.owner_references().to_vec();
                let status = workload.status.unwrap_or_default();
                let evicted = conditions::find(&status.conditions, "Evicted");
                assert!(evicted.is_none(), "{name}: {told}");
                let attempt = status.dispatch.as_ref().map(|dispatch| dispatch.attempt);
                let has_ended = ended.iter().any(|it| owners.iter().any(|of| of.kind == it.kind));
                let expected = (!has_ended).then_some(1);
                ensure!(attempt == expected, "{name}, attempt {attempt:?}: {told}");
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    /// The hub shows the phase of the pods that it has sent.
    async fn shows_running_pods(&self) {
        let pods: Api<Pod> = Api::namespaced(self.hub().admin.clone(), &self.namespace);
        eventually(SOON, "the pods on the hub to be shown as running", async || {
            for name in PODS {
                let phase = pods.get(name).await?.status.and_then(|status| status.phase);
                ensure!(phase.as_deref() == Some("Running"), "{name}: {phase:?}");
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Ends these jobs on the worker, if their kind can end. The hub shows it, and collects the copies. Kueue
    /// leaves zeros out of a status, so that it is not compared.
    async fn end(&self, samples: &[Sample], program: Program) {
        let ends = samples.iter().map(async |sample| {
            let Some(ended) = &sample.ended else { return anyhow::Ok(()) };
            let (here, there) = self.jobs(sample).await?;
            there.report(NAME, ended).await?;
            if program == Program::Switchyard {
                here.shows(NAME, ended).await?;
            }
            here.finished(NAME).await?;
            there.gone(NAME).await
        });
        futures::future::try_join_all(ends).await.unwrap();
    }

    /// Removes every second job that can end from the samples.
    fn split_off_ending(&mut self) -> Vec<Sample> {
        let mut turn = false;
        let (ending, others) = std::mem::take(&mut self.samples).into_iter().partition(|sample| {
            turn ^= sample.ended.is_some();
            turn && sample.ended.is_some()
        });
        self.samples = others;
        ending
    }

    async fn end_flock(&self) {
        external::finish(&self.west().admin, &self.namespace).await.unwrap();
        let workloads: Api<Workload> = Api::namespaced(self.hub().admin.clone(), &self.namespace);
        eventually(SOON, "the Flock to be finished on the hub", async || {
            let status = workloads.get("flock-gulls").await?.status.unwrap_or_default();
            ensure!(conditions::is_true(&status.conditions, conditions::FINISHED), "{status:?}");
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn stop(&self, manager: Kueue) {
        manager.stop().await;
        Kueue::unregister(self.hub()).await.unwrap();
    }

    /// The state of a manager that stops before it has recorded where jobs of these kinds run, and a
    /// later replica.
    async fn forget(&self, kinds: &[&str]) {
        for sample in self.samples.iter().filter(|sample| kinds.contains(&sample.kind)) {
            let api = self.hub().dynamic(sample.api, sample.kind, &self.namespace).await.unwrap();
            let fields = sample.suspend.split('/').skip(1).collect::<Vec<_>>();
            let suspended =
                fields.into_iter().rev().fold(json!(true), |it, name| json!({name: it}));
            let params = PatchParams::default();
            api.patch(NAME, &params, &Patch::Merge(suspended)).await.unwrap();
        }
        let workloads: Api<Workload> = Api::namespaced(self.hub().admin.clone(), &self.namespace);
        for workload in workloads.list(&ListParams::default()).await.unwrap() {
            let name = workload.name_any();
            let is_theirs = workload.owner_references().iter().any(|it| kinds.contains(&&*it.kind));
            if !is_theirs && !name.starts_with("leaderworkerset-llm-1-") {
                continue;
            }
            let mut status = workload.status.unwrap();
            status.conditions.retain(|it| it.type_ == conditions::QUOTA_RESERVED);
            status.admission_checks[0].state = CheckState::Pending;
            let patch = json!({"status": {
                "clusterName": null, "conditions": status.conditions,
                "admissionChecks": status.admission_checks,
            }});
            let params = PatchParams::default();
            workloads.patch_status(&name, &params, &Patch::Merge(patch)).await.unwrap();
        }
    }

    /// Removes a job from the samples and ends it, while no program manages the hub.
    async fn end_unseen(&mut self, kind: &str) -> Sample {
        let place = self.samples.iter().position(|sample| sample.kind == kind).unwrap();
        let sample = self.samples.remove(place);
        let (_, there) = self.jobs(&sample).await.unwrap();
        there.report(NAME, sample.ended.as_ref().unwrap()).await.unwrap();
        there.finished(NAME).await.unwrap();
        sample
    }

    async fn take_over(&self, ended: &[Sample]) {
        self.hub().install().await.unwrap();
        self.fleet.renew_hub_account().await.unwrap();
        self.fleet.start_hub().await.unwrap();
        self.fleet.connected("west").await.unwrap();
        self.are_taken_over().await;
        self.are_first_attempts(ended).await;
    }

    /// The steps of the guide back to the manager.
    async fn give_back(&self) -> Kueue {
        self.fleet.kill(HUB);
        Single::unregister(self.hub()).await.unwrap();
        hand_back(self.hub(), &[]).await.unwrap();
        let released = hand_back(self.west(), &["--copies"]).await.unwrap();
        assert_ne!(released["copies"], 0, "{released}");
        for copy in self.copies().await.unwrap() {
            let marks = copy.labels();
            assert!(!marks.contains_key(names::HUB_ID), "{:?} {marks:?}", copy.types);
        }
        start_kueue(self.hub()).await
    }

    /// The user deletes those that run on. Their copies are deleted.
    async fn delete(&self) {
        for sample in self.samples.iter().filter(|sample| sample.ended.is_none()) {
            let (here, there) = self.jobs(sample).await.unwrap();
            here.delete(NAME).await.unwrap();
            there.gone(NAME).await.unwrap();
        }
        for (api, kind, name) in [SET, REPLICAS] {
            let sets = self.hub().dynamic(api, kind, &self.namespace).await.unwrap();
            sets.delete(name, &DeleteParams::background()).await.unwrap();
        }
        replicas::delete_stateful_sets(self.west(), &self.namespace).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(self.hub().admin.clone(), &self.namespace);
        pods.delete(PODS[0], &DeleteParams::default()).await.unwrap();
        // Deleted members of a group wait for others in their place, as with Kueue.
        let workloads: Api<Workload> = Api::namespaced(self.hub().admin.clone(), &self.namespace);
        workloads.delete(GROUP, &DeleteParams::background()).await.unwrap();
        eventually(SOON, "no pod to be left", async || {
            let left = self.pods().await?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

/// The copies but those of these jobs.
fn without(copies: Copies, jobs: &[Sample]) -> Copies {
    let is_of = |copy: &String| jobs.iter().any(|job| copy.starts_with(&format!("{} ", job.kind)));
    copies.into_iter().filter(|(copy, _)| !is_of(copy)).collect()
}

/// All kinds that MultiKueue sends.
fn config() -> Value {
    let mut config: Value = serde_saphyr::from_str(&format!("{FRAMEWORKS}{EXTERNAL}")).unwrap();
    config.as_object_mut().unwrap().remove("featureGates");
    let frameworks = config["integrations"]["frameworks"].as_array_mut().unwrap();
    frameworks.retain(|it| it != "sparkoperator.k8s.io/sparkapplication");
    let by_pods = ["pod", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"];
    frameworks.extend(by_pods.map(Value::from));
    config
}

async fn start_kueue(cluster: &Cluster) -> Kueue {
    let options = Options { webhooks: true, config: config(), ..Options::default() };
    Kueue::start(cluster, &options).await.unwrap()
}

/// A pod alone, or a member of a group of two.
fn pod(name: &str) -> DynamicObject {
    let mut labels = json!({"kueue.x-k8s.io/queue-name": "main"});
    let mut annotations = json!({RUN_FOR: "forever"});
    if name.starts_with("member") {
        labels["kueue.x-k8s.io/pod-group-name"] = GROUP.into();
        annotations["kueue.x-k8s.io/pod-group-total-count"] = "2".into();
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": template(),
    });
    serde_json::from_value(pod).unwrap()
}

fn template() -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({"terminationGracePeriodSeconds": 1, "containers": [container]})
}

fn stateful_set() -> DynamicObject {
    let (api, kind, name) = SET;
    let app = json!({"app": name});
    let set = json!({
        "apiVersion": api, "kind": kind,
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "replicas": 2, "serviceName": name, "selector": {"matchLabels": app},
            "template": {
                "metadata": {"labels": app, "annotations": {RUN_FOR: "forever"}}, "spec": template(),
            },
        },
    });
    serde_json::from_value(set).unwrap()
}

#[test]
fn copies_of_every_kind_survive_the_takeover_of_a_manager() {
    fixture::run(async {
        let (mut site, manager, _worker) = Site::make().await;
        site.send().await;
        let before = site.specs().await;
        site.stop(manager).await;
        site.forget(&["JobSet", UNSEEN]).await;
        let unseen = site.end_unseen(UNSEEN).await;
        let before = without(before, std::slice::from_ref(&unseen));
        site.take_over(&[]).await;
        let (here, there) = site.jobs(&unseen).await.unwrap();
        here.finished(NAME).await.unwrap();
        there.gone(NAME).await.unwrap();
        assert_eq!(site.specs().await, before);
        site.shows_running_pods().await;

        let manager = site.give_back().await;
        let mut ending = site.split_off_ending();
        site.end(&ending, Program::Kueue).await;
        ending.push(unseen);
        let before = without(before, &ending);
        assert_eq!(site.specs().await, before);
        site.stop(manager).await;
        site.take_over(&ending).await;
        assert_eq!(site.specs().await, before);
        site.end(&site.samples, Program::Switchyard).await;
        site.end_flock().await;
        site.are_first_attempts(&ending).await;
        site.delete().await;
    });
}
