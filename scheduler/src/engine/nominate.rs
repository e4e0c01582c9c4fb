//! The first half of a cycle: what could be done for each head, if the others were not there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use super::slices::Leaving;
use crate::cluster_queue::Cq;
use crate::flavor_resource::Fr;
use crate::flavors::{Assigner, Assignment, Fitness, PlaceNeed, Scan, Site, largest_that_fits};
use crate::preemption::candidates::Preemptor;
use crate::preemption::classical::Classical;
use crate::preemption::fair::Fair;
use crate::preemption::{NoPreemption, Oracle, Target};
use crate::queue::Requeue;
use crate::queue::equivalence::Class;
use crate::referenced::World;
use crate::topology::Forest;
use crate::tree::{NodeId, Tree};
use crate::workloads::{Facts, Hold, Wl, WlId, Workloads};
use crate::{Amount, Gates, Name, Preemption, Reason, Settings, Time};

/// A head with what could be done for it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: WlId,
    pub(super) cq: NodeId,
    pub(super) class: Arc<Class>,
    pub(super) uid: Name,
    pub(super) queue_time: Time,
    pub(super) assignment: Assignment,
    pub(super) targets: Vec<Target>,
    /// The workload in whose place it comes.
    pub(super) replaced: Option<WlId>,
    /// What the assignment takes beyond what that one has.
    pub(super) need: Vec<(Fr, Amount)>,
    /// What it takes of places.
    pub(super) places: Vec<PlaceNeed>,
    /// It holds quota already, and its pods are placed after that or again: as it was when that was noticed.
    pub(super) again: Option<Box<Facts>>,
    /// Others were told to go for it, and that counts in the order of entries.
    pub(super) is_preemptor: bool,
}

impl Entry {
    /// What its priority counts among the heads of a cycle.
    pub(super) fn priority_in(&self, gates: Gates) -> i32 {
        if gates.priority_sorting { self.class.priority } else { 0 }
    }
}

/// Everything a search for flavors reads, and the tree, on which it simulates.
struct Bench<'a> {
    settings: &'a Settings,
    /// How many pods are wanted, by pod set.
    counts: Cow<'a, [i32]>,
    world: &'a World,
    preemption: Option<&'a Preemption>,
    preemptor: Preemptor<'a>,
    cycle: u64,
    tree: &'a mut Tree,
}

