//! The agent's core on a real cluster, with the rights in `deploy/`. The test plays the hub.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_agent::{
    AllowedNamespaces, CapacitySource, HubEnd, Settings, admissions::admissions, capacity, link,
    run_core_with,
};
use switchyard_api::v1beta2::{LocalQueue, Workload};
use switchyard_config::Configuration;
use switchyard_controller::{Handle, Options, Role};
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, fixture, job, queues, wait,
};
use switchyard_jobs::{RemoteMeta, kind_for};
use switchyard_proto::v1::{
    self, AgentMessage, Assignment, Desired, HubMessage, Observation, Payload, Phase, State,
    agent_message, hub_message,
};
use tokio::{sync::OnceCell, task::JoinHandle};
use tokio_util::sync::CancellationToken;

const WAIT: Duration = Duration::from_secs(120);

static ENVIRONMENT: OnceCell<(Environment, Handle, Client)> = OnceCell::const_new();

/// The cluster that all tests here share, its controller as a worker, and a client with the agent's
/// rights.
async fn shared() -> (&'static Cluster, &'static Handle, Client) {
    let start = async || {
        let worker = ClusterSpec::new("worker").nodes([NodeSpec::new("n1").cpu(64)]);
        let environment = Environment::builder("agent").cluster(worker).start().await.unwrap();
        let cluster = environment.cluster("worker");
        cluster.install().await.unwrap();
        let (client, _) =
            cluster.service_account("switchyard-system", "switchyard-agent").await.unwrap();
        let config = Arc::new(Configuration::default());
        let mut options = Options::new(client.clone(), config, "agent", "switchyard-system");
        options.role = Role::Worker;
        let handle = switchyard_controller::start(options).unwrap();
        handle.ready(WAIT).await.unwrap();
        (environment, handle, client)
    };
    let (environment, handle, client) = ENVIRONMENT.get_or_init(start).await;
    (environment.cluster("worker"), handle, client.clone())
}

/// The hub of one test, with an agent's core.
struct Hub {
    cluster: &'static Cluster,
    handle: &'static Handle,
    client: Client,
    namespace: String,
    /// As `namespace`, which a test may change.
    home: String,
    hub_id: String,
    end: HubEnd,
    core: (CancellationToken, JoinHandle<anyhow::Result<()>>),
    revision: u64,
    payloads: BTreeMap<String, Payload>,
    /// The newest observation of each workload.
    seen: BTreeMap<String, Observation>,
    /// All states of each workload, in order.
    states: BTreeMap<String, Vec<State>>,
    capacity: v1::Capacity,
    /// Whether the hub acknowledges reports.
    acknowledge: bool,
}

impl Hub {
    async fn start(stem: &str) -> Self {
        let (cluster, handle, client) = shared().await;
        let namespace = cluster.namespace(stem).await.unwrap();
        let hub_id = fixture::unique("hub");
        let (end, core) = agent(handle, client.clone(), &hub_id);
        let mut hub = Self {
            cluster,
            handle,
            client,
            home: namespace.clone(),
            namespace,
            hub_id,
            end,
            core,
            revision: 0,
            payloads: BTreeMap::new(),
            seen: BTreeMap::new(),
            states: BTreeMap::new(),
            capacity: v1::Capacity::default(),
            acknowledge: true,
        };
        hub.welcome().await;
        hub
    }

    async fn welcome(&mut self) {
        let hello = self.hear().await;
        assert!(matches!(hello.kind, Some(agent_message::Kind::Hello(_))), "{hello:?}");
        let hub_id = self.hub_id.clone();
        let welcome =
            v1::Welcome { version: 1, hub_id, session_id: 1, lease: None, snapshot: true };
        self.say(hub_message::Kind::Welcome(welcome)).await;
    }

    /// The agent's process ends, and another starts.
    async fn restart_agent(&mut self) {
        self.core.0.cancel();
        (&mut self.core.1).await.unwrap().unwrap();
        (self.end, self.core) = agent(self.handle, self.client.clone(), &self.hub_id);
        self.seen.clear();
        // The new session begins with a snapshot.
        self.revision = 0;
        self.welcome().await;
    }

    async fn say(&self, kind: hub_message::Kind) {
        let message = HubMessage { session_id: 1, epoch: 1, kind: Some(kind) };
        self.end.to_agent.send(message).await.unwrap();
    }

    async fn hear(&mut self) -> AgentMessage {
        tokio::time::timeout(WAIT, self.end.to_hub.recv())
            .await
            .expect("the agent is silent")
            .expect("the agent ended")
    }

