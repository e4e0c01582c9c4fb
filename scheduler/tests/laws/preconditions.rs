//! The preconditions of admissions and preemptions, computed from the objects alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use switchyard_scheduler::{
    AdmissionScope, Amount, ClusterQueue, LabelSelector, LocalQueueKey, Name, PodSet,
    PodSetAssignment, PreemptionPolicy, QueueingStrategy, Reason, StopPolicy, TaintEffect,
    Workload, WorkloadKey,
};

use crate::world::{Victim, World};

impl World {
    /// The ClusterQueue of a workload, if its LocalQueue is active.
    fn cluster_queue_of(&self, workload: &Workload) -> Option<&ClusterQueue> {
        let key = LocalQueueKey::new(workload.key.namespace.clone(), workload.queue_name.as_str());
        let local_queue = self
            .local_queues
            .get(&key)
            .filter(|local_queue| local_queue.stop_policy == StopPolicy::None)?;
        self.queues.get(&local_queue.cluster_queue)
    }

    fn is_backing_off(&self, workload: &Workload) -> bool {
        workload.requeued == Some(false)
            || workload.requeue_at.is_some_and(|at| at > self.now)
            || self.undispatched.get(&workload.key).is_some_and(|until| *until > self.now)
    }

    fn namespace_matches(&self, queue: &ClusterQueue, namespace: &Name) -> bool {
        let Some(labelled) = self.namespaces.get(namespace) else { return false };
        match &queue.namespace_selector {
            None => false,
            Some(selector) if *selector == LabelSelector::default() => true,
            Some(_) => *labelled,
        }
    }

    /// Whether the queue's cohorts form no cycle.
    fn has_a_root(&self, queue: &ClusterQueue) -> bool {
        let mut seen = BTreeSet::new();
        let mut at = queue.cohort.clone();
        while let Some(name) = at.filter(|name| !name.is_empty()) {
            at = self.cohorts.get(&name).and_then(|cohort| cohort.parent.clone());
            if !seen.insert(name) {
                return false;
            }
        }
        true
    }

    /// Why an admission is wrong, as far as the objects show.
    pub(crate) fn objection(&self, key: &WorkloadKey) -> Option<String> {
        let admission = self.admission(key)?;
        let workload = self.workloads.get(key)?;
        if !workload.active || workload.finished || workload.on_hold || workload.deleting {
            return Some("it must not be queued".into());
        }
        let Some(queue) =
            self.cluster_queue_of(workload).filter(|queue| queue.name == admission.cluster_queue)
        else {
            return Some("that is not its queue, or its LocalQueue is closed".into());
        };
        if queue.deleting || queue.stop_policy != StopPolicy::None || !self.has_a_root(queue) {
            return Some("the queue admits nobody".into());
        }
        if !self.namespace_matches(queue, &key.namespace) {
            return Some("its namespace may not use the queue".into());
        }
        if workload.pod_sets.len() != admission.pod_sets.len() {
            return Some("not all pod sets are admitted".into());
        }
        let mut sets = workload.pod_sets.iter().zip(&admission.pod_sets);
        sets.find_map(|(wanted, given)| self.objection_to_pod_set(workload, queue, wanted, given))
    }

    fn objection_to_pod_set(
        &self,
        workload: &Workload,
        queue: &ClusterQueue,
        wanted: &PodSet,
        given: &PodSetAssignment,
    ) -> Option<String> {
        let gone = workload.reclaimable.get(&wanted.name).copied().unwrap_or(0);
        let left = (wanted.count - gone.clamp(0, wanted.count)).max(0);
        let least = wanted.min_count.map_or(left, |least| least.min(left));
        if given.count < least || given.count > wanted.count {
            return Some(format!("{} of {least} to {} pods", given.count, wanted.count));
        }
        for (resource, amount) in &wanted.requests {
            let total = (*amount).max(Amount::ZERO).times(given.count);
            let Some(flavor) = given.flavors.get(resource) else {
                if total > Amount::ZERO {
                    return Some(format!("no flavor for {resource}"));
                }
                continue;
            };
            let groups = queue
                .resource_groups
                .iter()
                .filter(|group| group.covered_resources.contains(resource));
            let offered =
                groups.flat_map(|group| &group.flavors).any(|offered| offered.name == *flavor);
            if !offered || !self.takes(flavor, wanted) {
                return Some(format!("{flavor} does not take {resource} of {}", wanted.name));
            }
            if given.usage.get(resource) != Some(&total) {
                return Some(format!(
                    "{:?} of {resource} instead of {total}",
                    given.usage.get(resource)
                ));
            }
        }
        None
    }

