use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[rstest]
#[case::no_more_pods_than_completions(job().pods(5, 3), 3, None)]
#[case::no_more_pods_than_parallelism(job().pods(3, 5), 3, None)]
#[case::without_completions_parallelism_counts(job().with(json!({"spec": {"parallelism": 4, "completions": null}})), 4, None)]
#[case::partial_admission_gives_a_minimum(job().pods(5, 5).min_parallelism("2"), 5, Some(2))]
#[case::an_unreadable_minimum_is_none(job().pods(5, 5).min_parallelism("two"), 5, None)]
fn pod_set_counts(#[case] job: TestJob, #[case] count: i32, #[case] min: Option<i32>) {
    let pod_sets = BatchJob.pod_sets(&job.build()).unwrap();
    assert_eq!((pod_sets.len(), pod_sets[0].name.as_str()), (1, "main"));
    assert_eq!((pod_sets[0].count, pod_sets[0].min_count), (count, min));
}

#[test]
fn workload_has_no_controller_labels_but_the_jobs_name() {
    let pod_sets = BatchJob.pod_sets(&job().build()).unwrap();
    let labels = pod_sets[0].template.value()["metadata"]["labels"].clone();
    assert_eq!(labels, json!({"app": "train", "batch.kubernetes.io/job-name": "train"}));
}

#[test]
fn job_without_a_template_is_malformed() {
    let job = job().with(json!({"spec": {"template": null}})).build();
    insta::assert_snapshot!(BatchJob.pod_sets(&job).unwrap_err(), @"spec.template.spec: is missing; a Job needs a pod template");
}

#[test]
fn started_job_has_its_flavors_selectors() {
    let test = job();
    let infos = infos_of(&reserved(test.workload(), 1, true));
    let before = test.build();
    let mut after = before.clone();
    BatchJob.run(&mut after, &infos).unwrap();
    insta::assert_json_snapshot!(merge_diff(&before, &after).unwrap(), @r#"
    {
      "spec": {
        "suspend": false,
        "template": {
          "metadata": {
            "annotations": {
              "kueue.x-k8s.io/workload": "job-train-1b29a"
            },
            "labels": {
              "kueue.x-k8s.io/cluster-queue-name": "cq",
              "kueue.x-k8s.io/local-queue-name": "lq",
              "kueue.x-k8s.io/podset": "main"
            }
          },
          "spec": {
            "nodeSelector": {
              "accelerator": "a100"
            },
            "tolerations": [
              {
                "effect": "NoSchedule",
                "key": "gpu",
                "operator": "Exists"
              }
            ]
          }
        }
      }
    }
    "#);
}

#[rstest]
#[case::fewer_pods_under_partial_admission(job().pods(5, 10).min_parallelism("2"), 3, json!([3, 10]))]
#[case::completions_follow_when_asked(job().pods(5, 5).indexed().min_parallelism("2").annotation("kueue.x-k8s.io/job-completions-equal-parallelism", "true"), 3, json!([3, 3]))]
#[case::without_the_annotation_parallelism_stays(job().pods(5, 10), 3, json!([5, 10]))]
fn counts_of_a_started_job_and_back(
    #[case] test: TestJob,
    #[case] admitted: i32,
    #[case] want: Value,
) {
    let workload = reserved(test.workload(), admitted, true);
    let before = test.build();
    let mut job = before.clone();
    BatchJob.run(&mut job, &infos_of(&workload)).unwrap();
    assert_eq!(json!([job["spec"]["parallelism"], job["spec"]["completions"]]), want);
    assert!(BatchJob.restore(&mut job, &workload.spec.pod_sets));
    BatchJob.suspend(&mut job);
    assert_eq!(job, before, "restored to what the user wrote");
    assert!(!BatchJob.restore(&mut job, &workload.spec.pod_sets), "nothing left to restore");
}

#[test]
fn start_keeps_the_jobs_selectors_and_tolerations() {
    let own = json!({"spec": {"template": {"spec": {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "newField": 1}],
    }}}});
    let test = job().with(own);
    let workload = reserved(test.workload(), 1, true);
    let before = test.build();
    let mut job = before.clone();
    BatchJob.run(&mut job, &infos_of(&workload)).unwrap();
    assert_eq!(
        job["spec"]["template"]["spec"]["nodeSelector"],
        json!({"accelerator": "a100", "zone": "a"})
    );
    assert_eq!(
        job["spec"]["template"]["spec"]["tolerations"].as_array().unwrap().len(),
        1,
        "the same toleration once"
    );
    BatchJob.restore(&mut job, &workload.spec.pod_sets);
    BatchJob.suspend(&mut job);
    assert_eq!(job, before);
}

