//! Decides whether a node has failed for a workload. Pure.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Toleration};
use kube::Resource as _;
use switchyard_api::v1beta2::{PodSetAssignment, ResourceFlavor, Workload};
use switchyard_jobs::pod_set_infos;
use switchyard_platform::clock::since;

use super::{FailureRules, hosts};
use crate::{
    engine::convert::selector,
    reconcilers::topology::ranks::HOSTNAME,
    stores::{nodes, pods::PodRecord},
};

/// One node under the rules.
pub(super) struct NodeJudge<'a> {
    pub(super) rules: FailureRules,
    pub(super) node: &'a Node,
    /// The value of its hostname label.
    pub(super) host: &'a str,
}

#[derive(Debug, Default)]
pub(super) struct NodeVerdict {
    pub(super) failed: bool,
    /// Pods that were selected for the node and cannot start there.
    pub(super) ends: Vec<Arc<PodRecord>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TaintEffect {
    Tolerated,
    /// Only for `tolerationSeconds`.
    ToleratedForSeconds,
    Untolerated,
}

/// Whether a pod's change may decide about its node: it is selected for it and not bound, or ends.
pub(super) fn may_decide(pod: &PodRecord) -> bool {
    pod.placed().is_some_and(|placed| match placed.node {
        None => placed.node_selector.contains_key(HOSTNAME),
        Some(_) => placed.ended || pod.is_deleted(),
    })
}

impl NodeJudge<'_> {
    /// Decides about one workload. `pods`: its pods that are on the node or selected for it.
    pub(super) fn judge(
        &self,
        workload: &Workload,
        pods: &[Arc<PodRecord>],
        flavor: impl Fn(&str) -> Option<Arc<ResourceFlavor>>,
    ) -> NodeVerdict {
        let ends = || pods.iter().filter(|pod| is_sent(pod, self.host)).cloned().collect();
        let assigned = hosts::assigned(workload);
        if assigned.is_empty() {
            // The lowest level is not the host, so a user has put the hostname into the selector.
            return NodeVerdict::default();
        }
        if !assigned.contains(self.host) {
            return NodeVerdict { failed: false, ends: ends() };
        }
        let asks_pods = if nodes::is_ready(self.node) {
            match self.taints(workload, flavor) {
                TaintEffect::Tolerated => return NodeVerdict::default(),
                TaintEffect::ToleratedForSeconds => true,
                TaintEffect::Untolerated => self.rules.await_pods,
            }
        } else {
            self.rules.await_pods
        };
        if !asks_pods {
            return NodeVerdict { failed: true, ends: Vec::new() };
        }
        let failed = !pods.iter().any(|pod| self.makes_progress(pod));
        // While the node is not replaced, a pod in place of an ended one would be sent here again.
        NodeVerdict { failed, ends: if failed { ends() } else { Vec::new() } }
    }

    fn makes_progress(&self, pod: &PodRecord) -> bool {
        pod.placed().is_some_and(|placed| placed.node == self.node.metadata.name && !placed.ended)
            && !pod.is_deleted()
    }

    /// The strictest effect of the node's taints on pod sets that have pods there.
    fn taints(
        &self,
        workload: &Workload,
        flavor: impl Fn(&str) -> Option<Arc<ResourceFlavor>>,
    ) -> TaintEffect {
        let taints =
            nodes::taints(self.node).iter().filter(|taint| taint.effect != "PreferNoSchedule");
        let taints: Vec<_> =
            taints.filter(|_| self.rules.taints).filter_map(selector::taint).collect();
        if taints.is_empty() {
            return TaintEffect::Tolerated;
        }
        let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
        let assignments =
            admission.into_iter().flat_map(|admission| &admission.pod_set_assignments);
        let here = assignments.filter(|assignment| self.has_pods(assignment));
        let names: Vec<&str> = here.map(|assignment| assignment.name.as_str()).collect();
        let all = tolerations(workload, flavor);
        let of_pod_sets = all.iter().filter(|(name, _)| names.contains(&name.as_str()));
        let each = of_pod_sets
            .flat_map(|(_, tolerations)| taints.iter().map(|taint| effect_of(tolerations, taint)));
        each.max().unwrap_or(TaintEffect::Tolerated)
    }

    fn has_pods(&self, assignment: &PodSetAssignment) -> bool {
        let topology = assignment.topology_assignment.iter();
        topology
            .flat_map(|it| it.domains())
            .any(|domain| domain.values.last().is_some_and(|host| host == self.host))
    }
}

