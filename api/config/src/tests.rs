mod gates;

use rstest::rstest;

use super::*;

const HEAD: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

fn with(body: &str) -> Result<Configuration, ConfigError> {
    load(&format!("{HEAD}{body}"))
}

/// Fields without effect, one for each line.
fn ignored_lines(config: &Configuration) -> String {
    config.ignored().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn error_of(body: &str) -> String {
    with(body).unwrap_err().to_string()
}

#[test]
fn empty_file_is_the_default() {
    assert_eq!(with("").unwrap(), Configuration::default());
    assert_eq!(with("").unwrap().ignored(), []);
}

#[test]
fn kueues_shipped_file_is_read() {
    let config = with(
        "
health: {healthProbeBindAddress: :8081}
metrics: {bindAddress: :8443}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
controller:
  groupKindConcurrency:
    Job.batch: 5
    Workload.kueue.x-k8s.io: 10
clientConnection: {qps: 300, burst: 500}
integrations:
  frameworks: [batch/job, ray.io/rayjob, deployment]
waitForPodsReady:
  timeout: 5m
  blockAdmission: true
  requeuingStrategy: {timestamp: Creation, backoffLimitCount: null}
multiKueue:
  dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental
  incrementalDispatcherConfig: {stepSize: 2}
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
",
    )
    .unwrap();
    assert_eq!(config.wait_for_pods_ready.timeout.to_string(), "5m0s");
    assert_eq!(config.wait_for_pods_ready.recovery_timeout().unwrap().to_string(), "5m0s");
    assert_eq!(
        config.wait_for_pods_ready.requeuing_strategy.timestamp,
        RequeuingTimestamp::Creation
    );
    assert_eq!(config.multi_kueue.step_size(), 2);
    insta::assert_snapshot!(ignored_lines(&config));
}

#[test]
fn gos_zero_values_mean_the_default() {
    let election = "leaderElect: true, leaseDuration: 0s, renewDeadline: 0s, retryPeriod: 0s, resourceLock: \"\", \
                    resourceName: \"\", resourceNamespace: \"\"";
    let config = with(&format!(
        "health: {{}}\nmetrics: {{}}\nwebhook: {{}}\nleaderElection: {{{election}}}\n"
    ))
    .unwrap();
    assert_eq!(config.leader_election, Configuration::default().leader_election);
    assert_eq!(config.metrics, Configuration::default().metrics);
}

#[test]
fn defaults_are_kueues() {
    let config = Configuration::default();
    assert_eq!(config.leader_election.lease_duration.to_string(), "15s");
    assert_eq!(config.multi_kueue.gc_interval.to_string(), "1m0s");
    assert_eq!(config.multi_kueue.worker_lost_timeout.to_string(), "15m0s");
    assert_eq!(config.multi_kueue.origin, "multikueue");
    assert_eq!(config.multi_kueue.step_size(), 3);
    assert_eq!(config.wait_for_pods_ready.timeout.to_string(), "30m0s");
    assert_eq!(config.integrations.frameworks, [BATCH_JOB]);
    assert!(config.internal_cert_management.enable && config.metrics.local_queue_metrics.enable);
    // Switchyard's default, not Kueue's.
    assert_eq!(config.multi_kueue.dispatcher_name, switchyard_syntax::names::DISPATCHER_BEST_FIT);
}

#[test]
fn zero_and_empty_mean_the_default_as_in_kueue() {
    let config = with(
        "waitForPodsReady: {timeout: 0s}\nintegrations: {frameworks: []}\nmultiKueue: {origin: \"\"}\n",
    );
    assert_eq!(config.unwrap(), Configuration::default());
    let off =
        with("waitForPodsReady: {recoveryTimeout: 0s}\nmultiKueue: {gcInterval: 0s}\n").unwrap();
    assert_eq!(off.wait_for_pods_ready.recovery_timeout(), None);
    assert_eq!(off.multi_kueue.gc_interval, GoDuration::ZERO);
}

#[test]
fn malformed_field_is_named_with_the_remedy() {
    insta::assert_snapshot!(error_of(
        "
multiKueue: {gcIntervall: 1m, workerLostTimeout: 15, origin: [a]}
waitForPodsReady: {timeout: 5 minutes, requeuingStrategy: {timestamp: eviction}}
webhook: {port: 99999}
leaderElection: yes
integrations: {frameworks: batch/job}
colour: blue
metrics: {customLabels: [{sourceKind: Pod}]}
resources: {transformations: [{input: a, outputs: {b: lots}}]}
clientConnection: {burst: 1.5}
featureGates: {MultiKueue: \"true\"}
managedJobsNamespaceSelector: {matchLabel: {a: b}}
"
    ), @r#"
    clientConnection.burst: is 1.5, must be a whole number
    colour: unknown field, known here are admissionFairSharing, apiVersion, clientConnection, controller, fairSharing, featureGates, health, integrations, internalCertManagement, kind, leaderElection, manageJobsWithoutQueueName, managedJobsNamespaceSelector, metrics, multiKueue, namespace, objectRetentionPolicies, pprofBindAddress, resources, tls, visibilityServer, waitForPodsReady, webhook
    featureGates[MultiKueue]: is "true", must be true or false
    integrations.frameworks: is "batch/job", must be a list
    leaderElection: is true, must be a mapping
    managedJobsNamespaceSelector.matchLabel: unknown field, did you mean matchLabels?
    metrics.customLabels[0].sourceKind: is "Pod", must be one of Cohort, LocalQueue, ClusterQueue, Workload
    metrics.customLabels[0].name: required
    multiKueue.gcIntervall: unknown field, did you mean gcInterval?
    multiKueue.origin: is a list, must be a string
    multiKueue.workerLostTimeout: is 15, must be a duration such as 5m or 1h30m
    resources.transformations[0].outputs[b]: "lots" is not a quantity: write a number such as 500m, 2, 1.5 or 4Gi
    waitForPodsReady.requeuingStrategy.timestamp: is "eviction", must be one of Creation, Eviction, did you mean Eviction?
    waitForPodsReady.timeout: "5 minutes" is no duration: write numbers with units, such as 5m, 1h30m or 500ms
    webhook.port: is 99999, must be from 0 to 65535
    "#);
}

#[test]
fn forbidden_value_is_named_with_the_rule() {
    insta::assert_snapshot!(error_of(
        "
namespace: mine
leaderElection: {leaseDuration: 5s, renewDeadline: 5s, retryPeriod: 0s, resourceLock: endpoints}
waitForPodsReady: {timeout: -1s, recoveryTimeout: -1s, requeuingStrategy: {backoffLimitCount: -1, backoffBaseSeconds: -1, backoffMaxSeconds: -1}}
integrations: {frameworks: [batch/job, batch/job, batch/cronjob], externalFrameworks: [Foo, Foo.v1.example.com, Foo.v1.example.com, Job.v1.batch], labelKeysToCopy: [a b]}
multiKueue:
  gcInterval: -1s
  workerLostTimeout: -1s
  origin: a/b
  incrementalDispatcherConfig: {stepSize: 0}
  externalFrameworks: [{name: foo}, {name: Job.v1.batch}, {name: A.v1.b}, {name: A.v1.b}]
  clusterProfile:
    accessProviders: [{name: a, execConfig: {command: x, apiVersion: v1, interactiveMode: Sometimes, env: [{name: A, value: a}, {value: b}]}}]
    credentialsProviders: [{}]
fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}
admissionFairSharing: {usageHalfLifeTime: -1s, usageSamplingInterval: -1s, resourceWeights: {cpu: -1}}
resources:
  quotaCheckStrategy: IgnoreUndeclared
  excludeResourcePrefixes: [a]
  transformations: [{input: a}, {input: a}]
  deviceClassMappings:
  - {name: a/b/c, deviceClassNames: [], sources: [{}]}
  - {name: memory, deviceClassNames: [gpu, gpu], sources: [{counter: {name: m, driver: d, deviceSelector: {}}}]}
  - {name: slots, deviceClassNames: [gpu, '-'], sources: [{capacity: {name: c, driver: d, deviceSelector: {}}}]}
managedJobsNamespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}
objectRetentionPolicies: {workloads: {afterFinished: -1s, afterDeactivatedByKueue: -1s}}
visibilityServer: {bindAddress: localhost, bindPort: 0}
webhook: {port: 0}
internalCertManagement: {webhookServiceName: a.b, webhookSecretName: A}
tls: {minVersion: VersionTLS13, cipherSuites: [a]}
metrics: {customLabels: [{name: 1a}, {name: b, sourceKind: Workload}, {name: b, sourceLabelKey: a, sourceAnnotationKey: b}, \
                          {name: c_, trackedValues: [a, a]}, {name: d, sourceAnnotationKey: a b}]}
featureGates: {MultiKeue: true, HierarchicalCohorts: false, UnadmittedWorkloadsExplicitStatus: true}
"
    ), @r##"
    leaderElection.resourceLock: Unsupported value: "endpoints": supported values: "leases"
    leaderElection.leaseDuration: Invalid value: "5s": must be greater than renewDeadline
    waitForPodsReady.timeout: Invalid value: "-1s": must be greater than or equal to 0
    waitForPodsReady.recoveryTimeout: Invalid value: "-1s": must be greater than or equal to 0
    waitForPodsReady.requeuingStrategy.backoffLimitCount: Invalid value: -1: must be greater than or equal to 0
    waitForPodsReady.requeuingStrategy.backoffBaseSeconds: Invalid value: -1: must be greater than or equal to 0
    waitForPodsReady.requeuingStrategy.backoffMaxSeconds: Invalid value: -1: must be greater than or equal to 0
    integrations.frameworks[1]: Duplicate value: "batch/job"
    integrations.frameworks[2]: Unsupported value: "batch/cronjob": supported values: "batch/job", "deployment", "jobset.x-k8s.io/jobset", "kubeflow.org/jaxjob", "kubeflow.org/mpijob", "kubeflow.org/paddlejob", "kubeflow.org/pytorchjob", "kubeflow.org/tfjob", "kubeflow.org/xgboostjob", "leaderworkerset.x-k8s.io/leaderworkerset", "pod", "ray.io/raycluster", "ray.io/rayjob", "ray.io/rayservice", "sparkoperator.k8s.io/sparkapplication", "statefulset", "trainer.kubeflow.org/trainjob", "workload.codeflare.dev/appwrapper"
    integrations.externalFrameworks[0]: Invalid value: "Foo": must be format, 'Kind.version.group.com'
    integrations.externalFrameworks[2]: Duplicate value: "Foo.v1.example.com"
    integrations.externalFrameworks[3]: Duplicate value: "Job.v1.batch"
    integrations.labelKeysToCopy[0]: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
    multiKueue.gcInterval: Invalid value: "-1s": must be greater than or equal to 0
    multiKueue.workerLostTimeout: Invalid value: "-1s": must be greater than or equal to 0
    multiKueue.origin: Invalid value: "a/b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
    multiKueue.externalFrameworks[0].name: Invalid value: "foo": must be in 'kind.version.group' format
    multiKueue.externalFrameworks[1].name: Invalid value: "Job.v1.batch": conflicts with a built-in MultiKueue adapter: batch/job is among integrations.frameworks, and is sent
    multiKueue.externalFrameworks[3].name: Duplicate value: "A.v1.b"
    multiKueue.incrementalDispatcherConfig: is only valid with dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental
    multiKueue.incrementalDispatcherConfig.stepSize: Invalid value: 0: must be greater than or equal to 1
    multiKueue.clusterProfile.credentialsProviders: Forbidden: must not be specified when accessProviders is specified
    multiKueue.clusterProfile.accessProviders[0].execConfig.env[1].name: Required value: must be specified
    multiKueue.clusterProfile.accessProviders[0].execConfig.interactiveMode: Unsupported value: "Sometimes": supported values: "Never", "IfAvailable", "Always"
    multiKueue.clusterProfile.credentialsProviders[0].name: Required value: must be specified
    multiKueue.clusterProfile.credentialsProviders[0].execConfig.command: Required value: must be specified
    multiKueue.clusterProfile.credentialsProviders[0].execConfig.apiVersion: Required value: must be specified
    multiKueue.clusterProfile.credentialsProviders[0].execConfig.interactiveMode: Required value: must be specified
    fairSharing.preemptionStrategies: must be [LessThanOrEqualToFinalShare], [LessThanInitialShare] or [LessThanOrEqualToFinalShare, LessThanInitialShare]
    admissionFairSharing.usageHalfLifeTime: Invalid value: "-1s": must be greater than or equal to 0
    admissionFairSharing.usageSamplingInterval: Invalid value: "-1s": must be greater than 0
    admissionFairSharing.resourceWeights[cpu]: Invalid value: -1: must be greater than or equal to 0
    resources.quotaCheckStrategy: Invalid value: "IgnoreUndeclared": excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared
    resources.transformations[1].input: Duplicate value: "a"
    resources.deviceClassMappings[0].name: Invalid value: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
    resources.deviceClassMappings[0].deviceClassNames: Required value: at least one device class name is required
    resources.deviceClassMappings[0].sources[0]: Required value: exactly one source type must be set per entry
    resources.deviceClassMappings[1].deviceClassNames[1]: Duplicate value: "gpu"
    resources.deviceClassMappings[1].sources[0].counter: Forbidden: quota cannot be charged by what devices have or consume; without sources each device is charged as one
    resources.deviceClassMappings[2].deviceClassNames[0]: Invalid value: "gpu": device class already mapped to resource memory
    resources.deviceClassMappings[2].deviceClassNames[1]: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
    resources.deviceClassMappings[2].sources[0].capacity: Forbidden: quota cannot be charged by what devices have or consume; without sources each device is charged as one
    managedJobsNamespaceSelector: should not match the "mine" namespace, exclude it with kubernetes.io/metadata.name NotIn
    objectRetentionPolicies.workloads.afterFinished: Invalid value: "-1s": must be greater than or equal to 0
    objectRetentionPolicies.workloads.afterDeactivatedByKueue: Invalid value: "-1s": must be greater than or equal to 0
    visibilityServer.bindAddress: Invalid value: "localhost": must be a valid IP address
    visibilityServer.bindPort: Invalid value: 0: must be a valid port number (1-65535)
    webhook.port: Invalid value: 0: must be a valid port number (1-65535)
    internalCertManagement.webhookServiceName: Invalid value: "a.b": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
    internalCertManagement.webhookSecretName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
    tls.cipherSuites: Forbidden: may not be specified when `minVersion` is 'VersionTLS13'
    tls.cipherSuites[0]: Unsupported value: "a": supported values: "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
    metrics.customLabels[0].name: Invalid value: "1a": must match ^[a-zA-Z][a-zA-Z0-9_]*$
    metrics.customLabels[1].trackedValues: Required value: must not be empty when sourceKind is 'Workload'
    metrics.customLabels[2].name: Duplicate value: "b"
    metrics.customLabels[2]: sourceLabelKey and sourceAnnotationKey are mutually exclusive
    metrics.customLabels[3].name: Invalid value: "c_": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
    metrics.customLabels[3].trackedValues: must not contain duplicates
    metrics.customLabels[4].sourceAnnotationKey: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
    featureGates.UnadmittedWorkloadsExplicitStatus: requires UnadmittedWorkloadsObservability to be enabled
    featureGates.HierarchicalCohorts: cannot be set to false, it is locked to true
    featureGates.MultiKeue: unknown feature gate, did you mean MultiKueue?
    "##);
}

#[test]
fn unsupported_tls_option_is_rejected_by_name() {
    insta::assert_snapshot!(error_of("tls: {cipherSuites: [TLS_RSA_WITH_AES_128_GCM_SHA256], curvePreferences: [29, 25, 1, 29]}"), @r#"
    tls.cipherSuites[0]: Unsupported value: "TLS_RSA_WITH_AES_128_GCM_SHA256": supported values: "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
    tls.curvePreferences[1]: Invalid value: 25: is CurveP521, which there is none of here; there are 23 (CurveP256), 24 (CurveP384), 29 (X25519), 4587 (SecP256r1MLKEM768), 4588 (X25519MLKEM768)
    tls.curvePreferences[2]: Invalid value: 1: is no curve that is known; there are 23 (CurveP256), 24 (CurveP384), 29 (X25519), 4587 (SecP256r1MLKEM768), 4588 (X25519MLKEM768)
    tls.curvePreferences[3]: Duplicate value: 29
    "#);
    let listed = "tls: {cipherSuites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305], curvePreferences: [4588, 29]}";
    assert!(with(listed).unwrap().tls_options().is_some());
    assert!(
        with(&format!("{listed}\nfeatureGates: {{TLSOptions: false}}"))
            .unwrap()
            .tls_options()
            .is_none()
    );
}

#[rstest]
#[case::nothing_said(None, "kubernetes.io/metadata.name NotIn kube-system mine")]
#[case::ours_is_named(
    Some("{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, mine]}"),
    "kubernetes.io/metadata.name NotIn kube-system mine"
)]
#[case::that_of_kueue_is_named(
    Some(
        "{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}"
    ),
    "kubernetes.io/metadata.name NotIn kube-system kueue-system,kubernetes.io/metadata.name NotIn mine"
)]
#[case::those_with_a_label(Some("{key: managed, operator: Exists}"), "managed Exists ")]
fn own_namespace_is_excluded_from_the_files_selector(
    #[case] rule: Option<&str>,
    #[case] expected: &str,
) {
    let config = rule.map_or_else(
        || Ok(Configuration::default()),
        |rule| with(&format!("managedJobsNamespaceSelector: {{matchExpressions: [{rule}]}}")),
    );
    let selector = config.unwrap().managed_jobs_namespace_selector("mine");
    let shown = selector.match_expressions.into_iter().flatten().map(|rule| {
        format!("{} {} {}", rule.key, rule.operator, rule.values.unwrap_or_default().join(" "))
    });
    assert_eq!(shown.collect::<Vec<_>>().join(","), expected);
}

