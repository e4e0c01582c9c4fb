//! The pods of serving jobs (StatefulSet), which a controller of the cluster creates. The agent
//! reports their statuses with the job.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use switchyard_ledger::WatchEvent;

use super::read::{bytes, read_claimed};
use crate::proof::Seal;

/// The most bytes of complete statuses. Beyond it, the agent reports only phase and readiness.
const WHOLE: usize = 256 * 1024;

/// The statuses of pods, by name, as JSON.
pub(super) fn statuses_json(mut pods: Map<String, Value>) -> Vec<u8> {
    let whole = bytes(&json!({ "pods": pods }));
    if whole.len() <= WHOLE {
        return whole;
    }
    pods.values_mut().for_each(|status| *status = brief(status));
    bytes(&json!({ "pods": pods }))
}

/// Phase and readiness: about 100 bytes.
fn brief(status: &Value) -> Value {
    let conditions = status["conditions"].as_array();
    let ready = conditions.into_iter().flatten().filter(|condition| condition["type"] == "Ready");
    let ready: Vec<Value> =
        ready.map(|it| json!({"type": "Ready", "status": it["status"]})).collect();
    json!({"phase": status["phase"], "conditions": ready})
}

/// The pods of one attempt: names and statuses, by uid.
type Pods = BTreeMap<String, (String, Value)>;
/// A namespace, a workload's uid and an attempt.
type Of = (String, String, u64);

/// The pods of one hub's jobs, as one watch reports them.
///
/// Their controller copies the marks of a template, so no proof can name each pod. They count only
/// for the copy with the same marks in the same namespace.
pub(super) struct ServingPods {
    gvk: Arc<str>,
    seal: Seal,
    pods: BTreeMap<Of, Pods>,
    /// During a list: the pods before it.
    before: Option<BTreeMap<Of, Pods>>,
}

impl ServingPods {
    pub(super) fn new(gvk: Arc<str>, seal: Seal) -> Self {
        Self { gvk, seal, pods: BTreeMap::new(), before: None }
    }

    /// Starts a list. It reports nothing until its end.
    pub(super) fn begin_list(&mut self) {
        let known = std::mem::take(&mut self.pods);
        // An earlier list that did not end is ignored.
        self.before.get_or_insert(known);
    }

    /// Ends a list. Returns what it changed.
    pub(super) fn end_list(&mut self) -> Vec<WatchEvent> {
        let before = self.before.take().unwrap_or_default();
        let none = BTreeMap::new();
        let gone = before.keys().filter(|of| !self.pods.contains_key(*of));
        let changed = self
            .pods
            .iter()
            .filter(|(of, pods)| before.get(*of).unwrap_or(&none) != *pods)
            .map(|(of, _)| of);
        gone.chain(changed).map(|of| self.event(of)).collect()
    }

    pub(super) fn apply(&mut self, pod: &Value) -> Option<WatchEvent> {
        let meta = read_claimed(pod, &self.gvk, &self.seal)?;
        let of = (meta.target.namespace, meta.workload_uid, meta.attempt);
        let pods = self.pods.entry(of.clone()).or_default();
        if meta.deleting {
            pods.remove(&meta.target.uid);
        } else {
            let status = pod.get("status").cloned().unwrap_or_default();
            pods.insert(meta.target.uid, (meta.target.name, status));
        }
        self.changed(&of)
    }

    pub(super) fn remove(&mut self, pod: &Value) -> Option<WatchEvent> {
        let meta = read_claimed(pod, &self.gvk, &self.seal)?;
        let of = (meta.target.namespace, meta.workload_uid, meta.attempt);
        self.pods.get_mut(&of)?.remove(&meta.target.uid);
        self.changed(&of)
    }

    fn changed(&mut self, of: &Of) -> Option<WatchEvent> {
        if self.pods.get(of).is_some_and(BTreeMap::is_empty) {
            self.pods.remove(of);
        }
        self.before.is_none().then(|| self.event(of))
    }

