//! The Helm chart, installed, upgraded and removed by Helm itself on a real API server.

mod applied;
mod images;
mod installer;
mod removed;
mod rights;
mod values;

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::common::helm::{Helm, chart};
use anyhow::ensure;
use applied::try_kubectl;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, Part, Parts, fixture, paths};

/// Not the namespace that deploy/rbac names: the chart puts its own there.
const NAMESPACE: &str = "jobs-system";
const DIGEST: &str =
    "--set=agent.hubCaSha256=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const HUB: [&str; 2] = ["--set=mode=hub", "--set=hub.advertise=https://hub.example:7443"];
const AGENT: [&str; 5] = [
    "--set=mode=agent",
    "--set=agent.hub=https://hub.example:7443",
    DIGEST,
    "--set=agent.token=east.0123.secret",
    "--set=agent.allowNamespaces={team-a,team-b}",
];

/// The namespaces of [`AGENT`], which have to be there for its roles to be bound in them.
async fn allowed_namespaces(cluster: &Cluster) {
    let named = |name: &str| serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    cluster.apply(["team-a", "team-b"].map(named)).await.unwrap();
}

/// Where an agent may create jobs: everywhere, or in the namespaces that the hub may use.
async fn may_create_jobs_in(cluster: &Cluster) -> Vec<String> {
    let everywhere: Api<ClusterRoleBinding> = Api::all(cluster.admin.clone());
    let everywhere =
        everywhere.get_opt("switchyard-agent").await.unwrap().map(|_| "everywhere".to_owned());
    let bindings: Api<RoleBinding> = Api::all(cluster.admin.clone());
    let all = bindings.list(&ListParams::default()).await.unwrap().items;
    let jobs = all
        .into_iter()
        .filter(|it| it.role_ref.kind == "ClusterRole" && it.role_ref.name == "switchyard-agent");
    everywhere.into_iter().chain(jobs.filter_map(|it| it.metadata.namespace)).collect()
}

/// The only container of a mode's only Deployment.
async fn container(cluster: &Cluster, name: &str) -> (Deployment, Container) {
    let deployments: Api<Deployment> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let deployment = deployments.get(name).await.unwrap();
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.clone()).unwrap();
    let account = pod.service_account_name.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    accounts.get(&account).await.unwrap();
    (deployment, pod.containers.into_iter().next().unwrap())
}