impl Engine {
    /// What could be done for a head; or why nothing can, without looking at quota. `again`: it holds quota already.
    pub(super) fn nominate(
        &mut self,
        id: WlId,
        cq: NodeId,
        again: Option<Box<Facts>>,
    ) -> Result<Entry, (Requeue, Reason)> {
        let unknown = (Requeue::Generic, Reason::Held);
        let Some((wl, queue)) = self.workloads.get(id).zip(self.cqs.get(&cq)) else {
            return Err(unknown);
        };
        inadmissible(wl, &queue.object, &self.world)?;
        if (again.is_some() && !queue.is_active()) || self.lacks_topology(queue) {
            return Err((
                Requeue::Generic,
                Reason::ClusterQueueInactive { name: queue.object.name.clone() },
            ));
        }
        let replaced =
            self.replaced(wl, cq).map_err(|Leaving| (Requeue::Generic, Reason::VictimsTaken))?;
        let gates = self.settings.gates;
        let outdated = |scan: &Scan| {
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
        let (cqs, workloads, preemption) = (&self.cqs, &self.workloads, self.preemption.as_ref());
        let (settings, world, cycle) = (&self.settings, &self.world, self.cycles);
        let subject = Subject { wl, again: again.as_deref(), replaced };
        let site = site((&self.forest, settings, world), queue, &class, (workloads, subject), &[]);
        let site = site.as_ref();
        let preemptor = Preemptor {
            cqs,
            workloads,
            cq: queue,
            class: &class,
            queue_time,
            replaced,
            site,
            gates,
        };
        let (counts, tree) = (wanted(&class, site), &mut self.tree);
        let best = Bench { settings, counts, world, preemption, preemptor, cycle, tree }
            .best(scan.as_ref(), None);
        let mut entry = Entry {
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
        self.note_search(&mut entry);
        Ok(entry)
    }

    /// Remembers where a search ended, and what the entry takes by it.
    pub(super) fn note_search(&mut self, entry: &mut Entry) {
        if let Some(wl) = self.workloads.get_mut(entry.id) {
            wl.scan = entry.assignment.scan.clone().map(Box::new);
        }
        entry.need = match entry.again {
            None => self.need(&entry.assignment, entry.replaced),
            Some(_) => Vec::new(),
        };
    }

    /// Searches again within the cycle, among the flavors that were chosen before, with usage as `tree` has it and without
    /// what those use of places who have gone.
    pub(super) fn renominate(
        &self,
        tree: &mut Tree,
        entry: &mut Entry,
        gone: &[&Hold],
    ) -> Option<()> {
        let (cqs, workloads) = (&self.cqs, &self.workloads);
        let (cq, class, queue_time) = (cqs.get(&entry.cq)?, entry.class.clone(), entry.queue_time);
        let (class, gates) = (&*class, self.settings.gates);
        let nomination = entry.assignment.nomination();
        let wl = workloads.get(entry.id)?;
        let (settings, world, preemption) = (&self.settings, &self.world, self.preemption.as_ref());
        let subject = Subject { wl, again: entry.again.as_deref(), replaced: entry.replaced };
        let site = site((&self.forest, settings, world), cq, class, (workloads, subject), gone);
        let site = site.as_ref();
        let preemptor = Preemptor {
            cqs,
            workloads,
            cq,
            class,
            queue_time,
            replaced: entry.replaced,
            site,
            gates,
        };
        let counts = wanted(class, site);
        let best =
            Bench { settings, counts, world, preemption, preemptor, cycle: self.cycles, tree }
                .best(None, Some(&nomination));
        (entry.assignment, entry.targets, entry.places) =
            (best.assignment, best.targets, best.places);
        Some(())
    }

    /// What could be done for a workload if it were the only head, tried on a copy of the tree.
    pub(super) fn dry_run(
        &self,
        tree: &mut Tree,
        id: WlId,
        cq: NodeId,
    ) -> Result<(Assignment, Vec<Target>), Reason> {
        let Some((wl, queue)) = self.workloads.get(id).zip(self.cqs.get(&cq)) else {
            return Err(Reason::Held);
        };
        inadmissible(wl, &queue.object, &self.world).map_err(|(_, reason)| reason)?;
        self.replaced(wl, cq).map_err(|Leaving| Reason::VictimsTaken)?;
        let site = self.site(queue, wl);
        let preemptor = self.preemptor(queue, wl, site.as_ref());
        let (settings, world, preemption) = (&self.settings, &self.world, self.preemption.as_ref());
        let counts = wanted(&wl.class, preemptor.site);
        let best =
            Bench { settings, counts, world, preemption, preemptor, cycle: self.cycles, tree }
                .best(None, None);
        Ok((best.assignment, best.targets))
    }

    /// Where the pods of a workload may run.
    pub(super) fn site<'a>(&'a self, cq: &'a Cq, wl: &'a Wl) -> Option<Site<'a>> {
        let replaced = self.replaced(wl, cq.node).unwrap_or_default();
        let subject = Subject { wl, again: None, replaced };
        site(
            (&self.forest, &self.settings, &self.world),
            cq,
            &wl.class,
            (&self.workloads, subject),
            &[],
        )
    }
}

/// What a search found, and what it takes of places.
struct Best {
    assignment: Assignment,
    targets: Vec<Target>,
    places: Vec<PlaceNeed>,
}

/// Of whom the pods are placed.
#[derive(Clone, Copy)]
struct Subject<'a> {
    wl: &'a Wl,
    again: Option<&'a Facts>,
    replaced: Option<WlId>,
}

static NO_FACTS: Facts =
    Facts { unhealthy_nodes: Vec::new(), owned_by_pod: false, pod_set_updates: Vec::new() };

fn site<'a>(
    (forest, settings, world): (&'a Forest, &'a Settings, &'a World),
    cq: &'a Cq,
    class: &'a Class,
    (workloads, subject): (&'a Workloads, Subject<'a>),
    gone: &'a [&'a Hold],
) -> Option<Site<'a>> {
    let Subject { wl, again, replaced } = subject;
    // Where no flavor has a topology, whoever asks for none is spared the rest. A queue without flavors counts as one whose
    // flavors all have one.
    let asks = || class.pod_sets.iter().any(|pod_set| pod_set.topology.is_some());
    if !forest.is_used()
        && again.is_none()
        && wl.facts.is_none()
        && !cq.groups.is_empty()
        && !asks()
    {
        return None;
    }
    let admission = |wl: &'a Wl| wl.hold.as_deref().map(|hold| &hold.admission);
    Some(Site {
        forest,
        gates: settings.topology?,
        world,
        cq,
        class,
        facts: again.or(wl.facts.as_deref()).unwrap_or(&NO_FACTS),
        held: again.and_then(|_| admission(wl)),
        replaced: replaced.and_then(|id| admission(workloads.get(id)?)),
        gone,
    })
}

