//! The watched objects: one watch and one [`Store`] per kind, shared by all readers.

pub mod dispatching;
pub(crate) mod filters;
mod free_nodes;
pub(crate) mod nodes;
pub mod pods;
pub(crate) mod recent_owners;
mod topology_watch;
mod watches;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{LimitRange, Namespace, Node, Pod, PodTemplate},
    node::v1::RuntimeClass,
    scheduling::v1::PriorityClass,
};
use kube::{Resource, api::ApiResource, core::PartialObjectMeta};
use switchyard_api::{
    autoscaling::ProvisioningRequest,
    devices::{DeviceClass, ResourceClaimTemplate},
    v1beta2,
};
use switchyard_config::Configuration;
use switchyard_jobs::{JobKind, KindId, enabled_kinds};
use switchyard_platform::{object::Object, store::Store, watch::WatchState};

pub use self::free_nodes::FreeNode;
pub use self::topology_watch::watch_nodes;
use self::{pods::PodRecord, recent_owners::RecentOwners};
use crate::workload;

/// Kueue's feature gate of topology-aware scheduling.
pub(crate) const TOPOLOGY_GATE: &str = "TopologyAwareScheduling";

/// A job kind and its watched objects.
#[derive(Clone, Debug)]
pub struct JobStore {
    pub resource: ApiResource,
    pub store: Store<Object>,
}

/// One store per kind. `managedFields` is stripped from all objects.
#[derive(Clone, Debug, Default)]
pub struct Stores {
    /// The enabled job kinds.
    pub jobs: Vec<JobStore>,
    /// Kinds that pods of some jobs depend on, such as TrainingRuntimes.
    pub dependencies: Vec<JobStore>,
    pub workloads: Store<v1beta2::Workload>,
    pub cluster_queues: Store<v1beta2::ClusterQueue>,
    pub local_queues: Store<v1beta2::LocalQueue>,
    pub cohorts: Store<v1beta2::Cohort>,
    pub topologies: Store<v1beta2::Topology>,
    pub resource_flavors: Store<v1beta2::ResourceFlavor>,
    pub workload_priority_classes: Store<v1beta2::WorkloadPriorityClass>,
    pub admission_checks: Store<v1beta2::AdmissionCheck>,
    /// Watched on a hub only.
    pub multi_kueue_clusters: Store<v1beta2::MultiKueueCluster>,
    /// Watched on a hub only.
    pub multi_kueue_configs: Store<v1beta2::MultiKueueConfig>,
    pub provisioning_request_configs: Store<v1beta2::ProvisioningRequestConfig>,
    /// The cluster autoscaler's; its CRD may be missing.
    pub provisioning_requests: Store<ProvisioningRequest>,
    /// Metadata of the PodTemplates that Switchyard made for ProvisioningRequests.
    pub pod_templates: Store<PartialObjectMeta<PodTemplate>>,
    /// Metadata of terminating pods that may be deleted by force. Watched with
    /// `FailureRecoveryPolicy` only.
    pub ending_pods: Store<PartialObjectMeta<Pod>>,
    /// Pods of elastic jobs.
    pub elastic_pods: Store<Pod>,
    pub namespaces: Store<Namespace>,
    /// Kubernetes' own PriorityClasses.
    pub priority_classes: Store<PriorityClass>,
    /// For the defaults of pods' requests.
    pub limit_ranges: Store<LimitRange>,
    /// For the overhead of pods.
    pub runtime_classes: Store<RuntimeClass>,
    /// For the devices of pods. Watched with `KueueDRAIntegration` only.
    pub claim_templates: Store<ResourceClaimTemplate>,
    /// For extended resources. Watched with `KueueDRAIntegrationExtendedResource` too.
    pub device_classes: Store<DeviceClass>,
    /// Watched from the first Topology on, for topology-aware scheduling.
    pub nodes: Store<Node>,
    /// Usage of nodes by all pods, watched as `nodes`.
    pub pods: Store<PodRecord>,
    // Whether topology-aware scheduling is on.
    reads_nodes: bool,
    /// Owners that were read because their kind is not watched.
    pub(crate) owners: RecentOwners,
}

impl Stores {
    /// Empty stores for the kinds that the configuration enables.
    #[must_use]
    pub fn new(config: &Configuration) -> Self {
        let store = |id: KindId| JobStore { resource: id.api_resource(), store: Store::default() };
        let mut enabled = enabled_kinds(&config.all_frameworks());
        enabled.retain(|kind| kind.is_watched());
        let dependencies = enabled.iter().flat_map(|kind| kind.dependencies());
        // One watch per kind, even if several jobs depend on it.
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
            workloads: Store::stripped(workload::strip_unused_fields),
            elastic_pods: Store::stripped(filters::strip_unused_pod_fields),
            nodes: Store::stripped(nodes::strip_unused_fields),
            reads_nodes: config.enabled(TOPOLOGY_GATE),
            ..Self::default()
        }
    }

    /// Empty stores, for [`watch_nodes`] alone.
    #[must_use]
    pub fn for_nodes() -> Self {
        Self { nodes: Store::stripped(nodes::strip_unused_fields), ..Self::default() }
    }

    #[must_use]
    pub fn job(&self, group: &str, kind: &str) -> Option<&JobStore> {
        self.jobs.iter().find(|jobs| jobs.resource.group == group && jobs.resource.kind == kind)
    }

    /// The store of a watched kind, whether it is a job's or a dependency's.
    #[must_use]
    pub fn watched(&self, group: &str, kind: &str) -> Option<&JobStore> {
        let is_it = |it: &&JobStore| it.resource.group == group && it.resource.kind == kind;
        self.jobs.iter().chain(&self.dependencies).find(is_it)
    }

    /// The job with the object that its pods depend on inserted, if that object exists.
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

    /// The Cohorts above a ClusterQueue, the parent first. Empty if they form a cycle.
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

    /// Whether the first lists of nodes and pods are missing. No pods are placed before.
    #[must_use]
    pub fn awaits_nodes(&self) -> bool {
        self.reads_nodes && !(self.nodes.is_ready() && self.pods.is_ready())
    }

    /// Waits for the first lists of nodes and pods. Never returns if no Topology exists.
    pub async fn nodes_known(&self) {
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
        // They may be watched later, from the first Topology on. Only the engine waits for them
        // then.
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

#[cfg(test)]
mod tests;