    /// Whether a flavor exists and accepts these pods.
    fn takes(&self, flavor: &Name, pods: &PodSet) -> bool {
        let Some(flavor) = self.flavors.get(flavor) else { return false };
        let labels = pods.node_selector.iter();
        let elsewhere = labels
            .clone()
            .any(|(key, value)| flavor.node_labels.get(key).is_some_and(|is| is != value));
        let mut taints =
            flavor.node_taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
        // Tolerations in these worlds cover every value and effect.
        !elsewhere
            && taints
                .all(|taint| pods.tolerations.iter().any(|toleration| toleration.key == taint.key))
    }

    /// The workload that each strict queue must admit first, by priority and time. Without queues
    /// that order by past usage.
    pub(crate) fn strict_heads(&mut self) -> BTreeMap<Name, WorkloadKey> {
        self.flush();
        let by_usage = |queue: &&ClusterQueue| {
            queue.admission_scope == AdmissionScope::UsageBasedAdmissionFairSharing
        };
        let strict =
            self.queues.values().filter(|queue| queue.strategy == QueueingStrategy::StrictFIFO);
        let head = |queue: &ClusterQueue| {
            let parked: BTreeSet<_> = self.parked(queue).into_iter().collect();
            let waits = |workload: &&Workload| {
                self.cluster_queue_of(workload)
                    .is_some_and(|local_queue| local_queue.name == queue.name)
                    && workload.reservation.is_none()
                    && workload.active
                    && !workload.finished
                    && !workload.on_hold
                    && !workload.deleting
                    && !self.open.contains_key(&workload.key)
                    && !parked.contains(&workload.key)
            };
            let rank = |workload: &&Workload| {
                (Reverse(workload.priority), workload.queue_time, workload.uid.clone())
            };
            let head = self.workloads.values().filter(waits).min_by_key(rank)?;
            Some((queue.name.clone(), head.key.clone()))
        };
        strict.filter(|queue| !by_usage(queue)).filter_map(head).collect()
    }

    fn parked(&self, queue: &ClusterQueue) -> Vec<WorkloadKey> {
        let pending = self.engine.pending(&queue.name);
        pending.filter(|entry| entry.inadmissible).map(|entry| entry.key.clone()).collect()
    }

    /// A parked workload of a queue that was always strict, although only quota is missing.
    pub(crate) fn parked_without_cause(&self) -> Option<WorkloadKey> {
        let strict =
            self.queues.values().filter(|queue| !self.ever_not_strict.contains(&queue.name));
        let mut parked =
            strict.flat_map(|queue| self.parked(queue).into_iter().map(move |key| (queue, key)));
        let without_cause = |(queue, key): &(&ClusterQueue, WorkloadKey)| {
            let why = self.engine.why(key);
            // A workload whose namespace now matches returns with the next trigger.
            let other = matches!(
                why.as_deref(),
                Some(
                    Reason::NamespaceMismatch
                        | Reason::ClusterQueueInactive { .. }
                        | Reason::LocalQueueInactive { .. }
                )
            );
            let waits =
                self.workloads.get(key).is_none_or(|workload| self.is_backing_off(workload));
            !other && !waits && self.namespace_matches(queue, &key.namespace)
        };
        parked.find(without_cause).map(|(_, key)| key)
    }

    /// Why a preemption violates the rules of the queue.
    pub(crate) fn policy_violation(&self, victim: &Victim) -> Option<String> {
        let (preemptor, lesser) =
            (self.workloads.get(&victim.preemptor)?, self.workloads.get(&victim.key)?);
        let queue = self.cluster_queue_of(preemptor)?;
        let own = queue.name == victim.queue;
        let rules = queue.preemption;
        let policy = if own { rules.within_cluster_queue } else { rules.reclaim_within_cohort };
        let newer = preemptor.queue_time < lesser.queue_time;
        let allowed = match policy {
            PreemptionPolicy::Never => false,
            PreemptionPolicy::Any => true,
            PreemptionPolicy::LowerPriority => lesser.priority < preemptor.priority,
            PreemptionPolicy::LowerOrNewerEqualPriority => {
                lesser.priority < preemptor.priority
                    || (lesser.priority == preemptor.priority && newer)
            }
        };
        let related = own
            || self.root(queue).is_some_and(|root| {
                self.queues.get(&victim.queue).and_then(|queue| self.root(queue)) == Some(root)
            });
        (!allowed || !related).then(|| format!("{policy:?}, in one tree: {related}"))
    }

    fn root(&self, queue: &ClusterQueue) -> Option<Name> {
        let mut at = queue.cohort.clone().filter(|name| !name.is_empty())?;
        // The path is no longer than the number of cohorts.
        for _ in 0..=self.cohorts.len() {
            match self
                .cohorts
                .get(&at)
                .and_then(|cohort| cohort.parent.clone())
                .filter(|name| !name.is_empty())
            {
                Some(parent) => at = parent,
                None => break,
            }
        }
        Some(at)
    }
}
