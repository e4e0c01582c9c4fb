//! What is still to be shown of each workload's job: per workload one task at a time, the newest wins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use switchyard_dispatcher::Uid;
use tokio::time::Instant;

use super::mirror::{FURTHER, QUIET, SETTLE, Show, WHEN_SLOW};
use super::writes::Write;

/// After a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// What is not urgent waits so many times as long as it takes to show something.
const SLOWER: u32 = 20;
/// The last task counts for one part in so many of how long that takes.
const MEMORY: u32 = 8;

/// What a task is to do: show something, then perhaps end the run.
#[derive(Debug)]
pub(super) struct Work {
    /// The workload.
    pub(super) uid: Uid,
    /// What to show first.
    pub(super) show: Option<Show>,
    /// The end, or the release of quota, to write then.
    pub(super) finish: Option<Write>,
}

#[derive(Debug, Default)]
struct Slot {
    show: Option<Show>,
    finish: Option<Write>,
    due: Option<Instant>,
    /// Since when a task is at it.
    busy: Option<Instant>,
    /// Before this the next status on the way is not shown: the one before was shown a moment ago.
    quiet: Option<Instant>,
    /// How far the job had come in what was shown last.
    step: Step,
    /// When to show that it has come further, whether it is quiet or not.
    further: Option<Instant>,
}

/// How far a job has come: what its user looks for after having sent it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    #[default]
    Nothing,
    /// It has pods.
    Active,
    /// A pod is ready.
    Ready,
}

impl Step {
    fn of(show: &Show) -> Self {
        let Show::Status(status) = show else { return Self::Nothing };
        let some =
            |field: &str| status.get(field).and_then(Value::as_i64).is_some_and(|count| count > 0);
        // Of pods, alone or together, what they say themselves.
        let pods = || match status.get("pods").and_then(Value::as_object) {
            Some(pods) => pods.values().collect(),
            None => vec![&**status],
        };
        let ready = some("ready") || pods().into_iter().any(is_ready);
        match (ready, some("active") || pods().iter().any(|pod| pod["phase"] == "Running")) {
            (true, _) => Self::Ready,
            (false, true) => Self::Active,
            (false, false) => Self::Nothing,
        }
    }
}

/// Whether a pod says that it is ready.
fn is_ready(pod: &Value) -> bool {
    let conditions = pod.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: BTreeMap<Uid, Slot>,
    due: BTreeSet<(Instant, Uid)>,
    /// How long the last tasks took, the wait for a writer's place included.
    took: Duration,
}

impl Slots {
    /// A status to show, soon; later where the API server is slow to take them, so that what changes meanwhile costs no
    /// write.
    pub(super) fn status(&mut self, uid: &Uid, status: Arc<Value>, now: Instant) {
        let slow = (self.took * SLOWER).min(WHEN_SLOW);
        let slot = self.slots.entry(uid.clone()).or_default();
        let show = Show::Status(status);
        if Step::of(&show) > slot.step {
            slot.further.get_or_insert(now + FURTHER.max(slow));
        }
        slot.show = Some(show);
        let at = slot.due.unwrap_or(now + SETTLE.max(slow));
        let at = slot.further.map_or(at, |further| further.min(at));
        self.plan(uid, at);
    }

    /// Nothing runs any more: show that at once, then give the quota back.
    pub(super) fn release(&mut self, write: Write, now: Instant) {
        let uid = write.uid.clone();
        let slot = self.slots.entry(uid.clone()).or_default();
        slot.show = Some(Show::Nothing);
        slot.finish = Some(write);
        self.plan(&uid, now);
    }

    /// The end, with the status to show before; at once.
    pub(super) fn finish(&mut self, write: Write, status: Option<Arc<Value>>, now: Instant) {
        let uid = write.uid.clone();
        let slot = self.slots.entry(uid.clone()).or_default();
        if let Some(status) = status {
            slot.show = Some(Show::Status(status));
        }
        slot.finish = Some(write);
        self.plan(&uid, now);
    }

    /// Another workload has its copy: what was to be shown of the job on the way, that one shows.
    pub(super) fn hand_over(&mut self, uid: &Uid) {
        if let Some(slot) = self.slots.get_mut(uid).filter(|slot| slot.finish.is_none()) {
            slot.show = None;
        }
    }

    /// When the next is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// What is to be done now. Each is busy until [`Self::done`].
    pub(super) fn take(&mut self, now: Instant) -> Vec<Work> {
        let mut work = Vec::new();
        while let Some((at, uid)) = self.due.first().cloned() {
            if at > now {
                break;
            }
            self.due.remove(&(at, uid.clone()));
            let Some(slot) = self.slots.get_mut(&uid) else { continue };
            slot.due = None;
            if slot.show.is_none() && slot.finish.is_none() {
                self.slots.remove(&uid);
                continue;
            }
            slot.busy = Some(now);
            slot.further = None;
            slot.step = slot.show.as_ref().map_or(slot.step, Step::of);
            slot.quiet = slot.finish.is_none().then(|| now + QUIET);
            work.push(Work { uid, show: slot.show.take(), finish: slot.finish.take() });
        }
        work
    }

