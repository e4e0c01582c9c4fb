//! Checks what a hub and its workers must agree on: connections, queues, job kinds, clocks.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use switchyard_api::v1beta2::{AgentCapacity, ClusterQueue, MultiKueueCluster, MultiKueueConfig};
use switchyard_api::{conditions, names};

use super::Args;
use super::cluster::{compare_clocks, is_overdue, shorten};
use super::explain::CheckName;
use super::facts::ClusterFacts;
use super::report::Line;

/// Minor versions by which hub and agent may differ.
const MAX_MINOR_SKEW: u32 = 1;

/// Limit of the schema for `status.agent.capacity`. A full list may be incomplete.
const MAX_ROWS: usize = 256;

/// Checks each worker's connection and version by the hub's objects.
pub(super) fn check_links(hub: &ClusterFacts, only: &[String]) -> Vec<Line> {
    let clusters = match &hub.clusters {
        Ok(clusters) => clusters,
        Err(error) => return vec![Line::unread(CheckName::Clusters, error)],
    };
    let mut lines: Vec<Line> = Vec::new();
    for name in only.iter().filter(|name| !clusters.iter().any(|it| it.name_any() == **name)) {
        lines.push(Line::failure(
            CheckName::Clusters,
            format!("there is no MultiKueueCluster \"{name}\""),
            format!("switchyard cluster add {name}"),
        ));
    }
    if clusters.is_empty() && only.is_empty() {
        return vec![Line::warning(
            CheckName::Clusters,
            "the hub has no workers",
            "switchyard cluster add NAME",
        )];
    }
    for cluster in selected(clusters, only) {
        lines.push(check_link(cluster));
        lines.extend(check_version(cluster));
        lines.extend(super::skew::check_agent_clock(cluster));
        lines.extend(check_listed(hub, cluster));
    }
    lines
}

fn selected<'a>(
    clusters: &'a [MultiKueueCluster],
    only: &'a [String],
) -> impl Iterator<Item = &'a MultiKueueCluster> {
    clusters.iter().filter(move |cluster| is_selected(&cluster.name_any(), only))
}

/// Whether a cluster is among those of `--cluster`.
pub(super) fn is_selected(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|it| it == name)
}

fn check_link(cluster: &MultiKueueCluster) -> Line {
    let name = cluster.name_any();
    let status = cluster.status.as_ref();
    let active = status.and_then(|status| conditions::find(&status.conditions, conditions::ACTIVE));
    let has_agent = cluster.spec.cluster_source.agent.is_some();
    let Some(active) = active else {
        let mend = "see `leader`: a hub that runs looks at each MultiKueueCluster within seconds";
        return Line::failure(
            CheckName::Clusters,
            format!("{name}: the hub has not looked at it"),
            mend,
        );
    };
    if active.status == conditions::TRUE {
        let cordoned = match cluster.annotations().get(names::SCHEDULING).map(String::as_str) {
            Some(names::CORDON) => ", cordoned",
            Some(names::DRAIN) => ", drained",
            _ => "",
        };
        let since = active.last_transition_time.0;
        return Line::ok(
            CheckName::Clusters,
            format!("{name} is connected since {since}{cordoned}"),
        );
    }
    let mend = match active.reason.as_str() {
        "DuplicateCluster" => "delete one of the two MultiKueueClusters".to_owned(),
        "OtherCluster" | "OwnCluster" => {
            format!("make {name} lead to the cluster that it is named after")
        }
        _ if has_agent => format!(
            "on the worker: `switchyard check --context {name}`, and the agent's log. If the MultiKueueCluster was deleted and made again, \
             `switchyard cluster add {name}` gives the agent a new token"
        ),
        _ => format!(
            "`switchyard cluster add {name} --with-kubeconfig FILE` replaces its kubeconfig"
        ),
    };
    Line::failure(
        CheckName::Clusters,
        format!("{name} is not connected: {}: {}", active.reason, active.message),
        mend,
    )
}

