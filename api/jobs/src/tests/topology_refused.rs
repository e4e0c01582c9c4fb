//! Topology annotations that the webhook rejects.

use rstest::rstest;

use super::by_pods::{deployment, stateful_set};
use super::plain::{changed, object, template};
use super::train_job::train_job;
use super::*;
use crate::pod::Pod;
use crate::validate_topology as validate;
use switchyard_syntax::names;

const ON: TopologyGates = TopologyGates { aware: true, multi_layer: true };

/// The annotations with Kueue's prefix.
fn prefixed(annotations: &Value) -> Value {
    let entries = annotations.as_object().into_iter().flatten();
    entries.map(|(key, value)| (format!("kueue.x-k8s.io/{key}"), value.clone())).collect()
}

/// A Job with four pods whose template has these annotations with Kueue's prefix.
pub(super) fn annotated(annotations: Value) -> Value {
    let annotations = prefixed(&annotations);
    job()
        .pods(4, 4)
        .with(json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}))
        .build()
}

/// The errors, with `@` for the path of the annotations.
fn refused(kind: &dyn JobKind, job: &Value, gates: TopologyGates, at: &str) -> String {
    let errors = validate(kind, job, gates, true);
    let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
    text.join("\n").replace(&format!("{at}.annotations"), "@").replace("kueue.x-k8s.io/", "K/")
}

fn layers(text: &str) -> Value {
    json!({ "podset-slice-required-topology-constraints": text })
}

