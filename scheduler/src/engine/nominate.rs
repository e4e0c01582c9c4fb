//! Nomination, the first half of a cycle: the flavors and victims of each head, as if it were the
//! only one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use super::slices::BeingEvicted;
use crate::cluster_queue::ClusterQueueEntry;
use crate::flavor_resource::FlavorResource;
use crate::flavor_scan::FlavorScan;
use crate::flavors::{
    Assignment, AssignmentMode, DomainNeed, FlavorAssigner, PlacementContext, largest_that_fits,
};
use crate::ids::{NodeId, WorkloadId};
use crate::preemption::candidates::Preemptor;
use crate::preemption::classical::ClassicalPreemption;
use crate::preemption::fair::FairPreemption;
use crate::preemption::{NoPreemption, Target, TargetSelector};
use crate::queue::RequeueReason;
use crate::queue::equivalence::EquivalenceClass;
use crate::referenced::ReferencedObjects;
use crate::topology::Forest;
use crate::tree::QuotaTree;
use crate::workloads::{PlacementInputs, QuotaReservation, WorkloadEntry, Workloads};
use crate::{Amount, EngineGates, EngineSettings, Name, PreemptionSettings, Reason, Time};

/// A head with its nomination. Kueue: `entry` in `pkg/scheduler/scheduler.go`.
#[derive(Debug)]
pub(super) struct CycleEntry {
    pub(super) id: WorkloadId,
    pub(super) cq: NodeId,
    pub(super) class: Arc<EquivalenceClass>,
    pub(super) uid: Name,
    pub(super) queue_time: Time,
    pub(super) assignment: Assignment,
    pub(super) targets: Vec<Target>,
    /// The workload slice that it replaces.
    pub(super) replaced: Option<WorkloadId>,
    /// The usage of the assignment above the usage of the replaced slice.
    pub(super) need: Vec<(FlavorResource, Amount)>,
    /// The same for topology domains.
    pub(super) places: Vec<DomainNeed>,
    /// Set in the second pass, with the inputs of the moment when the pass became necessary.
    pub(super) again: Option<Box<PlacementInputs>>,
    /// Preemptions were issued for it, and the gate gives it precedence.
    pub(super) is_preemptor: bool,
}

impl CycleEntry {
    /// Zero unless priority orders the heads of a cycle.
    pub(super) fn priority_in(&self, gates: EngineGates) -> i32 {
        if gates.priority_sorting { self.class.priority } else { 0 }
    }

    /// Whether the tree has free quota for its assignment.
    pub(super) fn fits_in(&self, tree: &QuotaTree) -> bool {
        let free = |(fr, amount): &(FlavorResource, Amount)| {
            tree.available(self.cq, *fr).max(Amount::ZERO) >= *amount
        };
        self.assignment.usage.iter().all(free)
    }
}

/// The inputs of a flavor search, and the tree for its simulations.
struct FlavorSearch<'a> {
    settings: &'a EngineSettings,
    /// Requested pods by pod set.
    counts: Cow<'a, [i32]>,
    referenced: &'a ReferencedObjects,
    preemption: Option<&'a PreemptionSettings>,
    preemptor: Preemptor<'a>,
    cycle: u64,
    tree: &'a mut QuotaTree,
}

