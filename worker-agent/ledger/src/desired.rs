//! The desired state: assignments, payloads and the revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use switchyard_proto::v1::{self, Payload, Phase, PreemptionGate};
use switchyard_proto::{MAX_PAYLOAD, payload_hash};

use crate::objects::Priority;
use crate::session_error::SessionError;

/// The longest fence: ten years.
const MAX_FENCE: Duration = Duration::from_secs(3650 * 24 * 3600);

/// The fence as a Workload records it: in whole milliseconds, at most ten years.
pub fn whole_fence(after: Duration) -> Duration {
    let after = after.min(MAX_FENCE);
    after - Duration::from_nanos(u64::from(after.subsec_nanos() % 1_000_000))
}

/// Bytes of payloads that the ledger keeps although no assignment names them, because a withdrawn
/// payload often comes back. Above this, the ledger drops all of them.
const MAX_UNREFERENCED: usize = 8 * 1024 * 1024;

/// An assignment that the ledger has applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DesiredWorkload {
    pub(crate) namespace: String,
    /// The name of the hub's Workload.
    pub(crate) name: String,
    pub(crate) attempt: u64,
    pub(crate) phase: Phase,
    pub(crate) payload_hash: Vec<u8>,
    /// The fence: how long the job may run after the lease expires. None: without limit.
    pub(crate) fence_after: Option<Duration>,
    /// The Workload's priority, if a WorkloadPriorityClass sets it.
    pub(crate) priority: Option<Priority>,
    /// The preemption gate that the Workload is created with.
    pub(crate) gate: Option<PreemptionGate>,
    /// The flavors that the Workload is created with. The executor checks them.
    pub(crate) pins: Arc<[v1::FlavorPin]>,
}

impl DesiredWorkload {
    /// The highest attempt whose objects the agent deletes.
    pub(crate) fn max_deleted_attempt(&self) -> u64 {
        match self.phase {
            Phase::Absent => self.attempt,
            Phase::Unspecified | Phase::Reserve | Phase::Run | Phase::Suspend => {
                self.attempt.saturating_sub(1)
            }
        }
    }

    /// Whether the agent may create objects from the payload. The ledger applies such an assignment
    /// only if it has the payload.
    fn needs_payload(&self) -> bool {
        !matches!(self.phase, Phase::Absent | Phase::Unspecified)
    }

    fn from_assignment(assignment: v1::Assignment) -> Self {
        let phase = assignment.phase();
        let fence = assignment
            .on_disconnect
            .filter(|rule| rule.policy() == v1::on_disconnect::Policy::Fence);
        let gate = assignment.preemption_gate.map(|it| PreemptionGate::new(it.opened_at(), None));
        let class = Some(assignment.priority_class).filter(|class| !class.is_empty());
        Self {
            priority: class.map(|class| Priority { class, value: assignment.priority }),
            fence_after: fence.map(|rule| {
                whole_fence(rule.after.and_then(|after| after.try_into().ok()).unwrap_or_default())
            }),
            gate,
            pins: assignment.flavor_pins.into(),
            namespace: assignment.namespace,
            name: assignment.name,
            attempt: assignment.attempt,
            phase,
            payload_hash: assignment.payload_hash,
        }
    }

    /// Whether `next` may replace this. An attempt never decreases. Within an attempt, the phase
    /// moves from `RESERVE` to `RUN` or `SUSPEND`, and finally to `ABSENT`.
    fn may_be_replaced_by(&self, next: &Self) -> bool {
        let step = |phase| match phase {
            Phase::Unspecified => 0,
            Phase::Reserve => 1,
            Phase::Run | Phase::Suspend => 2,
            Phase::Absent => 3,
        };
        next.attempt > self.attempt
            || next.attempt == self.attempt && step(next.phase) >= step(self.phase)
    }
}

/// A payload, and the number of assignments that name it.
#[derive(Debug)]
struct StoredPayload {
    payload: Arc<Payload>,
    references: usize,
}

/// The desired state as far as the ledger has applied it.
#[derive(Debug, Default)]
pub(crate) struct DesiredState {
    workloads: BTreeMap<String, DesiredWorkload>,
    payloads: BTreeMap<Vec<u8>, StoredPayload>,
    /// Bytes of `payloads` without references.
    unreferenced_bytes: usize,
    revision: u64,
    /// The highest revision applied in this session. Older messages of the session change nothing.
    session_revision: u64,
    /// The workloads in the parts received so far of an incomplete snapshot.
    snapshot_uids: Option<BTreeSet<String>>,
}

