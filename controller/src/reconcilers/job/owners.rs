//! Finds the managed job above an object in the caches. Uncached owners are read from
//! the API server, because ReplicaSets and kinds that are off have no watch.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api,
    api::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use switchyard_api::{names, validate::is_subdomain};
use switchyard_config::Configuration;
use switchyard_jobs::{
    JobKind, kind_of_owner,
    meta::{self, Controller},
};

use super::{
    ancestor::{self, Owner, TopmostJob},
    lookup::is_enabled,
};
use crate::{
    context::Context,
    stores::{Stores, recent_owners::Found},
};
use switchyard_platform::{api_call::with_deadline, object::Object};

/// The topmost queued job above an object, or any job if all are managed. `read` looks up owners
/// that are not watched.
fn climb(
    stores: &Stores,
    config: &Configuration,
    object: &Value,
    read: impl Fn(&Controller) -> Option<Found>,
) -> TopmostJob {
    let all = config.manage_jobs_without_queue_name;
    let find = |owner: &Controller| find(stores, config, meta::namespace(object), owner, &read);
    ancestor::top(object, find, |parent| all || !meta::queue_name(parent).is_empty())
}

/// The topmost managed job above an object, from the caches alone.
pub(crate) fn cached_top(ctx: &Context, object: &Value) -> TopmostJob {
    climb(&ctx.stores, &ctx.config, object, |owner| recent(ctx, object, owner))
}

fn recent(ctx: &Context, object: &Value, owner: &Controller) -> Option<Found> {
    ctx.stores.owners.get(meta::namespace(object), owner, ctx.clock.monotonic())
}

/// As [`cached_top`], but reads uncached owners. It never returns [`TopmostJob::Unread`].
///
/// # Errors
///
/// When an owner cannot be read.
pub(crate) async fn top(ctx: &Context, object: &Value) -> kube::Result<TopmostJob> {
    // An answer of this call counts however long it takes.
    let mut read: Vec<(Controller, Found)> = Vec::new();
    loop {
        let known = |owner: &Controller| {
            let read = read.iter().find(|(it, _)| it == owner).map(|(_, found)| found.clone());
            read.or_else(|| recent(ctx, object, owner))
        };
        match climb(&ctx.stores, &ctx.config, object, known) {
            TopmostJob::Unread(owner) => {
                let found = read_owner(ctx, meta::namespace(object), &owner).await?;
                read.push((owner, found));
            }
            end => return Ok(end),
        }
    }
}

/// Whether a managed job rules the object: one above it is queued, or all are managed.
///
/// # Errors
///
/// When an owner cannot be read.
pub(crate) async fn is_ruled(ctx: &Context, object: &Value) -> kube::Result<bool> {
    Ok(!matches!(top(ctx, object).await?, TopmostJob::None))
}

fn find(
    stores: &Stores,
    config: &Configuration,
    namespace: &str,
    owner: &Controller,
    read: impl Fn(&Controller) -> Option<Found>,
) -> Owner {
    let kind = kind_of_owner(&owner.api_version, &owner.kind);
    if kind.is_none() && !is_replica_set(owner) {
        return Owner::None;
    }
    let watched = kind.and_then(|kind| stores.watched(kind.id().group, kind.id().kind));
    let cached = watched.and_then(|watched| watched.store.get(namespace, &owner.name));
    // Another object of that name is not the owner.
    let cached = cached.filter(|it| it.metadata.uid.as_deref() == Some(&owner.uid));
    let found = match cached.map(Some).or_else(|| read(owner)) {
        Some(Some(found)) => found,
        Some(None) => return Owner::None,
        None => return Owner::Unread,
    };
    match kind.filter(|kind| is_enabled(stores, config, *kind)) {
        Some(kind) => Owner::Job(kind, found),
        None => Owner::Between(found),
    }
}

