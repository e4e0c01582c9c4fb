//! `batch/v1` Job.

mod validate;

use jiff::Timestamp;
use serde_json::Value;

use super::index_set::count_terminal;
use super::meta::{annotation, i32_at, object_mut, remove_annotation, set_annotation, str_at};
use super::remote::remote_object;
use super::status::{finished_by, is_true};
use super::template::clean_template;
use super::topology::{JOB_COMPLETION_INDEX, PodRanks, TopologySource};
use super::{
    CountedPods, Elastic, JobEnd, JobError, JobKind, KindId, KindProfile, Managed, PodSetInfo,
    Remote, RemoteMeta, Stop, mirror, number, restore_template,
};
use switchyard_api::v1beta2::{DEFAULT_POD_SET_NAME, PodSet, ReclaimablePod};
use switchyard_syntax::field::{FieldError, Path};
use switchyard_syntax::names;

/// Label of a pod: the uid of its Job.
pub(crate) const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// Labels that the Job controller adds to the pod template. Workloads and remote copies lose all
/// but the first, which is the job's name and thus the same in all clusters.
pub const CONTROLLER_LABELS: [&str; 4] =
    ["batch.kubernetes.io/job-name", "job-name", "controller-uid", CONTROLLER_UID];

const INDEXED: &str = "Indexed";

/// The kind `batch/v1` Job.
#[derive(Debug, Clone, Copy)]
pub struct BatchJob;

// === Reading ===

fn parallelism(job: &Value) -> i32 {
    // The API server defaults it to 1.
    i32_at(job, "/spec/parallelism").unwrap_or(1)
}

fn completions(job: &Value) -> Option<i32> {
    i32_at(job, "/spec/completions")
}

/// Pods that run at one time: never more than completions.
fn pods_count(job: &Value) -> i32 {
    completions(job).map_or(parallelism(job), |completions| completions.min(parallelism(job)))
}

/// Pods that are ready or have succeeded.
fn done_or_ready(job: &Value) -> i32 {
    let uncounted =
        job.pointer("/status/uncountedTerminatedPods/succeeded").and_then(Value::as_array);
    let uncounted = uncounted.map_or(0, |pods| i32::try_from(pods.len()).unwrap_or(i32::MAX));
    let counter = |name: &str| i32_at(job, name).unwrap_or(0);
    counter("/status/succeeded").saturating_add(counter("/status/ready")).saturating_add(uncounted)
}

fn min_pods_count(job: &Value) -> Option<i32> {
    annotation(job, names::JOB_MIN_PARALLELISM)?.parse().ok()
}

fn completions_follow_parallelism(job: &Value) -> bool {
    annotation(job, names::JOB_COMPLETIONS_EQUAL_PARALLELISM)
        .is_some_and(|text| number::parse_bool(text) == Ok(true))
}

fn spec_suspended(job: &Value) -> bool {
    job.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false)
}

fn is_stopping(job: &Value) -> bool {
    annotation(job, names::STOPPING) == Some("true")
}

fn is_indexed(job: &Value) -> bool {
    str_at(job, "/spec/completionMode") == INDEXED
}

fn has_started(job: &Value) -> bool {
    job.pointer("/status/startTime").is_some_and(|t| !t.is_null())
}

fn runs_elsewhere(job: &Value) -> bool {
    !matches!(str_at(job, "/spec/managedBy"), "" | names::JOB_CONTROLLER)
}

// === Writing ===

fn set_spec(job: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(spec) = object_mut(job, &["spec"]) {
        spec.insert(field.to_owned(), value.into());
    }
}

fn set_count(job: &mut Value, count: i32) {
    set_spec(job, "parallelism", count);
    if completions_follow_parallelism(job) {
        set_spec(job, "completions", count);
    }
}

fn without_start_time(job: &Value) -> Value {
    let mut wanted = job.clone();
    if let Some(status) = object_mut(&mut wanted, &["status"]) {
        status.remove("startTime");
    }
    wanted
}

