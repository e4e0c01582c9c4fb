//! Inputs of an audit: pods from the API server, everything else from the stores.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, PodStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, ListParams},
};
use switchyard_api::names;
use switchyard_audit::{Cluster, Owner};
use switchyard_jobs::kind_of_owner;

use crate::stores::Stores;
use switchyard_platform::{
    api_call::with_deadline, object::Object, readable::Readable, store::Store,
};

/// Pods per list request.
const PAGE: u32 = 500;
/// Bound on the owners that are followed above a pod.
const MAX_OWNERS: usize = 16;
/// Selects pods that have not ended.
const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Lists the pods that may be queued and have not ended, reduced to what the audit reads.
pub(super) async fn pods(client: &Client, most: usize) -> anyhow::Result<Vec<Pod>> {
    let api: Api<Readable<Pod>> = Api::all(client.clone());
    let mut params = ListParams::default().fields(LIVE).limit(PAGE);
    let mut pods = Vec::new();
    loop {
        let page = with_deadline(api.list(&params)).await.context("listing pods")?;
        let read = page.items.into_iter().filter_map(|pod| pod.or_warn("pods"));
        pods.extend(read.filter(may_be_queued).map(reduced));
        ensure!(
            pods.len() <= most,
            "there are more than {most} pods; use `switchyard audit -n NAMESPACE`"
        );
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(pods),
        }
    }
}

/// Whether a pod names a queue or a Workload, or a job may own it.
fn may_be_queued(pod: &Pod) -> bool {
    let (labels, annotations) = (&pod.metadata.labels, &pod.metadata.annotations);
    let is_named = |marks: &Option<BTreeMap<String, String>>| {
        let keys = [names::QUEUE_NAME, names::MANAGED, names::PREBUILT_WORKLOAD_NAME];
        marks.as_ref().is_some_and(|marks| keys.iter().any(|key| marks.contains_key(*key)))
    };
    let mut owners = pod.metadata.owner_references.iter().flatten();
    is_named(labels)
        || is_named(annotations)
        || owners.any(|owner| kind_of_owner(&owner.api_version, &owner.kind).is_some())
}

/// The parts of a pod that the auditor reads.
fn reduced(pod: Pod) -> Pod {
    let containers = |containers: Vec<Container>| -> Vec<Container> {
        let reduced = |it: Container| Container {
            name: it.name,
            resources: it.resources,
            restart_policy: it.restart_policy,
            ..Container::default()
        };
        containers.into_iter().map(reduced).collect()
    };
    let metadata = ObjectMeta {
        name: pod.metadata.name,
        namespace: pod.metadata.namespace,
        uid: pod.metadata.uid,
        labels: pod.metadata.labels,
        annotations: pod.metadata.annotations,
        owner_references: pod.metadata.owner_references,
        deletion_timestamp: pod.metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    let spec = pod.spec.map(|spec| PodSpec {
        containers: containers(spec.containers),
        init_containers: spec.init_containers.map(containers),
        node_name: spec.node_name,
        overhead: spec.overhead,
        resources: spec.resources,
        scheduling_gates: spec.scheduling_gates,
        ..PodSpec::default()
    });
    let status = pod.status.map(|status| PodStatus { phase: status.phase, ..PodStatus::default() });
    Pod { metadata, spec, status }
}

/// A cluster of these pods and the objects in memory.
pub(super) fn see(stores: &Stores, pods: Vec<Pod>) -> Cluster {
    Cluster {
        name: "this cluster".to_owned(),
        namespace: None,
        owners: owners(stores, &pods),
        pods,
        workloads: copied(&stores.workloads),
        cluster_queues: copied(&stores.cluster_queues),
        local_queues: copied(&stores.local_queues),
        cohorts: copied(&stores.cohorts),
    }
}

fn copied<K: Resource + Clone + 'static>(store: &Store<K>) -> Vec<K> {
    store.all().into_iter().map(Arc::unwrap_or_clone).collect()
}

/// The jobs above the pods. Kinds that are not watched are missing, such as ReplicaSets.
fn owners(stores: &Stores, pods: &[Pod]) -> Vec<Owner> {
    let jobs = stores
        .jobs
        .iter()
        .flat_map(|jobs| jobs.store.all().into_iter().map(|job| (&jobs.resource, job)));
    let by_uid: BTreeMap<String, (&ApiResource, Arc<Object>)> = jobs
        .filter_map(|(resource, job)| Some((job.metadata.uid.clone()?, (resource, job))))
        .collect();
    let mut wanted = uids(pods.iter().map(|pod| &pod.metadata));
    let (mut known, mut owners) = (BTreeSet::new(), Vec::new());
    for _ in 0..MAX_OWNERS {
        let new: Vec<Owner> = wanted
            .into_iter()
            .filter(|uid| known.insert(uid.clone()))
            .filter_map(|uid| by_uid.get(&uid))
            .filter_map(|(resource, job)| owner(resource, job))
            .collect();
        if new.is_empty() {
            break;
        }
        wanted = uids(new.iter().map(|owner| &owner.metadata));
        owners.extend(new);
    }
    owners
}

fn uids<'a>(objects: impl Iterator<Item = &'a ObjectMeta>) -> BTreeSet<String> {
    let owners = objects.flat_map(|object| object.owner_references.iter().flatten());
    owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).collect()
}

fn owner(resource: &ApiResource, job: &Object) -> Option<Owner> {
    let metadata = serde_json::from_value(job.head().get("metadata")?.clone()).ok()?;
    Some(Owner { api_version: resource.api_version.clone(), kind: resource.kind.clone(), metadata })
}
