//! New topology assignments of workloads that keep their quota, and evictions if no domain is left.

use std::sync::Arc;

use switchyard_api::{
    SmallMap,
    conditions::reasons,
    v1beta2::{Admission, Workload},
};
use switchyard_scheduler::Name;

use super::{Admitter, announce};
use crate::{
    context::patch_status,
    workload::{self, Edit, Evicted, Eviction},
};
use switchyard_platform::write::WriteError;
use switchyard_platform::{store::Key, work_queue::Outcome};

/// The status with the topology assignments of `admission`. `None` if the workload has other quota
/// than the engine decided upon.
fn reassigned_status(mut edit: Edit, admission: &Admission) -> Option<Edit> {
    let held = edit.status.admission.as_mut()?;
    if flavors(held) != flavors(admission) {
        return None;
    }
    for (held, given) in held.pod_set_assignments.iter_mut().zip(&admission.pod_set_assignments) {
        held.topology_assignment.clone_from(&given.topology_assignment);
        held.delayed_topology_request = given.delayed_topology_request;
    }
    edit.status.unhealthy_nodes.clear();
    edit.sync_admitted();
    Some(edit)
}

/// ClusterQueue and flavors of an admission. Amounts may differ, because the engine leaves out pods
/// that are no longer needed.
fn flavors(admission: &Admission) -> (&str, Vec<(&str, &SmallMap<String>)>) {
    let pod_sets = admission.pod_set_assignments.iter();
    (
        &admission.cluster_queue,
        pod_sets.map(|assignment| (assignment.name.as_str(), &assignment.flavors)).collect(),
    )
}

/// The status of a workload without a domain for the pods of failed nodes.
fn node_failure_status(mut edit: Edit, nodes: &[Name]) -> (Edit, Evicted) {
    let message = format!(
        "Workload was evicted as there was no replacement for unhealthy node(s): {}",
        nodes.join(",")
    );
    let eviction =
        Eviction { reason: reasons::evicted::NODE_FAILURES, cause: String::new(), message };
    let evicted = edit.evict(eviction);
    (edit, evicted)
}

impl Admitter {
    #[tracing::instrument(name = "placement", skip_all, fields(workload = %key))]
    pub(super) async fn reassign(
        &self,
        key: &Key,
        current: &Arc<Workload>,
        admission: &Admission,
    ) -> Outcome {
        let runs = !workload::is_evicted(current) && !workload::is_finished(current);
        let edit = runs.then(|| reassigned_status(self.ctx.edit(current), admission)).flatten();
        let Some(edit) = edit else {
            // The engine decided upon an older state: it must read the workload again.
            self.inbox.add_workload(key.clone());
            return Outcome::Done;
        };
        match patch_status(&self.ctx, current, &edit.status, "placement").await {
            Ok(Some(after)) => {
                announce(&self.ctx, current, &after, "");
                Outcome::Done
            }
            Ok(None) | Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
            Err(WriteError::Conflict) => Outcome::Failed,
            Err(error) => {
                tracing::warn!(workload = %key, %error, "new places not written");
                Outcome::Failed
            }
        }
    }

    /// Evicts a workload without a domain for the pods of failed nodes.
    pub(super) async fn evict_from_nodes(
        &self,
        key: &Key,
        current: &Workload,
        nodes: &[Name],
    ) -> Outcome {
        let Some(cluster_queue) = workload::admitted_by(current).map(str::to_owned) else {
            return Outcome::Done;
        };
        if workload::is_evicted(current) || workload::is_finished(current) {
            return Outcome::Done;
        }
        let decided = node_failure_status(self.ctx.edit(current), nodes);
        self.evict(key, current, &cluster_queue, "node failure", decided, |_| ()).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        fixtures::{self, WorkloadExt as _},
        workload::ReasonDetail,
    };

    fn placed(host: &str, flavor: &str) -> Admission {
        let topology = json!({
            "levels": ["kubernetes.io/hostname"],
            "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": 3}}],
        });
        serde_json::from_value(json!({
            "clusterQueue": "cq",
            "podSetAssignments": [{"name": "main", "flavors": {"cpu": flavor}, "count": 3, "topologyAssignment": topology}],
        }))
        .unwrap()
    }

    fn running(unhealthy: &Value) -> Workload {
        fixtures::workload("a").reserved("cq").admitted().status(|status| {
            status.admission = Some(placed("n1", "default"));
            status.unhealthy_nodes = serde_json::from_value(unhealthy.clone()).unwrap();
        })
    }

    fn begun(workload: &Workload) -> Edit {
        Edit::new(workload, ReasonDetail::Full, fixtures::at(30))
    }

    #[test]
    fn pods_of_a_failed_node_get_another_node() {
        let edit =
            reassigned_status(begun(&running(&json!([{"name": "n1"}]))), &placed("n2", "default"))
                .unwrap();
        assert_eq!(edit.status.admission, Some(placed("n2", "default")));
        assert!(edit.status.unhealthy_nodes.is_empty());
        insta::assert_snapshot!(fixtures::conditions(&edit.status), @r"
        10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
        12s Admitted=True Admitted: The workload is admitted
        ");
    }

    #[test]
    fn quota_stays_when_the_engine_counts_fewer_pods() {
        let mut fewer = placed("n2", "default");
        fewer.pod_set_assignments[0].count = Some(2);
        let edit = reassigned_status(begun(&running(&json!([{"name": "n1"}]))), &fewer).unwrap();
        assert_eq!(edit.status.admission, Some(placed("n2", "default")));
    }

    #[test]
    fn workload_with_other_quota_gets_no_assignment() {
        assert!(reassigned_status(begun(&running(&json!([]))), &placed("n2", "other")).is_none());
        assert!(
            reassigned_status(begun(&fixtures::workload("a")), &placed("n2", "default")).is_none()
        );
    }

    #[test]
    fn delayed_assignment_admits() {
        let pending = fixtures::workload("a").reserved("cq").status(|status| {
            let mut admission = placed("n1", "default");
            admission.pod_set_assignments[0].topology_assignment = None;
            admission.pod_set_assignments[0].delayed_topology_request = Some(Default::default());
            status.admission = Some(admission);
        });
        let edit = reassigned_status(begun(&pending), &placed("n1", "default")).unwrap();
        insta::assert_snapshot!(fixtures::conditions(&edit.status), @r"
        10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
        30s Admitted=True Admitted: The workload is admitted
        ");
    }

    #[test]
    fn workload_without_another_node_is_evicted() {
        let (edit, evicted) = node_failure_status(
            begun(&running(&json!([{"name": "n1"}]))),
            &["n1".into(), "n2".into()],
        );
        assert_eq!(evicted.event, "EvictedDueToNodeFailures");
        assert!(edit.status.unhealthy_nodes.is_empty());
        insta::assert_snapshot!(fixtures::conditions(&edit.status), @r"
        10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
        12s Admitted=True Admitted: The workload is admitted
        30s Evicted=True NodeFailures: Workload was evicted as there was no replacement for unhealthy node(s): n1,n2
        ");
    }
}
