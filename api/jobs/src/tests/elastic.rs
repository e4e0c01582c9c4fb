use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    BuildOptions, JobKind, Priority, apply_merge,
    batch_job::BatchJob,
    build_workload,
    elastic::{
        Size, compare, gate_pods, in_order, is_elastic, is_elastic_elsewhere, is_slice,
        makes_pods_of, mark_first, mark_slice, may_be_elastic, replaces, resized, resizing,
        slice_name, ungate_pods,
    },
    job_pod_sets, kind_for, pod_set_infos, validate_elastic,
};
use switchyard_api::v1beta2::{PodSet, Workload};

fn job(change: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "1234", "generation": 2,
            "annotations": {"kueue.x-k8s.io/elastic-job": "true"}, "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {"parallelism": 3, "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}},
    });
    apply_merge(&mut job, change);
    job
}

#[rstest]
#[case::a_job_that_says_so(json!({}), true)]
#[case::one_that_says_nothing(json!({"metadata": {"annotations": null}}), false)]
#[case::one_that_says_no(json!({"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "false"}}}), false)]
#[case::one_whose_workload_its_user_has_made(json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "wl"}}}), false)]
#[case::a_hubs_copy(json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "wl", "kueue.x-k8s.io/multikueue-origin": "m"}}}), true)]
#[case::one_that_a_hub_sends_elsewhere(json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}), false)]
fn marked_job_of_an_elastic_kind_is_elastic(#[case] change: Value, #[case] elastic: bool) {
    let mut job = job(&change);
    assert_eq!(may_be_elastic(&BatchJob, &job), elastic);
    assert!(!is_elastic(&BatchJob, &job), "its pods would not wait");
    gate_pods(&BatchJob, &mut job);
    assert_eq!(is_elastic(&BatchJob, &job), elastic);
}

#[rstest]
#[case::a_job("batch", "Job", json!({}), true)]
#[case::one_that_says_nothing("batch", "Job", json!({"metadata": {"annotations": null}}), false)]
#[case::a_copy("batch", "Job", json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "wl"}}}), false)]
#[case::a_ray_cluster("ray.io", "RayCluster", json!({}), true)]
#[case::what_makes_one("ray.io", "RayJob", json!({}), false)]
fn marked_job_on_a_worker_may_resize(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] change: Value,
    #[case] elastic: bool,
) {
    assert_eq!(is_elastic_elsewhere(kind_for(group, kind).unwrap(), &job(&change)), elastic);
}

#[rstest]
#[case::it_is_larger(json!({"spec": {"parallelism": 5}}), json!({"parallelism": 5}))]
#[case::it_is_smaller(json!({"spec": {"parallelism": 1}}), json!({"parallelism": 1}))]
#[case::as_many_are_wanted(json!({"spec": {"parallelism": 3, "backoffLimit": 1}}), Value::Null)]
#[case::no_more_than_are_to_complete(json!({"spec": {"parallelism": 9, "completions": 3}}), Value::Null)]
#[case::its_completions_are_as_many(
    json!({
        "metadata": {"annotations": {"kueue.x-k8s.io/job-completions-equal-parallelism": "true"}},
        "spec": {"parallelism": 5, "completions": 5},
    }),
    json!({"parallelism": 5, "completions": 5}),
)]
#[case::it_is_not_elastic(json!({"metadata": {"annotations": null}, "spec": {"parallelism": 5}}), Value::Null)]
fn job_copy_resized_changes_only_counts(#[case] wanted: Value, #[case] patch: Value) {
    let same = wanted
        .pointer("/metadata/annotations/kueue.x-k8s.io~1job-completions-equal-parallelism")
        .is_some();
    let mut there = job(&json!({}));
    if same {
        let synced = json!({"kueue.x-k8s.io/job-completions-equal-parallelism": "true"});
        apply_merge(
            &mut there,
            &json!({"metadata": {"annotations": synced}, "spec": {"completions": 3}}),
        );
    }
    let patch = (!patch.is_null()).then(|| json!({ "spec": patch }));
    assert_eq!(resizing(&BatchJob, &job(&wanted), &there), patch);
}

fn sizes(counts: &[(&str, i32)]) -> Vec<PodSet> {
    counts
        .iter()
        .map(|(name, count)| PodSet { name: (*name).into(), count: *count, ..PodSet::default() })
        .collect()
}

#[rstest]
#[case::the_same(&[("a", 1), ("b", 2)], Size::Same)]
#[case::in_another_order(&[("b", 2), ("a", 1)], Size::Same)]
#[case::one_has_fewer(&[("a", 1), ("b", 1)], Size::Smaller)]
#[case::one_has_more(&[("a", 2), ("b", 2)], Size::Larger)]
#[case::one_has_more_and_another_fewer(&[("a", 0), ("b", 3)], Size::Larger)]
#[case::one_has_fewer_and_a_later_one_more(&[("a", 2), ("b", 1)], Size::Larger)]
#[case::one_more_pod_set(&[("a", 1), ("b", 2), ("c", 1)], Size::Incomparable)]
#[case::another_pod_set(&[("a", 1), ("c", 2)], Size::Incomparable)]
fn sizes_of_jobs(#[case] job: &[(&str, i32)], #[case] want: Size) {
    assert_eq!(compare(&sizes(job), &sizes(&[("a", 1), ("b", 2)])), want);
}

