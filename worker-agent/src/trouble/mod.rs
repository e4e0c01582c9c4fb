//! Reports to the hub why its jobs do not start on this cluster, and which have no ready pod.
//!
//! The agent examines only jobs that may run and have unready pods, some seconds after they should
//! have started: a job without trouble costs nothing. It examines one job at a time and reads its
//! pods. Warning events come from one filtered watch of the cluster into a bounded memory.

mod examine;
mod pods;
mod unready_jobs;
mod warnings;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;
use switchyard_jobs::{CountedPods, JobKind, meta};
use switchyard_ledger::{Meta, WatchEvent};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::unready_jobs::{Examined, JobToExamine, PodsOf, Readiness, Report, UnreadyJobs};
use self::warnings::Warnings;

/// The deadline of one examination.
const DEADLINE: Duration = Duration::from_secs(10);
/// The delay between two examinations: at most ten a second for all jobs.
const PAUSE: Duration = Duration::from_millis(100);
/// For kinds whose status counts no pods.
const UNCOUNTED: CountedPods = CountedPods { may_exist: true, has_succeeded: false };

/// Receives the events of the watches of jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct TroubleWatch {
    unready_jobs: Arc<Mutex<UnreadyJobs>>,
    bell: Arc<Notify>,
}

impl TroubleWatch {
    /// An object of one of the hub's jobs has changed.
    pub(crate) fn applied(&self, kind: &'static dyn JobKind, meta: &Meta, object: &Value) {
        let serving = kind.serving();
        // An object that serves is never suspended, though its kind counts it as suspended until a
        // pod is ready.
        let is_suspended = serving.is_none() && kind.is_suspended(object);
        let is_unready = !meta.deleting
            && !meta::is_deleting(object)
            && !is_suspended
            && kind.finished(object).is_none()
            && !kind.pods_ready(object);
        let readiness = match is_unready {
            true => Readiness::Unready(kind.counted_pods(object).unwrap_or(UNCOUNTED)),
            false => Readiness::Settled,
        };
        let pods = PodsOf {
            kind: kind.id().kind,
            workload: meta::prebuilt_workload_name(object),
            labels: serving.map(|serving| serving.pod_labels(object)).unwrap_or_default(),
        };
        self.with(|unready_jobs, now| unready_jobs.note(pods, meta, readiness, now));
    }

    /// An object of one of the hub's jobs was deleted.
    pub(crate) fn deleted(&self, kind: &'static dyn JobKind, meta: &Meta) {
        let pods = PodsOf { kind: kind.id().kind, ..PodsOf::default() };
        self.with(|unready_jobs, now| unready_jobs.note(pods, meta, Readiness::Settled, now));
    }

    /// A list is complete: these are the uids of all objects of the kind.
    pub(crate) fn listed(&self, gvk: &str, uids: &BTreeSet<String>) {
        self.with(|unready_jobs, _| unready_jobs.keep(gvk, uids));
    }

    fn with(&self, act: impl FnOnce(&mut UnreadyJobs, Instant)) {
        act(&mut self.unready_jobs.lock(), Instant::now());
        self.bell.notify_one();
    }

    /// Examines jobs and reports the results until the receiver is dropped.
    pub(crate) async fn run(self, client: Client, hub_id: String, seen: mpsc::Sender<WatchEvent>) {
        let warnings = Arc::new(Mutex::new(Warnings::default()));
        let mut examiner = examine::Examiner::new(client.clone(), hub_id, warnings.clone());
        tokio::join!(examine::follow_warnings(client, warnings), async {
            while self.turn(&mut examiner, &seen).await {}
        });
    }

    /// Reports a trouble that is over, or examines one job. Returns false once the receiver is
    /// dropped.
    async fn turn(
        &self,
        examiner: &mut examine::Examiner,
        seen: &mpsc::Sender<WatchEvent>,
    ) -> bool {
        let (over, job, next) = {
            let mut unready_jobs = self.unready_jobs.lock();
            let over = unready_jobs.take_resolved();
            let job = if over.is_empty() { unready_jobs.take(Instant::now()) } else { None };
            (over, job, unready_jobs.next())
        };
        for (workload_uid, attempt) in over {
            let none = WatchEvent::Troubles {
                workload_uid,
                attempt,
                troubles: Vec::new(),
                no_ready_pod: false,
            };
            if seen.send(none).await.is_err() {
                return false;
            }
        }
        match job {
            Some(job) => self.examine(examiner, job, seen).await,
            None => {
                let due = async {
                    match next {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = due => {}
                    () = self.bell.notified() => {}
                    () = seen.closed() => return false,
                }
                true
            }
        }
    }

    async fn examine(
        &self,
        examiner: &mut examine::Examiner,
        job: JobToExamine,
        seen: &mpsc::Sender<WatchEvent>,
    ) -> bool {
        let found = match timeout(DEADLINE, examiner.examine(&job)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                examiner.log_failure(&error);
                Examined::Unknown
            }
            Err(_) => Examined::Unknown,
        };
        let news = self.unready_jobs.lock().examined(&job, found, Instant::now());
        if let Some(Report { troubles, no_ready_pod }) = news {
            let JobToExamine { workload_uid, attempt, .. } = job;
            let event = WatchEvent::Troubles { workload_uid, attempt, troubles, no_ready_pod };
            if seen.send(event).await.is_err() {
                return false;
            }
        }
        sleep(PAUSE).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchyard_jobs::kind_for;
    use switchyard_ledger::Target;

    use super::*;

    fn meta() -> Meta {
        Meta {
            target: Target {
                gvk: "apps/v1, Kind=StatefulSet".into(),
                namespace: "ns".into(),
                name: "db".into(),
                uid: "s".into(),
            },
            version: 1,
            workload_uid: "w".into(),
            attempt: 1,
            deleting: false,
            finalizer_index: None,
            owners: Vec::new(),
        }
    }

    #[test]
    fn serving_object_is_examined_until_all_its_pods_are_ready() {
        for (group, kind) in
            [("apps", "StatefulSet"), ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")]
        {
            let kind = kind_for(group, kind).unwrap();
            for (replicas, ready, expected) in
                [(2, None, true), (2, Some(1), true), (2, Some(2), false), (0, None, false)]
            {
                let watch = TroubleWatch::default();
                let object = json!({
                    "metadata": {"name": "db"}, "spec": {"replicas": replicas}, "status": {"readyReplicas": ready},
                });
                watch.applied(kind, &meta(), &object);
                let is_due = watch.unready_jobs.lock().next().is_some();
                assert_eq!(is_due, expected, "{} {replicas} {ready:?}", kind.id().kind);
            }
        }
    }

    #[test]
    fn loss_of_last_ready_pod_keeps_stateful_set_examined() {
        let (watch, kind) = (TroubleWatch::default(), kind_for("apps", "StatefulSet").unwrap());
        for ready in [1, 0] {
            let object = json!({"spec": {"replicas": 2}, "status": {"readyReplicas": ready}});
            watch.applied(kind, &meta(), &object);
            assert!(watch.unready_jobs.lock().next().is_some(), "{ready}");
        }
        assert_eq!(watch.unready_jobs.lock().take_resolved(), []);
    }
}
