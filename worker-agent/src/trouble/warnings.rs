//! The newest warning events of the cluster, in bounded memory. Pure.
//!
//! Any user can create events about objects in their own namespace, so a namespace displaces only
//! its own.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use switchyard_proto::trouble;

use super::pods::Finding;

/// The most objects of one namespace with remembered warnings.
const PER_NAMESPACE: usize = 256;
/// The most namespaces with remembered warnings.
const NAMESPACES: usize = 1024;
/// The most kinds of warnings of one object.
const PER_OBJECT: usize = 4;

/// A warning about one object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Warning {
    pub(super) finding: Finding,
    /// When it last happened.
    pub(super) last: Option<Timestamp>,
}

#[derive(Debug)]
struct Warned {
    uid: String,
    kind: String,
    name: String,
    warnings: Vec<Warning>,
}

/// The warnings by namespace. The object with the newest warning is last.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    namespaces: BTreeMap<String, VecDeque<Warned>>,
}

impl Warnings {
    /// Records an event.
    pub(super) fn note(&mut self, event: &Event) {
        if event.type_.as_deref() != Some("Warning") {
            return;
        }
        let of = &event.involved_object;
        let (Some(namespace), Some(uid)) =
            (&of.namespace, of.uid.as_ref().filter(|uid| switchyard_proto::is_uid(uid)))
        else {
            return;
        };
        if !self.namespaces.contains_key(namespace) && self.namespaces.len() >= NAMESPACES {
            self.forget_one();
        }
        let objects = self.namespaces.entry(namespace.clone()).or_default();
        let known = objects.iter().position(|it| it.uid == *uid).and_then(|at| objects.remove(at));
        let text = |of: &Option<String>| trouble::single_line(of.as_deref().unwrap_or_default());
        let new = || Warned {
            uid: uid.clone(),
            kind: text(&of.kind),
            name: text(&of.name),
            warnings: Vec::new(),
        };
        let mut warned = known.unwrap_or_else(new);
        warned.take(read(event));
        objects.push_back(warned);
        if objects.len() > PER_NAMESPACE {
            objects.pop_front();
        }
    }

    /// Makes room for another namespace: drops the one with the most objects.
    fn forget_one(&mut self) {
        let most = self
            .namespaces
            .iter()
            .max_by_key(|(_, objects)| objects.len())
            .map(|(name, _)| name.clone());
        most.and_then(|name| self.namespaces.remove(&name));
    }

    /// The warnings about an object.
    pub(super) fn of(&self, namespace: &str, uid: &str) -> Vec<Warning> {
        let objects = self.namespaces.get(namespace).into_iter().flatten();
        objects.filter(|it| it.uid == uid).flat_map(|it| it.warnings.clone()).collect()
    }

    /// The uids and names of objects of a kind with warnings, newest first. Their name is that of
    /// the job, or begins with it and a dash.
    pub(super) fn named(&self, namespace: &str, kind: &str, job: &str) -> Vec<(String, String)> {
        let is_named = |name: &str| {
            name.strip_prefix(job).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let objects = self.namespaces.get(namespace).into_iter().flatten().rev();
        let such = objects.filter(|it| it.kind == kind && is_named(&it.name));
        such.map(|it| (it.uid.clone(), it.name.clone())).collect()
    }
}

impl Warned {
    fn take(&mut self, new: Warning) {
        self.warnings.retain(|known| known.finding.reason != new.finding.reason);
        self.warnings.push(new);
        if self.warnings.len() > PER_OBJECT {
            self.warnings.remove(0);
        }
    }
}

fn read(event: &Event) -> Warning {
    let code = event.reason.as_deref().unwrap_or_default();
    let text = trouble::single_line(event.message.as_deref().unwrap_or_default());
    let last =
        event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|at| at.0);
    let last = last
        .max(event.last_timestamp.as_ref().map(|at| at.0))
        .max(event.event_time.as_ref().map(|at| at.0));
    let since = event
        .first_timestamp
        .as_ref()
        .map(|at| at.0)
        .or(event.event_time.as_ref().map(|at| at.0))
        .or(last);
    let series = event.series.as_ref().and_then(|series| series.count);
    let count = u32::try_from(event.count.max(series).unwrap_or(1)).unwrap_or(1).max(1);
    let reason = class(code, &text);
    let message = if reason == trouble::OTHER {
        format!("{}: {text}", trouble::single_line(code))
    } else {
        text
    };
    Warning { finding: Finding { reason, message, count, since }, last }
}

