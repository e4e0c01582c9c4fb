mod accounts;
mod capacity;
mod claims;
mod cohorts;
mod cycle;
mod enqueue;
mod explain;
mod fair_admission;
mod nominate;
mod objects;
mod preempt;
mod queries;
mod queues;
mod ready;
mod second_pass;
mod simulated_removals;
mod slices;
#[cfg(test)]
mod tests;
mod tournament;
mod variants;
mod workload;

use std::collections::{BTreeMap, BTreeSet};

use self::ready::ReadyQueues;
use self::second_pass::SecondPass;
use crate::afs::UsageTracker;
use crate::cluster_queue::ClusterQueueEntry;
use crate::flavor_resource::FlavorResources;
use crate::ids::{NodeId, WorkloadId};
use crate::queue::equivalence::EquivalenceClasses;
use crate::queue::triggers::RequeueTriggers;
use crate::referenced::ReferencedObjects;
use crate::topology::Forest;
use crate::tree::QuotaTree;
use crate::workloads::{LocalQueues, Workloads};
use crate::{ChangedQueues, EngineSettings, Event, Name, PreemptionSettings, Time, WorkloadKey};

/// The quota engine of one cluster.
///
/// # Guarantees
///
/// - The same events and times give the same decisions.
/// - [`apply`](Self::apply) and [`cycle`](Self::cycle) accept any input without a panic. A bad
///   object affects only the objects that refer to it.
/// - A decided reservation stays charged until it is confirmed, refused, or its workload is
///   deleted.
///
/// # Cost
///
/// There is no snapshot: a cycle simulates on the live tree and reverts each simulation. Its cost:
///
/// - For each head, one search over its flavors. For each resource the search takes as many steps
///   as the tree is deep. Waiting workloads add only the logarithm of their number; ClusterQueues
///   without a head cost nothing.
/// - For each resource that needs preemption, a visit of the tree's nodes that may borrow. Each
///   victim adds the logarithm of the candidates and the depth of the tree. The search reads other
///   candidates only if they do not use the resource, or if the shares protect workloads of their
///   size.
/// - For each victim, one decision.
/// - For a tree with victims, one copy of the tree if other entries of it follow. For a tree with
///   an overtaken preemptor, a visit of its ClusterQueues.
/// - With fair sharing, for each entry the shares of the nodes on its path, compared with their
///   siblings.
///
/// A due trigger returns parked workloads by class and LocalQueue, not one by one. A workload event
/// costs the logarithm of the workloads. A ClusterQueue or Cohort event costs as much as its tree
/// has nodes.
#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Engine {
    settings: EngineSettings,
    /// Set if the caller performs preemptions.
    preemption: Option<PreemptionSettings>,
    /// Set with admission fair sharing.
    afs: Option<UsageTracker>,
    #[cfg_attr(feature = "record", serde(rename = "world"))]
    referenced: ReferencedObjects,
    pairs: FlavorResources,
    tree: QuotaTree,
    #[cfg_attr(feature = "record", serde(rename = "cqs"))]
    cluster_queues: BTreeMap<NodeId, ClusterQueueEntry>,
    #[cfg_attr(feature = "record", serde(rename = "cq_ids"))]
    cluster_queue_ids: BTreeMap<Name, NodeId>,
    #[cfg_attr(feature = "record", serde(skip))]
    ready: ReadyQueues,
    #[cfg_attr(feature = "record", serde(rename = "lqs"))]
    local_queues: LocalQueues,
    workloads: Workloads,
    classes: EquivalenceClasses,
    /// Reservations whose ClusterQueue does not exist, by its name.
    #[cfg_attr(feature = "record", serde(rename = "orphans"))]
    unattached_reservations: BTreeMap<Name, BTreeSet<WorkloadId>>,
    /// Workload slices by the workload that they replace.
    #[cfg_attr(feature = "record", serde(default, with = "crate::serde_forms::pairs"))]
    replacements: BTreeMap<WorkloadKey, BTreeSet<WorkloadId>>,
    /// Variants by the uid of their common workload.
    #[cfg_attr(feature = "record", serde(default))]
    variants: BTreeMap<Name, BTreeSet<WorkloadId>>,
    triggers: RequeueTriggers,
    /// Ends of back-offs.
    wakeups: BTreeSet<(Time, WorkloadId)>,
    changed: ChangedQueues,
    cycles: u64,
    /// Workloads with quota whose pods are not ready.
    unready: usize,
    /// When `blockAdmission` stops waiting for a workload's pods. Workloads without such a time are
    /// missing here.
    #[cfg_attr(feature = "record", serde(default, with = "crate::serde_forms::pairs"))]
    #[cfg_attr(feature = "record", serde(rename = "patience"))]
    pods_ready_deadlines: BTreeMap<WorkloadId, Time>,
    /// Topology trees and their usage.
    #[cfg_attr(feature = "record", serde(default))]
    forest: Forest,
    /// Workloads that need a topology assignment after their reservation.
    #[cfg_attr(feature = "record", serde(default))]
    second_pass: SecondPass,
}

