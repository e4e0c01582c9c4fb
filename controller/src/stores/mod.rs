//! The cluster as we see it: one watch and one [`Store`] a kind, shared by engine, reconcilers, webhooks and status.

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::{
    core::v1::{LimitRange, Namespace, Node, Pod, PodTemplate},
    node::v1::RuntimeClass,
    scheduling::v1::PriorityClass,
};
use kube::{
    Api, Client, Resource,
    api::ApiResource,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use switchyard_api::{
    autoscaling::ProvisioningRequest,
    devices::{DeviceClass, ResourceClaimTemplate},
    names, v1beta2,
};
use switchyard_config::Configuration;
use switchyard_jobs::{Held, JobKind, KindId, enabled_kinds, kind_for};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    reconcilers::{elastic, failure_recovery, job::owners, topology},
    role::Role,
    stores::pods::PodRecord,
    workload,
};
use switchyard_platform::{
    errors::with_root_cause,
    object::Object,
    optional_crd::{CrdBackoff, is_unknown_kind},
    store::{Feed, Store},
};

/// The watched objects of one job kind.
#[derive(Clone, Debug)]
pub struct JobStore {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Its objects.
    pub store: Store<Object>,
}

/// One store a kind. `managedFields` is stripped from all objects.
#[derive(Clone, Debug, Default)]
pub struct Stores {
    /// The enabled job kinds.
    pub jobs: Vec<JobStore>,
    /// What the pods of some of them depend on.
    pub dependencies: Vec<JobStore>,
    /// Workloads.
    pub workloads: Store<v1beta2::Workload>,
    /// ClusterQueues.
    pub cluster_queues: Store<v1beta2::ClusterQueue>,
    /// LocalQueues.
    pub local_queues: Store<v1beta2::LocalQueue>,
    /// Cohorts.
    pub cohorts: Store<v1beta2::Cohort>,
    /// Topologies.
    pub topologies: Store<v1beta2::Topology>,
    /// ResourceFlavors.
    pub resource_flavors: Store<v1beta2::ResourceFlavor>,
    /// WorkloadPriorityClasses.
    pub workload_priority_classes: Store<v1beta2::WorkloadPriorityClass>,
    /// AdmissionChecks.
    pub admission_checks: Store<v1beta2::AdmissionCheck>,
    /// MultiKueueClusters; watched on a hub only, empty elsewhere.
    pub multi_kueue_clusters: Store<v1beta2::MultiKueueCluster>,
    /// MultiKueueConfigs; watched on a hub only, empty elsewhere.
    pub multi_kueue_configs: Store<v1beta2::MultiKueueConfig>,
    /// ProvisioningRequestConfigs.
    pub provisioning_request_configs: Store<v1beta2::ProvisioningRequestConfig>,
    /// ProvisioningRequests; their CRD is the cluster autoscaler's.
    pub provisioning_requests: Store<ProvisioningRequest>,
    /// Of PodTemplates, those that we made for ProvisioningRequests, and of them the metadata.
    pub pod_templates: Store<PartialObjectMeta<PodTemplate>>,
    /// The metadata of pods that are to end and may be deleted by force; watched with `FailureRecoveryPolicy` only.
    pub ending_pods: Store<PartialObjectMeta<Pod>>,
    /// The pods of elastic jobs.
    pub elastic_pods: Store<Pod>,
    /// Namespaces.
    pub namespaces: Store<Namespace>,
    /// Kubernetes' own PriorityClasses.
    pub priority_classes: Store<PriorityClass>,
    /// LimitRanges, for the defaults of pods' requests.
    pub limit_ranges: Store<LimitRange>,
    /// RuntimeClasses, for the overhead of pods.
    pub runtime_classes: Store<RuntimeClass>,
    /// ResourceClaimTemplates, for the devices of pods; watched with `KueueDRAIntegration` only.
    pub claim_templates: Store<ResourceClaimTemplate>,
    /// DeviceClasses, likewise, and with `KueueDRAIntegrationExtendedResource`.
    pub device_classes: Store<DeviceClass>,
    /// Nodes, for topology-aware scheduling; read from when the first Topology is there.
    pub nodes: Store<Node>,
    /// What pods use of nodes, and those that it placed; likewise.
    pub pods: Store<PodRecord>,
    // Whether topology-aware scheduling is on.
    reads_nodes: bool,
    /// What was read of owners that are not watched.
    pub(crate) owners: owners::Recent,
}

