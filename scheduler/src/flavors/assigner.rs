//! The search for flavors. Kueue: `pkg/scheduler/flavorassigner/flavorassigner.go`.

use std::collections::BTreeMap;

use super::assignment::{Assignment, AssignmentMode, FlavorAssignment, PodSetFlavors};
use super::by_name::ByName;
use super::fungibility::PreemptionMode;
use super::oracle::PreemptionOracle;
use super::search::{GroupFlavors, GroupSearch};
use super::topology::PlacementContext;
use crate::cluster_queue::ClusterQueueEntry;
use crate::flavor_resource::FlavorResource;
use crate::flavor_scan::FlavorScan;
use crate::queue::equivalence::EquivalenceClass;
use crate::referenced::ReferencedObjects;
use crate::topology::grouped;
use crate::tree::QuotaTree;
use crate::{Admission, Amount, Cause, EngineSettings, Name, PodSet, QuotaCheckStrategy};

/// Searches flavors for one workload in one ClusterQueue.
pub(crate) struct FlavorAssigner<'a> {
    pub(crate) settings: &'a EngineSettings,
    pub(crate) referenced: &'a ReferencedObjects,
    pub(crate) cq: &'a ClusterQueueEntry,
    pub(crate) class: &'a EquivalenceClass,
    /// The position of the last search.
    pub(crate) scan: Option<&'a FlavorScan>,
    /// The flavors of an earlier nomination of the same cycle. If set, the search uses no others.
    pub(crate) nominated: Option<&'a [BTreeMap<Name, Name>]>,
    /// The admission of the replaced workload slice. The workload gets the same flavors. The tree
    /// does not contain the slice's usage during the search.
    pub(crate) kept: Option<&'a Admission>,
    /// Set with topology-aware scheduling.
    pub(crate) placement: Option<&'a PlacementContext<'a>>,
    pub(crate) cycle: u64,
}

/// The pod sets of one search: a single one, or those of a pod set group.
pub(super) struct PodSetGroup<'a> {
    pub(super) at: &'a [usize],
    /// None of them has pods for now.
    pub(super) are_empty: bool,
}