#[rstest]
#[case::block("quotaCheckStrategy: BlockUndeclared", true, true)]
#[case::ignore("quotaCheckStrategy: IgnoreUndeclared", true, false)]
#[case::without_the_gate("quotaCheckStrategy: IgnoreUndeclared", false, true)]
fn excluded_resource_is_not_undeclared(
    #[case] strategy: &str,
    #[case] gate: bool,
    #[case] may: bool,
) {
    let file = format!(
        "resources: {{{strategy}, excludeResourcePrefixes: [a]}}\nfeatureGates: {{QuotaCheckStrategy: {gate}}}"
    );
    assert_eq!(with(&file).is_ok(), may);
}

#[rstest]
#[case::no_file_at_all(
    "",
    "apiVersion: required, begin the file with apiVersion: config.kueue.x-k8s.io/v1beta2 and kind: Configuration"
)]
#[case::a_list(
    "- a",
    "apiVersion: required, begin the file with apiVersion: config.kueue.x-k8s.io/v1beta2 and kind: Configuration"
)]
#[case::no_version(
    "kind: Configuration",
    "apiVersion: required, must be config.kueue.x-k8s.io/v1beta2"
)]
#[case::an_older_version(
    "apiVersion: config.kueue.x-k8s.io/v1alpha1\nkind: Configuration",
    "apiVersion: is \"config.kueue.x-k8s.io/v1alpha1\", must be config.kueue.x-k8s.io/v1beta2"
)]
#[case::another_kind(
    "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Config",
    "kind: is \"Config\", must be Configuration"
)]
fn file_of_another_kind_is_rejected(#[case] text: &str, #[case] message: &str) {
    assert_eq!(load(text).unwrap_err().to_string(), message);
}