#[test]
fn start_with_contradicting_info_fails() {
    let test = job()
        .with(json!({"spec": {"template": {"spec": {"nodeSelector": {"accelerator": "h100"}}}}}));
    let infos = infos_of(&reserved(test.workload(), 1, true));
    let error = BatchJob.run(&mut test.build(), &infos).unwrap_err();
    assert!(error.is_permanent());
    insta::assert_snapshot!(error, @"invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key=accelerator, value1=h100, value2=a100");
    let error = BatchJob.run(&mut job().build(), &[]).unwrap_err();
    insta::assert_snapshot!(error, @"invalid podset infos: expecting 1 podset, got 0");
}

/// Performs the steps of a stop as an API server and a Job controller would allow them.
fn stop_steps(mut job: Value, pod_sets: Option<&[PodSet]>) -> (Vec<&'static str>, Value) {
    let mut steps = Vec::new();
    for _ in 0..10 {
        match BatchJob.stop(&job, pod_sets) {
            Stop::Done => return (steps, job),
            Stop::Terminate(_) => panic!("its pods are its controller's"),
            Stop::Wait => {
                steps.push("wait");
                job = TestJob(job)
                    .status(json!({"active": null}))
                    .condition("Suspended", "True")
                    .build();
            }
            Stop::UpdateStatus(wanted) => {
                steps.push("status");
                job = *wanted;
            }
            Stop::Update { job: wanted, now } => {
                let changes_template = job["spec"]["template"] != wanted["spec"]["template"];
                let mutable = job["spec"]["suspend"] == true
                    && job["status"]["active"].is_null()
                    && job["status"]["startTime"].is_null();
                assert!(!changes_template || mutable, "the API server would refuse this");
                steps.push(if now { "suspend" } else { "restore" });
                job = *wanted;
            }
        }
    }
    panic!("never done: {steps:?}");
}

#[test]
fn running_job_is_stopped_in_allowed_steps() {
    let test = job();
    let workload = reserved(test.workload(), 1, true);
    let original = test.build();
    let mut running = original.clone();
    BatchJob.run(&mut running, &infos_of(&workload)).unwrap();
    let running =
        TestJob(running).status(json!({"active": 1, "startTime": "2026-11-21T10:00:00Z"})).build();
    let (steps, stopped) = stop_steps(running, Some(&workload.spec.pod_sets));
    assert_eq!(steps, ["suspend", "wait", "status", "restore"]);
    assert_eq!(stopped["spec"], original["spec"]);
    assert_eq!(stopped["metadata"]["annotations"], json!({}));
}

#[test]
fn job_that_never_started_is_suspended_in_one_step() {
    let test = job();
    let workload = test.workload();
    let (steps, stopped) = stop_steps(test.running().build(), Some(&workload.spec.pod_sets));
    assert_eq!(steps, ["suspend"]);
    assert!(BatchJob.is_suspended(&stopped));
}

#[test]
fn job_being_stopped_is_not_suspended() {
    let stopping = job().annotation("kueue.x-k8s.io/stopping", "true").build();
    assert!(!BatchJob.is_suspended(&stopping));
    assert!(BatchJob.is_suspended(&job().build()));
    assert!(!BatchJob.is_suspended(&job().running().build()));
}

#[rstest]
#[case::never_started(job(), false)]
#[case::started_before(job().status(json!({"startTime": "2026-11-21T10:00:00Z"})), true)]
#[case::running(job().running().status(json!({"startTime": "2026-11-21T10:00:00Z"})), false)]
fn start_time_is_reset_before_the_start(#[case] job: TestJob, #[case] reset: bool) {
    assert_eq!(BatchJob.before_run(&job.build()).is_some(), reset);
}

#[rstest]
#[case::no_conditions(job(), None)]
#[case::complete(job().condition("Complete", "True"), Some((true, "Complete message")))]
#[case::failed(job().condition("Suspended", "False").condition("Failed", "True"), Some((false, "Failed message")))]
#[case::about_to_fail(job().condition("FailureTarget", "True").condition("Failed", "False"), None)]
fn finished(#[case] job: TestJob, #[case] want: Option<(bool, &str)>) {
    let got = BatchJob.finished(&job.build());
    assert_eq!(got, want.map(|(success, message)| JobEnd { success, message: message.into() }));
}

#[rstest]
#[case::none_ready(job().pods(3, 3), false)]
#[case::some_ready(job().pods(3, 3).status(json!({"ready": 2})), false)]
#[case::all_ready(job().pods(3, 3).status(json!({"ready": 3})), true)]
#[case::ready_and_succeeded(job().pods(3, 3).status(json!({"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["u"]}})), true)]
fn pods_ready(#[case] job: TestJob, #[case] want: bool) {
    assert_eq!(BatchJob.pods_ready(&job.build()), want);
}

