//! Derives the trouble from a pod's status. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use switchyard_proto::trouble;

/// Reasons of a waiting container without its image.
const IMAGE: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
];
/// Reasons of a waiting container that cannot be created.
const CONFIG: [&str; 6] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "PreCreateHookError",
    "PreStartHookError",
    "PostStartHookError",
];

/// One trouble of one object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// How often it happened.
    pub(super) count: u32,
    pub(super) since: Option<Timestamp>,
}

/// The trouble that keeps a pod from being ready. Pods that have ended or are being deleted have
/// none.
pub(super) fn of_pod(pod: &Pod) -> Option<Finding> {
    let status = pod.status.as_ref()?;
    if pod.metadata.deletion_timestamp.is_some()
        || matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
    {
        return None;
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    scheduling(pod, name).or_else(|| {
        let all = status
            .init_container_statuses
            .iter()
            .flatten()
            .chain(status.container_statuses.iter().flatten());
        let since = status.start_time.as_ref().map(|at| at.0);
        all.filter_map(container).min_by_key(|(reason, _)| *reason != trouble::IMAGE_PULL).map(
            |(reason, message)| Finding {
                reason,
                message: format!("pod {name}: {message}"),
                count: 1,
                since,
            },
        )
    })
}

fn scheduling(pod: &Pod, name: &str) -> Option<Finding> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled =
        conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
    let since = scheduled
        .last_transition_time
        .as_ref()
        .or(pod.metadata.creation_timestamp.as_ref())
        .map(|at| at.0);
    let message = scheduled.message.as_deref().unwrap_or_default();
    let finding = |reason, message| Finding { reason, message, count: 1, since };
    match scheduled.reason.as_deref() {
        Some("SchedulingGated") => {
            let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
            let gates: Vec<&str> = gates.map(|gate| gate.name.as_str()).collect();
            Some(finding(
                trouble::SCHEDULING_GATED,
                format!("pod {name}: gated by {}", gates.join(", ")),
            ))
        }
        _ => Some(finding(trouble::UNSCHEDULABLE, format!("pod {name}: {message}"))),
    }
}

/// The trouble of a container, and its message.
fn container(status: &ContainerStatus) -> Option<(&'static str, String)> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let code = waiting.reason.as_deref()?;
    let reason = match code {
        "CrashLoopBackOff" => trouble::CRASH_LOOP,
        code if IMAGE.contains(&code) => trouble::IMAGE_PULL,
        code if CONFIG.contains(&code) => trouble::CONTAINER_CONFIG,
        _ => return None,
    };
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let ended = last.filter(|_| reason == trouble::CRASH_LOOP).map(|last| {
        let why = last.reason.as_deref().unwrap_or("ended");
        format!(
            "; it ended {} times, last with exit code {} ({why})",
            status.restart_count, last.exit_code
        )
    });
    let message =
        waiting.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
    Some((
        reason,
        format!("container {}: {code}{message}{}", status.name, ended.unwrap_or_default()),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn unscheduled(reason: &str, message: &str) -> Value {
        let at = "2026-01-01T00:00:00Z";
        json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastTransitionTime": at
        })
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!([{
            "name": "c", "ready": false, "restartCount": 3, "image": "i", "imageID": "",
            "state": {"waiting": {"reason": reason, "message": message}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
        }])
    }

    #[rstest::rstest]
    #[case::without_a_node(
        json!({"phase": "Pending", "conditions": [unscheduled("Unschedulable", "0/1 nodes are available")]}),
        "Unschedulable pod p: 0/1 nodes are available"
    )]
    #[case::with_a_gate(
        json!({"phase": "Pending", "conditions": [unscheduled("SchedulingGated", "")]}),
        "SchedulingGated pod p: gated by example.com/a, example.com/b"
    )]
    #[case::without_its_image(
        json!({"phase": "Pending", "containerStatuses": waiting("ImagePullBackOff", "Back-off pulling image")}),
        "ImagePull pod p: container c: ImagePullBackOff: Back-off pulling image"
    )]
    #[case::whose_init_container_lacks_its_image(
        json!({"phase": "Pending", "initContainerStatuses": waiting("ErrImagePull", "no"),
            "containerStatuses": waiting("PodInitializing", "")}),
        "ImagePull pod p: container c: ErrImagePull: no"
    )]
    #[case::without_its_secret(
        json!({"phase": "Pending", "containerStatuses": waiting("CreateContainerConfigError", "secret \"s\" not found")}),
        "ContainerConfig pod p: container c: CreateContainerConfigError: secret \"s\" not found"
    )]
    #[case::that_ends_again_and_again(
        json!({"phase": "Running", "containerStatuses": waiting("CrashLoopBackOff", "back-off 20s")}),
        "CrashLoop pod p: container c: CrashLoopBackOff: back-off 20s; it ended 3 times, last with exit code 1 (Error)"
    )]
    #[case::that_is_being_made(
        json!({"phase": "Pending", "containerStatuses": waiting("ContainerCreating", "")}), ""
    )]
    #[case::that_has_ended(
        json!({"phase": "Failed", "conditions": [unscheduled("Unschedulable", "")]}), ""
    )]
    #[case::that_is_new(json!({}), "")]
    fn pod_status_maps_to_trouble(#[case] status: Value, #[case] expected: &str) {
        let gates = json!([{"name": "example.com/a"}, {"name": "example.com/b"}]);
        let pod = json!({
            "metadata": {"name": "p"}, "status": status, "spec": {"containers": [], "schedulingGates": gates},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let found =
            of_pod(&pod).map(|it| format!("{} {}", it.reason, it.message)).unwrap_or_default();
        assert_eq!(found, expected);
    }
}