/// Whether a pod is selected for the host and not bound. It cannot start if the host takes no pods.
pub(super) fn is_sent(pod: &PodRecord, host: &str) -> bool {
    pod.placed().is_some_and(|placed| {
        let sent = placed.node_selector.get(HOSTNAME).is_some_and(|it| it == host);
        sent && placed.node.is_none() && placed.pending && !placed.is_gated()
    })
}

/// How much later than the grace period a deleted pod may end: clocks differ, the deletion's
/// timestamp has whole seconds, and the kubelet begins when the deletion reaches it.
const KILL_MARGIN: Duration = Duration::from_secs(10);

/// The rest of the grace period of a deleted pod on the host, and the margin. `None` for any other
/// pod.
pub(super) fn left_of_lost(pod: &PodRecord, host: &str, now: Timestamp) -> Option<Duration> {
    let placed = pod.placed().filter(|placed| !placed.ended)?;
    placed.node.as_ref().filter(|node| *node == host)?;
    // The API server has added the grace period.
    let until = pod.meta().deletion_timestamp.as_ref()?.0;
    Some(since(until + KILL_MARGIN, now))
}

fn effect_of(tolerations: &[Toleration], taint: &switchyard_scheduler::Taint) -> TaintEffect {
    let tolerating = tolerations.iter().filter(|it| selector::toleration(it).tolerates(taint));
    match tolerating.map(|it| it.toleration_seconds.is_some()).min() {
        None => TaintEffect::Untolerated,
        Some(true) => TaintEffect::ToleratedForSeconds,
        Some(false) => TaintEffect::Tolerated,
    }
}

