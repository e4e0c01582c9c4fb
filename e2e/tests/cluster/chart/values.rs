//! The effects of single values of the chart, and the values that it refuses.

use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use switchyard_e2e::{ClusterSpec, Environment, fixture, paths};

use super::{AGENT, DIGEST, HUB, Helm, NAMESPACE, accepted_by, chart, config, container};

#[test]
fn values_that_cannot_work_are_refused_by_name() {
    let helm = Helm::new(None, NAMESPACE);
    let chart = chart();
    for (values, said) in [
        (&["--set=mode=worker"][..], "mode"),
        (&["--set=mode=agent"], "mode agent needs agent.hub and agent.hubCaSha256"),
        (&["--set=mode=agent", "--set=agent.hub=http://hub"], "agent/hub"),
        (
            &["--set=mode=agent", "--set=agent.existingSecret=mine", DIGEST],
            "leave agent.hub, agent.hubCaSha256",
        ),
        (&["--set=mode=agent", "--set=agent.proxy=http://u:p@proxy"], "agent/proxy"),
        (&["--set=mode=agent", "--set=agent.proxy=https://proxy"], "agent/proxy"),
        (
            &[&AGENT[..], &["--set=agent.proxy=none", "--set=agent.proxySecret=mine"]].concat(),
            "leave agent.proxy empty",
        ),
        (&["--set=controllerManager.replicas=0"], "controllerManager/replicas"),
        (&["--set=hub.breaker.clusters=0"], "hub/breaker/clusters"),
        (&["--set=hub.brake.clusters=1"], "brake"),
        (&["--set=hub.service.externalTrafficPolicy=local"], "hub/service/externalTrafficPolicy"),
        (&["--set=hub.service.loadBalancerSourceRanges={all}"], "loadBalancerSourceRanges/0"),
        (&["--set=hub.service.ipFamilies={IPv5}"], "hub/service/ipFamilies/0"),
        (
            &["--set=mode=hub,hub.service.type=ClusterIP,hub.service.nodePort=30443"],
            "need the type NodePort or LoadBalancer",
        ),
        (
            &["--set=mode=hub,hub.service.type=NodePort,hub.service.loadBalancerClass=a/b"],
            "need the type LoadBalancer",
        ),
        (&["--set=controllerManager.extraEnv[0].value=x"], "controllerManager/extraEnv/0"),
        (&["--set=controllerManager.extraEnv[0].name=POD_NAME"], "extraEnv/0/name"),
        (&["--set=agnet.hub=https://hub.example"], "agnet"),
        (&["--set=controllerManager.replica=3"], "replica"),
        (&["--set=controllerManager.manager.logs=debug"], "logs"),
        (&["--set=global.imageRegistry=https://mirror.example"], "global/imageRegistry"),
        (&["--set=images.hub.digest=latest"], "images/hub/digest"),
        (&["--set=controllerManager.manager.image.registry=mirror.example"], "registry"),
        (&["--set=controllerManager.livenessProbe.period=1"], "period"),
        (&["--set=networkPolicy.webhook={}"], "webhook"),
        (
            &[
                "--set=visibility.enabled=true",
                "--set=managerConfig.controllerManagerConfigYaml=featureGates: {VisibilityOnDemand: false}",
            ],
            "visibility.enabled needs the feature gate VisibilityOnDemand",
        ),
        (
            &["--set=managerConfig.controllerManagerConfigYaml=a: b: c"],
            "controllerManagerConfigYaml is not YAML",
        ),
    ] {
        let refused = helm.refused(&[&["template", &chart], values].concat());
        assert!(refused.contains(said), "{values:?}: {refused}");
    }
}

