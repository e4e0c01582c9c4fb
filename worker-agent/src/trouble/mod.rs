//! Reports to the hub of troubles that keep its jobs from starting on this cluster.
//!
//! Only jobs that may run and whose pods are not all ready are examined, some seconds after they should have started: a job
//! without trouble costs nothing. An examination reads the job's pods, one job at a time. Warning events come from one watch
//! of the cluster that the API server filters; the jobs' own are picked from a bounded memory of them.

mod examine;
mod pods;
mod suspects;
mod warnings;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use switchyard_jobs::{JobKind, meta};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::suspects::{Examined, Patient, Suspects};
use self::warnings::Warnings;
use switchyard_ledger::{Meta, Seen};

/// One examination, answers included.
const DEADLINE: Duration = Duration::from_secs(10);
/// Between two examinations: at most ten a second, however many jobs have trouble.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes in what the watches of jobs tell.
#[derive(Debug, Clone, Default)]
pub(crate) struct TroubleWatch {
    suspects: Arc<Mutex<Suspects>>,
    bell: Arc<Notify>,
}

impl TroubleWatch {
    /// An object of one of the hub's jobs is there, in this state.
    pub(crate) fn applied(&self, kind: &'static dyn JobKind, meta: &Meta, object: &Value) {
        let waits = !meta.deleting
            && !meta::is_deleting(object)
            && !kind.is_suspended(object)
            && kind.finished(object).is_none()
            && !kind.pods_ready(object);
        let workload = meta::prebuilt_workload_name(object);
        self.with(|suspects, now| suspects.note((kind.id().kind, workload), meta, waits, now));
    }

    /// An object of one of the hub's jobs is gone.
    pub(crate) fn deleted(&self, kind: &'static dyn JobKind, meta: &Meta) {
        self.with(|suspects, now| suspects.note((kind.id().kind, ""), meta, false, now));
    }

    /// These are all objects of a kind, by their uids.
    pub(crate) fn listed(&self, gvk: &str, uids: &BTreeSet<String>) {
        self.with(|suspects, _| suspects.keep(gvk, uids));
    }

    fn with(&self, act: impl FnOnce(&mut Suspects, Instant)) {
        act(&mut lock(&self.suspects), Instant::now());
        self.bell.notify_one();
    }

    /// Examines what is to be examined, and tells what was found, until the receiver is gone.
    pub(crate) async fn run(self, client: Client, hub_id: String, seen: mpsc::Sender<Seen>) {
        let warnings = Arc::new(Mutex::new(Warnings::default()));
        let mut examiner = examine::Examiner::new(client.clone(), hub_id, warnings.clone());
        tokio::join!(examine::follow_warnings(client, warnings), async {
            while self.turn(&mut examiner, &seen).await {}
        });
    }

    /// Tells what has ended, or examines one job. False once nobody listens.
    async fn turn(&self, examiner: &mut examine::Examiner, seen: &mpsc::Sender<Seen>) -> bool {
        let (over, patient, next) = {
            let mut suspects = lock(&self.suspects);
            let over = suspects.take_over();
            let patient = if over.is_empty() { suspects.take(Instant::now()) } else { None };
            (over, patient, suspects.next())
        };
        for (workload_uid, attempt) in over {
            let none = Seen::Troubles { workload_uid, attempt, troubles: Vec::new() };
            if seen.send(none).await.is_err() {
                return false;
            }
        }
        match patient {
            Some(patient) => self.examine(examiner, patient, seen).await,
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
        patient: Patient,
        seen: &mpsc::Sender<Seen>,
    ) -> bool {
        let found = match timeout(DEADLINE, examiner.examine(&patient)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                examiner.complain(&error);
                Examined::Unknown
            }
            Err(_) => Examined::Unknown,
        };
        let news = lock(&self.suspects).examined(&patient, found, Instant::now());
        if let Some(troubles) = news {
            let Patient { workload_uid, attempt, .. } = patient;
            if seen.send(Seen::Troubles { workload_uid, attempt, troubles }).await.is_err() {
                return false;
            }
        }
        sleep(PAUSE).await;
        true
    }
}

// A panic while one is held would have been between two plain changes: what is there can be used.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
