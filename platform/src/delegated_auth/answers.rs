//! A short-lived cache of the API server's answers.

use std::{collections::HashMap, time::Duration};

use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// How long an answer counts, allowed or not. Kubernetes' own aggregated servers use the same 10 s.
/// A granted, lost or revoked right takes effect after this at the latest.
pub(super) const KEPT: Duration = Duration::from_secs(10);
/// Bound of the cache. It holds the callers of the last [`KEPT`]: a few scrapers and API servers.
const MOST: usize = 1024;

/// A question by its digest, because questions hold secrets and may be long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct QuestionDigest([u8; 32]);

impl QuestionDigest {
    /// The digest of a question. `None` if it cannot be serialized; such a question is not cached.
    pub(super) fn of(question: &impl Serialize) -> Option<Self> {
        let text = serde_json::to_vec(question).ok()?;
        Some(Self(Sha256::digest(&text).into()))
    }
}

/// Cached answers to questions of one kind.
#[derive(Debug)]
pub(super) struct AnswerCache<V> {
    kept: HashMap<QuestionDigest, (Instant, V)>,
}

impl<V> Default for AnswerCache<V> {
    fn default() -> Self {
        Self { kept: HashMap::new() }
    }
}

impl<V: Clone> AnswerCache<V> {
    /// The answer, if it still counts.
    pub(super) fn get(&self, asked: QuestionDigest, now: Instant) -> Option<V> {
        let (since, answer) = self.kept.get(&asked)?;
        (now.saturating_duration_since(*since) < KEPT).then(|| answer.clone())
    }

    /// Caches an answer. A full cache drops expired answers, or else all.
    pub(super) fn keep(&mut self, asked: QuestionDigest, answer: V, now: Instant) {
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

    fn asked(question: usize) -> QuestionDigest {
        QuestionDigest::of(&question).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn answer_expires() {
        let (mut answers, now) = (AnswerCache::default(), Instant::now());
        answers.keep(asked(1), "yes", now);
        let last = now + KEPT.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!((answers.get(asked(1), last), answers.get(asked(2), now)), (Some("yes"), None));
        assert_eq!(answers.get(asked(1), now + KEPT), None);
        answers.keep(asked(1), "no", now + KEPT);
        assert_eq!(answers.get(asked(1), now + KEPT), Some("no"));
    }

    #[tokio::test(start_paused = true)]
    async fn cache_is_bounded_and_keeps_the_newest() {
        let (mut answers, now) = (AnswerCache::default(), Instant::now());
        for question in 0..3 * MOST {
            answers.keep(asked(question), question, now);
            assert!(answers.kept.len() <= MOST);
            assert_eq!(answers.get(asked(question), now), Some(question));
        }
        answers.keep(asked(0), 0, now + KEPT);
        assert!(answers.kept.len() <= MOST);
    }
}