/// Tolerations of each pod set: of its template, its flavors and its admission checks.
fn tolerations(
    workload: &Workload,
    flavor: impl Fn(&str) -> Option<Arc<ResourceFlavor>>,
) -> Vec<(String, Vec<Toleration>)> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let names = admission
        .into_iter()
        .flat_map(|it| &it.pod_set_assignments)
        .flat_map(|it| it.flavors.values());
    let flavors: Vec<Arc<ResourceFlavor>> = names.filter_map(|name| flavor(name)).collect();
    let find = |name: &str| {
        flavors
            .iter()
            .find(|it| it.metadata.name.as_deref() == Some(name))
            .map(std::convert::AsRef::as_ref)
    };
    // A workload whose flavor is gone, or whose checks contradict each other, does not start.
    let infos = pod_set_infos(workload, find).unwrap_or_default();
    let of_template = |name: &str| {
        let pod_set = workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == name)?;
        pod_set.template.parse().ok()?.spec?.tolerations
    };
    let joined = |info: switchyard_jobs::PodSetInfo| {
        let own = of_template(&info.name).unwrap_or_default();
        let all = own.into_iter().chain(info.tolerations).collect();
        (info.name, all)
    };
    infos.into_iter().map(joined).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use switchyard_api::names;

    use super::*;
    use crate::{
        fixtures::{self, WorkloadExt as _},
        stores::pods::InternedRequests,
    };

    const DEFAULT: FailureRules =
        FailureRules { await_pods: true, fixed_time: false, taints: true };
    const AT_ONCE: FailureRules = FailureRules { await_pods: false, ..DEFAULT };

    fn workload(host: &str, tolerations: &Value) -> Workload {
        fixtures::workload("w").reserved("cq").admitted().edit(|workload| {
            let template = json!({"spec": {"containers": [], "tolerations": tolerations}});
            workload.spec.pod_sets =
                serde_json::from_value(json!([{"name": "main", "count": 2, "template": template}])).unwrap();
            let slices =
                json!([{"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": 2}}]);
            let topology = json!({"levels": [HOSTNAME], "slices": slices});
            let assignment = json!({"name": "main", "count": 2, "topologyAssignment": topology});
            let admission = json!({"clusterQueue": "cq", "podSetAssignments": [assignment]});
            workload.status.as_mut().unwrap().admission = serde_json::from_value(admission).unwrap();
        })
    }

    fn node(ready: &str, taint: Option<&str>) -> Node {
        let taints: Vec<Value> =
            taint.iter().map(|effect| json!({"key": "k", "effect": effect})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "n"}, "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    /// States: `runs`, `ends`, `ended`, `sent` (selected for the node, not bound), `gated`.
    fn pod(state: &str) -> Arc<PodRecord> {
        let node =
            if ["runs", "ends", "ended"].contains(&state) { json!("n") } else { Value::Null };
        let gates = if state == "gated" {
            json!([{"name": names::TOPOLOGY_SCHEDULING_GATE}])
        } else {
            json!([])
        };
        let deletion = if state == "ends" { json!("2026-01-01T00:00:00Z") } else { Value::Null };
        let selector = if state == "gated" { json!({}) } else { json!({HOSTNAME: "n"}) };
        let phase = match state {
            "runs" | "ends" => "Running",
            "ended" => "Failed",
            _ => "Pending",
        };
        let pod = json!({
            "metadata": {
                "name": state, "namespace": "ns", "deletionTimestamp": deletion,
                "annotations": {names::POD_SET_UNCONSTRAINED_TOPOLOGY: "true", names::WORKLOAD: "w"},
            },
            "spec": {"nodeName": node, "nodeSelector": selector, "schedulingGates": gates, "containers": []},
            "status": {"phase": phase},
        });
        Arc::new(
            PodRecord::of(serde_json::from_value(pod).unwrap(), &InternedRequests::default())
                .unwrap(),
        )
    }

    fn verdict_text(rules: FailureRules, node: &Node, workload: &Workload, pods: &str) -> String {
        let pods: Vec<_> = pods.split_whitespace().map(pod).collect();
        let verdict = NodeJudge { rules, node, host: "n" }.judge(workload, &pods, |_| None);
        let ends =
            verdict.ends.iter().map(|pod| kube::Resource::meta(&**pod).name.clone().unwrap());
        let ends = ends.collect::<Vec<_>>().join(" ");
        format!("{} {ends}", if verdict.failed { "failed" } else { "well" }).trim().to_owned()
    }

    #[rstest]
    #[case::runs("runs", "n", None)]
    #[case::ended("ended", "n", None)]
    #[case::elsewhere("ends", "other", None)]
    #[case::before_its_end("ends", "n", Some(20))]
    fn deleted_pod_is_lost_after_its_grace_period(
        #[case] state: &str,
        #[case] host: &str,
        #[case] left: Option<u64>,
    ) {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let before = left_of_lost(&pod(state), host, at("2025-12-31T23:59:50Z"));
        assert_eq!(before, left.map(Duration::from_secs));
        let after = left_of_lost(&pod(state), host, at("2026-01-01T00:00:11Z"));
        assert_eq!(after, left.map(|_| Duration::ZERO));
    }

    #[rstest]
    #[case::pods_run(DEFAULT, "runs ends", "well")]
    #[case::last_pods_end(DEFAULT, "ends", "failed")]
    #[case::no_pods(DEFAULT, "", "failed")]
    #[case::pods_gated(DEFAULT, "gated", "failed")]
    #[case::pod_cannot_start(DEFAULT, "sent", "failed sent")]
    #[case::pods_do_not_matter(AT_ONCE, "runs", "failed")]
    fn not_ready_node_fails_without_running_pods(
        #[case] rules: FailureRules,
        #[case] pods: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(
            verdict_text(rules, &node("Unknown", None), &workload("n", &json!([])), pods),
            expected
        );
    }

    #[rstest]
    #[case::prefer_no_schedule("PreferNoSchedule", json!([]), "", "well")]
    #[case::untolerated_with_running_pods("NoSchedule", json!([]), "runs", "well")]
    #[case::pod_waits_while_another_runs("NoSchedule", json!([]), "runs sent", "well")]
    #[case::untolerated_without_running_pods("NoSchedule", json!([]), "ended sent", "failed sent")]
    #[case::tolerated("NoExecute", json!([{"operator": "Exists"}]), "", "well")]
    #[case::tolerated_for_seconds("NoExecute", json!([{"operator": "Exists", "tolerationSeconds": 5}]), "ends", "failed")]
    #[case::tolerated_for_seconds_with_running_pods("NoExecute", json!([{"operator": "Exists", "tolerationSeconds": 5}]), "runs", "well")]
    #[case::one_of_two_tolerates_for_ever(
        "NoExecute", json!([{"operator": "Exists", "tolerationSeconds": 5}, {"key": "k", "operator": "Exists"}]), "ends", "well")]
    fn tainted_node_fails_unless_tolerated(
        #[case] effect: &str,
        #[case] tolerations: Value,
        #[case] pods: &str,
        #[case] expected: &str,
    ) {
        let workload = workload("n", &tolerations);
        assert_eq!(verdict_text(DEFAULT, &node("True", Some(effect)), &workload, pods), expected);
        let without = FailureRules { taints: false, ..DEFAULT };
        assert_eq!(verdict_text(without, &node("True", Some(effect)), &workload, pods), "well");
    }

    #[test]
    fn pods_for_a_host_no_longer_assigned_are_ended() {
        let elsewhere = workload("other", &json!([]));
        assert_eq!(
            verdict_text(DEFAULT, &node("Unknown", None), &elsewhere, "sent runs"),
            "well sent"
        );
    }
}