#[rstest]
#[case::nothing(json!({}), "")]
#[case::one_level(json!({"podset-required-topology": "cloud.provider.com/rack"}), "")]
#[case::two_kinds_of_request(
    json!({"podset-required-topology": "rack", "podset-preferred-topology": "rack"}),
    r#"@: Invalid value: must not contain more than one topology annotation: ["K/podset-required-topology", "K/podset-preferred-topology", "K/podset-unconstrained-topology"]"#
)]
#[case::no_label(
    json!({"podset-preferred-topology": "a/"}),
    r#"@[K/podset-preferred-topology]: Invalid value: "a/": name part must be non-empty"#
)]
#[case::no_label_for_slices(
    json!({"podset-slice-required-topology": "a/", "podset-slice-size": "1"}),
    r#"@[K/podset-slice-required-topology]: Invalid value: "a/": name part must be non-empty"#
)]
#[case::a_group(json!({"podset-required-topology": "rack", "podset-group-name": "1g"}), "@[K/podset-group-name]: Invalid value: \"1g\": can only define groups of exactly 2 pod sets, got: 1 pod set(s)")]
#[case::a_group_that_is_a_number(
    json!({"podset-required-topology": "rack", "podset-group-name": "1"}),
    "@[K/podset-group-name]: Invalid value: \"1\": must not be a number\n@[K/podset-group-name]: Invalid value: \"1\": can only define groups of exactly 2 pod sets, got: 1 pod set(s)"
)]
#[case::a_group_without_a_level(
    json!({"podset-group-name": "g"}),
    "@[K/podset-group-name]: Forbidden: may not be set when neither 'K/podset-preferred-topology' nor 'K/podset-required-topology' is specified"
)]
#[case::a_group_of_slices(
    json!({"podset-group-name": "g", "podset-slice-required-topology": "rack", "podset-slice-size": "2"}),
    "@[K/podset-group-name]: Forbidden: may not be set when 'K/podset-slice-size' is specified\n@[K/podset-group-name]: Forbidden: may not be set when 'K/podset-slice-required-topology' is specified\n@[K/podset-group-name]: Forbidden: may not be set when neither 'K/podset-preferred-topology' nor 'K/podset-required-topology' is specified"
)]
#[case::an_offset(json!({"pod-index-offset": "1"}), "")]
#[case::an_offset_that_is_no_number(
    json!({"pod-index-offset": "-1"}),
    r#"@[K/pod-index-offset]: Invalid value: "-1": must be a whole number of at least 0"#
)]
#[case::an_offset_in_a_group(
    json!({"podset-required-topology": "rack", "podset-group-name": "g", "pod-index-offset": "1"}),
    "@[K/pod-index-offset]: Forbidden: may not be set when 'K/podset-group-name' is specified\n@[K/podset-group-name]: Invalid value: \"g\": can only define groups of exactly 2 pod sets, got: 1 pod set(s)"
)]
#[case::no_switch(json!({"podset-unconstrained-topology": "yes"}), r#"@[K/podset-unconstrained-topology]: Invalid value: "yes": must be a boolean value"#)]
#[case::no_number(
    json!({"podset-slice-required-topology": "rack", "podset-slice-size": "two"}),
    r#"@[K/podset-slice-size]: Invalid value: "two": must be a numeric value"#
)]
#[case::a_slice_of_nothing(
    json!({"podset-slice-required-topology": "rack", "podset-slice-size": "0"}),
    r#"@[K/podset-slice-size]: Invalid value: "0": must be greater than or equal to 1"#
)]
#[case::a_slice_without_size(
    json!({"podset-slice-required-topology": "rack"}),
    "@[K/podset-slice-size]: Required value: must be set when 'K/podset-slice-required-topology' is specified"
)]
#[case::a_size_without_slice(
    json!({"podset-slice-size": "2"}),
    "@[K/podset-slice-size]: Forbidden: may not be set when 'K/podset-slice-required-topology' is not specified"
)]
#[case::a_slice_of_all_pods(json!({"podset-slice-required-topology": "rack", "podset-slice-size": "4"}), "")]
#[case::a_slice_that_does_not_divide_the_pods(json!({"podset-slice-required-topology": "rack", "podset-slice-size": "3"}), "")]
#[case::a_slice_of_more(
    json!({"podset-slice-required-topology": "rack", "podset-slice-size": "5"}),
    r#"@[K/podset-slice-size]: Invalid value: "5": must not be greater than pod set count 4"#
)]
#[case::layers_of_slices(
    layers(r#"[{"topology":"block","size":4},{"topology":"rack","size":2}]"#),
    ""
)]
#[case::a_layer_of_more(
    layers(r#"[{"topology":"block","size":8}]"#),
    "@[K/podset-slice-required-topology-constraints]: Invalid value: 8: must not be greater than pod set count 4"
)]
#[case::layers_beside_a_slice(
    json!({"podset-slice-required-topology-constraints": r#"[{"topology":"block","size":4}]"#, "podset-slice-required-topology": "rack", "podset-slice-size": "2"}),
    "@[K/podset-slice-required-topology-constraints]: Forbidden: may not be set when 'K/podset-slice-required-topology' is specified\n@[K/podset-slice-required-topology-constraints]: Forbidden: may not be set when 'K/podset-slice-size' is specified"
)]
#[case::layers_in_a_group(
    json!({"podset-slice-required-topology-constraints": r#"[{"topology":"block","size":4}]"#, "podset-group-name": "g"}),
    "@[K/podset-group-name]: Forbidden: may not be set when neither 'K/podset-preferred-topology' nor 'K/podset-required-topology' is specified\n@[K/podset-group-name]: Forbidden: may not be set when 'K/podset-slice-required-topology-constraints' is specified"
)]
#[case::no_json(
    layers("x"),
    r#"@[K/podset-slice-required-topology-constraints]: Invalid value: "x": must be a valid JSON array: expected value at line 1 column 1"#
)]
#[case::no_layer(
    layers("[]"),
    r#"@[K/podset-slice-required-topology-constraints]: Invalid value: "[]": topology constraints must contain between 1 and 3 entries"#
)]
#[case::four_layers(
    layers("[{},{},{},{}]"),
    r#"@[K/podset-slice-required-topology-constraints]: Invalid value: "[{},{},{},{}]": topology constraints must contain between 1 and 3 entries"#
)]
#[case::a_layer_without_level_and_size(
    layers("[{}]"),
    "@[K/podset-slice-required-topology-constraints][0].topology: Invalid value: \"\": name part must be non-empty\n@[K/podset-slice-required-topology-constraints][0].size: Invalid value: 0: must be greater than or equal to 1"
)]
#[case::a_level_twice(
    layers(r#"[{"topology":"rack","size":4},{"topology":"rack","size":2}]"#),
    r#"@[K/podset-slice-required-topology-constraints][1].topology: Duplicate value: "rack (also at index 0)""#
)]
#[case::a_layer_that_does_not_divide_the_one_above(
    layers(r#"[{"topology":"block","size":4},{"topology":"rack","size":3}]"#),
    "@[K/podset-slice-required-topology-constraints][1].size: Invalid value: 3: must evenly divide the parent layer size 4"
)]
fn annotations_of_a_template(#[case] annotations: Value, #[case] want: &str) {
    assert_eq!(refused(&BatchJob, &annotated(annotations), ON, "spec.template.metadata"), want);
}

