//! The pods of what serves (StatefulSet), which its own controller makes: what they say of it goes to the hub with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::read::{bytes, read_claimed};
use crate::proof::Seal;
use switchyard_ledger::Seen;

/// Bytes of statuses that are told whole. Of more, so many pods, only what their readiness is told by.
const WHOLE: usize = 256 * 1024;

/// The statuses of pods, by their names, as JSON.
pub(super) fn shown(mut pods: Map<String, Value>) -> Vec<u8> {
    let whole = bytes(&json!({ "pods": pods }));
    if whole.len() <= WHOLE {
        return whole;
    }
    pods.values_mut().for_each(|status| *status = brief(status));
    bytes(&json!({ "pods": pods }))
}

/// Phase and readiness, in a hundred bytes.
fn brief(status: &Value) -> Value {
    let conditions = status["conditions"].as_array();
    let ready = conditions.into_iter().flatten().filter(|condition| condition["type"] == "Ready");
    let ready: Vec<Value> =
        ready.map(|it| json!({"type": "Ready", "status": it["status"]})).collect();
    json!({"phase": status["phase"], "conditions": ready})
}

/// The pods of one attempt of a workload: names and statuses by their uids.
type Pods = BTreeMap<String, (String, Value)>;
/// A namespace, a workload's uid and an attempt.
type Of = (String, String, u64);

/// The pods of one hub's objects, as one watch tells of them. Their controller copies the marks of a template, and no proof can name
/// each pod: they count for the copy with the same marks in the same namespace alone, which the ledger has.
pub(super) struct Parts {
    gvk: Arc<str>,
    seal: Seal,
    pods: BTreeMap<Of, Pods>,
    /// While a list is coming: what was known before.
    before: Option<BTreeMap<Of, Pods>>,
}

impl Parts {
    pub(super) fn new(gvk: Arc<str>, seal: Seal) -> Self {
        Self { gvk, seal, pods: BTreeMap::new(), before: None }
    }

    /// A list begins: until its end nothing is told.
    pub(super) fn begin_list(&mut self) {
        let known = std::mem::take(&mut self.pods);
        // One that did not come to its end counts for nothing.
        self.before.get_or_insert(known);
    }

    /// The list has come to its end: what it has changed.
    pub(super) fn end_list(&mut self) -> Vec<Seen> {
        let before = self.before.take().unwrap_or_default();
        let none = BTreeMap::new();
        let gone = before.keys().filter(|of| !self.pods.contains_key(*of));
        let changed = self
            .pods
            .iter()
            .filter(|(of, pods)| before.get(*of).unwrap_or(&none) != *pods)
            .map(|(of, _)| of);
        gone.chain(changed).map(|of| self.tell(of)).collect()
    }

    /// A pod is there, in this state.
    pub(super) fn apply(&mut self, pod: &Value) -> Option<Seen> {
        let meta = read_claimed(pod, &self.gvk, &self.seal)?;
        let of = (meta.target.namespace, meta.workload_uid, meta.attempt);
        let pods = self.pods.entry(of.clone()).or_default();
        if meta.deleting {
            pods.remove(&meta.target.uid);
        } else {
            let status = pod.get("status").cloned().unwrap_or_default();
            pods.insert(meta.target.uid, (meta.target.name, status));
        }
        self.told(&of)
    }

    /// A pod is gone.
    pub(super) fn remove(&mut self, pod: &Value) -> Option<Seen> {
        let meta = read_claimed(pod, &self.gvk, &self.seal)?;
        let of = (meta.target.namespace, meta.workload_uid, meta.attempt);
        self.pods.get_mut(&of)?.remove(&meta.target.uid);
        self.told(&of)
    }

    fn told(&mut self, of: &Of) -> Option<Seen> {
        if self.pods.get(of).is_some_and(BTreeMap::is_empty) {
            self.pods.remove(of);
        }
        self.before.is_none().then(|| self.tell(of))
    }

