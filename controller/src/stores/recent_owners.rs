//! What the API server has said of owners that are not watched, for a short time: what happens to many children of one owner
//! is not as many questions about it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use switchyard_jobs::meta::Controller;

use switchyard_platform::object::Object;

/// An owner as the API server had it; none: it is gone, or may not be read.
pub(crate) type Found = Option<Arc<Object>>;

/// Answers kept at once. Of an owner little is kept, so this is a few MiB.
const KEPT: usize = 4096;
/// How long each holds. Who owns an owner hardly ever changes, and its queue (of kinds that are not watched) seldom.
const HOLDS: Duration = Duration::from_secs(30);

/// The answers of late. The default has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    // By the uid of the owner. A reference that is not as the one before it does not find that one's answer.
    answers: BTreeMap<String, Answer>,
    // The oldest first. Each answer has its line here; one that another has replaced may have one still.
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

impl Recent {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was said of the owner, if that was of late.
    pub(super) fn get(&self, namespace: &str, owner: &Controller, now: Instant) -> Option<Found> {
        let state = self.state();
        let answer = state.answers.get(&owner.uid)?;
        let fits = answer.namespace == namespace && answer.owner == *owner && holds(answer.at, now);
        fits.then(|| answer.found.clone())
    }

    /// Keeps an answer, and no more of the oldest than there is room for.
    pub(super) fn keep(&self, namespace: &str, owner: &Controller, found: Found, now: Instant) {
        let mut state = self.state();
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

    /// Notes whether owners of that kind may be read; whether it is news that they may not.
    pub(super) fn is_forbidden_now(&self, owner: &Controller, forbidden: bool) -> bool {
        let mut state = self.state();
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
    fn an_answer_holds_for_a_while_and_for_its_own_question_only() {
        let (recent, begin) = (Recent::default(), Instant::now());
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
    fn the_oldest_go_where_there_are_too_many_and_all_that_hold_no_more() {
        let (recent, begin) = (Recent::default(), Instant::now());
        let at = |i: usize| begin + Duration::from_millis(i as u64);
        for i in 0..=KEPT {
            recent.keep("ns", &owner(&i.to_string()), None, at(i));
        }
        assert_eq!(recent.state().answers.len(), KEPT);
        assert!(recent.get("ns", &owner("0"), at(KEPT)).is_none());
        assert!(recent.get("ns", &owner("1"), at(KEPT)).is_some());
        recent.keep("ns", &owner("late"), None, at(KEPT) + HOLDS);
        recent.keep("ns", &owner("late"), None, at(KEPT) + HOLDS);
        let sizes = |state: &State| (state.answers.len(), state.order.len());
        assert_eq!(sizes(&recent.state()), (1, 2));
        for _ in 0..2 * KEPT {
            recent.keep("ns", &owner("late"), None, at(KEPT) + HOLDS);
        }
        assert_eq!(sizes(&recent.state()), (1, KEPT));
    }

    #[test]
    fn that_a_kind_may_not_be_read_is_news_once_until_it_may() {
        let recent = Recent::default();
        let news = |forbidden| recent.is_forbidden_now(&owner("u"), forbidden);
        assert_eq!(
            [news(true), news(true), news(false), news(false), news(true)],
            [true, false, false, false, true]
        );
    }
}
