//! `switchyard describe queue`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use switchyard_api::conditions;
use switchyard_api::v1beta2::{ClusterQueue, LocalQueue, Workload};

use super::topology::{self, FlavorTopology};
use super::{NamedQueue, facts};
use crate::color::ColorChoice;
use crate::find::is_kind_of;
use crate::get::queues::{self, Queue};
use crate::status::{self, JobRow};
use crate::{paint, table};

/// Jobs that are listed of each kind; more are counted.
const SHOWN: usize = 20;

/// A queue and its jobs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    #[serde(flatten)]
    queue: Queue,
    /// Workloads that hold quota, oldest first.
    holding: Vec<JobRow>,
    /// Workloads that wait, by priority, then by age. Fair sharing and StrictFIFO may take them in another order.
    waiting: Vec<JobRow>,
    conditions: Vec<Condition>,
    /// Free and used capacity by domain, of the flavors with a topology.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    topologies: Vec<FlavorTopology>,
    /// Why the topologies are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    topologies_unreadable: Option<String>,
}

pub(super) async fn run(
    client: Client,
    own: &str,
    args: &NamedQueue,
    color: ColorChoice,
) -> anyhow::Result<String> {
    let described = match meant(own, args)? {
        (Some(namespace), name) => local(client, namespace, name).await?,
        (None, name) => global(client, name).await?,
    };
    args.output.render(&described, |it| paint::states(color, &text(it, Timestamp::now())))
}

/// Namespace and name of the queue; no namespace for a ClusterQueue. `own` is the kubeconfig's.
fn meant<'a>(own: &'a str, args: &'a NamedQueue) -> anyhow::Result<(Option<&'a str>, &'a str)> {
    let given = args.namespace.as_deref();
    let Some((kind, name)) = args.name.split_once('/') else {
        return Ok((given, &args.name));
    };
    match (is_kind_of(kind, &["clusterqueue", "cq"]), is_kind_of(kind, &["localqueue", "lq"])) {
        (true, _) if given.is_some() => {
            anyhow::bail!(
                "a ClusterQueue has no namespace; leave out -n, or name localqueue/{name}"
            )
        }
        (true, _) => Ok((None, name)),
        (_, true) => Ok((Some(given.unwrap_or(own)), name)),
        _ => anyhow::bail!(
            "\"{kind}\" is no kind of queue; name clusterqueue/{name} or localqueue/{name}"
        ),
    }
}

async fn local(client: Client, namespace: &str, name: &str) -> anyhow::Result<Described> {
    let queues: Api<LocalQueue> = Api::namespaced(client.clone(), namespace);
    let found = queues.get_opt(name).await;
    let found = found.map_err(|error| crate::with_hint(&error, "reading the LocalQueue"))?;
    let Some(object) = found else {
        anyhow::bail!(
            "no LocalQueue \"{name}\" in namespace {namespace}; `switchyard get queues -n {namespace}` lists them"
        );
    };
    let workloads = list(&Api::namespaced(client, namespace)).await?;
    let known = object.status.clone().unwrap_or_default().conditions;
    let is_of = |workload: &&Workload| workload.spec.queue_name.as_deref() == Some(name);
    Ok(described(queues::local_queue(&object), workloads.iter().filter(is_of), known))
}

