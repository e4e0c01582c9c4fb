//! What every task of the controller holds.

use std::{sync::Arc, time::Duration};

use kube::Client;
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_config::Configuration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::{CountedEviction, Metrics},
    stores::Stores,
    workload::{Edit, Evicted, ReasonDetail, is_admissible, ready_for},
};
use switchyard_platform::{
    clock::{Clock, since},
    components::Components,
    events::Events,
    lease::{EpochFloor, Leadership},
};

/// How this process takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// One cluster on its own.
    #[default]
    Single,
    /// Global quota; jobs of dispatching ClusterQueues run elsewhere.
    Hub,
    /// Local quota of a worker cluster; as Single, with jobs that the agent creates.
    Worker,
}

/// Shared by the tasks of one controller. Cheap to clone as an `Arc`.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// One watched store a kind.
    pub stores: Arc<Stores>,
    /// Publishes events.
    pub events: Events,
    /// Kueue's configuration.
    pub config: Arc<Configuration>,
    /// Whether we may write. Look again before every write.
    pub leadership: watch::Receiver<Leadership>,
    /// Epochs that others remember.
    pub epoch_floor: EpochFloor,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// How this process takes part.
    pub role: Role,
    /// Our own namespace.
    pub namespace: String,
    /// Which of our parts run.
    pub components: Components,
}

impl Context {
    /// On a hub, whether a worker cluster is connected, or was so a short while ago: it is not waited for longer than
    /// `multiKueue.workerLostTimeout`.
    pub(crate) fn is_awaited(&self, cluster: &str) -> bool {
        let patience = self.config.multi_kueue.worker_lost_timeout.std();
        let cluster = self.stores.multi_kueue_clusters.get("", cluster);
        let status = cluster.as_ref().and_then(|cluster| cluster.status.as_ref());
        let active =
            status.and_then(|status| conditions::find(&status.conditions, conditions::ACTIVE));
        active.is_some_and(|active| {
            let lost_for = since(self.clock.now(), active.last_transition_time.0);
            active.status == conditions::TRUE || lost_for < patience
        })
    }

    /// Whether we lead at this moment. Every writer asks before every write.
    #[must_use]
    pub fn leading(&self) -> bool {
        self.leadership.borrow().leading
    }

    /// Whether a workload may be queued: it lacks only quota, and no gate holds it back where gates do.
    #[must_use]
    pub fn is_admissible(&self, workload: &Workload) -> bool {
        is_admissible(workload, self.config.enabled("AdmissionGatedBy"))
    }

    /// Begins a change of a workload's status, in the words of the configuration.
    #[must_use]
    pub fn edit(&self, workload: &Workload) -> Edit {
        Edit::new(workload, ReasonDetail::of(&self.config), self.clock.now())
    }

    /// The same for what is said of its quota. With that is first said that its pods are not ready, which costs no write.
    #[must_use]
    pub fn edit_of_quota(&self, workload: &Workload) -> Edit {
        let mut edit = self.edit(workload);
        if self.config.waits_for_pods_ready() {
            edit.await_pods();
        }
        edit
    }

    /// Counts an admission: how long since it queued, and since its quota was reserved (if it had checks).
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

    /// Counts and tells an eviction that was written. `before` and `after`: the workload before and after it.
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

    /// Calls `act` each time that we come to lead anew, until `shutdown`. Returns early without leader election, where
    /// that never happens.
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
