//! First and last line of an explanation: the outlook, and what has to change.

use switchyard_api::conditions::messages;

use super::quota::ResourceView;
use super::view::ExplanationView;
use crate::job_row::JobState;

/// Answers of clusters about a workload without a cluster.
fn clusters(view: &ExplanationView) -> Option<String> {
    let recorded = view.recorded.iter().map(|recorded| recorded.message.as_str());
    let checks = view
        .admission_checks
        .iter()
        .filter(|check| check.state == "Pending" || check.state == "Retry");
    let said = recorded.chain(checks.map(|check| check.message.as_str()));
    said.into_iter().find_map(|message| {
        let none = message
            .strip_prefix(messages::NO_CLUSTER)
            .map(|said| format!("no cluster can run it now: {said}"));
        none.or_else(|| {
            message
                .strip_prefix(messages::WAITS_FOR_CLUSTER)
                .map(|said| format!("it waits for a cluster: {said}"))
        })
    })
}

/// The worker cluster that may still have pods of the evicted workload.
fn left_cluster(view: &ExplanationView) -> Option<&str> {
    let dispatch = view.dispatch.as_ref().filter(|_| view.state == JobState::Evicted)?;
    dispatch.left_cluster.as_deref()
}

/// The outlook of the workload.
pub(super) fn verdict(view: &ExplanationView) -> String {
    let state = view.state;
    if let Some(trouble) = view.trouble.as_ref().filter(|_| !state.is_final()) {
        return format!("{state}, and in trouble: {}", trouble.message);
    }
    if let Some(cluster) = left_cluster(view) {
        return format!(
            "{state}: it keeps its quota until cluster \"{cluster}\" has reported that nothing of it is left"
        );
    }
    // The hub asks clusters only about a workload that is not dispatched yet.
    let is_undispatched = matches!(state, JobState::Pending | JobState::QuotaReserved);
    if let Some(said) = clusters(view)
        .filter(|_| is_undispatched && !matches!(view.outlook, "Blocked" | "NotTried"))
    {
        return format!("{state}: {said}");
    }
    let first = view.place.as_ref().is_some_and(|place| place.head.is_none());
    let text = match view.outlook {
        "Fits" if first => "it fits and is the head: it is admitted in the next cycle",
        "Fits" => "it fits, and is admitted as soon as it is its turn",
        "Preempts" if first => {
            "it fits when others have been preempted, which starts in the next cycle"
        }
        "Preempts" => {
            "it fits when others have been preempted, which starts as soon as it is its turn"
        }
        "Blocked" => "it would not be admitted even if it were its turn",
        "NotTried" => "it is not tried",
        "QuotaReserved" => "it has quota, and waits for its admission checks",
        _ => return state.to_string(),
    };
    format!("{state}: {text}")
}

/// The change that lets the job start. `None` if it needs none or the facts do not tell.
pub(super) fn change(view: &ExplanationView) -> Option<String> {
    if view.state.is_final() {
        return None;
    }
    if let Some(trouble) = &view.trouble {
        return Some(remedy(&trouble.reason).to_owned());
    }
    if let Some(cluster) = left_cluster(view) {
        return Some(format!(
            "\"{cluster}\" reports that nothing of it is left; if that cluster does not come back: \
             switchyard cluster mark-lost {cluster}"
        ));
    }
    let is_undispatched = matches!(view.state, JobState::Pending | JobState::QuotaReserved);
    if clusters(view).is_some()
        && is_undispatched
        && !matches!(view.outlook, "Blocked" | "NotTried")
    {
        return Some(
            "one of these clusters takes it, or another is added to the MultiKueueConfig"
                .to_owned(),
        );
    }
    match view.outlook {
        "Blocked" => room(view).or_else(|| reason_change(view)),
        "NotTried"
            if view.place.as_ref().is_some_and(|place| place.backing_off_until.is_some()) =>
        {
            Some("its back-off ends".to_owned())
        }
        "NotTried" => Some(match view.reason.as_ref().map(|reason| reason.reason.as_str()) {
            Some("Deactivated") => "spec.active of the Workload is set to true".to_owned(),
            Some("AdmissionGated") => {
                "the annotation kueue.x-k8s.io/admission-gated-by is taken off the job".to_owned()
            }
            Some("OnHold") => "the job is no longer on hold".to_owned(),
            _ if !view.cluster_queue_inactive.is_empty() => "the ClusterQueue is active".to_owned(),
            _ if view.local_queue_inactive.is_some() => "the LocalQueue is open".to_owned(),
            _ => return reason_change(view),
        }),
        "QuotaReserved" => Some("its admission checks are ready".to_owned()),
        _ => None,
    }
}

/// The change that ends the reason.
fn reason_change(view: &ExplanationView) -> Option<String> {
    if let Some(placement) = &view.placement {
        return Some(placement.change());
    }
    view.reason.as_ref().map(|reason| format!("this is mended: {}", reason.message))
}

/// The missing quota, for each flavor that the pods could use.
fn room(view: &ExplanationView) -> Option<String> {
    let flavors = view.pod_sets.iter().find_map(|pod_set| {
        let blocked = pod_set
            .flavors
            .iter()
            .all(|flavor| !matches!(flavor.verdict, "Fits" | "Preempt" | "Reclaim"));
        blocked.then_some(&pod_set.flavors)
    })?;
    let lacks =
        |resource: &&ResourceView| !matches!(resource.verdict, "Fits" | "Preempt" | "Reclaim");
    let usable = flavors.iter().filter(|flavor| flavor.mismatch.is_none());
    let of_flavor = |flavor: &super::quota::FlavorView| {
        let lacking: Vec<String> = flavor.resources.iter().filter(lacks).map(one).collect();
        (!lacking.is_empty()).then(|| format!("{} (flavor {})", lacking.join(" and "), flavor.name))
    };
    let ways: Vec<String> = usable.filter_map(of_flavor).collect();
    (!ways.is_empty()).then(|| ways.join(", or "))
}

fn one(resource: &ResourceView) -> String {
    let ResourceView { name, missing, max, .. } = resource;
    match resource.verdict {
        "ExceedsMaxQuota" => format!("it asks for {max} {name} at most, or quota grows"),
        _ => format!("{missing} more {name} is freed or added"),
    }
}

/// The event that ends a problem on the worker, by the reason of `WorkerTrouble`.
fn remedy(reason: &str) -> &'static str {
    match reason {
        "CreationFailed" => {
            "the worker cluster accepts the object; its agent tries again by itself"
        }
        "FailedCreate" => "what the worker cluster's message names exists, or is allowed, there",
        "QuotaExceeded" => "the ResourceQuota of the namespace on the worker cluster has room",
        "Unschedulable" => {
            "nodes of the worker cluster have room that the pods may use; or the job is moved"
        }
        "SchedulingGated" => "the controller of the scheduling gate takes it off",
        "ImagePull" => "the image can be pulled on the worker cluster",
        "ContainerConfig" | "Volume" => "what the pods refer to exists on the worker cluster",
        "CrashLoop" => "the container stays up; its logs say why it ends",
        "ClusterUnreachable" => {
            "the cluster is back, or it is declared lost (switchyard cluster mark-lost NAME)"
        }
        "NoReadyPod" => {
            "a pod becomes ready on the worker cluster; or the job is moved (switchyard move JOB --to CLUSTER)"
        }
        "AgentUnable" => {
            "the API server of the worker cluster answers its agent again (on the worker: kubectl get --raw /readyz)"
        }
        "ClusterRemoved" => "the MultiKueueCluster is created again, or the job is deleted",
        _ => "what the worker cluster's message says",
    }
}