impl KindProfile for BatchJob {
    fn id(&self) -> KindId {
        KindId {
            group: "batch",
            version: "v1",
            kind: "Job",
            plural: "jobs",
            framework: "batch/job",
        }
    }

    fn elastic(&self) -> Option<&dyn Elastic> {
        Some(self)
    }

    fn is_active(&self, job: &Value) -> bool {
        // The Job controller counts pods that are being deleted as terminating, not active. They
        // still run.
        ["/status/active", "/status/terminating"]
            .iter()
            .any(|count| i32_at(job, count).unwrap_or(0) != 0)
    }

    fn finished(&self, job: &Value) -> Option<JobEnd> {
        finished_by(job, "Complete", "Failed")
    }

    fn pods_ready(&self, job: &Value) -> bool {
        done_or_ready(job) >= pods_count(job)
    }

    fn counted_pods(&self, job: &Value) -> Option<CountedPods> {
        let counts = |field: &str| i32_at(job, field).unwrap_or(0) > 0;
        let has_succeeded = counts("/status/succeeded");
        let may_exist = has_succeeded || counts("/status/active") || counts("/status/failed");
        Some(CountedPods { may_exist, has_succeeded })
    }

    /// Pods beyond the remaining completions.
    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        // At most `completions` pods run at one time, whatever `parallelism` says.
        let parallelism = pods_count(job);
        let completions = completions(job).unwrap_or(parallelism);
        let terminal = if is_indexed(job) {
            count_terminal(
                str_at(job, "/status/completedIndexes"),
                str_at(job, "/status/failedIndexes"),
                completions,
            )
        } else {
            i32_at(job, "/status/succeeded").unwrap_or(0)
        };
        if parallelism <= 1 || terminal <= 0 {
            return Vec::new();
        }
        let remaining = completions.saturating_sub(terminal).max(0);
        if remaining >= parallelism {
            return Vec::new();
        }
        vec![ReclaimablePod { name: DEFAULT_POD_SET_NAME.into(), count: parallelism - remaining }]
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        validate::job(job)
    }
}

