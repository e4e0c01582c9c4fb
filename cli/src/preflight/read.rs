//! Reads a cluster and its workers. It writes nothing but access reviews, which leave no object.

use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PartialObjectMeta};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt as _};
use switchyard_hub_pki::kubeconfig::{self, ExecPlugins};
use switchyard_platform::api_server;

use super::Args;
use super::assess::{FleetFacts, Installation};
use super::census::{Census, ClusterLink, full_name};
use super::release::Release;
use super::settings::Settings;
use super::workers::{Right, Unread, Worker, WorkerFacts};
use crate::check::{missing_on_worker, server, within};

const GROUP: &str = "kueue.x-k8s.io";
/// Objects per list request.
const PAGE: u32 = 500;
/// Workers that are read at once.
const AT_ONCE: usize = 8;
/// For a connection to a worker.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// For all reads of one worker.
const WORKER_TIME: Duration = Duration::from_secs(60);
const DEPLOYMENT: &str = "kueue-controller-manager";
/// The ConfigMap of the configuration file, and the file's key.
const FILE_MAP: &str = "kueue-manager-config";
const FILE_KEY: &str = "controller_manager_config.yaml";

pub(super) async fn read(client: &Client, args: &Args) -> anyhow::Result<FleetFacts> {
    let server = server(client).await.map_err(|error| {
        anyhow::anyhow!("reading the version: {error}; can the cluster be reached with kubectl?")
    })?;
    let mut unread = Vec::new();
    let crds = or_note(crds(client).await, "CRDs", &mut unread);
    let mut census = Census::default();
    for crd in crds.iter().flatten() {
        let counted = count(client, crd, &mut census).await;
        or_note(counted, &crd.spec.names.plural, &mut unread);
    }
    let namespace = &args.kueue_namespace;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployments = within(deployments.list(&ListParams::default())).await;
    let deployments = or_note(deployments, "Deployments", &mut unread);
    let deployment = deployments.and_then(|list| manager(list.items));
    let settings = Settings {
        file: match &args.kueue_config {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                Some(text.with_context(|| format!("--kueue-config {}", path.display()))?)
            }
            None => file(client, namespace, &mut unread).await,
        },
        gates: deployment.as_ref().map(gates).unwrap_or_default(),
    };
    let workers: Vec<Worker> = if args.skip_workers {
        let skipped =
            |link: &ClusterLink| unread_worker(link, Unread::Skipped("--skip-workers".to_owned()));
        census.links.iter().map(skipped).collect()
    } else {
        let links = futures::stream::iter(&census.links);
        links.map(|link| worker(client, namespace, link)).buffered(AT_ONCE).collect().await
    };
    Ok(FleetFacts {
        kubernetes: server.version,
        uid: or_note(cluster_uid(client).await, "Namespaces", &mut unread).flatten(),
        kueue: Installation {
            namespace: namespace.clone(),
            is_there: deployment.is_some(),
            release: args.kueue_version.or_else(|| deployment.as_ref().and_then(release)),
            is_of_helm: deployment.as_ref().is_some_and(|it| {
                it.labels().get("app.kubernetes.io/managed-by").is_some_and(|by| by == "Helm")
            }),
        },
        settings,
        crds,
        census,
        workers,
        unread,
    })
}

/// The CRDs of Kueue's group. Only their names are listed: a cluster may have hundreds of CRDs with
/// large schemas.
async fn crds(client: &Client) -> Result<Vec<CustomResourceDefinition>, String> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let names = within(api.list_metadata(&ListParams::default())).await?;
    let names = names.items.into_iter().map(|it| it.name_any());
    let mut crds = Vec::new();
    for name in names.filter(|name| name.ends_with(&format!(".{GROUP}"))) {
        crds.push(within(api.get(&name)).await?);
    }
    Ok(crds)
}

/// The value, or a note of why there is none.
fn or_note<T>(result: Result<T, String>, what: &str, unread: &mut Vec<String>) -> Option<T> {
    result.map_err(|error| unread.push(format!("{what}: {error}"))).ok()
}

/// Records all objects of a CRD, page by page, so that memory does not grow with their size. For a
/// kind that Switchyard lacks, only names are read.
async fn count(
    client: &Client,
    crd: &CustomResourceDefinition,
    census: &mut Census,
) -> Result<(), String> {
    let versions = &crd.spec.versions;
    let version = versions
        .iter()
        .find(|it| it.served && it.name == "v1beta2")
        .or_else(|| versions.iter().find(|it| it.served && it.storage))
        .or_else(|| versions.iter().find(|it| it.served))
        .ok_or_else(|| "no version is served".to_owned())?;
    let kind = &crd.spec.names.kind;
    let gvk = GroupVersionKind::gvk(GROUP, &version.name, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &crd.spec.names.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let is_known = census.knows(&crd.name_any());
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let metadata = if is_known {
            let list = within(api.list(&page)).await?;
            for object in &list.items {
                let mut object = serde_json::to_value(object).map_err(|error| error.to_string())?;
                object["apiVersion"] = resource.api_version.clone().into();
                census.record(kind, &object);
            }
            list.metadata
        } else {
            let list = within(api.list_metadata(&page)).await?;
            let name = |it: &PartialObjectMeta<_>| {
                full_name(&it.namespace().unwrap_or_default(), &it.name_any())
            };
            let names: Vec<String> = list.items.iter().map(name).collect();
            census.record_unknown(&crd.spec.names.plural, kind, &names);
            list.metadata
        };
        match metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => return Ok(()),
        }
    }
}

