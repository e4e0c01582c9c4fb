//! Since when all pods of jobs have been ready, by the monotonic clock, and which were counted.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use parking_lot::Mutex;
use switchyard_api::{
    conditions::{self, reasons::pods_ready},
    v1beta2::Workload,
    variants,
};

use super::index::JobKey;
use crate::{
    metrics::Readiness,
    workload::{condition, is_admitted, is_evicted, is_finished, queued_since},
};
use switchyard_platform::clock::since;

/// One admission of a workload: its time, and the workload's uid.
type Admission = (Timestamp, String);

#[derive(Debug, Default)]
struct Entry {
    since: Option<Instant>,
    // The latest admission whose ready pods were counted.
    counted: Option<Admission>,
}

/// Jobs whose pods have been ready and that have not ended.
#[derive(Debug, Default)]
pub(super) struct ReadyJobs(Mutex<BTreeMap<JobKey, Entry>>);

impl ReadyJobs {
    /// Records whether all pods are ready. `None` for a job that has ended or was deleted.
    pub(super) fn note(&self, key: &JobKey, ready: Option<bool>, now: Instant) {
        let mut jobs = self.0.lock();
        match ready {
            None => {
                jobs.remove(key);
            }
            Some(true) => {
                jobs.entry(key.clone()).or_default().since.get_or_insert(now);
            }
            Some(false) => {
                if let Some(entry) = jobs.get_mut(key) {
                    entry.since = None;
                }
            }
        }
    }

    /// How long all pods have been ready.
    pub(super) fn ready_for(&self, key: &JobKey, now: Instant) -> Duration {
        let jobs = self.0.lock();
        let since = jobs.get(key).and_then(|entry| entry.since);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// The metric for a workload whose pods are ready for the first time since its admission.
    pub(super) fn first(
        &self,
        key: &JobKey,
        workload: &Workload,
        now: Timestamp,
    ) -> Option<Readiness> {
        let admission = starting(workload)?;
        let mut jobs = self.0.lock();
        let entry = jobs.get_mut(key).filter(|entry| entry.since.is_some())?;
        // The later one of two slices of an elastic job counts.
        if entry.counted.as_ref() >= Some(&admission) {
            return None;
        }
        let admitted = admission.0;
        entry.counted = Some(admission);
        Some(Readiness {
            queued: since(now, queued_since(workload)),
            admitted: since(now, admitted),
        })
    }
}

/// The admission whose pods were not reported ready yet. A variant has none, because its
/// parent counts.
fn starting(workload: &Workload) -> Option<Admission> {
    if !is_admitted(workload)
        || is_evicted(workload)
        || is_finished(workload)
        || variants::parent_of(workload).is_some()
        || condition(workload, conditions::PODS_READY)
            .is_some_and(|it| it.reason != pods_ready::WAIT_FOR_START)
    {
        return None;
    }
    let admitted = condition(workload, conditions::ADMITTED)?.last_transition_time.0;
    Some((admitted, workload.metadata.uid.clone()?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use switchyard_jobs::batch_job::BatchJob;

    use super::*;
    use crate::reconcilers::job::tests;
    use switchyard_platform::store::Key;

    fn readiness(seconds: [u64; 2]) -> Option<Readiness> {
        let [queued, admitted] = seconds.map(Duration::from_secs);
        Some(Readiness { queued, admitted })
    }

    /// A workload created 90 s and admitted 60 s before `now`.
    fn admitted() -> tests::TestWorkload {
        tests::job().workload().admitted().edit(|workload| {
            let created = tests::now() - jiff::SignedDuration::from_secs(90);
            workload.metadata.creation_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
        })
    }

    #[test]
    fn time_until_ready_is_counted_once_per_admission() {
        let (jobs, start) = (ReadyJobs::default(), Instant::now());
        let key = JobKey::new(&BatchJob, Key::new("ns", "train"));
        let workload = Arc::new(admitted().0);
        let first = |workload: &Workload| jobs.first(&key, workload, tests::now());
        assert_eq!(first(&workload), None, "nothing is ready");
        jobs.note(&key, Some(true), start);
        assert_eq!(first(&workload), readiness([90, 60]));
        assert_eq!(first(&workload), None, "once");
        jobs.note(&key, Some(false), start);
        jobs.note(&key, Some(true), start + Duration::from_secs(5));
        assert_eq!(first(&workload), None, "they have recovered");
        assert_eq!(jobs.ready_for(&key, start + Duration::from_secs(7)), Duration::from_secs(2));
        let again = admitted().edit(|workload| {
            for condition in &mut workload.status.as_mut().unwrap().conditions {
                condition.last_transition_time.0 =
                    tests::now() - jiff::SignedDuration::from_secs(10);
            }
        });
        assert_eq!(first(&again.0), readiness([90, 10]), "admitted once more");
        assert_eq!(first(&workload), None, "that was before");
    }

    #[test]
    fn other_workloads_are_not_counted() {
        let said = |holds, reason: &'static str| {
            admitted().status(move |edit| {
                edit.set(conditions::PODS_READY, holds, reason, "");
            })
        };
        let cases = [
            ("has no quota", tests::job().workload(), false),
            ("is evicted", admitted().evicted(), false),
            ("has finished", admitted().finished(), false),
            ("was said to be ready", said(true, pods_ready::STARTED), false),
            ("waits for recovery", said(false, pods_ready::WAIT_FOR_RECOVERY), false),
            ("has recovered", said(true, pods_ready::RECOVERED), false),
            ("waits for its start, though,", said(false, pods_ready::WAIT_FOR_START), true),
        ];
        for (sentence, workload, want) in cases {
            let jobs = ReadyJobs::default();
            let key = JobKey::new(&BatchJob, Key::new("ns", "train"));
            jobs.note(&key, Some(true), Instant::now());
            assert_eq!(
                jobs.first(&key, &workload.0, tests::now()).is_some(),
                want,
                "a workload that {sentence}"
            );
        }
    }
}