impl FlavorAssigner<'_> {
    /// Searches flavors for these pod counts. Stops at the first pod set that fits no flavor.
    pub(crate) fn assign(
        &self,
        tree: &mut QuotaTree,
        oracle: &mut dyn PreemptionOracle,
        counts: &[i32],
    ) -> Assignment {
        let mut result = Assignment {
            pod_sets: Vec::with_capacity(self.class.pod_sets.len()),
            fitness: AssignmentMode::Fit,
            borrow: 0,
            usage: Vec::new(),
            scan: None,
        };
        if self.is_grouped() {
            for members in grouped(self.class.pod_sets.iter().map(group_of)) {
                if self.group_of_pod_sets(tree, oracle, &members, counts, &mut result) {
                    break;
                }
            }
        } else {
            for at in 0..self.class.pod_sets.len() {
                if self.pod_set(tree, oracle, at, counts, &mut result) {
                    break;
                }
            }
        }
        self.refuse_without_flavors(&mut result);
        result.fitness = result
            .pod_sets
            .iter()
            .map(PodSetFlavors::fitness)
            .min()
            .unwrap_or(AssignmentMode::NoFit);
        if let Some(placement) = self.placement {
            placement.place_pods(&mut result);
        }
        result.scan = self.progress(&result);
        result
    }

    /// A queue without flavors rejects pods without any request. A request of zero is enough to be
    /// accepted.
    fn refuse_without_flavors(&self, result: &mut Assignment) {
        if self.cq.groups.is_empty()
            && result.pod_sets.iter().all(|pod_set| pod_set.requests.is_empty())
        {
            let some = result.pod_sets.iter_mut().filter(|pod_set| pod_set.count > 0);
            for pod_set in some {
                (pod_set.failed, pod_set.causes) = (true, vec![Cause::NoFlavors]);
            }
        }
    }

    fn progress(&self, result: &Assignment) -> Option<FlavorScan> {
        // Flavors of a replaced slice leave no alternatives to resume with.
        if self.kept.is_some() {
            return None;
        }
        let tried: Vec<_> = (result.pod_sets.iter().enumerate())
            .flat_map(|(at, pod_set)| {
                pod_set.flavors.iter().map(move |(name, picked)| (at, name, picked))
            })
            .filter_map(|(at, name, picked)| Some((at, name.clone(), picked.ended_at?)))
            .collect();
        (!tried.is_empty()).then_some(FlavorScan {
            tried,
            class: self.class.id,
            generation: self.cq.generation,
            cycle: self.cycle,
        })
    }

    fn is_grouped(&self) -> bool {
        let in_group = |pod_set: &PodSet| {
            pod_set.topology.as_deref().is_some_and(|request| request.group.is_some())
        };
        self.placement.is_some() && self.class.pod_sets.iter().any(in_group)
    }

    /// Searches flavors for one pod set. Returns true if it found none.
    fn pod_set(
        &self,
        tree: &mut QuotaTree,
        oracle: &mut dyn PreemptionOracle,
        at: usize,
        counts: &[i32],
        result: &mut Assignment,
    ) -> bool {
        let Some(mut given) = counts.get(at).and_then(|count| self.unassigned(at, *count)) else {
            return false;
        };
        let asking = PodSetGroup { at: &[at], are_empty: given.count == 0 };
        let held = self.held_flavors(std::slice::from_ref(&given));
        let found = self.all_groups(tree, oracle, &asking, &given.requests, held, &result.usage);
        given.failed = found.failed;
        (given.flavors, given.causes, given.attempts) =
            (found.flavors, found.causes, found.attempts);
        result.add(given);
        found.failed
    }

    /// Searches flavors for a pod set group. Returns true if it found none.
    fn group_of_pod_sets(
        &self,
        tree: &mut QuotaTree,
        oracle: &mut dyn PreemptionOracle,
        members: &[usize],
        counts: &[i32],
        result: &mut Assignment,
    ) -> bool {
        if let [at] = members {
            return self.pod_set(tree, oracle, *at, counts, result);
        }
        let given: Vec<_> =
            members.iter().filter_map(|at| self.unassigned(*at, *counts.get(*at)?)).collect();
        let asking =
            PodSetGroup { at: members, are_empty: given.iter().all(|pod_set| pod_set.count == 0) };
        let held = self.held_flavors(&given);
        let found = self.all_groups(tree, oracle, &asking, &total_of(&given), held, &result.usage);
        for mut pod_set in given {
            pod_set.failed = found.failed;
            (pod_set.attempts, pod_set.causes) = (found.attempts.clone(), found.causes.clone());
            self.take_group_flavors(&mut pod_set, &found.flavors);
            result.add(pod_set);
        }
        found.failed
    }

    /// A member of a group gets the flavors of its requested resources. A member without requests
    /// gets those with a topology.
    fn take_group_flavors(&self, pod_set: &mut PodSetFlavors, of_group: &ByName<FlavorAssignment>) {
        let has_topology = |name: &Name| {
            self.referenced.flavors.get(name).is_some_and(|flavor| flavor.topology_name.is_some())
        };
        for (resource, picked) in of_group.iter() {
            let takes = match pod_set.requests.is_empty() {
                true => has_topology(&picked.flavor),
                false => pod_set.requests.contains_key(resource),
            };
            if takes {
                pod_set.flavors.insert(resource.clone(), picked.clone());
            }
        }
    }

    /// The present flavors of a workload in the second pass.
    fn held_flavors(&self, given: &[PodSetFlavors]) -> ByName<FlavorAssignment> {
        let mut flavors = ByName::default();
        let Some(held) = self.placement.and_then(|placement| placement.held) else {
            return flavors;
        };
        let of = |name: &Name| held.pod_sets.iter().find(|assigned| assigned.name == *name);
        for (resource, flavor) in
            given.iter().filter_map(|pod_set| of(&pod_set.name)).flat_map(|a| &a.flavors)
        {
            let Some(group) = self.cq.group_of(resource) else { continue };
            let pairs = group.flavors.iter().find(|known| known.name == *flavor);
            let at = group.resources.iter().position(|known| known == resource);
            let Some(fr) = pairs.zip(at).and_then(|(pairs, at)| pairs.flavor_resources.get(at))
            else {
                continue;
            };
            let picked = FlavorAssignment {
                flavor: flavor.clone(),
                fr: *fr,
                mode: PreemptionMode::Fit,
                borrow: 0,
                ended_at: None,
            };
            flavors.insert(resource.clone(), picked);
        }
        flavors
    }

    /// A pod set without flavors, with its present topology assignment if it has one.
    fn unassigned(&self, at: usize, count: i32) -> Option<PodSetFlavors> {
        let pod_set = self.class.pod_sets.get(at)?;
        let held = self.placement.and_then(|placement| placement.held);
        let held = held
            .and_then(|held| held.pod_sets.iter().find(|assigned| assigned.name == pod_set.name));
        Some(PodSetFlavors {
            at,
            name: pod_set.name.clone(),
            count,
            requests: total_requests(pod_set, count, self.cq.group_of("pods").is_some()),
            flavors: ByName::default(),
            causes: Vec::new(),
            attempts: Vec::new(),
            failed: false,
            topology: held.and_then(|held| held.topology.clone()),
            delayed: held.and_then(|held| held.delayed),
        })
    }

    /// Searches flavors for all requested resources, one resource group after the other.
    fn all_groups(
        &self,
        tree: &mut QuotaTree,
        oracle: &mut dyn PreemptionOracle,
        members: &PodSetGroup<'_>,
        requests: &BTreeMap<Name, Amount>,
        held: ByName<FlavorAssignment>,
        earlier: &[(FlavorResource, Amount)],
    ) -> GroupFlavors {
        let mut result =
            GroupFlavors { flavors: held, causes: Vec::new(), attempts: Vec::new(), failed: false };
        for (resource, amount) in requests {
            let Some(group) =
                self.cq.groups.iter().position(|group| group.resources.contains(resource))
            else {
                if *amount == Amount::ZERO
                    || self.settings.quota_check == QuotaCheckStrategy::IgnoreUndeclared
                {
                    continue;
                }
                result.causes = vec![Cause::ResourceUnavailable { resource: resource.clone() }];
                result.failed = true;
                break;
            };
            if result.flavors.contains(resource) {
                continue;
            }
            let search = GroupSearch { members, resource };
            let found = self.search_group(tree, oracle, &search, group, requests, earlier);
            append(&mut result.attempts, found.attempts);
            if found.flavors.is_empty() {
                result.causes = found.causes;
                if result.causes.is_empty() {
                    result.causes = vec![Cause::ResourceUnavailable { resource: resource.clone() }];
                }
                result.failed = true;
                break;
            }
            result.flavors.extend(found.flavors);
            append(&mut result.causes, found.causes);
        }
        if result.failed {
            result.flavors = ByName::default();
        }
        result
    }
}