#[test]
fn slice_keeps_templates_and_takes_the_jobs_counts() {
    let running = sizes(&[("a", 5), ("b", 2)]);
    let mut before = sizes(&[("a", 1), ("b", 2)]);
    before[0].template = json!({"spec": {"nodeSelector": {"mine": "x"}}}).into();
    let after = resized(&before, &running);
    assert_eq!((after[0].count, after[1].count), (5, 2));
    assert_eq!(after[0].template, before[0].template);
}

fn slice(job: &Value, replaced: Option<&Workload>) -> Workload {
    let pod_sets = job_pod_sets(&BatchJob, job).unwrap();
    let mut workload =
        build_workload(&BatchJob, job, pod_sets, &Priority::default(), BuildOptions::default());
    mark_slice(&BatchJob, job, &mut workload, replaced, &[]);
    workload
}

#[test]
fn slice_with_a_taken_name_gets_another() {
    let job = job(&json!({}));
    let mut known: Vec<Arc<Workload>> = Vec::new();
    for _ in 0..3 {
        let mut next = slice(&job, None);
        mark_slice(&BatchJob, &job, &mut next, None, &known);
        assert!(known.iter().all(|other| other.metadata.name != next.metadata.name), "{known:?}");
        assert_eq!(Some(slice_name(&next)), next.metadata.name.as_deref());
        known.push(Arc::new(next));
    }
    // printf 'Job\nbatch\ntrain\n1234\n2' | sha1sum
    assert_eq!(
        known[0].metadata.name.as_deref(),
        Some("job-train-f0dbe"),
        "Kueue's name, as long as that is free"
    );
}

#[test]
fn unmarked_workload_becomes_the_first_of_a_chain() {
    let job = job(&json!({}));
    let pod_sets = job_pod_sets(&BatchJob, &job).unwrap();
    let mut workload =
        build_workload(&BatchJob, &job, pod_sets, &Priority::default(), BuildOptions::default());
    assert!(!is_slice(&workload));
    mark_first(&mut workload);
    assert!(is_slice(&workload));
    assert_eq!(Some(slice_name(&workload)), workload.metadata.name.as_deref());
}

#[test]
fn slices_name_first_and_replaced_slice() {
    let first = slice(&job(&json!({})), None);
    let second = slice(&job(&json!({"metadata": {"generation": 3}})), Some(&first));
    let third = slice(&job(&json!({"metadata": {"generation": 4}})), Some(&second));
    // printf 'Job\nbatch\ntrain\n1234\n2' | sha1sum
    assert_eq!(first.metadata.name.as_deref(), Some("job-train-f0dbe"));
    let names = [&first, &second, &third].map(|slice| slice.metadata.name.clone());
    assert!(names[0] != names[1] && names[1] != names[2]);
    assert_eq!([&first, &second, &third].map(slice_name), ["job-train-f0dbe"; 3]);
    assert!(replaces(&second, &first) && replaces(&third, &second) && !replaces(&third, &first));
    insta::assert_json_snapshot!(second.metadata.annotations, @r#"
    {
      "kueue.x-k8s.io/elastic-job": "true",
      "kueue.x-k8s.io/workload-slice-name": "job-train-f0dbe",
      "kueue.x-k8s.io/workload-slice-replacement-for": "ns/job-train-f0dbe"
    }
    "#);
}

#[test]
fn gate_is_added_to_the_template_once() {
    let gates = |job: &Value| {
        job.pointer("/spec/template/spec/schedulingGates").cloned().unwrap_or_default()
    };
    let ours = json!({"name": "kueue.x-k8s.io/elastic-job"});
    for (before, after) in [
        (json!(null), json!([ours])),
        (json!([{"name": "x.io/y"}]), json!([{"name": "x.io/y"}, ours])),
        (json!([ours]), json!([ours])),
    ] {
        let mut job = job(&json!({"spec": {"template": {"spec": {"schedulingGates": before}}}}));
        gate_pods(&BatchJob, &mut job);
        assert_eq!(gates(&job), after);
    }
}

#[test]
fn gate_is_removed_from_the_template_alone() {
    let ours = json!({"name": "kueue.x-k8s.io/elastic-job"});
    for (before, after) in [
        (json!(null), None),
        (json!([ours]), None),
        (json!([{"name": "x.io/y"}, ours]), Some(json!([{"name": "x.io/y"}]))),
        (json!([{"name": "x.io/y"}]), Some(json!([{"name": "x.io/y"}]))),
    ] {
        let mut job = job(&json!({"spec": {"template": {"spec": {"schedulingGates": before}}}}));
        ungate_pods(&BatchJob, &mut job);
        assert_eq!(job.pointer("/spec/template/spec/schedulingGates"), after.as_ref());
    }
}

#[test]
fn pods_bear_the_slice_name_only_while_running() {
    let mut job = job(&json!({}));
    gate_pods(&BatchJob, &mut job);
    let mut workload = slice(&job, None);
    workload.status = serde_json::from_value(json!({
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 3}]},
    }))
    .unwrap();
    let infos = pod_set_infos(&workload, |_| None).unwrap();
    BatchJob.run(&mut job, &infos).unwrap();
    let at = |job: &Value, pointer: &str| {
        job.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
    };
    let name = "/spec/template/metadata/annotations/kueue.x-k8s.io~1workload-slice-name";
    let label = "/spec/template/metadata/labels/switchyard.dev~1elastic-pod";
    assert_eq!(at(&job, name).as_deref(), Some("job-train-f0dbe"));
    assert_eq!(at(&job, label).as_deref(), Some("true"));
    let another = slice(&self::job(&json!({"metadata": {"generation": 9}})), None);
    assert!(makes_pods_of(&BatchJob, &job, &workload) && !makes_pods_of(&BatchJob, &job, &another));
    let mut again = another.clone();
    again.status.clone_from(&workload.status);
    let mut anew = job.clone();
    BatchJob.run(&mut anew, &pod_set_infos(&again, |_| None).unwrap()).unwrap();
    assert!(
        makes_pods_of(&BatchJob, &anew, &another),
        "a start overwrites what an earlier one left"
    );
    BatchJob.restore(&mut job, &workload.spec.pod_sets);
    assert_eq!((at(&job, name), at(&job, label)), (None, None));
    assert!(!makes_pods_of(&BatchJob, &job, &workload));
    assert!(
        job.pointer("/spec/template/spec/schedulingGates/0").is_some(),
        "the gate is the job's own"
    );
}

