//! The status that a decision becomes. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};
use switchyard_api::{
    SmallMap,
    conditions::{self, reasons},
    names,
    v1beta2::{
        self, CheckState, DelayedTopologyRequestState, DispatchStatus, PodSetRequest, Workload,
    },
};
use switchyard_scheduler::{self as engine, Amount, Name, PodSetRequests, Reason};

use super::Preemptor;
use crate::engine::convert::topology;
use crate::workload::{Edit, Evicted, Eviction};

/// The engine's admission as the API writes it. `by_prefix`: hosts whose names begin alike are written together.
#[must_use]
pub fn admission(admission: &engine::Admission, by_prefix: bool) -> v1beta2::Admission {
    let assignments = admission.pod_sets.iter().map(|pod_set| v1beta2::PodSetAssignment {
        name: pod_set.name.to_string(),
        flavors: pod_set
            .flavors
            .iter()
            .map(|(resource, flavor)| (resource.to_string(), flavor.to_string()))
            .collect(),
        resource_usage: quantities(&pod_set.usage),
        count: Some(pod_set.count),
        topology_assignment: pod_set
            .topology
            .as_ref()
            .map(|topology| topology::assignment_to_api(topology, by_prefix)),
        delayed_topology_request: pod_set.delayed.map(topology::delayed_to_api),
    });
    v1beta2::Admission {
        cluster_queue: admission.cluster_queue.to_string(),
        pod_set_assignments: assignments.collect(),
    }
}

fn quantities(amounts: &BTreeMap<Name, Amount>) -> SmallMap<Quantity> {
    amounts
        .iter()
        .map(|(resource, amount)| (resource.to_string(), Quantity(amount.quantity(resource))))
        .collect()
}

/// Quota reserved and, where no check is to be waited for, admitted: one write.
#[must_use]
pub fn reservation_status(
    mut edit: Edit,
    admission: v1beta2::Admission,
    checks: &[String],
) -> Edit {
    let checks = checks.iter().cloned().collect();
    edit.sync_checks(&checks, &checks);
    edit.reserve(admission);
    edit.sync_admitted();
    edit
}

/// Where a workload was dispatched to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// The MultiKueue check that becomes Ready.
    pub check: String,
    /// The worker cluster.
    pub cluster: String,
    /// Which attempt this is; written before the cluster is told.
    pub attempt: i64,
    /// The uid by which clusters know the workload from now on, if it takes over what runs there.
    pub adopts: Option<String>,
}

/// Quota, cluster, attempt, the MultiKueue check Ready and, if no other check is missing, admission: one write.
#[must_use]
pub fn dispatched_status(
    mut edit: Edit,
    mut admission: v1beta2::Admission,
    checks: &[String],
    dispatch: &Dispatch,
    now: Timestamp,
) -> Edit {
    // The cluster that took it has placed its pods.
    for assignment in &mut admission.pod_set_assignments {
        if assignment.delayed_topology_request.is_some() {
            assignment.delayed_topology_request = Some(DelayedTopologyRequestState::Ready);
        }
    }
    let required = checks.iter().chain(std::iter::once(&dispatch.check)).cloned().collect();
    edit.sync_checks(&required, &required);
    let at = Time(switchyard_platform::clock::whole_seconds(now));
    for check in
        edit.status.admission_checks.iter_mut().filter(|check| check.name == dispatch.check)
    {
        if check.state != CheckState::Ready {
            check.last_transition_time = at.clone();
        }
        check.state = CheckState::Ready;
        check.message = format!("The workload was admitted on \"{}\"", dispatch.cluster);
    }
    edit.status.cluster_name = Some(dispatch.cluster.clone());
    edit.status.nominated_cluster_names.clear();
    let before = edit.status.dispatch.take().unwrap_or_default();
    let workload_uid = dispatch.adopts.clone().or(before.workload_uid);
    edit.status.dispatch = Some(DispatchStatus {
        attempt: dispatch.attempt,
        workload_uid,
        cluster_name: Some(dispatch.cluster.clone()),
        history: before.history,
    });
    edit.reserve(admission);
    edit.sync_admitted();
    edit
}

/// Why it waits, and what it asks for.
#[must_use]
pub fn pending_status(mut edit: Edit, reason: &Reason, requests: &[PodSetRequests]) -> Edit {
    edit.looked_at(reason.condition_reason(), reason.message());
    if *reason == Reason::PreemptionGated {
        let gated = reasons::blocked_on_preemption_gates::PREEMPTION_GATED;
        edit.set(conditions::BLOCKED_ON_PREEMPTION_GATES, true, gated, reason.message());
    }
    let requests = requests.iter().map(|(name, amounts)| PodSetRequest {
        name: name.to_string(),
        resources: quantities(amounts),
    });
    edit.status.resource_requests = requests.collect();
    edit
}

