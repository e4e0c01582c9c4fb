//! The action that is running for one object of a workload, and late effects of earlier actions.
//!
//! A creation without an answer may have taken effect, or may take effect later, even after a
//! second try was answered. Until it no longer can, the agent does not report that the object is
//! gone, and a job that has ended keeps its name.

use crate::actions::Verb;
use crate::backoff::Backoff;
use crate::objects::Time;

/// The delay before a failed action is tried again.
const RETRY: Backoff = Backoff::new(Time::from_millis(250), Time::from_secs(30));
/// How long after the agent gave up on it an unanswered creation may still take effect. API servers
/// abort requests after a minute (`--request-timeout`).
const MAX_CREATION_DELAY: Time = Time::from_secs(60);
/// A deletion without effect is repeated after this.
const DELETE_RETRY: Time = Time::from_secs(30);

/// The action state of one object.
#[derive(Debug, Default)]
pub(crate) struct ActionSlot {
    busy: bool,
    failures: u32,
    not_before: Time,
    deleted: Option<(String, Time)>,
    /// The last creation, until it is answered, in the form of the `Find` that looks for its
    /// object.
    creation: Option<Verb>,
    /// When the creation was sent, or when the agent gave up on it.
    asked: Time,
    /// The newest earlier creation without an answer, and until when it may take effect.
    late: Option<(Verb, Time)>,
    /// The uid of an object that a list did not contain. The agent reads it until it gets an
    /// answer.
    missing: Option<String>,
}

impl ActionSlot {
    pub(crate) fn note_missing(&mut self, uid: &str) {
        self.missing = Some(uid.to_owned());
    }

    pub(crate) fn must_reread(&self, uid: &str, now: Time) -> bool {
        self.is_free(now) && self.missing.as_deref() == Some(uid)
    }

    pub(crate) fn clear_missing(&mut self, uid: &str) {
        self.missing.take_if(|missed| missed == uid);
    }

    /// Whether an action may start now.
    pub(crate) fn is_free(&self, now: Time) -> bool {
        !self.busy && now >= self.not_before
    }

    /// When to plan again if only time stands in the way.
    pub(crate) fn next_wakeup(&self, now: Time) -> Option<Time> {
        let again = self.deleted.as_ref().map(|(_, at)| *at + DELETE_RETRY);
        let lapses = self.late.as_ref().map(|(_, until)| *until + MAX_CREATION_DELAY);
        let times =
            [Some(self.not_before), again, self.may_apply_until(), lapses].into_iter().flatten();
        times.filter(|at| !self.busy && *at > now).min()
    }

    /// Whether a deletion of this object was sent within [`DELETE_RETRY`].
    pub(crate) fn was_deleted_recently(&self, uid: &str, now: Time) -> bool {
        self.deleted.as_ref().is_some_and(|(sent, at)| sent == uid && now < *at + DELETE_RETRY)
    }

    /// The attempt of a creation that may have taken effect, or still may.
    pub(crate) fn uncertain_attempt(&self) -> Option<u64> {
        match self.uncertain() {
            Some(Verb::Find { attempt, .. }) => Some(*attempt),
            _ => None,
        }
    }

    /// The `Find` that looks for the object of an unanswered creation.
    pub(crate) fn find_verb(&self) -> Option<Verb> {
        self.uncertain().cloned().filter(|_| !self.busy)
    }

    /// Whether no action is running and no creation is unanswered: what the watch shows is all
    /// there is.
    pub(crate) fn is_certain(&self) -> bool {
        !self.busy && self.uncertain().is_none()
    }

    /// Whether a second object may appear beside the existing one: several creations were sent, one
    /// created the object, and not all were answered.
    pub(crate) fn may_be_created_again(&self, now: Time) -> bool {
        self.late.is_some() && self.may_apply_until().is_some_and(|until| now < until)
    }

    /// Forgets the late creation of an object that exists. Call it only for such an object.
    ///
    /// At the end of its own time, the creation found the name taken, or it took effect. A minute
    /// later a watch would have reported that: watches lag by less than a minute.
    pub(crate) fn expire_late_creation(&mut self, now: Time) {
        self.late.take_if(|(_, until)| *until + MAX_CREATION_DELAY <= now);
    }

    fn uncertain(&self) -> Option<&Verb> {
        self.creation.as_ref().or_else(|| self.late.as_ref().map(|(search, _)| search))
    }

    /// Until when an unanswered creation may take effect.
    fn may_apply_until(&self) -> Option<Time> {
        let last = self.creation.as_ref().map(|_| self.asked + MAX_CREATION_DELAY);
        last.max(self.late.as_ref().map(|(_, until)| *until))
    }

    pub(crate) fn begin(&mut self, verb: &Verb, now: Time) {
        self.busy = true;
        match verb.clone() {
            Verb::Delete { target, .. } => self.deleted = Some((target.uid, now)),
            Verb::Create { namespace, name, attempt, payload, .. } => {
                self.move_to_late();
                self.creation = Some(Verb::Find { namespace, name, attempt, payload });
                self.asked = now;
            }
            Verb::Find { .. }
            | Verb::RemoveFinalizer { .. }
            | Verb::SetActive { .. }
            | Verb::SetFence { .. }
            | Verb::SetPriority { .. }
            | Verb::OpenGate { .. }
            | Verb::Reread { .. } => {}
        }
    }

    /// Keeps the unanswered creation in mind: the answer to another creation says nothing about it.
    fn move_to_late(&mut self) {
        if let Some(search) = self.creation.take() {
            self.late = Some((search, self.asked + MAX_CREATION_DELAY));
        }
    }

    /// The API server answered.
    pub(crate) fn succeeded(&mut self) {
        self.creation = None;
        self.busy = false;
        self.failures = 0;
        self.not_before = Time::ZERO;
    }

    /// The object of an unanswered creation exists. If there were several creations, one of them
    /// made it, and the others may still take effect.
    pub(crate) fn found(&mut self) {
        if self.late.is_some() {
            self.move_to_late();
        }
        self.succeeded();
    }

    /// The object of an unanswered creation does not exist. The agent looks again while it may
    /// still appear.
    pub(crate) fn not_found(&mut self, now: Time) {
        match self.may_apply_until().filter(|until| now < *until) {
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

    /// The API server refused a creation, or never received it.
    pub(crate) fn refused(&mut self, now: Time) {
        self.creation = None;
        self.failed(now);
    }

    /// A creation got no answer. It may have waited long before it was sent.
    pub(crate) fn unanswered(&mut self, now: Time) {
        self.asked = now;
        self.failed(now);
    }

    /// The action failed and is tried again later.
    pub(crate) fn failed(&mut self, now: Time) {
        self.busy = false;
        self.deleted = None;
        self.not_before = now + RETRY.delay(self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    /// Something changed, so a failed action may be tried again at once.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
        self.not_before = Time::ZERO;
    }
}
