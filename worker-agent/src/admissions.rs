//! What the admission controller in this process knows, and does to jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use switchyard_api::names;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::Context;
use switchyard_controller::workload::runs;
use switchyard_jobs::{JobKind, PodSetInfo, elastic, pod_set_infos};

/// Knows what admission gave to a Workload, and whether this process may write.
pub trait Admissions: Send + Sync {
    /// Whether this replica is sure to be the elected one. While it is not, nothing is written.
    fn may_write(&self) -> bool;

    /// What to merge into the job's templates to start it, one a pod set; none unless the controller knows that this
    /// attempt is admitted. It must not learn of the job before it knows that, or it would stop it.
    fn of(
        &self,
        namespace: &str,
        name: &str,
        workload_uid: &str,
        attempt: u64,
    ) -> Option<Vec<PodSetInfo>>;

    /// Makes a job that is about to be created as the controller's webhook would, which is not asked about what this process
    /// makes: the pods of an elastic one come gated.
    fn fill_in(&self, kind: &dyn JobKind, job: &mut Value);
}

/// What the controller of this context has admitted, by the very stores that its job reconciler reads.
pub fn admissions(context: Arc<Context>) -> Arc<dyn Admissions> {
    Arc::new(Local(context))
}

struct Local(Arc<Context>);

impl Admissions for Local {
    fn may_write(&self) -> bool {
        self.0.leading()
    }

    fn of(
        &self,
        namespace: &str,
        name: &str,
        workload_uid: &str,
        attempt: u64,
    ) -> Option<Vec<PodSetInfo>> {
        let workload = self.0.stores.workloads.get(namespace, name)?;
        if !is_attempt(&workload, workload_uid, attempt) || !runs(&workload) {
            return None;
        }
        let assignments = &workload.status.as_ref()?.admission.as_ref()?.pod_set_assignments;
        let names = assignments.iter().flat_map(|assignment| assignment.flavors.values());
        let flavors: BTreeMap<&str, _> = names
            .filter_map(|name| Some((name.as_str(), self.0.stores.resource_flavors.get("", name)?)))
            .collect();
        let infos = pod_set_infos(&workload, |name| flavors.get(name).map(Arc::as_ref)).ok()?;
        let labels = self.0.config.enabled("AssignQueueLabelsForPods");
        Some(if labels {
            infos
        } else {
            infos.into_iter().map(PodSetInfo::without_queue_labels).collect()
        })
    }

    fn fill_in(&self, kind: &dyn JobKind, job: &mut Value) {
        if self.0.config.enabled(elastic::FEATURE_GATE) && elastic::may_be_elastic(kind, job) {
            elastic::gate_pods(kind, job);
        }
    }
}

fn is_attempt(workload: &Workload, workload_uid: &str, attempt: u64) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    let is = |key: &str, value: &str| {
        annotations.and_then(|all| all.get(key)).is_some_and(|it| it == value)
    };
    is(names::WORKLOAD_UID, workload_uid) && is(names::ATTEMPT, &attempt.to_string())
}
