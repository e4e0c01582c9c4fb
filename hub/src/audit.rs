//! The audit stream: one structured line for each operation that an administrator or an agent asks of the hub.
//!
//! All lines have the target [`TARGET`] and the same fields; docs/security.md lists them.

use std::net::SocketAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

/// The target of each line, by which a log pipeline finds the stream.
pub const TARGET: &str = switchyard_platform::telemetry::AUDIT_TARGET;
/// Characters of a text of others that a line holds.
const MAX_TEXT: usize = 512;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Run a workload on another cluster.
    Move,
    /// Take a copy from before the hub's memory for a workload's own.
    Adopt,
    /// Send nothing new to a cluster.
    Cordon,
    /// Also take away what runs there.
    Drain,
    /// Neither any longer.
    Uncordon,
    /// Give up what runs on a cluster that will not come back.
    DeclareLost,
    /// Give up what the circuit breaker holds.
    ReleaseBreaker,
    /// Give an agent its first certificate.
    Enrol,
    /// A step of the replacement of the hub's certificate authority.
    ReplaceAuthority,
    /// Take all that has the hub's marks on a cluster for the hub's.
    TrustCopies,
}

impl Operation {
    /// The value of the field `operation`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Adopt => "adopt",
            Self::Cordon => "cordon",
            Self::Drain => "drain",
            Self::Uncordon => "uncordon",
            Self::DeclareLost => "declare-lost",
            Self::ReleaseBreaker => "release-breaker",
            Self::Enrol => "enrol",
            Self::ReplaceAuthority => "replace-authority",
            Self::TrustCopies => "trust-copies",
        }
    }
}

/// Who asked, by what is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// A caller that holds a good token of this cluster.
    Enrolled(String, Option<SocketAddr>),
    /// A caller that names this cluster, or none, and has shown nothing.
    Claimed(String, Option<SocketAddr>),
    /// The field manager that wrote the field. Every writer chooses its own name.
    FieldManager(String),
    /// Nothing names the writer.
    Unknown,
}

