//! Interprets the API server's answer to a dry run. Pure.
//!
//! A refusal counts if the pods that the cluster's own controllers create would be refused too.
//! Errors such as an overloaded server or an unreachable webhook are no refusals.

use kube::core::Status;
use switchyard_ledger::Rejection;

use super::pods::Fidelity;

/// The longest message that is reported, in characters.
const MAX_WORDS: usize = 1_000;

/// The result of a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The cluster accepts such pods.
    Accepted,
    /// The cluster refuses such pods.
    Refused {
        /// The reason to report.
        trouble: Rejection,
        /// Whether the cause may be anywhere in the template. Then another template of the same
        /// shape may be accepted.
        own: bool,
    },
    /// No result, and why.
    Unknown(String),
    /// The agent's account may not create pods there.
    MayNot,
}

impl Answer {
    /// The label of the metric.
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused { .. } => "refused",
            Self::Unknown(_) | Self::MayNot => "unknown",
        }
    }
}

/// Parts of messages of Kubernetes' admission plugins, the reason code of each, and whether the
/// refusal is certain for pods that an operator changes.
const PLUGINS: &[(&str, &str, bool)] = &[
    ("error looking up service account", "ServiceAccountNotFound", true),
    ("no PriorityClass with name", "PriorityClassNotFound", true),
    ("pod rejected: RuntimeClass", "RuntimeClassNotFound", true),
    ("because it is being terminated", "NamespaceTerminating", true),
    ("exceeded quota", "ResourceQuotaExceeded", false),
    ("failed quota", "ResourceQuotaExceeded", false),
    ("violates PodSecurity", "PodSecurityViolated", false),
    ("usage per Container", "LimitRangeViolated", false),
    ("usage per Pod", "LimitRangeViolated", false),
    ("limit to request ratio per", "LimitRangeViolated", false),
];

/// Answers that concern the caller, or the owner that the trial pod names.
const OF_THE_CALLER: &[&str] = &["cannot set an ownerRef", "cannot set blockOwnerDeletion"];

/// Webhooks of Kueue and Switchyard. They check the trial pod, whose job does not exist yet.
const OWN_WEBHOOKS: &str = ".kb.io\"";

/// The result of an answer that is not a success.
pub(super) fn read(status: &Status, fidelity: Fidelity) -> Answer {
    let message = status.message.as_str();
    let unknown = || Answer::Unknown(bounded(message));
    let refused = |code: &str, own: bool| Answer::Refused {
        trouble: Rejection::refused(code, report(message)),
        own,
    };
    let of_template = fidelity != Fidelity::Changed;
    if !(400..500).contains(&status.code) || matches!(status.code, 401 | 408 | 409 | 429) {
        return unknown();
    }
    if message.contains("admission webhook") || message.contains("ValidatingAdmissionPolicy") {
        let denied = message.contains("denied the request") || message.contains("denied request");
        let counts = denied && of_template && !message.contains(OWN_WEBHOOKS);
        return if counts { refused("PodDenied", true) } else { unknown() };
    }
    match status.code {
        404 if message.contains("namespaces") => {
            let trouble = Rejection::unfit("NamespaceNotFound", report(message));
            Answer::Refused { trouble, own: false }
        }
        403 if message.contains("cannot create resource") => Answer::MayNot,
        403 if OF_THE_CALLER.iter().any(|part| message.contains(part)) || is_late(message) => {
            unknown()
        }
        403 => match PLUGINS.iter().find(|(part, ..)| message.contains(part)) {
            Some((_, code, any)) if *any || of_template => refused(code, false),
            None if of_template => refused("PodForbidden", true),
            _ => unknown(),
        },
        422 if fidelity == Fidelity::Same => refused("PodInvalid", true),
        _ => unknown(),
    }
}

/// Whether the cause passes by itself: the default account of a namespace and the usage of a quota
/// are created with a delay.
fn is_late(message: &str) -> bool {
    message.contains("serviceaccount \"default\" not found")
        || message.contains("status unknown for quota")
}

/// The message without the trial pod's name.
fn report(message: &str) -> String {
    let message = match message.split_once(" is forbidden: ") {
        Some((pod, why)) if pod.starts_with("pods \"") => why,
        _ => message,
    };
    format!("this cluster would refuse its pods: {}", bounded(message))
}

