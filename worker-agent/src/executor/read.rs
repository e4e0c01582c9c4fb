//! Reduces the cluster's objects to what the ledger decides by. Pure.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};
use switchyard_api::v1beta2::{PriorityClassKind, PriorityClassRef};
use switchyard_api::{conditions, names};
use switchyard_config::GoDuration;
use switchyard_jobs::{JobKind, elastic, serving::part_name};
use switchyard_ledger::{
    Condition, JobEnd, Meta, Priority, RemoteJob, RemoteWorkload, Slice, Target, UnreadyCheck,
    whole_fence,
};
use switchyard_proto::v1::{Origin, PreemptionGate};
use switchyard_proto::{MAX_NAME, timestamp};

use crate::proof::{Claim, Seal};

/// A Workload with this hub's marks; none if it lacks the hub's id, a workload or an attempt.
pub(crate) fn read_workload(object: &Value, gvk: &Arc<str>, seal: &Seal) -> Option<RemoteWorkload> {
    let meta = read_meta(object, gvk, seal)?;
    let condition = |name: &str| read_condition(object, name);
    Some(RemoteWorkload {
        active: object.pointer("/spec/active").and_then(Value::as_bool).unwrap_or(true),
        suspended_by_agent: annotation(object, names::SUSPENDED) == Some("true"),
        is_follower: is_follower(object),
        fence_after: annotation(object, names::FENCE_AFTER).map(read_fence),
        priority: read_priority(object),
        gate: read_gate(object),
        quota_reserved: condition("QuotaReserved"),
        admitted: condition("Admitted"),
        evicted: condition("Evicted"),
        finished: condition("Finished"),
        unready_checks: read_checks(object),
        status: mirrored_status(object),
        origin: read_origin(object),
        slice: read_slice(object),
        meta,
    })
}

fn read_slice(object: &Value) -> Option<Slice> {
    let chain = annotation(object, names::WORKLOAD_SLICE_NAME)?.to_owned();
    let replaced = annotation(object, names::WORKLOAD_SLICE_REPLACEMENT_FOR);
    let replaces = replaced.and_then(|key| key.split_once('/')).map(|(_, name)| name.to_owned());
    Some(Slice { chain, replaces })
}

/// The state of the hub's preemption gate, if the Workload has it.
fn read_gate(object: &Value) -> Option<PreemptionGate> {
    let list = |path: &str| {
        object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    };
    let is_ours = |gate: &&Value| {
        gate.get("name").and_then(Value::as_str) == Some(names::MULTIKUEUE_PREEMPTION_GATE)
    };
    list("/spec/preemptionGates").iter().find(is_ours)?;
    let since = |of: &Value| {
        of.get("lastTransitionTime").and_then(Value::as_str)?.parse::<Timestamp>().ok()
    };
    let is =
        |of: &Value, key: &str, value: &str| of.get(key).and_then(Value::as_str) == Some(value);
    let opened = list("/status/preemptionGates")
        .iter()
        .find(is_ours)
        .filter(|gate| is(gate, "position", "Open"));
    let blocks = |condition: &&Value| {
        is(condition, "type", conditions::BLOCKED_ON_PREEMPTION_GATES)
            && is(condition, "status", "True")
    };
    let blocked = list("/status/conditions").iter().find(blocks);
    // An open or blocking gate counts even without a time.
    let seconds = |of: &Value| since(of).map_or(0, Timestamp::as_second);
    Some(PreemptionGate::new(opened.map(seconds), blocked.map(seconds)))
}

/// A priority from Kubernetes' own PriorityClass is fixed with the pods.
fn read_priority(object: &Value) -> Option<Priority> {
    let class = object.pointer("/spec/priorityClassRef")?;
    let class = PriorityClassRef::deserialize(class).ok()?;
    let value = object
        .pointer("/spec/priority")
        .and_then(Value::as_i64)
        .and_then(|it| i32::try_from(it).ok());
    let ours = class.kind == PriorityClassKind::WorkloadPriorityClass;
    ours.then(|| Priority { class: class.name, value: value.unwrap_or_default() })
}

