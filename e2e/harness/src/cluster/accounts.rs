//! Clients with the rights of a service account.

use anyhow::Context;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

use super::Cluster;
use crate::kubeconfig::{self, Credential};

/// Lifetime of tokens. It exceeds any test or demo, because tokens are not renewed here.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

impl Cluster {
    /// A client with only the rights of a service account, and its kubeconfig. Waits a while for the account to exist.
    pub async fn service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<(Client, String)> {
        let token = self.service_account_token(namespace, name).await?;
        let kubeconfig =
            kubeconfig::render(self.name(), self.url(), self.ca_pem(), &Credential::Token(token))?;
        Ok((kubeconfig::client(&kubeconfig).await?, kubeconfig))
    }

    /// A token of a service account, good for 30 days.
    pub async fn service_account_token(
        &self,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<String> {
        self.await_service_account(namespace, name).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), namespace);
        let spec =
            TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..Default::default() };
        let request = TokenRequest { spec, ..Default::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let status = answer.with_context(|| format!("a token for {namespace}/{name}"))?.status;
        Ok(status.context("a token request without an answer")?.token)
    }
}
