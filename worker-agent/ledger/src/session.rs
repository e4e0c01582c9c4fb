//! One session as the ledger sees it: what has been said in it, and what of that the hub has persisted.

use std::collections::{BTreeMap, VecDeque};

use switchyard_proto::digest::Digest;
use switchyard_proto::v1::{Goodbye, State, Welcome};

use super::Ledger;
use super::model::{Action, Time};
use super::want::SessionError;

/// How often the digest is sent.
const DIGEST_INTERVAL: Time = Time::from_secs(60);

/// A state the hub was told, and by which it is known when it has persisted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) uid: String,
    pub(super) attempt: u64,
    pub(super) state: State,
}

/// One session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// None until `Welcome`.
    id: Option<u64>,
    /// The workloads that the inventory has yet to name; none once it is complete.
    pub(super) inventory: Option<VecDeque<String>>,
    pub(super) sequence: u64,
    /// What was told in messages that are not acknowledged, as far as the acknowledgement matters.
    pub(super) unacknowledged: BTreeMap<u64, Vec<Told>>,
    /// The revision to acknowledge.
    pub(super) desired_ack: Option<u64>,
    digest: Digest,
    /// When to send the next digest.
    pub(super) digest_at: Option<Time>,
}

impl Session {
    pub(super) fn id(&self) -> Option<u64> {
        self.id
    }

    pub(super) fn acknowledge(&mut self, revision: u64) {
        self.desired_ack = Some(revision);
    }

    /// A workload's told state changed. `GONE` is in no digest: either end forgets it at its own time.
    pub(super) fn digest_move(
        &mut self,
        uid: &str,
        from: Option<(u64, State)>,
        to: Option<(u64, State)>,
    ) {
        for (attempt, state) in from.into_iter().chain(to) {
            if state != State::Gone {
                self.digest.toggle(uid, attempt, state);
            }
        }
    }

    /// The digest, if it is time.
    pub(super) fn digest(&mut self, now: Time) -> Option<switchyard_proto::v1::Digest> {
        let at = self.digest_at.get_or_insert(now + DIGEST_INTERVAL);
        if now < *at {
            return None;
        }
        *at = now + DIGEST_INTERVAL;
        Some(self.digest.to_wire())
    }

    /// When there is something to send, given when the first report is due and whether the cluster is known.
    pub(super) fn next_send(&self, due: Option<Time>, synced: bool) -> Option<Time> {
        self.id?;
        if self.desired_ack.is_some() || self.inventory.is_some() && synced {
            return Some(Time::ZERO);
        }
        if self.inventory.is_some() {
            return None;
        }
        [due, self.digest_at].into_iter().flatten().min()
    }
}

pub(super) fn goodbye(goodbye: Goodbye) -> SessionError {
    let retry_after = goodbye.retry_after.and_then(|after| after.try_into().ok());
    SessionError::Goodbye { reason: goodbye.reason, retry_after }
}

impl Ledger {
    /// A new session begins; whatever was under way in an older one is void.
    pub fn session_opened(&mut self) {
        self.session_closed();
        self.session = Some(Session::default());
        self.wants.session_opened();
    }

    /// The session is over. What was not sent is dropped: the next one begins with the inventory.
    pub fn session_closed(&mut self) {
        self.session = None;
        for entry in self.entries.values_mut() {
            entry.report.forget_session();
            entry.report.due = None;
        }
        self.due.clear();
    }

    /// The session's id, once the hub has welcomed us.
    pub fn session_id(&self) -> Option<u64> {
        self.session.as_ref().and_then(Session::id)
    }

    pub(super) fn welcome(&mut self, welcome: Welcome, epoch: u64) -> Result<(), SessionError> {
        let Some(session) = self.session.as_mut().filter(|session| session.id.is_none()) else {
            return Err(SessionError::OutOfPlace("Welcome"));
        };
        if !switchyard_proto::VERSIONS.contains(&welcome.version) {
            return Err(SessionError::Version(welcome.version));
        }
        if welcome.hub_id != self.rules.hub_id {
            return Err(SessionError::OtherHub {
                expected: self.rules.hub_id.clone(),
                got: welcome.hub_id,
            });
        }
        session.id = Some(welcome.session_id);
        session.inventory = Some(self.entries.keys().cloned().collect());
        self.epoch = epoch;
        self.met = true;
        self.behind = true;
        Ok(())
    }

    /// Everything up to this message is persisted on the hub.
    pub(super) fn acknowledged(&mut self, sequence: u64, now: Time) -> Vec<Action> {
        let Some(session) = &mut self.session else { return Vec::new() };
        let later = session.unacknowledged.split_off(&sequence.saturating_add(1));
        let told = std::mem::replace(&mut session.unacknowledged, later);
        let mut actions = Vec::new();
        for told in told.into_values().flatten() {
            self.persisted(&told);
            actions.extend(self.refresh(&told.uid, now));
        }
        actions
    }

    fn persisted(&mut self, told: &Told) {
        let Some(entry) = self.entries.get_mut(&told.uid) else { return };
        if let Some(end) = &mut entry.end
            && end.observation.attempt == told.attempt
            && end.observation.state() == told.state
        {
            end.settled = true;
        }
        let buried = self.wants.get(&told.uid).is_some_and(|want| {
            want.phase == switchyard_proto::v1::Phase::Absent && want.attempt == told.attempt
        });
        if told.state == State::Gone && buried && entry.attempt_there().is_none() {
            self.wants.forget(&told.uid);
        }
    }
}