/// The message on one line, with a bounded length.
fn bounded(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(fidelity: Fidelity, status: u16, message: &str) -> String {
        let status = Status { code: status, ..Status::failure(message, "") };
        match read(&status, fidelity) {
            Answer::Accepted => "accepted".to_owned(),
            Answer::Refused { trouble, own } => {
                format!("{}{}", trouble.code, if own { ", own" } else { "" })
            }
            Answer::Unknown(_) => "unknown".to_owned(),
            Answer::MayNot => "may not".to_owned(),
        }
    }

    /// The messages are those of Kubernetes 1.36.
    #[test]
    fn refusals_count_if_real_pods_meet_them() {
        use Fidelity::{Changed, Completed, Same};
        let forbidden = |why: &str| format!("pods \"a-x7z2k\" is forbidden: {why}");
        let account = forbidden(
            "error looking up service account ns/robot: serviceaccount \"robot\" not found",
        );
        let priority = forbidden("no PriorityClass with name high was found");
        let runtime = forbidden("pod rejected: RuntimeClass \"gvisor\" not found");
        let quota =
            forbidden("exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5");
        let unset = forbidden("failed quota: q: must specify limits.cpu for: main");
        let security =
            forbidden("violates PodSecurity \"restricted:latest\": runAsNonRoot != true");
        let limits = forbidden("maximum cpu usage per Container is 1, but limit is 2");
        let webhook = "admission webhook \"pods.example.com\" denied the request: no";
        let policy = forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no");
        let invalid = "Pod \"a-x7z2k\" is invalid: spec.containers[0].image: Required value";
        let kueue = "admission webhook \"vpod.kb.io\" denied the request: no";
        let late = forbidden(
            "error looking up service account ns/default: serviceaccount \"default\" not found",
        );
        let rights = "pods is forbidden: User \"u\" cannot create resource \"pods\" in API group \"\" in the namespace \"ns\"";
        for (status, message, same, completed, changed) in [
            (
                403,
                &*account,
                "ServiceAccountNotFound",
                "ServiceAccountNotFound",
                "ServiceAccountNotFound",
            ),
            (
                403,
                &*priority,
                "PriorityClassNotFound",
                "PriorityClassNotFound",
                "PriorityClassNotFound",
            ),
            (
                403,
                &*runtime,
                "RuntimeClassNotFound",
                "RuntimeClassNotFound",
                "RuntimeClassNotFound",
            ),
            (
                404,
                "namespaces \"ns\" not found",
                "NamespaceNotFound",
                "NamespaceNotFound",
                "NamespaceNotFound",
            ),
            (403, &*quota, "ResourceQuotaExceeded", "ResourceQuotaExceeded", "unknown"),
            (403, &*unset, "ResourceQuotaExceeded", "ResourceQuotaExceeded", "unknown"),
            (403, &*security, "PodSecurityViolated", "PodSecurityViolated", "unknown"),
            (403, &*limits, "LimitRangeViolated", "LimitRangeViolated", "unknown"),
            (400, webhook, "PodDenied, own", "PodDenied, own", "unknown"),
            (422, &*policy, "PodDenied, own", "PodDenied, own", "unknown"),
            (403, &*forbidden("because"), "PodForbidden, own", "PodForbidden, own", "unknown"),
            (422, invalid, "PodInvalid, own", "unknown", "unknown"),
            (403, kueue, "unknown", "unknown", "unknown"),
            (403, &*late, "unknown", "unknown", "unknown"),
            (
                403,
                &*forbidden("status unknown for quota: q, resources: pods"),
                "unknown",
                "unknown",
                "unknown",
            ),
            (403, rights, "may not", "may not", "may not"),
            (
                400,
                "admission webhook \"w\" does not support dry run",
                "unknown",
                "unknown",
                "unknown",
            ),
            (
                403,
                "cannot set an ownerRef on a resource you can't delete",
                "unknown",
                "unknown",
                "unknown",
            ),
            (401, "no", "unknown", "unknown", "unknown"),
            (408, "no", "unknown", "unknown", "unknown"),
            (409, "no", "unknown", "unknown", "unknown"),
            (429, "no", "unknown", "unknown", "unknown"),
            (
                500,
                "failed calling webhook \"w\": context deadline exceeded",
                "unknown",
                "unknown",
                "unknown",
            ),
            (504, "no", "unknown", "unknown", "unknown"),
        ] {
            let read = [Same, Completed, Changed].map(|fidelity| code(fidelity, status, message));
            assert_eq!(read, [same, completed, changed], "{status} {message}");
        }
    }

    #[test]
    fn cluster_messages_are_bounded_and_single_line() {
        let long = format!(
            "pods \"a-x\" is forbidden: violates PodSecurity \u{1b}[2J\n{}",
            "x".repeat(5_000)
        );
        let status = Status { code: 403, ..Status::failure(&long, "") };
        let Answer::Refused { trouble, .. } = read(&status, Fidelity::Same) else {
            panic!("{long}")
        };
        assert!(
            trouble.message.starts_with("this cluster would refuse its pods: violates PodSecurity"),
            "{trouble:?}"
        );
        assert!(
            trouble.message.chars().count() < MAX_WORDS + 50
                && !trouble.message.contains(char::is_control)
        );
    }
}
