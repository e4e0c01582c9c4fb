//! The objects that ClusterQueues refer to, and whether a ClusterQueue is active. The messages are
//! Kueue's: `pkg/cache/scheduler/clusterqueue.go`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{AdmissionCheck, ClusterQueue, InactiveCause, Name, ResourceFlavor, StopPolicy};

const MULTI_KUEUE: &str = "kueue.x-k8s.io/multikueue";
const PROVISIONING: &str = "kueue.x-k8s.io/provisioning-request";

#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct ReferencedObjects {
    pub(crate) namespaces: BTreeMap<Name, BTreeMap<String, String>>,
    pub(crate) flavors: BTreeMap<Name, ResourceFlavor>,
    pub(crate) checks: BTreeMap<Name, AdmissionCheck>,
    pub(crate) topologies: BTreeSet<Name>,
}

/// A ClusterQueue's admission checks by problem.
#[derive(Default)]
struct Checks {
    missing: BTreeSet<Name>,
    inactive: BTreeSet<Name>,
    multi_kueue: BTreeSet<Name>,
    per_flavor_multi_kueue: BTreeSet<Name>,
    provisioning: BTreeSet<Name>,
}

impl ReferencedObjects {
    /// Whether a namespace may use a ClusterQueue; `None` if the namespace is unknown.
    pub(crate) fn namespace_matches(&self, queue: &ClusterQueue, namespace: &str) -> Option<bool> {
        let labels = self.namespaces.get(namespace)?;
        Some(queue.namespace_selector.as_ref().is_some_and(|selector| selector.matches(labels)))
    }

    /// All causes that keep `queue` from admitting, most severe first. Empty if the queue is
    /// active.
    pub(crate) fn inactive(&self, queue: &ClusterQueue, cyclic: bool) -> Vec<InactiveCause> {
        let because = |reason, message| InactiveCause { reason, message };
        if queue.deleting {
            return vec![because(
                "Terminating",
                "Can't admit new workloads; clusterQueue is terminating".to_owned(),
            )];
        }
        let mut causes = Vec::new();
        if queue.stop_policy != StopPolicy::None {
            causes.push(because("Stopped", "is stopped".to_owned()));
        }
        let names: Vec<_> = queue
            .resource_groups
            .iter()
            .flat_map(|g| &g.flavors)
            .map(|flavor| &flavor.name)
            .collect();
        let missing: Vec<_> =
            names.iter().filter(|name| !self.flavors.contains_key(**name)).copied().collect();
        if !missing.is_empty() {
            causes.push(because(
                "FlavorNotFound",
                format!("references missing ResourceFlavor(s): {}", join(missing)),
            ));
        }
        let checks = self.checks_of(queue, &names);
        causes.extend(checks.causes());
        if checks.multi_kueue.is_empty() {
            causes.extend(names.iter().filter_map(|name| {
                let flavor = self.flavors.get(*name)?;
                let topology =
                    flavor.topology_name.as_ref().filter(|t| !self.topologies.contains(*t))?;
                let message = format!("there is no Topology {topology:?} for TAS flavor {name:?}");
                Some(because("TopologyNotFound", message))
            }));
        }
        if cyclic {
            causes
                .push(because("CohortCycleDetected", "the cohorts above form a cycle".to_owned()));
        }
        causes
    }

    /// Whether worker clusters run the queue's workloads and place their pods.
    pub(crate) fn dispatches(&self, queue: &ClusterQueue) -> bool {
        queue.admission_checks.iter().any(|rule| self.is_check_of(&rule.name, MULTI_KUEUE))
    }

    /// Whether a ProvisioningRequest adds capacity of a flavor after the reservation.
    pub(crate) fn provisions(&self, queue: &ClusterQueue, flavor: &Name) -> bool {
        let mut rules =
            queue.admission_checks.iter().filter(|rule| self.is_check_of(&rule.name, PROVISIONING));
        rules.any(|rule| rule.on_flavors.is_empty() || rule.on_flavors.contains(flavor))
    }

    fn is_check_of(&self, check: &Name, controller: &str) -> bool {
        self.checks.get(check).is_some_and(|check| &*check.controller == controller)
    }

    fn checks_of(&self, queue: &ClusterQueue, flavors: &[&Name]) -> Checks {
        let all: BTreeSet<&Name> = flavors.iter().copied().collect();
        let mut checks = Checks::default();
        for rule in &queue.admission_checks {
            let Some(check) = self.checks.get(&rule.name) else {
                checks.missing.insert(rule.name.clone());
                continue;
            };
            if !check.active {
                checks.inactive.insert(rule.name.clone());
            }
            if check.controller == PROVISIONING {
                checks.provisioning.insert(rule.name.clone());
            }
            if check.controller == MULTI_KUEUE {
                checks.multi_kueue.insert(rule.name.clone());
                if !rule.on_flavors.is_empty()
                    && rule.on_flavors.iter().collect::<BTreeSet<_>>() != all
                {
                    checks.per_flavor_multi_kueue.insert(rule.name.clone());
                }
            }
        }
        checks
    }
}

impl Checks {
    fn causes(&self) -> Vec<InactiveCause> {
        let mut causes = Vec::new();
        let mut because = |reason, message| causes.push(InactiveCause { reason, message });
        if !self.missing.is_empty() {
            because(
                "AdmissionCheckNotFound",
                format!("references missing AdmissionCheck(s): {}", join(&self.missing)),
            );
        }
        if !self.inactive.is_empty() {
            because(
                "AdmissionCheckInactive",
                format!("references inactive AdmissionCheck(s): {}", join(&self.inactive)),
            );
        }
        if self.multi_kueue.len() > 1 {
            because(
                "MultipleMultiKueueAdmissionChecks",
                format!(
                    "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {}",
                    join(&self.multi_kueue)
                ),
            );
        }
        if !self.per_flavor_multi_kueue.is_empty() {
            because(
                "MultiKueueAdmissionCheckAppliedPerFlavor",
                format!(
                    "Cannot specify MultiKueue AdmissionCheck per flavor, found: {}",
                    join(&self.per_flavor_multi_kueue)
                ),
            );
        }
        if !self.multi_kueue.is_empty() && !self.provisioning.is_empty() {
            because(
                "MultiKueueWithProvisioningRequest",
                format!(
                    "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {}, {}",
                    join(&self.multi_kueue),
                    join(&self.provisioning)
                ),
            );
        }
        causes
    }
}

fn join<'a>(names: impl IntoIterator<Item = &'a Name>) -> String {
    names.into_iter().map(|name| &**name).collect::<Vec<_>>().join(",")
}
