use serde_json::json;

use super::samples::{condition, spec, workload};
use super::*;

const NOW: &str = "2026-11-21T10:10:00Z";

#[test]
fn each_state_shows_cluster_and_reason() {
    let rows: Vec<JobRow> = samples::workloads().iter().map(row).collect();
    insta::assert_snapshot!(render_text(&rows, false, NOW.parse().unwrap()), @r"
    JOB           QUEUE   PRIORITY   STATE           READY   CLUSTER   AGE   REASON
    broken        main    5          Failed          -       -         10m   exit code 1
    dispatching   main    5          QuotaReserved   -       -         10m   fleet: east: no room
    done          main    5          Succeeded       -       -         10m   Job finished successfully
    new           main    5          Pending         -       -         10m   not looked at yet
    runs          main    5          Running         1/1     east      10m
    stops         main    5          Evicted         -       -         10m   Preempted for another
    waits         main    5          Pending         -       -         10m   couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor a, 1 more needed
    ");
}

#[test]
fn worker_trouble_is_shown_until_the_job_ends() {
    for (status, ready, reason) in
        [("True", None, "on \"east\": ImagePull: no"), ("False", Some("1/1".to_owned()), "")]
    {
        let mut runs = samples::workloads().swap_remove(3);
        let trouble = condition("WorkerTrouble", status, "ImagePull", "on \"east\": ImagePull: no");
        runs.status.as_mut().unwrap().conditions.push(serde_json::from_value(trouble).unwrap());
        let row = row(&runs);
        assert_eq!(
            (row.ready.map(|it| it.to_string()), row.reason.as_str()),
            (ready, reason),
            "{status}"
        );
    }
}

#[test]
fn deactivated_job_is_not_pending() {
    let mut spec = spec();
    spec["active"] = json!(false);
    let row = row(&workload("off", spec, json!({})));
    assert_eq!((row.state, row.reason.as_str()), (JobState::Deactivated, "spec.active is false"));
}

#[test]
fn single_job_shows_quota_and_conditions() {
    let detail = detail(&samples::workloads()[3]);
    insta::assert_snapshot!(detail::render_text(&detail, NOW.parse().unwrap()), @r"
    Job:       team/runs (Job)
    Workload:  job-runs-1a2b3
    Queue:     main
    Priority:  5
    State:     Running
    Ready:     1/1
    Cluster:   east (attempt 2)
    Evictions: 1

    CLUSTERQUEUE   PODSET   RESOURCE   FLAVOR   HELD
    cq             main     cpu        a        2

    AGE    CONDITION       STATUS   REASON          MESSAGE
    9m0s   QuotaReserved   True     QuotaReserved   Quota reserved in ClusterQueue cq
    9m0s   Admitted        True     Admitted        The workload is admitted
    9m0s   PodsReady       True     Started
    ");
}

#[test]
fn json_has_the_facts_of_the_table() {
    let json = Output::Json.render(&row(&samples::workloads()[3]), |_| String::new()).unwrap();
    insta::assert_snapshot!(json, @r#"
    {
      "namespace": "team",
      "job": "runs",
      "kind": "Job",
      "workload": "job-runs-1a2b3",
      "queue": "main",
      "priority": 5,
      "state": "Running",
      "cluster": "east",
      "attempt": 2,
      "ready": {
        "ready": 1,
        "all": 1
      },
      "reason": "",
      "flavors": [
        "a"
      ],
      "created": "2026-11-21T10:00:00Z"
    }
    "#);
}
