//! A namespace and a ClusterQueue for one test, on a cluster that all tests of a file share, under one controller.

pub(crate) mod several;

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Namespace};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_api::{
    conditions,
    v1beta2::{AdmissionCheck, CheckState, ClusterQueue, LocalQueue, Workload},
};
use switchyard_config::{self as config, Configuration};
use switchyard_controller::{Handle, Options};
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, fixture, job, queues, wait,
};
use tokio::sync::OnceCell;

/// Longer than anything here takes on a busy machine.
pub(crate) const WAIT: Duration = Duration::from_secs(120);

const API: &str = "kueue.x-k8s.io/v1beta2";

static ENVIRONMENT: OnceCell<Environment> = OnceCell::const_new();
static CONTROLLER: OnceCell<Handle> = OnceCell::const_new();

/// `/metrics` of the controller that all tests of a file share.
pub(crate) fn metrics() -> String {
    CONTROLLER.get().map(|handle| handle.context.metrics.render()).unwrap_or_default()
}

async fn environment() -> &'static Environment {
    let start = async || {
        let nodes = [
            NodeSpec::new("plain").cpu(64),
            NodeSpec::new("spot").cpu(16).label("pool", "spot").taint("spot", "true", "NoSchedule"),
            NodeSpec::new("gpu").cpu(16).gpu(8).label("pool", "gpu"),
        ];
        // For the kinds of Kubernetes itself that are queued by their pods.
        let controllers =
            ["deployment-controller", "replicaset-controller", "statefulset-controller"];
        let one = controllers
            .iter()
            .fold(ClusterSpec::new("one").nodes(nodes), |one, it| one.controller(*it));
        Environment::builder("single").cluster(one).start().await.unwrap()
    };
    ENVIRONMENT.get_or_init(start).await
}

/// Starts a controller in this process, with the rights of single mode.
pub(crate) async fn controller(cluster: &Cluster, identity: &str) -> Handle {
    configured_controller(cluster, identity, Configuration::default()).await
}

/// The same with a configuration.
pub(crate) async fn configured_controller(
    cluster: &Cluster,
    identity: &str,
    config: Configuration,
) -> Handle {
    controller_with(cluster, identity, config, |_| {}).await
}

async fn controller_with(
    cluster: &Cluster,
    identity: &str,
    mut config: Configuration,
    change: impl FnOnce(&mut Options),
) -> Handle {
    // The finer reasons tell apart what tests wait for.
    config.feature_gates.entry("UnadmittedWorkloadsObservability".to_owned()).or_insert(true);
    let (client, _) = cluster.service_account("switchyard-system", "switchyard").await.unwrap();
    let mut options = Options::new(client, Arc::new(config), identity, "switchyard-system");
    change(&mut options);
    let handle = switchyard_controller::start(options).unwrap();
    handle.ready(WAIT).await.unwrap();
    handle
}

/// See the module.
pub(crate) struct Bed {
    environment: &'static Environment,
    /// The namespace.
    pub(crate) namespace: String,
    /// Name of the ClusterQueue and of its flavor.
    pub(crate) name: String,
}

impl Bed {
    /// On a cluster of its own environment, which has what `deploy/` ships and whatever controller the test starts.
    pub(crate) async fn on(environment: &'static Environment, stem: &str) -> Self {
        let namespace = environment.cluster("one").namespace(stem).await.unwrap();
        Self { name: fixture::unique(stem), environment, namespace }
    }

    pub(crate) async fn new(stem: &str) -> Self {
        Self::configured(stem, "").await
    }

    /// Under a controller with these sections of the configuration file. The first test of a file decides: all of them
    /// give the same.
    pub(crate) async fn configured(stem: &str, sections: &str) -> Self {
        Self::with_options(stem, sections, |_, _| {}).await
    }

    /// The same with other options.
    pub(crate) async fn with_options(
        stem: &str,
        sections: &str,
        change: impl FnOnce(&Cluster, &mut Options),
    ) -> Self {
        let environment = environment().await;
        let cluster = environment.cluster("one");
        let start = async || {
            cluster.install().await.unwrap();
            let file = format!(
                "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{sections}\n"
            );
            let config = config::load(&file).unwrap();
            controller_with(cluster, "single", config, |options| change(cluster, options)).await
        };
        CONTROLLER.get_or_init(start).await;
        Self::on(environment, stem).await
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.environment.cluster("one")
    }

    pub(crate) fn admin(&self) -> &Client {
        &self.cluster().admin
    }

