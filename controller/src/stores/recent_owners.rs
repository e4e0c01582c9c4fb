//! A short-lived cache of owners whose kinds are not watched, so that many children of one owner
//! cause one request.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use switchyard_jobs::meta::Controller;

use switchyard_platform::object::Object;

/// An owner as the API server returned it. `None`: it is deleted or may not be read.
pub(crate) type Found = Option<Arc<Object>>;

/// Capacity. Little is kept of an owner, so this takes a few MiB.
const KEPT: usize = 4096;
/// How long an answer holds. An owner's own owner hardly ever changes, and its queue seldom.
const HOLDS: Duration = Duration::from_secs(30);

/// The cached answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentOwners(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    // By uid of the owner. A reference must equal the first one to find its answer.
    answers: BTreeMap<String, Answer>,
    // Oldest first. A replaced answer's entry may still be here.
    order: VecDeque<(Instant, String)>,
    // Kinds that may not be read.
    forbidden: BTreeSet<(String, String)>,
}

#[derive(Debug)]
struct Answer {
    at: Instant,
    namespace: String,
    owner: Controller,
    found: Found,
}

impl RecentOwners {
    /// The cached answer, if it still holds.
    pub(crate) fn get(&self, namespace: &str, owner: &Controller, now: Instant) -> Option<Found> {
        let state = self.0.lock();
        let answer = state.answers.get(&owner.uid)?;
        let fits = answer.namespace == namespace && answer.owner == *owner && holds(answer.at, now);
        fits.then(|| answer.found.clone())
    }

    /// Caches an answer and evicts expired ones, or the oldest.
    pub(crate) fn keep(&self, namespace: &str, owner: &Controller, found: Found, now: Instant) {
        let mut state = self.0.lock();
        while state.order.len() >= KEPT
            || state.order.front().is_some_and(|(at, _)| !holds(*at, now))
        {
            let Some((at, uid)) = state.order.pop_front() else { break };
            if state.answers.get(&uid).is_some_and(|answer| answer.at == at) {
                state.answers.remove(&uid);
            }
        }
        state.order.push_back((now, owner.uid.clone()));
        let answer =
            Answer { at: now, namespace: namespace.to_owned(), owner: owner.clone(), found };
        state.answers.insert(owner.uid.clone(), answer);
    }

    /// Records whether owners of a kind may be read. Returns whether it became forbidden just now.
    pub(crate) fn is_forbidden_now(&self, owner: &Controller, forbidden: bool) -> bool {
        let mut state = self.0.lock();
        if !forbidden && state.forbidden.is_empty() {
            return false;
        }
        let kind = (owner.api_version.clone(), owner.kind.clone());
        if forbidden {
            return state.forbidden.insert(kind);
        }
        state.forbidden.remove(&kind);
        false
    }
}

fn holds(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < HOLDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: &str) -> Controller {
        let text = str::to_owned;
        Controller { api_version: text("v1"), kind: text("Kind"), name: text("a"), uid: text(uid) }
    }

    #[test]
    fn answer_expires_and_matches_its_reference_only() {
        let (recent, begin) = (RecentOwners::default(), Instant::now());
        recent.keep("ns", &owner("u"), None, begin);
        let answered = |namespace: &str, owner: &Controller, after: Duration| {
            recent.get(namespace, owner, begin + after).is_some()
        };
        assert!(answered("ns", &owner("u"), Duration::ZERO));
        assert!(answered("ns", &owner("u"), HOLDS - Duration::from_secs(1)));
        assert!(!answered("ns", &owner("u"), HOLDS));
        assert!(!answered("other", &owner("u"), Duration::ZERO));
        assert!(!answered("ns", &owner("v"), Duration::ZERO));
        let forged = Controller { name: "b".to_owned(), ..owner("u") };
        assert!(!answered("ns", &forged, Duration::ZERO));
    }

    #[test]
    fn oldest_and_expired_answers_are_evicted() {
        let (recent, begin) = (RecentOwners::default(), Instant::now());
        let at = |i: usize| begin + Duration::from_millis(i as u64);
        for i in 0..=KEPT {
            recent.keep("ns", &owner(&i.to_string()), None, at(i));
        }
        assert_eq!(recent.0.lock().answers.len(), KEPT);
        assert!(recent.get("ns", &owner("0"), at(KEPT)).is_none());
        assert!(recent.get("ns", &owner("1"), at(KEPT)).is_some());
        recent.keep("ns", &owner("late"), None, at(KEPT) + HOLDS);
        recent.keep("ns", &owner("late"), None, at(KEPT) + HOLDS);
        let sizes = |state: &State| (state.answers.len(), state.order.len());
        assert_eq!(sizes(&recent.0.lock()), (1, 2));
        for _ in 0..2 * KEPT {
            recent.keep("ns", &owner("late"), None, at(KEPT) + HOLDS);
        }
        assert_eq!(sizes(&recent.0.lock()), (1, KEPT));
    }

    #[test]
    fn forbidden_kind_is_reported_once() {
        let recent = RecentOwners::default();
        let news = |forbidden| recent.is_forbidden_now(&owner("u"), forbidden);
        assert_eq!(
            [news(true), news(true), news(false), news(false), news(true)],
            [true, false, false, false, true]
        );
    }
}
