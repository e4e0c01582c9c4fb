//! The rows of worker clusters, and the hidden command `clusters` of earlier versions.

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_api::{conditions, names};

use crate::table::{self, Columns};
use crate::{Output, operate};

/// Arguments of `switchyard clusters`.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Change a cluster. Default: list all.
    #[command(subcommand)]
    pub command: Option<operate::Command>,
    /// Also show capacity per queue, flavor and resource.
    #[arg(long)]
    pub capacity: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRow {
    pub name: String,
    /// `agent`, `kubeconfig` or `clusterProfile`.
    pub link: &'static str,
    /// Whether the hub can use it now.
    pub connected: bool,
    /// Time of the last change of `connected`.
    pub since: Option<Timestamp>,
    /// Reason of the `Active` condition.
    pub reason: String,
    /// Message of the `Active` condition.
    pub message: String,
    /// `cordon` or `drain`, if it gets no new workloads.
    pub scheduling: Option<String>,
    /// Version of the agent.
    pub software: Option<String>,
    /// Its cost, if one is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<i32>,
    /// The last reported capacity.
    pub capacity: Vec<QueueCapacity>,
}

/// Capacity for one resource of one flavor in one queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueCapacity {
    /// `namespace/name` of the LocalQueue.
    pub local_queue: String,
    pub flavor: String,
    pub resource: String,
    /// Nominal quota of the ClusterQueue.
    pub nominal: String,
    pub used: String,
    /// Available to a new job.
    pub available: String,
    /// Free on all nodes of the flavor together, if the cluster reports its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_on_nodes: Option<String>,
    /// Free on the node of the flavor that has most of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_on_one_node: Option<String>,
}

/// Lists the clusters or runs the subcommand.
///
/// # Errors
/// If the API cannot be read.
pub async fn run(client: kube::Client, args: &Args) -> anyhow::Result<String> {
    if let Some(command) = &args.command {
        return operate::run(client, command).await;
    }
    let clusters: Vec<ClusterRow> =
        list(&Api::all(client)).await?.iter().map(cluster_row).collect();
    args.output.render(&clusters, |clusters| render_text(clusters, args.capacity, Timestamp::now()))
}

pub(crate) async fn list(
    clusters: &Api<MultiKueueCluster>,
) -> anyhow::Result<Vec<MultiKueueCluster>> {
    select(clusters, None).await
}

/// The MultiKueueClusters with these labels.
pub(crate) async fn select(
    clusters: &Api<MultiKueueCluster>,
    labels: Option<&str>,
) -> anyhow::Result<Vec<MultiKueueCluster>> {
    let params = match labels {
        Some(labels) => ListParams::default().labels(labels),
        None => ListParams::default(),
    };
    let found = clusters.list(&params).await;
    Ok(found.map_err(|error| crate::with_hint(&error, "listing clusters"))?.items)
}

#[must_use]
pub fn cluster_row(object: &MultiKueueCluster) -> ClusterRow {
    let source = &object.spec.cluster_source;
    let status = object.status.clone().unwrap_or_default();
    let active = conditions::find(&status.conditions, conditions::ACTIVE);
    let agent = status.agent.unwrap_or_default();
    ClusterRow {
        name: object.name_any(),
        link: match (&source.agent, &source.kube_config) {
            (Some(_), _) => "agent",
            (_, Some(_)) => "kubeconfig",
            _ => "clusterProfile",
        },
        connected: active.is_some_and(|active| active.status == conditions::TRUE),
        since: active.map(|active| active.last_transition_time.0),
        reason: active.map(|active| active.reason.clone()).unwrap_or_default(),
        message: active.map(|active| active.message.clone()).unwrap_or_default(),
        scheduling: object.annotations().get(names::SCHEDULING).cloned(),
        software: agent.software,
        cost: object.spec.cost,
        capacity: agent.capacity.into_iter().map(queue_capacity).collect(),
    }
}

fn queue_capacity(capacity: switchyard_api::v1beta2::AgentCapacity) -> QueueCapacity {
    QueueCapacity {
        local_queue: capacity.local_queue,
        flavor: capacity.flavor,
        resource: capacity.resource,
        nominal: capacity.nominal.0,
        used: capacity.used.0,
        available: capacity.available.0,
        free_on_nodes: capacity.free_on_nodes.map(|free| free.0),
        free_on_one_node: capacity.free_on_one_node.map(|free| free.0),
    }
}

/// The text for an empty fleet.
pub(crate) const NONE: &str = "No clusters. `switchyard cluster add NAME` adds one.\n";

/// The clusters as tables.
#[must_use]
pub fn render_text(clusters: &[ClusterRow], capacity: bool, now: Timestamp) -> String {
    if clusters.is_empty() {
        return NONE.to_owned();
    }
    let (columns, cells) = table(clusters, false, now);
    let plain = |_: &str, text: &str| text.to_owned();
    let mut out = cells.iter().fold(columns.heading(), |out, row| out + &columns.line(row, plain));
    if capacity {
        out.push('\n');
        out.push_str(&self::capacity(clusters));
    }
    out
}

