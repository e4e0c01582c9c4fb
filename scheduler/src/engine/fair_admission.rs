//! Where admission fair sharing meets the engine: when use is sampled, who is charged, and the order that follows.

use std::collections::BTreeMap;

use super::Engine;
use crate::afs::{Ledger, Usage, weighted};
use crate::cluster_queue::Cq;
use crate::flavor_resource::ResourceId;
use crate::flavors::total_requests;
use crate::tree::NodeId;
use crate::workloads::{LqId, Wl, WlId};
use crate::{
    AdmissionFairSharing, AdmissionScope, Amount, LocalQueueKey, Name, PastUse, QuotaCheckStrategy,
    StopPolicy, Time,
};

impl Cq {
    fn weighs_local_queues(&self) -> bool {
        self.object.admission_scope == AdmissionScope::UsageBasedAdmissionFairSharing
    }
}

impl Engine {
    /// With past use of LocalQueues in the order of those ClusterQueues that ask for it.
    #[must_use]
    pub fn sharing_admission(mut self, config: AdmissionFairSharing) -> Self {
        self.afs = Some(Ledger::new(config));
        self
    }

    /// What the status of a LocalQueue says of its past use: taken over once, after a restart.
    pub(super) fn restore_use(
        &mut self,
        key: &LocalQueueKey,
        consumed: &BTreeMap<Name, i128>,
        now: Time,
    ) {
        let queue = self.lqs.intern(key);
        if let Some(ledger) = &mut self.afs {
            ledger.restore(queue, consumed, now);
        }
        self.reorder(queue);
        self.lqs.drop_if_unused(queue);
    }

