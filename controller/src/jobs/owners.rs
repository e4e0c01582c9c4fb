//! The way up from an object to the job that rules it, by the caches and, where they do not know an owner, by the API
//! server: of kinds that are not enabled nothing is watched, nor are ReplicaSets.

use std::sync::Arc;

use kube::{
    Api,
    api::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use switchyard_api::{
    config::Configuration,
    jobs::{
        JobKind, kind_of_owner,
        meta::{self, Controller},
    },
};

use super::{
    ancestor::{self, Owner, Top},
    lookup::is_enabled,
};
use crate::{context::Context, object::Object, stores::Stores, write::answered};

/// An owner as the API server had it; none: it is gone.
pub(crate) type Read = (Controller, Option<Arc<Object>>);

/// The topmost job above an object that is queued, or any job where all are; by what is known.
pub(crate) fn known_top(stores: &Stores, config: &Configuration, object: &Value, read: &[Read]) -> Top {
    let all = config.manage_jobs_without_queue_name;
    let find = |owner: &Controller| find(stores, config, meta::namespace(object), owner, read);
    ancestor::top(object, find, |parent| all || !meta::queue_name(parent).is_empty())
}

/// The same, with owners read that are not known. It never ends at one that is unread.
///
/// # Errors
/// When one cannot be read.
pub(crate) async fn top(ctx: &Context, object: &Value) -> kube::Result<Top> {
    let mut read = Vec::new();
    loop {
        match known_top(&ctx.stores, &ctx.config, object, &read) {
            Top::Unread(owner) => {
                let found = get(ctx, meta::namespace(object), &owner).await?;
                read.push((owner, found));
            }
            end => return Ok(end),
        }
    }
}

/// Whether a job of ours rules the object: one above it is queued, or all are.
///
/// # Errors
/// When an owner cannot be read.
pub(crate) async fn is_ruled(ctx: &Context, object: &Value) -> kube::Result<bool> {
    Ok(!matches!(top(ctx, object).await?, Top::None))
}

fn find(stores: &Stores, config: &Configuration, namespace: &str, owner: &Controller, read: &[Read]) -> Owner {
    let kind = kind_of_owner(&owner.api_version, &owner.kind);
    if kind.is_none() && !is_replica_set(owner) {
        return Owner::None;
    }
    let watched = kind.and_then(|kind| stores.watched(kind.id().group, kind.id().kind));
    let cached = watched.and_then(|watched| watched.store.get(namespace, &owner.name));
    // One of that name that is another may be there no more.
    let cached = cached.filter(|it| it.metadata.uid.as_deref() == Some(&owner.uid));
    let found = match (cached, read.iter().find(|(it, _)| it == owner)) {
        (Some(cached), _) => cached,
        (None, Some((_, Some(read)))) => read.clone(),
        (None, Some((_, None))) => return Owner::None,
        (None, None) => return Owner::Unread,
    };
    match kind.filter(|kind| is_enabled(stores, config, *kind)) {
        Some(kind) => Owner::Job(kind, found),
        None => Owner::Between(found),
    }
}

/// It stands between a Deployment and its pods.
fn is_replica_set(owner: &Controller) -> bool {
    (owner.api_version.as_str(), owner.kind.as_str()) == ("apps/v1", "ReplicaSet")
}

async fn get(ctx: &Context, namespace: &str, owner: &Controller) -> kube::Result<Option<Arc<Object>>> {
    let replica_sets = || ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "ReplicaSet"));
    let kind = kind_of_owner(&owner.api_version, &owner.kind);
    let resource = kind.map_or_else(replica_sets, |kind: &dyn JobKind| kind.id().api_resource());
    let api = Api::<Object>::namespaced_with(ctx.client.clone(), namespace, &resource);
    match answered(api.get_opt(&owner.name)).await {
        Ok(found) => Ok(found.map(Arc::new)),
        // The kind is there no more, or was never.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        // Trying again would not help.
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            tracing::warn!(kind = owner.kind, "an owner may not be read: jobs above it are not seen");
            Ok(None)
        }
        Err(error) => Err(error),
    }
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

    fn stores(frameworks: &[&str]) -> (Stores, Configuration) {
        let mut config = Configuration::default();
        config.integrations.frameworks = frameworks.iter().map(|it| (*it).to_owned()).collect();
        (Stores::new(&config), config)
    }

    /// Climbs from the object, and reads of `cluster` what is not known.
    fn climb((stores, config): &(Stores, Configuration), object: &Value, cluster: &[Value]) -> (String, usize) {
        let mut read: Vec<Read> = Vec::new();
        loop {
            match known_top(stores, config, object, &read) {
                Top::Unread(owner) => {
                    let found = cluster.iter().find(|it| meta::name(it) == owner.name);
                    read.push((owner, found.map(|it| Arc::new(Object::new(it.clone()).unwrap()))));
                }
                Top::Job(_, parent) => return (meta::name(&parent.value()).to_owned(), read.len()),
                Top::None => return ("none".to_owned(), read.len()),
                Top::TooDeep | Top::Cyclic => return ("no end".to_owned(), read.len()),
            }
        }
    }

    #[test]
    fn the_way_up_goes_through_kinds_that_are_not_enabled_and_through_replica_sets() {
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
                    object("Deployment", "web", Some(("workload.codeflare.dev/v1beta2", "AppWrapper", "top")), ""),
                    object("AppWrapper", "top", None, "lq"),
                ],
            ),
        ];
        for (sentence, frameworks, pod, cluster) in chains {
            let stores = stores(&frameworks);
            assert_eq!(climb(&stores, &pod, &cluster), ("top".to_owned(), cluster.len()), "{sentence}");
            assert_eq!(climb(&stores, &pod, &cluster[..cluster.len() - 1]).0, "none", "{sentence}, once it is gone");
        }
    }

    #[test]
    fn what_the_caches_know_is_not_read_and_a_queue_counts_at_enabled_kinds_only() {
        let known = stores(&["ray.io/rayjob", "pod"]);
        let top = object("RayJob", "top", None, "lq");
        let cluster = object("RayCluster", "cluster", Some(("ray.io/v1", "RayJob", "top")), "other");
        let pod = object("Pod", "pod", Some(("ray.io/v1", "RayCluster", "cluster")), "");
        known.0.job("ray.io", "RayJob").unwrap().store.insert(Object::new(top.clone()).unwrap());
        assert_eq!(climb(&known, &pod, std::slice::from_ref(&cluster)), ("top".to_owned(), 1));
        let alone = object("RayCluster", "cluster", None, "lq");
        assert_eq!(climb(&known, &pod, &[alone]).0, "none", "its kind is not enabled");
        let mut other = top;
        other["metadata"]["uid"] = json!("another");
        let known = stores(&["ray.io/rayjob", "pod"]);
        known.0.job("ray.io", "RayJob").unwrap().store.insert(Object::new(other.clone()).unwrap());
        assert_eq!(climb(&known, &pod, &[cluster, other]), ("none".to_owned(), 2), "of that name is another now");
    }

    #[test]
    fn of_a_kind_that_is_enabled_without_being_watched_the_queue_counts() {
        let known = stores(&["deployment"]);
        let web = object("Deployment", "web", None, "lq");
        let set = object("ReplicaSet", "rs", Some(("apps/v1", "Deployment", "web")), "");
        let pod = object("Pod", "pod", Some(("apps/v1", "ReplicaSet", "rs")), "");
        assert_eq!(climb(&known, &pod, &[set, web]), ("web".to_owned(), 2));
        let unknown = object("Pod", "pod", Some(("example.com/v1", "Farm", "farm")), "");
        assert_eq!(climb(&known, &unknown, &[]), ("none".to_owned(), 0));
    }
}