/// Kueue's Deployment, by its name, else by its image.
fn manager(deployments: Vec<Deployment>) -> Option<Deployment> {
    let mut found = None;
    for deployment in deployments {
        if deployment.name_any() == DEPLOYMENT {
            return Some(deployment);
        }
        let is_kueue = image(&deployment).and_then(image_name) == Some("kueue");
        if found.is_none() && is_kueue && release(&deployment).is_some() {
            found = Some(deployment);
        }
    }
    found
}

fn image(deployment: &Deployment) -> Option<&str> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let manager = pod.containers.iter().find(|it| it.name == "manager");
    manager.or_else(|| pod.containers.first())?.image.as_deref()
}

/// The last part of an image's path, without tag and digest.
fn image_name(image: &str) -> Option<&str> {
    image.split('@').next()?.rsplit('/').next()?.split(':').next()
}

fn release(deployment: &Deployment) -> Option<Release> {
    let label = || deployment.labels().get("app.kubernetes.io/version").cloned();
    image(deployment).and_then(Release::of_image).or_else(|| Release::parse(&label()?).ok())
}

/// The value of `--feature-gates`, in either form of a flag.
fn gates(deployment: &Deployment) -> String {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let words: Vec<&str> = pod
        .into_iter()
        .flat_map(|pod| &pod.containers)
        .flat_map(|it| it.command.iter().chain(&it.args).flatten())
        .map(String::as_str)
        .collect();
    let flag = "--feature-gates";
    let joined = words.iter().find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
    let apart = || words.iter().skip_while(|word| **word != flag).nth(1).copied();
    joined.or_else(apart).unwrap_or_default().to_owned()
}

async fn file(client: &Client, namespace: &str, unread: &mut Vec<String>) -> Option<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let maps = or_note(within(maps.list(&ListParams::default())).await, "ConfigMaps", unread)?;
    let mut maps = maps.items;
    maps.sort_by_key(|map| map.name_any() != FILE_MAP);
    maps.into_iter().find_map(|map| map.data?.remove(FILE_KEY))
}

async fn cluster_uid(client: &Client) -> Result<Option<String>, String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    Ok(within(namespaces.get_opt("kube-system")).await?.and_then(|it| it.metadata.uid))
}

fn unread_worker(link: &ClusterLink, why: Unread) -> Worker {
    Worker { link: link.clone(), facts: Err(why) }
}

/// Reads a worker with the kubeconfig of its Secret, as the manager does.
async fn worker(client: &Client, namespace: &str, link: &ClusterLink) -> Worker {
    if link.kind != "Secret" {
        let why = format!("only the manager's pods have its {} {}", link.kind, link.location);
        return unread_worker(link, Unread::Skipped(why));
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let failed = |why: String| unread_worker(link, Unread::Failed(why));
    let refused = |why: String| unread_worker(link, Unread::Refused(why));
    let secret = match within(secrets.get_opt(&link.location)).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return refused(format!("there is no Secret {namespace}/{}", link.location)),
        Err(why) => return failed(format!("reading the Secret {}: {why}", link.location)),
    };
    let Some(bytes) = secret.data.and_then(|mut data| data.remove("kubeconfig")) else {
        return refused(format!("the Secret {} has no key kubeconfig", link.location));
    };
    // The hub's rule comes before any use: a refused kubeconfig runs no program and reads no file.
    let kubeconfig = match kubeconfig::parse(&bytes.0, ExecPlugins::Refused) {
        Ok(kubeconfig) => kubeconfig,
        Err(why) => return refused(why.to_string()),
    };
    match tokio::time::timeout(WORKER_TIME, Box::pin(worker_facts(kubeconfig))).await {
        Ok(Ok(facts)) => Worker { link: link.clone(), facts: Ok(facts) },
        Ok(Err(why)) => failed(why),
        Err(_) => failed(format!("not read within {} s", WORKER_TIME.as_secs())),
    }
}

async fn worker_facts(kubeconfig: Kubeconfig) -> Result<WorkerFacts, String> {
    let options = KubeConfigOptions::default();
    let config = api_server::of_kubeconfig(kubeconfig, &options).await;
    let mut config = config.map_err(|error| error.to_string())?;
    config.connect_timeout = Some(CONNECT_TIME);
    let client = crate::client::new(config).map_err(|error| error.to_string())?;
    server(&client).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kueue-system");
    let deployments = within(deployments.list(&ListParams::default())).await;
    let missing = missing_on_worker(&client).await?;
    Ok(WorkerFacts {
        // Accounts of MultiKueue often may not read it.
        uid: cluster_uid(&client).await.unwrap_or_default(),
        kueue: deployments.ok().and_then(|list| release(&manager(list.items)?)),
        missing: missing
            .iter()
            .map(|right| Right { text: right.text(), resource: right.resource_path() })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn manager_is_found_by_name_or_image() {
        let deployment = |name: &str, image: &str, args: &[&str]| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"selector": {}, "template": {"spec": {"containers": [
                    {"name": "manager", "image": image, "args": args}]}}},
            }))
            .unwrap()
        };
        let other = deployment("other", "registry/proxy:v1.2.3", &[]);
        let kueue = deployment(
            "batch-controller-manager",
            "registry.k8s.io/kueue/kueue:v0.20.0",
            &["--feature-gates=A=true,B=false"],
        );
        let found = manager(vec![other.clone(), kueue]).unwrap();
        assert_eq!(release(&found), Some(Release::new(0, 20, 0)));
        assert_eq!(gates(&found), "A=true,B=false");
        let apart =
            deployment(DEPLOYMENT, "kueue", &["--zap-log-level=2", "--feature-gates", "A=true"]);
        assert_eq!(gates(&apart), "A=true");
        assert_eq!(release(&apart), None);
        assert_eq!(manager(vec![apart]).unwrap().name_any(), DEPLOYMENT);
        assert!(manager(vec![other]).is_none());
    }
}