    /// A flavor, this ClusterQueue, and LocalQueue `queue`.
    pub(crate) async fn apply(&self, cluster_queue: Value) {
        let flavor = queues::ResourceFlavor::new(&self.name).build();
        let local = queues::local_queue(&self.namespace, "queue", &self.name);
        self.cluster().apply([flavor, cluster_queue, local]).await.unwrap();
    }

    pub(crate) async fn simple(&self, quota: &[(&str, &str)]) {
        self.cluster().apply(queues::simple(&self.namespace, &self.name, quota)).await.unwrap();
    }

    /// A job in LocalQueue `queue`, suspended as the webhook would.
    pub(crate) fn job(&self, name: &str) -> JobBuilder {
        self.plain_job(name).suspended()
    }

    /// A job in LocalQueue `queue`, not suspended.
    pub(crate) fn plain_job(&self, name: &str) -> JobBuilder {
        JobBuilder::new(&self.namespace, name).queue("queue")
    }

    /// The workloads of the namespace. Repeats the request while the API server is too busy.
    pub(crate) async fn workloads(&self) -> Vec<Workload> {
        let api: Api<Workload> = Api::namespaced(self.admin().clone(), &self.namespace);
        let list = async || Ok(api.list(&Default::default()).await?.items);
        wait::eventually(WAIT, "the list of workloads", list).await.unwrap()
    }

    async fn find(&self, job: &str) -> anyhow::Result<Workload> {
        let owned = |workload: &Workload| {
            workload.metadata.owner_references.iter().flatten().any(|owner| owner.name == job)
        };
        self.workloads()
            .await
            .into_iter()
            .find(owned)
            .ok_or_else(|| anyhow::anyhow!("no workload of {job}"))
    }

    /// Waits until what is created next is younger than every workload here: those of one second are ordered by their
    /// uid.
    pub(crate) async fn next_second(&self) {
        let check = async || {
            let created = |workload: Workload| {
                workload.metadata.creation_timestamp.map(|time| time.0.as_second())
            };
            let newest = self.workloads().await.into_iter().filter_map(created).max();
            // The API server runs on this machine and has its clock.
            ensure!(newest < Some(Timestamp::now().as_second()), "the newest is of this second");
            Ok(())
        };
        wait::eventually(WAIT, "the next second", check).await.unwrap();
    }

    /// The workload of a job, when there is one.
    pub(crate) async fn workload_of(&self, job: &str) -> Workload {
        wait::eventually(WAIT, format!("the workload of {job}"), async || self.find(job).await)
            .await
            .unwrap()
    }

    /// Waits for a condition. An empty message stands for any.
    pub(crate) async fn expect(
        &self,
        job: &str,
        type_: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) {
        let check = async || {
            let workload = self.find(job).await?;
            let known = workload.status.map(|status| status.conditions).unwrap_or_default();
            let found = conditions::find(&known, type_)
                .map(|c| (c.status.clone(), c.reason.clone(), c.message.clone()));
            let (got, why, said) = found.unwrap_or_default();
            ensure!(
                got == status && why == reason && (message.is_empty() || said == message),
                "{type_} of {job} is {got} {why}: {said:?}"
            );
            Ok(())
        };
        wait::eventually(WAIT, format!("{type_}={status} {reason} {message:?} of {job}"), check)
            .await
            .unwrap();
    }

    pub(crate) async fn is_true(&self, job: &str, type_: &str) -> bool {
        let status = self.find(job).await.ok().and_then(|workload| workload.status);
        status.is_some_and(|status| conditions::is_true(&status.conditions, type_))
    }

    pub(crate) async fn expect_true(&self, job: &str, type_: &str) {
        let check = async || {
            let status = self.find(job).await?.status.unwrap_or_default();
            // A waiting job may wait for another.
            let others = self.held().await;
            ensure!(
                conditions::is_true(&status.conditions, type_),
                "conditions {:?}; {others:?} hold quota",
                status.conditions
            );
            Ok(())
        };
        wait::eventually(WAIT, format!("{type_} of {job}"), check).await.unwrap();
    }

    /// The workloads that hold quota, by name.
    async fn held(&self) -> Vec<String> {
        let holds = |workload: &Workload| {
            let status = workload.status.as_ref();
            status.is_some_and(|status| {
                conditions::is_true(&status.conditions, conditions::QUOTA_RESERVED)
            })
        };
        self.workloads()
            .await
            .iter()
            .filter(|workload| holds(workload))
            .map(|it| it.name_any())
            .collect()
    }

