//! Workloads that hold quota and whose pods are placed after that, or again after a node failed. Kueue's second pass.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Engine;
use super::cycle::{Postponed, Progress};
use super::nominate::Entry;
use crate::flavors::{Fitness, has_room};
use crate::tree::NodeId;
use crate::workloads::{Facts, Hold, Wl, WlId};
use crate::{Admission, Decision, DelayedTopology, Reason, Time};

/// The longest delay between two tries.
const LONGEST: u64 = 30;

/// Who is placed when.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct SecondPass {
    waiting: BTreeMap<WlId, Waiting>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
struct Waiting {
    at: Time,
    /// How often it was tried.
    tries: u32,
    /// What was known when its delay began, which decides what is done when it ends.
    facts: Facts,
}

/// Whose turn has come.
pub(super) struct Due {
    pub(super) id: WlId,
    pub(super) cq: NodeId,
    pub(super) tries: u32,
    pub(super) facts: Facts,
}

impl SecondPass {
    pub(super) fn next(&self) -> Option<Time> {
        self.waiting.values().map(|waiting| waiting.at).min()
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next().is_some_and(|at| at <= now)
    }

    pub(super) fn forget(&mut self, id: WlId) {
        self.waiting.remove(&id);
    }

    fn wait(&mut self, id: WlId, facts: Facts, tries: u32, now: Time) {
        let seconds = 1_u64.checked_shl(tries).map_or(LONGEST, |seconds| seconds.min(LONGEST));
        let at = now.plus(Duration::from_secs(seconds));
        // A delay that runs goes on; one that has ended gives way to what is newer.
        if self.waiting.get(&id).is_none_or(|waiting| waiting.at <= now) {
            self.waiting.insert(id, Waiting { at, tries, facts });
        }
    }
}

impl Engine {
    /// A workload was written: it is placed later if that is needed.
    pub(super) fn note_second_pass(&mut self, id: WlId, now: Time) {
        let Some(wl) = self.workloads.get(id).filter(|_| self.settings.topology.is_some()) else {
            return;
        };
        if wl.hold.is_none() || wl.is_leaving() || wl.flags.finished {
            self.second_pass.forget(id);
        } else if needs_second_pass(wl, &facts(wl))
            && wl.hold.as_ref().is_some_and(|hold| hold.confirmed)
        {
            self.second_pass.wait(id, facts(wl), 0, now);
        }
    }

    /// The workloads whose pods are placed now.
    pub(super) fn take_second_pass(&mut self, now: Time) -> Vec<Due> {
        let due = self.second_pass.waiting.iter().filter(|(_, waiting)| waiting.at <= now);
        let due: Vec<_> = due.map(|(id, waiting)| (*id, waiting.clone())).collect();
        let due = due.into_iter().filter_map(|(id, waiting)| {
            self.second_pass.forget(id);
            let wl = self.workloads.get(id)?;
            let cq = wl.hold.as_ref()?.charged?;
            needs_second_pass(wl, &waiting.facts).then_some(Due {
                id,
                cq,
                tries: waiting.tries,
                facts: waiting.facts,
            })
        });
        due.collect()
    }

    /// Says that it was not placed, and when it is tried again.
    pub(super) fn postpone_second_pass(
        &mut self,
        id: WlId,
        facts: Facts,
        tries: u32,
        reason: Reason,
        now: Time,
    ) -> Option<Decision> {
        let wl = self.workloads.get(id)?;
        let (key, uid) = (wl.key.clone(), wl.uid.clone());
        if needs_second_pass(wl, &facts) {
            self.second_pass.wait(id, facts, tries.saturating_add(1), now);
        }
        Some(Decision::SecondPassFailed { key, uid, reason })
    }

    /// The pods of a workload that holds quota go where the entry says. `None`: that changes nothing.
    pub(super) fn reassign(&mut self, entry: &Entry) -> Option<Decision> {
        let cq = self.cqs.get(&entry.cq)?.object.name.clone();
        let old = self.workloads.get(entry.id)?.clone();
        let mut hold = old.hold.clone()?;
        let admission = entry.assignment.admission(&cq);
        let unhealthy = entry.again.as_ref().is_some_and(|facts| !facts.unhealthy_nodes.is_empty());
        let places = |admission: &Admission| -> Vec<_> {
            admission.pod_sets.iter().map(|given| (given.topology.clone(), given.delayed)).collect()
        };
        if !unhealthy && places(&admission) == places(&hold.admission) {
            return None;
        }
        hold.admission = admission.clone();
        self.charge(&old, &mut hold);
        self.edit(entry.id, |wl| {
            wl.hold = Some(hold);
            if let Some(facts) = &mut wl.facts {
                facts.unhealthy_nodes.clear();
            }
        });
        Some(Decision::Reassign { key: old.key, uid: old.uid, admission })
    }