/// Whether it is the ReplicaSet between a Deployment and its pods.
fn is_replica_set(owner: &Controller) -> bool {
    (owner.api_version.as_str(), owner.kind.as_str()) == ("apps/v1", "ReplicaSet")
}

/// Reads an owner and caches the answer. For a watched kind only its absence is cached, because the
/// watch will bring the object. For other kinds the metadata suffices.
async fn read_owner(ctx: &Context, namespace: &str, owner: &Controller) -> kube::Result<Found> {
    // Users write owner references. No object has such a name, and it could change the request's
    // path.
    if !is_subdomain(&owner.name) {
        return Ok(None);
    }
    let replica_sets = || ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "ReplicaSet"));
    let kind = kind_of_owner(&owner.api_version, &owner.kind);
    let is_watched =
        kind.is_some_and(|kind| ctx.stores.job(kind.id().group, kind.id().kind).is_some());
    let resource = kind.map_or_else(replica_sets, |kind: &dyn JobKind| kind.id().api_resource());
    let api = Api::<Object>::namespaced_with(ctx.client.clone(), namespace, &resource);
    let read = if is_watched {
        with_deadline(api.get_opt(&owner.name)).await
    } else {
        let read = with_deadline(api.get_metadata_opt(&owner.name)).await;
        read.and_then(|found| found.map(|found| head(owner, found.metadata)).transpose())
    };
    let forbidden = matches!(&read, Err(kube::Error::Api(status)) if status.is_forbidden());
    if ctx.stores.owners.is_forbidden_now(owner, forbidden) {
        tracing::warn!(
            kind = owner.kind,
            "owners of this kind may not be read: jobs above them are not seen"
        );
    }
    let found = match read {
        Ok(found) => found.map(Arc::new),
        // The kind does not exist.
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        // Retrying would not help.
        Err(_) if forbidden => None,
        Err(error) => return Err(error),
    };
    if found.is_none() || !is_watched {
        ctx.stores.owners.keep(namespace, owner, found.clone(), ctx.clock.monotonic());
    }
    Ok(found)
}

