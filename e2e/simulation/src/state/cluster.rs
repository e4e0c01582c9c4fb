//! State of a worker cluster: its API server's store, its faults, its agent, and what the laws remember of it.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_dispatcher::{LossPolicy, Uid};
use switchyard_ledger::{
    Action, AllowedNamespaces, Ledger, Object, ObjectKind, RemoteJob, RemoteWorkload, Rules,
    SessionProtocol,
};

use super::{Event, LinkId};
use crate::names::HUB_ID;
use crate::plan::ClusterPlan;
use crate::time::Ms;

/// An object in the cluster's store.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) object: Object,
    /// Has none of the hub's marks.
    pub(crate) foreign: bool,
    /// In foreground deletion: deleted after its pods.
    pub(crate) foreground: bool,
    /// Counts the starts of its pods.
    pub(crate) run: u64,
    /// Its pods are starting or stopping.
    pub(crate) pods_changing: bool,
    pub(crate) ended: Option<Ms>,
    /// For a Workload: the only flavor that it may use.
    pub(crate) pin: Option<String>,
}

/// The pods of a job. They outlive the job for a moment, except in foreground deletion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pods {
    pub(crate) workload: usize,
    pub(crate) attempt: u64,
    /// Since when they are ready.
    pub(crate) ready: Option<Ms>,
}

pub(crate) struct Cluster {
    pub(crate) capacity: u64,
    /// By uid of their job.
    pub(crate) pods: BTreeMap<String, Pods>,
    /// By the number of the hub's workload of the same name.
    pub(crate) objects: BTreeMap<(ObjectKind, usize), Stored>,
    pub(crate) version: u64,
    pub(crate) uids: u64,
    pub(crate) agent: Agent,
    /// Requests of the agent on their way to the API server.
    pub(crate) requests: BTreeMap<u64, Action>,
    pub(crate) next_request: u64,
    /// Running faults.
    pub(crate) slow: u32,
    pub(crate) outage: u32,
    pub(crate) gap: u32,
    pub(crate) rejects_creations: u32,
    /// Faults during which pods do not become ready.
    pub(crate) unready: u32,
    pub(crate) expired: u32,
    /// The present `onDisconnect` policy, and all earlier ones.
    pub(crate) loss: LossPolicy,
    pub(crate) losses: BTreeSet<LossPolicy>,
    /// The last change of the policy.
    pub(crate) changed: Ms,
    /// Workloads whose policy changed before a hub restart, when the agent may not have received
    /// the change.
    pub(crate) unheard: BTreeSet<usize>,
    /// Drains by operators.
    pub(crate) drained: u32,
    /// Declared lost by an operator, and not back yet.
    pub(crate) declared: bool,
    /// Rightly or not, and perhaps back since.
    pub(crate) was_declared_lost: bool,
    /// The agent's state that survives its process: the highest epoch and the end of the lease.
    pub(crate) memory: (u64, Option<Ms>),
    /// When a leading hub last received a message of the cluster.
    pub(crate) heard: Ms,
    /// Until then the agent could not act on its cluster.
    pub(crate) unable_until: Ms,
    /// The hub process that received the agent's report "not able", and has not stored it.
    pub(crate) unstored_unable: Option<(usize, u32)>,
    /// The last report that a hub received and could store was "not able".
    pub(crate) reported_unable: bool,
    /// Workloads that users evicted or deleted here.
    pub(crate) evicted: BTreeSet<usize>,
    /// The highest attempts that a hub removed since the store was last lost, by uid.
    pub(crate) removed: BTreeMap<Uid, u64>,
    /// The same, before the store was lost.
    pub(crate) removed_before: BTreeMap<Uid, u64>,
    /// Attempts of workloads that were rightly given up here.
    pub(crate) excused_attempts: BTreeSet<(usize, u64)>,
    /// The excused attempts that an adopted duplicate has replaced.
    pub(crate) replaced_attempts: BTreeSet<(usize, u64)>,
    /// When the preemption gate of each workload was last opened.
    pub(crate) gates_opened: BTreeMap<usize, Ms>,
    /// When the cluster last became healthy.
    pub(crate) well_since: Option<Ms>,
    /// Forgiven attempts that ended while the cluster was given up and another attempt counted.
    pub(crate) dropped: BTreeSet<(usize, u64)>,
    /// The controllers are about to reconcile.
    pub(crate) reconcile_scheduled: bool,
}