    /// Applies one message of the agent.
    async fn step(&mut self) {
        match self.hear().await.kind {
            Some(agent_message::Kind::Observed(observed)) => {
                for observation in observed.observations {
                    let uid = observation.workload_uid.clone();
                    self.states.entry(uid.clone()).or_default().push(observation.state());
                    self.seen.insert(uid, observation);
                }
                if self.acknowledge {
                    self.say(hub_message::Kind::ObservedAck(observed.sequence)).await;
                }
            }
            Some(agent_message::Kind::Ping(ping)) => {
                self.say(hub_message::Kind::Pong(v1::Pong { nonce: ping.nonce })).await;
            }
            Some(agent_message::Kind::Capacity(capacity)) => self.capacity = capacity,
            _ => {}
        }
    }

    /// Waits until the agent reports this state of a workload.
    async fn until(&mut self, uid: &str, state: State) -> Observation {
        self.until_because(uid, state, "").await
    }

    /// Waits until the agent reports this state with this reason (any, if empty).
    async fn until_because(&mut self, uid: &str, state: State, code: &str) -> Observation {
        let found = async {
            loop {
                let because = |it: &&Observation| {
                    code.is_empty() || it.reasons.iter().any(|reason| reason.code == code)
                };
                let now = self
                    .seen
                    .get(uid)
                    .filter(|observation| observation.state() == state)
                    .filter(because);
                if let Some(observation) = now {
                    return observation.clone();
                }
                self.step().await;
            }
        };
        match tokio::time::timeout(WAIT, found).await {
            Ok(observation) => observation,
            Err(_) => panic!(
                "{uid} should become {state:?} {code}, is {:?} after {:?}",
                self.seen.get(uid),
                self.states.get(uid)
            ),
        }
    }

    /// Waits until the agent reports this much free cpu in the test's queue.
    async fn until_available(&mut self, expected: i64) {
        let found = async {
            loop {
                let mine =
                    self.capacity.queues.iter().find(|queue| queue.namespace == self.namespace);
                if mine
                    .and_then(|queue| queue.flavors.first())
                    .is_some_and(|flavor| flavor.available == expected)
                {
                    return;
                }
                self.step().await;
            }
        };
        let found = tokio::time::timeout(WAIT, found).await;
        assert!(found.is_ok(), "{expected} should be available: {:?}", self.capacity);
    }

    /// Sets the payload of a workload: the job with the API server's defaults, as a hub stores it.
    async fn payload(&mut self, uid: &str, job: JobBuilder) {
        let jobs = self.cluster.dynamic("batch/v1", "Job", &self.home).await.unwrap();
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let made = serde_json::from_value(job.queue("queue").suspended().build()).unwrap();
        let mut job = serde_json::to_value(jobs.create(&dry_run, &made).await.unwrap()).unwrap();
        job["metadata"]["namespace"] = self.namespace.clone().into();
        let kind = kind_for("batch", "Job").unwrap();
        let name = workload_name(uid);
        let workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"queueName": "queue", "podSets": kind.pod_sets(&job).unwrap()},
        });
        let job = kind
            .remote()
            .unwrap()
            .remote_copy(&job, RemoteMeta { workload: &name, origin: "multikueue" });
        let bytes = |value: &Value| serde_json::to_vec(value).unwrap();
        self.payloads.insert(uid.to_owned(), Payload::new(bytes(&workload), bytes(&job)));
    }

    async fn want(&mut self, uid: &str, attempt: u64, phase: Phase) {
        let base_revision = self.revision;
        self.revision += 1;
        let payload = self.payloads.get(uid).filter(|_| phase != Phase::Absent).cloned();
        let assignment = Assignment {
            workload_uid: uid.to_owned(),
            namespace: self.namespace.clone(),
            name: workload_name(uid),
            attempt,
            phase: phase.into(),
            payload_hash: payload.as_ref().map(|payload| payload.hash.clone()).unwrap_or_default(),
            ..Assignment::default()
        };
        self.say(hub_message::Kind::Desired(Desired {
            revision: self.revision,
            snapshot: base_revision == 0,
            base_revision,
            payloads: payload.into_iter().collect(),
            assignments: vec![assignment],
            more: false,
        }))
        .await;
    }

    async fn quota(&self, cpu: &str) {
        self.cluster
            .apply(queues::simple(&self.namespace, &self.hub_id, &[("cpu", cpu)]))
            .await
            .unwrap();
        let queues: Api<LocalQueue> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let active = async || {
            let status = queues.get("queue").await?.status.unwrap_or_default();
            anyhow::ensure!(
                status.conditions.iter().any(|it| it.type_ == "Active" && it.status == "True"),
                "{status:?}"
            );
            Ok(())
        };
        wait::eventually(WAIT, "the queue is active", active).await.unwrap();
    }

    fn job(&self, name: &str) -> JobBuilder {
        JobBuilder::new(&self.home, name).cpu("1")
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.cluster.admin.clone(), &self.namespace)
    }

    fn workloads(&self) -> Api<Workload> {
        Api::namespaced(self.cluster.admin.clone(), &self.namespace)
    }

    async fn nothing_is_left(&self) {
        assert!(self.workloads().list(&Default::default()).await.unwrap().items.is_empty());
        assert!(self.jobs().list(&Default::default()).await.unwrap().items.is_empty());
    }
}