    /// Whether a failed node has no replacement, and that is no reason to wait for one.
    pub(super) fn lacks_replacement(&self, entry: &Entry) -> bool {
        let fails_fast = self.settings.topology.is_some_and(|gates| gates.fail_fast);
        fails_fast
            && entry.assignment.fitness != Fitness::Fit
            && entry.again.as_ref().is_some_and(|facts| !facts.unhealthy_nodes.is_empty())
    }

    /// A workload must go, as pods of a failed node have no other place.
    pub(super) fn evict(
        &mut self,
        entry: &Entry,
        progress: &mut Progress,
    ) -> Result<(), Postponed> {
        let nodes =
            entry.again.as_ref().map(|facts| facts.unhealthy_nodes.clone()).unwrap_or_default();
        let Some(wl) = self.workloads.get(entry.id) else { return Ok(()) };
        progress.decisions.push(Decision::Evict {
            key: wl.key.clone(),
            uid: wl.uid.clone(),
            nodes,
        });
        progress.busy = true;
        self.edit(entry.id, |wl| wl.told_to_go = true);
        Ok(())
    }

    /// Whether earlier entries of the cycle took the places of this one, and other places may be looked for.
    pub(super) fn lost_its_places(&mut self, entry: &Entry, progress: &mut Progress) -> bool {
        self.settings.topology.is_some_and(|gates| gates.recompute)
            && !entry.places.is_empty()
            && !self.has_room(entry, progress)
            && self.fits(entry, progress)
    }

    /// Whether the entry's places are free when all are gone who were told to go for it or before.
    pub(super) fn has_room(&self, entry: &Entry, progress: &Progress) -> bool {
        if entry.places.is_empty() {
            return true;
        }
        let own = entry
            .targets
            .iter()
            .map(|target| target.id)
            .filter(|id| !progress.preempted.contains(id));
        let gone = progress.preempted.iter().copied().chain(own);
        let gone: Vec<&Hold> =
            gone.filter_map(|id| self.workloads.get(id)?.hold.as_deref()).collect();
        has_room(&self.forest, &entry.places, &gone)
    }

    /// Looks for other places, among the flavors that were chosen. As in Kueue, nobody has gone yet: who was told to go for
    /// another may be a victim of this entry, which then waits.
    pub(super) fn place_again(&mut self, entry: &mut Entry, progress: &Progress) {
        self.recall(progress, true);
        let mut tree = std::mem::take(&mut self.tree);
        let found = self.renominate(&mut tree, entry, &[]);
        self.tree = tree;
        self.recall(progress, false);
        if found.is_some() {
            self.note_search(entry);
        }
    }

    /// Makes candidates of those again who were told to go in this cycle, or ends that.
    fn recall(&mut self, progress: &Progress, starts: bool) {
        let tell = |engine: &mut Self, told: bool| {
            for id in &progress.told {
                if let Some(wl) = engine.workloads.get_mut(*id) {
                    wl.told_to_go = told;
                }
            }
        };
        if starts {
            tell(self, false);
        }
        progress.preempted.iter().for_each(|id| self.file_holder(*id, starts));
        if !starts {
            tell(self, true);
        }
    }

    /// When pods of some workload are placed that holds quota already. May be past.
    pub fn next_second_pass(&self) -> Option<Time> {
        self.second_pass.next()
    }

    /// The workloads that hold quota and whose pods are yet to be placed, or placed again.
    pub fn second_pass(&self) -> impl Iterator<Item = &crate::WorkloadKey> {
        let all =
            self.cqs.values().flat_map(|cq| &cq.workloads).filter_map(|id| self.workloads.get(*id));
        all.filter(|wl| needs_second_pass(wl, &facts(wl))).map(|wl| &wl.key)
    }
}

fn facts(wl: &Wl) -> Facts {
    wl.facts.as_deref().cloned().unwrap_or_default()
}

/// Whether pods have to be placed: those of a delayed request once all checks are Ready, and those of a failed node.
fn needs_second_pass(wl: &Wl, facts: &Facts) -> bool {
    let Some(hold) =
        wl.hold.as_ref().filter(|_| !wl.flags.finished && !wl.is_leaving() && !wl.flags.held)
    else {
        return false;
    };
    let pod_sets = &hold.admission.pod_sets;
    let pending = pod_sets
        .iter()
        .any(|given| given.topology.is_none() && given.delayed == Some(DelayedTopology::Pending));
    let failed = || {
        let topologies = pod_sets.iter().filter_map(|given| given.topology.as_ref());
        topologies
            .into_iter()
            .any(|topology| facts.unhealthy_nodes.iter().any(|node| topology.uses(node)))
    };
    (pending && wl.flags.checks_ready && !wl.flags.admitted) || (wl.flags.admitted && failed())
}