#[rstest]
#[case::nothing_succeeded(job().pods(3, 5), 0)]
#[case::remaining_work_fills_all_slots(job().pods(3, 5).status(json!({"succeeded": 2})), 0)]
#[case::one_slot_is_free(job().pods(3, 5).status(json!({"succeeded": 3})), 1)]
#[case::no_more_pods_run_than_completions_are_left(job().pods(5, 3).status(json!({"succeeded": 1})), 1)]
#[case::a_single_pod_has_nothing_to_give(job().pods(1, 1).status(json!({"succeeded": 1})), 0)]
#[case::failed_indexes_will_not_run_again(job().pods(3, 5).indexed().status(json!({"succeeded": 3, "completedIndexes": "0-2", "failedIndexes": "3"})), 2)]
#[case::of_an_indexed_job_only_indexes_count(job().pods(3, 5).indexed().status(json!({"succeeded": 4, "completedIndexes": "0-1"})), 0)]
#[case::never_more_than_parallelism(job().pods(3, 3).status(json!({"succeeded": 9})), 3)]
fn reclaimable(#[case] job: TestJob, #[case] want: i32) {
    let pods = BatchJob.reclaimable(&job.build());
    assert_eq!(pods.first().map_or(0, |pods| pods.count), want);
}

#[rstest]
#[case::unset(job(), true)]
#[case::the_job_controllers_own(job().with(json!({"spec": {"managedBy": "kubernetes.io/job-controller"}})), true)]
#[case::somebody_elses(job().with(json!({"spec": {"managedBy": "example.com/x"}})), false)]
fn managed_by_can_be_defaulted(#[case] job: TestJob, #[case] want: bool) {
    assert_eq!(BatchJob.can_default_managed_by(&job.build()), want);
}

#[test]
fn job_copy_has_no_local_fields() {
    let job = job()
        .annotation("note", "kept")
        .annotation("kubectl.kubernetes.io/last-applied-configuration", "{}")
        .with(json!({
            "metadata": {"ownerReferences": [{"uid": "o"}], "finalizers": ["x"], "generation": 3},
            "spec": {"managedBy": "kueue.x-k8s.io/multikueue", "ttlSecondsAfterFinished": 5, "suspend": false},
            "status": {"active": 1},
        }))
        .build();
    let copy = BatchJob.remote_copy(&job, RemoteMeta { workload: "job-train-1", origin: "hub" });
    insta::assert_json_snapshot!(copy, @r#"
    {
      "apiVersion": "batch/v1",
      "kind": "Job",
      "metadata": {
        "annotations": {
          "note": "kept"
        },
        "labels": {
          "kueue.x-k8s.io/multikueue-origin": "hub",
          "kueue.x-k8s.io/prebuilt-workload-name": "job-train-1",
          "kueue.x-k8s.io/queue-name": "lq"
        },
        "name": "train",
        "namespace": "ns"
      },
      "spec": {
        "completionMode": "NonIndexed",
        "completions": 1,
        "parallelism": 1,
        "suspend": true,
        "template": {
          "metadata": {
            "labels": {
              "app": "train",
              "batch.kubernetes.io/job-name": "train"
            }
          },
          "spec": {
            "containers": [
              {
                "image": "i",
                "name": "c",
                "resources": {
                  "requests": {
                    "cpu": "1"
                  }
                }
              }
            ],
            "restartPolicy": "Never"
          }
        }
      }
    }
    "#);
}

#[test]
fn workload_name_too_long_for_a_label_becomes_an_annotation() {
    let name = "w".repeat(64);
    let copy = BatchJob.remote_copy(&job().build(), RemoteMeta { workload: &name, origin: "hub" });
    assert_eq!(meta::label(&copy, "kueue.x-k8s.io/prebuilt-workload-name"), None);
    assert_eq!(meta::prebuilt_workload_name(&copy), name);
}

#[test]
fn manual_selector_is_copied_with_its_labels() {
    let own =
        json!({"spec": {"manualSelector": true, "selector": {"matchLabels": {"app": "train"}}}});
    let copy =
        BatchJob.remote_copy(&job().with(own).build(), RemoteMeta { workload: "w", origin: "hub" });
    assert_eq!(copy["spec"]["selector"]["matchLabels"]["app"], "train");
    assert_eq!(copy["spec"]["manualSelector"], true);
}

#[rstest]
#[case::of_a_job_that_never_ran(json!({}), (false, false))]
#[case::active(json!({"active": 1}), (true, false))]
#[case::failed(json!({"active": 0, "failed": 2}), (true, false))]
#[case::succeeded(json!({"succeeded": 1}), (true, true))]
fn status_counts_pods(#[case] status: Value, #[case] expected: (bool, bool)) {
    let counted = BatchJob.counted_pods(&json!({"status": status})).unwrap();
    assert_eq!((counted.may_exist, counted.has_succeeded), expected);
}
