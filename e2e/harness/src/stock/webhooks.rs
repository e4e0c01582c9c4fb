//! Registers Kueue's webhooks as its manifests do, but at a loopback address instead of a Service.

use std::path::Path;

use anyhow::Context;
use base64::Engine as _;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{NAMESPACE, READY_TIME};
use crate::cluster::Cluster;
use crate::ready;

/// The prefix that Kueue's kustomization puts before names.
const PREFIX: &str = "kueue-";
/// The CRDs that its kustomization gives a conversion webhook.
const CONVERTED: [&str; 5] =
    ["localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters"];

/// Registers the webhooks of a Kueue that listens on `port`, and waits until the API server calls them. `config` is the
/// directory `config` of Kueue's module.
pub(super) async fn register(
    cluster: &Cluster,
    config: &Path,
    port: u16,
    authority: &str,
) -> anyhow::Result<()> {
    let ca_bundle = base64::engine::general_purpose::STANDARD.encode(authority);
    let client = |path: &str| json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": ca_bundle});
    // Kueue's chart has registered Services, which have no server here.
    unregister(cluster).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    for kind in CONVERTED {
        let mut client = client("/convert");
        client["service"] = Value::Null;
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
        let patch = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}});
        crds.patch(
            &format!("{kind}.kueue.x-k8s.io"),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await?;
    }
    let manifests = config.join("components/webhook/manifests.yaml");
    let text =
        std::fs::read_to_string(&manifests).with_context(|| manifests.display().to_string())?;
    let mut configurations: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    for configuration in &mut configurations {
        let name =
            format!("{PREFIX}{}", configuration["metadata"]["name"].as_str().unwrap_or_default());
        configuration["metadata"]["name"] = name.into();
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            let path =
                webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default().to_owned();
            webhook["clientConfig"] = client(&path);
            if webhook["rules"][0]["apiGroups"] != json!(["kueue.x-k8s.io"]) {
                webhook["namespaceSelector"] = elsewhere();
            }
        }
    }
    cluster.apply(configurations).await?;
    // The API server learns of a registration a moment after it is written.
    ready::job_webhook(cluster, "default", READY_TIME).await
}

/// The namespaces whose jobs Kueue's webhooks review, as in its kustomization.
fn elsewhere() -> Value {
    let values = ["kube-system", NAMESPACE];
    json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": values}]})
}

/// Deletes both configurations, as far as they exist.
pub(super) async fn unregister(cluster: &Cluster) -> anyhow::Result<()> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let params = DeleteParams::default();
    let deleted = [
        mutating.delete(&format!("{PREFIX}mutating-webhook-configuration"), &params).await.err(),
        validating
            .delete(&format!("{PREFIX}validating-webhook-configuration"), &params)
            .await
            .err(),
    ];
    match deleted.into_iter().flatten().find(|error| !is_missing(error)) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