/// The flags are those of the program: it answers `--version` after all of them.
fn accepted_by(program: &str, container: &Container) {
    let args = container.args.clone().unwrap();
    let mut command = Command::new(paths::binary(program).unwrap());
    let output = command.args(&args).arg("--version").output().unwrap();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn config(cluster: &Cluster, name: &str) -> switchyard_config::Configuration {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let map = maps.get(&format!("{name}-config")).await.unwrap();
    let text = &map.data.unwrap()["controller_manager_config.yaml"];
    let config = switchyard_config::load(text).unwrap();
    assert!(config.ignored().is_empty(), "{:?}", config.ignored());
    config
}

#[test]
fn the_chart_installs_upgrades_and_goes_in_each_mode() {
    fixture::run(async {
        let environment =
            Environment::builder("chart").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let helm = Helm::new(Some(cluster), NAMESPACE);
        let chart = chart();
        cluster.apply([cluster_role(KUEUES)]).await.unwrap();
        allowed_namespaces(cluster).await;
        for (name, program, values, lease) in [
            ("switchyard", "switchyard-hub", &[][..], "15s"),
            ("switchyard-hub", "switchyard-hub", &HUB, "3s"),
            ("switchyard-agent", "switchyard-agent", &AGENT, "15s"),
        ] {
            helm.ok(&[&["lint", "--strict", &chart], values].concat());
            let told =
                helm.ok(&[&["install", "ours", &chart, "--create-namespace"], values].concat());
            assert!(
                told.contains(&format!("runs in {NAMESPACE}"))
                    || told.contains("are queued from now on"),
                "{told}"
            );
            let (deployment, first) = container(cluster, name).await;
            accepted_by(program, &first);
            assert_eq!(converted(cluster).await, format!("{NAMESPACE}/{name}-webhook"));
            reached_before_ready(cluster, name, &first).await;
            assert_eq!(
                release_of(cluster, KUEUES).await,
                None,
                "what Kueue has made is left to it"
            );
            assert_eq!(release_of(cluster, "kueue-job-editor-role").await.as_deref(), Some("ours"));
            assert_eq!(deployment.spec.as_ref().and_then(|spec| spec.replicas), Some(2));
            assert_eq!(
                config(cluster, name).await.leader_election.lease_duration.to_string(),
                lease
            );

            let changed = [
                "--reset-then-reuse-values",
                "--set=controllerManager.replicas=1",
                "--set=controllerManager.featureGates[0].name=LocalQueueMetrics",
            ];
            let changed = [
                &["upgrade", "ours", &chart][..],
                &changed,
                &["--set=controllerManager.featureGates[0].enabled=true"],
            ];
            helm.ok(&changed.concat());
            let (after, _) = container(cluster, name).await;
            assert_eq!(after.spec.as_ref().and_then(|spec| spec.replicas), Some(1));
            assert_ne!(
                template_annotations(&deployment),
                template_annotations(&after),
                "new configuration, new pods"
            );
            assert!(config(cluster, name).await.feature_gates["LocalQueueMetrics"]);
            let budgets: Api<PodDisruptionBudget> =
                Api::namespaced(cluster.admin.clone(), NAMESPACE);
            assert!(
                budgets.list(&ListParams::default()).await.unwrap().items.is_empty(),
                "one replica has no budget"
            );

            helm.ok(&["uninstall", "ours"]);
            let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
            assert_eq!(
                crds.list(&ListParams::default()).await.unwrap().items.len(),
                11,
                "CRDs outlive a release"
            );
        }
    });
}

#[test]
fn what_cert_manager_is_asked_for_is_of_its_api() {
    fixture::run(async {
        let environment =
            Environment::builder("issued").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let find = || {
            Parts::new()
                .unwrap()
                .source_dir(Part::KueueRunner, "github.com/cert-manager/cert-manager")
        };
        let source = tokio::task::spawn_blocking(find).await.unwrap().unwrap();
        for name in ["issuers", "certificates"] {
            let path = source.join(format!("deploy/crds/cert-manager.io_{name}.yaml"));
            cluster.apply_yaml(&fs::read_to_string(path).unwrap()).await.unwrap();
        }
        // Helm knows kinds by the same discovery, which lists a new one a moment later.
        eventually(Duration::from_secs(60), "both kinds to be listed", async || {
            let group = "--api-group=cert-manager.io";
            let listed = try_kubectl(cluster, &["api-resources", group, "--output=name"])?;
            for kind in ["issuers", "certificates"] {
                ensure!(listed.contains(&format!("{kind}.cert-manager.io")), "{listed}");
            }
            Ok(())
        })
        .await
        .unwrap();
        allowed_namespaces(cluster).await;
        let helm = Helm::new(Some(cluster), NAMESPACE);
        // Its authority's, the webhooks' and, except for an agent, those of the metrics and the visibility API.
        for (values, certificates) in [(&[][..], 4), (&HUB, 4), (&AGENT, 2)] {
            let asked = ["--set=enableCertManager=true", "--set=visibility.enabled=true"];
            let install = ["install", "ours", &chart(), "--create-namespace"];
            helm.ok(&[&install, &asked[..], values].concat());
            for (kind, count) in [("Issuer", 2), ("Certificate", certificates)] {
                let made = cluster.dynamic("cert-manager.io/v1", kind, NAMESPACE).await.unwrap();
                assert_eq!(
                    made.list(&ListParams::default()).await.unwrap().items.len(),
                    count,
                    "{kind}, {values:?}"
                );
            }
            helm.ok(&["uninstall", "ours"]);
        }
    });
}

/// The Service that converts Workloads, whose older version is served.
async fn converted(cluster: &Cluster) -> String {
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    let spec = crds.get("workloads.kueue.x-k8s.io").await.unwrap().spec;
    assert!(spec.versions.iter().all(|version| version.served));
    let client = spec
        .conversion
        .and_then(|conversion| conversion.webhook)
        .and_then(|it| it.client_config)
        .unwrap();
    let service = client.service.unwrap();
    assert_eq!(service.path.as_deref(), Some("/convert"));
    format!("{}/{}", service.namespace, service.name)
}

/// The Service of conversions leads to the same pods as that of the webhooks, ready or not.
async fn reached_before_ready(cluster: &Cluster, name: &str, container: &Container) {
    let (early, ready) = (format!("{name}-conversion"), format!("{name}-webhook"));
    let args = container.args.as_deref().unwrap_or_default();
    assert!(args.contains(&format!("--conversion-service={early}")), "{args:?}");
    let services: Api<Service> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let of = async |name: &str| services.get(name).await.unwrap().spec.unwrap();
    let (early, ready) = (of(&early).await, of(&ready).await);
    assert_eq!(
        (early.publish_not_ready_addresses, ready.publish_not_ready_addresses),
        (Some(true), None)
    );
    assert_eq!(early.selector, ready.selector);
}

/// A role that Kueue has made.
const KUEUES: &str = "kueue-batch-admin-role";

fn cluster_role(name: &str) -> serde_json::Value {
    serde_json::json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}})
}