    fn tell(&self, of: &Of) -> Seen {
        let pods = self.pods.get(of).filter(|pods| !pods.is_empty());
        let status = pods.map(|pods| shown(pods.values().cloned().collect())).unwrap_or_default();
        let (namespace, workload_uid, attempt) = of.clone();
        Seen::Parts { namespace, workload_uid, attempt, status }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::tests::seal;

    fn pod(name: &str, phase: &str) -> Value {
        json!({
            "metadata": {
                "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
                "labels": {"switchyard.dev/hub-id": "hub"},
                "annotations": {"switchyard.dev/workload-uid": "w", "switchyard.dev/attempt": "3"},
            },
            "status": {"phase": phase},
        })
    }

    fn parts() -> Parts {
        Parts::new("v1, Kind=Pod".into(), seal())
    }

    fn told(seen: impl IntoIterator<Item = Seen>) -> Vec<String> {
        let one = |seen: Seen| match seen {
            Seen::Parts { namespace, workload_uid, attempt, status } => {
                assert_eq!(namespace, "ns");
                format!("{workload_uid} {attempt} {}", String::from_utf8(status).unwrap())
            }
            other => format!("{other:?}"),
        };
        seen.into_iter().map(one).collect()
    }

    #[test]
    fn pods_that_stay_are_told_of_together() {
        let mut parts = parts();
        assert_eq!(
            told(parts.apply(&pod("a", "Pending"))),
            [r#"w 3 {"pods":{"a":{"phase":"Pending"}}}"#]
        );
        let both = r#"w 3 {"pods":{"a":{"phase":"Pending"},"b":{"phase":"Running"}}}"#;
        assert_eq!(told(parts.apply(&pod("b", "Running"))), [both]);
        let mut going = pod("a", "Running");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(told(parts.apply(&going)), [r#"w 3 {"pods":{"b":{"phase":"Running"}}}"#]);
        assert_eq!(told(parts.remove(&pod("b", "Running"))), ["w 3 "]);
        assert_eq!(told(parts.remove(&pod("b", "Running"))), [""; 0]);
    }

    #[test]
    fn pods_of_two_namespaces_are_told_of_apart() {
        let mut parts = parts();
        parts.apply(&pod("a", "Running"));
        let mut other = pod("b", "Failed");
        other["metadata"]["namespace"] = json!("another");
        let Some(Seen::Parts { namespace, status, .. }) = parts.apply(&other) else {
            panic!("not told of")
        };
        assert_eq!(
            (&*namespace, &*status),
            ("another", br#"{"pods":{"b":{"phase":"Failed"}}}"#.as_slice())
        );
    }

    #[test]
    fn a_list_tells_what_it_has_changed() {
        let mut parts = parts();
        let mut list = |pods: &[(&str, &str)]| {
            parts.begin_list();
            for (name, phase) in pods {
                assert!(parts.apply(&pod(name, phase)).is_none(), "not before all have come");
            }
            told(parts.end_list())
        };
        assert_eq!(list(&[("a", "Running")]), [r#"w 3 {"pods":{"a":{"phase":"Running"}}}"#]);
        assert_eq!(list(&[("a", "Running")]), [""; 0]);
        assert_eq!(list(&[]), ["w 3 "]);
    }

    #[test]
    fn of_very_many_pods_only_their_readiness_is_told() {
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "message": "x".repeat(200)});
        let conditions = ["Initialized", "PodScheduled", "ContainersReady", "Ready"].map(condition);
        let status = json!({"phase": "Running", "conditions": conditions, "containerStatuses": [{"imageID": "x"}]});
        let pods = |count: usize| {
            (0..count).map(|index| (format!("pod-{index}"), status.clone())).collect()
        };
        let told = |count| String::from_utf8(shown(pods(count))).unwrap();
        assert!(told(10).contains("containerStatuses"));
        let many = told(2000);
        assert!(many.len() <= WHOLE, "{}", many.len());
        assert!(many.contains(
            r#""pod-1999":{"conditions":[{"status":"True","type":"Ready"}],"phase":"Running"}"#
        ));
    }
}
