//! Whether a preemption helps, tried on other engines.

use switchyard_scheduler::{ClusterQueue, Workload, WorkloadKey};

use crate::script::EngineKind;
use crate::world::{Victim, World};

impl World {
    /// Whether the objects show all of the engine's reservations, so that they alone determine the
    /// free quota.
    pub(crate) fn everything_is_written(&self) -> bool {
        self.open.keys().all(|key| self.is_victim(key))
    }

    pub(crate) fn has_one_pod_set(&self, key: &WorkloadKey) -> bool {
        self.workloads.get(key).is_some_and(|workload| workload.pod_sets.len() == 1)
    }

    /// Its preemption was issued in this step or before.
    fn is_victim(&self, key: &WorkloadKey) -> bool {
        self.victims_at_decision.contains(key)
    }

    /// Whether the preemptor fits without this victim. Only decidable if the preemptor has a single
    /// way to fit: all its pods, on the only flavor, from its queue's own quota.
    pub(crate) fn was_needless(&self, victim: &Victim) -> bool {
        let one_way = |queue: &ClusterQueue| {
            queue.cohort.as_ref().is_none_or(|cohort| cohort.is_empty())
                && queue.resource_groups.iter().all(|group| group.flavors.len() == 1)
        };
        let whole =
            |workload: &Workload| workload.pod_sets.iter().all(|set| set.min_count.is_none());
        let says = self.queues.get(&victim.queue).is_some_and(one_way)
            && self.workloads.get(&victim.preemptor).is_some_and(whole)
            && self
                .workloads
                .get(&victim.key)
                .is_some_and(|workload| workload.reservation.is_some());
        says && self.fits_beside(&victim.preemptor, Some(&victim.key))
    }

    /// Whether a workload is admitted if no other workload waits or leaves.
    pub(crate) fn fits_alone(&self, key: &WorkloadKey) -> bool {
        self.fits_beside(key, None)
    }

    fn fits_beside(&self, key: &WorkloadKey, staying: Option<&WorkloadKey>) -> bool {
        let mut others = Self::new(EngineKind::Plain);
        others.now = self.now;
        others.namespaces = self.namespaces.clone();
        others.flavors = self.flavors.clone();
        others.queues = self.queues.clone();
        others.cohorts = self.cohorts.clone();
        others.local_queues = self.local_queues.clone();
        others.checks = self.checks.clone();
        others.open = self.open.clone();
        let stays = |known: &WorkloadKey, workload: &Workload| {
            // A victim without a written reservation still leaves.
            let holds = workload.reservation.is_some() || self.open.contains_key(known);
            known == key || (holds && (staying == Some(known) || !self.is_victim(known)))
        };
        let all = self.workloads.iter().filter(|(known, workload)| stays(known, workload));
        others.workloads = all.map(|(known, workload)| (known.clone(), workload.clone())).collect();
        if let Some(workload) = others.workloads.get_mut(key) {
            // It was tried, whatever its status says since.
            (workload.requeued, workload.requeue_at) = (None, None);
        }
        let mut alone = others.restarted(false);
        (0..3).any(|_| {
            alone.cycle();
            alone.workloads.get(key).is_some_and(|workload| workload.reservation.is_some())
        })
    }
}
