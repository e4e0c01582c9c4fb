//! `switchyard audit`: whether queues are charged for what their pods ask for, on one cluster, or on a hub and its workers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectList};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use switchyard_api::jobs::kinds;
use switchyard_audit::{Cluster, Finding, Owner, compare};

use crate::{Output, connect, explain, table};

/// Objects read at once.
const PAGE: u32 = 500;

/// The name of the cluster that the kubeconfig leads to.
const HERE: &str = "hub";

/// Arguments of `switchyard audit`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A worker cluster and the kubeconfig that leads to it; for each worker once. Without any, only the cluster of --kubeconfig is
    /// looked at.
    #[arg(long = "worker", value_name = "NAME=KUBECONFIG", value_parser = worker)]
    pub workers: Vec<(String, PathBuf)>,
    /// Only this namespace. What queues are charged in all is not known then, and not compared.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Look twice, so many seconds apart, and report what both looks find: an eviction, and a list that is read while something
    /// changes, look wrong for a moment. 0: look once.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=3600))]
    pub grace: u64,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

fn worker(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), PathBuf::from(path))),
        _ => Err("it takes NAME=KUBECONFIG, such as west=west.kubeconfig".to_owned()),
    }
}

/// What an audit came to.
#[derive(Debug)]
pub struct Audited {
    /// To be printed.
    pub text: String,
    /// Whether something was found.
    pub found: bool,
}

/// How much of a cluster was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Looked {
    /// Its name.
    pub cluster: String,
    /// Pods.
    pub pods: usize,
    /// Workloads.
    pub workloads: usize,
    /// ClusterQueues.
    pub cluster_queues: usize,
}

/// The result, as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What was looked at.
    pub looked_at: Vec<Looked>,
}

/// Audits a cluster, and the workers that are named.
///
/// # Errors
/// When a cluster cannot be read.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<Audited> {
    let mut workers = Vec::new();
    for (name, path) in &args.workers {
        let (client, _) = connect(Some(path), None).await.with_context(|| format!("worker {name}"))?;
        workers.push((name.clone(), client));
    }
    let name = if workers.is_empty() { "this cluster" } else { HERE };
    let mut report = look(&client, name, &workers, args.namespace.as_deref()).await?;
    if args.grace > 0 && !report.findings.is_empty() {
        tokio::time::sleep(Duration::from_secs(args.grace)).await;
        let again = look(&client, name, &workers, args.namespace.as_deref()).await?;
        let before: BTreeSet<String> = report.findings.iter().map(Finding::key).collect();
        report = Report {
            findings: again.findings.into_iter().filter(|finding| before.contains(&finding.key())).collect(),
            ..again
        };
    }
    let found = !report.findings.is_empty();
    Ok(Audited { text: args.output.render(&report, text)?, found })
}

async fn look(
    client: &Client,
    name: &str,
    workers: &[(String, Client)],
    namespace: Option<&str>,
) -> anyhow::Result<Report> {
    // Workers first: what the hub is charged for something must not have been given back since.
    let mut seen = Vec::new();
    for (name, client) in workers {
        seen.push(see(client, name, namespace).await.with_context(|| format!("worker {name}"))?);
    }
    let here = see(client, name, namespace).await?;
    let mut findings = switchyard_audit::audit(&here);
    findings.extend(seen.iter().flat_map(switchyard_audit::audit));
    findings.extend(compare(&here, &seen));
    let looked_at = std::iter::once(&here).chain(&seen).map(looked).collect();
    Ok(Report { findings, looked_at })
}

fn looked(cluster: &Cluster) -> Looked {
    Looked {
        cluster: cluster.name.clone(),
        pods: cluster.pods.len(),
        workloads: cluster.workloads.len(),
        cluster_queues: cluster.cluster_queues.len(),
    }
}

/// Lists what an audit looks at, one kind after the other: what changes in between looks wrong for a moment.
///
/// # Errors
/// When something cannot be listed; kinds that the cluster does not serve are left out.
pub async fn see(client: &Client, name: &str, namespace: Option<&str>) -> anyhow::Result<Cluster> {
    let is_whole = namespace.is_none();
    let mut cluster = Cluster { name: name.to_owned(), is_whole, ..Cluster::default() };
    let pods = async { all(&namespaced(client, namespace), "pods").await };
    let (pods, owners) = futures::future::try_join(pods, owners(client, namespace)).await?;
    (cluster.pods, cluster.owners) = (pods, owners);
    cluster.workloads = all(&namespaced(client, namespace), "workloads").await?;
    cluster.cluster_queues = all(&Api::all(client.clone()), "clusterqueues").await?;
    cluster.local_queues = all(&namespaced(client, namespace), "localqueues").await?;
    cluster.cohorts = all(&Api::all(client.clone()), "cohorts").await?;
    Ok(cluster)
}

fn namespaced<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

async fn all<K>(api: &Api<K>, plural: &str) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let list = async |params: &ListParams| api.list(params).await;
    pages(list).await.map_err(|error| explain(&error, &format!("listing {plural}")))
}

