//! Schedules the writes of remote job status: for each workload one write at a time, and the newest
//! status wins. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use switchyard_dispatcher::Uid;
use tokio::time::Instant;

use super::job_status::{JobStatus, MAX_DELAY, PAUSE, PROGRESS, SETTLE};
use super::workload_writes::PendingWrite;

/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// A status that is not terminal waits this many times as long as a write takes.
const SLOWER: u32 = 20;
/// Weight of the newest write in the average duration ([`MirrorQueue`]): one part in so many.
const MEMORY: u32 = 8;

/// The work of one task: write a status, then end the run.
#[derive(Debug)]
pub(super) struct MirrorWork {
    pub(super) uid: Uid,
    /// The status to write first.
    pub(super) show: Option<JobStatus>,
    /// The write that ends the run or releases quota, after the status.
    pub(super) finish: Option<PendingWrite>,
}

#[derive(Debug, Default)]
struct MirrorEntry {
    show: Option<JobStatus>,
    finish: Option<PendingWrite>,
    due: Option<Instant>,
    /// Since when a task works on this entry.
    busy: Option<Instant>,
    /// Until then, a status that is not terminal waits: one was written a moment ago.
    paused_until: Option<Instant>,
    /// The job's progress in the last written status.
    progress: JobProgress,
    /// When to show further progress, even within the pause.
    progress_due: Option<Instant>,
}

/// How far a job has come. Users look for each step.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum JobProgress {
    #[default]
    Pending,
    /// It has pods.
    Active,
    /// A pod is ready.
    Ready,
}