    fn event(&self, of: &Of) -> WatchEvent {
        let pods = self.pods.get(of).filter(|pods| !pods.is_empty());
        let status =
            pods.map(|pods| statuses_json(pods.values().cloned().collect())).unwrap_or_default();
        let (namespace, workload_uid, attempt) = of.clone();
        WatchEvent::PodStatuses { namespace, workload_uid, attempt, status }
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

    fn serving_pods() -> ServingPods {
        ServingPods::new("v1, Kind=Pod".into(), seal())
    }

    fn describe(seen: impl IntoIterator<Item = WatchEvent>) -> Vec<String> {
        let one = |seen: WatchEvent| match seen {
            WatchEvent::PodStatuses { namespace, workload_uid, attempt, status } => {
                assert_eq!(namespace, "ns");
                format!("{workload_uid} {attempt} {}", String::from_utf8(status).unwrap())
            }
            other => format!("{other:?}"),
        };
        seen.into_iter().map(one).collect()
    }

    #[test]
    fn pods_of_an_attempt_are_reported_together() {
        let mut serving = serving_pods();
        assert_eq!(
            describe(serving.apply(&pod("a", "Pending"))),
            [r#"w 3 {"pods":{"a":{"phase":"Pending"}}}"#]
        );
        let both = r#"w 3 {"pods":{"a":{"phase":"Pending"},"b":{"phase":"Running"}}}"#;
        assert_eq!(describe(serving.apply(&pod("b", "Running"))), [both]);
        let mut going = pod("a", "Running");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(describe(serving.apply(&going)), [r#"w 3 {"pods":{"b":{"phase":"Running"}}}"#]);
        assert_eq!(describe(serving.remove(&pod("b", "Running"))), ["w 3 "]);
        assert_eq!(describe(serving.remove(&pod("b", "Running"))), [""; 0]);
    }

    #[test]
    fn namespaces_are_reported_separately() {
        let mut serving = serving_pods();
        serving.apply(&pod("a", "Running"));
        let mut other = pod("b", "Failed");
        other["metadata"]["namespace"] = json!("another");
        let Some(WatchEvent::PodStatuses { namespace, status, .. }) = serving.apply(&other) else {
            panic!("not told of")
        };
        assert_eq!(
            (&*namespace, &*status),
            ("another", br#"{"pods":{"b":{"phase":"Failed"}}}"#.as_slice())
        );
    }

    #[test]
    fn list_reports_only_changes() {
        let mut serving = serving_pods();
        let mut list = |pods: &[(&str, &str)]| {
            serving.begin_list();
            for (name, phase) in pods {
                assert!(serving.apply(&pod(name, phase)).is_none(), "not before all have come");
            }
            describe(serving.end_list())
        };
        assert_eq!(list(&[("a", "Running")]), [r#"w 3 {"pods":{"a":{"phase":"Running"}}}"#]);
        assert_eq!(list(&[("a", "Running")]), [""; 0]);
        assert_eq!(list(&[]), ["w 3 "]);
    }

    #[test]
    fn many_pods_report_readiness_only() {
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "message": "x".repeat(200)});
        let conditions = ["Initialized", "PodScheduled", "ContainersReady", "Ready"].map(condition);
        let status = json!({"phase": "Running", "conditions": conditions, "containerStatuses": [{"imageID": "x"}]});
        let pods = |count: usize| {
            (0..count).map(|index| (format!("pod-{index}"), status.clone())).collect()
        };
        let text = |count| String::from_utf8(statuses_json(pods(count))).unwrap();
        assert!(text(10).contains("containerStatuses"));
        let many = text(2000);
        assert!(many.len() <= WHOLE, "{}", many.len());
        assert!(many.contains(
            r#""pod-1999":{"conditions":[{"status":"True","type":"Ready"}],"phase":"Running"}"#
        ));
    }
}