fn workload_name(uid: &str) -> String {
    format!("job-{uid}")
}

fn agent(
    handle: &Handle,
    client: Client,
    hub_id: &str,
) -> (HubEnd, (CancellationToken, JoinHandle<anyhow::Result<()>>)) {
    let (link, end) = link::pair();
    let (capacity, task) = capacity::from_controller(
        handle.capacity.clone(),
        tokio::sync::watch::channel(Arc::default()).1,
    );
    let settings = Settings {
        cluster: "worker".to_owned(),
        cluster_uid: String::new(),
        hub_id: hub_id.to_owned(),
        origin: "multikueue".to_owned(),
        boot_id: fixture::unique("boot"),
        software: "test".to_owned(),
        namespaces: AllowedNamespaces::All,
        frameworks: vec!["batch/job".to_owned()],
        allowed: switchyard_agent::Allowed::default(),
        dry_runs: None,
        keys: switchyard_agent::proof::Keys::none(),
        foreign: switchyard_agent::foreign::Foreign::default(),
        concurrency: 8,
        memory: None,
    };
    let shutdown = CancellationToken::new();
    let source = CapacitySource::Embedded(capacity);
    let started = admissions(handle.context.clone());
    let core =
        run_core_with(client, link::once(link), source, settings, Some(started), shutdown.clone());
    let core = tokio::spawn(async move {
        let _task = task;
        core.await
    });
    (end, (shutdown, core))
}

#[test]
fn job_is_reserved_run_and_collected() {
    fixture::run(async {
        let mut hub = Hub::start("whole").await;
        hub.quota("2").await;
        hub.payload("u1", hub.job("a").run_forever()).await;
        hub.want("u1", 1, Phase::Reserve).await;
        hub.until("u1", State::Reserved).await;
        assert!(
            hub.jobs().list(&Default::default()).await.unwrap().items.is_empty(),
            "a reservation runs nothing"
        );
        hub.want("u1", 1, Phase::Run).await;
        hub.until("u1", State::Running).await;
        job::running_pods_succeed(&hub.cluster.admin, &hub.namespace, "a", WAIT).await.unwrap();
        let end = hub.until("u1", State::Succeeded).await;
        let status: Value = serde_json::from_slice(&end.job_status).unwrap();
        assert_eq!(status["succeeded"], 1, "{status}");
        hub.want("u1", 1, Phase::Absent).await;
        hub.until("u1", State::Gone).await;
        hub.nothing_is_left().await;
        let mut states = hub.states.remove("u1").unwrap();
        states.dedup();
        assert_eq!(
            states,
            [State::Waiting, State::Reserved, State::Running, State::Succeeded, State::Gone]
        );
    });
}

#[test]
fn end_survives_agent_restart_until_acknowledged() {
    fixture::run(async {
        let mut hub = Hub::start("held").await;
        hub.quota("2").await;
        hub.payload(
            "u1",
            hub.job("a").run_for(Duration::from_millis(100)).fails().backoff_limit(0),
        )
        .await;
        hub.acknowledge = false;
        hub.want("u1", 1, Phase::Run).await;
        hub.until("u1", State::Failed).await;
        // Times are whole seconds: a failure in the second of the deletion would count as its
        // effect.
        let ended = Timestamp::now().as_second();
        let later = async || {
            anyhow::ensure!(Timestamp::now().as_second() > ended, "the same second");
            Ok(())
        };
        wait::eventually(WAIT, "the next second", later).await.unwrap();
        // Another client on the worker deletes the job, which stays.
        hub.jobs().delete("a", &DeleteParams::background()).await.unwrap();
        hub.restart_agent().await;
        hub.until("u1", State::Failed).await;
        hub.restart_agent().await;
        hub.acknowledge = true;
        hub.until("u1", State::Failed).await;
        // A hub that does not name the workload may have lost its store and still need the end. A
        // hub that assigns it again knows the end.
        hub.want("u1", 1, Phase::Absent).await;
        hub.until("u1", State::Gone).await;
        hub.nothing_is_left().await;
    });
}

