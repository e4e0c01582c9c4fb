//! Topology-aware scheduling of one workload: which flavors it may use, and its topology
//! assignment. Kueue: `pkg/scheduler/flavorassigner/tas_flavorassigner.go`.

mod victims;

use std::collections::{BTreeMap, BTreeSet};

use super::assignment::{Assignment, AssignmentMode, PodSetFlavors};
use super::fungibility::PreemptionMode;
use crate::cluster_queue::{ClusterQueueEntry, FlavorGroup};
use crate::queue::equivalence::EquivalenceClass;
use crate::referenced::ReferencedObjects;
use crate::topology::{
    Assumed, Demand, DomainUsage, Forest, PlacementFailure, PlacementOptions, PlacementOutlook,
    PlacementRequest, Placer, PodFilter, Unhealthy, has_levels,
};
use crate::workloads::{PlacementInputs, QuotaReservation};
use crate::{Admission, Cause, DelayedTopology, Name, PodSet, TopologyAssignment, TopologyGates};

/// The inputs of placement for one workload in one ClusterQueue.
#[derive(Clone, Copy)]
pub(crate) struct PlacementContext<'a> {
    pub(crate) forest: &'a Forest,
    pub(crate) gates: TopologyGates,
    pub(crate) referenced: &'a ReferencedObjects,
    pub(crate) cq: &'a ClusterQueueEntry,
    pub(crate) class: &'a EquivalenceClass,
    pub(crate) placement_inputs: &'a PlacementInputs,
    /// The present reservation, in the second pass.
    pub(crate) held: Option<&'a Admission>,
    /// The admission of the replaced workload slice.
    pub(crate) replaced: Option<&'a Admission>,
    /// Reservations whose usage does not count.
    pub(crate) gone: &'a [&'a QuotaReservation],
}

/// Requests by flavor, each with the index of its pod set in the assignment.
type PlacementRequests<'a> = BTreeMap<Name, Vec<(usize, PlacementRequest<'a>)>>;

/// Pod sets without a placement, by index in the assignment: delayed ones, and failures with their
/// cause.
type Unplaced = Vec<(usize, Option<DelayedTopology>, Option<Cause>)>;

/// Topology assignments by index of the pod set.
#[derive(Default)]
struct PlacementResult {
    assignments: Vec<(usize, TopologyAssignment)>,
    failure: Option<(usize, Name, PlacementFailure)>,
}

/// Usage of one domain above the workload's present usage there.
#[derive(Clone, Debug)]
pub(crate) struct DomainNeed {
    pub(crate) place: DomainUsage,
    /// The requests of one pod, without the resource `pods`, as in Kueue.
    demand: Demand,
    count: i32,
}

/// Whether all flavors of a queue have a topology. As in Kueue, this holds for a queue without
/// flavors.
pub(crate) fn is_topology_only(cq: &ClusterQueueEntry, referenced: &ReferencedObjects) -> bool {
    let mut flavors = cq.groups.iter().flat_map(|group| &group.flavors);
    flavors.all(|flavor| {
        referenced.flavors.get(&flavor.name).is_some_and(|object| object.topology_name.is_some())
    })
}

fn is_explicit(pod_set: &PodSet) -> bool {
    pod_set.topology.as_deref().is_some_and(crate::TopologyRequest::is_explicit)
}

impl<'a> PlacementContext<'a> {
    fn is_implied(&self, pod_set: &PodSet) -> bool {
        !is_explicit(pod_set) && is_topology_only(self.cq, self.referenced)
    }

    pub(crate) fn has_topology_request(&self) -> bool {
        self.class.pod_sets.iter().any(is_explicit) || is_topology_only(self.cq, self.referenced)
    }

    fn asks_for_topology(&self, pod_set: &PodSet) -> bool {
        is_explicit(pod_set) || is_topology_only(self.cq, self.referenced)
    }