/// The kept part of an owner whose pods do not count: identity, controller, and queue.
fn head(owner: &Controller, metadata: ObjectMeta) -> kube::Result<Object> {
    let queue = metadata.labels.and_then(|mut labels| labels.remove_entry(names::QUEUE_NAME));
    let owners = metadata.owner_references.map(|owners| {
        let controls = owners.into_iter().filter(|owner| owner.controller == Some(true));
        controls.collect()
    });
    let metadata = ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        labels: queue.map(|queue| [queue].into()),
        owner_references: owners,
        ..ObjectMeta::default()
    };
    let head = json!({"apiVersion": owner.api_version, "kind": owner.kind, "metadata": metadata});
    Object::new(head).map_err(kube::Error::SerdeError)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, name: &str, owner: Option<(&str, &str, &str)>, queue: &str) -> Value {
        let owners: Vec<Value> = owner
            .into_iter()
            .map(|(api_version, kind, name)| {
                json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true})
            })
            .collect();
        let mut object = json!({"kind": kind, "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "ownerReferences": owners,
        }});
        if !queue.is_empty() {
            object["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": queue});
        }
        object
    }

    fn config(frameworks: &[&str]) -> Configuration {
        let mut config = Configuration::default();
        config.integrations.frameworks = frameworks.iter().map(|it| (*it).to_owned()).collect();
        config
    }

    fn stores(frameworks: &[&str]) -> (Stores, Configuration) {
        let config = config(frameworks);
        (Stores::new(&config), config)
    }

    /// Climbs from the object and reads uncached owners of `cluster`.
    fn climb(
        (stores, config): &(Stores, Configuration),
        object: &Value,
        cluster: &[Value],
    ) -> (String, usize) {
        let mut read: Vec<(Controller, Found)> = Vec::new();
        loop {
            let known = |owner: &Controller| {
                read.iter().find(|(it, _)| it == owner).map(|(_, found)| found.clone())
            };
            match super::climb(stores, config, object, known) {
                TopmostJob::Unread(owner) => {
                    let found = cluster.iter().find(|it| meta::name(it) == owner.name);
                    read.push((owner, found.map(|it| Arc::new(Object::new(it.clone()).unwrap()))));
                }
                TopmostJob::Job(_, parent) => {
                    return (meta::name(&parent.value()).to_owned(), read.len());
                }
                TopmostJob::None => return ("none".to_owned(), read.len()),
                TopmostJob::TooDeep | TopmostJob::Cyclic => {
                    return ("no end".to_owned(), read.len());
                }
            }
        }
    }

    #[test]
    fn disabled_kinds_and_replica_sets_are_followed() {
        let ray = ("ray.io/v1", "RayCluster", "cluster");
        let chains = [
            (
                "through a RayCluster",
                ["ray.io/rayjob", "pod"],
                object("Pod", "pod", Some(ray), ""),
                vec![
                    object("RayCluster", "cluster", Some(("ray.io/v1", "RayJob", "top")), ""),
                    object("RayJob", "top", None, "lq"),
                ],
            ),
            (
                "through a Job",
                ["jobset.x-k8s.io/jobset", "pod"],
                object("Pod", "pod", Some(("batch/v1", "Job", "job")), ""),
                vec![
                    object("Job", "job", Some(("jobset.x-k8s.io/v1alpha2", "JobSet", "top")), ""),
                    object("JobSet", "top", None, "lq"),
                ],
            ),
            (
                "through a ReplicaSet and a Deployment",
                ["workload.codeflare.dev/appwrapper", "pod"],
                object("Pod", "pod", Some(("apps/v1", "ReplicaSet", "rs")), ""),
                vec![
                    object("ReplicaSet", "rs", Some(("apps/v1", "Deployment", "web")), ""),
                    object(
                        "Deployment",
                        "web",
                        Some(("workload.codeflare.dev/v1beta2", "AppWrapper", "top")),
                        "",
                    ),
                    object("AppWrapper", "top", None, "lq"),
                ],
            ),
        ];
        for (sentence, frameworks, pod, cluster) in chains {
            let stores = stores(&frameworks);
            assert_eq!(
                climb(&stores, &pod, &cluster),
                ("top".to_owned(), cluster.len()),
                "{sentence}"
            );
            assert_eq!(
                climb(&stores, &pod, &cluster[..cluster.len() - 1]).0,
                "none",
                "{sentence}, once it is gone"
            );
        }
    }

    /// Answers with a status and object by name. Records requests by name and whether for metadata
    /// alone.
    type Asked = Arc<std::sync::Mutex<Vec<String>>>;

    fn context(frameworks: &[&str], answers: Vec<(&'static str, u16, Value)>) -> (Context, Asked) {
        let asked = Asked::default();
        let log = asked.clone();
        let server = tower::service_fn(move |request: axum::http::Request<kube::client::Body>| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let accept = format!("{:?}", request.headers().get("accept"));
            let what =
                if accept.contains("PartialObjectMetadata") { " by its metadata" } else { "" };
            log.lock().unwrap().push(format!("{name}{what}"));
            let (status, body) = match answers.iter().find(|(it, ..)| *it == name) {
                Some((_, 200, object)) => (200, object.clone()),
                Some((_, code, reason)) => (*code, failure(*code, reason)),
                None => (404, failure(404, &json!("NotFound"))),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let answer = axum::http::Response::builder().status(status).body(body).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        let client = kube::Client::new(server, "default");
        (crate::fixtures::context(client, config(frameworks)), asked)
    }

    fn failure(code: u16, reason: &Value) -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": ""})
    }

    #[tokio::test]
    async fn owner_is_read_once_and_mostly_as_metadata() {
        let mut set = object("JobSet", "set", Some(("example.com/v1", "Farm", "farm")), "lq");
        set["apiVersion"] = json!("jobset.x-k8s.io/v1alpha2");
        let owner = Some(("jobset.x-k8s.io/v1alpha2", "JobSet", "set"));
        let owned_by = |name: &str| object("Job", name, owner, "");
        let (ctx, asked) = context(&["batch/job"], vec![("set", 200, set.clone())]);
        for child in ["a", "b", "a"] {
            assert!(!is_ruled(&ctx, &owned_by(child)).await.unwrap(), "its kind is not enabled");
        }
        assert!(matches!(cached_top(&ctx, &owned_by("c")), TopmostJob::None));
        assert_eq!(asked.lock().unwrap().as_slice(), ["set by its metadata"]);

        // The watch brings watched objects.
        let (ctx, asked) =
            context(&["batch/job", "jobset.x-k8s.io/jobset"], vec![("set", 200, set)]);
        assert!(is_ruled(&ctx, &owned_by("a")).await.unwrap());
        assert!(matches!(cached_top(&ctx, &owned_by("a")), TopmostJob::Unread(_)));
        assert_eq!(asked.lock().unwrap().as_slice(), ["set"]);
    }

    #[tokio::test]
    async fn absence_and_refusal_are_cached_and_failure_is_not() {
        let child = object("Job", "a", Some(("jobset.x-k8s.io/v1alpha2", "JobSet", "set")), "lq");
        for (sentence, code, reason, ruled, questions) in [
            ("gone", 404, "NotFound", Some(false), 1),
            ("forbidden", 403, "Forbidden", Some(false), 1),
            ("a webhook that converts is down", 500, "InternalError", None, 2),
        ] {
            let (ctx, asked) = context(&["batch/job"], vec![("set", code, json!(reason))]);
            for _ in 0..2 {
                assert_eq!(is_ruled(&ctx, &child).await.ok(), ruled, "{sentence}");
            }
            assert_eq!(asked.lock().unwrap().len(), questions, "{sentence}");
        }
    }

    #[test]
    fn cached_owners_are_not_read_and_queues_need_enabled_kinds() {
        let known = stores(&["ray.io/rayjob", "pod"]);
        let top = object("RayJob", "top", None, "lq");
        let cluster =
            object("RayCluster", "cluster", Some(("ray.io/v1", "RayJob", "top")), "other");
        let pod = object("Pod", "pod", Some(("ray.io/v1", "RayCluster", "cluster")), "");
        known.0.job("ray.io", "RayJob").unwrap().store.insert(Object::new(top.clone()).unwrap());
        assert_eq!(climb(&known, &pod, std::slice::from_ref(&cluster)), ("top".to_owned(), 1));
        let alone = object("RayCluster", "cluster", None, "lq");
        assert_eq!(climb(&known, &pod, &[alone]).0, "none", "its kind is not enabled");
        let mut other = top;
        other["metadata"]["uid"] = json!("another");
        let known = stores(&["ray.io/rayjob", "pod"]);
        known.0.job("ray.io", "RayJob").unwrap().store.insert(Object::new(other.clone()).unwrap());
        assert_eq!(
            climb(&known, &pod, &[cluster, other]),
            ("none".to_owned(), 2),
            "of that name is another now"
        );
    }

    #[test]
    fn queue_counts_at_enabled_unwatched_kinds() {
        let known = stores(&["deployment"]);
        let web = object("Deployment", "web", None, "lq");
        let set = object("ReplicaSet", "rs", Some(("apps/v1", "Deployment", "web")), "");
        let pod = object("Pod", "pod", Some(("apps/v1", "ReplicaSet", "rs")), "");
        assert_eq!(climb(&known, &pod, &[set, web]), ("web".to_owned(), 2));
        let unknown = object("Pod", "pod", Some(("example.com/v1", "Farm", "farm")), "");
        assert_eq!(climb(&known, &unknown, &[]), ("none".to_owned(), 0));
    }
}
