//! Admission fair sharing in the engine: when usage is sampled, which workloads have an entry
//! penalty, and the resulting order of LocalQueues. Kueue KEP-4136.

use std::collections::BTreeMap;

use super::Engine;
use crate::afs::{UsageTracker, WeightedUsage, weighted};
use crate::cluster_queue::ClusterQueueEntry;
use crate::flavor_resource::ResourceId;
use crate::flavors::total_requests;
use crate::ids::{LocalQueueId, NodeId, WorkloadId};
use crate::workloads::WorkloadEntry;
use crate::{
    AdmissionFairSharing, AdmissionScope, Amount, LocalQueueKey, Name, PastUsage,
    QuotaCheckStrategy, StopPolicy, Time,
};

impl ClusterQueueEntry {
    fn orders_local_queues(&self) -> bool {
        self.object.admission_scope == AdmissionScope::UsageBasedAdmissionFairSharing
    }
}

impl Engine {
    /// ClusterQueues that ask for it order their LocalQueues by past usage.
    #[must_use]
    pub fn with_admission_fair_sharing(mut self, config: AdmissionFairSharing) -> Self {
        self.afs = Some(UsageTracker::new(config));
        self
    }

    /// Takes over the past usage from a LocalQueue's status, once after a restart.
    pub(super) fn restore_usage(
        &mut self,
        key: &LocalQueueKey,
        consumed: &BTreeMap<Name, i128>,
        now: Time,
    ) {
        let queue = self.local_queues.intern(key);
        if let Some(tracker) = &mut self.afs {
            tracker.restore(queue, consumed, now);
        }
        self.reorder(queue);
        self.local_queues.drop_if_unused(queue);
    }

