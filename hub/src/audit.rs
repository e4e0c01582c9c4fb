//! The audit stream: one structured log line for each operation that an administrator or agent asks
//! for, or that a policy lets the hub do by itself.
//!
//! All lines have the target [`TARGET`] and the same fields; docs/security.md lists them.

use std::net::SocketAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

/// The log target of the stream.
pub const TARGET: &str = switchyard_platform::telemetry::AUDIT_TARGET;
/// Characters kept of a text from outside.
const MAX_TEXT: usize = 512;

/// An audited operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditOperation {
    /// Move a workload to another cluster.
    Move,
    /// Move a workload without a ready pod to another cluster, by its policy `onStuck`.
    MoveStuck,
    /// Adopt a copy from before the hub lost its store.
    Adopt,
    /// Dispatch nothing new to a cluster.
    Cordon,
    /// Cordon, and move away what runs there.
    Drain,
    /// End a cordon or drain.
    Uncordon,
    /// Give up the jobs of a cluster that will not come back.
    DeclareLost,
    /// Give up what the circuit breaker holds.
    ReleaseBreaker,
    /// Issue an agent's first certificate.
    Enrol,
    /// Take a step of a CA rotation.
    ReplaceAuthority,
    /// Accept all marked objects on a cluster as this hub's copies.
    TrustCopies,
}

impl AuditOperation {
    /// The value of the field `operation`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::MoveStuck => "move-stuck",
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

/// The caller, as far as the hub knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A caller with a good join token of this cluster.
    Enrolled(String, Option<SocketAddr>),
    /// A caller that claims to be this cluster, without proof. The name may be empty.
    Claimed(String, Option<SocketAddr>),
    /// The field manager that wrote the field. Each client chooses its own name.
    FieldManager(String),
    /// No caller: this policy let the hub act.
    Policy(&'static str),
    Unknown,
}

impl Actor {
    /// The values of the fields `who`, `address` and `known_by`.
    fn fields(&self) -> (&str, String, &'static str) {
        let text =
            |address: &Option<SocketAddr>| address.map(|it| it.to_string()).unwrap_or_default();
        match self {
            Self::Enrolled(cluster, address) => (cluster, text(address), "token"),
            Self::Claimed(cluster, address) => (cluster, text(address), "claim"),
            Self::FieldManager(manager) => (manager, String::new(), "field-manager"),
            Self::Policy(policy) => (policy, String::new(), "policy"),
            Self::Unknown => ("", String::new(), "nothing"),
        }
    }
}

/// The hub's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    /// The hub acts on it.
    Accepted,
    Refused,
    /// The request is out of date, such as a move of an attempt that is over.
    NoEffect,
    /// The hub could not do it now. The caller may try again.
    Failed,
}

impl AuditOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::NoEffect => "no-effect",
            Self::Failed => "failed",
        }
    }
}

/// One line of the audit stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    pub operation: AuditOperation,
    pub who: Actor,
    /// The object: KIND/NAME, or KIND/NAMESPACE/NAME.
    pub object: String,
    /// The request in the caller's words, or why it was refused.
    pub why: String,
    pub result: AuditOutcome,
}

impl AuditRecord {
    pub fn write(&self) {
        let (who, address, known_by) = self.who.fields();
        // Logged as values, so that texts from outside cannot break the line.
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

/// Truncates a text from outside.
fn bounded(text: &str) -> &str {
    text.char_indices().nth(MAX_TEXT).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// The last writer of a field. `path` is as in `fieldsV1`: `f:metadata`, `f:annotations`, `f:NAME`.
pub fn writer(entries: &[ManagedFieldsEntry], path: &[&str]) -> Actor {
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        path.iter().try_fold(fields, |value, key| value?.get(key).map(Some)).flatten().is_some()
    };
    let latest =
        entries.iter().filter(owns).max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    latest.and_then(|entry| entry.manager.clone()).map_or(Actor::Unknown, Actor::FieldManager)
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

    fn written(line: &AuditRecord) -> Vec<Value> {
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

    fn line(who: Actor, why: &str, result: AuditOutcome) -> AuditRecord {
        let (object, why) = ("MultiKueueCluster/east".to_owned(), why.to_owned());
        AuditRecord { operation: AuditOperation::Enrol, who, object, why, result }
    }

    #[test]
    fn audit_record_always_has_all_fields() {
        let address: SocketAddr = "192.0.2.1:4711".parse().unwrap();
        for (case, line, who, at, known_by, result) in [
            (
                "an agent with a token",
                line(
                    Actor::Enrolled("east".into(), Some(address)),
                    "token 0123",
                    AuditOutcome::Accepted,
                ),
                "east",
                "192.0.2.1:4711",
                "token",
                "accepted",
            ),
            (
                "a stranger",
                line(
                    Actor::Claimed("ea\nst".into(), Some(address)),
                    "token is unknown",
                    AuditOutcome::Refused,
                ),
                "ea\nst",
                "192.0.2.1:4711",
                "claim",
                "refused",
            ),
            (
                "a field manager",
                line(Actor::FieldManager("kubectl-annotate".into()), "a", AuditOutcome::NoEffect),
                "kubectl-annotate",
                "",
                "field-manager",
                "no-effect",
            ),
            (
                "nothing",
                line(Actor::Unknown, "a", AuditOutcome::Failed),
                "",
                "",
                "nothing",
                "failed",
            ),
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
    fn audit_record_truncates_outside_texts() {
        let long = line(
            Actor::FieldManager("é".repeat(2_000)),
            &"x".repeat(2_000),
            AuditOutcome::Accepted,
        );
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
        let named = |name: &str| Actor::FieldManager(name.to_owned());
        for (case, entries, expected) in [
            ("nobody", vec![], Actor::Unknown),
            ("others alone", vec![other(), status()], Actor::Unknown),
            ("one among others", vec![other(), early(), status()], named("kubectl-annotate")),
            ("two, of which the later one counts", vec![late(), early()], named("robot")),
        ] {
            assert_eq!(writer(&entries, &path), expected, "{case}");
        }
    }
}
