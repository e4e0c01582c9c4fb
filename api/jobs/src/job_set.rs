//! `jobset.x-k8s.io/v1alpha2` JobSet: groups of Jobs that run together.

use serde_json::Value;

use super::meta::{count_at, list_at, str_at};
use super::plain::{PlainKind, Slot};
use super::status::finished_by;
use super::topology::PodRanks;
use super::{JobEnd, JobError, KindId, KindProfile};
use switchyard_api::v1beta2::ReclaimablePod;

/// The kind `jobset.x-k8s.io/v1alpha2` JobSet.
#[derive(Debug, Clone, Copy)]
pub struct JobSet;

const REPLICATED_JOBS: &str = "/spec/replicatedJobs";

/// Number of Jobs of a replicated job.
pub(super) fn replicas(replicated: &Value) -> i64 {
    count_at(replicated, "/replicas", 1)
}

/// Pods of one Job that run at one time: never more than completions.
fn pods_per_job(replicated: &Value) -> i64 {
    let parallelism = count_at(replicated, "/template/spec/parallelism", 1);
    parallelism.min(count_at(replicated, "/template/spec/completions", parallelism))
}

/// Pods of a replicated job that run at one time.
pub(super) fn pods(replicated: &Value) -> i64 {
    replicas(replicated).saturating_mul(pods_per_job(replicated))
}

/// The list of Job counts, one for each replicated job, in the status of a JobSet or TrainJob.
pub(super) struct JobCounts<'a>(pub(super) &'a [Value]);

impl<'a> JobCounts<'a> {
    /// The counts of a replicated job, once its controller has written them.
    pub(super) fn of(&self, name: &str) -> Option<&'a Value> {
        self.0.iter().find(|counts| str_at(counts, "/name") == name)
    }

    /// Whether a Job has active pods.
    pub(super) fn any_active(&self) -> bool {
        self.0.iter().any(|counts| count_at(counts, "/active", 0) > 0)
    }

    /// Number of Jobs that are ready or have succeeded.
    pub(super) fn ready(&self) -> i64 {
        let ready =
            |counts: &Value| count_at(counts, "/ready", 0) + count_at(counts, "/succeeded", 0);
        self.0.iter().map(ready).sum()
    }

    /// Pods of succeeded Jobs.
    pub(super) fn reclaimable(&self, replicated_jobs: &[Value]) -> Vec<ReclaimablePod> {
        let of = |replicated: &Value| {
            let name = str_at(replicated, "/name");
            let succeeded = count_at(self.of(name)?, "/succeeded", 0);
            if succeeded <= 0 || succeeded > replicas(replicated) {
                return None;
            }
            let count = i32::try_from(succeeded.checked_mul(pods_per_job(replicated))?).ok()?;
            Some(ReclaimablePod { name: name.to_lowercase(), count })
        };
        replicated_jobs.iter().filter_map(of).collect()
    }
}

fn counts(job: &Value) -> JobCounts<'_> {
    JobCounts(list_at(job, "/status/replicatedJobsStatus"))
}

impl KindProfile for JobSet {
    fn id(&self) -> KindId {
        KindId {
            group: "jobset.x-k8s.io",
            version: "v1alpha2",
            kind: "JobSet",
            plural: "jobsets",
            framework: "jobset.x-k8s.io/jobset",
        }
    }

    fn is_active(&self, job: &Value) -> bool {
        counts(job).any_active()
    }

    fn finished(&self, job: &Value) -> Option<JobEnd> {
        finished_by(job, "Completed", "Failed")
    }

    /// Counted in Jobs, as JobSet counts them.
    fn pods_ready(&self, job: &Value) -> bool {
        let wanted: i64 = list_at(job, REPLICATED_JOBS).iter().map(replicas).sum();
        counts(job).ready() == wanted
    }

    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        counts(job).reclaimable(list_at(job, REPLICATED_JOBS))
    }
}

impl PlainKind for JobSet {
    fn own_controller(&self) -> &'static str {
        "jobset.sigs.k8s.io/jobset-controller"
    }

    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError> {
        let slot = |(index, replicated): (usize, &Value)| Slot {
            name: str_at(replicated, "/name").to_owned(),
            template: format!("{REPLICATED_JOBS}/{index}/template/spec/template"),
            replicas: format!("{REPLICATED_JOBS}/{index}/replicas"),
            count: pods(replicated),
            ranks: PodRanks::of_job_set(replicas(replicated)),
        };
        Ok(list_at(job, REPLICATED_JOBS).iter().enumerate().map(slot).collect())
    }

    fn trim_copy(&self, spec: &mut serde_json::Map<String, Value>) {
        // The hub deletes the copy after it has recorded the end.
        spec.remove("ttlSecondsAfterFinished");
    }
}