/// How many pods are wanted: of a workload that holds quota no more than that is for.
fn wanted<'a>(class: &'a Class, site: Option<&Site<'_>>) -> Cow<'a, [i32]> {
    let Some(held) = site.and_then(|site| site.held) else { return Cow::Borrowed(&class.counts) };
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

/// Why a workload cannot be admitted whatever the quota.
fn inadmissible(
    wl: &Wl,
    queue: &crate::ClusterQueue,
    world: &World,
) -> Result<(), (Requeue, Reason)> {
    if wl.flags.checks_failed {
        return Err((Requeue::Generic, Reason::ChecksFailed));
    }
    match world.namespace_matches(queue, &wl.key.namespace) {
        None => {
            return Err((
                Requeue::Generic,
                Reason::NamespaceMissing { name: wl.key.namespace.clone() },
            ));
        }
        Some(false) => return Err((Requeue::NamespaceMismatch, Reason::NamespaceMismatch)),
        Some(true) => {}
    }
    match wl.class.pod_sets.iter().find_map(|pod_set| pod_set.problem.clone()) {
        Some(message) => Err((Requeue::Generic, Reason::Invalid { message })),
        None => Ok(()),
    }
}

impl Bench<'_> {
    /// The assignment of all pods, if it fits or others may be preempted for it; otherwise of the most pods for
    /// which that is so; otherwise of all pods, with nobody to preempt.
    fn best(&mut self, scan: Option<&Scan>, nominated: Option<&[BTreeMap<Name, Name>]>) -> Best {
        let preemptor = self.preemptor;
        preemptor.shift_replaced(self.tree, -1);
        let (mut assignment, targets) = self.search(scan, nominated);
        preemptor.shift_replaced(self.tree, 1);
        let Some(site) = preemptor.site else {
            return Best { assignment, targets, places: Vec::new() };
        };
        site.reserve(&mut assignment, &preemptor.holds(&targets));
        let places = site.need(&assignment);
        Best { assignment, targets, places }
    }

    fn search(
        &mut self,
        scan: Option<&Scan>,
        nominated: Option<&[BTreeMap<Name, Name>]>,
    ) -> (Assignment, Vec<Target>) {
        let Self { settings, counts, world, preemption, preemptor, cycle, tree } = self;
        let Preemptor { cq, class, workloads, replaced, site, .. } = *preemptor;
        let kept =
            replaced.and_then(|id| workloads.get(id)?.hold.as_deref()).map(|hold| &hold.admission);
        let scan = scan.filter(|_| kept.is_none());
        let assigner =
            Assigner { settings, world, cq, class, scan, nominated, kept, site, cycle: *cycle };
        let (mut nobody, mut classical) =
            (NoPreemption { node: cq.node }, Classical::new(*preemptor));
        let strategies = preemption.map_or(&[][..], |preemption| &preemption.fair_strategies);
        let mut fair = Fair::new(*preemptor, strategies);
        let oracle: &mut dyn Oracle = match preemption {
            None => &mut nobody,
            Some(_) if settings.fair_sharing => &mut fair,
            Some(_) => &mut classical,
        };
        let full = assigner.assign(tree, oracle, counts);
        if let Some(targets) = possible(tree, oracle, &full) {
            return (full, targets);
        }
        if settings.partial_admission && class.can_shrink() {
            let reduced = largest_that_fits(&class.pod_sets, |counts| {
                // Of a pod set whose pods are all reclaimable nothing is wanted, whatever the reduction.
                let wanted = class.counts.iter().zip(counts);
                let counts: Vec<_> =
                    wanted.map(|(left, count)| if *left == 0 { 0 } else { *count }).collect();
                let assignment = assigner.assign(tree, oracle, &counts);
                let targets = possible(tree, oracle, &assignment)?;
                Some((assignment, targets))
            });
            if let Some(reduced) = reduced {
                return reduced;
            }
        }
        (full, Vec::new())
    }
}

/// Who would have to go, if the assignment comes to something.
fn possible(
    tree: &mut Tree,
    oracle: &mut dyn Oracle,
    assignment: &Assignment,
) -> Option<Vec<Target>> {
    match assignment.fitness {
        Fitness::Fit | Fitness::DeferredFit => Some(Vec::new()),
        Fitness::Preempt => {
            Some(oracle.targets(tree, assignment)).filter(|targets| !targets.is_empty())
        }
        Fitness::NoFit => None,
    }
}
