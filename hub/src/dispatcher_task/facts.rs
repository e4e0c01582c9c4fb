//! A Workload as the dispatcher sees it. Pure, given what the stores hold.

use std::sync::Arc;

use kube::ResourceExt as _;
use serde::Deserialize;
use switchyard_api::affinity::Affinity;
use switchyard_api::names;
use switchyard_api::v1beta2::{Admission, CheckState, ClusterQueue, PriorityClassKind, Workload};
use switchyard_controller::stores::Stores;
use switchyard_controller::{Context, placement, workload as state};
use switchyard_jobs::{elastic, owner_gvk, serving::part_name, sized_pod_sets};
use switchyard_scheduler::PodSet;

use super::{payload, replicas};
use crate::api_objects::is_dispatching;
use crate::disconnect_policy;
use crate::dispatch::{Adopt, Check, Facts, Name, Subject, Uid};

/// The facts of a workload as it is now. `held`: its quota, where that is in memory.
pub(super) fn facts(ctx: &Context, workload: &Workload, held: Option<&Admission>) -> Facts {
    let sized = sized(workload, held);
    let pod_sets = pod_sets(ctx, sized.as_ref().unwrap_or(workload)).into();
    let queue = queue_of(&ctx.stores, workload);
    let loss = disconnect_policy::of_workload(workload, queue.as_deref());
    let affinity = affinity(workload, queue.as_deref()).map(Arc::new);
    let facts = from_parts(
        workload,
        pod_sets,
        &|check| is_dispatching(&ctx.stores, check),
        &other_checks(&ctx.stores, workload),
    );
    let replaces = replaced(ctx, workload)
        .and_then(|replaced| replaced.metadata.uid.as_deref().map(Uid::from));
    Facts { loss, affinity, replaces, ..facts }
}

/// The workload with as many pods as it has quota for, where that may be fewer than it asks for. `held`: its quota, where that is
/// in memory.
pub(super) fn sized(workload: &Workload, held: Option<&Admission>) -> Option<Workload> {
    let shown = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let shown = shown.filter(|_| state::has_reservation(workload));
    let pod_sets = sized_pod_sets(workload, shown.or(held)?)?;
    let mut sized = workload.clone();
    sized.spec.pod_sets = pod_sets;
    Some(sized)
}

/// The rules about a workload's clusters: its own, or else its queue's.
fn affinity(workload: &Workload, queue: Option<&ClusterQueue>) -> Option<Affinity> {
    let queue = queue
        .and_then(|it| Some((it.metadata.name.as_deref()?, it.spec.cluster_affinity.as_ref()?)));
    Affinity::of(workload.metadata.annotations.as_ref(), queue)
}

/// The ClusterQueue that admitted a workload, or that it waits in.
pub(super) fn queue_of(stores: &Stores, workload: &Workload) -> Option<Arc<ClusterQueue>> {
    if let Some(name) = state::admitted_by(workload) {
        return stores.cluster_queues.get("", name);
    }
    let queue = stores
        .local_queues
        .get(workload.metadata.namespace.as_deref()?, state::queue_name(workload))?;
    stores.cluster_queues.get("", queue.spec.cluster_queue.as_deref()?)
}

/// The checks that a workload's ClusterQueue asks for besides, whatever the flavor: until they are listed in the
/// status, that none of them is missing there says nothing.
fn other_checks(stores: &Stores, workload: &Workload) -> Vec<String> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let queue =
        admission.and_then(|admission| stores.cluster_queues.get("", &admission.cluster_queue));
    let strategy = queue.as_ref().and_then(|queue| queue.spec.admission_checks_strategy.as_ref());
    let rules = strategy.map(|strategy| strategy.admission_checks.as_slice()).unwrap_or_default();
    rules
        .iter()
        .filter(|rule| rule.on_flavors.is_empty() && !is_dispatching(stores, &rule.name))
        .map(|rule| rule.name.clone())
        .collect()
}