async fn global(client: Client, name: &str) -> anyhow::Result<Described> {
    let queues: Api<ClusterQueue> = Api::all(client.clone());
    let found = queues.get_opt(name).await;
    let found = found.map_err(|error| crate::with_hint(&error, "reading the ClusterQueue"))?;
    let Some(object) = found else {
        anyhow::bail!(
            "no ClusterQueue \"{name}\"; `switchyard get queues` lists them, and -n NAMESPACE describes a LocalQueue"
        );
    };
    let local: Api<LocalQueue> = Api::all(client.clone());
    let local = local.list(&kube::api::ListParams::default()).await;
    let local = local.map_err(|error| crate::with_hint(&error, "listing LocalQueues"))?;
    let lead_here: std::collections::BTreeSet<(String, String)> = local
        .items
        .iter()
        .filter(|queue| queue.spec.cluster_queue.as_deref() == Some(name))
        .map(|queue| (queue.namespace().unwrap_or_default(), queue.name_any()))
        .collect();
    let workloads = list(&Api::all(client.clone())).await?;
    let topologies = topology::read(&client, &object).await;
    let known = object.status.clone().unwrap_or_default().conditions;
    // Quota stays with the queue that gave it, wherever the LocalQueue leads now.
    let is_of = |workload: &&Workload| {
        let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
        let queue = workload.spec.queue_name.clone().unwrap_or_default();
        admission.map_or_else(
            || lead_here.contains(&(workload.namespace().unwrap_or_default(), queue)),
            |admission| admission.cluster_queue == name,
        )
    };
    let mut described =
        described(queues::cluster_queue(&object), workloads.iter().filter(is_of), known);
    match topologies {
        Ok(topologies) => described.topologies = topologies,
        Err(error) => described.topologies_unreadable = Some(format!("{error:#}")),
    }
    Ok(described)
}

async fn list(workloads: &Api<Workload>) -> anyhow::Result<Vec<Workload>> {
    let found = status::list(workloads).await;
    found.map_err(|error| crate::with_hint(&error, "listing workloads"))
}

fn described<'a>(
    queue: Queue,
    workloads: impl Iterator<Item = &'a Workload>,
    known: Vec<Condition>,
) -> Described {
    let (mut holding, mut waiting) = (Vec::new(), Vec::new());
    for workload in workloads {
        let row = status::row(workload);
        let status = workload.status.as_ref();
        let holds =
            |type_| status.is_some_and(|status| conditions::is_true(&status.conditions, type_));
        if row.state.is_final() || !workload.spec.is_active() {
            continue;
        }
        if holds(conditions::QUOTA_RESERVED) { holding.push(row) } else { waiting.push(row) }
    }
    holding.sort_by(|a, b| (a.created, &a.job).cmp(&(b.created, &b.job)));
    waiting.sort_by(|a, b| {
        (std::cmp::Reverse(a.priority), a.created, &a.job).cmp(&(
            std::cmp::Reverse(b.priority),
            b.created,
            &b.job,
        ))
    });
    Described {
        queue,
        holding,
        waiting,
        conditions: known,
        topologies: Vec::new(),
        topologies_unreadable: None,
    }
}

fn text(it: &Described, now: Timestamp) -> String {
    let queue = &it.queue;
    let (title, parent) = match &queue.namespace {
        Some(namespace) => (("LocalQueue", format!("{namespace}/{}", queue.name)), "ClusterQueue"),
        None => (("ClusterQueue", queue.name.clone()), "Cohort"),
    };
    let mut out = facts(&[
        title,
        (parent, queue.parent.clone().unwrap_or_default()),
        ("State", queue.stopped.clone().unwrap_or_else(|| "Active".to_owned())),
        (
            "Workloads",
            format!(
                "{} wait, {} hold quota, {} of them admitted",
                queue.pending, queue.reserving, queue.admitted
            ),
        ),
    ]);
    if !queue.flavors.is_empty() {
        out.push('\n');
        out.push_str(&used(queue));
    }
    it.topologies.iter().for_each(|topology| out.push_str(&topology.text()));
    if let Some(error) = &it.topologies_unreadable {
        out.push_str(&format!("\nTopologies: not readable: {error}\n"));
    }
    for (title, rows) in [("Hold quota", &it.holding), ("Wait, by priority and age", &it.waiting)] {
        if rows.is_empty() {
            continue;
        }
        out.push_str(&format!("\n{title}:\n"));
        let shown = rows.get(..SHOWN.min(rows.len())).unwrap_or_default();
        out.push_str(&jobs(shown, now));
        if let Some(more) = rows.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            out.push_str(&format!("and {more} more\n"));
        }
    }
    out.push_str(&status::render_conditions(&it.conditions, now));
    out
}