/// The state of one watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchState {
    /// Plural name of the kind.
    pub kind: String,
    /// Whether the first list was read.
    pub ready: bool,
    /// For how long the watch has not run, if it does not.
    pub broken_for: Option<Duration>,
}

impl Stores {
    /// Empty stores for the kinds that the configuration enables.
    #[must_use]
    pub fn new(config: &Configuration) -> Self {
        let store = |id: KindId| JobStore { resource: id.api_resource(), store: Store::default() };
        let mut enabled = enabled_kinds(&config.all_frameworks());
        enabled.retain(|kind| kind.is_watched());
        let dependencies = enabled.iter().flat_map(|kind| kind.dependencies());
        // One watch for each kind.
        let dependencies =
            dependencies.filter(|needed| enabled.iter().all(|kind| kind.id() != **needed));
        let mut distinct: Vec<KindId> = Vec::new();
        for needed in dependencies {
            if !distinct.contains(needed) {
                distinct.push(*needed);
            }
        }
        let dependencies = distinct.into_iter().map(store).collect();
        let jobs = enabled.iter().map(|kind| store(kind.id())).collect();
        Self {
            jobs,
            dependencies,
            workloads: Store::fitted(workload::fit),
            elastic_pods: Store::fitted(elastic::fit),
            nodes: Store::fitted(topology::nodes::strip_unused_fields),
            reads_nodes: config.enabled(topology::GATE),
            ..Self::default()
        }
    }

    /// The store of a job kind.
    #[must_use]
    pub fn job(&self, group: &str, kind: &str) -> Option<&JobStore> {
        self.jobs.iter().find(|jobs| jobs.resource.group == group && jobs.resource.kind == kind)
    }

    /// The store of a kind that is watched, be it for its own sake or for that of jobs.
    #[must_use]
    pub fn watched(&self, group: &str, kind: &str) -> Option<&JobStore> {
        let is_it = |it: &&JobStore| it.resource.group == group && it.resource.kind == kind;
        self.jobs.iter().chain(&self.dependencies).find(is_it)
    }

    /// The job with what its pods depend on, as far as that is there.
    #[must_use]
    pub fn attached(&self, kind: &dyn JobKind, job: Arc<Object>) -> Arc<Object> {
        if kind.dependencies().is_empty() {
            return job;
        }
        let value = job.value();
        let Some(needed) = kind.depends_on(&value) else { return job };
        let watched = self.watched(needed.kind.group, needed.kind.kind);
        let Some(found) =
            watched.and_then(|watched| watched.store.get(&needed.namespace, &needed.name))
        else {
            return job;
        };
        let mut attached = Arc::unwrap_or_clone(value);
        kind.attach(&mut attached, &found.value());
        Object::new(attached).map_or(job, Arc::new)
    }

    /// The Cohorts above a ClusterQueue, the nearest first; none on a cycle.
    #[must_use]
    pub fn cohorts_above(&self, cluster_queue: &str) -> Vec<String> {
        let named = |name: Option<String>| name.filter(|name| !name.is_empty());
        let queue = self.cluster_queues.get("", cluster_queue);
        let mut next = queue.and_then(|queue| named(queue.spec.cohort_name.clone()));
        let mut above = Vec::new();
        while let Some(name) = next {
            if above.contains(&name) {
                return Vec::new();
            }
            next = self
                .cohorts
                .get("", &name)
                .and_then(|cohort| named(cohort.spec.parent_name.clone()));
            above.push(name);
        }
        above
    }

