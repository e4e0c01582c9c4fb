//! The admission webhooks on real API servers: what they change, what they refuse and in which words, and what happens
//! while no server answers.
use std::{
    net::{Ipv4Addr, TcpListener},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, batch::v1::Job, events::v1::Event,
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{CheckState, Workload};
use switchyard_config::Configuration;
use switchyard_controller::{
    Handle, LeaderMode, Options, Role,
    webhook::{Advertise, WebhookOptions},
};
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, fixture, job, paths, queues, ready,
    wait,
};
use tokio::sync::OnceCell;

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "switchyard-system";

static ENVIRONMENT: OnceCell<Environment> = OnceCell::const_new();

/// One cluster with webhooks, one whose webhooks go away, a hub, and one without reconcilers.
async fn environment() -> &'static Environment {
    let start = async || {
        let node = |name: &str| NodeSpec::new(name).cpu(16);
        let environment = Environment::builder("webhook")
            .cluster(ClusterSpec::new("up").node(node("up")))
            .cluster(ClusterSpec::new("down").node(node("down")))
            .cluster(ClusterSpec::new("hub").node(node("hub")))
            .cluster(ClusterSpec::new("objects"))
            .start()
            .await
            .unwrap();
        for name in ["up", "down", "hub", "objects"] {
            environment.cluster(name).install().await.unwrap();
        }
        environment
    };
    ENVIRONMENT.get_or_init(start).await
}

/// A controller in this process, with the rights that `deploy/` ships.
async fn controller(cluster: &Cluster, role: Role, webhook: bool) -> Handle {
    let listener = webhook.then(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    controller_with(Configuration::default(), cluster, role, LeaderMode::Always, listener).await
}

async fn controller_with(
    config: Configuration,
    cluster: &Cluster,
    role: Role,
    leader: LeaderMode,
    listener: Option<TcpListener>,
) -> Handle {
    let webhook = listener.is_some();
    let account = if role == Role::Hub { "switchyard-hub" } else { "switchyard" };
    let (client, _) = cluster.service_account(NAMESPACE, account).await.unwrap();
    let mut options = Options::new(client, Arc::new(config), "webhook-test", NAMESPACE);
    (options.role, options.leader) = (role, leader);
    if let Some(listener) = listener {
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        options.webhook = Some(WebhookOptions::new(listener, Advertise::Url(url)));
    }
    let handle = switchyard_controller::start(options).unwrap();
    handle.ready(WAIT).await.unwrap();
    if webhook {
        called(cluster).await;
    }
    handle
}

/// Waits until the API server calls the webhooks: it learns of each registration a moment after it is written.
async fn called(cluster: &Cluster) {
    let namespace = cluster.namespace("probe").await.unwrap();
    let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), &namespace);
    let bad = JobBuilder::new(&namespace, "probe").queue("Not_A_Name").build();
    let bad: Job = serde_json::from_value(bad).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let check = async || {
        let refused = jobs.create(&dry, &bad).await.err().map(|error| error.to_string());
        ensure!(refused.is_some_and(|it| it.contains("Invalid value")), "a bad job is let through");
        Ok(())
    };
    wait::eventually(WAIT, "a bad job to be refused", check).await.unwrap();
    ready::job_webhook(cluster, &namespace, WAIT).await.unwrap();
}

struct Bed {
    cluster: &'static Cluster,
    namespace: String,
    name: String,
}

impl Bed {
    async fn up(stem: &str) -> Self {
        static CONTROLLER: OnceCell<Handle> = OnceCell::const_new();
        let cluster = environment().await.cluster("up");
        CONTROLLER.get_or_init(async || controller(cluster, Role::Single, true).await).await;
        Self::on(cluster, stem).await
    }

    async fn on(cluster: &'static Cluster, stem: &str) -> Self {
        Self {
            cluster,
            namespace: cluster.namespace(stem).await.unwrap(),
            name: fixture::unique(stem),
        }
    }

