//! Where the dispatcher's task and one cluster's session meet. One short lock guards the outbox and
//! the session's state, and a notification wakes the session's writer. Neither side waits for the
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use switchyard_proto::v1::{Assignment, Desired, Digest, Observed, Payload};
use tokio::sync::watch;

use super::inbound::{Accepted, Inbound};
use super::outbox::{MessageLimits, Outbox};

/// The next message of the session's writer.
#[derive(Debug, PartialEq)]
pub enum Outgoing {
    Desired(Desired),
    /// Observations up to this sequence number are persisted.
    Ack(u64),
    /// The agent shall send the observations of these buckets again.
    Resend(Vec<u32>),
}

#[derive(Debug)]
struct State {
    outbox: Outbox,
    inbound: Inbound,
    resend: Option<Vec<u32>>,
    /// The session that may read and write. Zero: none.
    session: u64,
}

/// The channel between the dispatcher's task and the sessions of one cluster.
#[derive(Debug)]
pub struct ClusterChannel {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl ClusterChannel {
    /// A channel with an empty outbox; see [`Outbox::new`] for `start`.
    pub fn new(start: u64) -> Self {
        let state = State {
            outbox: Outbox::new(start),
            inbound: Inbound::default(),
            resend: None,
            session: 0,
        };
        Self { state: Mutex::new(state), changed: watch::Sender::new(0) }
    }

    // Every receiver sees the change, so a session that ends cannot consume it for its successor.
    fn notify(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    // === used by the dispatcher's task

    /// See [`Outbox::set`].
    pub fn set(&self, assignment: Assignment, payload: Option<Arc<Payload>>) {
        if self.state.lock().outbox.set(assignment, payload) {
            self.notify();
        }
    }

    /// See [`Outbox::replace_payload`].
    pub fn replace_payload(&self, workload_uid: &str, payload: Arc<Payload>) {
        if self.state.lock().outbox.replace_payload(workload_uid, payload) {
            self.notify();
        }
    }

    /// See [`Outbox::forget`].
    pub fn forget(&self, workload_uid: &str, attempt: u64) {
        self.state.lock().outbox.forget(workload_uid, attempt);
    }

    /// The attempt last set for a workload.
    pub fn attempt(&self, workload_uid: &str) -> Option<u64> {
        Some(self.state.lock().outbox.get(workload_uid)?.attempt)
    }

    /// The name of the Workload that was set for this attempt.
    pub fn name(&self, workload_uid: &str, attempt: u64) -> Option<String> {
        Some(self.state.lock().outbox.get(workload_uid)?)
            .filter(|set| set.attempt == attempt)
            .map(|set| set.name.clone())
    }

    /// The payload last set for a workload.
    pub fn payload(&self, workload_uid: &str) -> Option<Arc<Payload>> {
        self.state.lock().outbox.payload(workload_uid)
    }

    /// The terminal state of an attempt is persisted.
    pub fn persisted(&self, workload_uid: &str, attempt: u64) {
        if self.state.lock().inbound.persisted(workload_uid, attempt) {
            self.notify();
        }
    }

    // === used by the session

    /// A session takes over. Returns whether a snapshot follows.
    pub fn open(&self, session: u64, known: Option<u64>) -> bool {
        let mut state = self.state.lock();
        state.session = session;
        state.inbound = Inbound::default();
        state.resend = None;
        let snapshot = state.outbox.open(known);
        drop(state);
        self.notify();
        snapshot
    }

    /// Ends the session, unless another has taken over.
    pub fn close(&self, session: u64) {
        let mut state = self.state.lock();
        if state.session == session {
            state.session = 0;
            state.outbox.close();
        }
    }

    /// The next message, unless another session has taken over.
    pub fn next(&self, session: u64, limits: MessageLimits) -> Option<Outgoing> {
        let mut state = self.state.lock();
        if state.session != session {
            return None;
        }
        if let Some(through) = state.inbound.ack() {
            return Some(Outgoing::Ack(through));
        }
        if let Some(buckets) = state.resend.take() {
            return Some(Outgoing::Resend(buckets));
        }
        state.outbox.next(limits).map(Outgoing::Desired)
    }

    /// Changes whenever [`Self::next`] may have a message.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Takes a message of observations; see [`Inbound::accept`]. None if another session has taken
    /// over.
    pub fn accept(&self, session: u64, message: &Observed) -> Option<Accepted> {
        let mut state = self.state.lock();
        if state.session != session {
            return None;
        }
        let accepted = state.inbound.accept(message);
        if matches!(accepted, Accepted::Take { .. }) {
            state.inbound.hold_ends(message);
        }
        drop(state);
        self.notify();
        Some(accepted)
    }

    /// Compares the agent's digest, and asks for drifted buckets again. Returns their number.
    pub fn digest(&self, session: u64, digest: &Digest) -> usize {
        let mut state = self.state.lock();
        if state.session != session {
            return 0;
        }
        let drift = state.inbound.drift(digest);
        let count = drift.len();
        if count > 0 {
            state.resend = Some(drift);
        }
        drop(state);
        if count > 0 {
            self.notify();
        }
        count
    }

    /// The agent has applied desired state up to this revision.
    pub fn acked(&self, session: u64, revision: u64) {
        let mut state = self.state.lock();
        if state.session == session {
            state.outbox.ack(revision);
        }
    }
}

/// The channels of all clusters, made on first use.
#[derive(Debug, Default)]
pub struct ClusterChannels(Mutex<BTreeMap<String, Arc<ClusterChannel>>>);

impl ClusterChannels {
    pub fn of(&self, cluster: &str) -> Arc<ClusterChannel> {
        let mut channels = self.0.lock();
        if let Some(channel) = channels.get(cluster) {
            return channel.clone();
        }
        let start = u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(0);
        let channel = Arc::new(ClusterChannel::new(start));
        channels.insert(cluster.to_owned(), channel.clone());
        channel
    }

    /// Forgets the desired state of all clusters for a new term. All sessions must be closed
    /// before.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

pub fn uids(inventory: &BTreeSet<String>) -> switchyard_dispatcher::Uids {
    inventory.iter().map(|uid| uid.as_str().into()).collect()
}