    /// Why a flavor's topology excludes a pod set.
    pub(super) fn mismatch(
        &self,
        flavor: &Name,
        pod_set: &PodSet,
        group: &FlavorGroup,
    ) -> Option<Cause> {
        if self.is_implied(pod_set) {
            return None;
        }
        let flavor = flavor.clone();
        let has_topology = self
            .referenced
            .flavors
            .get(&flavor)
            .is_some_and(|object| object.topology_name.is_some());
        let request = pod_set.topology.as_deref().filter(|request| request.is_explicit());
        match (request, has_topology) {
            (None, true) => Some(Cause::TopologyOnly { flavor }),
            (None, false) => None,
            (Some(_), false) => {
                // Quota for transformed resources only needs no topology.
                let own = pod_set.requests_of_pod();
                let shared = group.resources.iter().any(|resource| own.contains_key(resource));
                shared.then_some(Cause::TopologyUnsupported { flavor })
            }
            (Some(request), true) => match self.forest.tree(&flavor) {
                None => Some(Cause::TopologyUnknown { flavor }),
                Some(tree) => {
                    (!has_levels(tree, request)).then_some(Cause::LevelMissing { flavor })
                }
            },
        }
    }

    /// Places the pods of an assignment that has quota, and updates the mode of the assignment.
    pub(super) fn place_pods(&self, assignment: &mut Assignment) {
        if assignment.fitness == AssignmentMode::NoFit || !self.has_topology_request() {
            return;
        }
        let (asks, errors) = self.request_all(assignment);
        for (at, delayed, error) in errors {
            let Some(pod_set) = assignment.pod_sets.get_mut(at) else { continue };
            pod_set.delayed = delayed.or(pod_set.delayed);
            if let Some(error) = error {
                (pod_set.failed, pod_set.causes) = (true, vec![error]);
                assignment.fitness = AssignmentMode::NoFit;
            }
        }
        if assignment.fitness == AssignmentMode::Fit {
            let placed = self.place(&asks, self.gone, false);
            match placed.failure {
                None => assignment.place(placed.assignments),
                Some((at, flavor, failure)) => {
                    if let Some(pod_set) = assignment.pod_sets.get_mut(at) {
                        pod_set
                            .causes
                            .push(Cause::PlacementFailed { flavor, failure: Box::new(failure) });
                        pod_set.set_mode(PreemptionMode::Preempt);
                    }
                    assignment.fitness = AssignmentMode::Preempt;
                }
            }
        }
        // The replacement of a failed node preempts nothing.
        if assignment.fitness == AssignmentMode::Preempt && self.unhealthy_nodes().is_empty() {
            let asked: Vec<_> = asks.values().flatten().map(|(at, _)| *at).collect();
            let (positions, mode) = match self.place(&asks, &[], true).failure {
                Some((at, ..)) => {
                    assignment.fitness = AssignmentMode::NoFit;
                    (vec![at], PreemptionMode::NoFit)
                }
                // Quota may suffice while no single domain does: preemption can free a domain.
                None => (asked, PreemptionMode::Preempt),
            };
            for at in positions {
                if let Some(pod_set) = assignment.pod_sets.get_mut(at) {
                    pod_set.set_mode(mode);
                }
            }
        }
    }

    /// Places a preemptor's pods as if its victims were gone; without victims, as if the topology
    /// were empty. This keeps the domains from lesser workloads of the cycle.
    pub(crate) fn reserve(&self, assignment: &mut Assignment, victims: &[&QuotaReservation]) {
        let unhealthy = self.held.is_some_and(|held| self.has_unhealthy(held));
        if assignment.fitness != AssignmentMode::Preempt
            || unhealthy
            || !self.has_topology_request()
        {
            return;
        }
        let (asks, _) = self.request_all(assignment);
        let gone: Vec<&QuotaReservation> = self.gone.iter().chain(victims).copied().collect();
        let placed = self.place(&asks, &gone, victims.is_empty());
        assignment.place(placed.assignments);
    }