#[rstest]
#[case::a_new_one("batch", "Job", json!({}), None, "")]
#[case::a_kind_that_cannot_be(
    "jobset.x-k8s.io", "JobSet", json!({}), None,
    r#"metadata.annotations[kueue.x-k8s.io/elastic-job]: Forbidden: elastic job is not supported for "jobset.x-k8s.io/v1alpha2, Kind=JobSet""#
)]
#[case::a_kind_of_ray("ray.io", "RayCluster", json!({}), None, "")]
#[case::one_that_would_take_fewer_pods(
    "batch", "Job", json!({"metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}}}), None,
    r#"metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: "1": partial admission and elastic job cannot be used together"#
)]
#[case::it_grows("batch", "Job", json!({"spec": {"parallelism": 9}}), Some(json!({})), "")]
#[case::it_becomes_elastic(
    "batch", "Job", json!({}), Some(json!({"metadata": {"annotations": null}})),
    "metadata.annotations[kueue.x-k8s.io/elastic-job]: Invalid value: true: field is immutable"
)]
#[case::it_ceases_to_be(
    "batch", "Job", json!({"metadata": {"annotations": null}}), Some(json!({})),
    "metadata.annotations[kueue.x-k8s.io/elastic-job]: Invalid value: false: field is immutable"
)]
fn what_the_webhook_says(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] change: Value,
    #[case] old: Option<Value>,
    #[case] want: &str,
) {
    let kind = kind_for(group, kind).unwrap();
    let errors = validate_elastic(kind, old.map(|old| job(&old)).as_ref(), &job(&change));
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"), want);
}

#[test]
fn workloads_of_one_second_are_in_replacement_order() {
    let of = |name: &str, made: &str, replaces: Option<&str>| {
        let mut annotations = json!({});
        if let Some(before) = replaces {
            annotations["kueue.x-k8s.io/workload-slice-replacement-for"] =
                format!("ns/{before}").into();
        }
        let metadata = json!({
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": made, "annotations": annotations,
        });
        Arc::new(
            serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap(),
        )
    };
    let names = |all: Vec<Arc<Workload>>| {
        in_order(all)
            .iter()
            .map(|it| it.metadata.name.clone().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let (now, later) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    let chain = || vec![of("a", now, Some("b")), of("b", now, Some("c")), of("c", now, None)];
    assert_eq!(names(chain()), "c b a");
    assert_eq!(names(chain().into_iter().rev().collect()), "c b a");
    assert_eq!(
        names(vec![of("a", now, None), of("c", later, None), of("b", later, Some("a"))]),
        "a c b"
    );
    let ring = vec![of("b", now, Some("a")), of("a", now, Some("b"))];
    assert_eq!(names(ring), "a b", "somebody has made it up");
}