impl Engine {
    /// Nominates a head. `Err` if it is inadmissible whatever the quota. `again` is set in the
    /// second pass.
    pub(super) fn nominate(
        &mut self,
        id: WorkloadId,
        cq: NodeId,
        again: Option<Box<PlacementInputs>>,
    ) -> Result<CycleEntry, (RequeueReason, Reason)> {
        let unknown = (RequeueReason::Generic, Reason::OnHold);
        let Some((wl, queue)) = self.workloads.get(id).zip(self.cluster_queues.get(&cq)) else {
            return Err(unknown);
        };
        inadmissible(wl, &queue.object, &self.referenced)?;
        if (again.is_some() && !queue.is_active()) || self.lacks_topology(queue) {
            return Err((
                RequeueReason::Generic,
                Reason::ClusterQueueInactive { name: queue.object.name.clone() },
            ));
        }
        let replaced = self
            .replaced(wl, cq)
            .map_err(|BeingEvicted| (RequeueReason::Generic, Reason::VictimsTaken))?;
        let gates = self.settings.gates;
        let outdated = |scan: &FlavorScan| {
            scan.is_outdated(
                wl.class.id,
                queue.generation,
                self.cycles,
                gates.preserve_scan_progress,
            )
        };
        let is_preemptor = gates.prioritize_preemptors && queue.queue.preemptor() == Some(id);
        let scan = wl.scan.as_deref().filter(|scan| !outdated(scan)).cloned();
        let (class, uid, queue_time) = (wl.class.clone(), wl.uid.clone(), wl.queue_time);
        let (cluster_queues, workloads, preemption) =
            (&self.cluster_queues, &self.workloads, self.preemption.as_ref());
        let (settings, referenced, cycle) = (&self.settings, &self.referenced, self.cycles);
        let subject = PlacedWorkload { wl, again: again.as_deref(), replaced };
        let placement = placement(
            (&self.forest, settings, referenced),
            queue,
            &class,
            (workloads, subject),
            &[],
        );
        let placement = placement.as_ref();
        let preemptor = Preemptor {
            cluster_queues,
            workloads,
            cq: queue,
            class: &class,
            queue_time,
            replaced,
            placement,
            gates,
        };
        let (counts, tree) = (requested_counts(&class, placement), &mut self.tree);
        let best =
            FlavorSearch { settings, counts, referenced, preemption, preemptor, cycle, tree }
                .best(scan.as_ref(), None);
        let mut entry = CycleEntry {
            id,
            cq,
            class,
            uid,
            queue_time,
            assignment: best.assignment,
            targets: best.targets,
            replaced,
            need: Vec::new(),
            places: best.places,
            again,
            is_preemptor,
        };
        self.record_search(&mut entry);
        Ok(entry)
    }

    /// Stores the position of the search, and the usage of the entry.
    pub(super) fn record_search(&mut self, entry: &mut CycleEntry) {
        if let Some(wl) = self.workloads.get_mut(entry.id) {
            wl.scan = entry.assignment.scan.clone().map(Box::new);
        }
        entry.need = match entry.again {
            None => self.need(&entry.assignment, entry.replaced),
            Some(_) => Vec::new(),
        };
    }

    /// Nominates again within the cycle, restricted to the flavors of the first nomination. The
    /// usage is that of `tree`, without the topology usage of `gone`.
    pub(super) fn renominate(
        &self,
        tree: &mut QuotaTree,
        entry: &mut CycleEntry,
        gone: &[&QuotaReservation],
    ) -> Option<()> {
        let (cluster_queues, workloads) = (&self.cluster_queues, &self.workloads);
        let (cq, class, queue_time) =
            (cluster_queues.get(&entry.cq)?, entry.class.clone(), entry.queue_time);
        let (class, gates) = (&*class, self.settings.gates);
        let nomination = entry.assignment.nomination();
        let wl = workloads.get(entry.id)?;
        let (settings, referenced, preemption) =
            (&self.settings, &self.referenced, self.preemption.as_ref());
        let subject =
            PlacedWorkload { wl, again: entry.again.as_deref(), replaced: entry.replaced };
        let placement =
            placement((&self.forest, settings, referenced), cq, class, (workloads, subject), gone);
        let placement = placement.as_ref();
        let preemptor = Preemptor {
            cluster_queues,
            workloads,
            cq,
            class,
            queue_time,
            replaced: entry.replaced,
            placement,
            gates,
        };
        let counts = requested_counts(class, placement);
        let best = FlavorSearch {
            settings,
            counts,
            referenced,
            preemption,
            preemptor,
            cycle: self.cycles,
            tree,
        }
        .best(None, Some(&nomination));
        (entry.assignment, entry.targets, entry.places) =
            (best.assignment, best.targets, best.places);
        Some(())
    }

