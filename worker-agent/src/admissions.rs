//! The view of the admission controller that runs in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use switchyard_api::names;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::Context;
use switchyard_controller::workload::runs;
use switchyard_jobs::{JobKind, PodSetInfo, elastic, pod_set_infos};

/// The admissions of the local controller, and whether this process may write.
pub trait Admissions: Send + Sync {
    /// Whether this replica is certain to be the leader. If not, the agent writes nothing.
    fn may_write(&self) -> bool;

    /// The values to merge into the job's pod templates to start it, one per pod set.
    ///
    /// None unless the controller knows that this attempt is admitted. The controller must know
    /// that before it sees the job, or it would stop it.
    fn of(
        &self,
        namespace: &str,
        name: &str,
        workload_uid: &str,
        attempt: u64,
    ) -> Option<Vec<PodSetInfo>>;

    /// Applies to a job the changes of the controller's webhook, which does not see this process's
    /// requests: the pods of an elastic job are created gated.
    fn fill_in(&self, kind: &dyn JobKind, job: &mut Value);
}

/// The admissions of this controller, from the stores that its job reconciler reads.
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