#[test]
fn invalid_yaml_is_rejected() {
    let error = with("multiKueue: {").unwrap_err();
    assert!(matches!(error, ConfigError::Yaml(_)), "{error}");
    let twice = with("webhook: {port: 1}\nwebhook: {port: 2}\n").unwrap_err();
    assert!(matches!(twice, ConfigError::Yaml(_)), "{twice}");
}

#[test]
fn metric_label_has_the_value_of_the_object() {
    let entries = |key: &str, value: &str| Some([(key.to_owned(), value.to_owned())].into());
    let (labels, annotations) = (entries("team", "red"), entries("cost", "9"));
    for (sentence, label, expected) in [
        ("the label of its name", "{name: team}", "red"),
        ("a label of another", "{name: a, sourceLabelKey: team}", "red"),
        ("an annotation", "{name: team, sourceAnnotationKey: cost}", "9"),
        ("an absent key", "{name: cost}", ""),
        ("a tracked value", "{name: team, trackedValues: [blue, red]}", "red"),
        (
            "an untracked value",
            "{name: team, trackedValues: [blue]}",
            "kueue.x-k8s.io/_UNTRACKED_VALUE_",
        ),
        (
            "an absent key with tracked values",
            "{name: cost, trackedValues: [a]}",
            "kueue.x-k8s.io/_UNTRACKED_VALUE_",
        ),
    ] {
        let config = with(&format!(
            "metrics: {{customLabels: [{label}]}}\nfeatureGates: {{CustomMetricLabels: true}}\n"
        ));
        let config = config.unwrap();
        let found = config.custom_labels(SourceKind::ClusterQueue).next().unwrap();
        assert_eq!(found.value(&labels, &annotations), expected, "{sentence}");
    }
}

