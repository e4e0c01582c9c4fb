//! Writes the authenticated user of each request to the hub into the audit stream.
//!
//! Administrators ask the hub by annotations. When the hub reads one, it knows only the field
//! manager of the write, and every client chooses that name itself. The review of the write carries
//! the user whom the API server authenticated.

use std::borrow::Cow;

use serde_json::Value;
use switchyard_api::names;
use switchyard_jobs::meta;
use switchyard_platform::telemetry::AUDIT_TARGET;

/// The kind that is reviewed for its annotations alone, in paths and webhook names.
pub(super) const SINGULAR: &str = "multikueuecluster";

/// Most characters of a text in a line.
const MAX_TEXT: usize = 512;

/// An annotation by which an administrator asks for an operation.
struct Request {
    kind: &'static str,
    annotation: &'static str,
    operation: &'static str,
}

const REQUESTS: [Request; 6] = [
    Request {
        kind: "MultiKueueCluster",
        annotation: names::SCHEDULING,
        // Its value names the other two operations: cordon and drain.
        operation: "uncordon",
    },
    Request {
        kind: "MultiKueueCluster",
        annotation: names::DECLARED_LOST,
        operation: "declare-lost",
    },
    Request {
        kind: "MultiKueueCluster",
        annotation: names::BREAKER_RELEASE,
        operation: "release-breaker",
    },
    Request {
        kind: "MultiKueueCluster",
        annotation: names::TRUST_COPIES,
        operation: "trust-copies",
    },
    Request { kind: "Workload", annotation: names::MOVE, operation: "move" },
    Request { kind: "Workload", annotation: names::ADOPT, operation: "adopt" },
];

/// One line of the audit stream.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    operation: Cow<'a, str>,
    object: String,
    why: &'a str,
}

/// Writes a line for each request in a write that `user` made.
pub(super) fn audit(user: &str, object: &Value, old: Option<&Value>) {
    for line in lines(object, old) {
        tracing::info!(
            target: AUDIT_TARGET,
            operation = &*line.operation,
            who = bounded(user),
            address = "",
            known_by = "user",
            object = bounded(&line.object),
            why = bounded(line.why),
            result = "requested",
            "audit"
        );
    }
}

fn lines<'a>(object: &'a Value, old: Option<&Value>) -> Vec<Line<'a>> {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let name = || match meta::namespace(object) {
        "" => format!("{kind}/{}", meta::name(object)),
        namespace => format!("{kind}/{namespace}/{}", meta::name(object)),
    };
    let of_kind = REQUESTS.iter().filter(|request| request.kind == kind);
    of_kind
        .filter_map(|request| {
            let now = meta::annotation(object, request.annotation);
            let before = old.and_then(|old| meta::annotation(old, request.annotation));
            let is_scheduling = request.annotation == names::SCHEDULING;
            let operation = match now {
                _ if now == before => return None,
                Some(value @ (names::CORDON | names::DRAIN)) if is_scheduling => value,
                // Removing another annotation takes a request back, which the hub ignores.
                None if !is_scheduling => return None,
                _ => request.operation,
            };
            let why = now.unwrap_or_default();
            Some(Line { operation: operation.into(), object: name(), why })
        })
        .collect()
}

/// The beginning of a user's text.
fn bounded(text: &str) -> &str {
    text.char_indices().nth(MAX_TEXT).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, annotations: &Value) -> Value {
        let namespace = if kind == "Workload" { "team" } else { "" };
        json!({"kind": kind, "metadata": {"name": "a", "namespace": namespace, "annotations": annotations}})
    }

    #[rstest::rstest]
    #[case::cordon("MultiKueueCluster", json!({}), json!({names::SCHEDULING: "cordon"}), &["cordon MultiKueueCluster/a cordon"])]
    #[case::drain("MultiKueueCluster", json!({names::SCHEDULING: "cordon"}), json!({names::SCHEDULING: "drain"}), &["drain MultiKueueCluster/a drain"])]
    #[case::uncordon("MultiKueueCluster", json!({names::SCHEDULING: "drain"}), json!({}), &["uncordon MultiKueueCluster/a "])]
    #[case::lost("MultiKueueCluster", json!({}), json!({names::DECLARED_LOST: "t"}), &["declare-lost MultiKueueCluster/a t"])]
    #[case::moved("Workload", json!({}), json!({names::MOVE: "1/west"}), &["move Workload/team/a 1/west"])]
    #[case::taken_back("Workload", json!({names::MOVE: "1/west"}), json!({}), &[])]
    #[case::another_annotation("MultiKueueCluster", json!({}), json!({"team": "a"}), &[])]
    #[case::another_kind("Job", json!({}), json!({names::MOVE: "1/west"}), &[])]
    fn changed_annotation_is_a_line(
        #[case] kind: &str,
        #[case] before: Value,
        #[case] now: Value,
        #[case] expected: &[&str],
    ) {
        let now = object(kind, &now);
        let found: Vec<String> = lines(&now, Some(&object(kind, &before)))
            .iter()
            .map(|line| format!("{} {} {}", line.operation, line.object, line.why))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn creation_with_annotation_is_a_line() {
        let created = object("MultiKueueCluster", &json!({names::SCHEDULING: "cordon"}));
        assert_eq!(lines(&created, None).len(), 1);
    }
}
