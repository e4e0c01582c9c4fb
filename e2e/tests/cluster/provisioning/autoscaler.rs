//! The cluster autoscaler, played by the test.

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplate;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;
use switchyard_api::{autoscaling::ProvisioningRequest, conditions};
use switchyard_e2e::{Cluster, wait::eventually};

use crate::bed::WAIT;
use crate::common::install_crds_of;

/// Installs the CRD.
pub(super) async fn install(cluster: &Cluster) {
    install_crds_of(cluster, "k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd").await;
}

/// Sees and answers the requests of one namespace.
pub(super) struct Autoscaler {
    requests: Api<ProvisioningRequest>,
    templates: Api<PodTemplate>,
}

impl Autoscaler {
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        let (requests, templates) = (client.clone(), client.clone());
        Self {
            requests: Api::namespaced(requests, namespace),
            templates: Api::namespaced(templates, namespace),
        }
    }

    /// Waits for a request of this name.
    pub(super) async fn asked(&self, name: &str) -> ProvisioningRequest {
        let there = async || Ok(self.requests.get(name).await?);
        eventually(WAIT, format!("ProvisioningRequest {name}"), there).await.unwrap()
    }

    /// Waits for a request of this name that is another than the one before.
    pub(super) async fn asked_anew(
        &self,
        name: &str,
        before: &ProvisioningRequest,
    ) -> ProvisioningRequest {
        let there = async || {
            let now = self.requests.get(name).await?;
            ensure!(now.uid() != before.uid(), "it is the same");
            Ok(now)
        };
        eventually(WAIT, format!("another ProvisioningRequest {name}"), there).await.unwrap()
    }

    /// Waits for whatever request comes first.
    pub(super) async fn any(&self) -> ProvisioningRequest {
        let there =
            async || self.requests.list(&Default::default()).await?.items.pop().context("none");
        eventually(WAIT, "a ProvisioningRequest", there).await.unwrap()
    }

    /// Waits until the request is gone.
    pub(super) async fn gone(&self, name: &str) {
        let gone = async || {
            ensure!(self.requests.get_opt(name).await?.is_none(), "it is still there");
            Ok(())
        };
        eventually(WAIT, format!("ProvisioningRequest {name} to be gone"), gone).await.unwrap();
    }

    /// The template of a request's first pods, once it is the request's own.
    pub(super) async fn template_of(&self, request: &ProvisioningRequest) -> PodTemplate {
        let name = &request.spec.pod_sets[0].pod_template_ref.name;
        let owned = async || {
            let template = self.templates.get(name).await?;
            let owners: Vec<_> =
                template.owner_references().iter().map(|it| it.uid.clone()).collect();
            ensure!(
                owners == [request.uid().unwrap_or_default()],
                "{:?}",
                template.owner_references()
            );
            Ok(template)
        };
        eventually(WAIT, format!("PodTemplate {name} of its request"), owned).await.unwrap()
    }

    /// Sets a condition.
    pub(super) async fn says(&self, name: &str, condition: &str, holds: bool, message: &str) {
        let mut known =
            self.requests.get(name).await.unwrap().status.unwrap_or_default().conditions;
        conditions::set(
            &mut known,
            conditions::new(condition, holds, "Said", message, None),
            Timestamp::now(),
        );
        self.patch_status(name, json!({"conditions": known})).await;
    }

    /// Sets one of the details of the class.
    pub(super) async fn detail(&self, name: &str, key: &str, value: &str) {
        let mut details = json!({});
        details[key] = value.into();
        self.patch_status(name, json!({"provisioningClassDetails": details})).await;
    }

    async fn patch_status(&self, name: &str, status: serde_json::Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.requests.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
}
