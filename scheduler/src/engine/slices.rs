//! Workload slices: when an elastic job grows, a new workload replaces the old one while its pods
//! keep running. Kueue KEP-77, `pkg/workloadslicing/workloadslicing.go`.
//!
//! Both share one quota. Until the new slice has quota, it needs only the difference to the old
//! one. Once it has quota in the same ClusterQueue, the old slice charges nothing. If the new slice
//! loses its quota first, the old one charges its own again.

use super::Engine;
use crate::flavor_resource::FlavorResource;
use crate::flavors::Assignment;
use crate::ids::{NodeId, WorkloadId};
use crate::workloads::{QuotaReservation, WorkloadEntry};
use crate::{Amount, Time, WorkloadKey};

/// The longest chain of slices that replace each other and have quota. Real chains have three at
/// most, for a moment; longer ones are ignored.
const MAX_SLICE_CHAIN: usize = 8;

/// The slice to be replaced is being evicted with its job, or another slice already replaced it.
pub(super) struct BeingEvicted;

impl Engine {
    /// The slice that this workload replaces, while that has quota in the same ClusterQueue.
    pub(super) fn replaced(
        &self,
        wl: &WorkloadEntry,
        cq: NodeId,
    ) -> Result<Option<WorkloadId>, BeingEvicted> {
        let Some(id) = wl.class.replaces.as_ref().and_then(|key| self.workloads.id(key)) else {
            return Ok(None);
        };
        let Some(old) = self.workloads.get(id) else { return Ok(None) };
        if old.reservation.as_ref().and_then(|reservation| reservation.charged) != Some(cq)
            || !self.may_replace(wl, old)
        {
            return Ok(None);
        }
        let taken = |other: &WorkloadId| {
            self.workloads.get(*other).is_some_and(|other| other.reservation.is_some())
        };
        let is_taken =
            self.replacements.get(&old.key).is_some_and(|others| others.iter().any(taken));
        if old.is_being_evicted() || is_taken { Err(BeingEvicted) } else { Ok(Some(id)) }
    }

    /// The usage of an assignment above the usage of the replaced slice.
    pub(super) fn need(
        &self,
        assignment: &Assignment,
        replaced: Option<WorkloadId>,
    ) -> Vec<(FlavorResource, Amount)> {
        let old = replaced.and_then(|id| self.workloads.get(id)?.reservation.as_ref());
        let Some(old) = old else { return assignment.usage.clone() };
        let beyond = |(fr, amount): &(FlavorResource, Amount)| {
            let had = old.charge.iter().filter(|(other, _)| other == fr);
            let beyond = amount.minus(had.map(|(_, amount)| i128::from(*amount)).sum());
            (beyond > Amount::ZERO).then_some((*fr, beyond))
        };
        assignment.usage.iter().filter_map(beyond).collect()
    }

    pub(super) fn note_replacement(&mut self, id: WorkloadId, key: Option<&WorkloadKey>) {
        if let Some(key) = key {
            self.replacements.entry(key.clone()).or_default().insert(id);
        }
    }

    pub(super) fn forget_replacement(&mut self, id: WorkloadId, key: Option<&WorkloadKey>) {
        let Some(key) = key else { return };
        let Some(ids) = self.replacements.get_mut(key) else { return };
        ids.remove(&id);
        if ids.is_empty() {
            self.replacements.remove(key);
        }
    }

    /// Reduces a slice's charge by the quota of its replacements in the same ClusterQueue. An
    /// unconfirmed reservation may be returned, so until then the difference stays charged.
    pub(super) fn deduct_replacement(
        &self,
        wl: &WorkloadEntry,
        reservation: &mut QuotaReservation,
    ) {
        let Some(ids) = self.replacements.get(&wl.key) else { return };
        for new in ids.iter().filter_map(|id| self.workloads.get(*id)) {
            let Some(taken) =
                new.reservation.as_ref().filter(|taken| taken.charged == reservation.charged)
            else {
                continue;
            };
            if !self.may_replace(new, wl) {
                continue;
            }
            if taken.confirmed {
                reservation.charge.clear();
                reservation.places.clear();
            }
            for (fr, amount) in &mut reservation.charge {
                let theirs =
                    taken.charge.iter().filter(|(other, _)| other == fr).map(|(_, amount)| *amount);
                *amount = amount.saturating_sub(theirs.fold(0, i64::saturating_add)).max(0);
            }
        }
        reservation.charge.retain(|(_, amount)| *amount != 0);
    }

    /// `new` may replace `old` unless a chain of replacements leads back to `new`.
    fn may_replace(&self, new: &WorkloadEntry, old: &WorkloadEntry) -> bool {
        let mut at = old;
        for _ in 0..MAX_SLICE_CHAIN {
            if at.key == new.key {
                return false;
            }
            let before = at
                .class
                .replaces
                .as_ref()
                .and_then(|key| self.workloads.get(self.workloads.id(key)?));
            match before.filter(|before| before.reservation.is_some()) {
                Some(before) => at = before,
                None => return true,
            }
        }
        false
    }

    /// An issued eviction was withdrawn: replacements of this slice no longer wait for it.
    pub(super) fn wake_replacements(&mut self, key: &WorkloadKey) {
        for id in self.replacements.get(key).cloned().into_iter().flatten() {
            self.wake(id);
        }
    }

    /// Recomputes the charge of a replaced slice, after its replacement got or lost quota.
    pub(super) fn recharge_replaced(&mut self, key: Option<&WorkloadKey>, now: Time) {
        let Some(id) = key.and_then(|key| self.workloads.id(key)) else { return };
        let Some(old) = self.workloads.get(id).cloned() else { return };
        let Some(mut reservation) = old.reservation.clone() else { return };
        let before = (reservation.charge.clone(), reservation.places.len());
        self.charge(&old, &mut reservation);
        if (&reservation.charge, reservation.places.len()) != (&before.0, before.1) {
            self.edit(id, |wl| wl.reservation = Some(reservation));
            self.notify_freed(&old, now);
        }
    }
}
