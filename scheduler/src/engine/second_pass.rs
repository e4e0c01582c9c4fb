//! The second pass: topology assignments after the reservation, and again after a node failure.
//! Kueue: `pkg/cache/queue/second_pass_queue.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Engine;
use super::cycle::{CycleProgress, Postponed};
use super::nominate::CycleEntry;
use crate::flavors::{AssignmentMode, has_capacity};
use crate::ids::{NodeId, WorkloadId};
use crate::workloads::{PlacementInputs, QuotaReservation, WorkloadEntry};
use crate::{Admission, Decision, DelayedTopology, Reason, Time};

/// The longest delay between two attempts, in seconds.
const LONGEST: u64 = 30;

#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct SecondPass {
    waiting: BTreeMap<WorkloadId, Waiting>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
struct Waiting {
    at: Time,
    tries: u32,
    /// As they were at the start of the delay. Failed nodes are read again at its end.
    #[cfg_attr(feature = "record", serde(rename = "facts"))]
    placement_inputs: PlacementInputs,
}

pub(super) struct Due {
    pub(super) id: WorkloadId,
    pub(super) cq: NodeId,
    pub(super) tries: u32,
    pub(super) placement_inputs: PlacementInputs,
}

impl SecondPass {
    pub(super) fn next(&self) -> Option<Time> {
        self.waiting.values().map(|waiting| waiting.at).min()
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next().is_some_and(|at| at <= now)
    }

    pub(super) fn forget(&mut self, id: WorkloadId) {
        self.waiting.remove(&id);
    }

    fn wait(&mut self, id: WorkloadId, placement_inputs: PlacementInputs, tries: u32, now: Time) {
        let seconds = 1_u64.checked_shl(tries).map_or(LONGEST, |seconds| seconds.min(LONGEST));
        let at = now.plus(Duration::from_secs(seconds));
        // A running delay continues. An ended one is replaced.
        if self.waiting.get(&id).is_none_or(|waiting| waiting.at <= now) {
            self.waiting.insert(id, Waiting { at, tries, placement_inputs });
        }
    }
}

impl Engine {
    /// Schedules the second pass of a changed workload, if it needs one.
    pub(super) fn note_second_pass(&mut self, id: WorkloadId, now: Time) {
        let Some(wl) = self.workloads.get(id).filter(|_| self.settings.topology.is_some()) else {
            return;
        };
        if wl.reservation.is_none() || wl.is_being_evicted() || wl.flags.finished {
            self.second_pass.forget(id);
        } else if needs_second_pass(wl, &placement_inputs(wl))
            && wl.reservation.as_ref().is_some_and(|reservation| reservation.confirmed)
        {
            self.second_pass.wait(id, placement_inputs(wl), 0, now);
        }
    }

    pub(super) fn take_second_pass(&mut self, now: Time) -> Vec<Due> {
        let due = self.second_pass.waiting.iter().filter(|(_, waiting)| waiting.at <= now);
        let due: Vec<_> = due.map(|(id, waiting)| (*id, waiting.clone())).collect();
        let due = due.into_iter().filter_map(|(id, waiting)| {
            self.second_pass.forget(id);
            let wl = self.workloads.get(id)?;
            let cq = wl.reservation.as_ref()?.charged?;
            let (tries, mut inputs) = (waiting.tries, waiting.placement_inputs);
            // Pods on a node that recovered during the delay stay there, as in Kueue 0.19.5.
            inputs.unhealthy_nodes = placement_inputs(wl).unhealthy_nodes;
            let is_due = needs_second_pass(wl, &inputs);
            is_due.then_some(Due { id, cq, tries, placement_inputs: inputs })
        });
        due.collect()
    }

