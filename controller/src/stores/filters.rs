//! Filters of watched pods that are not jobs.

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use kube::Resource;
use switchyard_api::names;

/// Strips a pod of an elastic job to its metadata, scheduling gates and phase.
pub(crate) fn strip_unused_pod_fields(pod: &mut Pod) {
    let scheduling_gates = pod.spec.take().and_then(|spec| spec.scheduling_gates);
    pod.spec = Some(PodSpec { scheduling_gates, ..PodSpec::default() });
    let phase = pod.status.take().and_then(|status| status.phase);
    pod.status = Some(PodStatus { phase, ..PodStatus::default() });
}

/// Whether a pod is being deleted and may be deleted by force.
///
/// Kueue's `FailureRecoveryPolicy` asks for both.
pub(crate) fn is_forcefully_deletable<K: Resource>(pod: &K) -> bool {
    let annotation =
        pod.meta().annotations.as_ref().and_then(|all| all.get(names::SAFE_TO_FORCEFULLY_DELETE));
    pod.meta().deletion_timestamp.is_some() && annotation.is_some_and(|value| value == "true")
}
