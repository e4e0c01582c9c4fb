//! Topology-aware scheduling of one workload: which flavors do, and where its pods go. Kueue's
//! `tas_flavorassigner.go` is the rule.

use std::collections::{BTreeMap, BTreeSet};

use super::assignment::{Assignment, Fitness, PodSetFlavors};
use super::fungibility::Mode;
use crate::cluster_queue::{Cq, Group};
use crate::queue::equivalence::Class;
use crate::referenced::World;
use crate::topology::{
    Ask, Assumed, Demand, Failure, Forest, Options, PlaceUse, Placer, PodFilter, Unhealthy,
    has_levels,
};
use crate::workloads::{Facts, Hold};
use crate::{Admission, Cause, DelayedTopology, Name, PodSet, TopologyAssignment, TopologyGates};

/// All that the placement of one workload in one ClusterQueue depends on.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) forest: &'a Forest,
    pub(crate) gates: TopologyGates,
    pub(crate) world: &'a World,
    pub(crate) cq: &'a Cq,
    pub(crate) class: &'a Class,
    pub(crate) facts: &'a Facts,
    /// What the workload holds already, if its pods are placed after its reservation or again.
    pub(crate) held: Option<&'a Admission>,
    /// What the workload has whose place this one takes.
    pub(crate) replaced: Option<&'a Admission>,
    /// Who is taken for gone.
    pub(crate) gone: &'a [&'a Hold],
}

/// What is to be placed, by flavor: the positions of pod sets in the assignment, with what is asked for each.
pub(crate) type Asks<'a> = BTreeMap<Name, Vec<(usize, Ask<'a>)>>;

/// Pod sets that are not placed, by their position in the assignment: those that are later, and those that cannot be.
type Unplaced = Vec<(usize, Option<DelayedTopology>, Option<Cause>)>;

/// Where pods go, by their position in the assignment.
#[derive(Default)]
struct Placed {
    assignments: Vec<(usize, TopologyAssignment)>,
    failure: Option<(usize, Name, Failure)>,
}

/// Pods of one workload at one place, beyond those that it has there already.
#[derive(Clone, Debug)]
pub(crate) struct PlaceNeed {
    pub(crate) place: PlaceUse,
    /// What one pod asks for, itself left out, as in Kueue.
    demand: Demand,
    count: i32,
}

/// Whether all flavors of a queue have a topology. As in Kueue that is so of a queue without flavors.
pub(crate) fn is_topology_only(cq: &Cq, world: &World) -> bool {
    let mut flavors = cq.groups.iter().flat_map(|group| &group.flavors);
    flavors.all(|flavor| {
        world.flavors.get(&flavor.name).is_some_and(|object| object.topology_name.is_some())
    })
}

fn is_explicit(pod_set: &PodSet) -> bool {
    pod_set.topology.as_deref().is_some_and(crate::TopologyRequest::is_explicit)
}

impl<'a> Site<'a> {
    fn is_implied(&self, pod_set: &PodSet) -> bool {
        !is_explicit(pod_set) && is_topology_only(self.cq, self.world)
    }

    /// Whether some pod set asks for a topology.
    pub(crate) fn is_asked(&self) -> bool {
        self.class.pod_sets.iter().any(is_explicit) || is_topology_only(self.cq, self.world)
    }

    fn asks_for_topology(&self, pod_set: &PodSet) -> bool {
        is_explicit(pod_set) || is_topology_only(self.cq, self.world)
    }

