//! Has API servers ask us for conversions, and only then serve `v1beta1` of the kinds that need one.
//!
//! The CustomResourceDefinitions come with those versions not served: without anybody to convert, an API server would
//! only exchange `apiVersion`, and drop what it then does not know. Whoever applies them again, or applies Kueue's, is
//! corrected at once; a program that keeps doing so is left alone for a while ([`super::contest`]).
//!
//! While objects may be stored in `v1beta1`, no replica can read its first lists without conversions, and none is ready
//! before. Such definitions lead to where replicas are reached that are not ready yet ([`super::WebhookOptions::conversion`]).

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
    Advertise, RETRY,
    contest::{Contest, Verdict, WINDOW, last_writer},
    convert,
};
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
    /// The same for replicas that are not ready yet.
    pub(super) early: Advertise,
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
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> =
            Api::all(self.ctx.client.clone());
        let ours: Vec<String> = v1beta1::differing_definitions().collect();
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(it) | Event::InitApply(it)) if ours.contains(&it.name_any()) => {
                    changed.notify_one()
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "CustomResourceDefinitions not watched"),
            }
        }
    }

    async fn keep(&self, changed: &Notify) {
        let (mut leadership, mut trusted) = (self.ctx.leadership.clone(), self.trusted.clone());
        let mut contests = BTreeMap::new();
        loop {
            let done = !self.ctx.leading() || self.register(&mut contests).await;
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
    async fn register(&self, contests: &mut BTreeMap<String, Contest>) -> bool {
        let wanted = {
            let trusted = self.trusted.borrow();
            Wanted {
                ready: conversion(&self.advertise, &trusted),
                early: conversion(&self.early, &trusted),
            }
        };
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        let api = Api::all_with(self.ctx.client.clone(), &resource);
        let mut done = true;
        for name in v1beta1::differing_definitions() {
            let contest = contests.entry(name.clone()).or_default();
            match one(&api, &name, &wanted, contest).await {
                Ok(Done::Corrected) => {
                    tracing::info!(definition = name, "v1beta1 is served and converted")
                }
                Ok(Done::Contested(other)) => contested(&name, other.as_deref()),
                Ok(Done::Nothing) => {}
                Err(error) => {
                    tracing::warn!(%error, definition = name, "v1beta1 is not served, or not converted");
                    done = false;
                }
            }
        }
        done
    }
}

/// What a definition's conversion should be.
struct Wanted {
    /// Where all that is stored can be read without conversion.
    ready: CustomResourceConversion,
    /// Where replicas that are not ready yet must answer.
    early: CustomResourceConversion,
}

impl Wanted {
    fn for_definition(&self, definition: &Value) -> &CustomResourceConversion {
        let stored = definition.pointer("/status/storedVersions").and_then(Value::as_array);
        let older =
            stored.is_some_and(|stored| stored.iter().any(|version| version == v1beta1::VERSION));
        if older { &self.early } else { &self.ready }
    }
}

/// What became of a definition.
enum Done {
    Nothing,
    Corrected,
    /// It is left to another program, if it is known; this has not been said yet.
    Contested(Option<String>),
}

fn contested(definition: &str, other: Option<&str>) {
    tracing::warn!(
        definition,
        field = "spec.conversion",
        by = other.unwrap_or("somebody"),
        "this field is changed as often as it is corrected, and is left alone for up to {} s; let one program alone \
         convert: stop the other, or run this one without --webhook-listen",
        WINDOW.as_secs(),
    );
}

/// Corrects one definition, again while others write it, too.
async fn one(
    api: &Api<DynamicObject>,
    name: &str,
    wanted: &Wanted,
    contest: &mut Contest,
) -> Result<Done, kube::Error> {
    let params =
        PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    let (mut tries, mut verdict) = (0, None);
    loop {
        let Some(mut definition) = answered(api.get_opt(name)).await? else {
            return Ok(Done::Nothing);
        };
        if !correct(&mut definition.data, wanted) {
            return Ok(Done::Nothing);
        }
        if let Verdict::Leave { first } =
            *verdict.get_or_insert_with(|| contest.judge(Instant::now()))
        {
            let other = last_writer(
                definition.metadata.managed_fields.as_deref().unwrap_or_default(),
                "conversion",
            );
            return Ok(if first {
                Done::Contested(other.map(str::to_owned))
            } else {
                Done::Nothing
            });
        }
        tries += 1;
        match answered(api.replace(name, &params, &definition)).await {
            Err(kube::Error::Api(status)) if status.is_conflict() && tries < TRIES => {}
            Err(error) => return Err(error),
            Ok(_) => {
                contest.corrected(Instant::now());
                return Ok(Done::Corrected);
            }
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
    let webhook =
        WebhookConversion { client_config: Some(client_config), conversion_review_versions };
    CustomResourceConversion { strategy: "Webhook".into(), webhook: Some(webhook) }
}

/// Makes a definition, as JSON, serve `v1beta1` with its conversion. Whether there was anything to change. Definitions
/// without both versions are not ours to change.
fn correct(definition: &mut Value, wanted: &Wanted) -> bool {
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

    fn ours(trusted: &str) -> Wanted {
        let at =
            |port: u16| conversion(&Advertise::Url(format!("https://127.0.0.1:{port}/")), trusted);
        Wanted { ready: at(9443), early: at(9444) }
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
    fn while_objects_may_be_stored_in_v1beta1_replicas_are_asked_that_are_not_ready_yet() {
        let mut definition = definition("workloads");
        let mut asked = |stored: Value| {
            definition["status"] = serde_json::json!({ "storedVersions": stored });
            assert!(correct(&mut definition, &ours("PEM")), "{stored}");
            definition
                .pointer("/spec/conversion/webhook/clientConfig/url")
                .cloned()
                .unwrap_or_default()
        };
        assert_eq!(asked(serde_json::json!(["v1beta2"])), "https://127.0.0.1:9443/convert");
        assert_eq!(
            asked(serde_json::json!(["v1beta1", "v1beta2"])),
            "https://127.0.0.1:9444/convert"
        );
        assert_eq!(asked(Value::Null), "https://127.0.0.1:9443/convert");
    }

    #[test]
    fn a_definition_with_one_version_is_not_ours_to_change() {
        for left in [0, 1] {
            let mut definition = definition("workloads");
            definition["spec"]["versions"] =
                serde_json::json!([definition["spec"]["versions"][left]]);
            assert!(!correct(&mut definition, &ours("PEM")));
        }
    }

    #[test]
    fn a_service_is_named_with_its_path() {
        let service = Advertise::Service { namespace: "ns".into(), name: "hook".into(), port: 443 };
        let reference =
            conversion(&service, "PEM").webhook.unwrap().client_config.unwrap().service.unwrap();
        assert_eq!(
            (reference.name.as_str(), reference.path.as_deref()),
            ("hook", Some("/convert"))
        );
    }

    #[test]
    fn the_definitions_are_those_that_are_shipped() {
        for name in v1beta1::differing_definitions() {
            let mut shipped = definition(name.split('.').next().unwrap());
            assert!(correct(&mut shipped, &ours("PEM")), "{name}");
        }
    }
}