    /// Starts the watches. Each ends at `shutdown` only; errors are logged, backed off and shown by [`Stores::watches`].
    pub fn watch(
        &self,
        client: &Client,
        role: Role,
        config: &Configuration,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) {
        fn start<K>(
            store: &Store<K>,
            client: &Client,
            tasks: &mut JoinSet<anyhow::Result<()>>,
            shutdown: &CancellationToken,
        ) where
            K: Resource<DynamicType = ()>
                + Clone
                + DeserializeOwned
                + Debug
                + Send
                + Sync
                + 'static,
        {
            let (api, kind) = (Api::all(client.clone()), K::plural(&()).into_owned());
            let watch = watcher(api, watcher::Config::default()).default_backoff();
            tasks.spawn(feed(watch, kind, false, store.clone(), |_| (), shutdown.clone()));
        }
        start(&self.workloads, client, tasks, shutdown);
        start(&self.cluster_queues, client, tasks, shutdown);
        start(&self.local_queues, client, tasks, shutdown);
        start(&self.cohorts, client, tasks, shutdown);
        start(&self.topologies, client, tasks, shutdown);
        start(&self.resource_flavors, client, tasks, shutdown);
        start(&self.workload_priority_classes, client, tasks, shutdown);
        start(&self.admission_checks, client, tasks, shutdown);
        start(&self.provisioning_request_configs, client, tasks, shutdown);
        start(&self.namespaces, client, tasks, shutdown);
        start(&self.priority_classes, client, tasks, shutdown);
        start(&self.limit_ranges, client, tasks, shutdown);
        start(&self.runtime_classes, client, tasks, shutdown);
        if role == Role::Hub {
            start(&self.multi_kueue_clusters, client, tasks, shutdown);
            start(&self.multi_kueue_configs, client, tasks, shutdown);
        } else {
            self.multi_kueue_clusters.set_ready();
            self.multi_kueue_configs.set_ready();
        }
        self.watch_provisioning(client, tasks, shutdown);
        self.watch_devices(client, config, tasks, shutdown);
        self.watch_pods(client, config, tasks, shutdown);
        let (stores, on) = (self.clone(), self.reads_nodes);
        tasks.spawn(topology::watch::run(stores, client.clone(), on, shutdown.clone()));
        for jobs in self.jobs.iter().chain(&self.dependencies) {
            let api = Api::all_with(client.clone(), &jobs.resource);
            let resource = jobs.resource.clone();
            let typed = move |object: &mut Object| object.typed(&resource);
            let gated = kind_for(&jobs.resource.group, &jobs.resource.kind)
                .is_some_and(|it| it.held() == Held::Gated);
            // Of all pods of a cluster only those that are queued.
            let config = if gated { managed() } else { watcher::Config::default() };
            let watch = watcher(api, config).backoff(CrdBackoff::default());
            let kind = jobs.resource.plural.clone();
            tasks.spawn(feed(watch, kind, true, jobs.store.clone(), typed, shutdown.clone()));
        }
    }

    /// The pods that are looked after without being jobs.
    fn watch_pods(
        &self,
        client: &Client,
        config: &Configuration,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) {
        if config.enabled("FailureRecoveryPolicy") {
            let pods = watcher(
                Api::<PartialObjectMeta<Pod>>::all(client.clone()),
                watcher::Config::default(),
            )
            .default_backoff();
            let pods = pods.try_filter_map(|event| {
                std::future::ready(Ok(only(event, failure_recovery::is_eligible)))
            });
            tasks.spawn(feed(
                pods,
                "pods".to_owned(),
                false,
                self.ending_pods.clone(),
                |_| (),
                shutdown.clone(),
            ));
        } else {
            self.ending_pods.set_ready();
        }
        // There are few or none in most clusters: the API server finds them in its cache, without reading all pods from etcd.
        let elastic = watcher::Config::default()
            .labels(&format!("{}=true", names::ELASTIC_POD))
            .any_semantic();
        let pods = watcher(Api::<Pod>::all(client.clone()), elastic).default_backoff();
        tasks.spawn(feed(
            pods,
            "pods".to_owned(),
            false,
            self.elastic_pods.clone(),
            |_| (),
            shutdown.clone(),
        ));
    }

    fn watch_provisioning(
        &self,
        client: &Client,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) {
        let requests = watcher(Api::all(client.clone()), watcher::Config::default())
            .backoff(CrdBackoff::default());
        let (kind, store) =
            (ProvisioningRequest::plural(&()).into_owned(), self.provisioning_requests.clone());
        tasks.spawn(feed(requests, kind, true, store, |_| (), shutdown.clone()));
        let templates =
            watcher(Api::<PartialObjectMeta<PodTemplate>>::all(client.clone()), managed())
                .default_backoff();
        let (kind, store) = (PodTemplate::plural(&()).into_owned(), self.pod_templates.clone());
        tasks.spawn(feed(templates, kind, false, store, |_| (), shutdown.clone()));
    }

