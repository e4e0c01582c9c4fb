//! `jobset.x-k8s.io/v1alpha2` JobSet: groups of Jobs that run together.

use serde_json::Value;

use super::meta::str_at;
use super::plain::{PlainKind, Slot, count_at, finished_by, list_at};
use super::topology::PodRanks;
use super::{Finished, JobError, KindId};
use switchyard_api::v1beta2::ReclaimablePod;

/// The kind `jobset.x-k8s.io/v1alpha2` JobSet.
#[derive(Debug, Clone, Copy)]
pub struct JobSet;

const REPLICATED_JOBS: &str = "/spec/replicatedJobs";
const STATUSES: &str = "/status/replicatedJobsStatus";

/// Number of Jobs of a replicated job.
fn replicas(replicated: &Value) -> i64 {
    count_at(replicated, "/replicas", 1)
}

/// Pods of one Job that run at one time: never more than completions.
fn pods_a_job(replicated: &Value) -> i64 {
    let parallelism = count_at(replicated, "/template/spec/parallelism", 1);
    parallelism.min(count_at(replicated, "/template/spec/completions", parallelism))
}

fn status_of<'a>(job: &'a Value, name: &str) -> Option<&'a Value> {
    list_at(job, STATUSES).iter().find(|status| str_at(status, "/name") == name)
}

impl PlainKind for JobSet {
    fn id(&self) -> KindId {
        KindId {
            group: "jobset.x-k8s.io",
            version: "v1alpha2",
            kind: "JobSet",
            plural: "jobsets",
            framework: "jobset.x-k8s.io/jobset",
        }
    }

    fn own_controller(&self) -> &'static str {
        "jobset.sigs.k8s.io/jobset-controller"
    }

    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError> {
        let slot = |(index, replicated): (usize, &Value)| Slot {
            name: str_at(replicated, "/name").to_owned(),
            template: format!("{REPLICATED_JOBS}/{index}/template/spec/template"),
            replicas: format!("{REPLICATED_JOBS}/{index}/replicas"),
            count: replicas(replicated).saturating_mul(pods_a_job(replicated)),
            ranks: PodRanks::of_job_set(replicas(replicated)),
        };
        Ok(list_at(job, REPLICATED_JOBS).iter().enumerate().map(slot).collect())
    }

    fn is_active(&self, job: &Value) -> bool {
        list_at(job, STATUSES).iter().any(|status| count_at(status, "/active", 0) > 0)
    }

    fn finished(&self, job: &Value) -> Option<Finished> {
        finished_by(job, "Completed", "Failed")
    }

    /// Counted in Jobs, as JobSet counts them.
    fn pods_ready(&self, job: &Value) -> bool {
        let wanted: i64 = list_at(job, REPLICATED_JOBS).iter().map(replicas).sum();
        let ready =
            |status: &Value| count_at(status, "/ready", 0) + count_at(status, "/succeeded", 0);
        list_at(job, STATUSES).iter().map(ready).sum::<i64>() == wanted
    }

    /// Pods of succeeded Jobs.
    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        let of = |replicated: &Value| {
            let name = str_at(replicated, "/name");
            let succeeded = count_at(status_of(job, name)?, "/succeeded", 0);
            if succeeded <= 0 || succeeded > replicas(replicated) {
                return None;
            }
            let count = i32::try_from(succeeded.checked_mul(pods_a_job(replicated))?).ok()?;
            Some(ReclaimablePod { name: name.to_lowercase(), count })
        };
        list_at(job, REPLICATED_JOBS).iter().filter_map(of).collect()
    }

    fn trim_copy(&self, spec: &mut serde_json::Map<String, Value>) {
        // The hub deletes the copy after it has recorded the end.
        spec.remove("ttlSecondsAfterFinished");
    }
}