    /// Queues changed: who is sampled and in which order may be different.
    pub(super) fn queues_changed(&mut self, now: Time) {
        let Some(ledger) = &mut self.afs else { return };
        ledger.next = Some(now);
        let all: Vec<LqId> = self.lqs.iter().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.reorder(id));
    }

    /// A LocalQueue is gone, and its past with it.
    pub(super) fn forget_use(&mut self, queue: LqId) {
        if let Some(ledger) = &mut self.afs {
            ledger.forget(queue);
        }
    }

    /// Samples the LocalQueues that are due, and finds out when the next one is.
    pub(super) fn flush_samples(&mut self, now: Time) {
        if self.afs.as_ref().and_then(|ledger| ledger.next).is_none_or(|next| next > now) {
            return;
        }
        let sampled = self.lqs.iter().filter(|(_, lq)| {
            let object = lq.object.as_ref().filter(|object| object.stop_policy == StopPolicy::None);
            let cq =
                object.and_then(|object| self.cqs.get(self.cq_ids.get(&object.cluster_queue)?));
            cq.is_some_and(Cq::is_active)
        });
        let sampled: Vec<LqId> = sampled.map(|(id, _)| id).collect();
        for queue in &sampled {
            let due = self.afs.as_ref().and_then(|ledger| ledger.due(*queue));
            if due.is_none_or(|due| due <= now) {
                self.sample(*queue, now);
            }
        }
        if let Some(ledger) = &mut self.afs {
            ledger.next = sampled.iter().filter_map(|queue| ledger.due(*queue)).min();
        }
    }

    fn sample(&mut self, queue: LqId, now: Time) {
        let current = self.counted_use(queue);
        let Some(ledger) = &mut self.afs else { return };
        ledger.sample(queue, &current, now);
        if let Some(lq) = self.lqs.get(queue) {
            self.changed.local_queues.insert(lq.key.clone());
        }
        self.reorder(queue);
    }

    /// A workload was given quota.
    pub(super) fn charge_entry(&mut self, id: WlId, cq: NodeId, now: Time) {
        let Some((wl, cq)) = self.workloads.get(id).zip(self.cqs.get(&cq)) else { return };
        if self.afs.is_none() || !cq.weighs_local_queues() {
            return;
        }
        let mut requests: BTreeMap<Name, Amount> = BTreeMap::new();
        for (pod_set, count) in wl.class.pod_sets.iter().zip(&wl.class.counts) {
            for (name, amount) in total_requests(pod_set, *count, false) {
                let sum = requests.entry(name).or_default();
                *sum = *sum + amount;
            }
        }
        if self.settings.quota_check == QuotaCheckStrategy::IgnoreUndeclared {
            requests.retain(|name, _| cq.group_of(name).is_some());
        }
        let queue = wl.queue;
        if let Some(ledger) = &mut self.afs {
            ledger.penalise(queue, id, &requests, now);
        }
        if let Some(lq) = self.lqs.get(queue) {
            self.changed.local_queues.insert(lq.key.clone());
        }
        self.reorder(queue);
    }

    /// A workload changed: an admission settles its penalty, a mere reservation has its queue's use reckoned, and what
    /// can never be settled is forgotten.
    pub(super) fn settle_entry(&mut self, id: WlId, old: &Wl, now: Time) {
        if self.afs.is_none() {
            return;
        }
        let Some(wl) = self.workloads.get(id) else { return };
        let queue = wl.queue;
        let weighed = wl
            .hold
            .as_ref()
            .and_then(|hold| self.cqs.get(&hold.charged?))
            .is_some_and(Cq::weighs_local_queues);
        let confirmed = |wl: &Wl| wl.hold.as_ref().is_some_and(|hold| hold.confirmed);
        let from_reservation = self.settings.gates.use_counts_from_reservation;
        let counts =
            |wl: &Wl| wl.hold.is_some() && wl.flags.admitted || from_reservation && confirmed(wl);
        let settles = counts(wl) && !counts(old) && weighed;
        let reserved = confirmed(wl) && !confirmed(old) && weighed;
        let hopeless = wl.hold.is_none() && !wl.may_ask();
        if old.queue != queue {
            self.absolve_entry(id, old.queue);
        }
        if settles {
            let current = self.counted_use(queue);
            if let Some(ledger) = &mut self.afs {
                ledger.settle(queue, id, &current, now);
            }
            if let Some(lq) = self.lqs.get(queue) {
                self.changed.local_queues.insert(lq.key.clone());
            }
            self.reorder(queue);
        } else if reserved {
            self.sample(queue, now);
        } else if hopeless {
            self.absolve_entry(id, queue);
        }
    }

    /// A reservation did not come about, or the workload is gone.
    pub(super) fn absolve_entry(&mut self, id: WlId, queue: LqId) {
        if self.afs.as_mut().is_some_and(|ledger| ledger.absolve(queue, id)) {
            self.reorder(queue);
        }
    }

    /// What counts as the use of a LocalQueue, over all flavors: that of its admitted workloads, or of all that hold quota.
    fn counted_use(&self, queue: LqId) -> BTreeMap<Name, Amount> {
        let usage =
            self.lqs.get(queue).map(|lq| match self.settings.gates.use_counts_from_reservation {
                true => &lq.reserved_usage,
                false => &lq.admitted_usage,
            });
        let mut sums: BTreeMap<ResourceId, i128> = BTreeMap::new();
        for (fr, amount) in usage.into_iter().flatten() {
            *sums.entry(fr.resource()).or_default() += amount;
        }
        let named = self
            .pairs
            .resources()
            .filter_map(|(name, id)| Some((name.clone(), Amount::clamped(*sums.get(&id)?))));
        named.collect()
    }

    /// Puts a LocalQueue's workloads where its past use has them.
    fn reorder(&mut self, queue: LqId) {
        let Some(ledger) = &self.afs else { return };
        let object = self.lqs.get(queue).and_then(|lq| lq.object.as_ref());
        let Some(cq) =
            object.and_then(|object| self.cqs.get_mut(self.cq_ids.get(&object.cluster_queue)?))
        else {
            return;
        };
        let usage = match (ledger.get(queue), object) {
            (Some(entry), Some(object)) if cq.weighs_local_queues() => {
                weighted(&entry.total(), &ledger.config.resource_weights, object.fair_weight_milli)
            }
            (None, Some(object)) if cq.weighs_local_queues() => weighted(
                &BTreeMap::new(),
                &ledger.config.resource_weights,
                object.fair_weight_milli,
            ),
            _ => Usage::default(),
        };
        if cq.queue.set_usage(queue, usage) {
            self.changed.cluster_queues.insert(cq.object.name.clone());
        }
    }

    /// Past use of a LocalQueue, for its status.
    pub(super) fn past_use(&self, queue: LqId) -> Option<PastUse> {
        let entry = self.afs.as_ref()?.get(queue)?;
        Some(PastUse { consumed: entry.consumed.clone(), last_update: entry.last_update })
    }

    /// Weighted past use of a LocalQueue, pending penalties included: who has less goes first in a ClusterQueue with
    /// admission fair sharing. Infinite for a queue that weighs nothing; zero elsewhere.
    pub fn weighted_use(&self, key: &LocalQueueKey) -> f64 {
        let queue = self.lqs.id(key);
        let object = queue.and_then(|queue| self.lqs.get(queue)?.object.as_ref());
        let cq = object.and_then(|object| self.cqs.get(self.cq_ids.get(&object.cluster_queue)?));
        queue.zip(cq).map_or(0.0, |(queue, cq)| cq.queue.usage_of(queue).get())
    }
}

#[cfg(test)]
impl Engine {
    /// The place of a workload that is known.
    pub(crate) fn workload_id(&self, key: &crate::WorkloadKey) -> WlId {
        self.workloads.id(key).expect("the workload is known")
    }
}
