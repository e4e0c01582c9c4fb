//! Workloads that come in the place of others: what an elastic job grows to replaces what it grew from, while its pods run
//! on. Kueue's `workloadslicing` is the rule.
//!
//! The quota of both is one: as soon as the newer one is given its own in the same ClusterQueue, the older one charges
//! nothing any more, and until then the newer one needs only what it asks for beyond the older. If the newer one loses its
//! quota first, the older one charges what it has again.

use super::Engine;
use crate::flavor_resource::Fr;
use crate::flavors::Assignment;
use crate::tree::NodeId;
use crate::workloads::{Hold, Wl, WlId};
use crate::{Amount, Time, WorkloadKey};

/// Longest chain of workloads that replace each other and all hold quota. There are three at most, for a moment; those who
/// say more of each other are not believed.
const MOST_SLICES: usize = 8;

/// The workload to be replaced is on its way out: evicted, and its job with it, or replaced by another.
pub(super) struct Leaving;

impl Engine {
    /// The workload in whose place this one comes, while that holds quota of the same ClusterQueue.
    pub(super) fn replaced(&self, wl: &Wl, cq: NodeId) -> Result<Option<WlId>, Leaving> {
        let Some(id) = wl.class.replaces.as_ref().and_then(|key| self.workloads.id(key)) else {
            return Ok(None);
        };
        let Some(old) = self.workloads.get(id) else { return Ok(None) };
        if old.hold.as_ref().and_then(|hold| hold.charged) != Some(cq) || !self.may_replace(wl, old)
        {
            return Ok(None);
        }
        let taken =
            |other: &WlId| self.workloads.get(*other).is_some_and(|other| other.hold.is_some());
        let is_taken =
            self.replacements.get(&old.key).is_some_and(|others| others.iter().any(taken));
        if old.is_leaving() || is_taken { Err(Leaving) } else { Ok(Some(id)) }
    }

    /// What an assignment takes beyond what the replaced workload has.
    pub(super) fn need(
        &self,
        assignment: &Assignment,
        replaced: Option<WlId>,
    ) -> Vec<(Fr, Amount)> {
        let old = replaced.and_then(|id| self.workloads.get(id)?.hold.as_ref());
        let Some(old) = old else { return assignment.usage.clone() };
        let beyond = |(fr, amount): &(Fr, Amount)| {
            let had = old.charge.iter().filter(|(other, _)| other == fr);
            let beyond = amount.less(had.map(|(_, amount)| i128::from(*amount)).sum());
            (beyond > Amount::ZERO).then_some((*fr, beyond))
        };
        assignment.usage.iter().filter_map(beyond).collect()
    }

    /// Remembers (or forgets) that a workload comes in the place of another.
    pub(super) fn note_replacement(&mut self, id: WlId, key: Option<&WorkloadKey>) {
        if let Some(key) = key {
            self.replacements.entry(key.clone()).or_default().insert(id);
        }
    }

    pub(super) fn forget_replacement(&mut self, id: WlId, key: Option<&WorkloadKey>) {
        let Some(key) = key else { return };
        let Some(ids) = self.replacements.get_mut(key) else { return };
        ids.remove(&id);
        if ids.is_empty() {
            self.replacements.remove(key);
        }
    }

    /// Takes off what a workload charges what others of the same ClusterQueue have in its place. Until their reservation is
    /// confirmed it may be taken back, so what they would not use stays charged.
    pub(super) fn leave_to_replacement(&self, wl: &Wl, hold: &mut Hold) {
        let Some(ids) = self.replacements.get(&wl.key) else { return };
        for new in ids.iter().filter_map(|id| self.workloads.get(*id)) {
            let Some(taken) = new.hold.as_ref().filter(|taken| taken.charged == hold.charged)
            else {
                continue;
            };
            if !self.may_replace(new, wl) {
                continue;
            }
            if taken.confirmed {
                hold.charge.clear();
                hold.places.clear();
            }
            for (fr, amount) in &mut hold.charge {
                let theirs =
                    taken.charge.iter().filter(|(other, _)| other == fr).map(|(_, amount)| *amount);
                *amount = amount.saturating_sub(theirs.fold(0, i64::saturating_add)).max(0);
            }
        }
        hold.charge.retain(|(_, amount)| *amount != 0);
    }

    /// Whether one may come in the place of the other: not if that comes, in the end, in its own place.
    fn may_replace(&self, new: &Wl, old: &Wl) -> bool {
        let mut at = old;
        for _ in 0..MOST_SLICES {
            if at.key == new.key {
                return false;
            }
            let before = at
                .class
                .replaces
                .as_ref()
                .and_then(|key| self.workloads.get(self.workloads.id(key)?));
            match before.filter(|before| before.hold.is_some()) {
                Some(before) => at = before,
                None => return true,
            }
        }
        false
    }

    /// A workload that was told to go stays after all: what comes in its place need not wait for it any more.
    pub(super) fn wake_replacements(&mut self, key: &WorkloadKey) {
        for id in self.replacements.get(key).cloned().into_iter().flatten() {
            self.wake(id);
        }
    }

    /// A workload that comes in the place of this one was given quota, or lost it.
    pub(super) fn recharge_replaced(&mut self, key: Option<&WorkloadKey>, now: Time) {
        let Some(id) = key.and_then(|key| self.workloads.id(key)) else { return };
        let Some(old) = self.workloads.get(id).cloned() else { return };
        let Some(mut hold) = old.hold.clone() else { return };
        let before = (hold.charge.clone(), hold.places.len());
        self.charge(&old, &mut hold);
        if (&hold.charge, hold.places.len()) != (&before.0, before.1) {
            self.edit(id, |wl| wl.hold = Some(hold));
            self.announce_freed(&old, now);
        }
    }
}