/// The capacity of these clusters as a table.
pub(crate) fn capacity(clusters: &[ClusterRow]) -> String {
    let rooms = clusters
        .iter()
        .flat_map(|cluster| cluster.capacity.iter().map(|room| (&cluster.name, room)));
    let unknown = || "-".to_owned();
    let rows: Vec<[String; 9]> = rooms
        .map(|(name, room)| {
            [
                name.clone(),
                room.local_queue.clone(),
                room.flavor.clone(),
                room.resource.clone(),
                room.nominal.clone(),
                room.used.clone(),
                room.available.clone(),
                room.free_on_nodes.clone().unwrap_or_else(unknown),
                room.free_on_one_node.clone().unwrap_or_else(unknown),
            ]
        })
        .collect();
    let headings = [
        "CLUSTER",
        "QUEUE",
        "FLAVOR",
        "RESOURCE",
        "QUOTA",
        "USED",
        "AVAILABLE",
        "ON NODES",
        "ON ONE",
    ];
    table::render(headings, &rows)
}

/// The columns and cells of the clusters. `wide` adds columns.
pub(crate) fn table(
    rows: &[ClusterRow],
    wide: bool,
    now: Timestamp,
) -> (Columns, Vec<Vec<String>>) {
    let mut headings = vec!["CLUSTER", "LINK", "CONNECTED", "SINCE"];
    if wide {
        headings.extend(["COST", "AGENT", "REASON"]);
    }
    headings.push("MESSAGE");
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, wide, now)).collect();
    (Columns::new(&headings, &cells), cells)
}

/// The cells of one row of [`table`].
pub(crate) fn cells(row: &ClusterRow, wide: bool, now: Timestamp) -> Vec<String> {
    let since = row.since.map(|since| table::age(now.as_second() - since.as_second()));
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut cells = vec![
        row.name.clone(),
        row.link.to_owned(),
        if row.connected { "yes" } else { "no" }.to_owned(),
        or_none(since),
    ];
    if wide {
        cells.extend([
            or_none(row.cost.map(|cost| cost.to_string())),
            or_none(row.software.clone()),
            row.reason.clone(),
        ]);
    }
    cells.push(message(row));
    cells
}

/// The message of a cluster's condition, with its cordon or drain.
pub(crate) fn message(cluster: &ClusterRow) -> String {
    let message = if cluster.message.is_empty() { "not looked at yet" } else { &cluster.message };
    match cluster.scheduling.as_deref() {
        Some(names::CORDON) => format!("{message}; cordoned"),
        Some(names::DRAIN) => format!("{message}; drained"),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::MultiKueueCluster;

    pub(crate) const NOW: &str = "2026-11-21T10:05:30Z";

    /// A connected cluster with an agent, a cordoned one, and one that the hub has not reached.
    pub(crate) fn objects() -> Vec<MultiKueueCluster> {
        let active = serde_json::json!({"type": "Active", "status": "True", "reason": "Active", "message": "Connected",
            "lastTransitionTime": "2026-11-21T10:00:00Z"});
        let object = |name: &str, annotations, spec, status| {
            serde_json::from_value(serde_json::json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
                "metadata": {"name": name, "annotations": annotations}, "spec": spec, "status": status,
            }))
            .unwrap()
        };
        let capacity = serde_json::json!([{"localQueue": "team/main", "clusterQueue": "cq", "flavor": "h100",
            "resource": "nvidia.com/gpu", "nominal": "8", "used": "3", "available": "5", "freeOnNodes": "4", "freeOnOneNode": "2"}]);
        vec![
            object(
                "east",
                serde_json::json!({}),
                serde_json::json!({"clusterSource": {"agent": {}}, "cost": 2}),
                serde_json::json!({"conditions": [active], "agent": {"software": "switchyard-agent 0.1.0", "capacity": capacity}}),
            ),
            object(
                "north",
                serde_json::json!({"switchyard.dev/scheduling": "cordon"}),
                serde_json::json!({"clusterSource": {"agent": {}}}),
                serde_json::json!({"conditions": [active]}),
            ),
            object(
                "west",
                serde_json::json!({}),
                serde_json::json!({"clusterSource": {"kubeConfig": {"location": "west"}}}),
                serde_json::json!(null),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_show_link_and_connection_message() {
        let clusters: Vec<ClusterRow> = samples::objects().iter().map(cluster_row).collect();
        insta::assert_snapshot!(render_text(&clusters, true, samples::NOW.parse().unwrap()), @r"
        CLUSTER   LINK         CONNECTED   SINCE   MESSAGE
        east      agent        yes         5m30s   Connected
        north     agent        yes         5m30s   Connected; cordoned
        west      kubeconfig   no          -       not looked at yet

        CLUSTER   QUEUE       FLAVOR   RESOURCE         QUOTA   USED   AVAILABLE   ON NODES   ON ONE
        east      team/main   h100     nvidia.com/gpu   8       3      5           4          2
        ");
    }

    #[test]
    fn empty_fleet_names_the_first_command() {
        assert!(render_text(&[], false, Timestamp::UNIX_EPOCH).contains("cluster add NAME"));
    }
}