fn used(queue: &Queue) -> String {
    let or_none = |text: Option<&String>| text.cloned().unwrap_or_else(|| "-".to_owned());
    let rows: Vec<[String; 5]> = queue
        .flavors
        .iter()
        .map(|usage| {
            [
                usage.flavor.clone(),
                usage.resource.clone(),
                or_none(usage.quota.as_ref()),
                usage.used.clone(),
                or_none(usage.borrowed.as_ref()),
            ]
        })
        .collect();
    table::render(["FLAVOR", "RESOURCE", "QUOTA", "USED", "BORROWED"], &rows)
}

/// The jobs in the order in which they are given.
fn jobs(rows: &[JobRow], now: Timestamp) -> String {
    let cells: Vec<[String; 6]> = rows
        .iter()
        .map(|row| {
            let age = row.created.map(|at| table::age(now.as_second() - at.as_second()));
            [
                format!("{}/{}", row.namespace, row.job),
                row.priority.to_string(),
                row.state.to_string(),
                row.cluster.clone().unwrap_or_else(|| "-".to_owned()),
                age.unwrap_or_else(|| "-".to_owned()),
                row.reason.clone(),
            ]
        })
        .collect();
    table::render(["JOB", "PRIORITY", "STATE", "CLUSTER", "AGE", "REASON"], &cells)
}

#[cfg(test)]
mod tests {
    use switchyard_scheduler::{Amount, DomainAmounts, DomainView, Name, TopologyView};

    use super::*;

    #[test]
    fn queue_is_named_as_get_prints_it() {
        let args = |name: &str, namespace: Option<&str>| NamedQueue {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            output: crate::Output::default(),
        };
        for (name, namespace, expected) in [
            ("gpu", None, (None, "gpu")),
            ("main", Some("team"), (Some("team"), "main")),
            ("clusterqueue/gpu", None, (None, "gpu")),
            ("ClusterQueue.kueue.x-k8s.io/gpu", None, (None, "gpu")),
            ("localqueue/main", Some("team"), (Some("team"), "main")),
            ("localqueues/main", None, (Some("own"), "main")),
        ] {
            assert_eq!(meant("own", &args(name, namespace)).unwrap(), expected, "{name}");
        }
        for (name, namespace) in [("clusterqueue/gpu", Some("team")), ("job/gpu", None)] {
            assert!(meant("own", &args(name, namespace)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_queue_shows_who_holds_quota_and_who_waits() {
        let workloads = status::samples::workloads();
        let queue = queues::cluster_queue(&queues::samples::gpu());
        let described = described(queue, workloads.iter(), Vec::new());
        insta::assert_snapshot!(text(&described, "2026-11-21T10:10:00Z".parse().unwrap()));
    }

    #[test]
    fn topology_shows_domains_with_free_and_used_capacity() {
        let domain = |level, values: &str, free: i64, workloads: i64| DomainView {
            level,
            values: values.split('/').map(Name::from).collect(),
            amounts: [(
                Name::from("nvidia.com/gpu"),
                DomainAmounts {
                    allocatable: Amount::new(free + workloads + 1),
                    others: Amount::new(1),
                    workloads: Amount::new(workloads),
                    free: Amount::new(free),
                },
            )]
            .into(),
        };
        let view = TopologyView {
            topology: "racks".into(),
            levels: vec!["rack".into(), "kubernetes.io/hostname".into()],
            domains: vec![
                domain(0, "r1", 5, 9),
                domain(1, "r1/h1", 5, 2),
                domain(1, "r1/h2", 0, 7),
            ],
        };
        insta::assert_snapshot!(FlavorTopology::new("gpu", &view).text().trim(), @r"
        Topology racks of flavor gpu, by rack / kubernetes.io/hostname:
        DOMAIN   RESOURCE         FREE   ALLOCATABLE   WORKLOADS   OTHER PODS
        r1       nvidia.com/gpu   5      15            9           1
          h1     nvidia.com/gpu   5      8             2           1
          h2     nvidia.com/gpu   0      8             7           1
        ");
    }
}
