use serde_json::json;

use super::*;

struct Classes;

impl PriorityLookup for Classes {
    fn workload_class(&self, name: &str) -> Option<i32> {
        (name == "high").then_some(100)
    }

    fn pod_class(&self, name: &str) -> Option<i32> {
        (name == "pods").then_some(7)
    }

    fn default_pod_class(&self) -> Option<(String, i32)> {
        Some(("global".into(), 3))
    }
}

fn priority(job: TestJob) -> Result<(Option<String>, i32), String> {
    let job = job.build();
    let pod_sets = job_pod_sets(&BatchJob, &job).unwrap();
    let priority = resolve_priority(&BatchJob, &job, &pod_sets, &Classes)
        .map_err(|error| error.to_string())?;
    Ok((priority.class.map(|class| class.name), priority.value))
}

#[test]
fn priority_comes_from_the_label_then_the_pods_then_the_default() {
    let pods = json!({"spec": {"template": {"spec": {"priorityClassName": "pods"}}}});
    let labelled = |name: &str| job().label("kueue.x-k8s.io/priority-class", name);
    assert_eq!(priority(labelled("high").with(pods.clone())), Ok((Some("high".into()), 100)));
    assert_eq!(priority(job().with(pods)), Ok((Some("pods".into()), 7)));
    assert_eq!(priority(job()), Ok((Some("global".into()), 3)));
    assert_eq!(priority(labelled("low")), Err(r#"WorkloadPriorityClass "low" not found"#.into()));
    let unknown = json!({"spec": {"template": {"spec": {"priorityClassName": "none"}}}});
    assert_eq!(priority(job().with(unknown)), Err(r#"PriorityClass "none" not found"#.into()));
}

#[test]
fn workload_of_an_unchanged_job_matches() {
    let job = job()
        .label("team", "a")
        .label("kueue.x-k8s.io/max-exec-time-seconds", "60")
        .annotation("provreq.kueue.x-k8s.io/x", "1")
        .annotation("cost", "3")
        .annotation("other", "2")
        .build();
    let pod_sets = job_pod_sets(&BatchJob, &job).unwrap();
    let priority = Priority::of_workload_class("high", 100);
    let (labels, annotations) = (["team".to_owned()], ["cost".to_owned()]);
    let options =
        BuildOptions { label_keys_to_copy: &labels, annotation_keys_to_copy: &annotations };
    let workload = build_workload(&BatchJob, &job, pod_sets, &priority, options);
    insta::assert_json_snapshot!(serde_json::to_value(workload).unwrap(), @r#"
    {
      "apiVersion": "kueue.x-k8s.io/v1beta2",
      "kind": "Workload",
      "metadata": {
        "annotations": {
          "cost": "3",
          "provreq.kueue.x-k8s.io/x": "1"
        },
        "finalizers": [
          "kueue.x-k8s.io/resource-in-use"
        ],
        "labels": {
          "kueue.x-k8s.io/job-uid": "job-uid",
          "team": "a"
        },
        "name": "job-train-1b29a",
        "namespace": "ns",
        "ownerReferences": [
          {
            "apiVersion": "batch/v1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "Job",
            "name": "train",
            "uid": "job-uid"
          }
        ]
      },
      "spec": {
        "maximumExecutionTimeSeconds": 60,
        "podSets": [
          {
            "count": 1,
            "name": "main",
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
        ],
        "priority": 100,
        "priorityClassRef": {
          "group": "kueue.x-k8s.io",
          "kind": "WorkloadPriorityClass",
          "name": "high"
        },
        "queueName": "lq"
      }
    }
    "#);
}

#[test]
fn duplicate_variable_keeps_its_last_value() {
    let env = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]);
    let containers = json!([{"name": "c", "env": env}]);
    let job =
        job().with(json!({"spec": {"template": {"spec": {"containers": containers}}}})).build();
    let pod_sets = job_pod_sets(&BatchJob, &job).unwrap();
    let env = &pod_sets[0].template.value()["spec"]["containers"][0]["env"];
    assert_eq!(*env, json!([{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]));
}
