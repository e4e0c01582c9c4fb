//! Elastic jobs: their one or two slices, and that they run on during a change.

use rstest::rstest;
use serde_json::json;
use switchyard_api::v1beta2::{PodSet, ReclaimablePod};
use switchyard_jobs::elastic::mark_slice;

use super::*;

/// Elastic, of its second generation, gated by the webhook.
pub(super) fn elastic() -> TestJob {
    job().with(json!({
        "metadata": {"generation": 2, "annotations": {"kueue.x-k8s.io/elastic-job": "true"}},
        "spec": {
            "completions": 10,
            "template": {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}},
        },
    }))
}

pub(super) trait Grown: Sized {
    fn of_size(self, pods: i32, generation: i64) -> Self;
}

impl Grown for TestJob {
    fn of_size(self, pods: i32, generation: i64) -> Self {
        self.with(json!({"metadata": {"generation": generation}, "spec": {"parallelism": pods}}))
    }
}

/// A slice of the job, created at that second.
pub(super) fn slice(second: i64, job: TestJob, replaced: Option<&TestWorkload>) -> TestWorkload {
    job.workload().edit(|workload| {
        mark_slice(&BatchJob, &job.0, workload, replaced.map(|it| &it.0), &[]);
        workload.metadata.name = Some(format!("slice-{second}"));
        workload.metadata.uid = Some(format!("uid-{second}"));
        workload.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
    })
}

/// Pending, with three pods.
pub(super) fn waiting() -> TestWorkload {
    slice(1, elastic(), None)
}

/// Has quota for three pods.
pub(super) fn first() -> TestWorkload {
    waiting().admitted()
}

/// As created by a replica that does not know elastic jobs.
fn unmarked(workload: TestWorkload) -> TestWorkload {
    workload.edit(|workload| workload.metadata.annotations = None)
}

/// With this many reclaimable pods.
fn reclaimed(workload: TestWorkload, count: i32) -> TestWorkload {
    workload.status(|edit| {
        edit.status.reclaimable_pods = vec![ReclaimablePod { name: "main".into(), count }]
    })
}

/// Its pods were seen ready.
fn ready(workload: TestWorkload) -> TestWorkload {
    workload.status(|edit| {
        edit.set(
            conditions::PODS_READY,
            true,
            "Started",
            "All pods reached readiness and the workload is running",
        );
    })
}

/// The larger slice of five pods.
pub(super) fn second() -> TestWorkload {
    slice(2, elastic().of_size(5, 3), Some(&first()))
}

/// The job running with the first slice.
pub(super) fn runs() -> TestJob {
    elastic().started(&first().0).running()
}

/// The same while it grows and its three pods are ready.
fn grows() -> TestJob {
    runs().of_size(5, 3).with(json!({"status": {"ready": 3}}))
}