    async fn queue(&self) {
        self.cluster
            .apply(queues::simple(&self.namespace, &self.name, &[("cpu", "4")]))
            .await
            .unwrap();
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.cluster.admin.clone(), &self.namespace)
    }

    fn job(&self, name: &str) -> JobBuilder {
        JobBuilder::new(&self.namespace, name).queue("queue").cpu("1")
    }

    /// Why the API server refuses the job.
    async fn refused(&self, job: JobBuilder) -> String {
        job.create(&self.cluster.admin).await.expect_err("accepted").to_string()
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<Job, kube::Error> {
        self.jobs().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    /// Waits until the events about a job, as reason and note, are what they should be.
    async fn events(&self, job: &str, what: &str, right: impl Fn(&[(String, String)]) -> bool) {
        let api: Api<Event> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let check = async || {
            let events = api.list(&ListParams::default()).await?.items;
            let about = |event: &Event| {
                event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(job)
            };
            let told =
                |event: Event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default());
            let notes: Vec<_> = events.into_iter().filter(about).map(told).collect();
            ensure!(right(&notes), "{notes:?}");
            Ok(())
        };
        wait::eventually(WAIT, what, check).await.unwrap();
    }

    async fn workload_of(&self, job: &str) -> Workload {
        let api: Api<Workload> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let check = async || {
            let all = api.list(&ListParams::default()).await?.items;
            let owned = |workload: &Workload| {
                workload.metadata.owner_references.iter().flatten().any(|owner| owner.name == job)
            };
            all.into_iter().find(owned).ok_or_else(|| anyhow::anyhow!("no workload"))
        };
        wait::eventually(WAIT, format!("the workload of {job}"), check).await.unwrap()
    }
}

fn suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false)
}

#[test]
fn plain_job_is_suspended_at_creation_and_runs_when_admitted() {
    fixture::run(async {
        let bed = Bed::up("plain").await;
        bed.queue().await;
        let job = bed.job("a").run_for(Duration::from_millis(200));
        let created = job.create(&bed.cluster.admin).await.unwrap();
        assert!(suspended(&created), "already in the answer to the creation");
        job::complete(&bed.cluster.admin, &bed.namespace, "a", WAIT).await.unwrap();
    });
}

#[test]
fn job_without_queue_is_ignored_until_default_queue_exists() {
    fixture::run(async {
        let bed = Bed::up("default").await;
        bed.queue().await;
        let plain = |name: &str| {
            JobBuilder::new(&bed.namespace, name).cpu("1").run_for(Duration::from_millis(100))
        };
        let created = plain("before").create(&bed.cluster.admin).await.unwrap();
        assert!(!suspended(&created));
        bed.cluster
            .apply([queues::local_queue(&bed.namespace, "default", &bed.name)])
            .await
            .unwrap();
        let mut tries = 0;
        let check = async || {
            tries += 1;
            let job = plain(&format!("after-{tries}")).create(&bed.cluster.admin).await?;
            let queue =
                job.metadata.labels.clone().unwrap_or_default().remove("kueue.x-k8s.io/queue-name");
            ensure!(queue.as_deref() == Some("default") && suspended(&job), "queue {queue:?}");
            Ok(())
        };
        wait::eventually(WAIT, "a job to be given the default queue", check).await.unwrap();
    });
}

#[test]
fn job_asks_for_a_topology_by_one_annotation_of_its_pods() {
    fixture::run(async {
        let bed = Bed::up("topology").await;
        bed.queue().await;
        let (required, preferred) =
            ("kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology");
        let asks = |name: &str| bed.job(name).pod_annotation(required, "rack");
        let both = asks("both").pod_annotation(preferred, "rack");
        let refused = bed.refused(both).await;
        let why = "spec.template.metadata.annotations: Invalid value: must not contain more than one topology annotation";
        assert!(refused.contains(why), "{refused}");
        asks("one").create(&bed.cluster.admin).await.unwrap();
        let request =
            bed.workload_of("one").await.spec.pod_sets[0].topology_request.clone().unwrap();
        assert_eq!(request.required.as_deref(), Some("rack"));
        assert_eq!(
            request.pod_index_label.as_deref(),
            Some("batch.kubernetes.io/job-completion-index")
        );
    });
}

#[test]
fn bad_labels_and_annotations_are_refused_with_field_and_fix() {
    fixture::run(async {
        let bed = Bed::up("bad").await;
        let by_us = "admission webhook \"vjob.kb.io\" denied the request: ";
        let min = "kueue.x-k8s.io/job-min-parallelism";
        let cases = [
            (
                bed.job("a").parallelism(3).completions(3).annotation(min, "many"),
                "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: \"many\": strconv.Atoi: parsing \"many\": invalid syntax: should be a whole number",
            ),
            (
                bed.job("b").parallelism(3).completions(3).annotation(min, "3"),
                "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: 3: should be between 0 and 2",
            ),
            (
                bed.job("c").label("kueue.x-k8s.io/max-exec-time-seconds", "0"),
                "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: 0: should be greater than 0",
            ),
            (
                JobBuilder::new(&bed.namespace, "d").queue("Not_A_Name").cpu("1"),
                "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"Not_A_Name\": a lowercase RFC 1123 subdomain must consist of",
            ),
            (
                bed.job("e").annotation("kueue.x-k8s.io/job-completions-equal-parallelism", "true"),
                "metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]: Invalid value: \"true\": should not be enabled for NonIndexed jobs",
            ),
        ];
        for (job, message) in cases {
            let refused = bed.refused(job).await;
            assert!(refused.contains(by_us) && refused.contains(message), "{refused}");
        }
    });
}

