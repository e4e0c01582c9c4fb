//! Has API servers ask us for conversions, and only then serve `v1beta1` of the kinds that need one.
//!
//! The CustomResourceDefinitions come with those versions not served: without anybody to convert, an API server would
//! only exchange `apiVersion`, and drop what it then does not know. Whoever applies them again, or applies Kueue's, is
//! corrected at once.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    ByteString,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig, WebhookConversion,
    },
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, PostParams},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde_json::Value;
use switchyard_api::{names, v1beta1, v1beta2};
use tokio::sync::{Notify, watch};

use super::{Advertise, RETRY, convert};
use crate::{context::Context, write::answered};

/// Our name among the parts that must run: until the definitions have been seen to once.
pub(super) const COMPONENT: &str = "conversion";
/// How often the definitions are looked at even if nothing changes.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// How often a definition is written at once before others are let finish.
const TRIES: usize = 5;

/// Keeps the CustomResourceDefinitions as they should be.
pub(super) struct Definitions {
    pub(super) ctx: Arc<Context>,
    pub(super) advertise: Advertise,
    /// CAs that API servers trust us by, as PEM.
    pub(super) trusted: watch::Receiver<String>,
}

impl Definitions {
    /// Runs for ever.
    pub(super) async fn follow(self) {
        let changed = Arc::new(Notify::new());
        let watched = self.watch(changed.clone());
        let kept = self.keep(&changed);
        tokio::select! {
            () = watched => (),
            () = kept => (),
        }
    }

    /// Tells of changes, also of those by others. Without the right to watch, the regular looks remain.
    async fn watch(&self, changed: Arc<Notify>) {
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(self.ctx.client.clone());
        let ours: Vec<String> = v1beta1::differing_definitions().collect();
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(it) | Event::InitApply(it)) if ours.contains(&it.name_any()) => changed.notify_one(),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "CustomResourceDefinitions not watched"),
            }
        }
    }

    async fn keep(&self, changed: &Notify) {
        let (mut leadership, mut trusted) = (self.ctx.leadership.clone(), self.trusted.clone());
        loop {
            let done = !self.ctx.leading() || self.register().await;
            self.ctx.components.set(COMPONENT, true);
            tokio::select! {
                () = tokio::time::sleep(if done { LOOK_AGAIN } else { RETRY }) => (),
                () = changed.notified() => (),
                // Where there is no sender there is no change.
                Ok(()) = leadership.changed() => (),
                Ok(()) = trusted.changed() => (),
            }
        }
    }

    /// False when it must be tried again soon.
    async fn register(&self) -> bool {
        let wanted = conversion(&self.advertise, &self.trusted.borrow());
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        let api = Api::all_with(self.ctx.client.clone(), &resource);
        let mut done = true;
        for name in v1beta1::differing_definitions() {
            match one(&api, &name, &wanted).await {
                Ok(true) => tracing::info!(definition = name, "v1beta1 is served and converted"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, definition = name, "v1beta1 is not served, or not converted");
                    done = false;
                }
            }
        }
        done
    }
}

/// Corrects one definition, again while others write it, too. Whether there was anything to correct.
async fn one(api: &Api<DynamicObject>, name: &str, wanted: &CustomResourceConversion) -> Result<bool, kube::Error> {
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    let mut tries = 0;
    loop {
        let Some(mut definition) = answered(api.get_opt(name)).await? else { return Ok(false) };
        if !correct(&mut definition.data, wanted) {
            return Ok(false);
        }
        tries += 1;
        match answered(api.replace(name, &params, &definition)).await {
            Err(kube::Error::Api(status)) if status.is_conflict() && tries < TRIES => {}
            written => return written.map(|_| true),
        }
    }
}

/// Conversion by us.
fn conversion(advertise: &Advertise, trusted: &str) -> CustomResourceConversion {
    let ca_bundle = Some(ByteString(trusted.as_bytes().to_vec()));
    let client_config = match advertise {
        Advertise::Url(url) => WebhookClientConfig {
            ca_bundle,
            url: Some(format!("{}{}", url.trim_end_matches('/'), convert::PATH)),
            service: None,
        },
        Advertise::Service { namespace, name, port } => WebhookClientConfig {
            ca_bundle,
            url: None,
            service: Some(ServiceReference {
                namespace: namespace.clone(),
                name: name.clone(),
                path: Some(convert::PATH.to_owned()),
                port: Some(i32::from(*port)),
            }),
        },
    };
    let conversion_review_versions = vec!["v1".into()];
    let webhook = WebhookConversion { client_config: Some(client_config), conversion_review_versions };
    CustomResourceConversion { strategy: "Webhook".into(), webhook: Some(webhook) }
}