    /// When a condition became what it is.
    pub(crate) async fn time(&self, job: &str, type_: &str) -> Timestamp {
        let status = self.workload_of(job).await.status.unwrap();
        conditions::find(&status.conditions, type_).unwrap().last_transition_time.0
    }

    async fn get_job(&self, name: &str) -> anyhow::Result<Job> {
        Ok(Api::namespaced(self.admin().clone(), &self.namespace).get(name).await?)
    }

    pub(crate) async fn job_uid(&self, name: &str) -> String {
        self.get_job(name).await.unwrap().metadata.uid.unwrap()
    }

    /// Waits until a job is suspended without pods, or not suspended.
    pub(crate) async fn suspended(&self, name: &str, suspended: bool) {
        let check = async || {
            let job = self.get_job(name).await?;
            let is = job.spec.and_then(|spec| spec.suspend).unwrap_or(false);
            let active = job.status.and_then(|status| status.active).unwrap_or(0);
            ensure!(
                is == suspended && (!suspended || active == 0),
                "suspend {is}, {active} pods active"
            );
            Ok(())
        };
        wait::eventually(WAIT, format!("suspend={suspended} of job {name}"), check).await.unwrap();
    }

    /// Waits until a job has a pod.
    pub(crate) async fn running(&self, name: &str) -> Job {
        let check = async || {
            let job = self.get_job(name).await?;
            ensure!(
                job.status.as_ref().and_then(|status| status.active).unwrap_or(0) > 0,
                "{:?}",
                job.status
            );
            Ok(job)
        };
        wait::eventually(WAIT, format!("pods of job {name}"), check).await.unwrap()
    }

    /// Lets the pods of a job succeed, once it has some.
    pub(crate) async fn pods_succeed(&self, name: &str) {
        self.running(name).await;
        job::pods_succeed(self.admin(), &self.namespace, name).await.unwrap();
    }

