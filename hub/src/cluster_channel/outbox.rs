//! The desired state of one cluster, and what of it the agent does not have yet. Pure.
//!
//! Each change of an assignment raises the revision. A session starts with a snapshot, or with a
//! delta from the revision that the agent kept; deltas follow. Changes of one workload between two
//! messages coalesce, so a slow cluster costs memory for its workloads and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use switchyard_proto::v1::{Assignment, Desired, Payload, Phase};

/// Bytes of a payload in a message, beside its objects.
const PAYLOAD_FRAME: usize = 64;

/// Bounds of a message.
#[derive(Debug, Clone, Copy)]
pub struct MessageLimits {
    /// Bytes of a message. One assignment with its payload may exceed it.
    pub bytes: usize,
    pub assignments: usize,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self { bytes: 2 << 20, assignments: 512 }
    }
}

#[derive(Debug)]
struct OutboxEntry {
    assignment: Assignment,
    payload: Option<Arc<Payload>>,
    /// The revision of its last change.
    revision: u64,
}

/// Progress of the current session.
#[derive(Debug, Default)]
struct SendState {
    /// The sequence under way, if a revision takes more than one message.
    sequence: Option<MessageSequence>,
    /// Everything up to this revision has been sent.
    sent: u64,
    snapshot: bool,
    /// Nothing was sent yet. The first message is sent even if it is empty: it tells the agent that
    /// it is up to date.
    silent: bool,
    payloads: BTreeSet<Vec<u8>>,
}

#[derive(Debug)]
struct MessageSequence {
    revision: u64,
    base: u64,
    snapshot: bool,
    left: std::collections::VecDeque<String>,
}

/// The desired state of one cluster.
#[derive(Debug)]
pub struct Outbox {
    /// The first revision of this outbox. Lower ones come from an earlier process or term.
    first: u64,
    revision: u64,
    items: BTreeMap<String, OutboxEntry>,
    /// Workloads by the revision of their last change.
    changes: BTreeMap<u64, String>,
    sending: Option<SendState>,
    acked: u64,
}

impl Outbox {
    /// An empty outbox. `start` must exceed every revision that an earlier process sent to the
    /// cluster. Microseconds since the Unix epoch do.
    pub fn new(start: u64) -> Self {
        Self {
            first: start,
            revision: start,
            items: BTreeMap::new(),
            changes: BTreeMap::new(),
            sending: None,
            acked: 0,
        }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision that the agent has applied.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// The number of workloads, tombstones included.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, workload_uid: &str) -> Option<&Assignment> {
        self.items.get(workload_uid).map(|item| &item.assignment)
    }

    pub fn payload(&self, workload_uid: &str) -> Option<Arc<Payload>> {
        self.items.get(workload_uid)?.payload.clone()
    }

    /// Sets the assignment of a workload. Returns whether this is a change.
    ///
    /// A lower attempt than the present one is refused, so desired state never goes back. A
    /// tombstone has no payload; other assignments get the hash of their payload.
    pub fn set(&mut self, mut assignment: Assignment, payload: Option<Arc<Payload>>) -> bool {
        let absent = assignment.phase == Phase::Absent as i32;
        let payload = if absent { None } else { payload };
        assignment.payload_hash =
            payload.as_ref().map(|payload| payload.hash.clone()).unwrap_or_default();
        if let Some(item) = self.items.get(&assignment.workload_uid) {
            if item.assignment.attempt > assignment.attempt || item.assignment == assignment {
                return false;
            }
            self.changes.remove(&item.revision);
            // The agent soon drops payloads that no assignment names. If the workload comes back,
            // send it again.
            if let (true, Some(payload), Some(sending)) = (absent, &item.payload, &mut self.sending)
            {
                sending.payloads.remove(&payload.hash);
            }
        }
        self.revision += 1;
        let uid = assignment.workload_uid.clone();
        self.changes.insert(self.revision, uid.clone());
        self.items.insert(uid, OutboxEntry { assignment, payload, revision: self.revision });
        true
    }

    /// Replaces a workload's payload, and keeps attempt and phase. Returns whether this is a
    /// change. A tombstone stays a tombstone.
    pub fn replace_payload(&mut self, workload_uid: &str, payload: Arc<Payload>) -> bool {
        let Some(item) = self.items.get(workload_uid) else { return false };
        let assignment = item.assignment.clone();
        assignment.phase != Phase::Absent as i32 && self.set(assignment, Some(payload))
    }