/// Maps a warning to the closed set, by its reason and message.
fn class(code: &str, message: &str) -> &'static str {
    match code {
        "FailedScheduling" => trouble::UNSCHEDULABLE,
        "FailedMount" | "FailedAttachVolume" | "FailedMapVolume" => trouble::VOLUME,
        "FailedCreatePodSandBox" => trouble::CONTAINER_CONFIG,
        // `FailedCreate`, `FailedToCreatePod`, `JobCreationFailed`, ...
        _ if code.contains("Fail") && code.contains("reat") => {
            if message.contains("exceeded quota") {
                trouble::QUOTA_EXCEEDED
            } else {
                trouble::FAILED_CREATE
            }
        }
        _ => trouble::OTHER,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(namespace: &str, uid: &str, reason: &str, message: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": "e"}, "type": "Warning", "reason": reason, "message": message, "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00Z",
            "involvedObject": {"namespace": namespace, "uid": uid, "kind": "Job", "name": format!("job-{uid}")},
        }))
        .unwrap()
    }

    #[test]
    fn warnings_map_to_closed_set() {
        for (code, message, reason) in [
            ("FailedCreate", "serviceaccount \"a\" not found", trouble::FAILED_CREATE),
            ("FailedCreate", "pods \"a\" is forbidden: exceeded quota: q", trouble::QUOTA_EXCEEDED),
            ("JobCreationFailed", "no", trouble::FAILED_CREATE),
            ("FailedScheduling", "0/1 nodes", trouble::UNSCHEDULABLE),
            ("FailedMount", "no such volume", trouble::VOLUME),
            ("FailedCreatePodSandBox", "no network", trouble::CONTAINER_CONFIG),
            ("Made-up\nreason", "x", trouble::OTHER),
        ] {
            let mut warnings = Warnings::default();
            warnings.note(&event("ns", "u", code, message));
            let found = warnings.of("ns", "u");
            assert_eq!(
                found.iter().map(|it| it.finding.reason).collect::<Vec<_>>(),
                [reason],
                "{code}"
            );
            assert_eq!(found[0].finding.count, 3);
        }
    }

    #[test]
    fn objects_are_found_by_the_name_of_their_job() {
        let mut warnings = Warnings::default();
        for name in ["a", "a-0", "a-1", "ab-0", "b-a"] {
            let mut event = event("ns", name, "FailedCreate", "no");
            event.involved_object.name = Some(name.to_owned());
            warnings.note(&event);
        }
        let found = warnings.named("ns", "Job", "a");
        assert_eq!(
            found.into_iter().map(|(_, name)| name).collect::<Vec<_>>(),
            ["a-1", "a-0", "a"]
        );
    }

    #[test]
    fn flooding_namespace_keeps_other_warnings() {
        let mut warnings = Warnings::default();
        warnings.note(&event("quiet", "u", "FailedMount", "x"));
        for index in 0..10 * PER_NAMESPACE {
            warnings.note(&event(
                "loud",
                &format!("u{index}"),
                &format!("R{index}"),
                &"x".repeat(10_000),
            ));
        }
        assert_eq!(warnings.of("quiet", "u").len(), 1);
        assert_eq!(warnings.namespaces["loud"].len(), PER_NAMESPACE);
        for index in 0..100 {
            warnings.note(&event("loud", "same", &format!("R{index}FailedMount"), "x"));
        }
        assert!(warnings.of("loud", "same").len() <= PER_OBJECT);
        for index in 1..NAMESPACES {
            warnings.note(&event(&format!("ns{index}"), "u", "FailedMount", "x"));
        }
        assert!(
            warnings.namespaces.len() <= NAMESPACES && !warnings.namespaces.contains_key("loud")
        );
        assert_eq!(warnings.of("quiet", "u").len(), 1, "the loudest makes room");
    }

    #[test]
    fn newest_warning_of_a_kind_counts() {
        let mut warnings = Warnings::default();
        warnings.note(&event("ns", "u", "FailedCreate", "first"));
        warnings.note(&event("ns", "u", "FailedCreate", "second"));
        assert_eq!(warnings.of("ns", "u")[0].finding.message, "second");
        assert_eq!(warnings.named("ns", "Job", "job"), [("u".to_owned(), "job-u".to_owned())]);
        assert_eq!(warnings.of("ns", "v"), []);
    }
}
