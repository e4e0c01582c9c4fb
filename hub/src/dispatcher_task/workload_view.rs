//! A Workload, read once into the values by which the dispatcher's task gathers and writes.

use kube::ResourceExt as _;
use serde::Deserialize;
use switchyard_api::names;
use switchyard_api::v1beta2::{AdmissionCheckState, CheckState, PriorityClassKind, Workload};
use switchyard_controller::workload as state;
use switchyard_dispatcher::{AdoptRequest, CheckStatus, Name, WorkloadState};

/// The parsed form of a Workload.
pub(super) struct WorkloadView<'a> {
    workload: &'a Workload,
    other_checks: Vec<&'a AdmissionCheckState>,
    pub(super) uid: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Resource versions of one kind grow as numbers. Kubernetes guarantees that since 1.35, and
    /// etcd has always done so. Zero: unreadable.
    pub(super) version: u64,
    pub(super) queue: &'a str,
    pub(super) priority: i32,
    /// The WorkloadPriorityClass that sets the priority.
    pub(super) priority_class: Option<&'a str>,
    pub(super) state: WorkloadState,
    pub(super) has_owner: bool,
    /// `status.nominatedClusterNames`.
    pub(super) nominated: &'a [String],
}

impl<'a> WorkloadView<'a> {
    /// Reads a Workload. `is_multikueue`: whether the AdmissionCheck with this name dispatches.
    pub(super) fn of(workload: &'a Workload, is_multikueue: &dyn Fn(&str) -> bool) -> Self {
        let status = workload.status.as_ref();
        let checks = status.map(|status| status.admission_checks.as_slice()).unwrap_or_default();
        let (ours, other_checks): (Vec<_>, Vec<_>) =
            checks.iter().partition(|check| is_multikueue(&check.name));
        let version = workload.metadata.resource_version.as_deref();
        let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
        Self {
            workload,
            other_checks,
            uid: workload.metadata.uid.as_deref().unwrap_or_default(),
            namespace: workload.metadata.namespace.as_deref().unwrap_or_default(),
            name: workload.metadata.name.as_deref().unwrap_or_default(),
            version: version.and_then(|version| version.parse().ok()).unwrap_or(0),
            queue: state::queue_name(workload),
            priority: workload.spec.priority.unwrap_or(0),
            priority_class: priority_class(workload),
            state: WorkloadState {
                active: state::stays_active(workload),
                deleting: workload.metadata.deletion_timestamp.is_some(),
                reserved: state::has_reservation(workload),
                evicted: state::is_evicted(workload),
                finished: state::is_finished(workload),
                check: ours.first().map(|it| (it.name.as_str().into(), check_status(it.state))),
                cluster: status.and_then(|status| status.cluster_name.as_deref()).map(Name::from),
                attempt: attempt(workload),
                cluster_uid: cluster_uid(workload).map(Name::from),
            },
            has_owner: !owners.is_empty(),
            nominated: status
                .map(|status| status.nominated_cluster_names.as_slice())
                .unwrap_or_default(),
        }
    }

    /// Whether all listed checks but the MultiKueue check are ready, and all `required` ones are
    /// among them.
    pub(super) fn other_checks_ready(&self, required: &[String]) -> bool {
        let is_ready = |name: &String| {
            self.other_checks
                .iter()
                .any(|check| check.name == *name && check.state == CheckState::Ready)
        };
        self.other_checks.iter().all(|check| check.state == CheckState::Ready)
            && required.iter().all(is_ready)
    }

    /// The annotation that names a copy to adopt: `CLUSTER/UID` or `none`.
    pub(super) fn adopt(&self) -> Option<AdoptRequest> {
        let value = self.workload.annotations().get(names::ADOPT)?;
        if value == "none" {
            return Some(AdoptRequest::NoCopy);
        }
        let (cluster, uid) = value.split_once('/')?;
        Some(AdoptRequest::Copy(cluster.into(), uid.into()))
    }

    /// The annotation that moves an attempt to another cluster: `ATTEMPT/CLUSTER`.
    pub(super) fn move_request(&self) -> Option<(u64, Name)> {
        let value = self.workload.annotations().get(names::MOVE)?;
        let (attempt, cluster) = value.split_once('/')?;
        Some((attempt.parse().ok()?, cluster.into()))
    }

