//! Feature gates, and fields without effect.

use rstest::rstest;

use super::*;

#[rstest]
#[case::all_by_default("", "")]
#[case::what_others_need(
    "TopologyAwareScheduling: false",
    "TASProfileMixed TASHandleOverlappingFlavors TASFailedNodeReplacement TASFailedNodeReplacementFailFast \
     TASReplaceNodeOnPodTermination TASReplaceNodeOnNodeTaints TASMultiLayerTopology \
     TASRecomputeAssignmentWithinSchedulingCycle"
)]
#[case::one_of_two(
    "TASFailedNodeReplacement: false, TASReplaceNodeDueToNotReadyOverFixedTime: true",
    "TASFailedNodeReplacementFailFast TASReplaceNodeOnPodTermination TASReplaceNodeDueToNotReadyOverFixedTime"
)]
fn gates_without_those_that_they_need(#[case] gates: &str, #[case] without: &str) {
    let said = with(&format!("featureGates: {{{gates}}}"))
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    let named = |line: &str| {
        Some(line.strip_prefix("featureGates.")?.split_once(": requires ")?.0.to_owned())
    };
    assert_eq!(said.lines().filter_map(named).collect::<Vec<_>>().join(" "), without, "{said}");
}

#[test]
fn stage_gates_set_all_gates_but_named_ones() {
    let alpha =
        with("featureGates: {AllAlpha: true, PriorityBoost: false, CustomMetricLabels: false}")
            .unwrap();
    assert!(alpha.enabled("ConcurrentAdmission") && alpha.enabled("SparkApplicationIntegration"));
    assert!(
        !alpha.enabled("PriorityBoost") && !alpha.enabled("UnadmittedWorkloadsObservability"),
        "that is Beta"
    );
    assert!(!alpha.enabled("MultiKueueAllowInsecureKubeconfigs"), "nor what is locked");
    let beta = with("featureGates: {AllBeta: false, PartialAdmission: true}").unwrap();
    assert!(
        beta.enabled("PartialAdmission")
            && !beta.enabled("VisibilityOnDemand")
            && beta.enabled("HierarchicalCohorts")
    );
    assert!(!beta.feature_gates.contains_key("AllBeta"));
    let wrong = error_of("featureGates: {AllAlpha: 1, AllGa: true}");
    assert!(wrong.contains("featureGates[AllAlpha]: is 1, must be true or false"), "{wrong}");
    assert!(error_of("featureGates: {AllGa: true}").contains("unknown feature gate"));
}

#[rstest]
#[case::some("PartialAdmission=false,ConcurrentAdmission=T", "", Ok((false, true)))]
#[case::none("", "featureGates: {PartialAdmission: false}", Ok((false, false)))]
#[case::all_of_a_stage(" AllAlpha=true , ", "", Ok((true, true)))]
#[case::in_the_file_too(
    "PartialAdmission=false",
    "featureGates: {}",
    Err("featureGates: may not be set here and by --feature-gates")
)]
#[case::no_value(
    "PartialAdmission",
    "",
    Err("--feature-gates: PartialAdmission: write it as GATE=true or GATE=false")
)]
#[case::another_value(
    "PartialAdmission=on",
    "",
    Err("--feature-gates: PartialAdmission=on: write it as GATE=true or GATE=false")
)]
#[case::unknown("NoGate=true", "", Err("featureGates.NoGate: unknown feature gate"))]
#[case::locked(
    "HierarchicalCohorts=false",
    "",
    Err("featureGates.HierarchicalCohorts: cannot be set to false, it is locked to true")
)]
fn gates_of_the_command_line(
    #[case] flag: &str,
    #[case] body: &str,
    #[case] want: Result<(bool, bool), &str>,
) {
    let got = load_with_gates(&format!("{HEAD}{body}"), flag);
    let got = got
        .map(|config| (config.enabled("PartialAdmission"), config.enabled("ConcurrentAdmission")));
    assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_owned));
    // v1beta1 waits for pods only on request, so its conversion sets a gate that the file does not
    // name.
    let older = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n";
    let older = load_with_gates(older, "PartialAdmission=false").unwrap();
    assert!(!older.enabled("PartialAdmission") && !older.waits_for_pods_ready());
}

#[test]
fn gates_have_the_files_value_or_their_default() {
    let config = with(
        "featureGates: {PartialAdmission: false, ConcurrentAdmission: true, MultiKueueOrchestratedPreemption: true, \
                       MultiKueue: true}",
    )
    .unwrap();
    assert!(!config.enabled("PartialAdmission") && config.enabled("ConcurrentAdmission"));
    assert!(config.enabled("FlavorFungibility") && !config.enabled("NoSuchGate"));
    // The first three switch something. The last has its default value.
    assert_eq!(ignored_lines(&config), "");
    let config =
        with("featureGates: {WorkloadRequestUseMergePatch: true, MultiKueueRemoteSpecSync: false}")
            .unwrap();
    assert_eq!(
        ignored_lines(&config),
        "featureGates.MultiKueueRemoteSpecSync: what this gate switches cannot be switched off here, or is not there\n\
         featureGates.WorkloadRequestUseMergePatch: what this gate switches is not there"
    );
}

#[rstest]
#[case::by_default("", false)]
#[case::for_one_cluster_at_a_time("featureGates: {MultiKueueOrchestratedPreemption: true}", true)]
#[case::for_variants("featureGates: {ConcurrentAdmission: true}", true)]
fn preemption_gates_hold_with_either_feature_gate(#[case] body: &str, #[case] hold: bool) {
    assert_eq!(with(&format!("{body}\n")).unwrap().preemption_gates(), hold);
}

#[test]
fn alpha_integration_needs_its_gate() {
    let listed = "integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}\n";
    let refused = with(listed).unwrap_err().to_string();
    assert!(
        refused.contains("integrations.frameworks[0]")
            && refused.contains("SparkApplicationIntegration"),
        "{refused}"
    );
    let config =
        with(&format!("{listed}featureGates: {{SparkApplicationIntegration: true}}")).unwrap();
    assert!(config.ignored().is_empty(), "{:?}", config.ignored());
}

/// The controller or the hub reads each of these, so none may be reported as ignored.
#[rstest]
#[case::past_use("admissionFairSharing: {usageHalfLifeTime: 1h, resourceWeights: {cpu: 2}}", &[])]
#[case::the_gate_of_past_use("featureGates: {AdmissionFairSharing: false, PriorityBoost: true}", &[])]
#[case::the_gates_of_the_webhook(
    "featureGates: {PriorityBoost: true, ConcurrentAdmission: true, RejectUpdatesToCQWithInvalidOnFlavors: true}",
    &[]
)]
#[case::one_at_a_time("waitForPodsReady: {blockAdmission: true}", &[])]
#[case::labels_of_metrics(
    "metrics: {customLabels: [{name: team, sourceKind: LocalQueue}]}\nfeatureGates: {CustomMetricLabels: true}",
    &[]
)]
#[case::not_waiting("featureGates: {DisableWaitForPodsReady: true}", &[])]
#[case::no_collection("multiKueue: {gcInterval: 0s}", &[])]
#[case::rounds_of_collection("multiKueue: {gcInterval: 2m}", &["multiKueue.gcInterval"])]
fn only_fields_without_effect_are_ignored(#[case] body: &str, #[case] ignored: &[&str]) {
    let config = with(&format!("{body}\n")).unwrap();
    let paths: Vec<&str> = config.ignored().iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ignored);
}
