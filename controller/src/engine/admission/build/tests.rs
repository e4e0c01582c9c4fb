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
fn reservation_without_checks_admits_in_one_write() {
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
fn reservation_with_checks_waits_for_them() {
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
fn second_reservation_resets_eviction_conditions() {
    let evicted = fixtures::workload("a")
        .condition_at(10, "Evicted", true, "Preempted", "for another")
        .condition_at(10, "Preempted", true, "InClusterQueue", "for another")
        .condition_at(12, "QuotaReserved", false, "PendingEvaluation", "for another")
        .condition_at(12, "Admitted", false, "NoReservation", "The workload has no reservation");
    let edit = reservation_status(begun(&evicted, 30), two_cpus(), &[]);
    insta::assert_snapshot!(fixtures::conditions(&edit.status), @r"
    30s Evicted=False QuotaReserved: Previously: for another
    30s Preempted=False QuotaReserved: Previously: for another
    30s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    30s Admitted=True Admitted: The workload is admitted
    ");
}

fn to_west() -> Dispatch {
    Dispatch {
        check: "mk".into(),
        cluster: "west".into(),
        attempt: 3,
        adopts: None,
        other_flavors: Vec::new(),
    }
}

#[test]
fn dispatch_is_one_write() {
    let edit = dispatched_status(
        begun(&fixtures::workload("a"), 30),
        two_cpus(),
        &[],
        &to_west(),
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
fn dispatched_pods_count_as_placed() {
    let mut admission = two_cpus();
    admission.pod_set_assignments[0].delayed_topology_request =
        Some(DelayedTopologyRequestState::Pending);
    let edit = dispatched_status(
        begun(&fixtures::workload("a"), 30),
        admission,
        &[],
        &to_west(),
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
fn pending_status_has_reason_and_requests() {
    let requests =
        vec![(Name::from("main"), BTreeMap::from([(Name::from("cpu"), Amount::new(1500))]))];
    let edit = pending_status(begun(&fixtures::workload("a"), 30), &Reason::Overtaken, &requests);
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
        switchyard_api::quantity::parse(&quantity.0).expect("the API server takes quantities only");
    }
    let mut again = fixtures::workload("a");
    again.status = Some(edit.status.clone());
    let second = pending_status(begun(&again, 99), &Reason::Overtaken, &requests);
    assert_eq!(second.status, edit.status, "the same again writes nothing");
}

/// Without Kueue's `UnadmittedWorkloadsObservability`.
#[test]
fn without_the_gate_there_are_two_reasons() {
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
fn closed_preemption_gate_has_its_own_condition() {
    let edit = pending_status(begun(&fixtures::workload("a"), 30), &Reason::PreemptionGated, &[]);
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
fn preemption_events_name_priorities() {
    insta::assert_snapshot!(preemption_priorities((15, 5), (-2, 0)), @"; preemptor effective priority: 15 (base: 5, boost: 10); preemptee effective priority: -2 (base: 0, boost: -2)");
}

#[test]
fn preempted_status_is_evicted_and_preempted() {
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