impl Who {
    /// The values of the fields `who`, `address` and `known_by`.
    fn fields(&self) -> (&str, String, &'static str) {
        let text =
            |address: &Option<SocketAddr>| address.map(|it| it.to_string()).unwrap_or_default();
        match self {
            Self::Enrolled(cluster, address) => (cluster, text(address), "token"),
            Self::Claimed(cluster, address) => (cluster, text(address), "claim"),
            Self::FieldManager(manager) => (manager, String::new(), "field-manager"),
            Self::Unknown => ("", String::new(), "nothing"),
        }
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The hub acts on it.
    Accepted,
    /// The hub refused it.
    Refused,
    /// It asks for what is not there any more, such as an attempt that is over.
    NoEffect,
    /// The hub could not do it now; the caller may try again.
    Failed,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::NoEffect => "no-effect",
            Self::Failed => "failed",
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What was asked.
    pub operation: Operation,
    /// Who asked.
    pub who: Who,
    /// The object that it is about: KIND/NAME, or KIND/NAMESPACE/NAME.
    pub object: String,
    /// The request in the caller's words, or why it was refused.
    pub why: String,
    /// What became of it.
    pub result: Outcome,
}

impl Line {
    /// Writes it.
    pub fn write(&self) {
        let (who, address, known_by) = self.who.fields();
        // As values, not as text: whatever they contain stays on this line.
        tracing::info!(
            target: TARGET,
            operation = self.operation.name(),
            who = bounded(who),
            address,
            known_by,
            object = bounded(&self.object),
            why = bounded(&self.why),
            result = self.result.name(),
            "audit"
        );
    }
}

/// The beginning of a text of others.
fn bounded(text: &str) -> &str {
    text.char_indices().nth(MAX_TEXT).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Who wrote a field last. `path` is as `fieldsV1` has it, such as `f:metadata`, `f:annotations`, `f:NAME`.
pub fn writer(entries: &[ManagedFieldsEntry], path: &[&str]) -> Who {
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        path.iter().try_fold(fields, |value, key| value?.get(key).map(Some)).flatten().is_some()
    };
    let latest =
        entries.iter().filter(owns).max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    latest.and_then(|entry| entry.manager.clone()).map_or(Who::Unknown, Who::FieldManager)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(line: &Line) -> Vec<Value> {
        let log = Written::default();
        let to = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(move || to.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || line.write());
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn line(who: Who, why: &str, result: Outcome) -> Line {
        let (object, why) = ("MultiKueueCluster/east".to_owned(), why.to_owned());
        Line { operation: Operation::Enrol, who, object, why, result }
    }

    #[test]
    fn audit_line_has_all_fields_whatever_is_known() {
        let address: SocketAddr = "192.0.2.1:4711".parse().unwrap();
        for (case, line, who, at, known_by, result) in [
            (
                "an agent with a token",
                line(Who::Enrolled("east".into(), Some(address)), "token 0123", Outcome::Accepted),
                "east",
                "192.0.2.1:4711",
                "token",
                "accepted",
            ),
            (
                "a stranger",
                line(
                    Who::Claimed("ea\nst".into(), Some(address)),
                    "token is unknown",
                    Outcome::Refused,
                ),
                "ea\nst",
                "192.0.2.1:4711",
                "claim",
                "refused",
            ),
            (
                "a field manager",
                line(Who::FieldManager("kubectl-annotate".into()), "a", Outcome::NoEffect),
                "kubectl-annotate",
                "",
                "field-manager",
                "no-effect",
            ),
            ("nothing", line(Who::Unknown, "a", Outcome::Failed), "", "", "nothing", "failed"),
        ] {
            let all = written(&line);
            assert_eq!(all.len(), 1, "{case}: {all:?}");
            let [found] = &all[..] else { panic!("{case}") };
            for (field, expected) in [
                ("target", TARGET),
                ("operation", "enrol"),
                ("who", who),
                ("address", at),
                ("known_by", known_by),
                ("object", "MultiKueueCluster/east"),
                ("why", &*line.why),
                ("result", result),
            ] {
                assert_eq!(found[field], expected, "{case}: {field}");
            }
        }
    }

    #[test]
    fn audit_line_bounds_texts_of_others() {
        let long =
            line(Who::FieldManager("é".repeat(2_000)), &"x".repeat(2_000), Outcome::Accepted);
        let found = &written(&long)[0];
        assert_eq!(found["who"].as_str().unwrap().chars().count(), MAX_TEXT);
        assert_eq!(found["why"].as_str().unwrap().len(), MAX_TEXT);
    }

    #[test]
    fn writer_is_the_last_manager_that_owns_the_field() {
        let entry = |manager: &str, time: &str, fields: Value| -> ManagedFieldsEntry {
            serde_json::from_value(json!({
                "manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields,
            }))
            .unwrap()
        };
        let annotated = |name: &str| json!({"f:metadata": {"f:annotations": {".": {}, format!("f:{name}"): {}}}});
        let path = ["f:metadata", "f:annotations", "f:switchyard.dev/move"];
        let early =
            || entry("kubectl-annotate", "2026-11-21T10:00:00Z", annotated("switchyard.dev/move"));
        let late = || entry("robot", "2026-11-21T11:00:00Z", annotated("switchyard.dev/move"));
        let other = || entry("editor", "2026-11-21T12:00:00Z", annotated("team"));
        let status = || entry("hub", "2026-11-21T12:00:00Z", json!({"f:status": {}}));
        let named = |name: &str| Who::FieldManager(name.to_owned());
        for (case, entries, expected) in [
            ("nobody", vec![], Who::Unknown),
            ("others alone", vec![other(), status()], Who::Unknown),
            ("one among others", vec![other(), early(), status()], named("kubectl-annotate")),
            ("two, of which the later one counts", vec![late(), early()], named("robot")),
        ] {
            assert_eq!(writer(&entries, &path), expected, "{case}");
        }
    }
}
