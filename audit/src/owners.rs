//! By which Workloads a pod runs.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use switchyard_api::names;
use switchyard_api::v1beta2::Workload;

use crate::cluster::{Cluster, mark, name, namespace};

/// How many owners above a pod are looked at. Longer chains may only come from objects that own each other.
const MAX_OWNERS: usize = 16;

/// Finds the owners and the Workloads of pods.
pub(crate) struct Owners<'a> {
    cluster: &'a Cluster,
    by_uid: BTreeMap<&'a str, &'a ObjectMeta>,
    of_owner: BTreeMap<&'a str, Vec<usize>>,
    by_name: BTreeMap<(&'a str, &'a str), usize>,
    of_slices: BTreeMap<(&'a str, &'a str), Vec<usize>>,
}

impl<'a> Owners<'a> {
    pub(crate) fn of(cluster: &'a Cluster) -> Self {
        let by_uid =
            cluster.owners.iter().filter_map(|owner| Some((owner.meta.uid.as_deref()?, &owner.meta))).collect();
        let (mut of_owner, mut of_slices) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        let mut by_name = BTreeMap::new();
        for (index, workload) in cluster.workloads.iter().enumerate() {
            let meta = &workload.metadata;
            for owner in meta.owner_references.iter().flatten() {
                of_owner.entry(owner.uid.as_str()).or_default().push(index);
            }
            by_name.insert((namespace(meta), name(meta)), index);
            if let Some(slice) = slice_name(workload) {
                of_slices.entry((namespace(meta), slice)).or_default().push(index);
            }
        }
        Self { cluster, by_uid, of_owner, by_name, of_slices }
    }

    /// The pod, what controls it, what controls that, and so on.
    fn chain(&self, pod: &'a Pod) -> Vec<&'a ObjectMeta> {
        let mut chain = vec![&pod.metadata];
        while let Some(owner) = chain.last().and_then(|meta| controller(meta)).and_then(|uid| self.by_uid.get(uid)) {
            if chain.len() == MAX_OWNERS {
                break;
            }
            chain.push(owner);
        }
        chain
    }

    /// The Workloads by which a pod runs, by their places in the list: those of the objects above it, or that it or they name, and
    /// with a slice of an elastic job its other slices.
    pub(crate) fn workloads(&self, pod: &'a Pod) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        for meta in self.chain(pod) {
            let uids = meta.uid.as_deref().into_iter().chain(controller(meta));
            found.extend(uids.filter_map(|uid| self.of_owner.get(uid)).flatten());
            let named = NAMES.iter().flat_map(|key| [mark(&meta.labels, key), mark(&meta.annotations, key)]).flatten();
            found.extend(named.filter_map(|name| self.by_name.get(&(namespace(meta), name))));
        }
        let workloads = found.iter().filter_map(|index| self.cluster.workloads.get(*index));
        let slices =
            workloads.filter_map(|it: &Workload| self.of_slices.get(&(namespace(&it.metadata), slice_name(it)?)));
        let slices: Vec<usize> = slices.flatten().copied().collect();
        found.extend(slices);
        found
    }

    /// Whether the pod may only run with quota: it, or something above it, is queued.
    pub(crate) fn is_queued(&self, pod: &'a Pod) -> bool {
        let is_managed = mark(&pod.metadata.labels, names::MANAGED) == Some("true");
        let queued = |meta: &&ObjectMeta| {
            mark(&meta.labels, names::QUEUE_NAME).is_some()
                || NAMES.iter().any(|key| mark(&meta.labels, key).or(mark(&meta.annotations, key)).is_some())
        };
        is_managed || self.chain(pod).iter().any(queued)
    }
}

/// Labels and annotations that name a Workload.
const NAMES: [&str; 3] = [names::PREBUILT_WORKLOAD_NAME, names::POD_GROUP_NAME, names::WORKLOAD];

fn controller(meta: &ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// The name that all slices of an elastic job share.
fn slice_name(workload: &Workload) -> Option<&str> {
    let annotations = &workload.metadata.annotations;
    let is_slice = mark(annotations, names::ELASTIC_JOB) == Some("true");
    is_slice.then(|| mark(annotations, names::WORKLOAD_SLICE_NAME).unwrap_or(name(&workload.metadata)))
}