    /// Clusters before Kubernetes 1.34 have no devices. Of what is not charged nothing is looked at.
    fn watch_devices(
        &self,
        client: &Client,
        config: &Configuration,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) {
        let rules = config.device_rules();
        if !rules.charged {
            self.claim_templates.set_ready();
            self.device_classes.set_ready();
            return;
        }
        let templates = watcher(Api::all(client.clone()), watcher::Config::default())
            .backoff(CrdBackoff::default());
        let (kind, store) =
            (ResourceClaimTemplate::plural(&()).into_owned(), self.claim_templates.clone());
        tasks.spawn(feed(templates, kind, true, store, |_| (), shutdown.clone()));
        if !rules.extended_resources {
            self.device_classes.set_ready();
            return;
        }
        let classes = watcher(Api::all(client.clone()), watcher::Config::default())
            .backoff(CrdBackoff::default());
        let (kind, store) = (DeviceClass::plural(&()).into_owned(), self.device_classes.clone());
        tasks.spawn(feed(classes, kind, true, store, |_| (), shutdown.clone()));
    }

    /// Whether it is not known yet what nodes have: no pods are placed before.
    #[must_use]
    pub fn awaits_nodes(&self) -> bool {
        self.reads_nodes && !(self.nodes.is_ready() && self.pods.is_ready())
    }

    /// Waits until it is known what nodes have: for ever where no Topology asks.
    pub(crate) async fn nodes_known(&self) {
        self.nodes.ready().await;
        self.pods.ready().await;
    }

    /// Waits until every kind's first list is read.
    ///
    /// # Errors
    /// After `deadline`, naming the kinds that are missing.
    pub async fn ready(&self, deadline: Duration) -> anyhow::Result<()> {
        let all = async {
            loop {
                let placed = self.topologies.is_empty() || !self.awaits_nodes();
                if placed && self.watches().iter().all(|watch| watch.ready) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(deadline, all).await.is_err() {
            let mut missing: Vec<_> = self
                .watches()
                .into_iter()
                .filter(|watch| !watch.ready)
                .map(|watch| watch.kind)
                .collect();
            if missing.is_empty() {
                missing.push("nodes or pods".to_owned());
            }
            anyhow::bail!(
                "no list of {} within {} s: are the CRDs installed, and may the service account list and watch them?",
                missing.join(", "),
                deadline.as_secs()
            );
        }
        Ok(())
    }

    /// The state of every watch, for readiness.
    #[must_use]
    pub fn watches(&self) -> Vec<WatchState> {
        fn state<K: Resource<DynamicType = ()> + 'static>(store: &Store<K>) -> WatchState {
            WatchState {
                kind: K::plural(&()).into_owned(),
                ready: store.is_ready(),
                broken_for: store.broken_for(),
            }
        }
        let mut states = vec![
            state(&self.workloads),
            state(&self.cluster_queues),
            state(&self.local_queues),
            state(&self.cohorts),
            state(&self.topologies),
            state(&self.resource_flavors),
            state(&self.workload_priority_classes),
            state(&self.admission_checks),
            state(&self.provisioning_request_configs),
            state(&self.provisioning_requests),
            state(&self.pod_templates),
            state(&self.ending_pods),
            state(&self.elastic_pods),
            state(&self.multi_kueue_clusters),
            state(&self.multi_kueue_configs),
            state(&self.namespaces),
            state(&self.priority_classes),
            state(&self.limit_ranges),
            state(&self.runtime_classes),
            state(&self.claim_templates),
            state(&self.device_classes),
        ];
        // They may be read late, when the first Topology comes: nobody but the engine waits for them then.
        states.extend(
            [state(&self.nodes), state(&self.pods)].into_iter().filter(|state| state.ready),
        );
        states.extend(self.jobs.iter().chain(&self.dependencies).map(|jobs| WatchState {
            kind: jobs.resource.plural.clone(),
            ready: jobs.store.is_ready(),
            broken_for: jobs.store.broken_for(),
        }));
        states
    }
}

/// The event as it is for those who want only some of the objects: what they do not want is not there.
fn only<K>(event: Event<K>, wanted: impl Fn(&K) -> bool) -> Option<Event<K>> {
    match event {
        Event::Apply(object) if !wanted(&object) => Some(Event::Delete(object)),
        Event::InitApply(object) if !wanted(&object) => None,
        event => Some(event),
    }
}

/// What bears our label.
fn managed() -> watcher::Config {
    watcher::Config::default().labels(&format!("{}=true", names::MANAGED))
}

/// Keeps one store in step with the server. A kind that is `awaited` may not be there yet: until it is, it has no objects.
pub(crate) async fn feed<K>(
    watch: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send,
    kind: String,
    awaited: bool,
    store: Store<K>,
    modify: impl Fn(&mut K) + Send + 'static,
    shutdown: CancellationToken,
) -> anyhow::Result<()>
where
    K: Resource + Send + Sync + 'static,
{
    let events = watch.map_ok(|event| event.modify(&modify));
    tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        result = follow(events, &kind, Feed::new(store), |error| awaited && is_unknown_kind(error)) => result,
    }
}