/// Every field of Kueue's file, each with a value other than its default. See `effect::tests`.
pub(super) const EVERY_FIELD: &str = include_str!("every_field.yaml");

#[test]
fn every_field_works_or_is_reported() {
    insta::assert_snapshot!(ignored_lines(&load(EVERY_FIELD).unwrap()));
}

#[test]
fn own_namespace_is_not_managed() {
    let selector = Configuration::default().managed_jobs_namespace_selector("mine");
    let matches = |name: &str| {
        switchyard_syntax::labels::selector_matches(
            &selector,
            &BTreeMap::from([(NAMESPACE_NAME.to_owned(), name.to_owned())]),
        )
    };
    assert!(matches("default") && !matches("mine") && !matches("kube-system"));
}

#[test]
fn configuration_round_trip_is_lossless() {
    let config = Configuration::default();
    let text = serde_saphyr::to_string(&config).unwrap();
    let back = load(&text).unwrap();
    assert_eq!(Configuration { ignored: Vec::new(), ..back }, config);
}

#[test]
fn fair_sharing_needs_strategies_and_numeric_weights() {
    let required = "fairSharing.preemptionStrategies: Required value: must be specified";
    for body in ["fairSharing: {}", "fairSharing: {preemptionStrategies: []}"] {
        assert!(error_of(body).ends_with(required), "{}", error_of(body));
    }
    assert!(with("fairSharing: null").unwrap().fair_sharing.is_none());
    for weight in [".nan", ".inf", "-.inf", "lots"] {
        let said =
            error_of(&format!("admissionFairSharing: {{resourceWeights: {{cpu: {weight}}}}}"));
        assert!(said.contains("resourceWeights") && said.contains(weight), "{weight}: {said}");
    }
    assert!(with("admissionFairSharing: {resourceWeights: {cpu: 0}}").is_ok());
}