/// Appends without a copy if the first list is empty.
fn append<T>(all: &mut Vec<T>, more: Vec<T>) {
    if all.is_empty() {
        *all = more;
    } else {
        all.extend(more);
    }
}

fn group_of(pod_set: &PodSet) -> Option<&Name> {
    pod_set.topology.as_deref()?.group.as_ref()
}

fn total_of(pod_sets: &[PodSetFlavors]) -> BTreeMap<Name, Amount> {
    let mut sum: BTreeMap<Name, Amount> = BTreeMap::new();
    for (name, amount) in pod_sets.iter().flat_map(|pod_set| &pod_set.requests) {
        let known = sum.entry(name.clone()).or_default();
        *known = *known + *amount;
    }
    sum
}

/// The total requests of a pod set. Negative requests count as zero.
pub(crate) fn total_requests(
    pod_set: &PodSet,
    count: i32,
    with_pods: bool,
) -> BTreeMap<Name, Amount> {
    let count = count.max(0);
    let mut requests: BTreeMap<_, _> = (pod_set.requests.iter())
        .map(|(name, amount)| (name.clone(), (*amount).max(Amount::ZERO).times(count)))
        .collect();
    if with_pods {
        requests.insert("pods".into(), Amount::new(i64::from(count)));
    }
    requests
}