    /// The search for a place of the first pod set that finds none. `None` if all find one.
    pub(crate) fn outlook(&self, assignment: &Assignment) -> Option<PlacementOutlook> {
        if assignment.fitness == AssignmentMode::Fit {
            return None;
        }
        let mut open = assignment.clone();
        // Domains of an empty topology are kept for a workload that waits.
        open.pod_sets.iter_mut().for_each(|pod_set| pod_set.topology = None);
        let (asks, _) = self.request_all(&open);
        asks.iter().find_map(|(flavor, asked)| {
            let tree = self.forest.tree(flavor)?;
            let mut assumed = Assumed::new();
            free_up(&mut assumed, flavor, self.gone, -1);
            let list: Vec<_> = asked.iter().map(|(_, request)| request.clone()).collect();
            let placer =
                Placer { tree, resources: &self.forest.resources, options: self.options(false) };
            placer.outlook(&list, flavor, &mut assumed)
        })
    }

    fn options(&self, empty: bool) -> PlacementOptions {
        let TopologyGates { mixed_profile: mixed, balanced, .. } = self.gates;
        PlacementOptions { mixed, balanced, empty }
    }

    /// Failed nodes to replace. A workload without quota has nothing to replace and is placed as any
    /// other, as in Kueue 0.19.5.
    fn unhealthy_nodes(&self) -> &'a [Name] {
        match self.held {
            Some(_) => &self.placement_inputs.unhealthy_nodes,
            None => &[],
        }
    }

    fn has_unhealthy(&self, held: &Admission) -> bool {
        let placed = held.pod_sets.iter().filter_map(|pod_set| pod_set.topology.as_ref());
        placed.into_iter().any(|topology| self.is_unhealthy(topology))
    }

    fn is_unhealthy(&self, topology: &TopologyAssignment) -> bool {
        self.unhealthy_nodes().iter().any(|node| topology.uses(node))
    }

    fn request_all(&self, assignment: &Assignment) -> (PlacementRequests<'a>, Unplaced) {
        let (mut asks, mut others) = (PlacementRequests::new(), Vec::new());
        if !self.has_topology_request() {
            return (asks, others);
        }
        let mut positions: Vec<_> = (0..assignment.pod_sets.len()).collect();
        positions.sort_by_key(|at| assignment.pod_sets.get(*at).map(|pod_set| pod_set.at));
        for at in positions {
            let Some(given) = assignment.pod_sets.get(at) else { continue };
            let Some(pod_set) = self.class.pod_sets.get(given.at) else { continue };
            let healthy =
                given.topology.as_ref().is_some_and(|topology| !self.is_unhealthy(topology));
            if !self.asks_for_topology(pod_set) || given.failed || given.count == 0 || healthy {
                continue;
            }
            match self.request_for(given, pod_set) {
                Ok(Some((flavor, request_all))) => {
                    asks.entry(flavor).or_default().push((at, request_all))
                }
                Ok(None) => others.push((at, Some(DelayedTopology::Pending), None)),
                Err(error) => others.push((at, None, Some(error))),
            }
        }
        (asks, others)
    }

    /// The flavor and the request of a pod set. `None` if placement is delayed.
    fn request_for(
        &self,
        given: &PodSetFlavors,
        pod_set: &'a PodSet,
    ) -> Result<Option<(Name, PlacementRequest<'a>)>, Cause> {
        let request = pod_set.topology.as_deref();
        let is_elastic = self.gates.elastic && self.class.replaces.is_some();
        if is_elastic
            && request
                .is_some_and(|request| request.required.is_some() || request.preferred.is_some())
        {
            let required = request.is_some_and(|request| request.required.is_some());
            return Err(Cause::ElasticLevel { required });
        }
        let flavor = self.only_flavor(given)?;
        let placed_later = self.referenced.dispatches(&self.cq.object)
            || (self.held.is_none() && self.referenced.provisions(&self.cq.object, &flavor));
        if placed_later {
            return Ok(None);
        }
        let of = |admission: Option<&'a Admission>| {
            let assigned =
                admission?.pod_sets.iter().find(|assigned| assigned.name == pod_set.name);
            assigned?.topology.as_ref()
        };
        let (filter, bad_update) = self.filter(&flavor, pod_set);
        let request_all = PlacementRequest {
            name: &pod_set.name,
            count: given.count,
            request,
            implied: self.is_implied(pod_set),
            requests: pod_set.requests_of_pod(),
            filter,
            bad_update,
            previous: of(self.replaced.filter(|_| is_elastic)),
            own: of(self.held),
            peer: self.peer_of(pod_set),
        };
        Ok(Some((flavor, request_all)))
    }

    /// The present assignment of the other pod set of a group.
    fn peer_of(&self, pod_set: &PodSet) -> Option<&'a TopologyAssignment> {
        let group = pod_set.topology.as_deref()?.group.as_ref()?;
        let same = |other: &&PodSet| {
            let request = other.topology.as_deref();
            other.name != pod_set.name
                && request.is_some_and(|request| request.group.as_ref() == Some(group))
        };
        let other = self.class.pod_sets.iter().find(same)?;
        let held = self.held?.pod_sets.iter().find(|assigned| assigned.name == other.name)?;
        held.topology.as_ref()
    }

    fn only_flavor(&self, given: &PodSetFlavors) -> Result<Name, Cause> {
        let own = self.cq.groups.iter().flat_map(|group| &group.flavors);
        if !own.into_iter().any(|flavor| self.forest.tree(&flavor.name).is_some()) {
            return Err(Cause::NoFlavors);
        }
        let flavors: BTreeSet<&Name> =
            given.flavors.values().map(|picked| &picked.flavor).collect();
        let with_tree: Vec<_> =
            flavors.into_iter().filter(|name| self.forest.tree(name).is_some()).cloned().collect();
        match &with_tree[..] {
            [] => Err(Cause::NoTopologyFlavor),
            [only] => Ok(only.clone()),
            _ => Err(Cause::SeveralTopologyFlavors { flavors: with_tree }),
        }
    }

    /// Selectors and tolerations of pods, flavor and admission checks together, and a conflict
    /// between them.
    fn filter(&self, flavor: &Name, pod_set: &'a PodSet) -> (PodFilter<'a>, Option<String>) {
        let updates = self
            .placement_inputs
            .pod_set_updates
            .iter()
            .filter(|update| update.pod_set == pod_set.name);
        let mut filter = PodFilter {
            tolerations: pod_set.tolerations.iter().collect(),
            node_selector: pod_set
                .node_selector
                .iter()
                .map(|(key, value)| (&**key, &**value))
                .collect(),
            affinity: &pod_set.affinity,
        };
        let mut bad = None;
        for update in updates {
            filter.tolerations.extend(&update.tolerations);
            for (key, value) in &update.node_selector {
                let known = filter.node_selector.insert(key, value);
                if known.is_some_and(|known| known != value) {
                    bad = Some(format!(
                        "conflict for nodeSelector: conflict for key={key}, value1={}, value2={value}",
                        known.unwrap_or_default()
                    ));
                }
            }
        }
        filter.tolerations.extend(self.forest.tolerations(flavor));
        (filter, bad)
    }

    fn place(
        &self,
        asks: &PlacementRequests<'a>,
        gone: &[&QuotaReservation],
        empty: bool,
    ) -> PlacementResult {
        let mut result = PlacementResult::default();
        let mut of_hosts = Assumed::new();
        let unhealthy = self.unhealthy_nodes().first().map(|node| Unhealthy {
            node,
            keep: self.gates.keep_single_pods && self.placement_inputs.owned_by_pod,
        });
        let options = self.options(empty);
        for (flavor, asked) in asks {
            let Some(tree) = self.forest.tree(flavor) else { continue };
            let shares = self.gates.overlapping_flavors && tree.is_by_host();
            let mut assumed = if shares { std::mem::take(&mut of_hosts) } else { Assumed::new() };
            if !empty {
                free_up(&mut assumed, flavor, gone, -1);
            }
            let list: Vec<PlacementRequest<'a>> =
                asked.iter().map(|(_, request_all)| request_all.clone()).collect();
            let placer = Placer { tree, resources: &self.forest.resources, options };
            let placement = placer.place(&list, unhealthy, &mut assumed);
            if !empty {
                free_up(&mut assumed, flavor, gone, 1);
            }
            if shares {
                of_hosts = assumed;
            }
            let position = |at: usize| asked.get(at).map(|(at, _)| *at);
            let placed = placement.assignments.into_iter().enumerate();
            result
                .assignments
                .extend(placed.filter_map(|(at, assignment)| Some((position(at)?, assignment?))));
            let failure = placement
                .failure
                .and_then(|(at, failure)| Some((position(at)?, flavor.clone(), failure)));
            result.failure = result.failure.or(failure);
        }
        result
    }

    /// The usage of an assignment by domain, above the workload's present usage.
    pub(crate) fn need(&self, assignment: &Assignment) -> Vec<DomainNeed> {
        let mut needs = Vec::new();
        for given in &assignment.pod_sets {
            let Some((topology, pod_set)) =
                given.topology.as_ref().zip(self.class.pod_sets.get(given.at))
            else {
                continue;
            };
            let Ok(flavor) = self.only_flavor(given) else { continue };
            let held = self
                .held
                .and_then(|held| held.pod_sets.iter().find(|known| known.name == given.name));
            let held = held.and_then(|held| held.topology.as_ref());
            for domain in &topology.domains {
                let known = held
                    .iter()
                    .flat_map(|held| &held.domains)
                    .filter(|known| known.values == domain.values);
                let count = domain.count - known.map(|known| known.count).sum::<i32>();
                if count > 0 {
                    let requests = pod_set.requests_of_pod();
                    let place = self.forest.use_of(&flavor, &domain.values, requests, count);
                    needs.push(DomainNeed {
                        place,
                        demand: Demand::of(requests, &self.forest.resources),
                        count,
                    });
                }
            }
        }
        needs
    }
}