/// Hub and agent may be one minor version apart.
fn check_version(cluster: &MultiKueueCluster) -> Option<Line> {
    cluster.spec.cluster_source.agent.as_ref()?;
    let software = cluster.status.as_ref()?.agent.as_ref()?.software.clone()?;
    let own = switchyard_api::build::VERSION;
    let minor = |version: &str| {
        let mut numbers = version.split(['.', '-', ' ']).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let name = cluster.name_any();
    match (minor(&software), minor(own)) {
        (Some(agent), Some(own_minor))
            if agent.0 == own_minor.0 && agent.1.abs_diff(own_minor.1) <= MAX_MINOR_SKEW =>
        {
            Some(Line::ok(
                CheckName::AgentVersion,
                format!("{name} has an agent of version {software}"),
            ))
        }
        (Some(_), Some(_)) => Some(Line::failure(
            CheckName::AgentVersion,
            format!("{name} has an agent of version {software}, this is {own}"),
            format!(
                "upgrade the agent of {name} to {own}: hub and agents may be one minor version apart"
            ),
        )),
        _ => Some(Line::unread(
            CheckName::AgentVersion,
            &format!("{name} says version {software:?}"),
        )),
    }
}

/// A cluster that no MultiKueueConfig lists gets no jobs.
fn check_listed(hub: &ClusterFacts, cluster: &MultiKueueCluster) -> Option<Line> {
    let configs = hub.multikueue_configs.as_ref().ok()?;
    let name = cluster.name_any();
    let is_listed = configs.iter().any(|config| config.spec.clusters.contains(&name));
    (!is_listed).then(|| {
        let mend = format!(
            "add {name} to spec.clusters of the MultiKueueConfig that your ClusterQueues' AdmissionCheck names"
        );
        Line::warning(CheckName::Clusters, format!("no MultiKueueConfig lists {name}: no job is sent there"), mend)
    })
}

/// A MultiKueue AdmissionCheck of a ClusterQueue.
pub(super) struct Dispatch<'a> {
    pub(super) config: &'a MultiKueueConfig,
    /// It applies to jobs in these flavors alone; to all if empty.
    pub(super) on_flavors: &'a [String],
}

/// How a ClusterQueue dispatches; empty if it does not.
pub(super) fn dispatches<'a>(
    hub: &'a ClusterFacts,
    queue: &'a ClusterQueue,
) -> impl Iterator<Item = Dispatch<'a>> {
    let checks = hub.checks.as_deref().unwrap_or_default();
    let configs = hub.multikueue_configs.as_deref().unwrap_or_default();
    queue.spec.admission_checks().iter().filter_map(|rule| {
        let check = checks.iter().find(|it| it.name_any() == rule.name)?;
        let parameters = check.spec.parameters.as_ref().filter(|_| check.spec.is_multi_kueue())?;
        let config = configs.iter().find(|it| it.name_any() == parameters.name)?;
        Some(Dispatch { config, on_flavors: &rule.on_flavors })
    })
}

/// Clusters that a ClusterQueue dispatches to; empty if it does not dispatch.
fn destinations(hub: &ClusterFacts, queue: &ClusterQueue) -> BTreeSet<String> {
    dispatches(hub, queue).flat_map(|it| it.config.spec.clusters.clone()).collect()
}

