//! What is under way for one object of a workload, and what may yet come of what was.
//!
//! A creation that was not answered may have happened, or happen later, also after it was tried again and that try was
//! answered. Until it cannot come any more, nobody is told that nothing is there, and a job that has ended keeps its name.

use super::model::{Time, Verb};

/// First wait after an action failed; doubles up to [`MAX_RETRY`].
const FIRST_RETRY: Time = Time::from_millis(250);
/// Longest wait between two tries.
const MAX_RETRY: Time = Time::from_secs(30);
/// For how long a creation that was not answered may yet happen, from when we gave it up: API servers give requests up after
/// a minute (`--request-timeout`).
const MAY_COME: Time = Time::from_secs(60);
/// A deletion that shows no effect for this long is asked for again.
const DELETE_AGAIN: Time = Time::from_secs(30);

/// What is under way for one object.
#[derive(Debug, Default)]
pub(super) struct Slot {
    busy: bool,
    failures: u32,
    not_before: Time,
    deleted: Option<(String, Time)>,
    /// A creation under way, or one that failed although it may have happened: how to look for what it made.
    creation: Option<Verb>,
    /// When it was last asked for, or given up without an answer.
    asked: Time,
    /// The last of earlier creations that were not answered, and until when it may yet happen.
    late: Option<(Verb, Time)>,
    /// The object, by uid, that a list lacked: it is read again until an answer says whether it is there.
    missed: Option<String>,
}

impl Slot {
    /// A list lacked this object.
    pub(super) fn miss(&mut self, uid: &str) {
        self.missed = Some(uid.to_owned());
    }

    /// Whether this object is to be read again now.
    pub(super) fn is_missed(&self, uid: &str, now: Time) -> bool {
        self.free(now) && self.missed.as_deref() == Some(uid)
    }

    /// It was read again.
    pub(super) fn reread(&mut self, uid: &str) {
        self.missed.take_if(|missed| missed == uid);
    }

    /// Whether an action may be started now.
    pub(super) fn free(&self, now: Time) -> bool {
        !self.busy && now >= self.not_before
    }

    /// When to look again, if only time is in the way.
    pub(super) fn wake(&self, now: Time) -> Option<Time> {
        let again = self.deleted.as_ref().map(|(_, at)| *at + DELETE_AGAIN);
        let lapses = self.late.as_ref().map(|(_, until)| *until + MAY_COME);
        let times =
            [Some(self.not_before), again, self.comes_until(), lapses].into_iter().flatten();
        times.filter(|at| !self.busy && *at > now).min()
    }

    /// Whether this object's deletion was asked for lately.
    pub(super) fn deletion_sent(&self, uid: &str, now: Time) -> bool {
        self.deleted.as_ref().is_some_and(|(sent, at)| sent == uid && now < *at + DELETE_AGAIN)
    }

    /// The attempt of a creation that may have happened, or yet happen.
    pub(super) fn creating(&self) -> Option<u64> {
        match self.uncertain() {
            Some(Verb::Find { attempt, .. }) => Some(*attempt),
            _ => None,
        }
    }

    /// The search for what an unanswered creation may have made.
    pub(super) fn search(&self) -> Option<Verb> {
        self.uncertain().cloned().filter(|_| !self.busy)
    }

    /// Whether nothing is there, or comes to be, that is not known.
    pub(super) fn certain(&self) -> bool {
        !self.busy && self.uncertain().is_none()
    }

    /// Whether another one than the object that is there may come: of several creations one has made that, and not all were
    /// answered.
    pub(super) fn may_come_again(&self, now: Time) -> bool {
        self.late.is_some() && self.comes_until().is_some_and(|until| now < until)
    }

    /// The object is there. What was to come until a minute ago has found its name taken, or the watch, which is taken to be
    /// less than a minute behind, would have told of it: it is not kept in mind any longer.
    pub(super) fn lapse(&mut self, now: Time) {
        self.late.take_if(|(_, until)| *until + MAY_COME <= now);
    }

    fn uncertain(&self) -> Option<&Verb> {
        self.creation.as_ref().or_else(|| self.late.as_ref().map(|(search, _)| search))
    }

    /// Until when a creation that was not answered may happen.
    fn comes_until(&self) -> Option<Time> {
        let last = self.creation.as_ref().map(|_| self.asked + MAY_COME);
        last.max(self.late.as_ref().map(|(_, until)| *until))
    }

    pub(super) fn begin(&mut self, verb: &Verb, now: Time) {
        self.busy = true;
        match verb.clone() {
            Verb::Delete { target, .. } => self.deleted = Some((target.uid, now)),
            Verb::Create { namespace, name, attempt, payload, .. } => {
                self.outlives();
                self.creation = Some(Verb::Find { namespace, name, attempt, payload });
                self.asked = now;
            }
            Verb::Find { .. }
            | Verb::Release { .. }
            | Verb::SetActive { .. }
            | Verb::SetFence { .. }
            | Verb::SetPriority { .. }
            | Verb::OpenGate { .. }
            | Verb::Reread { .. } => {}
        }
    }

    /// The last creation has had no answer, and what is learned of another says nothing of it.
    fn outlives(&mut self) {
        if let Some(search) = self.creation.take() {
            self.late = Some((search, self.asked + MAY_COME));
        }
    }

    /// The API server has answered.
    pub(super) fn succeeded(&mut self) {
        self.creation = None;
        self.busy = false;
        self.failures = 0;
        self.not_before = Time::ZERO;
    }

    /// What an unanswered creation was to make is there: of several, one of them made it.
    pub(super) fn found(&mut self) {
        if self.late.is_some() {
            self.outlives();
        }
        self.succeeded();
    }

    /// What unanswered creations were to make is not there. While it may yet come, it is looked for again.
    pub(super) fn not_found(&mut self, now: Time) {
        match self.comes_until().filter(|until| now < *until) {
            Some(until) => {
                self.failed(now);
                self.not_before = self.not_before.min(until);
            }
            None => {
                self.late = None;
                self.succeeded();
            }
        }
    }

    /// The API server has said no, or was never asked.
    pub(super) fn refused(&mut self, now: Time) {
        self.creation = None;
        self.failed(now);
    }

    /// A creation has had no answer. It may have waited long for its turn.
    pub(super) fn unanswered(&mut self, now: Time) {
        self.asked = now;
        self.failed(now);
    }

    /// It is tried again later.
    pub(super) fn failed(&mut self, now: Time) {
        self.busy = false;
        self.deleted = None;
        let wait = FIRST_RETRY.saturating_mul(1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + wait.min(MAX_RETRY);
    }

    /// Something changed: what failed may be tried again at once.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
        self.not_before = Time::ZERO;
    }
}
