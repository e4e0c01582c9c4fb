//! The way from a job of each kind to its pod sets: what a pod set is charged, beside what the pod of its template requests.
//! Jobs are stored by dry run, too, so that what a kind's CRD drops is dropped.

use serde_json::{Value, json};
use switchyard_e2e::{Cluster, fixture};
use switchyard_jobs::{JobKind, job_pod_sets, kind_for};

use super::compare::{Tally, Template, judge_in_all_orders, report};
use super::server::{Answer, Server};
use super::world::World;
use super::{TOLD, cluster, templates};
use crate::common::{leader_worker_set, random};
use crate::job_kinds::{samples, table};
use switchyard_e2e::random::Random;

/// Jobs of each kind.
const JOBS: usize = 12;
/// The roles of a SparkApplication's pods, in the order of its pod sets.
const ROLES: [&str; 2] = ["driver", "executor"];
/// The label by which the controller of TrainJobs finds a part of a runtime.
const STEP: &str = "trainer.kubeflow.org/trainjob-ancestor-step";

/// A kind, and where its pod templates are.
struct Kind {
    kind: &'static dyn JobKind,
    spec: Value,
    /// JSON pointers, one a pod set.
    templates: Vec<String>,
    restart_policy: &'static str,
}

/// All kinds that have pod templates of their own.
fn kinds() -> Vec<Kind> {
    let own = |group: &str, kind: &str, spec: Value, templates: &[&str]| Kind {
        kind: kind_for(group, kind).unwrap(),
        spec,
        templates: templates.iter().map(|&it| it.to_owned()).collect(),
        restart_policy: if group == "batch" { "Never" } else { "Always" },
    };
    let selector = json!({"matchLabels": {"app": "train"}});
    let template = samples::template();
    let lws = json!({"replicas": 2, "leaderWorkerTemplate": {
        "size": 3, "leaderTemplate": template, "workerTemplate": template,
    }});
    let serving = json!({"selector": selector, "template": template, "serviceName": "s"});
    let mut kinds = vec![
        own("batch", "Job", json!({"template": template}), &["/spec/template"]),
        own("apps", "StatefulSet", serving, &["/spec/template"]),
        own(
            "leaderworkerset.x-k8s.io",
            "LeaderWorkerSet",
            lws,
            &[
                "/spec/leaderWorkerTemplate/leaderTemplate",
                "/spec/leaderWorkerTemplate/workerTemplate",
            ],
        ),
    ];
    for sample in samples::samples() {
        let group = sample.api.split_once('/').map_or("", |(group, _)| group);
        let labels = sample.labels.iter().map(|pointer| pointer.replace("/metadata/labels", ""));
        let templates: Vec<String> = match sample.kind {
            "AppWrapper" => vec!["/spec/components/0/template/spec/template".to_owned()],
            // Below.
            "SparkApplication" | "TrainJob" => continue,
            _ => labels.collect(),
        };
        let kind = kind_for(group, sample.kind).unwrap();
        kinds.push(Kind { kind, spec: sample.spec, templates, restart_policy: "Never" });
    }
    kinds
}

/// The spec of a pod as users write it: with numbers, and sometimes with devices.
fn pod_spec(random: &mut Random) -> Value {
    let mut spec = templates::pod_spec(random);
    if random.percent(20) {
        templates::claim_devices(&mut spec);
    }
    templates::write_numbers(random, &mut spec);
    spec
}

/// A pod template whose spec is given, with the labels of all others.
fn template_of(spec: &Value) -> Value {
    json!({"metadata": {"labels": {"app": "train"}}, "spec": spec})
}

/// Puts a value at a JSON pointer, and what is missing on the way.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        at = match part.parse::<usize>() {
            Ok(index) if at.is_array() => &mut at[index],
            _ => &mut at[part],
        };
    }
    *at = value;
}

