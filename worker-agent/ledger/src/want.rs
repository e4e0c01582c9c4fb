//! What the hub desires: assignments, payloads, revision, epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use switchyard_proto::v1::{self, Phase};
use switchyard_proto::{MAX_PAYLOAD, payload_hash};
use thiserror::Error;

use super::model::{Gate, Payload, Priority};

/// The longest that a job is let run on after the lease lapsed: ten years.
const MAX_FENCE: Duration = Duration::from_secs(3650 * 24 * 3600);

/// A fence as it can be recorded on the Workload: whole milliseconds, within reason.
pub fn whole_fence(after: Duration) -> Duration {
    let after = after.min(MAX_FENCE);
    after - Duration::from_nanos(u64::from(after.subsec_nanos() % 1_000_000))
}

/// Bytes of payloads kept although no assignment names them just now: a withdrawn one often comes back. Beyond that, all
/// of them go.
const SPARE_PAYLOADS: usize = 8 * 1024 * 1024;

/// Why a session has to end. What was taken over before stays.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SessionError {
    /// The first message was not `Welcome`, or a second one came.
    #[error("the hub sent {0} where the protocol does not allow it")]
    OutOfPlace(&'static str),
    /// A hub other than the one that gave us our identity.
    #[error("the hub says it is {got:?}, but this cluster belongs to {expected:?}")]
    OtherHub {
        /// Whom our certificate names.
        expected: String,
        /// What it calls itself.
        got: String,
    },
    /// A leader that has been replaced.
    #[error(
        "the hub's epoch {got} is lower than {seen}, which was seen before: a deposed leader is not obeyed"
    )]
    Deposed {
        /// The sender's.
        got: u64,
        /// The highest seen.
        seen: u64,
    },
    /// A protocol version that this build does not speak.
    #[error("the hub chose protocol version {0}; this agent speaks {first} to {last}", first = switchyard_proto::VERSIONS.start(), last = switchyard_proto::VERSIONS.end())]
    Version(u32),
    /// A delta that does not follow what we have: a snapshot is needed.
    #[error(
        "the hub's delta is based on revision {base}, but {have} is what was taken over: asking for a snapshot"
    )]
    Gap {
        /// The delta's base.
        base: u64,
        /// Ours.
        have: u64,
    },
    /// An assignment names a payload that was never sent.
    #[error("the hub did not send the payload of workload {0}: asking for everything anew")]
    PayloadMissing(String),
    /// A payload whose content is not what its hash says.
    #[error("the hub sent a payload whose SHA-256 is not the one it names")]
    PayloadCorrupt,
    /// The hub said so.
    #[error("the hub said goodbye: {reason}")]
    Goodbye {
        /// Its words.
        reason: String,
        /// How long it asks us to stay away.
        retry_after: Option<Duration>,
    },
    /// `Welcome` did not come.
    #[error("the hub did not say Welcome within {0:?}")]
    NoWelcome(Duration),
    /// A ping was not answered in time.
    #[error("the hub did not answer a ping within {0:?}")]
    PingTimeout(Duration),
}

/// An assignment, taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    /// Where.
    pub(super) namespace: String,
    /// The hub's Workload.
    pub(super) name: String,
    /// The fencing token.
    pub(super) attempt: u64,
    /// What should be.
    pub(super) phase: Phase,
    /// Names the payload.
    pub(super) payload_hash: Vec<u8>,
    /// For how long after the lease lapsed the job may run on; none: as long as it likes.
    pub(super) fence_after: Option<Duration>,
    /// The priority that its Workload is to have, if it has one from a class.
    pub(super) priority: Option<Priority>,
    /// The preemption gate that its Workload is made with, and since when that is open.
    pub(super) gate: Option<Gate>,
}

impl Want {
    /// Attempts up to this one have to go.
    pub(super) fn teardown(&self) -> u64 {
        match self.phase {
            Phase::Absent => self.attempt,
            Phase::Unspecified | Phase::Reserve | Phase::Run | Phase::Suspend => {
                self.attempt.saturating_sub(1)
            }
        }
    }

    /// Whether there is something to be made of its payload; without one it is not taken over.
    fn names_payload(&self) -> bool {
        !matches!(self.phase, Phase::Absent | Phase::Unspecified)
    }

    fn of(assignment: v1::Assignment) -> Self {
        let phase = assignment.phase();
        let fence = assignment
            .on_disconnect
            .filter(|rule| rule.policy() == v1::on_disconnect::Policy::Fence);
        let opened = |gate: v1::PreemptionGate| gate.opened.map(|at| at.seconds);
        let gate =
            assignment.preemption_gate.map(|gate| Gate { opened: opened(gate), blocked: None });
        let class = Some(assignment.priority_class).filter(|class| !class.is_empty());
        Self {
            priority: class.map(|class| Priority { class, value: assignment.priority }),
            fence_after: fence.map(|rule| {
                whole_fence(rule.after.and_then(|after| after.try_into().ok()).unwrap_or_default())
            }),
            gate,
            namespace: assignment.namespace,
            name: assignment.name,
            attempt: assignment.attempt,
            phase,
            payload_hash: assignment.payload_hash,
        }
    }