    /// A task has ended; what it could not show is shown later, unless there is newer.
    pub(super) fn done(&mut self, uid: &Uid, unshown: Option<Show>, now: Instant) {
        let Some(slot) = self.slots.get_mut(uid) else { return };
        if let Some(since) = slot.busy.take() {
            // One that waited for an API server's return says nothing of how fast it is now.
            let took = now.saturating_duration_since(since).min(WHEN_SLOW / SLOWER);
            self.took = (self.took * (MEMORY - 1) + took) / MEMORY;
        }
        let failed = unshown.is_some();
        if slot.show.is_none() {
            slot.show = unshown;
        }
        match slot.quiet {
            _ if failed => self.plan(uid, now + RETRY),
            _ if slot.finish.is_some() => self.plan(uid, now),
            // Remembered until then, even if there is nothing to show yet.
            Some(quiet) => {
                let at = slot.further.map_or(quiet, |further| further.min(quiet));
                self.plan(uid, at.max(now));
            }
            None if slot.show.is_some() => self.plan(uid, now),
            None => {
                self.slots.remove(uid);
            }
        }
    }

    fn plan(&mut self, uid: &Uid, at: Instant) {
        let Some(slot) = self.slots.get_mut(uid) else { return };
        if slot.busy.is_some() {
            return;
        }
        let at = slot.due.map_or(at, |due| due.min(at));
        if let Some(due) = slot.due.replace(at) {
            self.due.remove(&(due, uid.clone()));
        }
        self.due.insert((at, uid.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatcher_task::writes::EndNote;
    use serde_json::json;
    use switchyard_controller::store::Key;
    use switchyard_dispatcher::WorkloadWrite;

    fn write(uid: &str) -> Write {
        let what = WorkloadWrite::Finish { cluster: "a".into(), attempt: 1, success: true };
        Write {
            key: Key::new("ns", "w"),
            uid: uid.into(),
            reservation: None,
            what: Arc::new(what),
            end: Some(EndNote { reason: String::new(), message: String::new() }),
        }
    }

    fn shown(work: &Work) -> String {
        match &work.show {
            Some(Show::Status(status)) => status.to_string(),
            Some(Show::Nothing) => "nothing".into(),
            None => "-".into(),
        }
    }

    #[test]
    fn what_changes_on_the_way_waits_and_the_newest_wins() {
        let (mut slots, now, uid) = (Slots::default(), Instant::now(), Uid::from("u"));
        slots.status(&uid, Arc::new(json!(1)), now);
        slots.status(&uid, Arc::new(json!(2)), now + SETTLE / 2);
        assert!(slots.take(now + SETTLE / 2).is_empty());
        let work = slots.take(now + SETTLE);
        assert_eq!(work.len(), 1, "counted from the first change");
        assert_eq!(shown(&work[0]), "2");
        slots.status(&uid, Arc::new(json!(3)), now + SETTLE);
        assert!(slots.take(now + SETTLE * 9).is_empty(), "one at a time");
        slots.done(&uid, None, now + SETTLE);
        let quiet = now + SETTLE + QUIET;
        assert!(slots.take(quiet - SETTLE).is_empty(), "not so soon after the last");
        assert_eq!(shown(&slots.take(quiet)[0]), "3");
        slots.done(&uid, None, quiet);
        assert!(slots.take(quiet + QUIET).is_empty());
        assert!(slots.slots.is_empty() && slots.next_due().is_none());
    }

    #[test]
    fn what_another_shows_by_now_is_not_shown() {
        let (mut slots, now, uid) = (Slots::default(), Instant::now(), Uid::from("u"));
        slots.status(&uid, Arc::new(json!(1)), now);
        slots.hand_over(&uid);
        assert!(slots.take(now + SETTLE).is_empty() && slots.slots.is_empty());
        slots.finish(write("u"), Some(Arc::new(json!(2))), now);
        slots.hand_over(&uid);
        assert_eq!(
            shown(&slots.take(now)[0]),
            "2",
            "an end is never written before its status is shown"
        );
    }

    #[test]
    fn that_a_job_has_come_further_waits_for_no_quiet_time() {
        let (mut slots, now, uid) = (Slots::default(), Instant::now(), Uid::from("u"));
        let status = |active: i32, ready: i32| Arc::new(json!({"active": active, "ready": ready}));
        let second = std::time::Duration::from_secs(1);
        slots.status(&uid, status(3, 0), now);
        assert_eq!(slots.take(now + SETTLE).len(), 1);
        // Its first pod is ready while that is being written, the second soon after.
        let ready = now + SETTLE + second / 10;
        slots.status(&uid, status(3, 1), ready);
        slots.done(&uid, None, ready + second / 10);
        slots.status(&uid, status(3, 2), ready + second / 5);
        let shown_at = ready + FURTHER;
        assert_eq!(slots.next_due(), Some(shown_at));
        assert_eq!(shown(&slots.take(shown_at)[0]), status(3, 2).to_string());
        slots.done(&uid, None, shown_at);
        slots.status(&uid, status(3, 3), shown_at + second);
        assert_eq!(slots.next_due(), Some(shown_at + QUIET), "what follows is shown now and then");
        slots.finish(write("u"), Some(status(0, 0)), shown_at + second);
        assert_eq!(slots.take(shown_at + second).len(), 1);
    }

    #[test]
    fn how_far_a_job_has_come_is_told_by_its_counters_or_its_pods() {
        let pod = |phase: &str, ready: &str| json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        for (step, status) in [
            (Step::Nothing, json!({"active": 0})),
            (Step::Active, json!({"active": 1})),
            (Step::Ready, json!({"active": 1, "ready": 1})),
            (Step::Nothing, pod("Pending", "False")),
            (Step::Active, pod("Running", "False")),
            (Step::Nothing, json!({"pods": {"a": pod("Pending", "False")}})),
            (
                Step::Ready,
                json!({"pods": {"a": pod("Pending", "False"), "b": pod("Running", "True")}}),
            ),
        ] {
            assert_eq!(Step::of(&Show::Status(Arc::new(status.clone()))), step, "{status}");
        }
    }

    #[test]
    fn what_is_not_urgent_waits_the_longer_the_slower_the_api_server_is() {
        let (mut slots, mut now, uid) = (Slots::default(), Instant::now(), Uid::from("u"));
        for other in 0..100 {
            let other = Uid::from(format!("other-{other}").as_str());
            slots.finish(write(&other), Some(Arc::new(json!(1))), now);
            assert_eq!(slots.take(now).len(), 1);
            now += Duration::from_millis(100);
            slots.done(&other, None, now);
        }
        slots.status(&uid, Arc::new(json!(1)), now);
        let waits = slots.next_due().unwrap() - now;
        assert!(waits > SETTLE * 2 && waits <= WHEN_SLOW, "{waits:?}");
        slots.finish(write("u"), Some(Arc::new(json!({"succeeded": 1}))), now);
        assert_eq!(slots.next_due(), Some(now), "an end waits for nobody");
    }

    #[test]
    fn a_job_that_ends_within_the_moment_costs_no_write_on_the_way() {
        let (mut slots, now, uid) = (Slots::default(), Instant::now(), Uid::from("u"));
        let second = std::time::Duration::from_secs(1);
        slots.status(&uid, Arc::new(json!({"active": 1, "ready": 0})), now);
        assert_eq!(slots.take(now + SETTLE).len(), 1);
        slots.done(&uid, None, now + SETTLE);
        slots.status(&uid, Arc::new(json!({"active": 1, "ready": 1})), now + SETTLE);
        let end = now + SETTLE + second + second / 10;
        assert!(slots.take(end).is_empty());
        slots.finish(write("u"), Some(Arc::new(json!({"succeeded": 1}))), end);
        let work = slots.take(end);
        assert_eq!(shown(&work[0]), r#"{"succeeded":1}"#);
        slots.done(&uid, None, end);
        assert!(slots.slots.is_empty());
    }

    #[test]
    fn the_end_goes_at_once_and_after_its_status() {
        let (mut slots, now, uid) = (Slots::default(), Instant::now(), Uid::from("u"));
        slots.status(&uid, Arc::new(json!(1)), now);
        slots.finish(write("u"), Some(Arc::new(json!(2))), now);
        let work = slots.take(now);
        assert_eq!(shown(&work[0]), "2");
        assert!(work[0].finish.is_some());
        slots.done(&uid, None, now);
        assert!(slots.slots.is_empty());
        slots.status(&uid, Arc::new(json!(1)), now);
        assert_eq!(slots.take(now + SETTLE).len(), 1);
        slots.done(&uid, None, now + SETTLE);
        slots.finish(write("u"), Some(Arc::new(json!(2))), now + SETTLE);
        assert_eq!(slots.take(now + SETTLE).len(), 1, "an end waits for no quiet time");
    }

    #[test]
    fn what_failed_is_shown_later_unless_there_is_newer() {
        let (mut slots, now, uid) = (Slots::default(), Instant::now(), Uid::from("u"));
        slots.release(write("u"), now);
        assert!(slots.take(now)[0].finish.is_some());
        slots.done(&uid, Some(Show::Nothing), now);
        assert!(slots.take(now).is_empty());
        assert_eq!(shown(&slots.take(now + RETRY)[0]), "nothing");
        slots.status(&uid, Arc::new(json!(1)), now);
        slots.done(&uid, Some(Show::Nothing), now);
        assert_eq!(shown(&slots.take(now + RETRY)[0]), "1");
    }
}