#[test]
fn metric_label_keys_are_copied_to_workloads() {
    let labels = "metrics: {customLabels: [\
        {name: team, sourceKind: Workload, trackedValues: [a]}, \
        {name: cost, sourceKind: Workload, sourceAnnotationKey: example.com/cost, trackedValues: [b]}, \
        {name: of_queue, sourceLabelKey: example.com/queue}]}\nintegrations: {labelKeysToCopy: [kept]}";
    let gate = "featureGates: {CustomMetricLabels: true}";
    let copied = |body: &str| with(body).unwrap().keys_to_copy();
    let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    assert_eq!(copied(labels), (owned(&["kept"]), owned(&[])), "without the gate");
    assert_eq!(
        copied(&format!("{labels}\n{gate}")),
        (owned(&["kept", "team"]), owned(&["example.com/cost"]))
    );
}

#[rstest]
#[case::as_the_name_of_a_mapping(
    "resources: {deviceClassMappings: [{name: pods, deviceClassNames: [gpu]}]}",
    "resources.deviceClassMappings[0].name: Forbidden: counts the pods themselves"
)]
#[case::as_an_output(
    "resources: {transformations: [{input: cpu, outputs: {pods: 1}}]}",
    "resources.transformations[0].outputs[pods]: Forbidden: counts the pods themselves"
)]
fn pods_resource_cannot_be_an_output(#[case] body: &str, #[case] error: &str) {
    let said = error_of(body);
    assert!(said.contains(error), "{said}");
}