/// Makes a definition, as JSON, serve `v1beta1` with this conversion. Whether there was anything to change. Definitions
/// without both versions are not ours to change.
fn correct(definition: &mut Value, wanted: &CustomResourceConversion) -> bool {
    let Ok(wanted) = serde_json::to_value(wanted) else { return false };
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return false };
    let Some(versions) = spec.get_mut("versions").and_then(Value::as_array_mut) else { return false };
    if !versions.iter().any(|version| version["name"] == v1beta2::VERSION) {
        return false;
    }
    let Some(older) = versions.iter_mut().find(|version| version["name"] == v1beta1::VERSION) else { return false };
    let was_served = older["served"] == true;
    older["served"] = true.into();
    let before = spec.insert("conversion".to_owned(), wanted);
    !was_served || before.as_ref() != spec.get("conversion")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str) -> Value {
        let name = format!("{plural}.kueue.x-k8s.io");
        let crds = switchyard_api::crds();
        serde_json::to_value(crds.iter().find(|crd| crd.metadata.name.as_deref() == Some(&name)).unwrap()).unwrap()
    }

    fn ours(trusted: &str) -> CustomResourceConversion {
        conversion(&Advertise::Url("https://127.0.0.1:9443/".into()), trusted)
    }

    #[test]
    fn a_fresh_definition_is_served_with_its_conversion() {
        let before = definition("clusterqueues");
        let mut after = before.clone();
        assert!(correct(&mut after, &ours("PEM")));
        insta::assert_json_snapshot!(after["spec"]["conversion"], @r#"
        {
          "strategy": "Webhook",
          "webhook": {
            "clientConfig": {
              "caBundle": "UEVN",
              "url": "https://127.0.0.1:9443/convert"
            },
            "conversionReviewVersions": [
              "v1"
            ]
          }
        }
        "#);
        assert_eq!(before["spec"]["versions"][1]["served"], false);
        assert_eq!(after["spec"]["versions"][1]["served"], true);
        after["spec"]["versions"][1]["served"] = false.into();
        assert_eq!(after["spec"]["versions"], before["spec"]["versions"], "all else is left alone");
    }

    #[test]
    fn what_is_as_it_should_be_is_not_written_again() {
        let mut definition = definition("workloads");
        assert!(correct(&mut definition, &ours("PEM")));
        assert!(!correct(&mut definition, &ours("PEM")));
        assert!(correct(&mut definition, &ours("another CA")));
        definition["spec"]["versions"][1]["served"] = false.into();
        assert!(correct(&mut definition, &ours("another CA")), "somebody applied the file again");
        definition["spec"]["conversion"] = serde_json::json!({"strategy": "None"});
        assert!(correct(&mut definition, &ours("another CA")));
    }

    #[test]
    fn a_definition_with_one_version_is_not_ours_to_change() {
        for left in [0, 1] {
            let mut definition = definition("workloads");
            definition["spec"]["versions"] = serde_json::json!([definition["spec"]["versions"][left]]);
            assert!(!correct(&mut definition, &ours("PEM")));
        }
    }

    #[test]
    fn a_service_is_named_with_its_path() {
        let service = Advertise::Service { namespace: "ns".into(), name: "hook".into(), port: 443 };
        let reference = conversion(&service, "PEM").webhook.unwrap().client_config.unwrap().service.unwrap();
        assert_eq!((reference.name.as_str(), reference.path.as_deref()), ("hook", Some("/convert")));
    }

    #[test]
    fn the_definitions_are_those_that_are_shipped() {
        for name in v1beta1::differing_definitions() {
            let mut shipped = definition(name.split('.').next().unwrap());
            assert!(correct(&mut shipped, &ours("PEM")), "{name}");
        }
    }
}
