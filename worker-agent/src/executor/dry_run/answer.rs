//! The verdict on a job by the API server's answer to a dry run. Pure.
//!
//! A refusal counts if the pods that the cluster's own controllers will create would meet it as well. Errors that are no
//! verdict (an overloaded server, a webhook that cannot be reached) refuse nothing.

use kube::core::Status;

use super::pods::Fidelity;
use switchyard_ledger::Trouble;

/// The longest message that is passed on, in characters.
const MAX_WORDS: usize = 1_000;

/// The result of a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The cluster takes such pods.
    Accepted,
    /// It does not.
    Refused {
        /// Why, for the hub.
        trouble: Trouble,
        /// For what may be anywhere in the template: another template of the same shape may be taken.
        own: bool,
    },
    /// No verdict, and why.
    Unknown(String),
    /// This account may not create pods there.
    MayNot,
}

/// Parts of the messages of Kubernetes' own admission plugins, the code for each, and whether pods that an operator changes
/// meet it as well.
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

/// Answers that concern who asks, or the owner that the tried pod names.
const OF_THE_CALLER: &[&str] = &["cannot set an ownerRef", "cannot set blockOwnerDeletion"];

/// Kueue's webhooks and those of Switchyard: they act on the tried pod, whose job is not there yet.
const OWN_WEBHOOKS: &str = ".kb.io\"";

/// The verdict of an answer that is no success.
pub(super) fn read(status: &Status, fidelity: Fidelity) -> Answer {
    let said = status.message.as_str();
    let unknown = || Answer::Unknown(words(said));
    let refused = |code: &str, own: bool| Answer::Refused {
        trouble: Trouble::refused(code, told(said)),
        own,
    };
    let of_template = fidelity != Fidelity::Changed;
    if !(400..500).contains(&status.code) || matches!(status.code, 401 | 408 | 409 | 429) {
        return unknown();
    }
    if said.contains("admission webhook") || said.contains("ValidatingAdmissionPolicy") {
        let denied = said.contains("denied the request") || said.contains("denied request");
        let counts = denied && of_template && !said.contains(OWN_WEBHOOKS);
        return if counts { refused("PodDenied", true) } else { unknown() };
    }
    match status.code {
        404 if said.contains("namespaces") => {
            let trouble = Trouble::unfit("NamespaceNotFound", told(said));
            Answer::Refused { trouble, own: false }
        }
        403 if said.contains("cannot create resource") => Answer::MayNot,
        403 if OF_THE_CALLER.iter().any(|part| said.contains(part)) || is_late(said) => unknown(),
        403 => match PLUGINS.iter().find(|(part, ..)| said.contains(part)) {
            Some((_, code, any)) if *any || of_template => refused(code, false),
            None if of_template => refused("PodForbidden", true),
            _ => unknown(),
        },
        422 if fidelity == Fidelity::Same => refused("PodInvalid", true),
        _ => unknown(),
    }
}

/// The default account of a namespace, and what is used of a quota, come a moment later.
fn is_late(said: &str) -> bool {
    said.contains("serviceaccount \"default\" not found")
        || said.contains("status unknown for quota")
}

/// The message without the name that the tried pod was given.
fn told(said: &str) -> String {
    let said = match said.split_once(" is forbidden: ") {
        Some((pod, why)) if pod.starts_with("pods \"") => why,
        _ => said,
    };
    format!("this cluster would refuse its pods: {}", words(said))
}

/// As it may be shown: of a bounded length, on one line.
fn words(said: &str) -> String {
    said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
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
    fn refusals_count_as_far_as_the_pods_will_meet_them() {
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
    fn words_of_a_cluster_are_bounded_and_on_one_line() {
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