    /// Why pods cannot use a flavor, if it is for its topology.
    pub(super) fn mismatch(&self, flavor: &Name, pod_set: &PodSet, group: &Group) -> Option<Cause> {
        if self.is_implied(pod_set) {
            return None;
        }
        let flavor = flavor.clone();
        let has_topology =
            self.world.flavors.get(&flavor).is_some_and(|object| object.topology_name.is_some());
        let request = pod_set.topology.as_deref().filter(|request| request.is_explicit());
        match (request, has_topology) {
            (None, true) => Some(Cause::TopologyOnly { flavor }),
            (None, false) => None,
            (Some(_), false) => {
                // A flavor that only counts what the pods' resources are transformed into needs no topology.
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

    /// Places the pods of an assignment whose quota was found, and works out anew what it allows.
    pub(super) fn complete(&self, assignment: &mut Assignment) {
        if assignment.fitness == Fitness::NoFit || !self.is_asked() {
            return;
        }
        let (asks, errors) = self.ask(assignment);
        for (at, delayed, error) in errors {
            let Some(pod_set) = assignment.pod_sets.get_mut(at) else { continue };
            pod_set.delayed = delayed.or(pod_set.delayed);
            if let Some(error) = error {
                (pod_set.failed, pod_set.causes) = (true, vec![error]);
                assignment.fitness = Fitness::NoFit;
            }
        }
        if assignment.fitness == Fitness::Fit {
            let placed = self.place(&asks, self.gone, false);
            match placed.failure {
                None => assignment.place(placed.assignments),
                Some((at, flavor, failure)) => {
                    if let Some(pod_set) = assignment.pod_sets.get_mut(at) {
                        pod_set
                            .causes
                            .push(Cause::Misplaced { flavor, failure: Box::new(failure) });
                        pod_set.set_mode(Mode::Preempt);
                    }
                    assignment.fitness = Fitness::Preempt;
                }
            }
        }
        // Nobody goes for the replacement of a failed node.
        if assignment.fitness == Fitness::Preempt && self.facts.unhealthy_nodes.is_empty() {
            let asked: Vec<_> = asks.values().flatten().map(|(at, _)| *at).collect();
            let (positions, mode) = match self.place(&asks, &[], true).failure {
                Some((at, ..)) => {
                    assignment.fitness = Fitness::NoFit;
                    (vec![at], Mode::NoFit)
                }
                // Others may have to go in resources of which there is enough, but not at one place.
                None => (asked, Mode::Preempt),
            };
            for at in positions {
                if let Some(pod_set) = assignment.pod_sets.get_mut(at) {
                    pod_set.set_mode(mode);
                }
            }
        }
    }

    /// Where the pods of a preemptor would go without its victims; without victims, if nothing else were there. So that
    /// lesser workloads do not take it.
    pub(crate) fn reserve(&self, assignment: &mut Assignment, victims: &[&Hold]) {
        let unhealthy = self.held.is_some_and(|held| self.has_unhealthy(held));
        if assignment.fitness != Fitness::Preempt || unhealthy || !self.is_asked() {
            return;
        }
        let (asks, _) = self.ask(assignment);
        let gone: Vec<&Hold> = self.gone.iter().chain(victims).copied().collect();
        let placed = self.place(&asks, &gone, victims.is_empty());
        assignment.place(placed.assignments);
    }

    /// What is asked for the pod sets of an assignment that have no place yet.
    pub(crate) fn asks(&self, assignment: &Assignment) -> Asks<'a> {
        self.ask(assignment).0
    }

    /// Whether all has a place when these are gone.
    pub(crate) fn fits(&self, asks: &Asks<'a>, victims: &[&Hold]) -> bool {
        let gone: Vec<&Hold> = self.gone.iter().chain(victims).copied().collect();
        self.place(asks, &gone, false).failure.is_none()
    }

    fn has_unhealthy(&self, held: &Admission) -> bool {
        let placed = held.pod_sets.iter().filter_map(|pod_set| pod_set.topology.as_ref());
        placed.into_iter().any(|topology| self.is_unhealthy(topology))
    }

    fn is_unhealthy(&self, topology: &TopologyAssignment) -> bool {
        self.facts.unhealthy_nodes.iter().any(|node| topology.uses(node))
    }

    fn ask(&self, assignment: &Assignment) -> (Asks<'a>, Unplaced) {
        let (mut asks, mut others) = (Asks::new(), Vec::new());
        if !self.is_asked() {
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
            match self.ask_one(given, pod_set) {
                Ok(Some((flavor, ask))) => asks.entry(flavor).or_default().push((at, ask)),
                Ok(None) => others.push((at, Some(DelayedTopology::Pending), None)),
                Err(error) => others.push((at, None, Some(error))),
            }
        }
        (asks, others)
    }

    /// The flavor of a pod set with what is asked of it. `None`: it is placed later.
    fn ask_one(
        &self,
        given: &PodSetFlavors,
        pod_set: &'a PodSet,
    ) -> Result<Option<(Name, Ask<'a>)>, Cause> {
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
        let placed_later = self.world.dispatches(&self.cq.object)
            || (self.held.is_none() && self.world.provisions(&self.cq.object, &flavor));
        if placed_later {
            return Ok(None);
        }
        let of = |admission: Option<&'a Admission>| {
            let assigned =
                admission?.pod_sets.iter().find(|assigned| assigned.name == pod_set.name);
            assigned?.topology.as_ref()
        };
        let (filter, bad_update) = self.filter(&flavor, pod_set);
        let ask = Ask {
            name: &pod_set.name,
            count: given.count,
            request,
            implied: self.is_implied(pod_set),
            requests: pod_set.requests_of_pod(),
            filter,
            bad_update,
            previous: of(self.replaced.filter(|_| is_elastic)),
            own: of(self.held),
        };
        Ok(Some((flavor, ask)))
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

    /// What the pods select and tolerate, with what the flavor and admission checks add to it; and what contradicts.
    fn filter(&self, flavor: &Name, pod_set: &'a PodSet) -> (PodFilter<'a>, Option<String>) {
        let updates =
            self.facts.pod_set_updates.iter().filter(|update| update.pod_set == pod_set.name);
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

    fn place(&self, asks: &Asks<'a>, gone: &[&Hold], empty: bool) -> Placed {
        let mut result = Placed::default();
        let mut of_hosts = Assumed::new();
        let unhealthy = self.facts.unhealthy_nodes.first().map(|node| Unhealthy {
            node,
            keep: self.gates.keep_single_pods && self.facts.owned_by_pod,
        });
        let options =
            Options { mixed: self.gates.mixed_profile, balanced: self.gates.balanced, empty };
        for (flavor, asked) in asks {
            let Some(tree) = self.forest.tree(flavor) else { continue };
            let shares = self.gates.overlapping_flavors && tree.is_by_host();
            let mut assumed = if shares { std::mem::take(&mut of_hosts) } else { Assumed::new() };
            if !empty {
                free_up(&mut assumed, flavor, gone, -1);
            }
            let list: Vec<Ask<'a>> = asked.iter().map(|(_, ask)| ask.clone()).collect();
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

    /// What an assignment takes of places, beyond what the workload has there.
    pub(crate) fn need(&self, assignment: &Assignment) -> Vec<PlaceNeed> {
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
                    needs.push(PlaceNeed {
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

/// Takes what these use of a flavor's places out of what is taken (-1), or puts it back (1).
fn free_up(assumed: &mut Assumed, flavor: &Name, gone: &[&Hold], sign: i128) {
    for place in gone.iter().flat_map(|hold| &hold.places).filter(|place| place.flavor == *flavor) {
        assumed.entry(place.leaf.clone()).or_default().add_all(&place.amounts, sign);
    }
}

/// Whether there is room for these pods when some have gone. Each place is looked at by itself, as in Kueue.
pub(crate) fn has_room(forest: &Forest, needs: &[PlaceNeed], gone: &[&Hold]) -> bool {
    let mut freed: BTreeMap<&Name, Assumed> = BTreeMap::new();
    needs.iter().all(|need| {
        let flavor = &need.place.flavor;
        let freed = freed.entry(flavor).or_insert_with(|| {
            let mut freed = Assumed::new();
            free_up(&mut freed, flavor, gone, 1);
            freed
        });
        forest.has_room(&need.place, &need.demand, need.count, freed.get(&need.place.leaf))
    })
}