impl Engine {
    /// An engine without objects.
    pub fn new(settings: EngineSettings) -> Self {
        Self {
            forest: Forest::new(settings.topology.is_some_and(|gates| gates.overlapping_flavors)),
            second_pass: SecondPass::default(),
            settings,
            preemption: None,
            afs: None,
            referenced: ReferencedObjects::default(),
            pairs: FlavorResources::default(),
            tree: QuotaTree::default(),
            cluster_queues: BTreeMap::new(),
            cluster_queue_ids: BTreeMap::new(),
            ready: ReadyQueues::default(),
            local_queues: LocalQueues::default(),
            workloads: Workloads::default(),
            classes: EquivalenceClasses::default(),
            unattached_reservations: BTreeMap::new(),
            replacements: BTreeMap::new(),
            variants: BTreeMap::new(),
            triggers: RequeueTriggers::default(),
            wakeups: BTreeSet::new(),
            changed: ChangedQueues::default(),
            cycles: 0,
            unready: 0,
            pods_ready_deadlines: BTreeMap::new(),
        }
    }

    /// An engine whose caller performs [`Decision::Preempt`](crate::Decision::Preempt): it evicts
    /// the victims and reports their eviction. Without such a caller a preemptor would wait
    /// forever.
    pub fn with_preemption(settings: EngineSettings, preemption: PreemptionSettings) -> Self {
        Self { preemption: Some(preemption), ..Self::new(settings) }
    }

    /// Records a fact. Decides nothing and never fails. An event without news changes nothing.
    pub fn apply(&mut self, event: Event, now: Time) {
        let queues = event.is_of_queues();
        match event {
            Event::Namespace { name, labels } => self.put_namespace(&name, Some(labels), now),
            Event::NamespaceDeleted { name } => self.put_namespace(&name, None, now),
            Event::ResourceFlavor(flavor) => {
                self.put_flavor(&flavor.name.clone(), Some(flavor), now)
            }
            Event::ResourceFlavorDeleted { name } => self.put_flavor(&name, None, now),
            Event::AdmissionCheck(check) => self.put_check(&check.name.clone(), Some(check), now),
            Event::AdmissionCheckDeleted { name } => self.put_check(&name, None, now),
            Event::Topology { name, levels } => self.put_topology(&name, Some(levels), now),
            Event::TopologyDeleted { name } => self.put_topology(&name, None, now),
            Event::CapacityLeaf(leaf) => self.put_leaf(*leaf, now),
            Event::CapacityLeafDeleted { name } => self.delete_leaf(&name, now),
            Event::NonTasPod(pod) => self.put_non_tas_pod(&pod, now),
            Event::NonTasPodDeleted { key } => self.delete_non_tas_pod(&key, now),
            Event::ClusterQueue(queue) => self.put_cluster_queue(queue, now),
            Event::ClusterQueueDeleted { name } => self.delete_cluster_queue(&name, now),
            Event::Cohort(cohort) => self.put_cohort(&cohort, now),
            Event::CohortDeleted { name } => self.delete_cohort(&name, now),
            Event::LocalQueue(queue) => self.put_local_queue(queue.key.clone(), Some(queue), now),
            Event::LocalQueueDeleted { key } => self.put_local_queue(key, None, now),
            Event::Workload(workload) => self.put_workload(*workload, now),
            Event::WorkloadDeleted { key } => self.delete_workload(&key, now),
            Event::AdmissionRefused { key, cycle, reason } => self.refuse(&key, cycle, reason, now),
            Event::PreemptionFailed { key } => self.preemption_failed(&key),
            Event::PastUsage { queue, consumed } => self.restore_usage(&queue, &consumed, now),
            Event::Retry { key } => self.retry(&key, now),
            Event::RetryAll { cluster_queue } => self.retry_all(&cluster_queue, now),
        }
        if queues {
            self.queues_changed(now);
        }
    }