/// The release that a role belongs to.
async fn release_of(cluster: &Cluster, role: &str) -> Option<String> {
    let roles: Api<ClusterRole> = Api::all(cluster.admin.clone());
    let annotations = roles.get(role).await.unwrap().metadata.annotations;
    annotations.and_then(|all| all.get("meta.helm.sh/release-name").cloned())
}

fn template_annotations(
    deployment: &Deployment,
) -> Option<&std::collections::BTreeMap<String, String>> {
    deployment.spec.as_ref()?.template.metadata.as_ref()?.annotations.as_ref()
}

#[test]
fn without_an_election_there_is_one_replica_and_no_overlap() {
    let (helm, chart) = (Helm::new(None, NAMESPACE), chart());
    let wanted = [
        "--set=controllerManager.replicas=3",
        "--set=controllerManager.strategy.type=RollingUpdate",
    ];
    let (one, several) = (
        ["replicas: 1\n", "strategy: {type: Recreate, rollingUpdate: null}"],
        ["replicas: 3\n", "type: RollingUpdate"],
    );
    let said = |what: bool| {
        format!(
            "--set=managerConfig.controllerManagerConfigYaml=leaderElection: {{leaderElect: {what}}}"
        )
    };
    for values in [&["--set=mode=single"][..], &HUB, &AGENT] {
        let rendered = |election: &str| {
            helm.ok(&[&["template", &chart, election], &wanted[..], values].concat())
        };
        for (election, there, missing) in [(false, one, several), (true, several, one)] {
            let text = rendered(&said(election));
            assert!(there.iter().all(|it| text.contains(it)), "{values:?}, {election}: {there:?}");
            assert!(
                !missing.iter().any(|it| text.contains(it)),
                "{values:?}, {election}: {missing:?}"
            );
            assert_eq!(text.contains("kind: PodDisruptionBudget"), election, "{values:?}");
        }
    }
    let notes = |election: &str| {
        helm.ok(&[&["install", "x", &chart, "--dry-run=client", election], &wanted[..]].concat())
    };
    let told = "for\ncontrollerManager.replicas and controllerManager.strategy to count";
    assert!(notes(&said(false)).contains(told) && !notes(&said(true)).contains(told));
}

#[test]
fn the_ports_of_services_are_those_of_the_values() {
    let (helm, chart) = (Helm::new(None, NAMESPACE), chart());
    let ports =
        ["--set=webhookService.ports[0].port=8444", "--set=metricsService.ports[0].port=9443"];
    let node = "--set=metricsService.ports[0].nodePort=30001";
    let text = helm.ok(&[&["template", &chart, node], &ports[..]].concat());
    for it in [
        "{name: webhooks, port: 8444, targetPort: webhooks}",
        "--webhook-service=switchyard-webhook:8444",
        "          port: 8444\n",
        "{name: https, port: 9443, nodePort: 30001, targetPort: metrics}",
    ] {
        assert!(text.contains(it), "no {it} in\n{text}");
    }
    let two = "--set=metricsService.ports[1].port=1";
    let notes = helm.ok(&[&["install", "x", &chart, "--dry-run=client", two], &ports[..]].concat());
    assert!(notes.contains("without effect here: metricsService.ports but the first."));
}