/// Kueue's sentence about a preemption. `paths` are the preemptor's and the preemptee's.
#[must_use]
pub fn preemption_message(reason: &str, preemptor: &Preemptor, paths: [&str; 2]) -> String {
    let known = |text: &str| if text.is_empty() { "UNKNOWN".to_owned() } else { text.to_owned() };
    let cause = match reason {
        reasons::preempted::IN_CLUSTER_QUEUE => "prioritization in the ClusterQueue",
        reasons::preempted::IN_COHORT_RECLAMATION => "reclamation within the cohort",
        reasons::preempted::IN_COHORT_FAIR_SHARING => "Fair Sharing within the cohort",
        reasons::preempted::IN_COHORT_RECLAIM_WHILE_BORROWING => {
            "reclamation within the cohort while borrowing"
        }
        _ => "UNKNOWN",
    };
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {cause}; preemptor path: {}; preemptee path: {}",
        known(&preemptor.uid),
        known(&preemptor.job_uid),
        known(paths[0]),
        known(paths[1]),
    )
}

/// What the events about a preemption say of the two workloads' priorities, in Kueue's words: for each the effective
/// priority and that of its spec.
#[must_use]
pub fn preemption_priorities(preemptor: (i32, i32), preemptee: (i32, i32)) -> String {
    let priority = |(effective, base): (i32, i32)| {
        format!("{effective} (base: {base}, boost: {})", i64::from(effective) - i64::from(base))
    };
    format!(
        "; preemptor effective priority: {}; preemptee effective priority: {}",
        priority(preemptor),
        priority(preemptee)
    )
}

/// Evicted for another workload.
#[must_use]
pub fn preempted_status(mut edit: Edit, reason: &str, message: &str) -> (Edit, Evicted) {
    edit.set(conditions::PREEMPTED, true, reason, message);
    let eviction = Eviction {
        reason: reasons::evicted::PREEMPTED,
        cause: String::new(),
        message: message.to_owned(),
    };
    let evicted = edit.evict(eviction);
    (edit, evicted)
}

/// Evicted for a variant of the same workload on a better flavor.
#[must_use]
pub(super) fn migrated_status(mut edit: Edit, to_uid: &str) -> (Edit, Evicted) {
    let message = format!(
        "Evicted to accommodate a workload (UID: {to_uid}) due to migration to more favorable resource flavor"
    );
    let evicted = edit.evict(Eviction {
        reason: reasons::evicted::FLAVOR_MIGRATION,
        cause: String::new(),
        message,
    });
    (edit, evicted)
}

/// What is said of a workload in whose place another was given quota.
#[must_use]
pub(super) fn replaced_message(new: &Workload) -> String {
    let uid = new.metadata.uid.as_deref().unwrap_or_default();
    let job_uid = new.metadata.labels.as_ref().and_then(|labels| labels.get(names::JOB_UID));
    let job_uid = job_uid.map(String::as_str).unwrap_or_default();
    format!(
        "Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to workload slice aggregation"
    )
}

