//! Points the CustomResourceDefinitions at Switchyard's conversion webhook, then serves `v1beta1`
//! of the kinds whose versions differ.
//!
//! The shipped definitions do not serve `v1beta1`: without a webhook, the API server would replace
//! `apiVersion` and drop unknown fields. If the shipped files or Kueue's are applied again, the
//! leader corrects them at once. A program that keeps changing them is left alone for a while
//! ([`super::corrections`]).
//!
//! While objects may be stored in `v1beta1`, a replica needs conversion to fill its stores and
//! become ready. The definitions of those kinds therefore point at replicas that are not ready
//! ([`super::WebhookOptions::conversion`]).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    ByteString,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
        WebhookConversion,
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
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{
    Advertise, RETRY, convert,
    corrections::{CorrectionDecision, CorrectionHistory, WINDOW, last_writer},
};
use crate::context::Context;
use switchyard_platform::api_call::with_deadline;

/// Name in [`switchyard_platform::components`]. Ready once the definitions have been checked.
pub(super) const COMPONENT: &str = "conversion";
/// Interval of the regular check.
const RESYNC: Duration = Duration::from_secs(600);
/// Attempts to write a definition while others write it too.
const MAX_ATTEMPTS: usize = 5;

/// Keeps the CustomResourceDefinitions as the module says.
pub(super) struct CrdConversion {
    pub(super) ctx: Arc<Context>,
    pub(super) advertise: Advertise,
    /// Where replicas that are not ready answer.
    pub(super) advertise_unready: Advertise,
    /// CA certificates that API servers must trust, as PEM.
    pub(super) trusted: watch::Receiver<String>,
}

impl CrdConversion {
    pub(super) async fn run(self) {
        let changed = Arc::new(Notify::new());
        let watched = self.watch(changed.clone());
        let reconciled = self.reconcile_on_change(&changed);
        tokio::select! {
            () = watched => (),
            () = reconciled => (),
        }
    }

    /// Signals changes of the definitions. Without the right to watch, the regular check remains.
    async fn watch(&self, changed: Arc<Notify>) {
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> =
            Api::all(self.ctx.client.clone());
        let names: Vec<String> = v1beta1::differing_definitions().collect();
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(it) | Event::InitApply(it)) if names.contains(&it.name_any()) => {
                    changed.notify_one()
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "CustomResourceDefinitions not watched"),
            }
        }
    }

    async fn reconcile_on_change(&self, changed: &Notify) {
        let (mut leadership, mut trusted) = (self.ctx.leadership.clone(), self.trusted.clone());
        let mut histories = BTreeMap::new();
        loop {
            let done = !self.ctx.leading() || self.register(&mut histories).await;
            self.ctx.components.set(COMPONENT, true);
            tokio::select! {
                () = tokio::time::sleep(if done { RESYNC } else { RETRY }) => (),
                () = changed.notified() => (),
                // Without a sender nothing arrives.
                Ok(()) = leadership.changed() => (),
                Ok(()) = trusted.changed() => (),
            }
        }
    }

    /// False if it must be retried soon.
    async fn register(&self, histories: &mut BTreeMap<String, CorrectionHistory>) -> bool {
        let wanted = {
            let trusted = self.trusted.borrow();
            WantedConversion {
                ready: conversion(&self.advertise, &trusted),
                unready: conversion(&self.advertise_unready, &trusted),
            }
        };
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        let api = Api::all_with(self.ctx.client.clone(), &resource);
        let mut done = true;
        for name in v1beta1::differing_definitions() {
            let history = histories.entry(name.clone()).or_default();
            match reconcile_definition(&api, &name, &wanted, history).await {
                Ok(CrdOutcome::Corrected) => {
                    tracing::info!(definition = name, "v1beta1 is served and converted")
                }
                Ok(CrdOutcome::Contested(other)) => warn_contested(&name, other.as_deref()),
                Ok(CrdOutcome::Unchanged) => {}
                Err(error) => {
                    tracing::warn!(%error, definition = name, "v1beta1 is not served, or not converted");
                    done = false;
                }
            }
        }
        done
    }
}

/// The conversion that a definition should have.
struct WantedConversion {
    /// If no object is stored in `v1beta1`.
    ready: CustomResourceConversion,
    /// If objects may be stored in `v1beta1`: leads to replicas that are not ready too.
    unready: CustomResourceConversion,
}

impl WantedConversion {
    fn for_definition(&self, definition: &Value) -> &CustomResourceConversion {
        let stored = definition.pointer("/status/storedVersions").and_then(Value::as_array);
        let older =
            stored.is_some_and(|stored| stored.iter().any(|version| version == v1beta1::VERSION));
        if older { &self.unready } else { &self.ready }
    }
}

enum CrdOutcome {
    Unchanged,
    Corrected,
    /// Left to another program, with its name if known. Returned once for each contest.
    Contested(Option<String>),
}

fn warn_contested(definition: &str, other: Option<&str>) {
    tracing::warn!(
        definition,
        field = "spec.conversion",
        by = other.unwrap_or("somebody"),
        "this field is changed as often as it is corrected, and is left alone for up to {} s; let one program alone \
         convert: stop the other, or run this one without --webhook-listen",
        WINDOW.as_secs(),
    );
}