#[test]
fn gates_decide_what_is_checked() {
    let bad = json!({"podset-slice-required-topology-constraints": "x", "podset-unconstrained-topology": "yes"});
    let of = |aware, multi_layer| {
        refused(
            &BatchJob,
            &annotated(bad.clone()),
            TopologyGates { aware, multi_layer },
            "spec.template.metadata",
        )
    };
    assert_eq!(of(false, true), "");
    assert_eq!(
        of(true, false),
        "@[K/podset-unconstrained-topology]: Invalid value: \"yes\": must be a boolean value\n\
         @[K/podset-slice-required-topology-constraints]: Forbidden: the TASMultiLayerTopology feature gate must be \
         enabled to use this annotation"
    );
}

#[rstest]
#[case::a_level_is_required(
    "podset-required-topology",
    "rack",
    "@[K/podset-required-topology]: Forbidden: required topology is not supported with elastic jobs"
)]
#[case::a_level_is_preferred(
    "podset-preferred-topology",
    "rack",
    "@[K/podset-preferred-topology]: Forbidden: preferred topology is not supported with elastic jobs"
)]
#[case::capacity_alone("podset-unconstrained-topology", "true", "")]
fn elastic_job(#[case] key: &str, #[case] value: &str, #[case] want: &str) {
    let plain = annotated(json!({ key: value }));
    let elastic =
        changed(&plain, json!({"metadata": {"annotations": {names::ELASTIC_JOB: "true"}}}));
    assert_eq!(refused(&BatchJob, &elastic, ON, "spec.template.metadata"), want);
    assert!(validate(&BatchJob, &elastic, ON, false).is_empty(), "where no job is elastic");
    assert_eq!(refused(&BatchJob, &plain, ON, "spec.template.metadata"), "");
}

/// A JobSet with a replicated job for each number of Jobs and annotations with Kueue's prefix.
fn job_set(parts: &[(i32, Value)]) -> (&'static dyn JobKind, Value) {
    let part = |(index, (replicas, annotations)): (usize, &(i32, Value))| {
        let template =
            changed(&template("c"), json!({"metadata": {"annotations": prefixed(annotations)}}));
        json!({"name": format!("j{index}"), "replicas": replicas, "template": {"spec": {"template": template}}})
    };
    let jobs: Vec<Value> = parts.iter().enumerate().map(part).collect();
    object("jobset.x-k8s.io", "JobSet", json!({ "replicatedJobs": jobs }))
}

fn in_group(key: &str, level: &str) -> Value {
    json!({key: level, "podset-group-name": "g"})
}

fn required(level: &str) -> Value {
    in_group("podset-required-topology", level)
}

const FIRST: &str = "J[0].template.spec.template.metadata.annotations";
const SECOND: &str = "J[1].template.spec.template.metadata.annotations";