impl Cluster {
    pub(crate) fn new(plan: &ClusterPlan) -> Self {
        Self {
            capacity: plan.capacity,
            pods: BTreeMap::new(),
            objects: BTreeMap::new(),
            version: 0,
            uids: 0,
            agent: Agent::default(),
            requests: BTreeMap::new(),
            next_request: 0,
            slow: 0,
            outage: 0,
            well_since: None,
            dropped: BTreeSet::new(),
            gap: 0,
            rejects_creations: 0,
            unready: 0,
            expired: 0,
            loss: plan.loss,
            losses: BTreeSet::from([plan.loss]),
            changed: 0,
            unheard: BTreeSet::new(),
            drained: 0,
            declared: false,
            was_declared_lost: false,
            memory: (0, None),
            heard: 0,
            unable_until: 0,
            unstored_unable: None,
            reported_unable: false,
            evicted: BTreeSet::new(),
            removed: BTreeMap::new(),
            removed_before: BTreeMap::new(),
            excused_attempts: BTreeSet::new(),
            replaced_attempts: BTreeSet::new(),
            gates_opened: BTreeMap::new(),
            reconcile_scheduled: false,
        }
    }

    /// The attempts of a workload with pods here, with or without their jobs.
    pub(crate) fn running(&self, index: usize) -> impl Iterator<Item = u64> {
        self.pods.values().filter(move |pods| pods.workload == index).map(|pods| pods.attempt)
    }

    /// Whether a workload has pods here.
    pub(crate) fn has_pods(&self, index: usize) -> bool {
        self.running(index).next().is_some()
    }

    pub(crate) fn job(&mut self, index: usize) -> Option<&mut RemoteJob> {
        match self.objects.get_mut(&(ObjectKind::Job, index)) {
            Some(Stored { object: Object::Job(job), foreign: false, .. }) => Some(job),
            _ => None,
        }
    }

    pub(crate) fn workload(&mut self, index: usize) -> Option<&mut RemoteWorkload> {
        match self.objects.get_mut(&(ObjectKind::Workload, index)) {
            Some(Stored { object: Object::Workload(workload), foreign: false, .. }) => {
                Some(workload)
            }
            _ => None,
        }
    }

    pub(crate) fn uids(&self, kind: ObjectKind) -> BTreeSet<String> {
        let ours = self.objects.iter().filter(|((of, _), stored)| *of == kind && !stored.foreign);
        ours.map(|(_, stored)| stored.object.meta().target.uid.clone()).collect()
    }
}

pub(crate) struct Agent {
    pub(crate) up: bool,
    pub(crate) boot: u32,
    /// Events that wait while the process is frozen.
    pub(crate) frozen: Option<Vec<Event>>,
    pub(crate) started: Ms,
    pub(crate) ledger: Ledger,
    pub(crate) protocol: SessionProtocol,
    pub(crate) link: Option<LinkId>,
    /// Requests without an answer.
    pub(crate) asked: BTreeMap<u64, Action>,
    /// Kinds with a running watch, and the time of the watch's last event.
    pub(crate) listed: BTreeSet<ObjectKind>,
    pub(crate) watched: BTreeMap<ObjectKind, Ms>,
    pub(crate) tick: Option<Ms>,
    /// Jobs that it reported without a ready pod: uid of the hub's Workload, and attempt.
    pub(crate) without_ready_pod: BTreeSet<(String, u64)>,
    /// The highest epoch since the process started.
    pub(crate) epoch: u64,
    pub(crate) failures: u32,
}

impl Agent {
    /// For the trace.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            up: false,
            boot: 0,
            frozen: None,
            started: 0,
            ledger: Ledger::new(rules()),
            protocol: SessionProtocol::default(),
            link: None,
            asked: BTreeMap::new(),
            listed: BTreeSet::new(),
            watched: BTreeMap::new(),
            tick: None,
            without_ready_pod: BTreeSet::new(),
            epoch: 0,
            failures: 0,
        }
    }
}

fn rules() -> Rules {
    Rules { hub_id: HUB_ID.to_owned(), namespaces: AllowedNamespaces::All }
}

/// For the trace.
pub(crate) fn short(object: &Object) -> String {
    let meta = object.meta();
    let facts = match object {
        Object::Workload(it) => {
            let is = |condition: &Option<switchyard_ledger::Condition>| {
                condition.as_ref().is_some_and(|condition| condition.is_true)
            };
            format!(
                "active={} admitted={} evicted={}",
                it.active,
                is(&it.admitted),
                is(&it.evicted)
            )
        }
        Object::Job(it) => {
            format!("suspended={} active={} ended={}", it.suspended, it.active, it.end.is_some())
        }
    };
    let kind = match object.kind() {
        ObjectKind::Workload => "Workload",
        ObjectKind::Job => "Job",
    };
    let held = if meta.finalizer_index.is_some() { " held" } else { "" };
    let deleting = if meta.deleting { " deleting" } else { "" };
    format!(
        "{kind} {} of {} attempt {}{held}{deleting}: {facts}",
        meta.target.uid, meta.workload_uid, meta.attempt
    )
}