impl Kind {
    fn job(&self, random: &mut Random) -> Value {
        let id = self.kind.id();
        let mut job = json!({
            "apiVersion": id.api_version(), "kind": id.kind, "spec": self.spec,
            "metadata": {"name": "job", "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        });
        for pointer in &self.templates {
            let mut spec = pod_spec(random);
            spec["restartPolicy"] = self.restart_policy.into();
            put(&mut job, pointer, template_of(&spec));
        }
        job
    }

    fn resources(&self, namespace: &str) -> String {
        let id = self.kind.id();
        format!("/apis/{}/namespaces/{namespace}/{}", id.api_version(), id.plural)
    }
}

/// A pod set's spec as its Workload holds it, and that of the template that its pods are made of.
struct PodSet {
    namespace: usize,
    kind: &'static str,
    charged: Value,
    template: Value,
}

/// The pod sets of a job that was stored, as its Workload is stored.
async fn pod_sets(
    server: &Server<'_>,
    world: &World,
    namespace: usize,
    kind: &dyn JobKind,
    job: &Value,
    templates: Vec<Value>,
) -> Vec<PodSet> {
    let pod_sets = job_pod_sets(kind, job).unwrap();
    assert_eq!(pod_sets.len(), templates.len(), "{}: {job}", kind.id().kind);
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "workload"}, "spec": {"queueName": "queue", "podSets": pod_sets},
    });
    let name = &world.namespaces[namespace].name;
    let resources = format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/{name}/workloads");
    let stored = match server.dry_run(&resources, &workload).await.unwrap() {
        Answer::Admitted(stored) => stored,
        Answer::Refused(why) => panic!("{}: {why}: {workload}", kind.id().kind),
    };
    let of = |(number, template): (usize, Value)| PodSet {
        namespace,
        kind: kind.id().kind,
        charged: stored["spec"]["podSets"][number]["template"]["spec"].clone(),
        template: template["spec"].clone(),
    };
    templates.into_iter().enumerate().map(of).collect()
}

async fn of_all_kinds(
    server: &Server<'_>,
    world: &World,
    random: &mut Random,
    tally: &mut Tally,
) -> Vec<PodSet> {
    let mut found = Vec::new();
    for kind in kinds() {
        for number in 0..JOBS {
            let namespace = number % world.namespaces.len();
            let resources = kind.resources(&world.namespaces[namespace].name);
            let name = kind.kind.id().kind;
            match server.dry_run(&resources, &kind.job(random)).await.unwrap() {
                Answer::Refused(_) => tally.add(format!("{name}, refused")),
                Answer::Admitted(job) => {
                    let templates =
                        kind.templates.iter().map(|at| job.pointer(at).unwrap().clone()).collect();
                    found.extend(
                        pod_sets(server, world, namespace, kind.kind, &job, templates).await,
                    );
                }
            }
        }
    }
    found.extend(of_spark(server, world, random, tally).await);
    found.extend(of_train_jobs(server, world, random).await);
    found.extend(of_pods(server, world, random, tally).await);
    found
}

/// SparkApplications, of whose templates Spark fills in cpu and memory of its own container.
async fn of_spark(
    server: &Server<'_>,
    world: &World,
    random: &mut Random,
    tally: &mut Tally,
) -> Vec<PodSet> {
    let kind = kind_for("sparkoperator.k8s.io", "SparkApplication").unwrap();
    let mut found = Vec::new();
    for number in 0..JOBS {
        let namespace = number % world.namespaces.len();
        let mut job = json!({
            "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "job"},
            "spec": {"type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///app.jar"},
        });
        for role in ROLES {
            let template = template_of(&pod_spec(random));
            job["spec"][role] =
                json!({"coreRequest": "500m", "memory": "1g", "template": template});
        }
        job["spec"]["executor"]["instances"] = 2.into();
        let id = kind.id();
        let name = &world.namespaces[namespace].name;
        let resources = format!("/apis/{}/namespaces/{name}/{}", id.api_version(), id.plural);
        match server.dry_run(&resources, &job).await.unwrap() {
            Answer::Refused(_) => tally.add("SparkApplication, refused"),
            Answer::Admitted(job) => {
                let of = |role| {
                    let mut template = job["spec"][role]["template"].clone();
                    let own = &mut template["spec"]["containers"][0]["resources"];
                    own["requests"]["cpu"] = "500m".into();
                    own["requests"]["memory"] = "1408Mi".into();
                    own["limits"]["memory"] = "1408Mi".into();
                    template
                };
                found.extend(
                    pod_sets(server, world, namespace, kind, &job, ROLES.map(of).to_vec()).await,
                );
            }
        }
    }
    found
}