#[test]
fn a_running_job_keeps_its_queue() {
    fixture::run(async {
        let bed = Bed::up("immutable").await;
        bed.queue().await;
        bed.job("a").run_forever().create(&bed.cluster.admin).await.unwrap();
        let running = async || {
            ensure!(!suspended(&bed.jobs().get("a").await?), "suspended");
            Ok(())
        };
        wait::eventually(WAIT, "the job to run", running).await.unwrap();
        let to =
            |queue: &str| json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}});
        let refused = bed.patch("a", to("other")).await.unwrap_err().to_string();
        let message = "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"other\": field is immutable";
        assert!(refused.contains(message), "{refused}");
        let refused = bed
            .patch("a", json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}))
            .await;
        assert!(refused.unwrap_err().to_string().contains("field is immutable"));
        bed.patch("a", json!({"metadata": {"labels": {"team": "x"}}})).await.unwrap();
    });
}

#[test]
fn a_job_of_nearly_the_largest_size_is_handled() {
    fixture::run(async {
        let bed = Bed::up("large").await;
        bed.queue().await;
        let large = |bytes: usize| json!([{"name": "c", "image": "i", "env": [{"name": "LARGE", "value": "x".repeat(bytes)}]}]);
        let created = bed
            .job("a")
            .pod_field("containers", large(1 << 20))
            .create(&bed.cluster.admin)
            .await
            .unwrap();
        assert!(suspended(&created));
        bed.workload_of("a").await;
        let refused = bed.refused(bed.job("b").pod_field("containers", large(4 << 20))).await;
        assert!(refused.contains("too large") || refused.contains("limit"), "{refused}");
    });
}

#[test]
fn a_job_whose_workload_is_too_large_to_be_stored_says_so() {
    fixture::run(async {
        let bed = Bed::up("too-large").await;
        bed.queue().await;
        // A Job is stored as protobuf, a Workload as JSON, where each quote takes two bytes.
        let quotes = json!([{"name": "c", "image": "i", "env": [{"name": "LARGE", "value": "\"".repeat(1 << 20)}]}]);
        bed.job("a").pod_field("containers", quotes).create(&bed.cluster.admin).await.unwrap();
        let said = |notes: &[(String, String)]| {
            notes
                .iter()
                .any(|(reason, note)| reason == "ErrWorkloadCompose" && note.contains("too large"))
        };
        bed.events("a", "the job to say that it is too large", said).await;
    });
}

#[test]
fn a_workload_and_queues_of_a_user_are_checked() {
    fixture::run(async {
        let bed = Bed::up("objects").await;
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"pods": "1"}}}]}});
        let workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "w", "namespace": bed.namespace},
            "spec": {"podSets": [{"name": "main", "count": 1, "template": template}]},
        });
        let api: Api<Workload> = Api::namespaced(bed.cluster.admin.clone(), &bed.namespace);
        let refused = api
            .create(&Default::default(), &serde_json::from_value(workload.clone()).unwrap())
            .await
            .unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("admission webhook \"vworkload.kb.io\" denied the request"),
            "{refused}"
        );
        let mut good = workload;
        good["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = json!({});
        api.create(&Default::default(), &serde_json::from_value(good).unwrap()).await.unwrap();
    });
}

/// Creates or replaces an object, and then its status. Says why it is refused. A conflict with a
/// controller's write is no refusal.
async fn put(cluster: &Cluster, manifest: &Value) -> Result<(), kube::Error> {
    const ATTEMPTS: usize = 5;
    for _ in 1..ATTEMPTS {
        match put_once(cluster, manifest).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            written => return written,
        }
    }
    put_once(cluster, manifest).await
}

