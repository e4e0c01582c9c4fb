//! Sums over workloads: charged quota, usage and counts of queues. A workload is taken out of all sums before it
//! changes and put back after, so that no sum can drift.

use super::Engine;
use crate::tree::NodeId;
use crate::workloads::{Hold, Wl, WlId};

impl Engine {
    /// Changes a workload and everything that is summed over it.
    pub(super) fn edit(&mut self, id: WlId, change: impl FnOnce(&mut Wl)) {
        self.count(id, -1);
        if let Some(wl) = self.workloads.get_mut(id) {
            change(wl);
        }
        self.count(id, 1);
    }

    /// Adds (`sign` 1) or takes out (-1) what a workload contributes.
    pub(super) fn count(&mut self, id: WlId, sign: i128) {
        let Some(wl) = self.workloads.get(id) else { return };
        let step = |count: &mut usize| {
            *count = if sign > 0 { *count + 1 } else { count.saturating_sub(1) }
        };
        if let Some(lq) = self.lqs.get_mut(wl.queue) {
            if wl.is_pending() {
                step(&mut lq.pending);
            }
            if let Some(hold) = &wl.hold {
                step(&mut lq.reserving);
                add(&mut lq.reserved_usage, hold, sign);
                if wl.flags.admitted {
                    step(&mut lq.admitted);
                    add(&mut lq.admitted_usage, hold, sign);
                }
            }
            self.changed.local_queues.insert(lq.key.clone());
        }
        if let Some(cq) = wl.queued_in.and_then(|cq| self.cqs.get(&cq)) {
            self.changed.cluster_queues.insert(cq.object.name.clone());
        }
        let Some(hold) = &wl.hold else { return };
        if !wl.flags.pods_ready && hold.charged.is_some() {
            step(&mut self.unready);
        }
        let Some(cq) = hold.charged.and_then(|cq| self.cqs.get_mut(&cq)) else { return };
        if sign > 0 {
            cq.workloads.insert(id);
            cq.holders.insert(id, wl);
        } else {
            cq.workloads.remove(&id);
            cq.holders.remove(id, wl);
        }
        if wl.flags.admitted {
            step(&mut cq.admitted);
            add(&mut cq.admitted_usage, hold, sign);
        }
        for (fr, amount) in &hold.charge {
            self.tree.shift(cq.node, *fr, i128::from(*amount) * sign);
        }
        for place in &hold.places {
            self.forest.charge(place, sign);
        }
        self.changed.cluster_queues.insert(cq.object.name.clone());
    }

    /// Works out what a reservation charges, and whom: less for pods that will not run any more.
    pub(super) fn charge(&mut self, wl: &Wl, hold: &mut Hold) {
        hold.charged = self.cq_ids.get(&hold.admission.cluster_queue).copied();
        hold.charge.clear();
        for assigned in &hold.admission.pod_sets {
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
                hold.charge.push((self.pairs.intern(flavor, resource), amount));
            }
        }
        hold.charge.sort_unstable();
        self.charge_places(wl, hold);
        self.leave_to_replacement(wl, hold);
    }

    /// Quota of this ClusterQueue became free: flavor searches start anew, and parked workloads are tried again.
    pub(super) fn freed(&mut self, cq: NodeId, now: crate::Time) {
        if let Some(cq) = self.cqs.get_mut(&cq) {
            cq.generation += 1;
        }
        self.trigger(cq, now);
    }
}

fn add(
    sums: &mut std::collections::BTreeMap<crate::flavor_resource::Fr, i128>,
    hold: &Hold,
    sign: i128,
) {
    for (fr, amount) in &hold.charge {
        let sum = sums.entry(*fr).or_default();
        *sum += i128::from(*amount) * sign;
        if *sum == 0 {
            sums.remove(fr);
        }
    }
}