    /// Records a failed attempt and schedules the next one.
    pub(super) fn postpone_second_pass(
        &mut self,
        id: WorkloadId,
        placement_inputs: PlacementInputs,
        tries: u32,
        reason: Reason,
        now: Time,
    ) -> Option<Decision> {
        let wl = self.workloads.get(id)?;
        let (key, uid) = (wl.key.clone(), wl.uid.clone());
        if needs_second_pass(wl, &placement_inputs) {
            self.second_pass.wait(id, placement_inputs, tries.saturating_add(1), now);
        }
        Some(Decision::SecondPassFailed { key, uid, reason })
    }

    /// Changes the topology assignment of a workload that has quota. `None` if nothing changes.
    pub(super) fn reassign(
        &mut self,
        entry: &CycleEntry,
        progress: &mut CycleProgress,
    ) -> Option<Decision> {
        let cq = self.cluster_queues.get(&entry.cq)?.object.name.clone();
        let old = self.workloads.get(entry.id)?.clone();
        let mut reservation = old.reservation.clone()?;
        let admission = entry.assignment.admission(&cq);
        let unhealthy = entry
            .again
            .as_ref()
            .is_some_and(|placement_inputs| !placement_inputs.unhealthy_nodes.is_empty());
        let places = |admission: &Admission| -> Vec<_> {
            admission.pod_sets.iter().map(|given| (given.topology.clone(), given.delayed)).collect()
        };
        if !unhealthy && places(&admission) == places(&reservation.admission) {
            return None;
        }
        reservation.admission = admission.clone();
        self.charge(&old, &mut reservation);
        self.edit(entry.id, |wl| {
            wl.reservation = Some(reservation);
            if let Some(placement_inputs) = &mut wl.placement_inputs {
                placement_inputs.unhealthy_nodes.clear();
            }
        });
        let new = self.workloads.get(entry.id)?.reservation.as_deref()?;
        let mut before = old.reservation?;
        // A domain counts as kept only if all of its old usage stays.
        before.places.retain(|had| new.places.iter().any(|place| place.covers(had)));
        progress.moved.insert(entry.id, before);
        Some(Decision::Reassign { key: old.key, uid: old.uid, admission })
    }

    /// Whether a failed node has no replacement and the gate forbids waiting for one.
    pub(super) fn lacks_replacement(&self, entry: &CycleEntry) -> bool {
        let fails_fast = self.settings.topology.is_some_and(|gates| gates.fail_fast);
        fails_fast
            && entry.assignment.fitness != AssignmentMode::Fit
            && entry
                .again
                .as_ref()
                .is_some_and(|placement_inputs| !placement_inputs.unhealthy_nodes.is_empty())
    }

    /// Evicts a workload whose failed node has no replacement.
    pub(super) fn evict(
        &mut self,
        entry: &CycleEntry,
        progress: &mut CycleProgress,
    ) -> Result<(), Postponed> {
        let nodes = entry
            .again
            .as_ref()
            .map(|placement_inputs| placement_inputs.unhealthy_nodes.clone())
            .unwrap_or_default();
        let Some(wl) = self.workloads.get(entry.id) else { return Ok(()) };
        progress.decisions.push(Decision::Evict {
            key: wl.key.clone(),
            uid: wl.uid.clone(),
            nodes,
        });
        progress.busy = true;
        self.edit(entry.id, |wl| wl.preemption_issued = true);
        Ok(())
    }

    /// Whether earlier entries took this entry's topology domains, and the gate allows another
    /// search.
    pub(super) fn lost_its_domains(
        &mut self,
        entry: &CycleEntry,
        progress: &mut CycleProgress,
    ) -> bool {
        self.settings.topology.is_some_and(|gates| gates.recompute)
            && !entry.places.is_empty()
            && !self.has_capacity(entry, progress)
            && self.fits(entry, progress)
    }