async fn put_once(cluster: &Cluster, manifest: &Value) -> Result<(), kube::Error> {
    let text = |field: &str| manifest[field].as_str().unwrap();
    let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or_default();
    let api = cluster.dynamic(text("apiVersion"), text("kind"), namespace).await.unwrap();
    let mut object: DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
    let name = object.metadata.name.clone().unwrap();
    let mut written = match api.get_opt(&name).await? {
        None => api.create(&Default::default(), &object).await?,
        Some(present) => {
            object.metadata.resource_version = present.metadata.resource_version;
            api.replace(&name, &Default::default(), &object).await?
        }
    };
    if let Some(status) = manifest.get("status") {
        written.data["status"] = status.clone();
        api.replace_status(&name, &Default::default(), &written).await?;
    }
    Ok(())
}

/// Serves the webhooks without leading, so that no controller changes the objects of a table.
async fn only_webhooks(cluster: &Cluster) -> Handle {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let again = listener.try_clone().unwrap();
    let config = crate::common::that_judges_manifests;
    let registering =
        controller_with(config(), cluster, Role::Single, LeaderMode::Always, Some(listener)).await;
    registering.shutdown();
    registering.ended().await.unwrap();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": Configuration::default().leader_election.resource_name, "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": "another", "leaseDurationSeconds": 3600, "leaseTransitions": 1,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    cluster.apply([lease]).await.unwrap();
    controller_with(config(), cluster, Role::Single, LeaderMode::Elect, Some(again)).await
}

