//! Why an installed program has no running pods, by a real scheduler and a real admission.

use anyhow::ensure;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::Api;
use serde_json::json;
use switchyard_e2e::fleet::NAMESPACE;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, Environment, NodeSpec, fixture};

use super::{SOON, finds, switchyard};
use crate::common::helm::{Helm, chart};

#[test]
fn check_tells_why_pods_are_missing() {
    fixture::run(async {
        let controllers =
            ["deployment-controller", "replicaset-controller", "resourcequota-controller"];
        let spec = ClusterSpec::new("one").node(NodeSpec::new("node").cpu(2));
        let spec = controllers.into_iter().fold(spec, ClusterSpec::controller);
        let environment = Environment::builder("podless").cluster(spec).start().await.unwrap();
        let cluster = environment.cluster("one");
        let (helm, chart) = (Helm::new(Some(cluster), NAMESPACE), chart());
        let install = ["upgrade", "--install", "ours", &chart, "--create-namespace"];
        let with = |values: &[&str]| helm.ok(&[&install, values].concat());

        with(&["--set=controllerManager.manager.resources.requests.cpu=64"]);
        let no_node = "failure pods: pod switchyard-";
        finds(cluster, &[], no_node).await;
        let (_, text) = switchyard(cluster.kubeconfig(), &["check"]).await.unwrap();
        assert!(text.contains("has no node: Unschedulable: 0/1 nodes are available"), "{text}");
        assert!(text.contains("controllerManager.manager.resources"), "{text}");

        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"namespace": NAMESPACE, "name": "small"}, "spec": {"hard": {"requests.cpu": "1"}},
        });
        cluster.apply([quota]).await.unwrap();
        let quotas: Api<ResourceQuota> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
        eventually(SOON, "the quota's use to be known", async || {
            let status = quotas.get("small").await?.status.unwrap_or_default();
            ensure!(status.used.is_some_and(|used| used.contains_key("requests.cpu")), "no use");
            Ok(())
        })
        .await
        .unwrap();
        with(&["--set=controllerManager.manager.resources.requests.cpu=32"]);
        let refused = "failure pods: pods of switchyard are not created: pods \"switchyard-";
        finds(cluster, &[], refused).await;
        let (_, text) = switchyard(cluster.kubeconfig(), &["check"]).await.unwrap();
        assert!(text.contains("exceeded quota: small"), "{text}");
        assert!(text.contains("raise the namespace's ResourceQuota"), "{text}");
    });
}

#[test]
fn check_names_pod_security_that_refuses_pods() {
    fixture::run(async {
        let controllers = ["deployment-controller", "replicaset-controller"];
        let spec = controllers.into_iter().fold(ClusterSpec::new("one"), ClusterSpec::controller);
        let environment = Environment::builder("baseline").cluster(spec).start().await.unwrap();
        let cluster = environment.cluster("one");
        let level = json!({"pod-security.kubernetes.io/enforce": "baseline"});
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": level},
        });
        cluster.apply([namespace]).await.unwrap();
        let chart = chart();
        let install = ["install", "ours", &chart, "--set=controllerManager.hostNetwork=true"];
        Helm::new(Some(cluster), NAMESPACE).ok(&install);
        finds(cluster, &[], "failure pods: pods of switchyard are not created").await;
        let (_, text) = switchyard(cluster.kubeconfig(), &["check"]).await.unwrap();
        assert!(text.contains("violates PodSecurity \"baseline:latest\""), "{text}");
        assert!(text.contains("set controllerManager.hostNetwork"), "{text}");
    });
}