#[test]
fn proxy_of_an_agent_is_a_variable_of_its_pods() {
    let helm = Helm::new(None, NAMESPACE);
    let rendered = |value: &str| helm.ok(&[&["template", &chart(), value], &AGENT[..]].concat());
    for proxy in ["none", "http://proxy.example:3128", "proxy:3128"] {
        let text = rendered(&format!("--set=agent.proxy={proxy}"));
        let expected = format!("- name: SWITCHYARD_PROXY\n          value: \"{proxy}\"");
        assert!(text.contains(&expected), "{text}");
    }
    let secret = "valueFrom: {secretKeyRef: {name: \"mine\", key: proxy}}";
    assert!(rendered("--set=agent.proxySecret=mine").contains(secret));
    assert!(!rendered("--set=agent.proxy=").contains("SWITCHYARD_PROXY"));
}

#[test]
fn hubs_service_and_credential_plugin_are_as_the_values_say() {
    fixture::run(async {
        let environment =
            Environment::builder("door").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let example = paths::root().join("examples/hub/cluster-profile.yaml");
        let install = [
            "install",
            "ours",
            &chart(),
            "--create-namespace",
            &format!("--values={}", example.display()),
            "--set=hub.service.nodePort=30443",
            "--set=hub.service.externalTrafficPolicy=Local",
            "--set=hub.service.loadBalancerClass=example.com/internal",
            "--set=hub.service.loadBalancerSourceRanges={192.0.2.0/24,198.51.100.0/24}",
            "--set=hub.service.ipFamilies={IPv4}",
            "--set=hub.service.ipFamilyPolicy=SingleStack",
        ];
        Helm::new(Some(cluster), NAMESPACE).ok(&install);

        let services: Api<Service> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
        let spec = services.get("switchyard-hub").await.unwrap().spec.unwrap();
        assert_eq!(spec.ports.unwrap()[0].node_port, Some(30443));
        assert_eq!(spec.external_traffic_policy.as_deref(), Some("Local"));
        assert_eq!(spec.load_balancer_class.as_deref(), Some("example.com/internal"));
        let ranges = spec.load_balancer_source_ranges.unwrap();
        assert_eq!(ranges, ["192.0.2.0/24", "198.51.100.0/24"]);
        assert_eq!(spec.ip_families.unwrap(), ["IPv4"]);
        assert_eq!(spec.ip_family_policy.as_deref(), Some("SingleStack"));

        let (deployment, program) = container(cluster, "switchyard-hub").await;
        accepted_by("switchyard-hub", &program);
        let pod = deployment.spec.and_then(|spec| spec.template.spec).unwrap();
        let copies = pod.init_containers.unwrap().remove(0).command.unwrap();
        let config = config(cluster, "switchyard-hub").await;
        assert!(config.feature_gates["MultiKueueClusterProfile"]);
        let provider = &config.multi_kueue.cluster_profile.unwrap().access_providers[0];
        assert_eq!(copies[1], format!("/{}", provider.exec_config.command));
        let volumes = pod.volumes.unwrap();
        assert!(volumes.iter().any(|it| it.name == "plugins" && it.empty_dir.is_some()));
        let mounts = program.volume_mounts.unwrap();
        let mount = mounts.iter().find(|it| it.name == "plugins").unwrap();
        let path = program.env.unwrap().into_iter().find(|it| it.name == "PATH").unwrap();
        assert_eq!(path.value.as_ref(), Some(&mount.mount_path));
    });
}

#[test]
fn servers_listen_at_addresses_of_both_families() {
    let (helm, chart) = (Helm::new(None, NAMESPACE), chart());
    for values in [&[][..], &HUB, &AGENT] {
        let text = helm.ok(&[&["template", &chart], values].concat());
        assert!(text.contains("--webhook-listen=[::]:9443"), "{values:?}");
        assert!(!text.contains("0.0.0.0"), "{values:?}");
    }
}

#[test]
fn agent_reads_the_hubs_address_from_its_secret() {
    let helm = Helm::new(None, NAMESPACE);
    let text = helm.ok(&[&["template", &chart()], &AGENT[..]].concat());
    assert!(text.contains("  hub: \"https://hub.example:7443\"\n"), "{text}");
    assert!(text.contains("--join-directory=/etc/switchyard-join"), "{text}");
    assert!(!text.contains("SWITCHYARD_HUB"), "a variable is fixed when a pod starts");
}