#[test]
fn running_job_is_deleted_with_pods_before_next_attempt() {
    fixture::run(async {
        let mut hub = Hub::start("again").await;
        hub.quota("1").await;
        hub.payload("u1", hub.job("a").run_forever()).await;
        hub.want("u1", 1, Phase::Run).await;
        hub.until("u1", State::Running).await;
        let first = hub.jobs().get("a").await.unwrap().metadata.uid;
        hub.want("u1", 2, Phase::Run).await;
        loop {
            let running = hub.until("u1", State::Running).await;
            if running.attempt == 2 {
                break;
            }
            hub.step().await;
        }
        assert_ne!(hub.jobs().get("a").await.unwrap().metadata.uid, first);
        hub.want("u1", 2, Phase::Absent).await;
        hub.until("u1", State::Gone).await;
        hub.nothing_is_left().await;
    });
}

#[test]
fn suspended_job_is_resumed() {
    fixture::run(async {
        let mut hub = Hub::start("suspend").await;
        hub.quota("1").await;
        hub.payload("u1", hub.job("a").run_forever()).await;
        hub.want("u1", 1, Phase::Run).await;
        hub.until("u1", State::Running).await;
        hub.want("u1", 1, Phase::Suspend).await;
        hub.until("u1", State::Suspended).await;
        hub.want("u1", 1, Phase::Run).await;
        hub.until("u1", State::Running).await;
    });
}

#[test]
fn job_that_cannot_run_reports_why() {
    fixture::run(async {
        let mut hub = Hub::start("unfit").await;
        hub.payload("noqueue", hub.job("a")).await;
        hub.want("noqueue", 1, Phase::Reserve).await;
        hub.until_because("noqueue", State::Unfit, "Misconfigured").await;
        hub.quota("2").await;
        hub.until("noqueue", State::Reserved).await;

        hub.payload("large", hub.job("b").cpu("9")).await;
        hub.want("large", 1, Phase::Reserve).await;
        hub.until_because("large", State::Unfit, "ExceedsMaxQuota").await;

        hub.payload("waits", hub.job("c").cpu("2")).await;
        hub.want("waits", 1, Phase::Reserve).await;
        hub.until_because("waits", State::Waiting, "WaitingForQuota").await;
        hub.want("noqueue", 1, Phase::Absent).await;
        hub.until("waits", State::Reserved).await;

        let elsewhere = std::mem::replace(&mut hub.namespace, "no-such-namespace".to_owned());
        hub.payload("nowhere", hub.job("d")).await;
        hub.want("nowhere", 1, Phase::Reserve).await;
        hub.until_because("nowhere", State::Unfit, "NamespaceNotFound").await;
        hub.namespace = elsewhere;
    });
}

#[test]
fn foreign_object_with_same_name_is_refused_and_kept() {
    fixture::run(async {
        let mut hub = Hub::start("way").await;
        hub.quota("2").await;
        hub.payload("u1", hub.job("a")).await;
        let theirs = hub
            .job("a")
            .label("owner", "somebody")
            .suspended()
            .create(&hub.cluster.admin)
            .await
            .unwrap();
        hub.want("u1", 1, Phase::Run).await;
        let refused = hub.until("u1", State::Refused).await;
        assert_eq!(refused.reasons[0].code, "ObjectInTheWay");
        hub.want("u1", 1, Phase::Absent).await;
        hub.until("u1", State::Gone).await;
        let still = hub.jobs().get("a").await.unwrap();
        assert_eq!(still.metadata.uid, theirs.metadata.uid);
        assert_eq!(still.metadata.deletion_timestamp, None);
    });
}

#[test]
fn capacity_follows_reservations() {
    fixture::run(async {
        let mut hub = Hub::start("capacity").await;
        hub.quota("4").await;
        hub.payload("u1", hub.job("a").cpu("1500m")).await;
        hub.until_available(4000).await;
        hub.want("u1", 1, Phase::Reserve).await;
        hub.until_available(2500).await;
    });
}