impl JobProgress {
    fn of(show: &JobStatus) -> Self {
        let JobStatus::Remote(status) = show else { return Self::Pending };
        let some =
            |field: &str| status.get(field).and_then(Value::as_i64).is_some_and(|count| count > 0);
        // Pods, alone or in a group, report it themselves.
        let pods = || match status.get("pods").and_then(Value::as_object) {
            Some(pods) => pods.values().collect(),
            None => vec![&**status],
        };
        let ready = some("ready") || pods().into_iter().any(is_ready);
        match (ready, some("active") || pods().iter().any(|pod| pod["phase"] == "Running")) {
            (true, _) => Self::Ready,
            (false, true) => Self::Active,
            (false, false) => Self::Pending,
        }
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// The queue of all workloads.
#[derive(Debug, Default)]
pub(super) struct MirrorQueue {
    entries: BTreeMap<Uid, MirrorEntry>,
    due: BTreeSet<(Instant, Uid)>,
    /// Average duration of recent tasks, including the wait for a permit.
    took: Duration,
}

impl MirrorQueue {
    /// Plans a status that is not terminal. The wait grows while the API server is slow, so that
    /// changes in between cost no write.
    pub(super) fn plan_status(&mut self, uid: &Uid, status: Arc<Value>, now: Instant) {
        let slow = (self.took * SLOWER).min(MAX_DELAY);
        let entry = self.entries.entry(uid.clone()).or_default();
        let show = JobStatus::Remote(status);
        if JobProgress::of(&show) > entry.progress {
            entry.progress_due.get_or_insert(now + PROGRESS.max(slow));
        }
        entry.show = Some(show);
        let at = entry.due.unwrap_or(now + SETTLE.max(slow));
        let at = entry.progress_due.map_or(at, |progress_due| progress_due.min(at));
        self.plan(uid, at);
    }

    /// Plans to clear the status at once, then to release quota: nothing runs any more.
    pub(super) fn release(&mut self, write: PendingWrite, now: Instant) {
        let uid = write.uid.clone();
        let entry = self.entries.entry(uid.clone()).or_default();
        entry.show = Some(JobStatus::Cleared);
        entry.finish = Some(write);
        self.plan(&uid, now);
    }

    /// Plans the end at once, after its status.
    pub(super) fn finish(&mut self, write: PendingWrite, status: Option<Arc<Value>>, now: Instant) {
        let uid = write.uid.clone();
        let entry = self.entries.entry(uid.clone()).or_default();
        if let Some(status) = status {
            entry.show = Some(JobStatus::Remote(status));
        }
        entry.finish = Some(write);
        self.plan(&uid, now);
    }

    /// Drops a planned status that is not terminal: another workload adopted the copy and shows it.
    pub(super) fn drop_unfinished(&mut self, uid: &Uid) {
        if let Some(entry) = self.entries.get_mut(uid).filter(|entry| entry.finish.is_none()) {
            entry.show = None;
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The work that is due. Each entry stays busy until [`Self::done`].
    pub(super) fn take(&mut self, now: Instant) -> Vec<MirrorWork> {
        let mut work = Vec::new();
        while let Some((at, uid)) = self.due.first().cloned() {
            if at > now {
                break;
            }
            self.due.remove(&(at, uid.clone()));
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            entry.due = None;
            if entry.show.is_none() && entry.finish.is_none() {
                self.entries.remove(&uid);
                continue;
            }
            entry.busy = Some(now);
            entry.progress_due = None;
            entry.progress = entry.show.as_ref().map_or(entry.progress, JobProgress::of);
            entry.paused_until = entry.finish.is_none().then(|| now + PAUSE);
            work.push(MirrorWork { uid, show: entry.show.take(), finish: entry.finish.take() });
        }
        work
    }

    /// A task has ended. A status that it failed to write is retried unless a newer one waits.
    pub(super) fn done(&mut self, uid: &Uid, unshown: Option<JobStatus>, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if let Some(since) = entry.busy.take() {
            // The bound excludes tasks that waited for an API server to come back.
            let took = now.saturating_duration_since(since).min(MAX_DELAY / SLOWER);
            self.took = (self.took * (MEMORY - 1) + took) / MEMORY;
        }
        let failed = unshown.is_some();
        if entry.show.is_none() {
            entry.show = unshown;
        }
        match entry.paused_until {
            _ if failed => self.plan(uid, now + RETRY),
            _ if entry.finish.is_some() => self.plan(uid, now),
            // Keep the entry until the pause ends, even without a status.
            Some(paused_until) => {
                let at = entry
                    .progress_due
                    .map_or(paused_until, |progress_due| progress_due.min(paused_until));
                self.plan(uid, at.max(now));
            }
            None if entry.show.is_some() => self.plan(uid, now),
            None => {
                self.entries.remove(uid);
            }
        }
    }

    fn plan(&mut self, uid: &Uid, at: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if entry.busy.is_some() {
            return;
        }
        let at = entry.due.map_or(at, |due| due.min(at));
        if let Some(due) = entry.due.replace(at) {
            self.due.remove(&(due, uid.clone()));
        }
        self.due.insert((at, uid.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use switchyard_dispatcher::WorkloadWrite;
    use switchyard_platform::store::Key;

    fn write(uid: &str) -> PendingWrite {
        let what = WorkloadWrite::Finish { cluster: "a".into(), attempt: 1, success: true };
        let key = Key::new("ns", "w");
        PendingWrite {
            key,
            uid: uid.into(),
            reservation: None,
            what: Arc::new(what),
            end: None,
            other_flavors: Vec::new(),
            decided: Instant::now(),
        }
    }

    fn shown(work: &MirrorWork) -> String {
        match &work.show {
            Some(JobStatus::Remote(status)) => status.to_string(),
            Some(JobStatus::Cleared) => "nothing".into(),
            None => "-".into(),
        }
    }

    #[test]
    fn status_changes_wait_and_the_newest_wins() {
        let (mut queue, now, uid) = (MirrorQueue::default(), Instant::now(), Uid::from("u"));
        queue.plan_status(&uid, Arc::new(json!(1)), now);
        queue.plan_status(&uid, Arc::new(json!(2)), now + SETTLE / 2);
        assert!(queue.take(now + SETTLE / 2).is_empty());
        let work = queue.take(now + SETTLE);
        assert_eq!(work.len(), 1, "counted from the first change");
        assert_eq!(shown(&work[0]), "2");
        queue.plan_status(&uid, Arc::new(json!(3)), now + SETTLE);
        assert!(queue.take(now + SETTLE * 9).is_empty(), "one at a time");
        queue.done(&uid, None, now + SETTLE);
        let paused_until = now + SETTLE + PAUSE;
        assert!(queue.take(paused_until - SETTLE).is_empty(), "not so soon after the last");
        assert_eq!(shown(&queue.take(paused_until)[0]), "3");
        queue.done(&uid, None, paused_until);
        assert!(queue.take(paused_until + PAUSE).is_empty());
        assert!(queue.entries.is_empty() && queue.next_due().is_none());
    }

    #[test]
    fn handed_over_status_is_dropped_but_not_the_end() {
        let (mut queue, now, uid) = (MirrorQueue::default(), Instant::now(), Uid::from("u"));
        queue.plan_status(&uid, Arc::new(json!(1)), now);
        queue.drop_unfinished(&uid);
        assert!(queue.take(now + SETTLE).is_empty() && queue.entries.is_empty());
        queue.finish(write("u"), Some(Arc::new(json!(2))), now);
        queue.drop_unfinished(&uid);
        assert_eq!(
            shown(&queue.take(now)[0]),
            "2",
            "an end is never written before its status is shown"
        );
    }

    #[test]
    fn job_progress_is_shown_within_the_pause() {
        let (mut queue, now, uid) = (MirrorQueue::default(), Instant::now(), Uid::from("u"));
        let status = |active: i32, ready: i32| Arc::new(json!({"active": active, "ready": ready}));
        let second = std::time::Duration::from_secs(1);
        queue.plan_status(&uid, status(3, 0), now);
        assert_eq!(queue.take(now + SETTLE).len(), 1);
        // The first pod becomes ready during the write, the second soon after.
        let ready = now + SETTLE + second / 10;
        queue.plan_status(&uid, status(3, 1), ready);
        queue.done(&uid, None, ready + second / 10);
        queue.plan_status(&uid, status(3, 2), ready + second / 5);
        let shown_at = ready + PROGRESS;
        assert_eq!(queue.next_due(), Some(shown_at));
        assert_eq!(shown(&queue.take(shown_at)[0]), status(3, 2).to_string());
        queue.done(&uid, None, shown_at);
        queue.plan_status(&uid, status(3, 3), shown_at + second);
        assert_eq!(queue.next_due(), Some(shown_at + PAUSE), "what follows is shown now and then");
        queue.finish(write("u"), Some(status(0, 0)), shown_at + second);
        assert_eq!(queue.take(shown_at + second).len(), 1);
    }

    #[test]
    fn job_progress_comes_from_counters_or_pods() {
        let pod = |phase: &str, ready: &str| json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        for (progress, status) in [
            (JobProgress::Pending, json!({"active": 0})),
            (JobProgress::Active, json!({"active": 1})),
            (JobProgress::Ready, json!({"active": 1, "ready": 1})),
            (JobProgress::Pending, pod("Pending", "False")),
            (JobProgress::Active, pod("Running", "False")),
            (JobProgress::Pending, json!({"pods": {"a": pod("Pending", "False")}})),
            (
                JobProgress::Ready,
                json!({"pods": {"a": pod("Pending", "False"), "b": pod("Running", "True")}}),
            ),
        ] {
            assert_eq!(
                JobProgress::of(&JobStatus::Remote(Arc::new(status.clone()))),
                progress,
                "{status}"
            );
        }
    }

    #[test]
    fn status_delay_grows_with_a_slow_api_server() {
        let (mut queue, mut now, uid) = (MirrorQueue::default(), Instant::now(), Uid::from("u"));
        for other in 0..100 {
            let other = Uid::from(format!("other-{other}").as_str());
            queue.finish(write(&other), Some(Arc::new(json!(1))), now);
            assert_eq!(queue.take(now).len(), 1);
            now += Duration::from_millis(100);
            queue.done(&other, None, now);
        }
        queue.plan_status(&uid, Arc::new(json!(1)), now);
        let waits = queue.next_due().unwrap() - now;
        assert!(waits > SETTLE * 2 && waits <= MAX_DELAY, "{waits:?}");
        queue.finish(write("u"), Some(Arc::new(json!({"succeeded": 1}))), now);
        assert_eq!(queue.next_due(), Some(now), "an end waits for nobody");
    }

    #[test]
    fn short_job_costs_no_intermediate_write() {
        let (mut queue, now, uid) = (MirrorQueue::default(), Instant::now(), Uid::from("u"));
        let second = std::time::Duration::from_secs(1);
        queue.plan_status(&uid, Arc::new(json!({"active": 1, "ready": 0})), now);
        assert_eq!(queue.take(now + SETTLE).len(), 1);
        queue.done(&uid, None, now + SETTLE);
        queue.plan_status(&uid, Arc::new(json!({"active": 1, "ready": 1})), now + SETTLE);
        let end = now + SETTLE + second + second / 10;
        assert!(queue.take(end).is_empty());
        queue.finish(write("u"), Some(Arc::new(json!({"succeeded": 1}))), end);
        let work = queue.take(end);
        assert_eq!(shown(&work[0]), r#"{"succeeded":1}"#);
        queue.done(&uid, None, end);
        assert!(queue.entries.is_empty());
    }

    #[test]
    fn end_is_written_at_once_after_its_status() {
        let (mut queue, now, uid) = (MirrorQueue::default(), Instant::now(), Uid::from("u"));
        queue.plan_status(&uid, Arc::new(json!(1)), now);
        queue.finish(write("u"), Some(Arc::new(json!(2))), now);
        let work = queue.take(now);
        assert_eq!(shown(&work[0]), "2");
        assert!(work[0].finish.is_some());
        queue.done(&uid, None, now);
        assert!(queue.entries.is_empty());
        queue.plan_status(&uid, Arc::new(json!(1)), now);
        assert_eq!(queue.take(now + SETTLE).len(), 1);
        queue.done(&uid, None, now + SETTLE);
        queue.finish(write("u"), Some(Arc::new(json!(2))), now + SETTLE);
        assert_eq!(queue.take(now + SETTLE).len(), 1, "an end waits for no pause");
    }

    #[test]
    fn failed_status_is_retried_unless_newer_exists() {
        let (mut queue, now, uid) = (MirrorQueue::default(), Instant::now(), Uid::from("u"));
        queue.release(write("u"), now);
        assert!(queue.take(now)[0].finish.is_some());
        queue.done(&uid, Some(JobStatus::Cleared), now);
        assert!(queue.take(now).is_empty());
        assert_eq!(shown(&queue.take(now + RETRY)[0]), "nothing");
        queue.plan_status(&uid, Arc::new(json!(1)), now);
        queue.done(&uid, Some(JobStatus::Cleared), now);
        assert_eq!(shown(&queue.take(now + RETRY)[0]), "1");
    }
}