    /// Whether `next` may replace this: never a lower attempt, and one attempt only moves on from `RESERVE` to `RUN`
    /// or `SUSPEND` and at last to `ABSENT`.
    fn yields_to(&self, next: &Self) -> bool {
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

/// A payload, and how many assignments name it.
#[derive(Debug)]
struct Kept {
    payload: Arc<Payload>,
    named: usize,
}

impl Kept {
    fn size(&self) -> usize {
        self.payload.workload.len() + self.payload.job.len()
    }
}

/// The desired state as far as it was taken over.
#[derive(Debug, Default)]
pub(super) struct Wants {
    wants: BTreeMap<String, Want>,
    payloads: BTreeMap<Vec<u8>, Kept>,
    /// Bytes of `payloads` that no assignment names.
    spare: usize,
    revision: u64,
    /// The highest revision of this session: older messages of it change nothing.
    floor: u64,
    /// The workloads named by the parts of a snapshot that is not complete yet.
    partial: Option<BTreeSet<String>>,
    /// How many of `wants` have a fence.
    fenced: usize,
}

impl Wants {
    /// The revision up to which everything was taken over.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// What is desired for one workload.
    pub(super) fn get(&self, uid: &str) -> Option<&Want> {
        self.wants.get(uid)
    }

    /// What to create for it.
    pub(super) fn payload(&self, want: &Want) -> Option<Arc<Payload>> {
        self.payloads.get(&want.payload_hash).map(|kept| kept.payload.clone())
    }

    /// A tombstone has done its work.
    pub(super) fn forget(&mut self, uid: &str) {
        let Some(old) = self.wants.remove(uid) else { return };
        self.fenced -= usize::from(old.fence_after.is_some());
        if let Some(kept) = self.payloads.get_mut(&old.payload_hash).filter(|_| old.names_payload())
        {
            kept.named -= 1;
            self.spare += if kept.named == 0 { kept.size() } else { 0 };
        }
    }

    fn insert(&mut self, uid: &str, want: Want) {
        self.forget(uid);
        self.fenced += usize::from(want.fence_after.is_some());
        if let Some(kept) =
            self.payloads.get_mut(&want.payload_hash).filter(|_| want.names_payload())
        {
            self.spare -= if kept.named == 0 { kept.size() } else { 0 };
            kept.named += 1;
        }
        self.wants.insert(uid.to_owned(), want);
    }

    /// Whether any job is to be stopped when the lease lapses.
    pub(super) fn fence(&self) -> bool {
        self.fenced > 0
    }

    /// A session begins. Revisions of another hub process may be lower; half a snapshot is worth nothing.
    pub(super) fn session_opened(&mut self) {
        self.partial = None;
        self.floor = 0;
    }

    /// Makes the next `Hello` ask for everything.
    pub(super) fn forget_revision(&mut self) {
        self.revision = 0;
    }

    /// Takes a message over and says which workloads it touched, and whether the revision is complete.
    ///
    /// # Errors
    /// The session must end; what was taken over from earlier messages stays.
    pub(super) fn take(
        &mut self,
        message: v1::Desired,
    ) -> Result<(BTreeSet<String>, bool), SessionError> {
        if message.revision < self.floor
            || !message.snapshot && message.revision == self.floor && self.floor != 0
        {
            return Ok((BTreeSet::new(), false));
        }
        if !message.snapshot && message.base_revision != self.revision {
            return Err(SessionError::Gap { base: message.base_revision, have: self.revision });
        }
        for payload in message.payloads {
            self.take_payload(payload)?;
        }
        let mut touched = BTreeSet::new();
        for assignment in message.assignments {
            let uid = assignment.workload_uid.clone();
            if message.snapshot {
                self.partial.get_or_insert_default().insert(uid.clone());
            }
            if self.take_assignment(&uid, assignment)? {
                touched.insert(uid);
            }
        }
        if message.more {
            return Ok((touched, false));
        }
        if message.snapshot {
            // Missing is not desired any more. What it left behind stays and is reported.
            let named = self.partial.take().unwrap_or_default();
            let dropped: Vec<String> =
                self.wants.keys().filter(|uid| !named.contains(*uid)).cloned().collect();
            for uid in dropped {
                self.forget(&uid);
                touched.insert(uid);
            }
        }
        self.revision = message.revision;
        self.floor = message.revision;
        self.drop_spare_payloads();
        Ok((touched, true))
    }

    fn take_payload(&mut self, payload: v1::Payload) -> Result<(), SessionError> {
        // Too large a one is left out; its assignment is then refused by name.
        let (hash, payload) = if payload.workload.len() + payload.job.len() > MAX_PAYLOAD {
            (payload.hash, Payload { workload: Vec::new(), job: Vec::new() })
        } else if payload_hash(&payload.workload, &payload.job) == payload.hash {
            (payload.hash, Payload { workload: payload.workload, job: payload.job })
        } else {
            return Err(SessionError::PayloadCorrupt);
        };
        // The same hash is the same content.
        self.payloads.entry(hash).or_insert_with(|| {
            let kept = Kept { payload: Arc::new(payload), named: 0 };
            self.spare += kept.size();
            kept
        });
        Ok(())
    }

    /// Whether something changed.
    fn take_assignment(
        &mut self,
        uid: &str,
        assignment: v1::Assignment,
    ) -> Result<bool, SessionError> {
        let want = Want::of(assignment);
        if want.names_payload() && !self.payloads.contains_key(&want.payload_hash) {
            return Err(SessionError::PayloadMissing(uid.to_owned()));
        }
        match self.wants.get(uid) {
            _ if want.phase == Phase::Unspecified => Ok(false),
            // The hub asks for what is gone to be said again: it was said before the tombstone was. So it does with a lower
            // tombstone, after its store was lost.
            Some(have) if *have == want || !have.yields_to(&want) => {
                Ok(have.phase == Phase::Absent && want.phase == Phase::Absent)
            }
            _ => {
                self.insert(uid, want);
                Ok(true)
            }
        }
    }

    fn drop_spare_payloads(&mut self) {
        if self.spare > SPARE_PAYLOADS {
            self.payloads.retain(|_, kept| kept.named > 0);
            self.spare = 0;
        }
    }
}