fn is_follower(workload: &Value) -> bool {
    annotation(workload, names::FOLLOWS) == Some("true")
}

fn read_origin(object: &Value) -> Origin {
    // The agent writes no longer values.
    let text = |key: &str| {
        annotation(object, key).filter(|text| text.len() <= MAX_NAME).unwrap_or_default().to_owned()
    };
    let created = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    let job_name = text(names::JOB_OWNER_NAME);
    Origin {
        kind: text(names::JOB_OWNER_GVK),
        // A follower's name must differ from the name of the job that it follows.
        job_name: if is_follower(object) {
            part_name(&job_name, &text(names::COMPONENT_WORKLOAD_INDEX))
        } else {
            job_name
        },
        pod_sets: pod_sets_hash(object),
        // The ledger sets it in its reports.
        has_job: false,
        created: Some(timestamp(
            created.and_then(|at| at.parse::<Timestamp>().ok()).map_or(0, Timestamp::as_second),
        )),
    }
}

/// The hash of the pod sets that the user asked for. A Workload with fewer pods records it in an
/// annotation.
fn pod_sets_hash(workload: &Value) -> Vec<u8> {
    let pod_sets = workload.pointer("/spec/podSets").unwrap_or(&Value::Null);
    let said = annotation(workload, names::POD_SETS_HASH)
        .and_then(|text| BASE64_STANDARD.decode(text).ok());
    let hash = switchyard_proto::pod_sets_hash(pod_sets);
    said.filter(|said| said.len() == hash.len()).unwrap_or(hash)
}

/// A job with this hub's marks; none if it lacks the hub's id, a workload or an attempt.
pub(crate) fn read_job(
    object: &Value,
    kind: &dyn JobKind,
    gvk: &Arc<str>,
    seal: &Seal,
) -> Option<RemoteJob> {
    let meta = read_meta(object, gvk, seal)?;
    let finished = kind.finished(object);
    let torn_down =
        finished.as_ref().is_some_and(|finished| !finished.success) && failed_by_deletion(object);
    let end = finished.filter(|_| !torn_down).map(|finished| JobEnd {
        success: finished.success,
        reason: if finished.success { "Succeeded" } else { "Failed" }.to_owned(),
        message: finished.message,
    });
    let status = object.get("status").filter(|_| !torn_down).map(bytes).unwrap_or_default();
    let (suspended, active) = (kind.is_suspended(object), kind.is_active(object));
    let reports_completion = kind.reports_completion();
    let has_replicas = kind.serving().is_some_and(|serving| serving.replicas(object).is_some());
    let is_elastic = kind.resizes() && elastic::is_marked(object);
    let may_change = has_replicas || is_elastic || !kind.propagated_fields().is_empty();
    Some(RemoteJob {
        meta,
        suspended,
        active,
        reports_completion,
        may_change,
        has_lost_member: false,
        end,
        status,
    })
}

/// Whether the job failed because of its deletion.
///
/// A foreground deletion removes the pods first. The Job controller counts them as failed and may
/// reach `backoffLimit` before the job is gone: such a job was stopped, and did not end. Times are
/// whole seconds. A failure in the second of the deletion counts as its effect: to run a withdrawn
/// job again is better than to lose it.
fn failed_by_deletion(object: &Value) -> bool {
    let time = |value: &Value, path: &str| {
        value.pointer(path).and_then(Value::as_str)?.parse::<Timestamp>().ok()
    };
    let Some(deleted) = time(object, "/metadata/deletionTimestamp") else { return false };
    let text = |condition: &Value, key: &str| {
        condition.get(key).and_then(Value::as_str).map(str::to_owned)
    };
    let failing = |condition: &&Value| {
        let kind = text(condition, "type");
        matches!(kind.as_deref(), Some("Failed" | "FailureTarget"))
            && text(condition, "status").as_deref() == Some("True")
    };
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let failed = conditions
        .into_iter()
        .flatten()
        .filter(failing)
        .filter_map(|it| time(it, "/lastTransitionTime"));
    failed.min().is_none_or(|failed| failed >= deleted)
}

