//! Caches the answers of dry runs. Pure except for its locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchyard_ledger::Time;

use super::answer::Answer;
use super::pods::TrialPod;

/// The most shapes with cached answers.
const MAX_SHAPES: usize = 1_024;

/// The answer for one shape of pods.
#[derive(Clone, Debug)]
pub(super) struct CachedAnswer {
    template: [u8; 32],
    answer: Answer,
    until: Time,
}

impl CachedAnswer {
    pub(super) fn new(trial: &TrialPod, answer: Answer, now: Time) -> Self {
        let lasts = match &answer {
            Answer::Accepted | Answer::MayNot => Duration::from_secs(300),
            // Shorter than the hub's delay before it asks again, so that the cluster decides again.
            Answer::Refused { .. } => Duration::from_secs(2),
            Answer::Unknown(_) => Duration::from_secs(30),
        };
        Self { template: trial.template, answer, until: now + lasts }
    }

    /// The answer for a pod, if it is still valid.
    pub(super) fn answer_for(&self, trial: &TrialPod, now: Time) -> Option<&Answer> {
        let own = matches!(&self.answer, Answer::Refused { own: true, .. });
        let counts = now < self.until && (!own || self.template == trial.template);
        counts.then_some(&self.answer)
    }
}

/// The answer of one shape. It stays locked during the dry run, so that equal jobs wait for one.
pub(super) type AnswerSlot = Arc<tokio::sync::Mutex<Option<CachedAnswer>>>;

#[derive(Debug, Default)]
pub(super) struct AnswerCache {
    slots: Mutex<BTreeMap<[u8; 32], (Time, AnswerSlot)>>,
}

impl AnswerCache {
    /// The slot of a pod's shape.
    pub(super) fn slot(&self, trial: &TrialPod, now: Time) -> AnswerSlot {
        let mut slots = self.slots.lock();
        if !slots.contains_key(&trial.shape) && slots.len() >= MAX_SHAPES {
            let oldest = slots.iter().min_by_key(|(_, (used, _))| *used).map(|(shape, _)| *shape);
            oldest.map(|shape| slots.remove(&shape));
        }
        let (used, slot) = slots.entry(trial.shape).or_default();
        *used = now;
        slot.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pods::Fidelity;
    use super::*;
    use switchyard_ledger::Rejection;

    fn trial(shape: u8, template: u8) -> TrialPod {
        let pod = serde_json::Value::Null;
        let (template, shape) = ([template; 32], [shape; 32]);
        TrialPod {
            namespace: "ns".to_owned(),
            pod,
            fidelity: Fidelity::Same,
            references: Vec::new(),
            template,
            shape,
        }
    }

    fn refused(own: bool) -> Answer {
        Answer::Refused { trouble: Rejection::refused("Why", "no"), own }
    }

    #[test]
    fn answers_are_valid_for_their_time_and_template() {
        let (one, other) = (trial(1, 1), trial(1, 2));
        for (case, answer, seconds, shared) in [
            ("accepted", Answer::Accepted, 300, true),
            ("a class is missing", refused(false), 2, true),
            ("a policy denies it", refused(true), 2, false),
            ("no verdict", Answer::Unknown("no".to_owned()), 30, true),
            ("no right", Answer::MayNot, 300, true),
        ] {
            let now = Time::from_secs(1_000);
            let remembered = CachedAnswer::new(&one, answer, now);
            assert!(
                remembered.answer_for(&one, now + Duration::from_secs(seconds - 1)).is_some(),
                "{case}"
            );
            assert!(
                remembered.answer_for(&one, now + Duration::from_secs(seconds)).is_none(),
                "{case}"
            );
            assert_eq!(remembered.answer_for(&other, now).is_some(), shared, "{case}");
        }
    }

    #[test]
    fn remembered_shapes_are_bounded() {
        let known = AnswerCache::default();
        for shape in 0..u64::try_from(MAX_SHAPES).unwrap() + 10 {
            let mut trial = trial(0, 0);
            trial.shape[..8].copy_from_slice(&shape.to_be_bytes());
            known.slot(&trial, Time::from_secs(shape));
        }
        let slots = known.slots.lock();
        assert_eq!(slots.len(), MAX_SHAPES);
        assert!(slots.values().all(|(used, _)| *used >= Time::from_secs(10)), "the oldest go");
    }
}