    /// Whether a cycle would process a workload.
    pub fn has_heads(&self, now: Time) -> bool {
        !self.ready.is_empty()
            || self.second_pass.is_due(now)
            || self.next_wakeup(now).is_some_and(|at| at <= now)
    }

    /// When something becomes due without an event: collected triggers or the end of a back-off.
    /// May be past.
    pub fn next_wakeup(&self, _now: Time) -> Option<Time> {
        let triggers = self.triggers.next();
        let wakeups = self.wakeups.first().map(|(at, _)| *at);
        let samples = self.afs.as_ref().and_then(|tracker| tracker.next);
        let pods_ready_deadlines = self.pods_ready_deadlines.values().min().copied();
        let second_pass = self.second_pass.next();
        triggers
            .into_iter()
            .chain(second_pass)
            .chain(wakeups)
            .chain(samples)
            .chain(pods_ready_deadlines)
            .min()
    }

    /// Returns workloads to their queues if a trigger or a back-off is due. [`cycle`](Self::cycle)
    /// does this too.
    pub fn flush_inadmissible(&mut self, now: Time) {
        self.flush_triggers(now);
        self.flush_wakeups(now);
        self.flush_pods_ready_deadlines(now);
        self.flush_samples(now);
    }

    /// The changed queues since the last call.
    pub fn changed(&mut self) -> ChangedQueues {
        let mut changed = std::mem::take(&mut self.changed);
        changed.cohorts.extend(self.changed_cohorts(&changed.cluster_queues));
        changed
    }

    fn mark(&mut self, cq: NodeId) {
        if let Some(name) = self.tree.name(cq) {
            self.changed.cluster_queues.insert(name.clone());
        }
    }

    /// Retries parked workloads of the tree around `id`.
    fn trigger(&mut self, id: NodeId, now: Time) {
        let root = self.tree.root(id).unwrap_or(id);
        self.triggers.notify(root, now, self.settings.requeue_window);
    }
}

#[cfg(feature = "record")]
impl Engine {
    /// Restores the derived state that a recording leaves out.
    pub(crate) fn restore_derived_state(&mut self) {
        self.workloads.restore_derived_state(&self.classes.all_by_id());
        self.local_queues.restore_derived_state();
        self.tree.restore_derived_state();
        self.forest.restore_derived_state();
        for reservation in self
            .cluster_queues
            .values()
            .flat_map(|cq| &cq.workloads)
            .filter_map(|id| self.workloads.get(*id)?.reservation.as_ref())
        {
            reservation.places.iter().for_each(|place| self.forest.charge(place, 1));
        }
        for cq in self.cluster_queues.values_mut() {
            cq.inactive = self.referenced.inactive(&cq.object, self.tree.is_cyclic(cq.node));
            for (id, wl) in
                cq.workloads.iter().filter_map(|id| Some((*id, self.workloads.get(*id)?)))
            {
                cq.preemption_order.insert(id, wl);
            }
            self.ready.note(cq);
        }
    }
}
