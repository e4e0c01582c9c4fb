//! Where the dispatcher's task and one cluster's session meet: the outbox and the state of the session, under one
//! short lock, and a bell for the session's writer. Neither side ever waits for the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use switchyard_proto::v1::{Assignment, Desired, Digest, Observed};
use tokio::sync::watch;

use super::inbound::{Accepted, Inbound};
use super::outbox::{Content, Limits, Outbox};

/// What the session's writer sends next.
#[derive(Debug, PartialEq)]
pub enum Outgoing {
    /// Desired state.
    Desired(Desired),
    /// Observations up to here are persisted.
    Ack(u64),
    /// Observations of these buckets are wanted again.
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

/// One cluster's port.
#[derive(Debug)]
pub struct Port {
    state: Mutex<State>,
    bell: watch::Sender<u64>,
}

impl Port {
    /// A port with an empty outbox; see [`Outbox::new`] for `start`.
    pub fn new(start: u64) -> Self {
        let state = State {
            outbox: Outbox::new(start),
            inbound: Inbound::default(),
            resend: None,
            session: 0,
        };
        Self { state: Mutex::new(state), bell: watch::Sender::new(0) }
    }

    // A panic while it is held would have been between two plain assignments: what is there can be used.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    // Every listener hears it, so a session that is about to end cannot take it from its successor.
    fn ring(&self) {
        self.bell.send_modify(|count| *count = count.wrapping_add(1));
    }

    // === the dispatcher's side

    /// See [`Outbox::set`].
    pub fn set(&self, assignment: Assignment, content: Option<Arc<Content>>) {
        if self.lock().outbox.set(assignment, content) {
            self.ring();
        }
    }

    /// See [`Outbox::exchange`].
    pub fn exchange(&self, workload_uid: &str, content: Arc<Content>) {
        if self.lock().outbox.exchange(workload_uid, content) {
            self.ring();
        }
    }

    /// See [`Outbox::forget`].
    pub fn forget(&self, workload_uid: &str, attempt: u64) {
        self.lock().outbox.forget(workload_uid, attempt);
    }

    /// The attempt that was last set for a workload.
    pub fn attempt(&self, workload_uid: &str) -> Option<u64> {
        Some(self.lock().outbox.get(workload_uid)?.attempt)
    }

    /// By which name the Workload of this attempt goes there, if it was set.
    pub fn name(&self, workload_uid: &str, attempt: u64) -> Option<String> {
        Some(self.lock().outbox.get(workload_uid)?)
            .filter(|set| set.attempt == attempt)
            .map(|set| set.name.clone())
    }

    /// The content that was set for a workload.
    pub fn content(&self, workload_uid: &str) -> Option<Arc<Content>> {
        self.lock().outbox.content(workload_uid)
    }

    /// A terminal state is persisted.
    pub fn persisted(&self, workload_uid: &str, attempt: u64) {
        if self.lock().inbound.persisted(workload_uid, attempt) {
            self.ring();
        }
    }

    // === the session's side

    /// A session takes over. Returns whether a snapshot follows.
    pub fn open(&self, session: u64, known: Option<u64>) -> bool {
        let mut state = self.lock();
        state.session = session;
        state.inbound = Inbound::default();
        state.resend = None;
        let snapshot = state.outbox.open(known);
        drop(state);
        self.ring();
        snapshot
    }

    /// The session is over, unless another has taken over.
    pub fn close(&self, session: u64) {
        let mut state = self.lock();
        if state.session == session {
            state.session = 0;
            state.outbox.close();
        }
    }

    /// What to send next, if there is something, and the session is the one that may.
    pub fn next(&self, session: u64, limits: Limits) -> Option<Outgoing> {
        let mut state = self.lock();
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

    /// Changes whenever [`Self::next`] may have something.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }

    /// Takes a message of observations; see [`Inbound::accept`]. Terminal states are held until persisted.
    pub fn accept(&self, session: u64, message: &Observed) -> Option<Accepted> {
        let mut state = self.lock();
        if state.session != session {
            return None;
        }
        let accepted = state.inbound.accept(message);
        if matches!(accepted, Accepted::Take { .. }) {
            state.inbound.hold_ends(message);
        }
        drop(state);
        self.ring();
        Some(accepted)
    }

    /// The agent's digest: what drifted is asked for again.
    pub fn digest(&self, session: u64, digest: &Digest) -> usize {
        let mut state = self.lock();
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
            self.ring();
        }
        count
    }

    /// The agent has taken the desired state over up to here.
    pub fn acked(&self, session: u64, revision: u64) {
        let mut state = self.lock();
        if state.session == session {
            state.outbox.ack(revision);
        }
    }
}

/// The ports of all clusters, made when first asked for.
#[derive(Debug, Default)]
pub struct Ports(Mutex<BTreeMap<String, Arc<Port>>>);

impl Ports {
    /// The port of a cluster.
    pub fn of(&self, cluster: &str) -> Arc<Port> {
        let mut ports = self.0.lock();
        if let Some(port) = ports.get(cluster) {
            return port.clone();
        }
        let start = u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(0);
        let port = Arc::new(Port::new(start));
        ports.insert(cluster.to_owned(), port.clone());
        port
    }

    /// Forgets what was desired, everywhere: another term begins. All sessions must have been cut.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

/// A set of uids, for events.
pub fn uids(inventory: &BTreeSet<String>) -> switchyard_dispatcher::Uids {
    inventory.iter().map(|uid| uid.as_str().into()).collect()
}
