//! One session: what the agent reported in it, and what the hub has persisted.

use std::collections::{BTreeMap, VecDeque};

use switchyard_proto::digest::Digest;
use switchyard_proto::v1::{Goodbye, State, Welcome};

use super::Ledger;
use crate::actions::Action;
use crate::entry::Persisted;
use crate::objects::Time;
use crate::session_error::SessionError;

/// The interval of digests.
const DIGEST_INTERVAL: Time = Time::from_secs(60);

/// A reported state whose acknowledgement matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportedState {
    pub(crate) uid: String,
    pub(crate) attempt: u64,
    pub(crate) state: State,
}

#[derive(Debug, Default)]
pub(crate) struct Session {
    /// None before `Welcome`.
    id: Option<u64>,
    /// The workloads that the inventory still has to report; none once it is complete.
    pub(crate) inventory: Option<VecDeque<String>>,
    pub(crate) sequence: u64,
    /// By sequence number, the reported states that the hub has not acknowledged.
    pub(crate) unacknowledged: BTreeMap<u64, Vec<ReportedState>>,
    /// The revision to acknowledge.
    pub(crate) desired_ack: Option<u64>,
    digest: Digest,
    pub(crate) digest_at: Option<Time>,
}

impl Session {
    pub(crate) fn id(&self) -> Option<u64> {
        self.id
    }

    pub(crate) fn acknowledge(&mut self, revision: u64) {
        self.desired_ack = Some(revision);
    }

    /// Updates the digest after a report. It leaves out `GONE`, which each end forgets at its own
    /// time.
    pub(crate) fn update_digest(
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

    /// The digest, if it is due.
    pub(crate) fn digest(&mut self, now: Time) -> Option<switchyard_proto::v1::Digest> {
        let at = self.digest_at.get_or_insert(now + DIGEST_INTERVAL);
        if now < *at {
            return None;
        }
        *at = now + DIGEST_INTERVAL;
        Some(self.digest.to_wire())
    }

    /// When there is something to send. `due` is the time of the first report, `synced` whether all
    /// objects are known.
    pub(crate) fn next_send(&self, due: Option<Time>, synced: bool) -> Option<Time> {
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

pub(crate) fn goodbye_error(goodbye: Goodbye) -> SessionError {
    let retry_after = goodbye.retry_after.and_then(|after| after.try_into().ok());
    SessionError::Goodbye { reason: goodbye.reason, retry_after }
}

impl Ledger {
    /// Starts a session, and drops the state of an older one.
    pub fn session_opened(&mut self) {
        self.session_closed();
        self.session = Some(Session::default());
        self.desired.session_opened();
    }

    /// Ends the session. Unsent reports are dropped, because the next session begins with an
    /// inventory.
    pub fn session_closed(&mut self) {
        self.session = None;
        for entry in self.entries.values_mut() {
            entry.report.forget_session();
            if let Some(end) = &mut entry.end {
                end.forget_session();
            }
            entry.report.due = None;
        }
        self.due.clear();
    }

    /// The session's id, after `Welcome`.
    pub fn session_id(&self) -> Option<u64> {
        self.session.as_ref().and_then(Session::id)
    }

    pub(crate) fn on_welcome(&mut self, welcome: Welcome, epoch: u64) -> Result<(), SessionError> {
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
        self.has_met_hub = true;
        self.awaits_desired = true;
        Ok(())
    }

    /// The hub has persisted all messages up to this one.
    pub(crate) fn on_observed_ack(&mut self, sequence: u64, now: Time) -> Vec<Action> {
        let Some(session) = &mut self.session else { return Vec::new() };
        let later = session.unacknowledged.split_off(&sequence.saturating_add(1));
        let reported = std::mem::replace(&mut session.unacknowledged, later);
        let mut actions = Vec::new();
        for reported in reported.into_values().flatten() {
            self.mark_persisted(&reported);
            actions.extend(self.replan(&reported.uid, now));
        }
        actions
    }

    fn mark_persisted(&mut self, reported: &ReportedState) {
        let Some(entry) = self.entries.get_mut(&reported.uid) else { return };
        if let Some(end) = &mut entry.end
            && end.observation.attempt == reported.attempt
            && end.observation.state() == reported.state
        {
            end.persisted = Persisted::InThisSession;
        }
        let buried = self.desired.get(&reported.uid).is_some_and(|desired| {
            desired.phase == switchyard_proto::v1::Phase::Absent
                && desired.attempt == reported.attempt
        });
        // An object may still be created by a request without an answer. Then this report is from
        // before the tombstone, and the hub waits for another.
        if reported.state == State::Gone && buried && entry.is_gone() {
            self.desired.forget(&reported.uid);
        }
    }
}
