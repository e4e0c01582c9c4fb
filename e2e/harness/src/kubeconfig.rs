//! Kubeconfigs and the clients made from them.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::certs::Pair;

/// The credential of a user.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A client certificate.
    Certificate(Pair),
    /// A bearer token, as of a service account.
    Token(String),
}

/// A self-contained kubeconfig. An empty `ca_pem` leaves the CA out.
pub fn render(
    name: &str,
    url: &str,
    ca_pem: &str,
    credential: &Credential,
) -> anyhow::Result<String> {
    let user = match credential {
        Credential::Certificate(pair) => json!({
            "client-certificate-data": STANDARD.encode(&pair.certificate),
            "client-key-data": STANDARD.encode(&pair.key),
        }),
        Credential::Token(token) => json!({"token": token}),
    };
    let mut cluster = json!({"server": url});
    if !ca_pem.is_empty() {
        cluster["certificate-authority-data"] = STANDARD.encode(ca_pem).into();
    }
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    });
    serde_saphyr::to_string(&config).context("write a kubeconfig")
}

/// A client for a kubeconfig.
pub async fn client(kubeconfig: &str) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("read a kubeconfig")?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