    /// Nominates a workload as the only head, on a copy of the tree.
    pub(super) fn dry_run(
        &self,
        tree: &mut QuotaTree,
        id: WorkloadId,
        cq: NodeId,
    ) -> Result<(Assignment, Vec<Target>), Reason> {
        let Some((wl, queue)) = self.workloads.get(id).zip(self.cluster_queues.get(&cq)) else {
            return Err(Reason::OnHold);
        };
        inadmissible(wl, &queue.object, &self.referenced).map_err(|(_, reason)| reason)?;
        self.replaced(wl, cq).map_err(|BeingEvicted| Reason::VictimsTaken)?;
        let placement = self.placement(queue, wl);
        let preemptor = self.preemptor(queue, wl, placement.as_ref());
        let (settings, referenced, preemption) =
            (&self.settings, &self.referenced, self.preemption.as_ref());
        let counts = requested_counts(&wl.class, preemptor.placement);
        let best = FlavorSearch {
            settings,
            counts,
            referenced,
            preemption,
            preemptor,
            cycle: self.cycles,
            tree,
        }
        .best(None, None);
        Ok((best.assignment, best.targets))
    }

    pub(super) fn placement<'a>(
        &'a self,
        cq: &'a ClusterQueueEntry,
        wl: &'a WorkloadEntry,
    ) -> Option<PlacementContext<'a>> {
        let replaced = self.replaced(wl, cq.node).unwrap_or_default();
        let subject = PlacedWorkload { wl, again: None, replaced };
        placement(
            (&self.forest, &self.settings, &self.referenced),
            cq,
            &wl.class,
            (&self.workloads, subject),
            &[],
        )
    }
}

/// The best assignment, its victims and its usage of topology domains.
struct SearchOutcome {
    assignment: Assignment,
    targets: Vec<Target>,
    places: Vec<DomainNeed>,
}

/// The workload whose pods are placed.
#[derive(Clone, Copy)]
struct PlacedWorkload<'a> {
    wl: &'a WorkloadEntry,
    again: Option<&'a PlacementInputs>,
    replaced: Option<WorkloadId>,
}

static NO_PLACEMENT_INPUTS: PlacementInputs = PlacementInputs {
    unhealthy_nodes: Vec::new(),
    owned_by_pod: false,
    pod_set_updates: Vec::new(),
};

fn placement<'a>(
    (forest, settings, referenced): (&'a Forest, &'a EngineSettings, &'a ReferencedObjects),
    cq: &'a ClusterQueueEntry,
    class: &'a EquivalenceClass,
    (workloads, subject): (&'a Workloads, PlacedWorkload<'a>),
    gone: &'a [&'a QuotaReservation],
) -> Option<PlacementContext<'a>> {
    let PlacedWorkload { wl, again, replaced } = subject;
    // Skips the inputs of placement if no flavor has a topology and the workload requests none.
    // Kueue treats a queue without flavors as if all its flavors had a topology.
    let asks = || class.pod_sets.iter().any(|pod_set| pod_set.topology.is_some());
    if !forest.is_used()
        && again.is_none()
        && wl.placement_inputs.is_none()
        && !cq.groups.is_empty()
        && !asks()
    {
        return None;
    }
    let admission =
        |wl: &'a WorkloadEntry| wl.reservation.as_deref().map(|reservation| &reservation.admission);
    Some(PlacementContext {
        forest,
        gates: settings.topology?,
        referenced,
        cq,
        class,
        placement_inputs: again.or(wl.placement_inputs.as_deref()).unwrap_or(&NO_PLACEMENT_INPUTS),
        held: again.and_then(|_| admission(wl)),
        replaced: replaced.and_then(|id| admission(workloads.get(id)?)),
        gone,
    })
}

/// Requested pods by pod set. A workload with quota gets no more pods than its reservation has.
fn requested_counts<'a>(
    class: &'a EquivalenceClass,
    placement: Option<&PlacementContext<'_>>,
) -> Cow<'a, [i32]> {
    let Some(held) = placement.and_then(|placement| placement.held) else {
        return Cow::Borrowed(&class.counts);
    };
    let given = |name: &Name| {
        held.pod_sets.iter().find(|assigned| assigned.name == *name).map(|given| given.count)
    };
    let counts = class.pod_sets.iter().zip(&class.counts);
    Cow::Owned(
        counts
            .map(|(pod_set, count)| given(&pod_set.name).map_or(*count, |given| given.min(*count)))
            .collect(),
    )
}

