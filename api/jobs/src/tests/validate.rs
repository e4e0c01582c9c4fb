use rstest::rstest;

use super::*;

const SYNC: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PRIORITY: &str = "kueue.x-k8s.io/priority-class";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
const MAX: &str = "kueue.x-k8s.io/max-exec-time-seconds";

fn text(errors: Vec<FieldError>) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[rstest]
#[case::a_plain_job(job(), "")]
#[case::a_queue_name_in_capitals(job().label(QUEUE, "LQ"), r#"metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "LQ": a lowercase RFC 1123 subdomain must consist of"#)]
#[case::an_empty_queue_name(job().label(QUEUE, ""), r#"metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "": a lowercase"#)]
#[case::a_prebuilt_name_that_is_none(job().label(PREBUILT, "w_1"), r#"metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: "w_1": "#)]
#[case::a_prebuilt_annotation_too_long(job().annotation(PREBUILT, &"w".repeat(254)), "metadata.annotations[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: ")]
#[case::a_time_of_zero(job().label(MAX, "0"), "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: 0: should be greater than 0")]
#[case::a_time_in_words(job().label(MAX, "1h"), r#"metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: "1h": strconv.Atoi: parsing "1h": invalid syntax: should be a whole number of seconds"#)]
#[case::a_minimum_in_range(job().pods(3, 3).min_parallelism("2"), "")]
#[case::a_minimum_in_words(job().pods(3, 3).min_parallelism("many"), r#"metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: "many": strconv.Atoi: parsing "many": invalid syntax: should be a whole number"#)]
#[case::a_minimum_as_large_as_the_job(job().pods(3, 3).min_parallelism("3"), "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: 3: should be between 0 and 2")]
#[case::a_minimum_of_zero(job().pods(3, 3).min_parallelism("0"), "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: 0: should be between 0 and 2")]
#[case::a_minimum_beyond_all_numbers(job().min_parallelism("99999999999"), r#"metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: "99999999999": strconv.Atoi: parsing "99999999999": value out of range"#)]
#[case::completions_follow_an_indexed_job(job().pods(3, 3).indexed().annotation(SYNC, "true"), "")]
#[case::completions_cannot_follow_a_nonindexed_job(job().pods(3, 3).annotation(SYNC, "true"), r#"metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]: Invalid value: "true": should not be enabled for NonIndexed jobs"#)]
#[case::completions_that_differ(job().pods(3, 4).indexed().annotation(SYNC, "true"), "spec.completions: Invalid value: 4: should be equal to parallelism when kueue.x-k8s.io/job-completions-equal-parallelism annotation is true")]
#[case::a_switch_in_words(job().annotation(SYNC, "yes"), r#"metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]: Invalid value: "yes": strconv.ParseBool: parsing "yes": invalid syntax: should be true or false"#)]
fn new_jobs(#[case] job: TestJob, #[case] want: &str) {
    let got = text(validate_create(&BatchJob, &job.build()));
    assert!(if want.is_empty() { got.is_empty() } else { got.starts_with(want) }, "{got}");
}

#[rstest]
#[case::nothing_changed(job(), job(), "")]
#[case::another_queue_while_suspended(job(), job().label(QUEUE, "other"), "")]
#[case::another_queue_while_running(job().running(), job().running().label(QUEUE, "other"), r#"metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "other": field is immutable"#)]
#[case::another_queue_at_the_start(job(), job().running().label(QUEUE, "other"), r#"metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "other": field is immutable"#)]
#[case::another_prebuilt_workload_while_suspended(job().label(PREBUILT, "a"), job().label(PREBUILT, "b"), "")]
#[case::another_prebuilt_workload_while_running(job().running().label(PREBUILT, "a"), job().running().label(PREBUILT, "b"), r#"metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: "b": field is immutable"#)]
#[case::another_time_while_suspended(job(), job().label(MAX, "5"), "")]
#[case::another_time_while_running(job().running(), job().running().label(MAX, "5"), r#"metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: "5": field is immutable"#)]
#[case::a_class_exchanged_while_running(job().running().label(PRIORITY, "a"), job().running().label(PRIORITY, "b"), "")]
#[case::a_class_added_while_suspended(job(), job().label(PRIORITY, "a"), "")]
#[case::a_class_added_while_running(job().running(), job().running().label(PRIORITY, "a"), r#"metadata.labels[kueue.x-k8s.io/priority-class]: Invalid value: "a": WorkloadPriorityClass cannot be added to a non-suspended workload"#)]
#[case::a_class_removed(job().label(PRIORITY, "a"), job(), r#"metadata.labels[kueue.x-k8s.io/priority-class]: Invalid value: "": WorkloadPriorityClass cannot be removed from a workload"#)]
#[case::fewer_pods_of_a_partially_admitted_job(job().pods(3, 3).min_parallelism("1").running(), job().pods(2, 3).min_parallelism("1").running(), "spec.parallelism: Forbidden: cannot change when partial admission is enabled and the job is not suspended")]
#[case::the_switch_while_running(job().indexed().running(), job().indexed().running().annotation(SYNC, "true"), "metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]: Forbidden: field is immutable while the job is not suspended")]
fn updates(#[case] old: TestJob, #[case] new: TestJob, #[case] want: &str) {
    assert_eq!(
        text(validate_update(&BatchJob, &old.build(), &new.build(), UpdateContext::default())),
        want
    );
}

#[test]
fn queue_label_cannot_be_removed_with_a_default_queue() {
    let without = job().with(serde_json::json!({"metadata": {"labels": {QUEUE: null}}})).build();
    let errors = validate_update(
        &BatchJob,
        &job().build(),
        &without,
        UpdateContext { default_queue: true, ..UpdateContext::default() },
    );
    insta::assert_snapshot!(text(errors), @r#"metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "": queue-name must not be empty in namespace with default queue"#);
}

#[rstest]
#[case::while_jobs_may_be_elastic(true, job().running().annotation(ELASTIC, "true"), true)]
#[case::while_they_may_not(false, job().running().annotation(ELASTIC, "true"), false)]
#[case::and_it_is_not(true, job().running(), false)]
#[case::and_it_becomes_so(true, job().running().annotation(ELASTIC, "false"), false)]
fn growing_elastic_job_may_change_its_prebuilt_workload(
    #[case] elastic: bool,
    #[case] old: TestJob,
    #[case] may: bool,
) {
    let of = |job: TestJob, name: &str| job.label(PREBUILT, name).build();
    let new = of(job().running().annotation(ELASTIC, "true"), "b");
    let errors = validate_update(
        &BatchJob,
        &of(old, "a"),
        &new,
        UpdateContext { elastic, ..UpdateContext::default() },
    );
    assert_eq!(errors.is_empty(), may, "{errors:?}");
    let bad = of(job().running().annotation(ELASTIC, "true"), "w_1");
    let context = UpdateContext { elastic, ..UpdateContext::default() };
    assert!(
        !validate_update(&BatchJob, &of(job().running(), "a"), &bad, context).is_empty(),
        "its name is looked at"
    );
}
