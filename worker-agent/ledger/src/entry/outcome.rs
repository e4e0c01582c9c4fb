//! Applies the outcome of an action.

use super::Entry;
use crate::actions::{Action, Outcome, Rejection, Verb};
use crate::objects::{Object, ObjectKind, Time};

impl Entry {
    /// Applies the outcome of an action. `attempt` is the one that the action was for.
    pub(crate) fn on_outcome(
        &mut self,
        action: &Action,
        outcome: Outcome,
        attempt: u64,
        now: Time,
    ) {
        if let (Verb::OpenGate { target, at }, Outcome::Object(_) | Outcome::Rejected(_)) =
            (&action.verb, &outcome)
        {
            self.gate_opened = Some((target.uid.clone(), *at));
        }
        let answered =
            !matches!(outcome, Outcome::Unknown(_) | Outcome::NotApplied(_) | Outcome::Rejected(_));
        let creates = matches!(action.verb, Verb::Create { .. });
        if let Verb::Reread { target } = &action.verb
            && answered
        {
            self.slot(action.kind).clear_missing(&target.uid);
        }
        match outcome {
            Outcome::Object(object) => {
                match action.verb {
                    Verb::Find { .. } => self.slot(action.kind).found(),
                    _ => self.slot(action.kind).succeeded(),
                }
                if let (ObjectKind::Job, Verb::Create { attempt, payload, .. }) =
                    (action.kind, &action.verb)
                {
                    self.clear_failure(ObjectKind::Job);
                    self.complete_group = may_change(&object).then(|| (*attempt, payload.clone()));
                }
                self.apply(*object);
            }
            Outcome::Accepted => self.slot(action.kind).succeeded(),
            Outcome::Gone if matches!(action.verb, Verb::Find { .. }) => {
                self.slot(action.kind).not_found(now)
            }
            Outcome::Gone => {
                self.slot(action.kind).succeeded();
                if let Some(target) = action.verb.target() {
                    self.remove(action.kind, target, now);
                }
            }
            Outcome::Occupied { by } => {
                self.slot(action.kind).refused(now);
                let text = format!(
                    "the name is still taken by what was made for workload {by}; waiting for it to go"
                );
                self.rejection =
                    Some((attempt, action.kind, Rejection::waiting("NameInUse", text)));
            }
            // A refused priority neither moves the job to another cluster nor blocks its Workload.
            Outcome::Rejected(rejection) => match &action.verb {
                Verb::SetPriority { priority, .. } => {
                    self.slot(action.kind).succeeded();
                    self.refused_priority = Some(priority.clone());
                }
                Verb::OpenGate { .. } => self.slot(action.kind).succeeded(),
                _ => {
                    // A refused `Find` does not show whether the object was created.
                    if creates {
                        self.slot(action.kind).refused(now);
                    } else {
                        self.slot(action.kind).failed(now);
                    }
                    self.rejection = Some((attempt, action.kind, rejection));
                }
            },
            Outcome::NotApplied(why) if creates => {
                self.slot(action.kind).refused(now);
                self.creation_failed(action.kind, attempt, &why);
            }
            Outcome::Unknown(why) if creates => {
                self.slot(action.kind).unanswered(now);
                self.creation_failed(action.kind, attempt, &why);
            }
            Outcome::NotApplied(_) | Outcome::Unknown(_) => self.slot(action.kind).failed(now),
        }
    }
}

fn may_change(object: &Object) -> bool {
    matches!(object, Object::Job(job) if job.may_change)
}