/// A watch that was broken goes on without a word where nothing happens. One that fails says so within this time: the
/// longest pause between two tries (30 s, and as much again at random) and the time that a connection may take.
const QUIET: Duration = Duration::from_secs(95);

async fn follow<K, E>(
    events: impl Stream<Item = Result<Event<K>, E>>,
    kind: &str,
    mut feed: Feed<K>,
    is_absent: impl Fn(&E) -> bool,
) -> anyhow::Result<()>
where
    K: Resource + 'static,
    E: std::error::Error + 'static,
{
    let mut events = std::pin::pin!(events);
    let (mut broken, mut absent) = (false, false);
    loop {
        let next = if broken {
            tokio::time::timeout(QUIET, events.next()).await
        } else {
            Ok(events.next().await)
        };
        let recovered = match next {
            Ok(Some(Ok(event))) => {
                if absent && matches!(event, Event::InitDone) {
                    absent = false;
                    tracing::info!(kind, "the kind is there now");
                }
                feed.apply(event)
            }
            Ok(Some(Err(error))) if is_absent(&error) => {
                if !absent {
                    absent = true;
                    tracing::info!(
                        kind,
                        "the cluster does not know this kind, waiting for its CRD"
                    );
                }
                feed.absent()
            }
            Ok(Some(Err(error))) => {
                let error = with_root_cause(&error);
                broken = true;
                // Every kind tries again every few seconds: it is said when it begins and when it is over.
                if feed.failed() {
                    tracing::warn!(kind, error, "watch failed, retrying");
                } else {
                    tracing::debug!(kind, error, "watch failed again");
                }
                false
            }
            Ok(None) => anyhow::bail!("the watch of {kind} ended"),
            Err(_) => feed.recovered(),
        };
        if recovered {
            broken = false;
            tracing::info!(kind, "watch goes on");
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use switchyard_jobs::kind_for;

    use super::*;

    /// After a fault of the network the watch is resumed where it was, and a kind that nobody changes sends nothing.
    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_that_was_broken_runs_again_when_no_error_comes() {
        let store: Store<ConfigMap> = Store::default();
        let error = || Err(std::io::Error::other("connection refused"));
        let said = stream::iter([Ok(Event::Init), Ok(Event::InitDone), error(), error()])
            .chain(stream::pending());
        let watch = follow(said, "configmaps", Feed::new(store.clone()), |_| false);
        let mut watch = std::pin::pin!(watch);
        assert!(tokio::time::timeout(QUIET / 2, watch.as_mut()).await.is_err());
        assert_eq!((store.is_ready(), store.broken_for()), (true, Some(QUIET / 2)));
        assert!(tokio::time::timeout(QUIET, watch).await.is_err());
        assert_eq!(store.broken_for(), None);
    }

    #[test]
    fn what_is_not_wanted_is_not_there_and_what_ceases_to_be_is_gone() {
        let object = |name: &str| {
            let mut object = ConfigMap::default();
            object.metadata.name = Some(name.to_owned());
            object
        };
        let wanted = |object: &ConfigMap| object.metadata.name.as_deref() == Some("a");
        assert!(matches!(only(Event::Apply(object("a")), wanted), Some(Event::Apply(_))));
        assert!(matches!(only(Event::Apply(object("b")), wanted), Some(Event::Delete(_))));
        assert!(matches!(only(Event::InitApply(object("a")), wanted), Some(Event::InitApply(_))));
        assert!(only(Event::InitApply(object("b")), wanted).is_none());
        assert!(matches!(only(Event::Delete(object("b")), wanted), Some(Event::Delete(_))));
    }

    #[test]
    fn a_job_is_looked_at_with_what_its_pods_depend_on() {
        let mut config = Configuration::default();
        config.integrations.frameworks = vec!["trainer.kubeflow.org/trainjob".to_owned()];
        let stores = Stores::new(&config);
        let kinds: Vec<&str> =
            stores.dependencies.iter().map(|it| it.resource.kind.as_str()).collect();
        assert_eq!(kinds, ["ClusterTrainingRuntime", "TrainingRuntime"]);

        let kind = kind_for("trainer.kubeflow.org", "TrainJob").unwrap();
        let job = Arc::new(
            Object::new(json!({
                "metadata": {"name": "a", "namespace": "ns"},
                "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}},
            }))
            .unwrap(),
        );
        assert!(kind.pod_sets(&stores.attached(kind, job.clone()).value()).is_err());
        let template = json!({"spec": {"containers": []}});
        let node = json!({"name": "node", "template": {"spec": {"template": template}}});
        let runtime = json!({
            "metadata": {"name": "torch", "namespace": "ns"},
            "spec": {"template": {"spec": {"replicatedJobs": [node]}}},
        });
        stores.dependencies[1].store.insert(Object::new(runtime).unwrap());
        assert_eq!(kind.pod_sets(&stores.attached(kind, job.clone()).value()).unwrap().len(), 1);
        assert!(kind.pod_sets(&job.value()).is_err(), "what is stored stays as it is");
    }

    #[test]
    fn what_several_kinds_depend_on_is_watched_once_be_it_a_job_itself() {
        let stores = |frameworks: &[&str]| {
            let mut config = Configuration::default();
            config.integrations.frameworks = frameworks.iter().map(|it| (*it).to_owned()).collect();
            Stores::new(&config)
        };
        let kind = kind_for("ray.io", "RayJob").unwrap();
        let cluster = |replicas: i32| {
            let group = json!({"groupName": "g", "replicas": replicas, "template": {"spec": {"containers": []}}});
            json!({"enableInTreeAutoscaling": true, "headGroupSpec": {"template": {"spec": {"containers": []}}}, "workerGroupSpecs": [group]})
        };
        let job = json!({
            "metadata": {"name": "a", "namespace": "ns", "annotations": {names::ELASTIC_JOB: "true"}},
            "spec": {"submissionMode": "HTTPMode", "rayClusterSpec": cluster(1)}, "status": {"rayClusterName": "made"},
        });
        let made = json!({"metadata": {"name": "made", "namespace": "ns"}, "spec": cluster(4)});
        for (frameworks, dependencies) in [
            (&["ray.io/rayjob", "ray.io/rayservice"][..], 1),
            (&["ray.io/rayjob", "ray.io/rayservice", "ray.io/raycluster"], 0),
        ] {
            let stores = stores(frameworks);
            assert_eq!(stores.dependencies.len(), dependencies);
            let watched = stores.watched("ray.io", "RayCluster").unwrap();
            watched.store.insert(Object::new(made.clone()).unwrap());
            let attached = stores.attached(kind, Arc::new(Object::new(job.clone()).unwrap()));
            assert_eq!(kind.pod_sets(&attached.value()).unwrap()[1].count, 4);
        }
    }

    #[tokio::test]
    async fn of_devices_that_are_not_charged_nothing_is_watched() {
        for (sentence, off, ready) in [
            ("all are charged", &[][..], [false, false]),
            (
                "those of extended resources are not",
                &["KueueDRAIntegrationExtendedResource"],
                [false, true],
            ),
            ("none is", &["KueueDRAIntegration"], [true, true]),
        ] {
            let mut config = Configuration::default();
            config.feature_gates = off.iter().map(|gate| ((*gate).to_owned(), false)).collect();
            let silent = tower::service_fn(|_: axum::http::Request<kube::client::Body>| {
                std::future::pending::<
                    Result<axum::http::Response<kube::client::Body>, std::convert::Infallible>,
                >()
            });
            let (stores, shutdown, mut tasks) =
                (Stores::new(&config), CancellationToken::new(), JoinSet::new());
            stores.watch_devices(&Client::new(silent, "default"), &config, &mut tasks, &shutdown);
            assert_eq!(
                [stores.claim_templates.is_ready(), stores.device_classes.is_ready()],
                ready,
                "{sentence}"
            );
            assert_eq!(tasks.len(), ready.iter().filter(|ready| !**ready).count(), "{sentence}");
            shutdown.cancel();
        }
    }

    #[test]
    fn external_frameworks_are_watched_like_the_others() {
        let mut config = Configuration::default();
        config.integrations.external_frameworks = vec!["Flock.v1.birds.example.com".to_owned()];
        let stores = Stores::new(&config);
        let resource = &stores.job("birds.example.com", "Flock").unwrap().resource;
        assert_eq!((resource.version.as_str(), resource.plural.as_str()), ("v1", "flocks"));
    }
}
