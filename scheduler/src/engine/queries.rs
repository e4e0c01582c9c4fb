//! Queries for status, metrics and the command line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Engine;
use crate::cluster_queue::ClusterQueueEntry;
use crate::flavor_resource::FlavorResource;
use crate::flavors::total_requests;
use crate::ids::{LocalQueueId, WorkloadId};
use crate::queue::PendingState;
use crate::workloads::WorkloadEntry;
use crate::{
    Amount, ClusterQueueView, InactiveCause, LocalQueueKey, LocalQueueView, Name, PendingEntry,
    PendingReason, Reason, ResourceQuota, ResourceUsage, StopPolicy, WorkloadKey,
};

impl Engine {
    pub fn cluster_queue(&self, name: &str) -> Option<ClusterQueueView<'_>> {
        let cq = self.cluster_queues.get(self.cluster_queue_ids.get(name)?)?;
        let borrows = self.tree.parent(cq.node).is_some();
        let reserved = |fr: FlavorResource| self.tree.usage(cq.node, fr);
        let admitted = |fr: FlavorResource| sum(&cq.admitted_usage, fr);
        let share = self.tree.share(cq.node);
        Some(ClusterQueueView {
            name: &cq.object.name,
            active: if cq.is_active() { Ok(()) } else { Err(cq.inactive.clone()) },
            reservation: self.usage(cq, borrows, reserved),
            usage: self.usage(cq, borrows, admitted),
            quota: pairs_of(cq)
                .map(|(flavor, resource, fr)| self.quota(cq, flavor, resource, fr))
                .collect(),
            pending_active: cq.queue.active_len(),
            pending_inadmissible: cq.queue.parked_len(),
            reserving: cq.workloads.len(),
            admitted: cq.admitted,
            weighted_share: share.rounded(),
            precise_share: share.precise(),
        })
    }

    fn usage(
        &self,
        cq: &ClusterQueueEntry,
        borrows: bool,
        used: impl Fn(FlavorResource) -> Amount,
    ) -> Vec<ResourceUsage> {
        pairs_of(cq)
            .map(|(flavor, resource, fr)| {
                let total = used(fr);
                let borrowed = (total - self.tree.quota(cq.node, fr).nominal).max(Amount::ZERO);
                ResourceUsage {
                    flavor: flavor.clone(),
                    resource: resource.clone(),
                    total,
                    borrowed: if borrows { borrowed } else { Amount::ZERO },
                }
            })
            .collect()
    }

    fn quota(
        &self,
        cq: &ClusterQueueEntry,
        flavor: &Name,
        resource: &Name,
        fr: FlavorResource,
    ) -> ResourceQuota {
        let quota = self.tree.quota(cq.node, fr);
        ResourceQuota {
            flavor: flavor.clone(),
            resource: resource.clone(),
            nominal: quota.nominal,
            borrowing_limit: quota.borrowing_limit,
            lending_limit: quota.lending_limit,
            reserved: self.tree.usage(cq.node, fr),
            available: self.tree.available(cq.node, fr),
            potential: self.tree.potential(cq.node, fr),
        }
    }

    pub fn local_queue(&self, key: &LocalQueueKey) -> Option<LocalQueueView<'_>> {
        let lq = self.local_queues.get(self.local_queues.id(key)?)?;
        let object = lq.object.as_ref()?;
        let cq = self
            .cluster_queue_ids
            .get(&object.cluster_queue)
            .and_then(|id| self.cluster_queues.get(id));
        let inactive =
            |reason, message: &str| Err(InactiveCause { reason, message: message.to_owned() });
        let active = match cq {
            _ if object.stop_policy != StopPolicy::None => {
                inactive("Stopped", "LocalQueue is stopped")
            }
            None => {
                inactive("ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
            }
            Some(cq) if !cq.inactive.is_empty() => {
                inactive("ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
            }
            Some(_) => Ok(()),
        };
        let usage = |sums: &BTreeMap<FlavorResource, i128>| -> Vec<ResourceUsage> {
            let pairs = cq.into_iter().flat_map(pairs_of);
            let used = pairs.map(|(flavor, resource, fr)| ResourceUsage {
                flavor: flavor.clone(),
                resource: resource.clone(),
                total: sum(sums, fr),
                borrowed: Amount::ZERO,
            });
            used.collect()
        };
        Some(LocalQueueView {
            key: &lq.key,
            cluster_queue: &object.cluster_queue,
            active,
            reservation: usage(&lq.reserved_usage),
            usage: usage(&lq.admitted_usage),
            pending: lq.pending,
            reserving: lq.reserving,
            admitted: lq.admitted,
            past_usage: self.past_usage(self.local_queues.id(key)?),
        })
    }

    /// The pending workloads of a ClusterQueue in its order, parked ones included. The first few
    /// cost as much as the queue has classes.
    pub fn pending<'a>(
        &'a self,
        cluster_queue: &str,
    ) -> impl Iterator<Item = PendingEntry<'a>> + use<'a> {
        let cq =
            self.cluster_queue_ids.get(cluster_queue).and_then(|id| self.cluster_queues.get(id));
        let mut by_local_queue: BTreeMap<LocalQueueId, usize> = BTreeMap::new();
        let order = cq
            .into_iter()
            .flat_map(|cq| cq.queue.in_order().map(move |(id, state)| (cq, id, state)));
        order.enumerate().filter_map(move |(position, (cq, id, state))| {
            let wl = self.workloads.get(id)?;
            let lq = self.local_queues.get(wl.queue)?;
            let within = by_local_queue.entry(wl.queue).or_default();
            let position_in_local_queue = *within;
            *within += 1;
            let bypassed = cq.queue.failure_of(wl.class.id).map(|cause| &**cause);
            Some(PendingEntry {
                key: &wl.key,
                local_queue: &lq.key.name,
                priority: wl.class.priority,
                position_in_cluster_queue: position,
                position_in_local_queue,
                inadmissible: state != PendingState::Heap,
                reason: wl.reason.as_deref().or(bypassed.filter(|_| state == PendingState::Parked)),
            })
        })
    }

    /// Parked workloads of a ClusterQueue by LocalQueue, without LocalQueues that have none. Costs
    /// as much as the queue has classes.
    pub fn parked_by_local_queue(&self, cluster_queue: &str) -> BTreeMap<LocalQueueKey, usize> {
        let Some(cq) =
            self.cluster_queue_ids.get(cluster_queue).and_then(|id| self.cluster_queues.get(id))
        else {
            return BTreeMap::new();
        };
        let mut parked: BTreeMap<LocalQueueKey, usize> = BTreeMap::new();
        for (bucket, _, count) in cq.queue.parked_groups() {
            if let Some(lq) = self.local_queues.get(bucket.queue) {
                *parked.entry(lq.key.clone()).or_default() += count;
            }
        }
        parked
    }

    /// The total requests of a ClusterQueue's pending workloads by resource. Zero for covered
    /// resources without requests. Costs as much as the queue has classes.
    pub fn pending_requests(&self, cluster_queue: &str) -> BTreeMap<Name, Amount> {
        let Some(cq) =
            self.cluster_queue_ids.get(cluster_queue).and_then(|id| self.cluster_queues.get(id))
        else {
            return BTreeMap::new();
        };
        let mut sums: BTreeMap<Name, i128> =
            pairs_of(cq).map(|(_, resource, _)| (resource.clone(), 0)).collect();
        let counts_pods = sums.contains_key("pods");
        for (_, one, count) in cq.queue.groups() {
            let Some(wl) = self.workloads.get(one) else { continue };
            for (pod_set, pods) in wl.class.pod_sets.iter().zip(&wl.class.counts) {
                for (resource, amount) in total_requests(pod_set, *pods, counts_pods) {
                    let count = i128::try_from(count).unwrap_or(i128::MAX);
                    *sums.entry(resource).or_default() +=
                        i128::from(amount.get()).saturating_mul(count);
                }
            }
        }
        let fit = |sum: i128| Amount::new(i64::try_from(sum).unwrap_or(i64::MAX - 1));
        sums.into_iter().map(|(resource, sum)| (resource, fit(sum))).collect()
    }

    /// Why a workload has no quota; `None` if it has quota or is unknown.
    pub fn why(&self, key: &WorkloadKey) -> Option<PendingReason<'_>> {
        let id = self.workloads.id(key)?;
        let wl = self.workloads.get(id)?;
        if wl.reservation.is_some() || wl.flags.finished {
            return None;
        }
        let made_up = self.not_queued_reason(wl).or_else(|| match &wl.reason {
            Some(_) => None,
            None => self.untried_reason(id, wl),
        });
        made_up.map(Cow::Owned).or_else(|| wl.reason.as_deref().map(Cow::Borrowed))
    }

    /// Why a workload is in no queue.
    pub(super) fn not_queued_reason(&self, wl: &WorkloadEntry) -> Option<Reason> {
        if !wl.flags.active {
            return Some(Reason::Deactivated);
        }
        if wl.flags.on_hold || wl.flags.deleting {
            return Some(Reason::OnHold);
        }
        let lq = self.local_queues.get(wl.queue)?;
        let Some(object) = &lq.object else {
            return Some(Reason::LocalQueueMissing { queue: lq.key.clone() });
        };
        if !lq.takes_workloads() {
            return Some(Reason::LocalQueueInactive { queue: lq.key.clone() });
        }
        let name = object.cluster_queue.clone();
        match self.cluster_queue_ids.get(&name).and_then(|id| self.cluster_queues.get(id)) {
            None => Some(Reason::ClusterQueueMissing { name }),
            Some(cq) if !cq.is_active() => Some(Reason::ClusterQueueInactive { name }),
            Some(_) => None,
        }
    }

    /// The reason of a queued workload without an attempt since its last change.
    fn untried_reason(&self, id: WorkloadId, wl: &WorkloadEntry) -> Option<Reason> {
        let cq = self.cluster_queues.get(&wl.queued_in?)?;
        let (bucket, item) = (wl.bucket(), wl.item(id));
        let waiting = |ahead| {
            let head = cq.queue.head().and_then(|head| self.workloads.get(head)).unwrap_or(wl);
            Reason::Waiting { cluster_queue: cq.object.name.clone(), head: head.key.clone(), ahead }
        };
        match (cq.queue.state_of(bucket, &item)?, cq.queue.failure_of(wl.class.id)) {
            (PendingState::BackingOff, _) => {
                let until = wl.wakes_at().filter(|_| wl.requeued != Some(false));
                Some(Reason::BackingOff { until })
            }
            (PendingState::Parked, Some(cause)) => {
                Some(Reason::EquivalentFailed { cause: cause.clone() })
            }
            (PendingState::Parked, None) => Some(waiting(cq.queue.active_len())),
            (PendingState::Heap, _) => Some(waiting(cq.queue.ahead_of(bucket, &item))),
        }
    }
}

/// In the order of the spec, with the resources of a flavor by name, as in Kueue's status.
fn pairs_of(cq: &ClusterQueueEntry) -> impl Iterator<Item = (&Name, &Name, FlavorResource)> {
    cq.groups.iter().flat_map(|group| {
        let mut order: Vec<_> = group.resources.iter().enumerate().collect();
        order.sort_by_key(|(_, resource)| *resource);
        group.flavors.iter().flat_map(move |flavor| {
            let of_flavor = move |(at, resource): (usize, _)| {
                Some((&flavor.name, resource, *flavor.flavor_resources.get(at)?))
            };
            order.clone().into_iter().filter_map(of_flavor)
        })
    })
}

fn sum(sums: &BTreeMap<FlavorResource, i128>, fr: FlavorResource) -> Amount {
    Amount::clamped(sums.get(&fr).copied().unwrap_or(0))
}