/// Checks that each dispatching LocalQueue exists on its workers, as far as they report their
/// queues.
pub(super) fn check_queues(hub: &ClusterFacts, only: &[String]) -> Vec<Line> {
    let (clusters, cluster_queues, local_queues) =
        match (&hub.clusters, &hub.cluster_queues, &hub.local_queues) {
            (Ok(clusters), Ok(cluster_queues), Ok(local_queues)) => {
                (clusters, cluster_queues, local_queues)
            }
            (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => {
                return vec![Line::unread(CheckName::Queues, error)];
            }
        };
    let (mut lines, mut untold, mut sending) = (Vec::new(), Vec::new(), 0);
    for queue in local_queues {
        let Some(cluster_queue) =
            cluster_queues.iter().find(|it| it.name_any() == cluster_queue_of(queue))
        else {
            let message = format!(
                "LocalQueue {}: there is no ClusterQueue {}",
                full_name(queue),
                cluster_queue_of(queue)
            );
            lines.push(Line::failure(
                CheckName::Queues,
                message,
                "make the ClusterQueue, or delete the LocalQueue",
            ));
            continue;
        };
        let to = destinations(hub, cluster_queue);
        let workers: Vec<&MultiKueueCluster> =
            clusters.iter().filter(|it| to.contains(&it.name_any())).collect();
        if to.is_empty() || !to.iter().any(|name| is_selected(name, only)) {
            continue;
        }
        match selected(clusters, only)
            .any(|it| to.contains(&it.name_any()) && capacity(it).is_some())
        {
            false => untold.push(full_name(queue)),
            true => sending += 1,
        }
        let lacks: Vec<String> = workers
            .iter()
            .filter(|it| lacks_queue(it, &full_name(queue)))
            .map(|it| it.name_any())
            .collect();
        let (namespace, name) = (queue.namespace().unwrap_or_default(), queue.name_any());
        let mend = format!(
            "on these workers, make namespace {namespace} and in it a LocalQueue {name} with a ClusterQueue behind it"
        );
        if !lacks.iter().any(|name| is_selected(name, only)) {
            continue;
        }
        let message = format!("LocalQueue {} is not on {}", full_name(queue), shorten(&lacks));
        lines.push(match lacks.len() == workers.len() {
            true => Line::failure(
                CheckName::Queues,
                format!("{message}, the only workers that it sends to: its jobs wait for ever"),
                mend,
            ),
            false => Line::warning(
                CheckName::Queues,
                format!("{message}: its jobs go to the others"),
                mend,
            ),
        });
    }
    if !untold.is_empty() {
        let message = format!(
            "not checked: no worker tells its queues that LocalQueue {} sends to",
            shorten(&untold)
        );
        lines.push(Line::warning(
            CheckName::Queues,
            message,
            "see `clusters`; `switchyard check --worker NAME=FILE` looks at the worker itself",
        ));
    }
    if lines.is_empty() {
        lines.push(match sending {
            0 => Line::warning(
                CheckName::Queues,
                "no LocalQueue sends jobs to workers",
                "a ClusterQueue sends when it has an AdmissionCheck of kueue.x-k8s.io/multikueue",
            ),
            count => Line::ok(
                CheckName::Queues,
                format!("{count} LocalQueues that send are on their workers"),
            ),
        });
    }
    lines
}

pub(super) fn full_name(queue: &switchyard_api::v1beta2::LocalQueue) -> String {
    format!("{}/{}", queue.namespace().unwrap_or_default(), queue.name_any())
}

pub(super) fn cluster_queue_of(queue: &switchyard_api::v1beta2::LocalQueue) -> &str {
    queue.spec.cluster_queue.as_deref().unwrap_or_default()
}

/// The capacity of a connected worker, if it reports all its queues.
pub(super) fn capacity(cluster: &MultiKueueCluster) -> Option<&[AgentCapacity]> {
    let status = cluster.status.as_ref()?;
    let agent = status.agent.as_ref().filter(|agent| agent.capacity.len() < MAX_ROWS)?;
    conditions::is_true(&status.conditions, conditions::ACTIVE).then_some(&agent.capacity)
}

fn lacks_queue(cluster: &MultiKueueCluster, queue: &str) -> bool {
    capacity(cluster).is_some_and(|all| !all.iter().any(|quota| quota.local_queue == queue))
}

/// Names the clusters of `--cluster` whose kinds are not compared: the hub's objects lack them.
pub(super) fn check_kinds(hub: &ClusterFacts, args: &Args) -> Option<Line> {
    let is_compared = |name: &String| args.workers.iter().any(|(worker, _)| worker == name);
    let all = hub.clusters.as_deref().unwrap_or_default().iter().map(kube::ResourceExt::name_any);
    let names: Vec<String> =
        all.filter(|name| args.clusters.contains(name) && !is_compared(name)).collect();
    let name = names.first()?;
    Some(Line::warning(
        CheckName::Kinds,
        format!(
            "not compared with {}: the hub's objects do not name its kinds of jobs",
            shorten(&names)
        ),
        format!("switchyard check --worker {name}=KUBECONFIG compares both configurations"),
    ))
}

/// Compares hub and worker by the worker's own objects: clocks, job kinds, namespaces.
pub(super) fn compare_worker(hub: &ClusterFacts, worker: &ClusterFacts, name: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    if let (Ok(hub), Ok(worker)) = (&hub.server, &worker.server)
        && let (Some(first), Some(second)) = (hub.ahead, worker.ahead)
    {
        lines.push(compare_clocks(
            CheckName::Clocks,
            &format!("the clock of {name}"),
            second - first,
            "the hub",
        ));
    }
    lines.extend(compare_kinds(hub, worker, name));
    lines.extend(compare_namespaces(hub, worker, name));
    lines
}

fn compare_kinds(hub: &ClusterFacts, worker: &ClusterFacts, name: &str) -> Option<Line> {
    // Stock Kueue keeps its configuration elsewhere.
    worker.mode()?;
    let (Some(first), Some(second)) = (hub.config(), worker.config()) else {
        return Some(Line::unread(CheckName::Kinds, "a configuration cannot be read"));
    };
    let there: BTreeSet<String> = second.all_frameworks().into_iter().collect();
    let lacks: Vec<String> =
        first.all_frameworks().into_iter().filter(|kind| !there.contains(kind)).collect();
    Some(if lacks.is_empty() {
        Line::ok(CheckName::Kinds, format!("{name} has all kinds of jobs that the hub has"))
    } else {
        let mend = format!(
            "add them to integrations.frameworks of {name}, or allow these jobs elsewhere only"
        );
        Line::failure(
            CheckName::Kinds,
            format!("{name} does not run {}, which the hub sends", shorten(&lacks)),
            mend,
        )
    })
}

fn compare_namespaces(hub: &ClusterFacts, worker: &ClusterFacts, name: &str) -> Option<Line> {
    let (queues, there) = (hub.local_queues.as_ref().ok()?, worker.namespaces.as_ref().ok()?);
    let sends = |queue: &&switchyard_api::v1beta2::LocalQueue| {
        let all = hub.cluster_queues.as_deref().unwrap_or_default();
        all.iter().any(|it| {
            it.name_any() == cluster_queue_of(queue) && destinations(hub, it).contains(name)
        })
    };
    let wanted: BTreeSet<String> =
        queues.iter().filter(sends).filter_map(|queue| queue.namespace()).collect();
    let lacks: Vec<String> = wanted
        .into_iter()
        .filter(|it| !there.iter().any(|other| other.name_any() == *it))
        .collect();
    Some(if lacks.is_empty() {
        Line::ok(
            CheckName::Namespaces,
            format!("{name} has the namespaces of the queues that send there"),
        )
    } else {
        let mend =
            format!("kubectl create namespace {} on {name}, with its LocalQueues", lacks.join(" "));
        Line::failure(
            CheckName::Namespaces,
            format!("{name} lacks namespace {}: jobs from there cannot run", shorten(&lacks)),
            mend,
        )
    })
}

/// Warns if no hub leads: then the status of clusters is stale.
pub(super) fn check_freshness(hub: &ClusterFacts) -> Option<Line> {
    let lease = hub.lease.as_ref().ok()?.as_ref()?.spec.as_ref()?;
    let age = hub.seconds_since(lease.renew_time.as_ref()?);
    is_overdue(lease, age).then(|| {
        let message = format!("no hub leads: what follows is as it was {age} s ago");
        Line::warning(CheckName::Freshness, message, "see `leader`")
    })
}
