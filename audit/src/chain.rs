//! The chain of owners above a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use switchyard_api::names;

use crate::cluster::{Cluster, controller, mark};
use crate::finding::Object;

/// The longest chain of owners. The deepest real one (a pod of a LeaderWorkerSet in an AppWrapper)
/// has seven.
const MAX_OWNERS: usize = 16;

/// A pod or an owner.
#[derive(Clone, Copy)]
pub(crate) struct ChainObject<'a> {
    pub(crate) kind: &'a str,
    pub(crate) metadata: &'a ObjectMeta,
}

impl ChainObject<'_> {
    pub(crate) fn object(self) -> Object {
        Object::new(self.kind, self.metadata)
    }
}

/// A pod, its controller, the controller's controller, and so on.
pub(crate) struct Chain<'a> {
    /// Listed objects, the pod first.
    pub(crate) objects: Vec<ChainObject<'a>>,
    /// Their uids, and the uid of a last owner that was not listed.
    pub(crate) uids: Vec<&'a str>,
}

impl<'a> Chain<'a> {
    pub(crate) fn pod(&self) -> Option<&'a ObjectMeta> {
        self.objects.first().map(|pod| pod.metadata)
    }

    /// The highest object that names a queue or a prebuilt Workload; else the pod itself, if the
    /// webhook marked it as managed.
    pub(crate) fn queued(&self) -> Option<ChainObject<'a>> {
        let is_queued = |it: &&ChainObject<'a>| {
            mark(&it.metadata.labels, names::QUEUE_NAME).is_some()
                || prebuilt(it.metadata).is_some()
        };
        let managed = || self.objects.first().filter(|pod| is_managed(pod.metadata));
        self.objects.iter().rev().find(is_queued).or_else(managed).copied()
    }
}

/// Whether the pod is queued by itself or as a member of a pod group.
pub(crate) fn is_managed(pod: &ObjectMeta) -> bool {
    mark(&pod.labels, names::MANAGED) == Some("true")
}

/// The prebuilt Workload of an object.
pub(crate) fn prebuilt(metadata: &ObjectMeta) -> Option<&str> {
    let key = names::PREBUILT_WORKLOAD_NAME;
    mark(&metadata.annotations, key).or_else(|| mark(&metadata.labels, key))
}

pub(crate) struct Owners<'a>(BTreeMap<&'a str, ChainObject<'a>>);

impl<'a> Owners<'a> {
    pub(crate) fn of(cluster: &'a Cluster) -> Self {
        let owners = cluster
            .owners
            .iter()
            .map(|owner| ChainObject { kind: &owner.kind, metadata: &owner.metadata });
        // The leader of a LeaderWorkerSet's group is a pod that owns the StatefulSet of the
        // workers.
        let known = owners.chain(cluster.pods.iter().map(pod));
        Self(known.filter_map(|it| Some((it.metadata.uid.as_deref()?, it))).collect())
    }

    pub(crate) fn chain(&self, of: &'a Pod) -> Chain<'a> {
        let mut chain = Chain {
            objects: vec![pod(of)],
            uids: of.metadata.uid.as_deref().into_iter().collect(),
        };
        let mut at = &of.metadata;
        while let Some(owner) = controller(at)
            && chain.uids.len() < MAX_OWNERS
            && !chain.uids.contains(&owner.uid.as_str())
        {
            chain.uids.push(&owner.uid);
            // For the garbage collector, an owner in another namespace does not exist.
            let is_near = |it: &&ChainObject<'_>| {
                it.metadata.namespace.is_none() || it.metadata.namespace == at.namespace
            };
            let Some(known) = self.0.get(owner.uid.as_str()).filter(is_near) else { break };
            chain.objects.push(*known);
            at = known.metadata;
        }
        chain
    }
}

fn pod(pod: &Pod) -> ChainObject<'_> {
    ChainObject { kind: "Pod", metadata: &pod.metadata }
}