#[test]
fn first_slice_is_marked_and_named_by_generation() {
    let world = world(elastic());
    let [Action::CreateWorkload(workload), _] = &world.decide().actions[..] else {
        panic!("one is created")
    };
    let name = workload.metadata.name.clone().unwrap();
    assert_ne!(name, job().workload().0.metadata.name.unwrap());
    insta::assert_json_snapshot!(workload.metadata.annotations, @r#"
    {
      "kueue.x-k8s.io/elastic-job": "true",
      "kueue.x-k8s.io/workload-slice-name": "job-train-863e4"
    }
    "#);
    assert_eq!(name, "job-train-863e4");
}

#[test]
fn without_the_feature_gate_a_job_is_not_elastic() {
    let mut grown = world(runs().of_size(5, 3)).workload(first());
    grown.elastic = false;
    assert!(grown.told().contains("No matching Workload"), "{}", grown.told());
}

#[test]
fn larger_slice_has_original_templates_and_replaces() {
    let world = world(runs().of_size(5, 3)).workload(first());
    let [Action::CreateWorkload(workload), Action::Event { note, .. }] =
        &world.decide().actions[..]
    else {
        panic!("{}", world.told())
    };
    assert_eq!(
        *note,
        format!("Created Workload: ns/{}", workload.metadata.name.as_deref().unwrap())
    );
    assert_eq!(workload.spec.pod_sets[0].count, 5);
    assert_eq!(
        workload.spec.pod_sets[0].template,
        first().0.spec.pod_sets[0].template,
        "without the flavor's labels"
    );
    let annotations = workload.metadata.annotations.clone().unwrap();
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-replacement-for"], "ns/slice-1");
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-name"], "job-train-863e4");
}

const NOTHING: &str = "";
const DROPPED: &str = r#"workload status {"conditions":["Finished=True/OutOfSync: The workload slice is out of sync with its parent job"]}"#;
const REPLACED: &str = r#"workload status {"conditions":["Finished=True/WorkloadSliceReplaced: Replaced to accommodate a new workload slice"]}"#;

fn resized(pods: i32) -> String {
    let mut podset = serde_json::to_value(&first().0.spec.pod_sets).unwrap();
    podset[0]["count"] = json!(pods);
    format!("workload {}", json!({"spec": {"podSets": podset}}))
}

#[rstest]
#[case::unchanged(runs(), vec![ready(first())], NOTHING.into())]
#[case::grows(grows(), vec![ready(first()), second()], NOTHING.into())]
#[case::grows_further(runs().of_size(7, 4), vec![first(), second()], resized(7))]
#[case::grows_less(runs().of_size(4, 4), vec![first(), second()], resized(4))]
#[case::growth_reverted(runs(), vec![first(), second()], DROPPED.into())]
#[case::growth_turns_to_shrink(runs().of_size(2, 4), vec![first(), second()], DROPPED.into())]
#[case::shrinks(runs().of_size(2, 3), vec![first()], resized(2))]
#[case::shrinks_before_the_start(elastic().of_size(2, 3), vec![waiting().reserved()], resized(2))]
#[case::shrinks_to_zero(runs().of_size(0, 3), vec![first()], resized(0))]
#[case::both_have_quota(runs().of_size(5, 3), vec![first(), second().admitted()], REPLACED.into())]
#[case::older_one_finished(runs().of_size(5, 3), vec![first().finished(), second().admitted()], NOTHING.into())]
#[case::newer_one_waits_for_checks(runs().of_size(5, 3), vec![first().finished(), second().reserved()], NOTHING.into())]
#[case::two_pending(
    runs().of_size(5, 3), vec![first(), second(), slice(3, elastic().of_size(5, 4), Some(&first()))], DROPPED.into()
)]
fn slices_follow_the_size_while_the_job_runs(
    #[case] job: TestJob,
    #[case] workloads: Vec<TestWorkload>,
    #[case] want: String,
) {
    let world = workloads.into_iter().fold(world(job), World::workload);
    assert_eq!(world.told(), want);
}

#[test]
fn replaced_slice_is_finished_by_the_admission_first() {
    let just_reserved = second().admitted().edit(|workload| {
        let conditions = &mut workload.status.as_mut().unwrap().conditions;
        conditions.iter_mut().for_each(|it| {
            it.last_transition_time = Time(now() - jiff::SignedDuration::from_secs(1))
        });
    });
    let told = world(runs().of_size(5, 3)).workload(first()).workload(just_reserved).told();
    assert_eq!(told, "again after 2s");
}

#[test]
fn slices_are_found_in_any_order() {
    let world = world(grows()).workload(second()).workload(ready(first()));
    assert_eq!(world.told(), "");
}

