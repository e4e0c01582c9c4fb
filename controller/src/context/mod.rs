//! The state that all tasks of one controller share.

mod write;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kube::Client;
use parking_lot::Mutex;
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_config::Configuration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::{CountedEviction, Metrics},
    role::Role,
    stores::{
        Stores,
        dispatching::{is_dispatching, multi_kueue_check},
    },
    workload::{Edit, Evicted, ReasonDetail, is_admissible, ready_for},
};
use switchyard_platform::{
    clock::{Clock, since},
    components::Components,
    events::Events,
    lease::{EpochFloor, Leadership},
    write::WriteGate,
};

pub(crate) use write::delete_workload;
pub use write::{patch_metadata, patch_status};

/// Shared by all tasks. Cheap to clone as an `Arc`.
pub struct Context {
    pub client: Client,
    pub stores: Arc<Stores>,
    pub events: Events,
    pub config: Arc<Configuration>,
    /// Whether this process may write. Check it before each write.
    pub leadership: watch::Receiver<Leadership>,
    /// Epochs that other components remember.
    pub epoch_floor: EpochFloor,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    pub role: Role,
    /// Switchyard's own namespace.
    pub namespace: String,
    /// Parts that must run for readiness.
    pub components: Components,
    pub term_start: TermStart,
}

/// The first call of `Context::led_for` in the present term: the term and the time.
#[derive(Debug, Default)]
pub struct TermStart(Mutex<Option<(u64, Instant)>>);

impl Context {
    /// Whether this process is a hub and the AdmissionCheck with this name dispatches.
    pub(crate) fn is_dispatching(&self, check: &str) -> bool {
        self.role == Role::Hub && is_dispatching(&self.stores, check)
    }

    /// On a hub, the name of the check that dispatches the workloads of a LocalQueue.
    pub(crate) fn dispatching_check(&self, namespace: &str, queue: &str) -> Option<String> {
        if self.role != Role::Hub {
            return None;
        }
        let local = self.stores.local_queues.get(namespace, queue)?;
        let queue = self.stores.cluster_queues.get("", local.spec.cluster_queue.as_deref()?)?;
        multi_kueue_check(&self.stores, &queue)?.metadata.name.clone()
    }

    /// On a hub, whether a worker cluster is connected, or was within
    /// `multiKueue.workerLostTimeout`.
    pub(crate) fn is_awaited(&self, cluster: &str) -> bool {
        let patience = self.config.multi_kueue.worker_lost_timeout.std();
        self.connection(cluster)
            .is_some_and(|(is_active, lost_for)| is_active || lost_for < patience)
    }

    /// Whether a worker cluster's condition `Active` is True, and for how long it has had its
    /// value. None without the condition.
    pub(crate) fn connection(&self, cluster: &str) -> Option<(bool, Duration)> {
        let cluster = self.stores.multi_kueue_clusters.get("", cluster)?;
        let status = cluster.status.as_ref()?;
        let active = conditions::find(&status.conditions, conditions::ACTIVE)?;
        let lasted = since(self.clock.now(), active.last_transition_time.0);
        Some((active.status == conditions::TRUE, lasted))
    }

    /// Whether this process leads now. Every writer checks before each write.
    #[must_use]
    pub fn leading(&self) -> bool {
        self.leadership.borrow().leading
    }

    /// For how long this process has led, counted from the first call in its term.
    pub(crate) fn led_for(&self) -> Duration {
        let term = self.leadership.borrow().begun;
        let mut start = self.term_start.0.lock();
        let known = start.filter(|(known, _)| *known == term);
        let (_, at) = *start.insert(known.unwrap_or_else(|| (term, Instant::now())));
        at.elapsed()
    }

    /// Whether a workload may be queued: it lacks nothing but quota, and no gate holds it back.
    #[must_use]
    pub fn is_admissible(&self, workload: &Workload) -> bool {
        is_admissible(workload, self.config.enabled("AdmissionGatedBy"))
    }

    /// Starts a change of a workload's status with the configured detail of reasons.
    #[must_use]
    pub fn edit(&self, workload: &Workload) -> Edit {
        Edit::new(workload, ReasonDetail::of(&self.config), self.clock.now())
    }

    /// As [`Self::edit`], for a change of quota. It also sets `PodsReady` to False at first, which
    /// then costs no write of its own.
    #[must_use]
    pub fn edit_of_quota(&self, workload: &Workload) -> Edit {
        let mut edit = self.edit(workload);
        if self.config.waits_for_pods_ready() {
            edit.await_pods();
        }
        edit
    }

    /// Counts an admission. `waited`: time since it was queued. `checks`: time since the
    /// reservation, if it has checks.
    pub fn count_admitted(
        &self,
        admitted: &Workload,
        cluster_queue: &str,
        waited: Duration,
        checks: Option<Duration>,
    ) {
        let cohorts = self.stores.cohorts_above(cluster_queue);
        self.metrics.admitted(admitted, cluster_queue, &cohorts, waited, checks);
    }

    /// Counts a written eviction and publishes its event. `before` and `after`: the workload around
    /// the write.
    pub(crate) fn announce_eviction(
        &self,
        before: &Workload,
        after: &Workload,
        cluster_queue: &str,
        evicted: &Evicted,
    ) {
        let Evicted { eviction, event, first } = evicted;
        let ready = ready_for(before, self.clock.now());
        let counted = CountedEviction {
            reason: eviction.reason,
            cause: &eviction.cause,
            first: *first,
            ready,
        };
        self.metrics.evicted(after, cluster_queue, &counted);
        self.events.normal(after, event, eviction.message.clone());
    }

    /// Calls `act` each time this process becomes leader, until `shutdown`. Without leader election
    /// it returns at once.
    pub(crate) async fn each_term(&self, shutdown: &CancellationToken, act: impl Fn()) {
        let mut leadership = self.leadership.clone();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = leadership.changed() => if changed.is_err() { return },
            }
            if leadership.borrow_and_update().leading {
                act();
            }
        }
    }
}

impl WriteGate for Context {
    fn is_leading(&self) -> bool {
        self.leading()
    }

    fn count_write(&self, what: &'static str, succeeded: bool) {
        self.metrics.wrote(what, succeeded);
    }
}