/// TrainJobs, whose template is their runtime's, and whose container that trains has what the job says.
async fn of_train_jobs(server: &Server<'_>, world: &World, random: &mut Random) -> Vec<PodSet> {
    let kind = kind_for("trainer.kubeflow.org", "TrainJob").unwrap();
    let mut found = Vec::new();
    for number in 0..JOBS {
        let namespace = number % world.namespaces.len();
        let mut spec = pod_spec(random);
        spec["containers"][0]["name"] = "node".into();
        // Beside resources of the runtime, releases of Trainer differ in what those of the job mean.
        let own = random.percent(50).then(|| {
            spec["containers"][0].as_object_mut().unwrap().remove("resources");
            let own = pod_spec(random)["containers"][0]["resources"].take();
            if own.is_null() { json!({}) } else { own }
        });
        let node = json!({
            "name": "node",
            "template": {"metadata": {"labels": {STEP: "trainer"}}, "spec": {"template": template_of(&spec)}},
        });
        let runtime = json!({"spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}}});
        let mut job = json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "job"},
            "spec": {"runtimeRef": {"name": "r"}, "trainer": {"numNodes": 3}},
        });
        if let Some(own) = own {
            job["spec"]["trainer"]["resourcesPerNode"] = own.clone();
            spec["containers"][0]["resources"] = own;
        }
        kind.attach(&mut job, &runtime);
        found
            .extend(pod_sets(server, world, namespace, kind, &job, vec![template_of(&spec)]).await);
    }
    found
}

/// Pods that are queued themselves, as those of a Deployment are.
async fn of_pods(
    server: &Server<'_>,
    world: &World,
    random: &mut Random,
    tally: &mut Tally,
) -> Vec<PodSet> {
    let kind = kind_for("", "Pod").unwrap();
    let specs: Vec<(usize, Value)> =
        (0..2 * JOBS).map(|number| (number % world.namespaces.len(), pod_spec(random))).collect();
    let named: Vec<_> =
        specs.iter().map(|(at, spec)| (world.namespaces[*at].name.as_str(), spec)).collect();
    let mut found = Vec::new();
    for ((namespace, spec), answer) in specs.iter().zip(server.pods(&named).await.unwrap()) {
        match answer.admitted() {
            Some(pod) => {
                found.extend(
                    pod_sets(server, world, *namespace, kind, pod, vec![template_of(spec)]).await,
                );
            }
            None => tally.add("Pod, refused"),
        }
    }
    found
}

async fn install(cluster: &Cluster) {
    cluster.install().await.unwrap();
    table::install_crds(&[cluster]).await.unwrap();
    leader_worker_set::install(cluster).await;
}

#[test]
fn a_pod_set_of_each_kind_is_charged_what_its_pods_request() {
    fixture::run(async {
        let (seed, mut random) = random::seeded_by("REQUESTS_SEED");
        let cluster = cluster().await;
        install(cluster).await;
        let server = Server::new(cluster).await;
        let world = World::new(cluster, &server, &mut random, 6).await;
        let mut tally = Tally::default();
        let pod_sets = of_all_kinds(&server, &world, &mut random, &mut tally).await;
        let named = |it: &PodSet| world.namespaces[it.namespace].name.clone();
        let names: Vec<String> = pod_sets.iter().map(named).collect();
        let specs: Vec<_> =
            names.iter().zip(&pod_sets).map(|(name, it)| (name.as_str(), &it.template)).collect();
        let pods = server.admitted(&specs).await.unwrap();
        let mut told = Vec::new();
        for (it, pod) in pod_sets.iter().zip(&pods) {
            assert_eq!(
                it.charged.get("resourceClaims"),
                it.template.get("resourceClaims"),
                "seed {seed}: {}",
                it.kind
            );
            let template =
                Template { namespace: &world.namespaces[it.namespace], spec: it.charged.clone() };
            match judge_in_all_orders(&server, &world, &template, &it.template, pod).await {
                Ok(class) => tally.add(format!("{}, {class}", it.kind)),
                Err(difference) => {
                    tally.add(format!("DIFFERENT: {}, {}", it.kind, difference.class));
                    let own = Template { namespace: template.namespace, spec: it.template.clone() };
                    if told.len() < TOLD {
                        let own = report(&server, &world, &own).await;
                        told.push(format!(
                            "{}: {}\npod set: {}\ntemplate: {}\nthe template by itself: {own}",
                            it.kind, difference.class, it.charged, it.template
                        ));
                    }
                }
            }
        }
        println!("{tally}");
        assert!(told.is_empty(), "seed {seed}: {}", told.join("\n\n"));
        for kind in kinds().iter().map(|it| it.kind.id().kind).chain([
            "SparkApplication",
            "TrainJob",
            "Pod",
        ]) {
            assert!(
                tally.count(&format!("{kind}, equal")) > 0,
                "seed {seed}: no {kind} became pods\n{tally}"
            );
        }
    });
}