/// All pages of a list.
async fn pages<T: Clone>(list: impl AsyncFn(&ListParams) -> kube::Result<ObjectList<T>>) -> kube::Result<Vec<T>> {
    let (mut params, mut items) = (ListParams::default().limit(PAGE), Vec::new());
    loop {
        let page = list(&params).await?;
        items.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(items),
        }
    }
}

/// The metadata of all that may own pods.
async fn owners(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<Owner>> {
    let made_of_pods = ["ReplicaSet", "Deployment", "StatefulSet"];
    let apps = made_of_pods.map(|kind| ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind)));
    let jobs = kinds().iter().map(|kind| kind.id().api_resource());
    let resources = jobs.filter(|it| it.kind != "Pod" && !made_of_pods.contains(&it.kind.as_str())).chain(apps);
    let lists = resources.map(|resource| async move {
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        match pages(async |params: &ListParams| api.list_metadata(params).await).await {
            Ok(items) => {
                let owner = |meta| Owner { kind: resource.kind.clone(), meta };
                Ok(items.into_iter().map(|item| owner(item.metadata)).collect())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(anyhow!(explain(&error, &format!("listing {}.{}", resource.plural, resource.group)))),
        }
    });
    let lists: Vec<Vec<Owner>> = futures::future::try_join_all(lists).await?;
    Ok(lists.into_iter().flatten().collect())
}

fn text(report: &Report) -> String {
    let looked = report.looked_at.iter().map(|it| {
        format!(
            "{} pods, {} Workloads and {} ClusterQueues on {}",
            it.pods, it.workloads, it.cluster_queues, it.cluster
        )
    });
    let looked = looked.collect::<Vec<_>>().join("; ");
    if report.findings.is_empty() {
        return format!("Nothing is wrong with {looked}.\n");
    }
    let row = |it: &Finding| [it.kind.name().to_owned(), it.cluster.clone(), it.message.clone()];
    let rows: Vec<[String; 3]> = report.findings.iter().map(row).collect();
    format!("{}\nLooked at {looked}.\n", table::render(["FINDING", "CLUSTER", "WHAT"], &rows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(workload: &str, kind: &str) -> Vec<Finding> {
        let time = "2026-11-21T10:00:00Z";
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"kueue.x-k8s.io/pod-group-name": workload}},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]}, "status": {"phase": "Running"},
        });
        let condition =
            json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time});
        let workload = json!({
            "metadata": {"name": workload, "namespace": "ns"}, "spec": {"podSets": []},
            "status": {"conditions": [condition]},
        });
        let cluster = Cluster {
            name: "hub".into(),
            pods: vec![serde_json::from_value(pod).unwrap()],
            workloads: vec![serde_json::from_value(workload).unwrap()],
            ..Cluster::default()
        };
        switchyard_audit::audit(&cluster)
    }

    fn report(findings: Vec<Finding>) -> Report {
        let of = |cluster: &str| Looked { cluster: cluster.into(), pods: 12, workloads: 4, cluster_queues: 2 };
        Report { findings, looked_at: vec![of("hub"), of("west")] }
    }

    #[test]
    fn a_table_of_what_was_found_and_where_it_was_looked() {
        insta::assert_snapshot!(text(&report(found("w", "QuotaReserved"))), @r"
        FINDING                CLUSTER   WHAT
        RunsWithoutAdmission   hub       Pod ns/p runs, and Workload ns/w is not admitted

        Looked at 12 pods, 4 Workloads and 2 ClusterQueues on hub; 12 pods, 4 Workloads and 2 ClusterQueues on west.
        ");
        insta::assert_snapshot!(
            text(&report(Vec::new())),
            @"Nothing is wrong with 12 pods, 4 Workloads and 2 ClusterQueues on hub; 12 pods, 4 Workloads and 2 ClusterQueues on west."
        );
    }

    #[test]
    fn what_programs_read() {
        let json = Output::Json.render(&report(found("w", "QuotaReserved")), text).unwrap();
        insta::assert_snapshot!(json, @r#"
        {
          "findings": [
            {
              "kind": "RunsWithoutAdmission",
              "cluster": "hub",
              "objects": [
                {
                  "kind": "Pod",
                  "namespace": "ns",
                  "name": "p"
                },
                {
                  "kind": "Workload",
                  "namespace": "ns",
                  "name": "w"
                }
              ],
              "message": "Pod ns/p runs, and Workload ns/w is not admitted"
            }
          ],
          "lookedAt": [
            {
              "cluster": "hub",
              "pods": 12,
              "workloads": 4,
              "clusterQueues": 2
            },
            {
              "cluster": "west",
              "pods": 12,
              "workloads": 4,
              "clusterQueues": 2
            }
          ]
        }
        "#);
    }

    #[test]
    fn a_worker_has_a_name_and_a_kubeconfig() {
        assert_eq!(worker("west=a/b=c"), Ok(("west".to_owned(), PathBuf::from("a/b=c"))));
        for text in ["west", "=path", "west="] {
            assert!(worker(text).is_err(), "{text}");
        }
    }
}