/// Over, because another was given quota in its place.
#[must_use]
pub(super) fn replaced_status(mut edit: Edit, message: &str) -> Edit {
    edit.finish(reasons::finished::WORKLOAD_SLICE_REPLACED, message);
    edit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, WorkloadExt, rendered};
    use crate::workload::ReasonDetail;

    fn begun(workload: &Workload, at: i64) -> Edit {
        Edit::new(workload, ReasonDetail::Full, fixtures::at(at))
    }

    fn two_cpus() -> v1beta2::Admission {
        let name = |text: &str| Name::from(text);
        let given = engine::Admission {
            cluster_queue: name("cq"),
            pod_sets: vec![engine::PodSetAssignment {
                name: name("main"),
                flavors: BTreeMap::from([
                    (name("cpu"), name("default")),
                    (name("memory"), name("default")),
                ]),
                usage: BTreeMap::from([
                    (name("cpu"), Amount::new(2500)),
                    (name("memory"), Amount::new(3 << 30)),
                ]),
                count: 5,
                topology: None,
                delayed: None,
            }],
        };
        admission(&given, true)
    }

    #[test]
    fn without_checks_one_write_reserves_and_admits() {
        let edit = reservation_status(begun(&fixtures::workload("a"), 30), two_cpus(), &[]);
        insta::assert_snapshot!(rendered(&edit.status), @r#"
        30s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
        30s Admitted=True Admitted: The workload is admitted
        {
          "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [
              {
                "name": "main",
                "flavors": {
                  "cpu": "default",
                  "memory": "default"
                },
                "resourceUsage": {
                  "cpu": "2500m",
                  "memory": "3Gi"
                },
                "count": 5
              }
            ]
          }
        }
        "#);
    }

    #[test]
    fn with_checks_admission_waits_for_them() {
        let edit = reservation_status(
            begun(&fixtures::workload("a"), 30),
            two_cpus(),
            &["b".into(), "a".into()],
        );
        insta::assert_snapshot!(rendered(&edit.status), @r#"
        30s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
        30s Admitted=False UnsatisfiedAdmissionChecks: The workload has not all checks ready
        {
          "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [
              {
                "name": "main",
                "flavors": {
                  "cpu": "default",
                  "memory": "default"
                },
                "resourceUsage": {
                  "cpu": "2500m",
                  "memory": "3Gi"
                },
                "count": 5
              }
            ]
          },
          "admissionChecks": [
            {
              "name": "a",
              "state": "Pending",
              "lastTransitionTime": "1970-01-01T00:00:30Z",
              "message": ""
            },
            {
              "name": "b",
              "state": "Pending",
              "lastTransitionTime": "1970-01-01T00:00:30Z",
              "message": ""
            }
          ]
        }
        "#);
    }

    #[test]
    fn a_second_reservation_makes_the_eviction_history() {
        let evicted = fixtures::workload("a")
            .condition_at(10, "Evicted", true, "Preempted", "for another")
            .condition_at(10, "Preempted", true, "InClusterQueue", "for another")
            .condition_at(12, "QuotaReserved", false, "PendingEvaluation", "for another")
            .condition_at(
                12,
                "Admitted",
                false,
                "NoReservation",
                "The workload has no reservation",
            );
        let edit = reservation_status(begun(&evicted, 30), two_cpus(), &[]);
        insta::assert_snapshot!(fixtures::conditions(&edit.status), @r"
        30s Evicted=False QuotaReserved: Previously: for another
        30s Preempted=False QuotaReserved: Previously: for another
        30s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
        30s Admitted=True Admitted: The workload is admitted
        ");
    }

    #[test]
    fn dispatch_is_one_write() {
        let dispatch =
            Dispatch { check: "mk".into(), cluster: "west".into(), attempt: 3, adopts: None };
        let edit = dispatched_status(
            begun(&fixtures::workload("a"), 30),
            two_cpus(),
            &[],
            &dispatch,
            fixtures::at(30),
        );
        insta::assert_snapshot!(rendered(&edit.status), @r#"
        30s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
        30s Admitted=True Admitted: The workload is admitted
        {
          "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [
              {
                "name": "main",
                "flavors": {
                  "cpu": "default",
                  "memory": "default"
                },
                "resourceUsage": {
                  "cpu": "2500m",
                  "memory": "3Gi"
                },
                "count": 5
              }
            ]
          },
          "admissionChecks": [
            {
              "name": "mk",
              "state": "Ready",
              "lastTransitionTime": "1970-01-01T00:00:30Z",
              "message": "The workload was admitted on \"west\""
            }
          ],
          "clusterName": "west",
          "dispatch": {
            "attempt": 3,
            "clusterName": "west"
          }
        }
        "#);
    }

    #[test]
    fn pods_count_as_placed_once_another_cluster_has_the_job() {
        let mut admission = two_cpus();
        admission.pod_set_assignments[0].delayed_topology_request =
            Some(DelayedTopologyRequestState::Pending);
        let dispatch =
            Dispatch { check: "mk".into(), cluster: "west".into(), attempt: 3, adopts: None };
        let edit = dispatched_status(
            begun(&fixtures::workload("a"), 30),
            admission,
            &[],
            &dispatch,
            fixtures::at(30),
        );
        insta::assert_snapshot!(fixtures::conditions(&edit.status), @r"
        30s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
        30s Admitted=True Admitted: The workload is admitted
        ");
        let written = &edit.status.admission.unwrap().pod_set_assignments[0];
        assert_eq!(written.delayed_topology_request, Some(DelayedTopologyRequestState::Ready));
    }

    #[test]
    fn pending_says_why_and_what_it_asks_for() {
        let requests =
            vec![(Name::from("main"), BTreeMap::from([(Name::from("cpu"), Amount::new(1500))]))];
        let edit =
            pending_status(begun(&fixtures::workload("a"), 30), &Reason::Overtaken, &requests);
        insta::assert_snapshot!(rendered(&edit.status), @r#"
        30s QuotaReserved=False WaitingForQuota: Workload no longer fits after processing another workload
        30s Admitted=False NoReservation: The workload has no reservation
        {
          "resourceRequests": [
            {
              "name": "main",
              "resources": {
                "cpu": "1500m"
              }
            }
          ]
        }
        "#);
        let absurd = [("cpu", Amount::UNLIMITED), ("memory", Amount::UNLIMITED)];
        let absurd = absurd.map(|(resource, amount)| (Name::from(resource), amount)).into();
        let absurd = pending_status(
            begun(&fixtures::workload("a"), 30),
            &Reason::Overtaken,
            &[("main".into(), absurd)],
        );
        let written = &absurd.status.resource_requests[0].resources;
        for quantity in written.values() {
            switchyard_api::quantity::parse(&quantity.0)
                .expect("the API server takes quantities only");
        }
        let mut again = fixtures::workload("a");
        again.status = Some(edit.status.clone());
        let second = pending_status(begun(&again, 99), &Reason::Overtaken, &requests);
        assert_eq!(second.status, edit.status, "the same again writes nothing");
    }

    /// Without Kueue's `UnadmittedWorkloadsObservability`.
    #[test]
    fn in_plain_words_the_engine_has_two_reasons() {
        let told = |reason: &Reason| {
            let edit = Edit::new(&fixtures::workload("a"), ReasonDetail::Basic, fixtures::at(30));
            fixtures::conditions(&pending_status(edit, reason, &[]).status)
        };
        insta::assert_snapshot!(told(&Reason::Overtaken), @"30s QuotaReserved=False Pending: Workload no longer fits after processing another workload");
        insta::assert_snapshot!(told(&Reason::WaitingForPodsReady), @"30s QuotaReserved=False Waiting: waiting for all admitted workloads to be in PodsReady condition");
        insta::assert_snapshot!(told(&Reason::PreemptionGated), @r"
        30s QuotaReserved=False Pending: Workload requires preemption, but it's gated
        30s BlockedOnPreemptionGates=True PreemptionGated: Workload requires preemption, but it's gated
        ");
    }

    #[test]
    fn a_closed_preemption_gate_has_a_condition_of_its_own() {
        let edit =
            pending_status(begun(&fixtures::workload("a"), 30), &Reason::PreemptionGated, &[]);
        insta::assert_snapshot!(fixtures::conditions(&edit.status), @r"
        30s QuotaReserved=False AdmissionGated: Workload requires preemption, but it's gated
        30s Admitted=False NoReservation: The workload has no reservation
        30s BlockedOnPreemptionGates=True PreemptionGated: Workload requires preemption, but it's gated
        ");
        let mut gated = fixtures::workload("a");
        gated.status = Some(edit.status);
        let edit = reservation_status(begun(&gated, 40), two_cpus(), &[]);
        insta::assert_snapshot!(fixtures::conditions(&edit.status), @r"
        40s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
        40s Admitted=True Admitted: The workload is admitted
        40s BlockedOnPreemptionGates=False QuotaReserved: Previously: Workload requires preemption, but it's gated
        ");
    }

    #[test]
    fn the_events_of_a_preemption_tell_the_priorities() {
        insta::assert_snapshot!(preemption_priorities((15, 5), (-2, 0)), @"; preemptor effective priority: 15 (base: 5, boost: 10); preemptee effective priority: -2 (base: 0, boost: -2)");
    }

    #[test]
    fn preempted_for_another_workload() {
        let key = switchyard_platform::store::Key::new("ns", "b");
        let preemptor =
            Preemptor { key, uid: "u1".into(), job_uid: "j1".into(), cluster_queue: "b".into() };
        let message = preemption_message("InCohortReclamation", &preemptor, ["/all/b", "/all/a"]);
        let (edit, evicted) = preempted_status(
            begun(&fixtures::workload("a").reserved("a").admitted(), 30),
            "InCohortReclamation",
            &message,
        );
        insta::assert_snapshot!(fixtures::conditions(&edit.status), @r"
        10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue a
        12s Admitted=True Admitted: The workload is admitted
        30s Preempted=True InCohortReclamation: Preempted to accommodate a workload (UID: u1, JobUID: j1) due to reclamation within the cohort; preemptor path: /all/b; preemptee path: /all/a
        30s Evicted=True Preempted: Preempted to accommodate a workload (UID: u1, JobUID: j1) due to reclamation within the cohort; preemptor path: /all/b; preemptee path: /all/a
        ");
        assert_eq!((evicted.event.as_str(), evicted.first), ("EvictedDueToPreempted", true));
        let unknown = preemption_message("", &Preemptor::default(), ["", ""]);
        insta::assert_snapshot!(unknown, @"Preempted to accommodate a workload (UID: UNKNOWN, JobUID: UNKNOWN) due to UNKNOWN; preemptor path: UNKNOWN; preemptee path: UNKNOWN");
    }
}