    /// Forgets a tombstone once the agent has reported the workload gone. Keeps other assignments.
    pub fn forget(&mut self, workload_uid: &str, attempt: u64) -> bool {
        let Some(item) = self.items.get(workload_uid) else { return false };
        if item.assignment.phase != Phase::Absent as i32 || item.assignment.attempt > attempt {
            return false;
        }
        self.changes.remove(&item.revision);
        self.items.remove(workload_uid);
        true
    }

    /// Starts a session. `known` is the revision that the agent kept from this process's term.
    ///
    /// Returns whether a snapshot follows, else deltas from `known`. Even an empty one is sent: it
    /// tells the agent that it is up to date.
    pub fn open(&mut self, known: Option<u64>) -> bool {
        let known = known.filter(|revision| (self.first..=self.revision).contains(revision));
        let snapshot = known.is_none();
        self.sending = Some(SendState {
            sent: known.unwrap_or(0),
            snapshot,
            silent: true,
            ..SendState::default()
        });
        snapshot
    }

    /// Ends the session. Changes that the agent has not applied will be sent again.
    pub fn close(&mut self) {
        self.sending = None;
    }

    /// The agent has applied everything up to `revision`.
    pub fn ack(&mut self, revision: u64) {
        self.acked = self.acked.max(revision.min(self.revision));
    }

    /// The next message, if a session is open and there is something to send.
    pub fn next(&mut self, limits: MessageLimits) -> Option<Desired> {
        let sending = self.sending.as_mut()?;
        let mut sequence = match sending.sequence.take() {
            Some(sequence) => sequence,
            None if sending.snapshot => {
                sending.snapshot = false;
                MessageSequence {
                    revision: self.revision,
                    base: 0,
                    snapshot: true,
                    left: self.items.keys().cloned().collect(),
                }
            }
            None if sending.silent || self.changes.range(sending.sent + 1..).next().is_some() => {
                MessageSequence {
                    revision: self.revision,
                    base: sending.sent,
                    snapshot: false,
                    left: self
                        .changes
                        .range(sending.sent + 1..)
                        .map(|(_, uid)| uid.clone())
                        .collect(),
                }
            }
            None => return None,
        };
        sending.silent = false;

        let mut message = Desired {
            revision: sequence.revision,
            snapshot: sequence.snapshot,
            base_revision: sequence.base,
            ..Desired::default()
        };
        let mut bytes = 0;
        while let Some(uid) = sequence.left.front() {
            // The entry may have changed since the sequence started: send its present state.
            let Some(item) = self.items.get(uid) else {
                sequence.left.pop_front();
                continue;
            };
            let payload =
                item.payload.as_ref().filter(|payload| !sending.payloads.contains(&payload.hash));
            let size = size(&item.assignment)
                + payload.map_or(0, |payload| payload.size() + PAYLOAD_FRAME);
            let full =
                bytes + size > limits.bytes || message.assignments.len() >= limits.assignments;
            if full && !message.assignments.is_empty() {
                break;
            }
            bytes += size;
            if let Some(payload) = payload {
                sending.payloads.insert(payload.hash.clone());
                message.payloads.push(Payload::clone(payload));
            }
            message.assignments.push(item.assignment.clone());
            sequence.left.pop_front();
        }
        message.more = !sequence.left.is_empty();
        if message.more {
            sending.sequence = Some(sequence);
        } else {
            sending.sent = sequence.revision;
            // Bounds the memory of sent payloads: keep those of present workloads.
            if sending.payloads.len() > 2 * self.items.len() + 1024 {
                let live: BTreeSet<_> = self
                    .items
                    .values()
                    .filter_map(|item| Some(item.payload.as_ref()?.hash.clone()))
                    .collect();
                sending.payloads.retain(|hash| live.contains(hash));
            }
        }
        Some(message)
    }
}

/// The approximate size of an assignment on the wire, in bytes.
fn size(assignment: &Assignment) -> usize {
    let pins: usize = assignment
        .flavor_pins
        .iter()
        .map(|pin| pin.pod_set.len() + pin.resource.len() + pin.flavor.len() + 12)
        .sum();
    128 + assignment.namespace.len()
        + assignment.name.len()
        + assignment.eviction_message.len()
        + pins
}

#[cfg(test)]
mod tests;