/// Why a workload is inadmissible whatever the quota.
fn inadmissible(
    wl: &WorkloadEntry,
    queue: &crate::ClusterQueue,
    referenced: &ReferencedObjects,
) -> Result<(), (RequeueReason, Reason)> {
    if wl.flags.checks_failed {
        return Err((RequeueReason::Generic, Reason::ChecksFailed));
    }
    match referenced.namespace_matches(queue, &wl.key.namespace) {
        None => {
            return Err((
                RequeueReason::Generic,
                Reason::NamespaceMissing { name: wl.key.namespace.clone() },
            ));
        }
        Some(false) => return Err((RequeueReason::NamespaceMismatch, Reason::NamespaceMismatch)),
        Some(true) => {}
    }
    match wl.class.pod_sets.iter().find_map(|pod_set| pod_set.problem.clone()) {
        Some(message) => Err((RequeueReason::Generic, Reason::Invalid { message })),
        None => Ok(()),
    }
}

impl FlavorSearch<'_> {
    /// The assignment of all pods, if it fits or preemption makes it fit. Else the assignment of
    /// the most pods for which this holds (partial admission). Else the assignment of all pods,
    /// without victims.
    fn best(
        &mut self,
        scan: Option<&FlavorScan>,
        nominated: Option<&[BTreeMap<Name, Name>]>,
    ) -> SearchOutcome {
        let preemptor = self.preemptor;
        preemptor.shift_replaced(self.tree, -1);
        let (mut assignment, targets) = self.search(scan, nominated);
        preemptor.shift_replaced(self.tree, 1);
        let Some(placement) = preemptor.placement else {
            return SearchOutcome { assignment, targets, places: Vec::new() };
        };
        placement.reserve(&mut assignment, &preemptor.reservations_of(&targets));
        let places = placement.need(&assignment);
        SearchOutcome { assignment, targets, places }
    }

    fn search(
        &mut self,
        scan: Option<&FlavorScan>,
        nominated: Option<&[BTreeMap<Name, Name>]>,
    ) -> (Assignment, Vec<Target>) {
        let Self { settings, counts, referenced, preemption, preemptor, cycle, tree } = self;
        let Preemptor { cq, class, workloads, replaced, placement, .. } = *preemptor;
        let kept = replaced
            .and_then(|id| workloads.get(id)?.reservation.as_deref())
            .map(|reservation| &reservation.admission);
        let scan = scan.filter(|_| kept.is_none());
        let assigner = FlavorAssigner {
            settings,
            referenced,
            cq,
            class,
            scan,
            nominated,
            kept,
            placement,
            cycle: *cycle,
        };
        let (mut nobody, mut classical) =
            (NoPreemption { node: cq.node }, ClassicalPreemption::new(*preemptor));
        let strategies = preemption.map_or(&[][..], |preemption| &preemption.fair_strategies);
        let mut fair = FairPreemption::new(*preemptor, strategies);
        let oracle: &mut dyn TargetSelector = match preemption {
            None => &mut nobody,
            Some(_) if settings.fair_sharing => &mut fair,
            Some(_) => &mut classical,
        };
        let full = assigner.assign(tree, oracle, counts);
        if let Some(targets) = victims_if_possible(tree, oracle, &full) {
            return (full, targets);
        }
        if settings.partial_admission && class.can_shrink() {
            let reduced = largest_that_fits(&class.pod_sets, |counts| {
                // A pod set without remaining pods needs nothing, whatever the reduction.
                let wanted = class.counts.iter().zip(counts);
                let counts: Vec<_> =
                    wanted.map(|(left, count)| if *left == 0 { 0 } else { *count }).collect();
                let assignment = assigner.assign(tree, oracle, &counts);
                let targets = victims_if_possible(tree, oracle, &assignment)?;
                Some((assignment, targets))
            });
            if let Some(reduced) = reduced {
                return reduced;
            }
        }
        (full, Vec::new())
    }
}

/// The victims, if the assignment fits or preemption makes it fit.
fn victims_if_possible(
    tree: &mut QuotaTree,
    oracle: &mut dyn TargetSelector,
    assignment: &Assignment,
) -> Option<Vec<Target>> {
    match assignment.fitness {
        AssignmentMode::Fit | AssignmentMode::DeferredFit => Some(Vec::new()),
        AssignmentMode::Preempt => {
            Some(oracle.targets(tree, assignment)).filter(|targets| !targets.is_empty())
        }
        AssignmentMode::NoFit => None,
    }
}
