//! Answers of the API server, kept for a short while, so that one who asks often costs it little.

use std::{collections::HashMap, time::Duration};

use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// How long an answer counts, whatever it says: what Kubernetes' own servers behind an API server take. Whoever is given
/// or loses a right, or whose token is revoked, notices after this at the latest.
pub(super) const KEPT: Duration = Duration::from_secs(10);
/// So many answers are kept. They belong to whoever asked within [`KEPT`]: scrapers and API servers, a few each.
const MOST: usize = 1024;

/// A question by its digest: questions hold secrets and may be long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked([u8; 32]);

impl Asked {
    /// The digest of what is asked; none if it cannot be written as JSON, which makes it a question to be asked each time.
    pub(super) fn of(question: &impl Serialize) -> Option<Self> {
        let text = serde_json::to_vec(question).ok()?;
        Some(Self(Sha256::digest(&text).into()))
    }
}

/// Answers to questions of one sort.
#[derive(Debug)]
pub(super) struct Answers<V> {
    kept: HashMap<Asked, (Instant, V)>,
}

impl<V> Default for Answers<V> {
    fn default() -> Self {
        Self { kept: HashMap::new() }
    }
}

impl<V: Clone> Answers<V> {
    /// What was answered, if that still counts.
    pub(super) fn get(&self, asked: Asked, now: Instant) -> Option<V> {
        let (since, answer) = self.kept.get(&asked)?;
        (now.saturating_duration_since(*since) < KEPT).then(|| answer.clone())
    }

    /// Keeps an answer. Where there are too many, those that count no more go, or all: they are asked for again.
    pub(super) fn keep(&mut self, asked: Asked, answer: V, now: Instant) {
        if self.kept.len() >= MOST {
            self.kept.retain(|_, (since, _)| now.saturating_duration_since(*since) < KEPT);
        }
        if self.kept.len() >= MOST {
            self.kept.clear();
        }
        self.kept.insert(asked, (now, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(question: usize) -> Asked {
        Asked::of(&question).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_a_while() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.keep(asked(1), "yes", now);
        let last = now + KEPT.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!((answers.get(asked(1), last), answers.get(asked(2), now)), (Some("yes"), None));
        assert_eq!(answers.get(asked(1), now + KEPT), None);
        answers.keep(asked(1), "no", now + KEPT);
        assert_eq!(answers.get(asked(1), now + KEPT), Some("no"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_bounded_and_the_last_is_kept() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        for question in 0..3 * MOST {
            answers.keep(asked(question), question, now);
            assert!(answers.kept.len() <= MOST);
            assert_eq!(answers.get(asked(question), now), Some(question));
        }
        answers.keep(asked(0), 0, now + KEPT);
        assert!(answers.kept.len() <= MOST);
    }
}