/// Corrects one definition, retrying on write conflicts.
async fn reconcile_definition(
    api: &Api<DynamicObject>,
    name: &str,
    wanted: &WantedConversion,
    history: &mut CorrectionHistory,
) -> Result<CrdOutcome, kube::Error> {
    let params =
        PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    let (mut attempts, mut decision) = (0, None);
    loop {
        let Some(mut definition) = with_deadline(api.get_opt(name)).await? else {
            return Ok(CrdOutcome::Unchanged);
        };
        if !set_conversion(&mut definition.data, wanted) {
            return Ok(CrdOutcome::Unchanged);
        }
        if let CorrectionDecision::LeaveAlone { first } =
            *decision.get_or_insert_with(|| history.decide(Instant::now()))
        {
            let other = last_writer(
                definition.metadata.managed_fields.as_deref().unwrap_or_default(),
                "conversion",
            );
            return Ok(if first {
                CrdOutcome::Contested(other.map(str::to_owned))
            } else {
                CrdOutcome::Unchanged
            });
        }
        attempts += 1;
        match with_deadline(api.replace(name, &params, &definition)).await {
            Err(kube::Error::Api(status)) if status.is_conflict() && attempts < MAX_ATTEMPTS => {}
            Err(error) => return Err(error),
            Ok(_) => {
                history.record(Instant::now());
                return Ok(CrdOutcome::Corrected);
            }
        }
    }
}

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
    let webhook =
        WebhookConversion { client_config: Some(client_config), conversion_review_versions };
    CustomResourceConversion { strategy: "Webhook".into(), webhook: Some(webhook) }
}

/// Serves `v1beta1` with `wanted` in a definition (JSON) and returns whether that changed it.
/// Definitions without both versions stay as they are.
fn set_conversion(definition: &mut Value, wanted: &WantedConversion) -> bool {
    let Ok(wanted) = serde_json::to_value(wanted.for_definition(definition)) else { return false };
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return false;
    };
    let Some(versions) = spec.get_mut("versions").and_then(Value::as_array_mut) else {
        return false;
    };
    if !versions.iter().any(|version| version["name"] == v1beta2::VERSION) {
        return false;
    }
    let Some(older) = versions.iter_mut().find(|version| version["name"] == v1beta1::VERSION)
    else {
        return false;
    };
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
        serde_json::to_value(
            crds.iter().find(|crd| crd.metadata.name.as_deref() == Some(&name)).unwrap(),
        )
        .unwrap()
    }

    fn wanted(trusted: &str) -> WantedConversion {
        let at =
            |port: u16| conversion(&Advertise::Url(format!("https://127.0.0.1:{port}/")), trusted);
        WantedConversion { ready: at(9443), unready: at(9444) }
    }

    #[test]
    fn shipped_definition_is_served_with_conversion() {
        let before = definition("clusterqueues");
        let mut after = before.clone();
        assert!(set_conversion(&mut after, &wanted("PEM")));
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
    fn correct_definition_is_not_written_again() {
        let mut definition = definition("workloads");
        assert!(set_conversion(&mut definition, &wanted("PEM")));
        assert!(!set_conversion(&mut definition, &wanted("PEM")));
        assert!(set_conversion(&mut definition, &wanted("another CA")));
        definition["spec"]["versions"][1]["served"] = false.into();
        assert!(
            set_conversion(&mut definition, &wanted("another CA")),
            "somebody applied the file again"
        );
        definition["spec"]["conversion"] = serde_json::json!({"strategy": "None"});
        assert!(set_conversion(&mut definition, &wanted("another CA")));
    }

    #[test]
    fn stored_v1beta1_is_converted_by_unready_replicas() {
        let mut definition = definition("workloads");
        let mut url_for = |stored: Value| {
            definition["status"] = serde_json::json!({ "storedVersions": stored });
            assert!(set_conversion(&mut definition, &wanted("PEM")), "{stored}");
            definition
                .pointer("/spec/conversion/webhook/clientConfig/url")
                .cloned()
                .unwrap_or_default()
        };
        assert_eq!(url_for(serde_json::json!(["v1beta2"])), "https://127.0.0.1:9443/convert");
        assert_eq!(
            url_for(serde_json::json!(["v1beta1", "v1beta2"])),
            "https://127.0.0.1:9444/convert"
        );
        assert_eq!(url_for(Value::Null), "https://127.0.0.1:9443/convert");
    }

    #[test]
    fn single_version_definition_is_not_changed() {
        for left in [0, 1] {
            let mut definition = definition("workloads");
            definition["spec"]["versions"] =
                serde_json::json!([definition["spec"]["versions"][left]]);
            assert!(!set_conversion(&mut definition, &wanted("PEM")));
        }
    }

    #[test]
    fn service_reference_has_the_path() {
        let service = Advertise::Service { namespace: "ns".into(), name: "hook".into(), port: 443 };
        let reference =
            conversion(&service, "PEM").webhook.unwrap().client_config.unwrap().service.unwrap();
        assert_eq!(
            (reference.name.as_str(), reference.path.as_deref()),
            ("hook", Some("/convert"))
        );
    }

    #[test]
    fn all_differing_definitions_are_shipped() {
        for name in v1beta1::differing_definitions() {
            let mut shipped = definition(name.split('.').next().unwrap());
            assert!(set_conversion(&mut shipped, &wanted("PEM")), "{name}");
        }
    }
}
