//! The answers of dry runs, remembered for a while. Pure but for the locks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::answer::Answer;
use super::pods::Trial;
use switchyard_ledger::Time;

/// Shapes of pods of which answers are remembered.
const MAX_SHAPES: usize = 1_024;

/// The answer for one shape of pods.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    template: [u8; 32],
    answer: Answer,
    until: Time,
}

impl Remembered {
    pub(super) fn new(trial: &Trial, answer: Answer, now: Time) -> Self {
        let lasts = match &answer {
            Answer::Accepted | Answer::MayNot => Duration::from_secs(300),
            // The hub asks again later than this, and then the cluster is to look again.
            Answer::Refused { .. } => Duration::from_secs(2),
            Answer::Unknown(_) => Duration::from_secs(30),
        };
        Self { template: trial.template, answer, until: now + lasts }
    }

    /// The answer for a pod, while it counts.
    pub(super) fn of(&self, trial: &Trial, now: Time) -> Option<&Answer> {
        let own = matches!(&self.answer, Answer::Refused { own: true, .. });
        let counts = now < self.until && (!own || self.template == trial.template);
        counts.then_some(&self.answer)
    }
}

/// One shape's answer. It is locked while it is asked for: equal jobs wait for one dry run.
pub(super) type Slot = Arc<tokio::sync::Mutex<Option<Remembered>>>;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Known {
    slots: Mutex<BTreeMap<[u8; 32], (Time, Slot)>>,
}

impl Known {
    /// The slot of a pod's shape.
    pub(super) fn slot(&self, trial: &Trial, now: Time) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
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
    use switchyard_ledger::Trouble;

    fn trial(shape: u8, template: u8) -> Trial {
        let pod = serde_json::Value::Null;
        let (template, shape) = ([template; 32], [shape; 32]);
        Trial {
            namespace: "ns".to_owned(),
            pod,
            fidelity: Fidelity::Same,
            references: Vec::new(),
            template,
            shape,
        }
    }

    fn refused(own: bool) -> Answer {
        Answer::Refused { trouble: Trouble::refused("Why", "no"), own }
    }

    #[test]
    fn answers_count_for_their_time_and_templates() {
        let (one, other) = (trial(1, 1), trial(1, 2));
        for (case, answer, seconds, shared) in [
            ("accepted", Answer::Accepted, 300, true),
            ("a class is missing", refused(false), 2, true),
            ("a policy denies it", refused(true), 2, false),
            ("no verdict", Answer::Unknown("no".to_owned()), 30, true),
            ("no right", Answer::MayNot, 300, true),
        ] {
            let now = Time::from_secs(1_000);
            let remembered = Remembered::new(&one, answer, now);
            assert!(
                remembered.of(&one, now + Duration::from_secs(seconds - 1)).is_some(),
                "{case}"
            );
            assert!(remembered.of(&one, now + Duration::from_secs(seconds)).is_none(), "{case}");
            assert_eq!(remembered.of(&other, now).is_some(), shared, "{case}");
        }
    }

    #[test]
    fn only_so_many_shapes_are_remembered() {
        let known = Known::default();
        for shape in 0..u64::try_from(MAX_SHAPES).unwrap() + 10 {
            let mut trial = trial(0, 0);
            trial.shape[..8].copy_from_slice(&shape.to_be_bytes());
            known.slot(&trial, Time::from_secs(shape));
        }
        let slots = known.slots.lock().unwrap();
        assert_eq!(slots.len(), MAX_SHAPES);
        assert!(slots.values().all(|(used, _)| *used >= Time::from_secs(10)), "the oldest go");
    }
}
