//! An index of object keys by host.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use switchyard_api::v1beta2::Workload;

use crate::{reconcilers::topology::ranks::HOSTNAME, stores::pods::PodRecord};
use switchyard_platform::store::Key;

type Names = BTreeSet<Arc<str>>;

/// Keys by host name; hosts without keys are removed.
#[derive(Default)]
pub(super) struct Hosts(Mutex<BTreeMap<Arc<str>, BTreeSet<Key>>>);

impl Hosts {
    /// Moves a key from the hosts `before` to the hosts `now`.
    pub(super) fn apply(&self, key: &Key, before: &Names, now: &Names) {
        if before == now {
            return;
        }
        let mut hosts = self.0.lock();
        for host in before.difference(now) {
            if let Some(keys) = hosts.get_mut(host) {
                keys.remove(key);
                if keys.is_empty() {
                    hosts.remove(host);
                }
            }
        }
        for host in now.difference(before) {
            hosts.entry(host.clone()).or_default().insert(key.clone());
        }
    }

    pub(super) fn on(&self, host: &str) -> Vec<Key> {
        self.0.lock().get(host).into_iter().flatten().cloned().collect()
    }

    pub(super) fn all(&self) -> Vec<Arc<str>> {
        self.0.lock().keys().cloned().collect()
    }
}

/// Hosts that a workload's pods are assigned to. Empty if the lowest level is not the host.
pub(super) fn assigned(workload: &Workload) -> Names {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let assignments = admission.into_iter().flat_map(|admission| &admission.pod_set_assignments);
    let topologies = assignments.filter_map(|assignment| assignment.topology_assignment.as_ref());
    let by_host =
        topologies.filter(|topology| topology.levels.last().is_some_and(|level| level == HOSTNAME));
    by_host
        .flat_map(|topology| topology.domains())
        .filter_map(|mut domain| domain.values.pop())
        .map(Arc::from)
        .collect()
}

/// Hosts that a pod is bound to or selected for.
pub(super) fn of_pod(pod: &PodRecord) -> Names {
    let Some(placed) = pod.placed() else { return Names::new() };
    placed
        .node_selector
        .get(HOSTNAME)
        .into_iter()
        .chain(&placed.node)
        .map(|host| Arc::from(host.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_kept_while_it_has_keys() {
        let hosts = Hosts::default();
        let names = |all: &[&str]| -> Names { all.iter().map(|host| Arc::from(*host)).collect() };
        let key = Key::new("ns", "a");
        hosts.apply(&key, &names(&[]), &names(&["x", "y"]));
        assert_eq!((hosts.on("x"), hosts.all().len()), (vec![key.clone()], 2));
        hosts.apply(&key, &names(&["x", "y"]), &names(&["y"]));
        assert_eq!((hosts.on("x"), hosts.all().len()), (vec![], 1));
        hosts.apply(&key, &names(&["y"]), &names(&[]));
        assert!(hosts.all().is_empty());
    }
}
