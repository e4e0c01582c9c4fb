//! A module's manifests of its operator, adapted to a process beside the cluster: without Deployment and Service, and with
//! webhooks on a loopback port.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use serde_json::{Value, json};
use switchyard_e2e::{Part, Parts};

use super::catalog::Operator;
use super::running::Certificates;

/// The key of a ConfigMap with a configuration file.
const CONFIG_FILE: &str = "controller_manager_config.yaml";

/// The manifests of one operator.
#[derive(Debug)]
pub(super) struct Manifests {
    /// CRDs, the namespace, accounts, rights.
    objects: Vec<Value>,
    webhooks: Vec<Value>,
    /// Where it lives.
    pub(super) namespace: String,
    pub(super) account: String,
    /// The arguments of its container.
    pub(super) args: Vec<String>,
    /// Its configuration file, if it has one.
    pub(super) config: Option<Value>,
}

impl Manifests {
    /// Renders them from the operator's module.
    ///
    /// # Errors
    /// When kustomize fails, or they hold no Deployment.
    pub(super) fn render(parts: &Parts, operator: &Operator) -> anyhow::Result<Self> {
        let path = parts.own_source_dir(operator.part)?.join(operator.manifests);
        let text = if path.is_dir() {
            kustomize(&parts.binary(Part::Kubectl)?, &path)?
        } else {
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?
        };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| path.display().to_string())?;
        Self::sort(documents, operator.without).with_context(|| path.display().to_string())
    }

    fn sort(documents: Vec<Value>, without: &[&str]) -> anyhow::Result<Self> {
        let (mut objects, mut webhooks, mut deployment, mut config) =
            (Vec::new(), Vec::new(), None, None);
        for document in documents {
            let name = document["metadata"]["name"].as_str().unwrap_or_default();
            match document["kind"].as_str().unwrap_or_default() {
                // A Secret would be that of a certificate for the Service.
                "" | "Service" | "Secret" => {}
                "CustomResourceDefinition" if without.contains(&name) => {}
                "Deployment" => deployment = Some(document),
                kind if kind.ends_with("WebhookConfiguration") => webhooks.push(document),
                _ => {
                    if let Some(text) = document["data"][CONFIG_FILE].as_str() {
                        config = Some(serde_saphyr::from_str(text).context(CONFIG_FILE)?);
                    }
                    objects.push(document);
                }
            }
        }
        let deployment = deployment.context("there is no Deployment")?;
        let pod = &deployment["spec"]["template"]["spec"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let args = pod["containers"][0]["args"].as_array().into_iter().flatten();
        Ok(Self {
            namespace: text(&deployment["metadata"]["namespace"])
                .context("its Deployment has no namespace")?,
            account: text(&pod["serviceAccountName"])
                .context("its Deployment has no service account")?,
            args: args.filter_map(text).collect(),
            objects,
            webhooks,
            config,
        })
    }

    /// The objects to create before it starts.
    pub(super) fn objects(&self, port: u16, certificates: &Certificates) -> Vec<Value> {
        let mut objects = self.objects.clone();
        for client in objects
            .iter_mut()
            .filter_map(|it| it.pointer_mut("/spec/conversion/webhook/clientConfig"))
        {
            reach(client, port, certificates);
        }
        objects
    }

    pub(super) fn webhooks(&self, port: u16, certificates: &Certificates) -> Vec<Value> {
        let mut configurations = self.webhooks.clone();
        for configuration in &mut configurations {
            for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
                reach(&mut webhook["clientConfig"], port, certificates);
            }
        }
        configurations
    }
}

/// Leads a webhook's client from a Service to a loopback port.
fn reach(client: &mut Value, port: u16, certificates: &Certificates) {
    let path = client["service"]["path"].as_str().unwrap_or_default();
    let authority = base64::engine::general_purpose::STANDARD.encode(&certificates.authority);
    *client = json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": authority});
}

fn kustomize(kubectl: &Path, folder: &Path) -> anyhow::Result<String> {
    // From within: a path like .../github.com/... counts as an address to fetch from.
    let output = Command::new(kubectl).args(["kustomize", "."]).current_dir(folder).output();
    let output = output.with_context(|| format!("cannot start {}", kubectl.display()))?;
    if !output.status.success() {
        bail!(
            "kubectl kustomize {}: {}",
            folder.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("kubectl kustomize {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> Vec<Value> {
        let named = |kind: &str, name: &str| json!({"kind": kind, "metadata": {"name": name, "namespace": "system"}});
        let service = json!({"service": {"name": "s", "namespace": "system", "path": "/mutate"}});
        let mut webhooks = named("MutatingWebhookConfiguration", "hooks");
        webhooks["webhooks"] = json!([{"name": "a", "clientConfig": service}]);
        let mut converted = named("CustomResourceDefinition", "flocks");
        converted["spec"]["conversion"] =
            json!({"strategy": "Webhook", "webhook": {"clientConfig": service}});
        let mut config = named("ConfigMap", "config");
        config["data"] = json!({ CONFIG_FILE: "leaderElection: {leaderElect: true}" });
        let mut deployment = named("Deployment", "manager");
        let container = json!({"args": ["--config=/x"]});
        deployment["spec"]["template"]["spec"] =
            json!({"serviceAccountName": "manager", "containers": [container]});
        vec![
            named("Service", "s"),
            webhooks,
            converted,
            named("CustomResourceDefinition", "others"),
            config,
            named("Secret", "certificate"),
            deployment,
            Value::Null,
        ]
    }

    #[test]
    fn a_process_beside_the_cluster_gets_what_its_pod_would_have() {
        let manifests = Manifests::sort(shipped(), &["others"]).unwrap();
        assert_eq!(
            (manifests.namespace.as_str(), manifests.account.as_str()),
            ("system", "manager")
        );
        assert_eq!(
            (
                manifests.args.as_slice(),
                &manifests.config.as_ref().unwrap()["leaderElection"]["leaderElect"]
            ),
            (&["--config=/x".to_owned()][..], &json!(true))
        );
        let certificates = Certificates::new().unwrap();
        let objects = manifests.objects(7443, &certificates);
        let kinds: Vec<&str> =
            objects.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds, ["CustomResourceDefinition", "ConfigMap"]);
        let url = "https://127.0.0.1:7443/mutate";
        assert_eq!(objects[0]["spec"]["conversion"]["webhook"]["clientConfig"]["url"], url);
        let client = &manifests.webhooks(7443, &certificates)[0]["webhooks"][0]["clientConfig"];
        assert_eq!((&client["url"], &client["service"]), (&json!(url), &Value::Null));
    }

    #[test]
    fn manifests_that_start_nothing_are_refused() {
        let error = Manifests::sort(vec![json!({"kind": "Namespace"})], &[]).unwrap_err();
        assert_eq!(error.to_string(), "there is no Deployment");
    }
}