impl JobKind for BatchJob {
    fn managed(&self) -> Option<&dyn Managed> {
        Some(self)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn pod_sets(&self, job: &Value) -> Result<Vec<PodSet>, JobError> {
        let template =
            job.pointer("/spec/template").filter(|t| t.get("spec").is_some_and(Value::is_object));
        let template = template.ok_or_else(|| JobError::Malformed {
            field: "spec.template.spec".into(),
            problem: "is missing; a Job needs a pod template".into(),
        })?;
        Ok(vec![PodSet {
            name: DEFAULT_POD_SET_NAME.into(),
            template: clean_template(template, &CONTROLLER_LABELS[1..]).into(),
            count: pods_count(job),
            min_count: min_pods_count(job),
            ..PodSet::default()
        }])
    }

    fn topology_source(&self, _job: &Value, _index: usize, pod_set: &PodSet) -> TopologySource {
        let path = Path::new("spec").child("template").child("metadata");
        TopologySource::of(pod_set, path, PodRanks::by(JOB_COMPLETION_INDEX))
    }

    fn is_suspended(&self, job: &Value) -> bool {
        spec_suspended(job) && !is_stopping(job)
    }

    fn suspend(&self, job: &mut Value) {
        set_spec(job, "suspend", true);
    }

    fn counts_while_deleted(&self) -> bool {
        true
    }

    fn run(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), JobError> {
        let [info] = infos else {
            return Err(JobError::PodSetCount { want: 1, got: infos.len() });
        };
        if let Some(template) = job.pointer_mut("/spec/template") {
            info.merge_into(template)?;
        }
        if min_pods_count(job).is_some() {
            set_count(job, info.count);
        }
        set_spec(job, "suspend", false);
        Ok(())
    }

    fn restore(&self, job: &mut Value, pod_sets: &[PodSet]) -> bool {
        let Some(pod_set) = pod_sets.first() else { return false };
        let mut changed = false;
        if min_pods_count(job).is_some() && parallelism(job) != pod_set.count {
            set_count(job, pod_set.count);
            changed = true;
        }
        if let Some(template) = job.pointer_mut("/spec/template") {
            changed |= restore_template(template, &pod_set.template.value(), &CONTROLLER_LABELS);
        }
        changed
    }

    /// API servers before 1.36 allow changes of a suspended Job's template only while
    /// `status.startTime` is unset.
    fn before_run(&self, job: &Value) -> Option<Value> {
        (spec_suspended(job) && has_started(job)).then(|| without_start_time(job))
    }

    /// A stop takes several writes, because the template of a Job cannot change while the Job is
    /// not suspended, has active pods or has a start time. The annotation `kueue.x-k8s.io/stopping`
    /// marks the Job until the last write. It is left out if nothing has to be restored.
    fn stop(&self, job: &Value, pod_sets: Option<&[PodSet]>) -> Stop {
        let mut wanted = job.clone();
        let restores = pod_sets.is_some_and(|pod_sets| self.restore(&mut wanted, pod_sets));
        if !spec_suspended(job) {
            let mut wanted = job.clone();
            self.suspend(&mut wanted);
            if restores || has_started(job) {
                set_annotation(&mut wanted, names::STOPPING, "true");
            }
            return Stop::Update { job: Box::new(wanted), now: true };
        }
        if !is_stopping(job) {
            return Stop::Done;
        }
        if self.is_active(job) {
            return Stop::Wait;
        }
        if has_started(job) {
            // Until the Job controller sets the condition, it may still count pods as active.
            return if is_true(job, "Suspended") || runs_elsewhere(job) {
                Stop::UpdateStatus(Box::new(without_start_time(job)))
            } else {
                Stop::Wait
            };
        }
        remove_annotation(&mut wanted, names::STOPPING);
        Stop::Update { job: Box::new(wanted), now: false }
    }

    fn shrink(&self, job: &mut Value, pod_sets: &[PodSet]) {
        if let Some(pod_set) = pod_sets.first().filter(|_| min_pods_count(job).is_some()) {
            set_count(job, pod_set.count);
            remove_annotation(job, names::JOB_MIN_PARALLELISM);
        }
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        validate::update(old, new)
    }
}

impl Elastic for BatchJob {
    fn templates(&self, _job: &Value) -> Vec<String> {
        vec!["/spec/template".to_owned()]
    }

    fn resizes(&self) -> bool {
        true
    }

    fn resize(&self, job: &mut Value, pod_sets: &[PodSet]) {
        if let Some(pod_set) = pod_sets.first().filter(|pod_set| pod_set.count != pods_count(job)) {
            set_count(job, pod_set.count);
        }
    }

    fn pods_ready_of(&self, job: &Value, pod_sets: &[PodSet]) -> bool {
        pod_sets.first().is_some_and(|pod_set| done_or_ready(job) >= pod_set.count)
    }
}

impl Managed for BatchJob {
    fn can_default_managed_by(&self, job: &Value) -> bool {
        !runs_elsewhere(job)
    }
}

impl Remote for BatchJob {
    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value {
        let mut copy = remote_object(self.id(), job, remote);
        let has_own_selector = job.pointer("/spec/manualSelector") == Some(&Value::Bool(true));
        if let Some(spec) = object_mut(&mut copy, &["spec"]) {
            spec.insert("suspend".to_owned(), Value::from(true));
            for field in ["managedBy", "ttlSecondsAfterFinished"] {
                spec.remove(field);
            }
            // A selector that the user wrote selects labels that the user wrote.
            if !has_own_selector {
                spec.remove("selector");
                spec.remove("manualSelector");
                if let Some(template) = spec.get_mut("template") {
                    *template = clean_template(template, &CONTROLLER_LABELS[1..]);
                }
            }
        }
        copy
    }

    fn mirror_status(&self, local: &Value, remote: &Value) -> Option<Value> {
        mirror::merged_status(local, remote)
    }

    fn reset_status(&self, local: &Value, now: Timestamp) -> Option<Value> {
        mirror::reset_status(local, now)
    }

    fn waiting_status(&self, local: &Value, now: Timestamp) -> Option<Value> {
        mirror::waiting_status(local, now)
    }
}
