//! A cluster, and what its loss means.

use std::collections::BTreeMap;

use super::capacity::{Capacity, Place, Queue};
use super::looks::Look;
use super::{Name, Time};

/// A session that lasted this long after a rule was sent in it has brought it to the agent: the hub's pings follow it in
/// order, and an unanswered one ends the session sooner. Milliseconds.
const HEARD_AFTER: i64 = 30_000;

/// Whether what was said at `at` in a session that began at `since`, and stands, has surely been heard.
pub(super) fn has_heard_since(since: Time, at: Time, now: Time) -> bool {
    now >= since.max(at) + HEARD_AFTER
}

/// What the loss of a cluster means for its jobs. Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Loss {
    /// They stay where they are until it is back or declared lost.
    #[default]
    Hold,
    /// Its agent stops them this long after its lease has ended; they go elsewhere once that must have happened.
    Fence {
        /// After the end of the lease.
        after: i64,
    },
    /// They go elsewhere after this long, and may run twice until it is back.
    Duplicate {
        /// After the connection was lost.
        after: i64,
    },
    /// They go elsewhere after `multiKueue.workerLostTimeout`, as Kueue has it.
    GiveUp,
}

impl Loss {
    /// After the end of the lease, its agent stops the job.
    pub fn fence(self) -> Option<i64> {
        match self {
            Self::Fence { after } => Some(after),
            Self::Hold | Self::Duplicate { .. } | Self::GiveUp => None,
        }
    }
}

/// What people want of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterRules {
    /// What its loss means.
    pub loss: Loss,
    /// Nobody there can stop a job that the hub cannot reach: it has no agent.
    pub unfenced: bool,
    /// Somebody has said that it will not come back from the loss that it is in: its jobs go elsewhere at once.
    pub declared_lost: bool,
    /// Nothing new is sent to it.
    pub cordoned: bool,
    /// What runs there is taken away as well.
    pub draining: bool,
    /// Changes when somebody releases the circuit breaker.
    pub release: Option<Name>,
    /// The labels by which rules about clusters select.
    pub labels: BTreeMap<String, String>,
    /// Of several that do, the one that costs least is taken.
    pub cost: i32,
}

impl ClusterRules {
    /// Whether workloads may be sent where they could not by the earlier rules.
    pub(super) fn takes_more_than(&self, earlier: &Self) -> bool {
        (earlier.cordoned && !self.cordoned) || (earlier.draining && !self.draining)
    }
}

/// One cluster, as far as the dispatcher cares.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    /// A MultiKueueCluster of that name exists.
    pub(super) exists: bool,
    /// Its uid, as its sessions have said; kept once it does not exist.
    pub(super) uid: Option<Name>,
    /// What people want of it; the last, once it does not exist.
    pub(super) rules: ClusterRules,
    /// Somebody changed its policy after this process began. For a workload that the hub has not assigned to it since, its agent
    /// still follows the old policy.
    pub(super) changed_policy: bool,
    /// It has been connected, or has had a workload, since the hub began.
    pub(super) met: bool,
    /// It has been connected since the hub began.
    pub(super) came: bool,
    /// A session is open.
    pub(super) up: bool,
    /// Its inventory is complete, and so is what we know.
    pub(super) synced: bool,
    /// Since when its agent cannot act: it does not reach its own API server. Kept beyond the end of the session in which
    /// it said so, also over restarts of the hub.
    pub(super) unable: Option<Time>,
    /// It has told its inventory since the hub began.
    pub(super) told: bool,
    /// It has more that we do not know than we remember: what it has told is not all.
    pub(super) cut_off: bool,
    /// Since when `up` is what it is.
    pub(super) since: Time,
    /// It has reported.
    pub(super) reported: bool,
    /// During which event it last became able to take what it had refused: it came back, was uncordoned, or its agent can act.
    pub(super) changed: u64,
    /// During which event the queues that it reports were made, opened, or given other quota, in this session.
    pub(super) changed_queues: BTreeMap<Place, u64>,
    /// When it last took, ran or ended a workload: while it does, others only wait for their turn.
    pub(super) moved: Time,
    pub(super) capacity: Capacity,
    /// How often its reports have what waits looked through.
    pub(super) look: Look,
}

impl Cluster {
    /// One that has just been heard of.
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// Whether it can be asked.
    pub(super) fn usable(&self) -> bool {
        self.wanted() && self.up && self.synced && self.unable.is_none()
    }

    /// Whether people want workloads sent to it, be it within reach or not.
    pub(super) fn wanted(&self) -> bool {
        self.exists && !self.rules.cordoned
    }

    /// During which event something last changed there that matters to the workloads of a LocalQueue.
    pub(super) fn changed_for(&self, namespace: &Name, queue: &Name) -> u64 {
        let queue = self.changed_queues.get(&(namespace.clone(), queue.clone()));
        self.changed.max(queue.copied().unwrap_or_default())
    }

    /// Takes a report in, during that event.
    pub(super) fn report(&mut self, queues: BTreeMap<Place, Queue>, event: u64) {
        let changed = self.capacity.report(queues);
        // With the first report of a session all that has changed is that it is back.
        if self.reported {
            self.changed_queues.extend(changed.into_iter().map(|place| (place, event)));
            self.changed_queues.retain(|place, _| self.capacity.queues().contains_key(place));
        }
        self.reported = true;
    }

    /// Whether what was said in this session at `at` has surely been heard.
    pub(super) fn has_heard(&self, at: Time, now: Time) -> bool {
        self.up && has_heard_since(self.since, at, now)
    }

    /// A session begins, or has ended: all that was said in the last one is void.
    pub(super) fn turn(&mut self, up: bool, now: Time) {
        let before = std::mem::take(self);
        let unable = before.unable.filter(|_| !up);
        *self = Self {
            up,
            unable,
            since: now,
            met: before.met || up,
            came: before.came || up,
            ..before
        };
        (self.synced, self.reported, self.moved, self.capacity) =
            (false, false, 0, Capacity::default());
        self.changed_queues = BTreeMap::new();
        self.cut_off = false;
    }
}