#[test]
fn network_policy_opens_what_a_mode_serves() {
    let (helm, chart) = (Helm::new(None, NAMESPACE), chart());
    let policy = |values: &[&str]| {
        let text =
            helm.ok(&[&["template", &chart, "--show-only=templates/networkpolicy.yaml"], values]
                .concat());
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- ports: [{protocol: TCP, port: "));
        lines.map(|port| port.trim_end_matches("}]").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(policy(&[]), ["webhooks", "health", "metrics"]);
    assert_eq!(policy(&HUB), ["webhooks", "health", "metrics", "agents"]);
    assert_eq!(policy(&AGENT), ["webhooks", "health"]);
    assert_eq!(policy(&["--set=visibility.enabled=true"]).last().map(String::as_str), Some("8082"));
    let from = "--set=networkPolicy.webhooks[0].ipBlock.cidr=192.0.2.0/24";
    assert!(
        helm.ok(&["template", &chart, from])
            .contains("    from:\n      - ipBlock:\n          cidr: 192.0.2.0/24\n")
    );
    assert!(
        !helm
            .ok(&["template", &chart, "--set=networkPolicy.enabled=false"])
            .contains("kind: NetworkPolicy")
    );
}

#[test]
fn what_monitors_is_asked_for() {
    let helm = Helm::new(None, NAMESPACE);
    let rendered = |values: &[&str]| helm.ok(&[&["template", &chart()], values].concat());
    let alerts = fs::read_to_string(paths::root().join("deploy/monitoring/rules.yaml")).unwrap();
    let summary = alerts
        .lines()
        .find_map(|line| line.split_once("summary: '{{").map(|(_, rest)| rest))
        .unwrap();
    let (monitor, rule, dashboard) =
        ("kind: ServiceMonitor", "kind: PrometheusRule", "grafana_dashboard: \"1\"");
    let resources = "enableClusterQueueResources: true";

    let without = rendered(&[]);
    let finds = "name: switchyard-prometheus-k8s";
    assert!([monitor, rule, dashboard, resources, finds].iter().all(|it| !without.contains(it)));
    let with = rendered(&["--set=enablePrometheus=true"]);
    for it in [
        monitor,
        rule,
        dashboard,
        resources,
        finds,
        "namespace: monitoring",
        "honorLabels: true",
        summary.trim_end_matches('\''),
        "${datasource}",
    ] {
        assert!(with.contains(it), "no {it} in\n{with}");
    }
    let off =
        ["--set=metrics.prometheusRule.enabled=false", "--set=metrics.dashboard.enabled=false"];
    let part = rendered(&[&["--set=enablePrometheus=true"][..], &off].concat());
    assert!(part.contains(monitor) && !part.contains(rule) && !part.contains(dashboard));
    let own = "--set=managerConfig.controllerManagerConfigYaml=metrics: {enableClusterQueueResources: false}";
    assert!(
        !rendered(&["--set=enablePrometheus=true", own]).contains(resources),
        "what the configuration says counts"
    );
}

#[test]
fn metrics_are_served_to_authorized_readers_as_in_kueue() {
    let helm = Helm::new(None, NAMESPACE);
    let rendered = |values: &[&str]| {
        helm.ok(&[&["template", &chart(), "--set=enablePrometheus=true"], values].concat())
    };
    let guarded = [
        "--metrics-listen=config",
        "{name: https, port: 8443, targetPort: metrics}",
        "scheme: https",
        "bearerTokenFile",
    ];
    for values in [&[][..], &HUB] {
        let with = rendered(values);
        assert!(
            guarded.iter().all(|it| with.contains(it)) && with.contains("insecureSkipVerify: true"),
            "{with}"
        );
        assert!(with.contains("name: kueue-metrics-reader"), "who reads them is bound to it");
    }
    let off = "--set=managerConfig.controllerManagerConfigYaml=metrics: {bindAddress: \"0\"}";
    for values in [&AGENT[..], &[off]] {
        let without = rendered(values);
        assert!(guarded.iter().all(|it| !without.contains(it)), "{without}");
        assert!(without.contains("{name: metrics, port: 8081, targetPort: health}"));
    }
}

#[test]
fn the_values_of_kueues_chart_are_taken() {
    let helm = Helm::new(None, NAMESPACE);
    let values =
        Parts::new().unwrap().own_source_dir(Part::Kueue).unwrap().join("charts/kueue/values.yaml");
    let values = format!("--values={}", values.display());
    // A chart around this one may switch it by `enabled`.
    let more = "--set=enablePrometheus=true,enabled=true";
    let rendered = helm.ok(&["template", &chart(), &values, more]);
    assert!(rendered.contains("leaderworkerset.x-k8s.io/leaderworkerset"), "with its frameworks");
    assert!(
        rendered.contains("image: switchyard-hub:") && !rendered.contains("kueue/kueue:"),
        "and without its image"
    );
    let issuer = "--set=enableCertManager=true,certManager.issuerRef.name=mine,certManager.issuerRef.kind=ClusterIssuer";
    let issued = helm.ok(&[
        "template",
        &chart(),
        &values,
        issuer,
        "--set=kubernetesClusterDomain=corp.example",
    ]);
    assert!(
        issued.contains("name: mine") && !issued.contains("kind: Issuer\n"),
        "no authority of ours:\n{issued}"
    );
    assert!(issued.contains("svc.corp.example") && !issued.contains("cluster.local"));
}

#[test]
fn cert_manager_makes_the_certificate_where_it_is_asked_to() {
    let (helm, chart) = (Helm::new(None, NAMESPACE), chart());
    let template =
        |values: &[&str]| helm.ok(&[&["template", &chart, "--namespace=ns"], values].concat());
    let flag = "--external-webhook-certificates";
    assert!(!template(&[]).contains("cert-manager.io") && !template(&[]).contains(flag));
    for (values, name) in [
        (&["--set=mode=single"][..], "switchyard"),
        (&HUB, "switchyard-hub"),
        (&AGENT, "switchyard-agent"),
    ] {
        let with = template(&[values, &["--set=enableCertManager=true"]].concat());
        for part in [
            flag,
            "secretName: switchyard-webhook-cert",
            &format!("- {name}-webhook.ns.svc\n"),
            &format!("- {name}-conversion.ns.svc\n"),
        ] {
            assert!(with.contains(part), "no {part} in\n{with}");
        }
    }
}

#[test]
fn metrics_and_visibility_use_cert_managers_certificates() {
    let (helm, chart) = (Helm::new(None, NAMESPACE), chart());
    let template = |values: &[&str]| {
        helm.ok(&[&["template", &chart, "--namespace=ns", "--set=visibility.enabled=true"], values]
            .concat())
    };
    let skips = "insecureSkipTLSVerify: true";
    assert!(template(&[]).contains(skips));
    for (values, name) in [(&["--set=mode=single"][..], "switchyard"), (&HUB, "switchyard-hub")] {
        let with = template(&[values, &["--set=enableCertManager=true"]].concat());
        for server in ["metrics", "visibility"] {
            for part in [
                format!("secretName: {name}-{server}-cert\n"),
                format!("- {name}-{server}.ns.svc\n"),
                format!("--{server}-certificates=/etc/switchyard-{server}\n"),
                format!(
                    "{{name: {server}-cert, mountPath: /etc/switchyard-{server}, readOnly: true}}"
                ),
                format!("secret: {{secretName: {name}-{server}-cert}}"),
            ] {
                assert!(with.contains(&part), "no {part} in\n{with}");
            }
        }
        let injected = format!("cert-manager.io/inject-ca-from: ns/{name}-visibility\n");
        assert!(with.matches(&injected).count() == 2 && !with.contains(skips), "{with}");
    }
    let off = "--set=managerConfig.controllerManagerConfigYaml=metrics: {bindAddress: \"0\"}";
    assert!(!template(&["--set=enableCertManager=true", off]).contains("metrics-cert"));
}

#[test]
fn the_visibility_api_is_led_to_where_it_is_asked_for() {
    let (helm, chart) = (Helm::new(None, NAMESPACE), chart());
    let visible = ["--visibility-listen=config", "name: v1beta1.visibility.kueue.x-k8s.io"];
    let template = |values: &[&str]| helm.ok(&[&["template", &chart], values].concat());
    for values in [&["--set=mode=single"][..], &HUB] {
        let (without, with) =
            (template(values), template(&[values, &["--set=visibility.enabled=true"]].concat()));
        for part in visible {
            assert!(with.contains(part) && !without.contains(part), "{values:?}: {part}");
        }
    }
    let agent = template(&[&AGENT[..], &["--set=visibility.enabled=true"]].concat());
    assert!(visible.iter().all(|part| !agent.contains(part)));
    let there = "name: extension-apiserver-authentication-reader";
    let bound = |values: &[&str]| template(values).contains(there);
    assert!(bound(&["--set=visibility.enabled=true"]) && !bound(&[]), "kube-system is left alone");
    assert!(!bound(&[
        "--set=visibility.enabled=true",
        "--set=enableVisibilityAuthReaderRoleBinding=false"
    ]));
    let moved =
        "--set=managerConfig.controllerManagerConfigYaml=visibilityServer: {bindPort: 9000}";
    assert!(template(&["--set=visibility.enabled=true", moved]).contains("targetPort: 9000"));
}

#[test]
fn agent_may_create_jobs_only_where_the_hub_may_use_it() {
    fixture::run(async {
        let environment =
            Environment::builder("bound").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        allowed_namespaces(cluster).await;
        let helm = Helm::new(Some(cluster), NAMESPACE);
        let chart = chart();
        let install =
            [&["upgrade", "--install", "ours", &chart, "--create-namespace"], &AGENT[..]].concat();
        helm.ok(&install);
        assert_eq!(may_create_jobs_in(cluster).await, ["team-a", "team-b"]);
        helm.ok(&[&install[..], &["--set=agent.allowNamespaces=null"]].concat());
        assert_eq!(may_create_jobs_in(cluster).await, ["everywhere"]);
    });
}