/// The usage of reservations on a flavor.
fn places_in<'u>(
    flavor: &Name,
    reservations: impl Iterator<Item = &'u QuotaReservation>,
) -> impl Iterator<Item = &'u DomainUsage> {
    reservations
        .flat_map(|reservation| &reservation.places)
        .filter(move |place| place.flavor == *flavor)
}

/// Removes the usage of these reservations on a flavor (-1) or adds it back (1).
fn free_up(assumed: &mut Assumed, flavor: &Name, gone: &[&QuotaReservation], sign: i128) {
    for place in places_in(flavor, gone.iter().copied()) {
        assumed.entry(place.leaf.clone()).or_default().add_all(&place.amounts, sign);
    }
}

/// Whether these pods fit without `gone`. Each domain is checked by itself, as in Kueue.
pub(crate) fn has_capacity(
    forest: &Forest,
    needs: &[DomainNeed],
    gone: &[&QuotaReservation],
) -> bool {
    let mut freed: BTreeMap<&Name, Assumed> = BTreeMap::new();
    needs.iter().all(|need| {
        let flavor = &need.place.flavor;
        let freed = freed.entry(flavor).or_insert_with(|| {
            let mut freed = Assumed::new();
            free_up(&mut freed, flavor, gone, 1);
            freed
        });
        forest.has_capacity(&need.place, &need.demand, need.count, freed.get(&need.place.leaf))
    })
}