    /// The longest termination grace period of the pods, in milliseconds. Parses the pod templates.
    pub(super) fn grace(&self) -> i64 {
        grace(self.workload)
    }
}

/// `status.dispatch.attempt`, or zero.
pub(super) fn attempt(workload: &Workload) -> u64 {
    let dispatch = workload.status.as_ref().and_then(|status| status.dispatch.as_ref());
    dispatch.map_or(0, |dispatch| u64::try_from(dispatch.attempt).unwrap_or(0))
}

/// The uid by which clusters know the workload, if not its own.
pub(super) fn cluster_uid(workload: &Workload) -> Option<&str> {
    let theirs = workload.status.as_ref()?.dispatch.as_ref()?.workload_uid.as_deref()?;
    (workload.metadata.uid.as_deref() != Some(theirs)).then_some(theirs)
}

/// The WorkloadPriorityClass that sets the workload's priority.
pub(super) fn priority_class(workload: &Workload) -> Option<&str> {
    let class = workload.spec.priority_class_ref.as_ref()?;
    (class.kind == PriorityClassKind::WorkloadPriorityClass).then_some(class.name.as_str())
}

fn check_status(state: CheckState) -> CheckStatus {
    match state {
        CheckState::Pending => CheckStatus::Pending,
        CheckState::Ready => CheckStatus::Ready,
        CheckState::Retry => CheckStatus::Retry,
        CheckState::Rejected => CheckStatus::Rejected,
    }
}

/// Kubernetes' default for `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;

/// The longest termination grace period of the workload's pods, in milliseconds.
fn grace(workload: &Workload) -> i64 {
    #[derive(Deserialize)]
    struct Template {
        spec: Pod,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Pod {
        termination_grace_period_seconds: i64,
    }
    let seconds = |set: &switchyard_api::v1beta2::PodSet| {
        set.template
            .read()
            .map_or(DEFAULT_GRACE, |it: Template| it.spec.termination_grace_period_seconds)
    };
    workload
        .spec
        .pod_sets
        .iter()
        .map(seconds)
        .max()
        .unwrap_or(DEFAULT_GRACE)
        .max(0)
        .saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(status: &serde_json::Value) -> Workload {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "job-a", "namespace": "ns", "uid": "u", "resourceVersion": "42"},
            "spec": {"queueName": "lq", "priority": 7, "podSets": []},
            "status": status,
        }))
        .unwrap()
    }

    fn check(name: &str, state: &str) -> serde_json::Value {
        serde_json::json!({"name": name, "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    fn view(workload: &Workload) -> WorkloadView<'_> {
        WorkloadView::of(workload, &|name| name == "mk")
    }

    #[test]
    fn view_of_a_dispatched_workload_has_its_state() {
        let workload = workload(&serde_json::json!({
            "clusterName": "east", "dispatch": {"attempt": 3},
            "admissionChecks": [check("mk", "Ready"), check("budget", "Ready")],
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }));
        let view = view(&workload);
        assert_eq!((view.uid, view.queue, view.priority, view.version), ("u", "lq", 7, 42));
        let state = &view.state;
        assert_eq!(
            (state.cluster.as_deref(), state.attempt, state.reserved),
            (Some("east"), 3, true)
        );
        assert_eq!(state.check, Some(("mk".into(), CheckStatus::Ready)));
        assert!(view.other_checks_ready(&["budget".to_owned()]));
        assert!(state.active && !state.evicted && !state.finished);
    }

    #[test]
    fn other_checks_are_ready_when_all_are_listed_and_ready() {
        for (case, checks, ready) in [
            ("not listed yet", vec![check("mk", "Pending")], false),
            ("pending", vec![check("mk", "Pending"), check("budget", "Pending")], false),
            (
                "one that only some flavors need",
                vec![check("budget", "Ready"), check("prov", "Pending")],
                false,
            ),
            ("ready", vec![check("mk", "Pending"), check("budget", "Ready")], true),
        ] {
            let workload = workload(&serde_json::json!({"admissionChecks": checks}));
            let is_ready = view(&workload).other_checks_ready(&["budget".to_owned()]);
            assert_eq!(is_ready, ready, "{case}");
        }
    }
}
