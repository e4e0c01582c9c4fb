//! Indexes ProvisioningRequests by workload.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use switchyard_api::{autoscaling::ProvisioningRequest, v1beta2::Workload};

use switchyard_platform::store::{Change, Key};

/// Keys of ProvisioningRequests by the uid of the Workload that controls them.
#[derive(Debug, Default)]
pub(super) struct RequestIndex(Mutex<BTreeMap<String, BTreeSet<Key>>>);

impl RequestIndex {
    /// Applies a change and returns the workloads affected.
    pub(super) fn apply(&self, change: &Change<ProvisioningRequest>) -> BTreeSet<Key> {
        let mut requests = self.0.lock();
        let mut concerned = BTreeSet::new();
        for (object, present) in [(&change.old, false), (&change.new, true)] {
            let Some(owner) = object.as_deref().and_then(workload_of) else { continue };
            concerned.insert(Key::new(&change.key.namespace, &owner.name));
            let of_owner = requests.entry(owner.uid.clone()).or_default();
            if present {
                of_owner.insert(change.key.clone());
            } else {
                of_owner.remove(&change.key);
            }
            if of_owner.is_empty() {
                requests.remove(&owner.uid);
            }
        }
        concerned
    }

    /// Keys of a workload's requests, in the order of their names.
    pub(super) fn of(&self, workload: &Workload) -> BTreeSet<Key> {
        let requests = self.0.lock();
        workload.uid().and_then(|uid| requests.get(&uid).cloned()).unwrap_or_default()
    }
}

/// The Workload that controls an object.
pub(super) fn workload_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    controller_of(object).filter(|owner| {
        owner.kind == "Workload" && owner.api_version.starts_with("kueue.x-k8s.io/")
    })
}

pub(super) fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.meta().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}
