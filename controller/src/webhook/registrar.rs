//! Keeps certificates and webhook configurations up to date.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    authentication::v1::SelfSubjectReview,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use switchyard_api::names;
use switchyard_jobs::enabled_kinds;
use tokio::sync::{Notify, watch};

use super::{Advertise, COMPONENT, RETRY, configuration::Inputs, secret::SecretStore};
use crate::{context::Context, role::Role};
use switchyard_platform::{api_call::with_deadline, cert::Bundle, https::Certificate};

/// Switchyard's user name, if it is a service account. Users share no service account, so its own
/// requests need no review.
pub(super) async fn service_account(ctx: &Context) -> Option<String> {
    let api: Api<SelfSubjectReview> = Api::all(ctx.client.clone());
    match with_deadline(api.create(&PostParams::default(), &SelfSubjectReview::default())).await {
        Ok(review) => review
            .status?
            .user_info?
            .username
            .filter(|name| name.starts_with("system:serviceaccount:")),
        Err(error) => {
            tracing::debug!(%error, "own user name not known");
            None
        }
    }
}

/// Advice for the administrator about a failed registration. The API server answers 403 to an apply
/// that would have to create the configuration without the right to.
fn advice(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if matches!(status.code, 403 | 404) => {
            "apply deploy/webhooks, or upgrade the Helm release: both configurations have to be there"
        }
        _ => "none needed: it is tried again",
    }
}

pub(super) struct Registrar {
    pub(super) ctx: Arc<Context>,
    pub(super) secrets: SecretStore,
    pub(super) names: BTreeSet<String>,
    pub(super) certificate: Arc<Certificate>,
    pub(super) advertise: Advertise,
    /// Name of both configurations.
    pub(super) name: String,
    pub(super) service_account: Option<String>,
    pub(super) fail_closed: bool,
    pub(super) ignores_queue_annotation: bool,
    pub(super) changed: Arc<Notify>,
    /// Interval of the regular check.
    pub(super) resync: Duration,
    /// CA certificates that API servers must trust, as PEM.
    pub(super) trusted: watch::Sender<String>,
    /// Whether the stores are filled. Admission reviews cannot be answered before.
    pub(super) filled: watch::Receiver<bool>,
    // The last configurations written, so that between regular checks only changes are.
    pub(super) applied:
        Mutex<Option<(MutatingWebhookConfiguration, ValidatingWebhookConfiguration)>>,
}

impl Registrar {
    pub(super) fn subscribe(&self) {
        let changed = self.changed.clone();
        self.ctx.stores.local_queues.subscribe(move |change| {
            // Only creation and deletion matter.
            if &*change.key.name == names::DEFAULT && change.old.is_some() != change.new.is_some() {
                changed.notify_one();
            }
        });
    }

    pub(super) async fn run(&self, mut bundle: Bundle) {
        let (mut leadership, mut filled) = (self.ctx.leadership.clone(), self.filled.clone());
        loop {
            let registered = self.register(&bundle).await;
            let pause = if registered { self.resync } else { RETRY.min(self.resync) };
            let rewrite = tokio::select! {
                () = tokio::time::sleep(pause) => true,
                () = self.changed.notified() => false,
                // Another leader may have written the configurations. Without a sender nothing
                // arrives, and the timer fires.
                Ok(()) = leadership.changed() => true,
                Ok(()) = filled.changed() => false,
            };
            if rewrite {
                // Overwrite what others have changed.
                *self.applied.lock() = None;
            }
            bundle = self.renew(bundle).await;
        }
    }

    async fn renew(&self, bundle: Bundle) -> Bundle {
        let renew = match self.secrets.load(&self.names, self.ctx.clock.now()).await {
            Ok(renew) => renew,
            Err(error) => {
                tracing::warn!(%error, "webhook certificates not looked at");
                return bundle;
            }
        };
        if renew.serving != bundle.serving {
            match renew.certified_key() {
                Ok(key) => {
                    self.certificate.set(key);
                    tracing::info!("webhook certificate exchanged");
                }
                Err(error) => tracing::warn!(%error, "new webhook certificate not used"),
            }
        }
        self.trusted.send_if_modified(|trusted| {
            let new = renew.trusted();
            *trusted != new && {
                *trusted = new;
                true
            }
        });
        renew
    }

    /// Registers if this replica leads. False if it must be retried soon.
    async fn register(&self, bundle: &Bundle) -> bool {
        if !*self.filled.borrow() {
            return true;
        }
        if !self.ctx.leading() {
            // A follower only serves.
            self.ctx.components.set(COMPONENT, true);
            return true;
        }
        let desired = self.desired(bundle);
        if self.applied.lock().as_ref() == Some(&desired) {
            return true;
        }
        match self.apply(&desired).await {
            Ok(()) => {
                self.ctx.components.set(COMPONENT, true);
                *self.applied.lock() = Some(desired);
                tracing::info!(webhooks = ?self.advertise, "webhooks registered");
                true
            }
            Err(error) => {
                tracing::warn!(%error, mend = advice(&error), "webhooks not registered");
                false
            }
        }
    }

    fn desired(
        &self,
        bundle: &Bundle,
    ) -> (MutatingWebhookConfiguration, ValidatingWebhookConfiguration) {
        let defaults = self
            .ctx
            .stores
            .local_queues
            .filter(|queue| queue.metadata.name.as_deref() == Some(names::DEFAULT));
        let inputs = Inputs {
            name: &self.name,
            advertise: &self.advertise,
            ca_bundle: bundle.trusted(),
            namespace: &self.ctx.namespace,
            managed: self.ctx.config.managed_jobs_namespace_selector(&self.ctx.namespace),
            service_account: self.service_account.as_deref(),
            kinds: enabled_kinds(&self.ctx.config.integrations.frameworks)
                .iter()
                .map(|kind| kind.id())
                .collect(),
            without_queue_name: self.ctx.config.manage_jobs_without_queue_name,
            default_queues: defaults
                .iter()
                .filter_map(|queue| queue.metadata.namespace.clone())
                .collect(),
            fail_closed: self.fail_closed,
            queue_annotation: !self.ignores_queue_annotation,
            dispatches: self.ctx.role == Role::Hub,
        };
        (inputs.mutating(), inputs.validating())
    }

    async fn apply(
        &self,
        (mutating, validating): &(MutatingWebhookConfiguration, ValidatingWebhookConfiguration),
    ) -> Result<(), kube::Error> {
        let params = PatchParams::apply(names::FIELD_MANAGER).force();
        let client = &self.ctx.client;
        let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        with_deadline(api.patch(&self.name, &params, &Patch::Apply(mutating))).await?;
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        with_deadline(api.patch(&self.name, &params, &Patch::Apply(validating))).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn advice_names_the_configuration_only_if_it_may_be_missing() {
        let failed =
            |code: u16| kube::Error::Api(Box::new(Status { code, ..Status::failure("no", "") }));
        for (case, code, expected) in [
            ("an account that may not create it", 403, "apply deploy/webhooks"),
            ("not found", 404, "apply deploy/webhooks"),
            ("an API server that is overloaded", 429, "none needed"),
            ("one that fails", 500, "none needed"),
        ] {
            assert!(advice(&failed(code)).starts_with(expected), "{case}");
        }
    }
}