#[test]
fn malformed_manifests_that_pass_the_schema_are_refused() {
    fixture::run(async {
        let cluster = environment().await.cluster("objects");
        let handle = only_webhooks(cluster).await;
        let api = paths::root().join("api");
        for file in crate::manifests::accepted(&api) {
            for manifest in &file.documents {
                put(cluster, manifest)
                    .await
                    .unwrap_or_else(|error| panic!("{}: {error}", file.name));
            }
        }
        let (mut wrong, mut refused) = (Vec::new(), 0);
        for case in crate::manifests::refused(&api).iter().filter(|case| case.by_webhook) {
            if let Some(before) = &case.before {
                put(cluster, before).await.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            }
            match put(cluster, &case.object).await {
                Ok(()) => wrong.push(format!("{} ({}): accepted", case.name, case.sentence)),
                Err(kube::Error::Api(status)) if status.message.contains(&case.message) => {
                    assert!(
                        status.message.starts_with("admission webhook \"v"),
                        "{}",
                        status.message
                    );
                    refused += 1;
                }
                Err(error) => {
                    wrong.push(format!("{}: expected {:?}, got {error}", case.name, case.message))
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(refused > 15, "only {refused} cases");
        handle.shutdown();
        handle.ended().await.unwrap();
    });
}

#[test]
fn while_no_webhook_answers_the_reconciler_suspends() {
    fixture::run(async {
        let cluster = environment().await.cluster("down");
        let bed = Bed::on(cluster, "outage").await;
        bed.queue().await;
        let first = controller(cluster, Role::Single, true).await;
        first.shutdown();
        first.ended().await.unwrap();
        // Registered, and without a server: users can still create jobs.
        let created =
            bed.job("a").run_for(Duration::from_millis(200)).create(&cluster.admin).await.unwrap();
        assert!(!suspended(&created), "nobody was there to suspend it");
        bed.cluster.apply([queues::local_queue(&bed.namespace, "closed", "nosuch")]).await.unwrap();
        let closed = JobBuilder::new(&bed.namespace, "b").queue("closed").cpu("1").run_forever();
        closed.create(&cluster.admin).await.unwrap();
        let second = controller(cluster, Role::Single, false).await;
        job::complete(&cluster.admin, &bed.namespace, "a", WAIT).await.unwrap();
        let check = async || {
            let job = bed.jobs().get("b").await?;
            let active = job.status.as_ref().and_then(|status| status.active).unwrap_or(0);
            ensure!(suspended(&job) && active == 0, "suspend {}, {active} active", suspended(&job));
            Ok(())
        };
        wait::eventually(WAIT, "the job of the closed queue to be suspended", check).await.unwrap();
        let stopped =
            ("Stopped".to_owned(), "Missing Workload; unable to restore pod templates".to_owned());
        bed.events("b", "the event", |notes| notes.contains(&stopped)).await;
        second.shutdown();
        second.ended().await.unwrap();
    });
}

#[test]
fn hub_dispatches_jobs_of_its_queues_or_says_why_not() {
    fixture::run(async {
        let cluster = environment().await.cluster("hub");
        let bed = Bed::on(cluster, "hub").await;
        let handle = controller(cluster, Role::Hub, true).await;
        let mut objects = queues::multikueue(&bed.name, &["nowhere"]);
        objects.push(queues::ResourceFlavor::new(&bed.name).build());
        objects.push(
            queues::ClusterQueue::new(&bed.name)
                .group(&bed.name, &[("cpu", "4")])
                .admission_check(&bed.name)
                .build(),
        );
        objects.push(queues::local_queue(&bed.namespace, "queue", &bed.name));
        cluster.apply(objects).await.unwrap();
        let mut tries = 0;
        let check = async || {
            tries += 1;
            let created = bed.job(&format!("a-{tries}")).create(&cluster.admin).await?;
            let spec = created.spec.unwrap_or_default();
            ensure!(spec.suspend == Some(true), "not suspended");
            ensure!(
                spec.managed_by.as_deref() == Some("kueue.x-k8s.io/multikueue"),
                "managedBy {:?}",
                spec.managed_by
            );
            Ok(())
        };
        wait::eventually(WAIT, "a job to be handed over", check).await.unwrap();
        handle.shutdown();
        handle.ended().await.unwrap();

        let refused = bed.job("missed").create(&cluster.admin).await.unwrap_err().to_string();
        assert!(refused.contains("failed calling webhook \"mjob.kb.io\""), "{refused}");
        // As before the hub's webhooks were first registered.
        let webhooks: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
        webhooks.delete("switchyard", &DeleteParams::default()).await.unwrap();
        // Nothing suspends it until the next controller runs, and it must not be finished by then.
        let create = async || bed.job("missed").run_forever().create(&cluster.admin).await;
        wait::eventually(WAIT, "the API server to forget them", create).await.unwrap();
        let handle = controller(cluster, Role::Hub, false).await;
        let rejected = async || {
            let workload = bed.workload_of("missed").await;
            let checks = workload.status.unwrap_or_default().admission_checks;
            let message = "The owner is not managed by Kueue: Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"\"";
            let said = checks
                .iter()
                .any(|check| check.state == CheckState::Rejected && check.message == message);
            let evicted = checks.iter().any(|check| {
                check.message.starts_with("Reset to Pending after eviction. Previously: Rejected")
            });
            ensure!(said || evicted, "{checks:?}");
            Ok(())
        };
        wait::eventually(WAIT, "the rejection", rejected).await.unwrap();
        let job = bed.jobs().get("missed").await.unwrap();
        assert!(suspended(&job), "it never runs on the hub");
        handle.shutdown();
        handle.ended().await.unwrap();
    });
}

/// By default, as in Kueue, without the feature gate `UnadmittedWorkloadsObservability`.
#[test]
fn waiting_reasons_use_kueues_default_messages() {
    fixture::run(async {
        let bed = Bed::up("words").await;
        bed.queue().await;
        bed.job("big").cpu("5").create(&bed.cluster.admin).await.unwrap();
        bed.job("nowhere").queue("nosuch").create(&bed.cluster.admin).await.unwrap();
        for (job, reason, message) in [
            ("big", "Pending", "insufficient quota for cpu in flavor"),
            ("nowhere", "Inadmissible", "LocalQueue nosuch doesn't exist"),
        ] {
            let told = async || {
                let all = bed.workload_of(job).await.status.unwrap_or_default().conditions;
                let waits = all
                    .iter()
                    .find(|it| it.type_ == "QuotaReserved")
                    .context("nothing is said yet")?;
                ensure!(waits.reason == reason && waits.message.contains(message), "{waits:?}");
                ensure!(!all.iter().any(|it| it.type_ == "Admitted"), "{all:?}");
                Ok(())
            };
            wait::eventually(WAIT, "the reason", told).await.unwrap();
        }
    });
}

#[test]
fn the_registration_names_what_it_is_called_for() {
    fixture::run(async {
        let bed = Bed::up("registration").await;
        let api: Api<MutatingWebhookConfiguration> = Api::all(bed.cluster.admin.clone());
        let webhooks = api.get("switchyard").await.unwrap().webhooks.unwrap();
        let job = webhooks.iter().find(|webhook| webhook.name == "mjob.kb.io").unwrap();
        assert_eq!(job.failure_policy.as_deref(), Some("Ignore"));
        assert_eq!(
            job.match_conditions.as_ref().map(Vec::len),
            Some(2),
            "labelled jobs, and not our own writes"
        );
        assert!(job.client_config.ca_bundle.is_some());
    });
}