    pub(crate) async fn patch_job(&self, name: &str, patch: Value) {
        let api: Api<Job> = Api::namespaced(self.admin().clone(), &self.namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) async fn delete_job(&self, name: &str) {
        let api: Api<Job> = Api::namespaced(self.admin().clone(), &self.namespace);
        api.delete(name, &DeleteParams::background()).await.unwrap();
    }

    pub(crate) async fn no_workloads(&self) {
        self.workload_count(0).await;
    }

    /// Waits until the namespace has so many Workloads.
    pub(crate) async fn workload_count(&self, count: usize) {
        let check = async || {
            let found: Vec<_> =
                self.workloads().await.into_iter().map(|workload| workload.metadata).collect();
            ensure!(found.len() == count, "{found:?}");
            Ok(())
        };
        wait::eventually(WAIT, format!("{count} workloads"), check).await.unwrap();
    }

    pub(crate) async fn set_active(&self, job: &str, active: bool) {
        let name = self.workload_of(job).await.metadata.name.unwrap();
        let api: Api<Workload> = Api::namespaced(self.admin().clone(), &self.namespace);
        api.patch(
            &name,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"active": active}})),
        )
        .await
        .unwrap();
    }

    pub(crate) async fn delete_workload(&self, name: &str) {
        let api: Api<Workload> = Api::namespaced(self.admin().clone(), &self.namespace);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Sets the policy, and waits until the controller has seen a stop.
    pub(crate) async fn stop_cluster_queue(&self, policy: &str) {
        let api: Api<ClusterQueue> = Api::all(self.admin().clone());
        api.patch(
            &self.name,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"stopPolicy": policy}})),
        )
        .await
        .unwrap();
        if policy != "None" {
            let stopped = async || {
                let known = api
                    .get(&self.name)
                    .await?
                    .status
                    .map(|status| status.conditions)
                    .unwrap_or_default();
                let active = conditions::find(&known, "Active")
                    .map(|it| (it.status.as_str(), it.reason.as_str()));
                ensure!(active == Some(("False", "Stopped")), "Active={active:?}");
                Ok(())
            };
            wait::eventually(WAIT, format!("ClusterQueue {} to be stopped", self.name), stopped)
                .await
                .unwrap();
        }
    }

    pub(crate) async fn stop_local_queue(&self, policy: &str) {
        let api: Api<LocalQueue> = Api::namespaced(self.admin().clone(), &self.namespace);
        api.patch(
            "queue",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"stopPolicy": policy}})),
        )
        .await
        .unwrap();
    }

    pub(crate) async fn label_namespace(&self, key: &str, value: &str) {
        let api: Api<Namespace> = Api::all(self.admin().clone());
        let patch = json!({"metadata": {"labels": {key: value}}});
        api.patch(&self.namespace, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits for the `Active` condition of the ClusterQueue.
    pub(crate) async fn cluster_queue_condition(&self, status: &str, reason: &str, message: &str) {
        let api: Api<ClusterQueue> = Api::all(self.admin().clone());
        let check = async || {
            let queue = api.get(&self.name).await?;
            active(
                &queue.status.map(|status| status.conditions).unwrap_or_default(),
                status,
                reason,
                message,
            )
        };
        wait::eventually(WAIT, format!("ClusterQueue Active={status} {reason} {message:?}"), check)
            .await
            .unwrap();
    }

    /// Waits for the `Active` condition of a LocalQueue.
    pub(crate) async fn local_queue_condition(
        &self,
        name: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) {
        let api: Api<LocalQueue> = Api::namespaced(self.admin().clone(), &self.namespace);
        let check = async || {
            let queue = api.get(name).await?;
            active(
                &queue.status.map(|status| status.conditions).unwrap_or_default(),
                status,
                reason,
                message,
            )
        };
        wait::eventually(WAIT, format!("LocalQueue Active={status} {reason} {message:?}"), check)
            .await
            .unwrap();
    }

    /// Waits until both queues show these counts.
    pub(crate) async fn queue_status(&self, pending: i32, reserving: i32, admitted: i32) {
        let clusters: Api<ClusterQueue> = Api::all(self.admin().clone());
        let locals: Api<LocalQueue> = Api::namespaced(self.admin().clone(), &self.namespace);
        let check = async || {
            let cluster = clusters.get(&self.name).await?.status.unwrap_or_default();
            let local = locals.get("queue").await?.status.unwrap_or_default();
            let shown = [
                (
                    cluster.pending_workloads,
                    cluster.reserving_workloads,
                    cluster.admitted_workloads,
                ),
                (local.pending_workloads, local.reserving_workloads, local.admitted_workloads),
            ];
            ensure!(shown == [(pending, reserving, admitted); 2], "{shown:?}");
            Ok(())
        };
        wait::eventually(WAIT, "counts of the queues", check).await.unwrap();
    }

    async fn cluster_api(&self, kind: &str) -> Api<DynamicObject> {
        self.cluster().dynamic(API, kind, "").await.unwrap()
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        self.cluster_api(kind).await.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn gone(&self, kind: &str, name: &str) {
        let api = self.cluster_api(kind).await;
        let check = async || {
            ensure!(api.get_opt(name).await?.is_none(), "it is still there");
            Ok(())
        };
        wait::eventually(WAIT, format!("{kind} {name} to be gone"), check).await.unwrap();
    }

    /// Answers for the controller of the AdmissionCheck: it is active.
    pub(crate) async fn activate_check(&self) {
        let api: Api<AdmissionCheck> = Api::all(self.admin().clone());
        let condition = json!({
            "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
        });
        let patch = json!({"status": {"conditions": [condition]}});
        api.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Answers for the controller of the AdmissionCheck about one workload.
    pub(crate) async fn answer_check(&self, job: &str, state: &str) {
        let api: Api<Workload> = Api::namespaced(self.admin().clone(), &self.namespace);
        let answer = async || {
            let mut workload = self.find(job).await?;
            let status = workload.status.get_or_insert_default();
            let check = status.admission_checks.iter_mut().find(|check| check.name == self.name);
            let check = check.ok_or_else(|| anyhow::anyhow!("no state of the check"))?;
            check.state = serde_json::from_value::<CheckState>(json!(state))?;
            check.message = format!("said {state}");
            let name = workload.metadata.name.clone().unwrap_or_default();
            api.replace_status(&name, &Default::default(), &workload).await?;
            Ok(())
        };
        wait::eventually(WAIT, format!("an answer about {job}"), answer).await.unwrap();
    }
}

fn active(
    known: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    status: &str,
    reason: &str,
    message: &str,
) -> anyhow::Result<()> {
    let found = conditions::find(known, conditions::ACTIVE)
        .map(|c| (c.status.as_str(), c.reason.as_str(), c.message.as_str()));
    ensure!(found == Some((status, reason, message)), "{found:?}");
    Ok(())
}