#[rstest]
#[case::two_of_one_level(&[(1, required("rack")), (4, required("rack"))], "")]
#[case::one(
    &[(1, required("rack")), (4, json!({}))],
    "A[K/podset-group-name]: Invalid value: \"g\": can only define groups of exactly 2 pod sets, got: 1 pod set(s)"
)]
#[case::two_with_several_pods(
    &[(2, required("rack")), (4, required("rack"))],
    "A[K/podset-group-name]: Invalid value: \"g\": can only define groups where at least one pod set has only 1 replica, got: 2 replica(s) and 4 replica(s) in the group\n\
     B[K/podset-group-name]: Invalid value: \"g\": can only define groups where at least one pod set has only 1 replica, got: 2 replica(s) and 4 replica(s) in the group"
)]
#[case::two_levels(
    &[(1, required("rack")), (4, in_group("podset-preferred-topology", "rack"))],
    "A: Invalid value: must specify 'K/podset-required-topology' or 'K/podset-preferred-topology' topology consistent with 'B' in group 'g'\n\
     B: Invalid value: must specify 'K/podset-required-topology' or 'K/podset-preferred-topology' topology consistent with 'A' in group 'g'"
)]
fn groups_of_pod_sets(#[case] parts: &[(i32, Value)], #[case] want: &str) {
    let (kind, job) = job_set(parts);
    let text = refused(kind, &job, ON, "-").replace("spec.replicatedJobs", "J");
    assert_eq!(text.replace(FIRST, "A").replace(SECOND, "B"), want);
}

#[test]
fn three_pod_sets_are_no_group() {
    let (kind, job) =
        job_set(&[(1, required("rack")), (1, required("rack")), (1, required("rack"))]);
    let text = refused(kind, &job, ON, "-");
    assert_eq!(
        text.matches("can only define groups of exactly 2 pod sets, got: 3 pod set(s)").count(),
        3,
        "{text}"
    );
}

fn slice_of(size: &str) -> Value {
    prefixed(&json!({"podset-slice-required-topology": "rack", "podset-slice-size": size}))
}

#[test]
fn replicated_jobs_pods_bound_its_slices() {
    let annotations = json!({"podset-slice-required-topology": "rack", "podset-slice-size": "3"});
    let (kind, job) = job_set(&[(2, annotations)]);
    let at = "spec.replicatedJobs[0].template.spec.template.metadata";
    assert_eq!(
        refused(kind, &job, ON, at),
        r#"@[K/podset-slice-size]: Invalid value: "3": must not be greater than pod set count 2"#
    );
}

#[test]
fn slices_of_a_served_group_are_bounded_by_its_replicas() {
    let of = |(kind, object): (&dyn JobKind, Value), replicas: i32| {
        let template = json!({"metadata": {"annotations": slice_of("4")}});
        let object =
            changed(&object, json!({"spec": {"replicas": replicas, "template": template}}));
        refused(kind, &object, ON, "spec.template.metadata")
    };
    let too_large =
        r#"@[K/podset-slice-size]: Invalid value: "4": must not be greater than pod set count 3"#;
    assert_eq!(of(stateful_set(), 3), too_large);
    assert_eq!((of(stateful_set(), 0), of(deployment(), 3)), (String::new(), String::new()));
    let bad = changed(
        &deployment().1,
        json!({"spec": {"template": {"metadata": {"annotations": {names::POD_SET_UNCONSTRAINED_TOPOLOGY: "yes"}}}}}),
    );
    assert!(refused(deployment().0, &bad, ON, "spec.template.metadata").starts_with('@'));
}

#[test]
fn pod_topology_is_checked_by_its_own_annotations() {
    let pod = json!({"metadata": {"annotations": slice_of("x")}, "spec": {}});
    let want = r#"@[K/podset-slice-size]: Invalid value: "x": must be a numeric value"#;
    assert_eq!(refused(&Pod, &pod, ON, "metadata"), want);
}

#[test]
fn train_job_topology_error_names_the_runtime() {
    let (kind, mut job) = train_job();
    let annotations =
        "/switchyard.dev~1jobSet/replicatedJobs/1/template/spec/template/metadata/annotations";
    let metadata = job.pointer_mut(annotations.rsplit_once('/').unwrap().0).unwrap();
    metadata["annotations"] = slice_of("x");
    assert_eq!(
        refused(kind, &job, ON, "job[node]"),
        "@[K/podset-slice-size]: Invalid value: \"x\": must be a numeric value. Adjust either the \
         \"TrainJob.spec.runtimePatches\" or the \"TrainingRuntime.Template\" annotations for the corresponding Job"
    );
}
