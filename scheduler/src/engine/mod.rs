//! The engine: events in, decisions out.

mod accounts;
mod capacity;
mod cohorts;
mod cycle;
mod enqueue;
mod explain;
mod fair_admission;
mod nominate;
mod objects;
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

use self::ready::Ready;
use self::second_pass::SecondPass;
use crate::afs::Ledger;
use crate::cluster_queue::Cq;
use crate::flavor_resource::Pairs;
use crate::queue::equivalence::Classes;
use crate::queue::triggers::Triggers;
use crate::referenced::World;
use crate::topology::Forest;
use crate::tree::{NodeId, Tree};
use crate::workloads::{LocalQueues, WlId, Workloads};
use crate::{Changed, Event, Name, Preemption, Settings, Time, WorkloadKey};

/// The quota engine of one cluster.
///
/// # Guarantees
///
/// - The same events and times give the same decisions.
/// - [`apply`](Self::apply) and [`cycle`](Self::cycle) take any input without panicking, and a bad object affects
///   only what refers to it.
/// - A reservation that was decided stays charged until it is confirmed, refused, or the workload is gone.
///
/// # Cost
///
/// There is no snapshot: a cycle simulates on the live tree and takes back what it tried. It costs
///
/// - for each head a search over its flavors: by resource, as many steps as the tree is deep. How many workloads wait
///   behind it does not matter but for the logarithm; ClusterQueues without a head cost nothing;
/// - for each resource of a head that lacks quota and may preempt a look at the nodes of its tree that may be borrowing,
///   and for each victim the logarithm of their number and as many steps as the tree is deep. Workloads that are not
///   needed are not looked at, unless they do not use what is wanted or are of a size that the shares forbid to take;
/// - for each victim one decision;
/// - in a tree in which somebody is preempted one copy of the tree, if other entries of it follow; in one in which a
///   preemptor is overtaken one look at its ClusterQueues;
/// - with fair sharing, for each entry the shares of the nodes on its way up, compared to those beside them.
///
/// When a trigger is due, parked workloads come back by class and LocalQueue, not one by one. An event about a workload
/// costs the logarithm of their number; one about a ClusterQueue or a Cohort as much as there are nodes in its tree.
#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Engine {
    settings: Settings,
    /// Set if the caller performs preemptions.
    preemption: Option<Preemption>,
    /// Past use of LocalQueues, if it counts.
    afs: Option<Ledger>,
    world: World,
    pairs: Pairs,
    tree: Tree,
    cqs: BTreeMap<NodeId, Cq>,
    cq_ids: BTreeMap<Name, NodeId>,
    #[cfg_attr(feature = "record", serde(skip))]
    ready: Ready,
    lqs: LocalQueues,
    workloads: Workloads,
    classes: Classes,
    /// Reservations of ClusterQueues that are not there.
    orphans: BTreeMap<Name, BTreeSet<WlId>>,
    /// Those that come in the place of a workload, by it.
    #[cfg_attr(feature = "record", serde(default, with = "crate::serde_forms::pairs"))]
    replacements: BTreeMap<WorkloadKey, BTreeSet<WlId>>,
    /// The variants of each workload that has some, by its uid.
    #[cfg_attr(feature = "record", serde(default))]
    variants: BTreeMap<Name, BTreeSet<WlId>>,
    triggers: Triggers,
    /// Ends of back-offs.
    wakeups: BTreeSet<(Time, WlId)>,
    changed: Changed,
    cycles: u64,
    /// Workloads that hold quota and whose pods are not ready.
    unready: usize,
    /// Until when those of them are waited for that are not waited for without end.
    #[cfg_attr(feature = "record", serde(default, with = "crate::serde_forms::pairs"))]
    patience: BTreeMap<WlId, Time>,
    /// Where pods may run.
    #[cfg_attr(feature = "record", serde(default))]
    forest: Forest,
    /// Those whose pods are placed after their reservation, or again.
    #[cfg_attr(feature = "record", serde(default))]
    second_pass: SecondPass,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            forest: Forest::new(settings.topology.is_some_and(|gates| gates.overlapping_flavors)),
            second_pass: SecondPass::default(),
            settings,
            preemption: None,
            afs: None,
            world: World::default(),
            pairs: Pairs::default(),
            tree: Tree::default(),
            cqs: BTreeMap::new(),
            cq_ids: BTreeMap::new(),
            ready: Ready::default(),
            lqs: LocalQueues::default(),
            workloads: Workloads::default(),
            classes: Classes::default(),
            orphans: BTreeMap::new(),
            replacements: BTreeMap::new(),
            variants: BTreeMap::new(),
            triggers: Triggers::default(),
            wakeups: BTreeSet::new(),
            changed: Changed::default(),
            cycles: 0,
            unready: 0,
            patience: BTreeMap::new(),
        }
    }

    /// An engine whose caller performs [`Decision::Preempt`](crate::Decision::Preempt): evicts the victims, and tells
    /// the engine when they have given up their quota. Without such a caller a preemptor would wait for ever.
    pub fn preempting(settings: Settings, preemption: Preemption) -> Self {
        Self { preemption: Some(preemption), ..Self::new(settings) }
    }

    /// Takes notice of a fact. Decides nothing; never fails, whatever the event says. An event that says what is
    /// known already changes nothing.
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
            Event::OutsidePod(pod) => self.put_outside(&pod, now),
            Event::OutsidePodDeleted { key } => self.delete_outside(&key, now),
            Event::ClusterQueue(queue) => self.put_cluster_queue(queue, now),
            Event::ClusterQueueDeleted { name } => self.delete_cluster_queue(&name, now),
            Event::Cohort(cohort) => self.put_cohort(&cohort, now),
            Event::CohortDeleted { name } => self.delete_cohort(&name, now),
            Event::LocalQueue(queue) => self.put_local_queue(queue.key.clone(), Some(queue), now),
            Event::LocalQueueDeleted { key } => self.put_local_queue(key, None, now),
            Event::Workload(workload) => self.put_workload(*workload, now),
            Event::WorkloadDeleted { key } => self.delete_workload(&key, now),
            Event::AdmissionRefused { key, uid, reason } => self.refuse(&key, &uid, reason, now),
            Event::PreemptionFailed { key } => self.preemption_failed(&key),
            Event::PastUse { queue, consumed } => self.restore_use(&queue, &consumed, now),
            Event::Retry { key } => self.retry(&key, now),
            Event::RetryAll { cluster_queue } => self.retry_all(&cluster_queue, now),
        }
        if queues {
            self.queues_changed(now);
        }
    }

    /// Whether a cycle would have a workload to look at.
    pub fn has_heads(&self, now: Time) -> bool {
        !self.ready.is_empty()
            || self.second_pass.is_due(now)
            || self.next_wakeup(now).is_some_and(|at| at <= now)
    }

    /// When something becomes due without an event: gathered triggers, or the end of a back-off. May be past.
    pub fn next_wakeup(&self, _now: Time) -> Option<Time> {
        let triggers = self.triggers.next();
        let wakeups = self.wakeups.first().map(|(at, _)| *at);
        let samples = self.afs.as_ref().and_then(|ledger| ledger.next);
        let patience = self.patience.values().min().copied();
        let second_pass = self.second_pass.next();
        triggers.into_iter().chain(second_pass).chain(wakeups).chain(samples).chain(patience).min()
    }

    /// Moves workloads back into their queues whose triggers are due or whose back-off has ended. `cycle` does it
    /// too.
    pub fn flush_inadmissible(&mut self, now: Time) {
        self.flush_triggers(now);
        self.flush_wakeups(now);
        self.flush_patience(now);
        self.flush_samples(now);
    }

    /// The queues that look different since the last call.
    pub fn changed(&mut self) -> Changed {
        let mut changed = std::mem::take(&mut self.changed);
        changed.cohorts.extend(self.changed_cohorts(&changed.cluster_queues));
        changed
    }

    fn mark(&mut self, cq: NodeId) {
        if let Some(name) = self.tree.name(cq) {
            self.changed.cluster_queues.insert(name.clone());
        }
    }

    /// Parked workloads of the tree around `id` may fit now.
    fn trigger(&mut self, id: NodeId, now: Time) {
        let root = self.tree.root(id).unwrap_or(id);
        self.triggers.notify(root, now, self.settings.requeue_window);
    }
}

#[cfg(feature = "record")]
impl Engine {
    /// Completes what was read from a recording: what follows from the rest is not in it.
    pub(crate) fn complete(&mut self) {
        self.workloads.complete(&self.classes.whole());
        self.lqs.complete();
        self.tree.complete();
        self.forest.complete();
        for hold in self
            .cqs
            .values()
            .flat_map(|cq| &cq.workloads)
            .filter_map(|id| self.workloads.get(*id)?.hold.as_ref())
        {
            hold.places.iter().for_each(|place| self.forest.charge(place, 1));
        }
        for cq in self.cqs.values_mut() {
            cq.inactive = self.world.inactive(&cq.object, self.tree.is_cyclic(cq.node));
            for (id, wl) in
                cq.workloads.iter().filter_map(|id| Some((*id, self.workloads.get(*id)?)))
            {
                cq.holders.insert(id, wl);
            }
            self.ready.note(cq);
        }
    }
}