    /// Whether the entry's topology domains have enough capacity once its victims, and all victims
    /// of the cycle, are gone.
    pub(super) fn has_capacity(&self, entry: &CycleEntry, progress: &CycleProgress) -> bool {
        if entry.places.is_empty() {
            return true;
        }
        let own = entry
            .targets
            .iter()
            .map(|target| target.id)
            .filter(|id| !progress.preempted.contains(id));
        let gone = progress.preempted.iter().copied().chain(own);
        // As in Kueue, a workload that the cycle moved frees no new domain.
        let reservation = |id| match progress.moved.get(&id) {
            Some(before) => Some(&**before),
            None => self.workloads.get(id)?.reservation.as_deref(),
        };
        let gone: Vec<&QuotaReservation> = gone.filter_map(reservation).collect();
        has_capacity(&self.forest, &entry.places, &gone)
    }

    /// Searches other topology domains within the nominated flavors. As in Kueue, the usage of this
    /// cycle's victims still counts: this entry may choose the same victims, and then waits.
    pub(super) fn place_again(&mut self, entry: &mut CycleEntry, progress: &mut CycleProgress) {
        self.set_issued_preemptable(progress, true);
        self.swap_reservations(&mut progress.moved);
        let mut tree = std::mem::take(&mut self.tree);
        let found = self.renominate(&mut tree, entry, &[]);
        self.tree = tree;
        self.swap_reservations(&mut progress.moved);
        self.set_issued_preemptable(progress, false);
        if found.is_some() {
            self.record_search(entry);
        }
    }

    /// Exchanges reservations that differ in their domains only.
    fn swap_reservations(&mut self, others: &mut BTreeMap<WorkloadId, Box<QuotaReservation>>) {
        for (id, other) in others {
            let wl = self.workloads.get_mut(*id);
            if let Some(reservation) = wl.and_then(|wl| wl.reservation.as_mut()) {
                std::mem::swap(reservation, other);
            }
        }
    }

    /// Makes this cycle's victims candidates again (`starts`), or reverts that.
    fn set_issued_preemptable(&mut self, progress: &CycleProgress, starts: bool) {
        let set_issued = |engine: &mut Self, issued: bool| {
            for id in &progress.issued {
                if let Some(wl) = engine.workloads.get_mut(*id) {
                    wl.preemption_issued = issued;
                }
            }
        };
        if starts {
            set_issued(self, false);
        }
        progress.preempted.iter().for_each(|id| self.set_preemptable(*id, starts));
        if !starts {
            set_issued(self, true);
        }
    }

    /// When a second pass is due. May be past.
    pub fn next_second_pass(&self) -> Option<Time> {
        self.second_pass.next()
    }

    /// The workloads that need a second pass.
    pub fn second_pass(&self) -> impl Iterator<Item = &crate::WorkloadKey> {
        let all = self
            .cluster_queues
            .values()
            .flat_map(|cq| &cq.workloads)
            .filter_map(|id| self.workloads.get(*id));
        all.filter(|wl| needs_second_pass(wl, &placement_inputs(wl))).map(|wl| &wl.key)
    }
}

fn placement_inputs(wl: &WorkloadEntry) -> PlacementInputs {
    wl.placement_inputs.as_deref().cloned().unwrap_or_default()
}

/// Whether a delayed topology request is due (all checks are Ready), or pods are on a failed node.
fn needs_second_pass(wl: &WorkloadEntry, placement_inputs: &PlacementInputs) -> bool {
    let Some(reservation) = wl
        .reservation
        .as_ref()
        .filter(|_| !wl.flags.finished && !wl.is_being_evicted() && !wl.flags.on_hold)
    else {
        return false;
    };
    let pod_sets = &reservation.admission.pod_sets;
    let pending = pod_sets
        .iter()
        .any(|given| given.topology.is_none() && given.delayed == Some(DelayedTopology::Pending));
    let failed = || {
        let topologies = pod_sets.iter().filter_map(|given| given.topology.as_ref());
        topologies
            .into_iter()
            .any(|topology| placement_inputs.unhealthy_nodes.iter().any(|node| topology.uses(node)))
    };
    (pending && wl.flags.checks_ready && !wl.flags.admitted) || (wl.flags.admitted && failed())
}