/// The ledger's view of a copy; none if the object is no copy.
pub(super) fn read_meta(object: &Value, gvk: &Arc<str>, seal: &Seal) -> Option<Meta> {
    meta_of(object, gvk, seal.read(object, gvk)?)
}

/// As [`read_meta`], for an object that has the marks but need not have a proof.
pub(super) fn read_claimed(object: &Value, gvk: &Arc<str>, seal: &Seal) -> Option<Meta> {
    meta_of(object, gvk, seal.claimed(object)?)
}

fn meta_of(object: &Value, gvk: &Arc<str>, claim: Claim) -> Option<Meta> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let Claim { workload_uid, attempt } = claim;
    let list = |path: &str| {
        object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    };
    let owner = |owner: &Value| owner.get("uid").and_then(Value::as_str).map(str::to_owned);
    Some(Meta {
        target: Target {
            gvk: gvk.clone(),
            namespace: text("/metadata/namespace")?.to_owned(),
            name: text("/metadata/name")?.to_owned(),
            uid: text("/metadata/uid")?.to_owned(),
        },
        version: text("/metadata/resourceVersion")
            .and_then(|version| version.parse().ok())
            .unwrap_or_default(),
        workload_uid,
        attempt,
        deleting: text("/metadata/deletionTimestamp").is_some(),
        finalizer_index: list("/metadata/finalizers")
            .iter()
            .position(|name| name.as_str() == Some(names::TERMINAL_STATE)),
        owners: list("/metadata/ownerReferences").iter().filter_map(owner).collect(),
    })
}

/// An unreadable fence is zero: nothing runs on.
fn read_fence(text: &str) -> Duration {
    whole_fence(text.parse::<GoDuration>().map(|after| after.std()).unwrap_or_default())
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

fn read_condition(object: &Value, name: &str) -> Option<Condition> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions
        .iter()
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some(name))?;
    let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
    Some(Condition {
        is_true: text("status") == "True",
        reason: text("reason").to_owned(),
        message: text("message").to_owned(),
    })
}