#[test]
fn evicted_growing_job_stops_whole() {
    let grown = || runs().of_size(5, 3);
    // The larger slice must not stop the job.
    assert_eq!(world(grown()).workload(first().evicted()).workload(second()).told(), DROPPED);
    let evicted = world(grown()).workload(first().evicted()).told();
    assert!(
        evicted.contains(r#""suspend":true"#) && evicted.contains("Normal Stopped: Preempted"),
        "{evicted}"
    );
    // The slice is not deleted for the job's size while its quota is released.
    let stopped = world(elastic().of_size(5, 3)).workload(first().evicted()).told();
    assert!(stopped.contains("QuotaReserved=False"), "{stopped}");
    let after = world(elastic().of_size(5, 3)).workload(waiting()).told();
    assert!(after.contains("Updated not matching Workload for suspended job"), "{after}");
}

#[test]
fn job_stops_when_the_slice_with_quota_is_deleted() {
    let deleted = world(runs()).workload(first().deleting()).told();
    assert!(
        deleted.contains(r#""suspend":true"#) && deleted.contains("Workload is deleted"),
        "{deleted}"
    );
}

#[test]
fn job_without_quota_stops() {
    let alone = world(runs()).workload(waiting()).told();
    assert!(alone.contains("Not admitted by cluster queue"), "{alone}");
    let replaced = first().edit(|_| ()).status(|edit| {
        edit.finish("WorkloadSliceReplaced", "");
    });
    let none = world(runs()).workload(replaced).told();
    assert!(none.contains("Missing Workload"), "{none}");
}

/// Being stopped, with all its pods gone.
fn stopping(job: TestJob) -> TestJob {
    job.with(json!({
        "metadata": {"annotations": {"kueue.x-k8s.io/stopping": "true"}}, "spec": {"suspend": true}, "status": null,
    }))
}

#[test]
fn job_without_slices_gets_original_templates_back() {
    let over = |workload: TestWorkload| {
        workload.status(|edit| {
            edit.finish("WorkloadSliceReplaced", "");
        })
    };
    let both = |job| world(job).workload(over(first())).workload(over(second())).told();
    let stops = both(runs().of_size(5, 3));
    assert!(
        stops.contains("Missing Workload; restoring pod templates according to the last one"),
        "{stops}"
    );
    let restored = both(stopping(runs().of_size(5, 3)));
    assert!(restored.contains(r#""template":{"metadata":{"annotations":null"#), "{restored}");
    assert!(restored.contains(r#""nodeSelector":null"#), "{restored}");
}

#[test]
fn unmarked_slice_is_marked() {
    let waits = world(elastic()).workload(unmarked(waiting())).told();
    assert_eq!(
        waits,
        r#"workload {"metadata":{"annotations":{"kueue.x-k8s.io/elastic-job":"true","kueue.x-k8s.io/workload-slice-name":"slice-1"}}}"#
    );
    // It was started without the annotation that ungating needs.
    let plain = unmarked(first());
    let stops = world(elastic().started(&plain.0).running()).workload(plain).told();
    assert!(
        stops.contains(r#""suspend":true"#) && stops.contains("its pods would wait for ever"),
        "{stops}"
    );
    let stopped = world(elastic()).workload(unmarked(first())).told();
    assert!(stopped.starts_with("workload {"), "it is started anew only then: {stopped}");
}

#[rstest]
#[case::elastic(elastic(), true, Prebuilt::NotNamed, false)]
#[case::created_as_elastic(elastic(), false, Prebuilt::NotNamed, true)]
#[case::later_prebuilt(
    elastic().label("kueue.x-k8s.io/prebuilt-workload-name", "slice-1"), true, Prebuilt::Found(Arc::new(first().0)), true
)]
fn pods_of_an_inelastic_job_start_without_the_gate(
    #[case] job: TestJob,
    #[case] elastic_jobs: bool,
    #[case] prebuilt: Prebuilt,
    #[case] ungated: bool,
) {
    let mut world = world(job).workload(first());
    (world.elastic, world.prebuilt) = (elastic_jobs, prebuilt);
    let told = world.told();
    assert!(told.contains(r#""suspend":false"#), "{told}");
    assert_eq!(told.contains(r#""schedulingGates":null"#), ungated, "{told}");
}

#[test]
fn stopped_job_does_not_run_with_its_larger_slice() {
    let waits_for_checks = || second().reserved();
    assert_eq!(world(runs().of_size(5, 3)).workload(waits_for_checks()).told(), "");
    let unsuspended = elastic().of_size(5, 3).running();
    let told = world(unsuspended).workload(waits_for_checks()).told();
    assert!(
        told.contains(r#""suspend":true"#) && told.contains("Not admitted by cluster queue"),
        "{told}"
    );
}

#[test]
fn finished_slice_is_recreated_under_another_name() {
    let make = |ended: Option<TestWorkload>| {
        let world = world(runs().of_size(5, 3)).workload(ready(first()));
        let world = ended.into_iter().fold(world, World::workload);
        let [Action::CreateWorkload(workload), _] = &world.decide().actions[..] else {
            panic!("{}", world.told())
        };
        workload.clone()
    };
    let one = make(None);
    let name = one.metadata.name.clone().unwrap();
    let ended = second().named(&name).status(|edit| {
        edit.finish("OutOfSync", "");
    });
    let other = make(Some(ended));
    assert_ne!(other.metadata.name, one.metadata.name);
    assert_eq!(other.metadata.annotations, one.metadata.annotations);
}

#[test]
fn job_with_other_pod_sets_is_stopped_and_requeued() {
    let other = first().edit(|workload| {
        let another = PodSet { name: "other".into(), ..workload.spec.pod_sets[0].clone() };
        workload.spec.pod_sets.push(another);
    });
    let told = world(runs()).workload(other).told();
    assert!(told.contains("No matching Workload"), "{told}");
}

/// The slice of the job while it has no pods.
fn idle() -> TestWorkload {
    slice(1, elastic().of_size(0, 1), None).admitted()
}

#[test]
fn job_that_grows_from_zero_is_requeued() {
    let runs = |pods| elastic().of_size(0, 1).started(&idle().0).of_size(pods, 2);
    assert_eq!(world(runs(0)).workload(ready(idle())).told(), NOTHING, "it has no pods");
    let told = world(runs(3)).workload(idle()).told();
    assert!(told.contains("No matching Workload"), "{told}");
    let stopped = world(elastic().of_size(3, 2)).workload(idle()).told();
    assert!(stopped.contains("delete slice-1"), "{stopped}");
}

#[test]
fn replaced_slice_may_be_deleted_while_the_job_runs() {
    let gone = first().finished().deleting();
    let told = world(runs().of_size(5, 3)).workload(gone).workload(second().admitted()).told();
    assert!(told.contains(r#""finalizers":"#), "{told}");
}

#[test]
fn ended_job_finishes_its_slice() {
    let ended = || runs().of_size(5, 3).condition("Complete");
    assert_eq!(world(ended()).workload(first()).workload(second()).told(), DROPPED);
    let told = world(ended()).workload(first()).told();
    assert!(told.contains("Finished=True/Succeeded"), "{told}");
    let over = world(ended()).workload(first().finished());
    assert_eq!(over.told(), "");
    let failed = first().status(|edit| {
        edit.finish("FailedToStart", "");
    });
    assert_eq!(
        world(elastic()).workload(failed).told(),
        "",
        "one that could not start is not tried again"
    );
}

#[test]
fn changed_priority_updates_both_slices() {
    let job = || runs().of_size(5, 3).label("kueue.x-k8s.io/priority-class", "high");
    let classed = |workload: TestWorkload| {
        workload.edit(|workload| {
            workload.spec.priority_class_ref = serde_json::from_value(
                json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"}),
            )
            .unwrap();
        })
    };
    let told = world(job()).workload(classed(first())).workload(classed(second())).told();
    assert!(told.contains("Updated workload priority class: ns/slice-2"), "{told}");
    let high = |workload: TestWorkload| {
        classed(workload).edit(|workload| {
            if let Some(class) = &mut workload.spec.priority_class_ref {
                class.name = "high".into();
            }
        })
    };
    let told = world(job()).workload(classed(first())).workload(high(second())).told();
    assert!(told.contains("Updated workload priority class: ns/slice-1"), "{told}");
}

#[rstest]
#[case::equal_size(runs(), vec![first()], 8, Some(1))]
#[case::growing(runs().of_size(5, 3), vec![first(), second()], 8, Some(3))]
#[case::growing_further(runs().of_size(5, 3), vec![first(), reclaimed(second(), 3)], 8, Some(1))]
#[case::growing_with_all_needed(
    runs().of_size(5, 3), vec![ready(first()), reclaimed(second(), 2)], 7, None
)]
fn reclaimable_pods_are_counted_by_slice(
    #[case] job: TestJob,
    #[case] workloads: Vec<TestWorkload>,
    #[case] succeeded: i32,
    #[case] want: Option<i32>,
) {
    let job = job.with(json!({"status": {"succeeded": succeeded}}));
    let mut world = workloads.into_iter().fold(world(job), World::workload);
    let told = world.told();
    let reclaims = want.map(|count| {
        format!(r#"workload status {{"reclaimablePods":[{{"count":{count},"name":"main"}}]}}"#)
    });
    assert_eq!(told, reclaims.unwrap_or_default());
    world.reclaims = false;
    assert!(!world.told().contains("reclaimable"), "the gate is off: {}", world.told());
}

#[test]
fn reclaimable_pods_are_recounted_after_a_shrink() {
    let shrunk = || {
        first().edit(|workload| {
            workload.spec.pod_sets[0].count = 1;
            let pods = json!([{"name": "main", "count": 1}]);
            workload.status.as_mut().unwrap().reclaimable_pods =
                serde_json::from_value(pods).unwrap();
        })
    };
    let job = runs().of_size(1, 4).with(json!({"status": {"succeeded": 8}}));
    assert_eq!(world(job).workload(shrunk()).told(), r#"workload status {"reclaimablePods":null}"#);
}

/// A larger slice was admitted with the two needed pods of its five; then the job shrank to three.
#[test]
fn partly_admitted_slice_reclaims_fewer_after_a_shrink() {
    let shrunk = || {
        ready(reclaimed(second().admitted(), 3)).edit(|workload| {
            workload.spec.pod_sets[0].count = 3;
            let admission = workload.status.as_mut().unwrap().admission.as_mut().unwrap();
            admission.pod_set_assignments[0].count = Some(2);
        })
    };
    let told = |succeeded: i32| {
        let job = runs().of_size(3, 4).with(json!({"status": {"succeeded": succeeded}}));
        world(job).workload(first().finished()).workload(shrunk()).told()
    };
    assert_eq!(told(8), r#"workload status {"reclaimablePods":[{"count":1,"name":"main"}]}"#);
    assert_eq!(told(7), "", "it would need more than it was given");
}

#[test]
fn missing_pods_of_a_growing_job_are_not_failures() {
    assert_eq!(world(grows()).workload(ready(first())).workload(second()).told(), "");
}

#[rstest]
#[case::all_ready(2, 1, true)]
#[case::one_unready(2, 0, false)]
fn pods_of_the_current_slice_stay_ready_during_growth(
    #[case] ready: i32,
    #[case] succeeded: i32,
    #[case] want: bool,
) {
    let job =
        || runs().of_size(5, 3).with(json!({"status": {"ready": ready, "succeeded": succeeded}}));
    let told = world(job()).workload(first()).workload(second()).told();
    assert_eq!(told.contains("PodsReady=True"), want, "{told}");
    assert!(want || told.is_empty(), "{told}");
    let lost = world(job()).workload(super::slices::ready(first())).workload(second()).told();
    assert_eq!(lost.contains("PodsReady=False/WaitForRecovery"), !want, "{lost}");
}