    /// Queues changed: the sampled LocalQueues and their order may change.
    pub(super) fn queues_changed(&mut self, now: Time) {
        let Some(tracker) = &mut self.afs else { return };
        tracker.next = Some(now);
        let all: Vec<LocalQueueId> = self.local_queues.iter().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.reorder(id));
    }

    /// A LocalQueue was deleted.
    pub(super) fn forget_usage(&mut self, queue: LocalQueueId) {
        if let Some(tracker) = &mut self.afs {
            tracker.forget(queue);
        }
    }

    /// Samples the LocalQueues that are due, and computes the next due time.
    pub(super) fn flush_samples(&mut self, now: Time) {
        if self.afs.as_ref().and_then(|tracker| tracker.next).is_none_or(|next| next > now) {
            return;
        }
        let sampled = self.local_queues.iter().filter(|(_, lq)| {
            let object = lq.object.as_ref().filter(|object| object.stop_policy == StopPolicy::None);
            let cq = object.and_then(|object| {
                self.cluster_queues.get(self.cluster_queue_ids.get(&object.cluster_queue)?)
            });
            cq.is_some_and(ClusterQueueEntry::is_active)
        });
        let sampled: Vec<LocalQueueId> = sampled.map(|(id, _)| id).collect();
        for queue in &sampled {
            let due = self.afs.as_ref().and_then(|tracker| tracker.due(*queue));
            if due.is_none_or(|due| due <= now) {
                self.sample(*queue, now);
            }
        }
        if let Some(tracker) = &mut self.afs {
            tracker.next = sampled.iter().filter_map(|queue| tracker.due(*queue)).min();
        }
    }

    fn sample(&mut self, queue: LocalQueueId, now: Time) {
        let current = self.counted_usage(queue);
        let Some(tracker) = &mut self.afs else { return };
        tracker.sample(queue, &current, now);
        if let Some(lq) = self.local_queues.get(queue) {
            self.changed.local_queues.insert(lq.key.clone());
        }
        self.reorder(queue);
    }

    /// A workload got quota.
    pub(super) fn add_entry_penalty(&mut self, id: WorkloadId, cq: NodeId, now: Time) {
        let Some((wl, cq)) = self.workloads.get(id).zip(self.cluster_queues.get(&cq)) else {
            return;
        };
        if self.afs.is_none() || !cq.orders_local_queues() {
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
        if let Some(tracker) = &mut self.afs {
            tracker.add_penalty(queue, id, &requests, now);
        }
        if let Some(lq) = self.local_queues.get(queue) {
            self.changed.local_queues.insert(lq.key.clone());
        }
        self.reorder(queue);
    }

    /// Updates the entry penalty after a workload changed. An admission settles the penalty; a
    /// confirmed reservation samples the LocalQueue. A workload that can never settle its penalty
    /// loses it.
    pub(super) fn settle_entry_penalty(&mut self, id: WorkloadId, old: &WorkloadEntry, now: Time) {
        if self.afs.is_none() {
            return;
        }
        let Some(wl) = self.workloads.get(id) else { return };
        let queue = wl.queue;
        let weighed = wl
            .reservation
            .as_ref()
            .and_then(|reservation| self.cluster_queues.get(&reservation.charged?))
            .is_some_and(ClusterQueueEntry::orders_local_queues);
        let confirmed = |wl: &WorkloadEntry| {
            wl.reservation.as_ref().is_some_and(|reservation| reservation.confirmed)
        };
        let from_reservation = self.settings.gates.usage_from_reservation;
        let counts = |wl: &WorkloadEntry| {
            wl.reservation.is_some() && wl.flags.admitted || from_reservation && confirmed(wl)
        };
        let settles = counts(wl) && !counts(old) && weighed;
        let reserved = confirmed(wl) && !confirmed(old) && weighed;
        let hopeless = wl.reservation.is_none() && !wl.may_request_quota();
        if old.queue != queue {
            self.remove_entry_penalty(id, old.queue);
        }
        if settles {
            let current = self.counted_usage(queue);
            if let Some(tracker) = &mut self.afs {
                tracker.settle(queue, id, &current, now);
            }
            if let Some(lq) = self.local_queues.get(queue) {
                self.changed.local_queues.insert(lq.key.clone());
            }
            self.reorder(queue);
        } else if reserved {
            self.sample(queue, now);
        } else if hopeless {
            self.remove_entry_penalty(id, queue);
        }
    }

    /// The reservation was refused, or the workload is gone.
    pub(super) fn remove_entry_penalty(&mut self, id: WorkloadId, queue: LocalQueueId) {
        if self.afs.as_mut().is_some_and(|tracker| tracker.remove_penalty(queue, id)) {
            self.reorder(queue);
        }
    }

    /// The present usage of a LocalQueue over all flavors: of admitted workloads, or with the gate
    /// of all that have quota.
    fn counted_usage(&self, queue: LocalQueueId) -> BTreeMap<Name, Amount> {
        let usage = self.local_queues.get(queue).map(|lq| {
            match self.settings.gates.usage_from_reservation {
                true => &lq.reserved_usage,
                false => &lq.admitted_usage,
            }
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

    /// Moves a LocalQueue's workloads to the position that its past usage gives.
    fn reorder(&mut self, queue: LocalQueueId) {
        let Some(tracker) = &self.afs else { return };
        let object = self.local_queues.get(queue).and_then(|lq| lq.object.as_ref());
        let Some(cq) = object.and_then(|object| {
            self.cluster_queues.get_mut(self.cluster_queue_ids.get(&object.cluster_queue)?)
        }) else {
            return;
        };
        let usage = match (tracker.get(queue), object) {
            (Some(entry), Some(object)) if cq.orders_local_queues() => {
                weighted(&entry.total(), &tracker.config.resource_weights, object.fair_weight_milli)
            }
            (None, Some(object)) if cq.orders_local_queues() => weighted(
                &BTreeMap::new(),
                &tracker.config.resource_weights,
                object.fair_weight_milli,
            ),
            _ => WeightedUsage::default(),
        };
        if cq.queue.set_usage(queue, usage) {
            self.changed.cluster_queues.insert(cq.object.name.clone());
        }
    }

    /// For the LocalQueue's status.
    pub(super) fn past_usage(&self, queue: LocalQueueId) -> Option<PastUsage> {
        let entry = self.afs.as_ref()?.get(queue)?;
        Some(PastUsage { consumed: entry.consumed.clone(), last_update: entry.last_update })
    }

    /// Past usage of a LocalQueue by weight, entry penalties included. A lower value goes first.
    /// Infinite for a queue of weight 0; zero without admission fair sharing.
    pub fn weighted_usage(&self, key: &LocalQueueKey) -> f64 {
        let queue = self.local_queues.id(key);
        let object = queue.and_then(|queue| self.local_queues.get(queue)?.object.as_ref());
        let cq = object.and_then(|object| {
            self.cluster_queues.get(self.cluster_queue_ids.get(&object.cluster_queue)?)
        });
        queue.zip(cq).map_or(0.0, |(queue, cq)| cq.queue.usage_of(queue).get())
    }
}

#[cfg(test)]
impl Engine {
    pub(crate) fn workload_id(&self, key: &crate::WorkloadKey) -> WorkloadId {
        self.workloads.id(key).expect("the workload is known")
    }
}