impl DesiredState {
    /// The revision up to which the ledger has applied everything.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&DesiredWorkload> {
        self.workloads.get(uid)
    }

    pub(crate) fn payload(&self, desired: &DesiredWorkload) -> Option<Arc<Payload>> {
        self.payloads.get(&desired.payload_hash).map(|stored| stored.payload.clone())
    }

    /// Removes a workload: its tombstone is done, or a snapshot omits it.
    pub(crate) fn forget(&mut self, uid: &str) {
        let Some(old) = self.workloads.remove(uid) else { return };
        if let Some(stored) =
            self.payloads.get_mut(&old.payload_hash).filter(|_| old.needs_payload())
        {
            stored.references -= 1;
            self.unreferenced_bytes +=
                if stored.references == 0 { stored.payload.size() } else { 0 };
        }
    }

    fn insert(&mut self, uid: &str, desired: DesiredWorkload) {
        self.forget(uid);
        if let Some(stored) =
            self.payloads.get_mut(&desired.payload_hash).filter(|_| desired.needs_payload())
        {
            self.unreferenced_bytes -=
                if stored.references == 0 { stored.payload.size() } else { 0 };
            stored.references += 1;
        }
        self.workloads.insert(uid.to_owned(), desired);
    }

    /// Starts a session. Another hub process may count revisions from a lower number, and the rest
    /// of an incomplete snapshot will not come.
    pub(crate) fn session_opened(&mut self) {
        self.snapshot_uids = None;
        self.session_revision = 0;
    }

    /// Makes the next `Hello` ask for a snapshot.
    pub(crate) fn forget_revision(&mut self) {
        self.revision = 0;
    }

    /// Applies a message. Returns the changed workloads, and whether the revision is complete.
    ///
    /// # Errors
    /// The session must end. Earlier messages stay in effect.
    pub(crate) fn apply(
        &mut self,
        message: v1::Desired,
    ) -> Result<(BTreeSet<String>, bool), SessionError> {
        if message.revision < self.session_revision
            || !message.snapshot
                && message.revision == self.session_revision
                && self.session_revision != 0
        {
            return Ok((BTreeSet::new(), false));
        }
        if !message.snapshot && message.base_revision != self.revision {
            return Err(SessionError::Gap { base: message.base_revision, have: self.revision });
        }
        for payload in message.payloads {
            self.store_payload(payload)?;
        }
        let read = |assignment: v1::Assignment| {
            let uid = assignment.workload_uid.clone();
            let desired = DesiredWorkload::from_assignment(assignment);
            if desired.needs_payload() && !self.payloads.contains_key(&desired.payload_hash) {
                return Err(SessionError::PayloadMissing(uid));
            }
            Ok((uid, desired))
        };
        // A message is not applied in part: its workloads would not be planned.
        let assignments = message.assignments.into_iter().map(read);
        let assignments: Vec<_> = assignments.collect::<Result<_, _>>()?;
        let mut touched = BTreeSet::new();
        for (uid, desired) in assignments {
            if message.snapshot {
                self.snapshot_uids.get_or_insert_default().insert(uid.clone());
            }
            if self.apply_assignment(&uid, desired) {
                touched.insert(uid);
            }
        }
        if message.more {
            return Ok((touched, false));
        }
        if message.snapshot {
            // A snapshot omits what is no longer desired. Its objects stay, and are reported.
            let named = self.snapshot_uids.take().unwrap_or_default();
            let dropped: Vec<String> =
                self.workloads.keys().filter(|uid| !named.contains(*uid)).cloned().collect();
            for uid in dropped {
                self.forget(&uid);
                touched.insert(uid);
            }
        }
        self.revision = message.revision;
        self.session_revision = message.revision;
        self.drop_unreferenced_payloads();
        Ok((touched, true))
    }

    fn store_payload(&mut self, mut payload: Payload) -> Result<(), SessionError> {
        if payload.size() > MAX_PAYLOAD {
            // It is stored empty. The ledger then rejects its assignment.
            payload = Payload { hash: payload.hash, ..Payload::default() };
        } else if payload_hash(&payload.workload, &payload.job) != payload.hash {
            return Err(SessionError::PayloadCorrupt);
        }
        self.payloads.entry(payload.hash.clone()).or_insert_with(|| {
            let stored = StoredPayload { payload: Arc::new(payload), references: 0 };
            self.unreferenced_bytes += stored.payload.size();
            stored
        });
        Ok(())
    }

    /// Returns whether the workload must be planned and reported again.
    fn apply_assignment(&mut self, uid: &str, desired: DesiredWorkload) -> bool {
        match self.workloads.get(uid) {
            _ if desired.phase == Phase::Unspecified => false,
            // The hub repeats a tombstone to hear GONE again: the agent reported it before. After
            // the loss of its store, the hub repeats it with a lower attempt. A late write may also
            // make the hub order an attempt to run that it had removed.
            Some(have) if *have == desired || !have.may_be_replaced_by(&desired) => {
                have.phase == Phase::Absent
            }
            _ => {
                self.insert(uid, desired);
                true
            }
        }
    }

    fn drop_unreferenced_payloads(&mut self) {
        if self.unreferenced_bytes > MAX_UNREFERENCED {
            self.payloads.retain(|_, stored| stored.references > 0);
            self.unreferenced_bytes = 0;
        }
    }
}