fn from_parts(
    workload: &Workload,
    pod_sets: Arc<[PodSet]>,
    dispatches: &dyn Fn(&str) -> bool,
    others: &[String],
) -> Facts {
    let status = workload.status.clone().unwrap_or_default();
    let ours = status.admission_checks.iter().find(|check| dispatches(&check.name));
    let ready = |name: &String| {
        status
            .admission_checks
            .iter()
            .any(|check| check.name == *name && check.state == CheckState::Ready)
    };
    let rest_ready = status
        .admission_checks
        .iter()
        .filter(|check| !dispatches(&check.name))
        .all(|check| check.state == CheckState::Ready);
    Facts {
        uid: workload.uid().unwrap_or_default().into(),
        namespace: workload.namespace().unwrap_or_default().into(),
        name: workload.name_any().into(),
        // Versions of one kind grow as numbers: Kubernetes' promise since 1.35, and etcd's practice before.
        version: workload.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0),
        queue: state::queue_name(workload).into(),
        priority: workload.spec.priority.unwrap_or(0),
        priority_class: priority_class(workload).map(Name::from),
        pod_sets,
        check: ours.map(|check| (Name::from(check.name.as_str()), check_of(check.state))),
        others_ready: rest_ready && others.iter().all(ready),
        reserved: state::has_reservation(workload),
        evicted: state::is_evicted(workload),
        finished: state::is_finished(workload),
        deleting: workload.metadata.deletion_timestamp.is_some(),
        active: state::stays_active(workload),
        cluster: status.cluster_name.as_deref().map(Name::from),
        attempt: attempt(workload),
        nominated: status
            .nominated_cluster_names
            .iter()
            .map(|name| Name::from(name.as_str()))
            .collect(),
        grace: grace(workload),
        loss: None,
        affinity: None,
        moving: moving(workload),
        subject: None,
        known_as: known_as(workload),
        adopt: adopt(workload),
        replica: None,
        replaces: None,
        waits_for_job: workload.metadata.owner_references.as_ref().is_none_or(Vec::is_empty),
        job_ended: None,
    }
}

/// `status.dispatch.attempt`; zero if there was none.
pub(super) fn attempt(workload: &Workload) -> u64 {
    let dispatch = workload.status.as_ref().and_then(|status| status.dispatch.as_ref());
    dispatch.map_or(0, |dispatch| u64::try_from(dispatch.attempt).unwrap_or(0))
}

/// A check's state as the dispatcher has it.
pub(super) fn check_of(state: CheckState) -> Check {
    match state {
        CheckState::Pending => Check::Pending,
        CheckState::Ready => Check::Ready,
        CheckState::Retry => Check::Retry,
        CheckState::Rejected => Check::Rejected,
    }
}

/// The WorkloadPriorityClass that a workload's priority comes from, if it does.
pub(super) fn priority_class(workload: &Workload) -> Option<&str> {
    let class = workload.spec.priority_class_ref.as_ref()?;
    (class.kind == PriorityClassKind::WorkloadPriorityClass).then_some(class.name.as_str())
}

/// Kubernetes' own default.
const DEFAULT_GRACE: i64 = 30;

