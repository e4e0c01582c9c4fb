//! Sums over workloads: charged quota, usage and counts of queues. The engine removes a workload
//! from all sums before a change and adds it back afterwards, so that no sum drifts.

use super::Engine;
use crate::ids::{NodeId, WorkloadId};
use crate::workloads::{QuotaReservation, WorkloadEntry};

impl Engine {
    /// Changes a workload and keeps all sums over it correct.
    pub(super) fn edit(&mut self, id: WorkloadId, change: impl FnOnce(&mut WorkloadEntry)) {
        self.count(id, -1);
        if let Some(wl) = self.workloads.get_mut(id) {
            change(wl);
        }
        self.count(id, 1);
    }

    /// Adds (`sign` 1) or removes (`sign` -1) the contribution of a workload.
    pub(super) fn count(&mut self, id: WorkloadId, sign: i128) {
        let Some(wl) = self.workloads.get(id) else { return };
        let step = |count: &mut usize| {
            *count = if sign > 0 { *count + 1 } else { count.saturating_sub(1) }
        };
        if let Some(lq) = self.local_queues.get_mut(wl.queue) {
            if wl.is_pending() {
                step(&mut lq.pending);
            }
            if let Some(reservation) = &wl.reservation {
                step(&mut lq.reserving);
                add(&mut lq.reserved_usage, reservation, sign);
                if wl.flags.admitted {
                    step(&mut lq.admitted);
                    add(&mut lq.admitted_usage, reservation, sign);
                }
            }
            self.changed.local_queues.insert(lq.key.clone());
        }
        if let Some(cq) = wl.queued_in.and_then(|cq| self.cluster_queues.get(&cq)) {
            self.changed.cluster_queues.insert(cq.object.name.clone());
        }
        let Some(reservation) = &wl.reservation else { return };
        if !wl.flags.pods_ready && reservation.charged.is_some() {
            step(&mut self.unready);
        }
        let Some(cq) = reservation.charged.and_then(|cq| self.cluster_queues.get_mut(&cq)) else {
            return;
        };
        if sign > 0 {
            cq.workloads.insert(id);
            cq.preemption_order.insert(id, wl);
        } else {
            cq.workloads.remove(&id);
            cq.preemption_order.remove(id, wl);
        }
        if wl.flags.admitted {
            step(&mut cq.admitted);
            add(&mut cq.admitted_usage, reservation, sign);
        }
        for (fr, amount) in &reservation.charge {
            self.tree.shift(cq.node, *fr, i128::from(*amount) * sign);
        }
        for place in &reservation.places {
            self.forest.charge(place, sign);
        }
        self.changed.cluster_queues.insert(cq.object.name.clone());
    }

    /// Recomputes the charge of a reservation and the charged ClusterQueue. Reclaimable pods charge
    /// nothing.
    pub(super) fn charge(&mut self, wl: &WorkloadEntry, reservation: &mut QuotaReservation) {
        reservation.charged =
            self.cluster_queue_ids.get(&reservation.admission.cluster_queue).copied();
        reservation.charge.clear();
        for assigned in &reservation.admission.pod_sets {
            let wanted = (wl.class.pod_sets.iter().zip(&wl.class.counts))
                .find(|(pod_set, _)| pod_set.name == assigned.name)
                .map_or(assigned.count, |(_, count)| *count);
            for (resource, flavor) in &assigned.flavors {
                let total = assigned.usage.get(resource).map_or(0, |amount| amount.get());
                let amount = match i64::from(assigned.count) {
                    count if count > 0 && wanted < assigned.count => {
                        (total / count).saturating_mul(i64::from(wanted))
                    }
                    _ => total,
                };
                reservation.charge.push((self.pairs.intern(flavor, resource), amount));
            }
        }
        reservation.charge.sort_unstable();
        self.charge_domains(wl, reservation);
        self.deduct_replacement(wl, reservation);
    }

    /// Quota of this ClusterQueue was freed: flavor searches restart, and parked workloads are
    /// retried.
    pub(super) fn quota_freed(&mut self, cq: NodeId, now: crate::Time) {
        if let Some(cq) = self.cluster_queues.get_mut(&cq) {
            cq.generation += 1;
        }
        self.trigger(cq, now);
    }
}

fn add(
    sums: &mut std::collections::BTreeMap<crate::flavor_resource::FlavorResource, i128>,
    reservation: &QuotaReservation,
    sign: i128,
) {
    for (fr, amount) in &reservation.charge {
        let sum = sums.entry(*fr).or_default();
        *sum += i128::from(*amount) * sign;
        if *sum == 0 {
            sums.remove(fr);
        }
    }
}
