//! The first half of a cycle: what could be done for each head, if the others were not there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use super::slices::Leaving;
use crate::flavors::{Assigner, Assignment, Fitness, largest_that_fits};
use crate::intern::Fr;
use crate::preemption::candidates::Preemptor;
use crate::preemption::classical::Classical;
use crate::preemption::fair::Fair;
use crate::preemption::{NoPreemption, Oracle, Target};
use crate::queue::Requeue;
use crate::queue::hash::Class;
use crate::status::World;
use crate::tree::{NodeId, Tree};
use crate::workloads::{Wl, WlId};
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
    world: &'a World,
    preemption: Option<&'a Preemption>,
    preemptor: Preemptor<'a>,
    cycle: u64,
    tree: &'a mut Tree,
}

impl Engine {
    /// What could be done for a head; or why nothing can, without looking at quota.
    pub(super) fn nominate(&mut self, id: WlId, cq: NodeId) -> Result<Entry, (Requeue, Reason)> {
        let unknown = (Requeue::Generic, Reason::Held);
        let Some((wl, queue)) = self.workloads.get(id).zip(self.cqs.get(&cq)) else { return Err(unknown) };
        inadmissible(wl, &queue.object, &self.world)?;
        let replaced = self.replaced(wl, cq).map_err(|Leaving| (Requeue::Generic, Reason::VictimsTaken))?;
        let gates = self.settings.gates;
        let outdated = |scan: &crate::flavors::Scan| {
            scan.is_outdated(wl.class.id, queue.generation, self.cycles, gates.preserve_scan_progress)
        };
        let is_preemptor = gates.prioritize_preemptors && queue.queue.preemptor() == Some(id);
        let scan = wl.scan.as_deref().filter(|scan| !outdated(scan)).cloned();
        let (class, uid, queue_time) = (wl.class.clone(), wl.uid.clone(), wl.queue_time);
        let Some(mut bench) = self.bench(cq, &class, queue_time, replaced) else { return Err(unknown) };
        let (assignment, targets) = bench.best(scan.as_ref(), None);
        if let Some(wl) = self.workloads.get_mut(id) {
            wl.scan = assignment.scan.clone().map(Box::new);
        }
        let need = self.need(&assignment, replaced);
        Ok(Entry { id, cq, class, uid, queue_time, assignment, targets, replaced, need, is_preemptor })
    }

    /// Searches again within the cycle, among the flavors that were chosen before, with usage as `tree` has it.
    pub(super) fn renominate(&self, tree: &mut Tree, entry: &Entry) -> Option<(Assignment, Vec<Target>)> {
        let (cqs, workloads) = (&self.cqs, &self.workloads);
        let (cq, class, queue_time) = (cqs.get(&entry.cq)?, &entry.class, entry.queue_time);
        let gates = self.settings.gates;
        let preemptor = Preemptor { cqs, workloads, cq, class, queue_time, replaced: entry.replaced, gates };
        let (settings, world, preemption) = (&self.settings, &self.world, self.preemption.as_ref());
        let mut bench = Bench { settings, world, preemption, preemptor, cycle: self.cycles, tree };
        Some(bench.best(None, Some(&entry.assignment.nomination())))
    }

    /// What could be done for a workload if it were the only head, tried on a copy of the tree.
    pub(super) fn dry_run(&self, tree: &mut Tree, id: WlId, cq: NodeId) -> Result<(Assignment, Vec<Target>), Reason> {
        let Some((wl, queue)) = self.workloads.get(id).zip(self.cqs.get(&cq)) else { return Err(Reason::Held) };
        inadmissible(wl, &queue.object, &self.world).map_err(|(_, reason)| reason)?;
        self.replaced(wl, cq).map_err(|Leaving| Reason::VictimsTaken)?;
        let preemptor = self.preemptor(queue, wl);
        let (settings, world, preemption) = (&self.settings, &self.world, self.preemption.as_ref());
        Ok(Bench { settings, world, preemption, preemptor, cycle: self.cycles, tree }.best(None, None))
    }

    fn bench<'a>(
        &'a mut self,
        cq: NodeId,
        class: &'a Class,
        queue_time: Time,
        replaced: Option<WlId>,
    ) -> Option<Bench<'a>> {
        let (cqs, workloads) = (&self.cqs, &self.workloads);
        let gates = self.settings.gates;
        Some(Bench {
            settings: &self.settings,
            world: &self.world,
            preemption: self.preemption.as_ref(),
            preemptor: Preemptor { cqs, workloads, cq: cqs.get(&cq)?, class, queue_time, replaced, gates },
            cycle: self.cycles,
            tree: &mut self.tree,
        })
    }
}

/// Why a workload cannot be admitted whatever the quota.
fn inadmissible(wl: &Wl, queue: &crate::ClusterQueue, world: &World) -> Result<(), (Requeue, Reason)> {
    if wl.flags.checks_failed {
        return Err((Requeue::Generic, Reason::ChecksFailed));
    }
    match world.namespace_matches(queue, &wl.key.namespace) {
        None => return Err((Requeue::Generic, Reason::NamespaceMissing { name: wl.key.namespace.clone() })),
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
    fn best(
        &mut self,
        scan: Option<&crate::flavors::Scan>,
        nominated: Option<&[BTreeMap<Name, Name>]>,
    ) -> (Assignment, Vec<Target>) {
        let preemptor = self.preemptor;
        preemptor.shift_replaced(self.tree, -1);
        let best = self.search(scan, nominated);
        preemptor.shift_replaced(self.tree, 1);
        best
    }

    fn search(
        &mut self,
        scan: Option<&crate::flavors::Scan>,
        nominated: Option<&[BTreeMap<Name, Name>]>,
    ) -> (Assignment, Vec<Target>) {
        let Self { settings, world, preemption, preemptor, cycle, tree } = self;
        let Preemptor { cq, class, workloads, replaced, .. } = *preemptor;
        let kept = replaced.and_then(|id| workloads.get(id)?.hold.as_deref()).map(|hold| &hold.admission);
        let scan = scan.filter(|_| kept.is_none());
        let assigner = Assigner { settings, world, cq, class, scan, nominated, kept, cycle: *cycle };
        let (mut nobody, mut classical) = (NoPreemption { node: cq.node }, Classical::new(*preemptor));
        let strategies = preemption.map_or(&[][..], |preemption| &preemption.fair_strategies);
        let mut fair = Fair::new(*preemptor, strategies);
        let oracle: &mut dyn Oracle = match preemption {
            None => &mut nobody,
            Some(_) if settings.fair_sharing => &mut fair,
            Some(_) => &mut classical,
        };
        let full = assigner.assign(tree, oracle, &class.counts);
        if let Some(targets) = possible(tree, oracle, &full) {
            return (full, targets);
        }
        if settings.partial_admission && class.can_shrink() {
            let reduced = largest_that_fits(&class.pod_sets, |counts| {
                // Of a pod set whose pods are all reclaimable nothing is wanted, whatever the reduction.
                let wanted = class.counts.iter().zip(counts);
                let counts: Vec<_> = wanted.map(|(left, count)| if *left == 0 { 0 } else { *count }).collect();
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
fn possible(tree: &mut Tree, oracle: &mut dyn Oracle, assignment: &Assignment) -> Option<Vec<Target>> {
    match assignment.fitness {
        Fitness::Fit | Fitness::DeferredFit => Some(Vec::new()),
        Fitness::Preempt => Some(oracle.targets(tree, assignment)).filter(|targets| !targets.is_empty()),
        Fitness::NoFit => None,
    }
}