fn read_checks(object: &Value) -> Vec<UnreadyCheck> {
    let checks = object.pointer("/status/admissionChecks").and_then(Value::as_array);
    let text = |check: &Value, key: &str| {
        check.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let unready = checks.into_iter().flatten().map(|check| UnreadyCheck {
        name: text(check, "name"),
        state: text(check, "state"),
        message: text(check, "message"),
    });
    unready.filter(|check| check.state != "Ready").collect()
}

/// The part of the Workload's status that the hub mirrors.
fn mirrored_status(object: &Value) -> Vec<u8> {
    let mut mirrored = serde_json::Map::new();
    for key in ["conditions", "admission", "reclaimablePods"] {
        if let Some(part) = object.pointer("/status").and_then(|status| status.get(key)) {
            mirrored.insert(key.to_owned(), part.clone());
        }
    }
    if mirrored.is_empty() { Vec::new() } else { bytes(&json!(mirrored)) }
}

pub(super) fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::Keys;
    use crate::proof::tests::{key, seal, signed};

    /// Reads the Workload after signing its marks.
    fn known(workload: &Value) -> Option<RemoteWorkload> {
        read_workload(&signed(workload.clone(), "gvk"), &"gvk".into(), &seal())
    }

    fn workload() -> Value {
        json!({
            "metadata": {
                "namespace": "ns", "name": "job-a", "uid": "w1", "resourceVersion": "42",
                "labels": {"switchyard.dev/hub-id": "hub"},
                "annotations": {
                    "switchyard.dev/workload-uid": "u", "switchyard.dev/attempt": "3",
                    "kueue.x-k8s.io/job-owner-gvk": "batch/v1, Kind=Job", "kueue.x-k8s.io/job-owner-name": "a",
                },
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["kueue.x-k8s.io/resource-in-use", "switchyard.dev/terminal-state"],
                "ownerReferences": [{"uid": "j1"}],
            },
            "spec": {
                "active": false, "podSets": [{"name": "main"}], "priority": 7,
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            },
            "status": {
                "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "m"}],
                "admissionChecks": [
                    {"name": "a", "state": "Ready"},
                    {"name": "b", "state": "Pending", "message": "wait"},
                ],
                "resourceRequests": [],
            },
        })
    }

    #[test]
    fn workload_is_read_with_all_decisive_fields() {
        let read = known(&workload()).unwrap();
        assert_eq!(
            (read.meta.version, read.meta.attempt, read.meta.finalizer_index),
            (42, 3, Some(1))
        );
        assert_eq!(
            (read.active, read.suspended_by_agent, read.meta.deleting),
            (false, false, false)
        );
        assert_eq!(read.meta.owners, ["j1"]);
        assert_eq!(read.priority, Some(Priority { class: "high".into(), value: 7 }));
        assert!(read.quota_reserved.unwrap().is_true);
        assert_eq!(read.unready_checks.len(), 1);
        assert_eq!(
            (read.origin.kind.as_str(), read.origin.job_name.as_str()),
            ("batch/v1, Kind=Job", "a")
        );
        assert_eq!(read.origin.created, Some(timestamp(1_767_225_600)));
        assert_eq!(
            read.origin.pod_sets,
            switchyard_proto::pod_sets_hash(&json!([{"name": "main"}]))
        );
        let status: Value = serde_json::from_slice(&read.status).unwrap();
        assert!(status.get("conditions").is_some() && status.get("resourceRequests").is_none());
    }

    #[test]
    fn pod_sets_annotation_overrides_hash_if_valid() {
        let said = |text: &str| {
            let mut workload = workload();
            workload["metadata"]["annotations"][names::POD_SETS_HASH] = json!(text);
            known(&workload).unwrap().origin.pod_sets
        };
        assert_eq!(said(&BASE64_STANDARD.encode([7; 32])), [7; 32]);
        let own = switchyard_proto::pod_sets_hash(&json!([{"name": "main"}]));
        for broken in ["", "no base64!", &BASE64_STANDARD.encode([7; 31])] {
            assert_eq!(said(broken), own, "{broken}");
        }
    }

    /// Any user can write them on objects of their own.
    #[test]
    fn marks_out_of_range_are_ignored() {
        for (case, key, value, ours) in [
            ("as they are", names::ATTEMPT, "3".to_owned(), true),
            ("the highest attempt", names::ATTEMPT, (1_u64 << 52).to_string(), true),
            ("an attempt beyond it", names::ATTEMPT, u64::MAX.to_string(), false),
            ("no attempt", names::ATTEMPT, "0".to_owned(), false),
            ("no uid", names::WORKLOAD_UID, String::new(), false),
            ("a long uid", names::WORKLOAD_UID, "x".repeat(129), false),
            ("a uid in another script", names::WORKLOAD_UID, "ж".to_owned(), false),
            ("a uid of two lines", names::WORKLOAD_UID, "a\nb".to_owned(), false),
        ] {
            let mut object = workload();
            object["metadata"]["annotations"][key] = json!(value);
            assert_eq!(known(&object).is_some(), ours, "{case}");
        }
        let mut object = workload();
        object["metadata"]["annotations"][names::JOB_OWNER_NAME] = json!("x".repeat(300));
        assert_eq!(known(&object).unwrap().origin.job_name, "");
    }

    #[test]
    fn follower_workload_has_indexed_job_name() {
        let mut object = workload();
        object["metadata"]["annotations"]["switchyard.dev/follows"] = json!("true");
        object["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"] = json!("1");
        let read = known(&object).unwrap();
        assert_eq!((read.is_follower, read.origin.job_name.as_str()), (true, "a/1"));
        assert!(!known(&workload()).unwrap().is_follower);
    }

    #[test]
    fn priority_without_workload_class_is_not_read() {
        let pods = json!({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"});
        for (case, class) in [("a class of pods", pods), ("none", Value::Null)] {
            let mut object = workload();
            object["spec"]["priorityClassRef"] = class;
            assert_eq!(known(&object).unwrap().priority, None, "{case}");
        }
    }

    #[test]
    fn preemption_gate_state_is_read() {
        let gate = |name: &str, position: &str| json!({"name": name, "position": position, "lastTransitionTime": "1970-01-01T00:01:00Z"});
        let blocked = json!({"type": "BlockedOnPreemptionGates", "status": "True", "lastTransitionTime": "1970-01-01T00:00:30Z"});
        let ours = "kueue.x-k8s.io/multikueue";
        let stands = |opened, blocked| Some(PreemptionGate::new(opened, blocked));
        for (case, spec, states, conditions, expected) in [
            ("none", json!([]), json!([gate(ours, "Open")]), json!([]), None),
            ("another one", json!([{"name": "a"}]), json!([]), json!([blocked]), None),
            (
                "not looked at yet",
                json!([{"name": ours}]),
                Value::Null,
                Value::Null,
                stands(None, None),
            ),
            (
                "in the way",
                json!([{"name": ours}]),
                json!([gate(ours, "Closed")]),
                json!([blocked]),
                stands(None, Some(30)),
            ),
            (
                "open",
                json!([{"name": ours}]),
                json!([gate("a", "Closed"), gate(ours, "Open")]),
                json!([]),
                stands(Some(60), None),
            ),
        ] {
            let mut object = workload();
            object["spec"]["preemptionGates"] = spec;
            object["status"] = json!({"preemptionGates": states, "conditions": conditions});
            assert_eq!(known(&object).unwrap().gate, expected, "{case}");
        }
    }

    #[test]
    fn job_failing_by_its_deletion_has_not_ended() {
        let kind = switchyard_jobs::kind_for("batch", "Job").unwrap();
        for (case, conditions, deleted, success) in [
            ("failed", vec![("Failed", 10)], None, Some(false)),
            ("failed before it was deleted", vec![("Failed", 10)], Some(11), Some(false)),
            (
                "was failing before it was deleted",
                vec![("FailureTarget", 9), ("Failed", 11)],
                Some(10),
                Some(false),
            ),
            (
                "failed when it was deleted",
                vec![("FailureTarget", 10), ("Failed", 10)],
                Some(10),
                None,
            ),
            ("failed since its pods were deleted", vec![("Failed", 12)], Some(10), None),
            ("succeeded all the same", vec![("Complete", 12)], Some(10), Some(true)),
        ] {
            let second = |at: i32| format!("2026-01-01T00:00:{at:02}Z");
            let mut object = workload();
            let condition = |(type_, at): (&str, i32)| json!({"type": type_, "status": "True", "lastTransitionTime": second(at)});
            object["status"] = json!({"failed": 1, "conditions": conditions.into_iter().map(condition).collect::<Vec<_>>()});
            if let Some(deleted) = deleted {
                object["metadata"]["deletionTimestamp"] = json!(second(deleted));
            }
            let job = read_job(&signed(object, "gvk"), kind, &"gvk".into(), &seal()).unwrap();
            assert_eq!(job.end.map(|end| end.success), success, "{case}");
            assert_eq!(job.status.is_empty(), success.is_none(), "{case}: what it shows");
        }
    }

    #[test]
    fn object_without_marks_is_not_read() {
        let without = |path: &str, key: &str| {
            let mut object = workload();
            object.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(key);
            known(&object)
        };
        let other = Seal::new("other hub", Keys::new(&key(), true));
        assert_eq!(without("/metadata/labels", "switchyard.dev/hub-id"), None);
        assert_eq!(without("/metadata/annotations", "switchyard.dev/workload-uid"), None);
        assert_eq!(without("/metadata/annotations", "switchyard.dev/attempt"), None);
        assert_eq!(read_workload(&signed(workload(), "gvk"), &"gvk".into(), &other), None);
    }
}