/// The longest that pods of the workload may take to stop, in milliseconds.
fn grace(workload: &Workload) -> i64 {
    #[derive(Deserialize)]
    struct Template {
        spec: Pod,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Pod {
        termination_grace_period_seconds: i64,
    }
    let seconds = |set: &switchyard_api::v1beta2::PodSet| {
        set.template
            .read()
            .map_or(DEFAULT_GRACE, |it: Template| it.spec.termination_grace_period_seconds)
    };
    workload
        .spec
        .pod_sets
        .iter()
        .map(seconds)
        .max()
        .unwrap_or(DEFAULT_GRACE)
        .max(0)
        .saturating_mul(1_000)
}

/// The uid by which clusters know a workload, if that is not its own.
pub(super) fn known_as(workload: &Workload) -> Option<Uid> {
    let theirs = workload.status.as_ref()?.dispatch.as_ref()?.workload_uid.as_deref()?;
    (workload.metadata.uid.as_deref() != Some(theirs)).then(|| theirs.into())
}

/// The workload of the same elastic job in whose place this one comes.
pub(super) fn replaced(ctx: &Context, workload: &Workload) -> Option<Arc<Workload>> {
    let key = elastic::replacement_for(workload).filter(|_| elastic::is_slice(workload))?;
    let (namespace, name) = key.split_once('/')?;
    let job = |workload: &Workload| {
        let mut owners = workload.metadata.owner_references.iter().flatten();
        owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
    };
    let is_same = |other: &Workload| job(other).is_some() && job(other) == job(workload);
    let found = ctx.stores.workloads.get(namespace, name);
    found.filter(|other| other.metadata.namespace == workload.metadata.namespace && is_same(other))
}

/// Which job a workload stands for, or which replica of one. Hashes its pod sets.
pub(super) fn subject(workload: &Workload) -> Option<Subject> {
    let owned = payload::owner(workload)?;
    let pod_sets = serde_json::to_value(&workload.spec.pod_sets).ok()?;
    let index =
        workload.annotations().get(names::COMPONENT_WORKLOAD_INDEX).map_or("", String::as_str);
    let job = if replicas::follows(workload) {
        part_name(owned.name, index)
    } else {
        owned.name.to_owned()
    };
    Some(Subject {
        kind: owner_gvk(owned.kind.id()).into(),
        job: job.into(),
        pod_sets: switchyard_proto::pod_sets_hash(&pod_sets).into(),
    })
}

/// `CLUSTER/UID` of the annotation, or `none`.
fn adopt(workload: &Workload) -> Option<Adopt> {
    let said = workload.annotations().get(names::ADOPT)?;
    if said == "none" {
        return Some(Adopt::Nothing);
    }
    let (cluster, uid) = said.split_once('/')?;
    Some(Adopt::Copy(cluster.into(), uid.into()))
}

/// `ATTEMPT/CLUSTER` of the annotation.
fn moving(workload: &Workload) -> Option<(u64, Name)> {
    let (attempt, cluster) = workload.annotations().get(names::MOVE)?.split_once('/')?;
    Some((attempt.parse().ok()?, cluster.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(status: &serde_json::Value) -> Workload {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "job-a", "namespace": "ns", "uid": "u", "resourceVersion": "42"},
            "spec": {"queueName": "lq", "priority": 7, "podSets": []},
            "status": status,
        }))
        .unwrap()
    }

    fn check(name: &str, state: &str) -> serde_json::Value {
        serde_json::json!({"name": name, "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    fn of(status: &serde_json::Value, others: &[&str]) -> Facts {
        let others: Vec<String> = others.iter().map(|name| (*name).to_owned()).collect();
        from_parts(&workload(status), Arc::from(Vec::new()), &|name| name == "mk", &others)
    }

    #[test]
    fn a_dispatched_workload() {
        let facts = of(
            &serde_json::json!({
                "clusterName": "east", "dispatch": {"attempt": 3},
                "admissionChecks": [check("mk", "Ready"), check("budget", "Ready")],
                "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            }),
            &["budget"],
        );
        assert_eq!((&*facts.uid, &*facts.queue, facts.priority, facts.version), ("u", "lq", 7, 42));
        assert_eq!(
            (facts.cluster.as_deref(), facts.attempt, facts.reserved),
            (Some("east"), 3, true)
        );
        assert_eq!(facts.check, Some(("mk".into(), Check::Ready)));
        assert!(facts.others_ready && facts.active && !facts.evicted && !facts.finished);
    }

    #[test]
    fn other_checks_are_ready_only_when_all_are_listed_and_ready() {
        for (case, checks, ready) in [
            ("not listed yet", vec![check("mk", "Pending")], false),
            ("pending", vec![check("mk", "Pending"), check("budget", "Pending")], false),
            (
                "one that only some flavors need",
                vec![check("budget", "Ready"), check("prov", "Pending")],
                false,
            ),
            ("ready", vec![check("mk", "Pending"), check("budget", "Ready")], true),
        ] {
            let facts = of(&serde_json::json!({"admissionChecks": checks}), &["budget"]);
            assert_eq!(facts.others_ready, ready, "{case}");
        }
    }
}
