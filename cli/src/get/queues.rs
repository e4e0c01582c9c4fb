//! `switchyard get queues`: ClusterQueues, or the LocalQueues of a namespace.

use std::io::Write;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use switchyard_api::conditions;
use switchyard_api::v1beta2::{ClusterQueue, LocalQueue, StopPolicy};

use super::selection::all_found;
use super::{Format, Listed, render, render_change};
use crate::color::{Color, ColorChoice};
use crate::follow::{Rows, follow_rows};
use crate::table::{self, Columns};

/// Arguments of `switchyard get queues`.
#[derive(clap::Args, Debug, Default)]
pub struct Args {
    /// Only these queues.
    #[arg(value_name = "QUEUE")]
    pub queues: Vec<String>,
    /// The LocalQueues of this namespace. Default: the ClusterQueues.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The LocalQueues of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only queues with these labels, such as team=vision,stage!=test.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Print the list, then lines for each change, until interrupted.
    #[arg(short, long)]
    pub watch: bool,
    /// Output format. `wide` has a row for each flavor and resource.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

#[derive(Debug, Serialize, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Namespace of a LocalQueue; none of a ClusterQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    /// Cohort of a ClusterQueue, or ClusterQueue of a LocalQueue.
    pub parent: Option<String>,
    pub pending: i32,
    pub reserving: i32,
    pub admitted: i32,
    /// Why it admits nothing: `Hold`, `HoldAndDrain`, the reason of its condition `Active`, or
    /// `Unknown` while it has no such condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    pub flavors: Vec<Use>,
    pub created: Option<Timestamp>,
}

/// Quota and use of one resource of one flavor.
#[derive(Debug, Serialize, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    pub flavor: String,
    pub resource: String,
    /// Nominal quota; none for a LocalQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
    /// Reserved by workloads of the queue.
    pub used: String,
    /// The part of `used` that comes from the cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<String>,
}

impl Args {
    fn is_local(&self) -> bool {
        self.namespace.is_some() || self.all_namespaces
    }
}

/// Lists the queues; with --watch, follows their changes.
///
/// # Errors
/// When the API cannot be read, or a queue that was named is not there.
pub async fn run(
    client: Client,
    args: &Args,
    color: ColorChoice,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if args.is_local() {
        let api: Api<LocalQueue> = match args.namespace.as_deref() {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        return list(&api, local_queue, "LocalQueues", args, color, out).await;
    }
    let api: Api<ClusterQueue> = Api::all(client);
    list(&api, cluster_queue, "ClusterQueues", args, color, out).await
}

async fn list<K>(
    api: &Api<K>,
    read: fn(&K) -> Queue,
    kind: &str,
    args: &Args,
    color: ColorChoice,
    out: &mut impl Write,
) -> anyhow::Result<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let is_local = args.is_local();
    let labels = args.selector.as_deref();
    let params = labels.map_or_else(ListParams::default, |it| ListParams::default().labels(it));
    let found = api.list(&params).await.map_err(|error| {
        let is_denied = matches!(&error, kube::Error::Api(status) if status.code == 403);
        let error = crate::with_hint(&error, &format!("listing {kind}"));
        if is_local || !is_denied {
            error
        } else {
            error.context("-n NAMESPACE lists the LocalQueues of a namespace")
        }
    })?;
    let all: Vec<Queue> = found.items.iter().map(read).collect();
    all_found(&args.queues, |name| all.iter().any(|queue| queue.name == name))?;
    let is_wanted = |queue: &Queue| args.queues.is_empty() || args.queues.contains(&queue.name);
    let mut rows: Vec<Queue> = all.into_iter().filter(|queue| is_wanted(queue)).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let is_wide = args.output == Format::Wide;
    if rows.is_empty() && (is_wide || args.output == Format::Table) && !args.watch {
        return crate::print(&format!("No {kind}.\n"), out);
    }
    let (wide_columns, wide_cells) = wide(&rows, is_local);
    let text = if is_wide {
        wide_columns.heading() + &lines(&wide_columns, &wide_cells)
    } else {
        render(args.output, &rows, |_| table(&rows, is_local, Timestamp::now()), color)?
    };
    crate::print(&text, out)?;
    if !args.watch {
        return Ok(());
    }
    let columns = table(&rows, is_local, Timestamp::now()).0;
    let followed = Rows { read, is_wanted: |_: &K, queue: &Queue| is_wanted(queue), line: change };
    follow_rows(
        api,
        labels,
        &found.items,
        followed,
        async |_| Ok(()),
        |mut queue, is_deleted| {
            if is_deleted {
                queue.stopped = Some("Deleted".to_owned());
            }
            let text = if is_wide {
                lines(&wide_columns, &wide(std::slice::from_ref(&queue), is_local).1)
            } else {
                let cells = |_: bool| cells(&queue, Timestamp::now());
                render_change(args.output, &queue, &columns, cells, color)?
            };
            crate::print_while_read(&text, out)
        },
    )
    .await
}

/// The fields whose change prints lines.
fn change(queue: &Queue) -> String {
    let Queue { parent, pending, admitted, stopped, flavors, .. } = queue;
    format!("{parent:?} {pending} {admitted} {stopped:?} {flavors:?}")
}

/// A ClusterQueue as a row.
#[must_use]
pub fn cluster_queue(object: &ClusterQueue) -> Queue {
    let status = object.status.clone().unwrap_or_default();
    let mut flavors = Vec::new();
    for quotas in object.spec.resource_groups.iter().flat_map(|group| &group.flavors) {
        let usage = status.flavors_reservation.iter().find(|usage| usage.name == quotas.name);
        for quota in &quotas.resources {
            let usage = usage
                .and_then(|usage| usage.resources.iter().find(|usage| usage.name == quota.name));
            let used = usage.map_or_else(|| "0".to_owned(), |usage| usage.total.0.clone());
            let borrowed = usage.map(|usage| usage.borrowed.0.clone());
            flavors.push(Use {
                flavor: quotas.name.clone(),
                resource: quota.name.clone(),
                quota: Some(quota.nominal_quota.0.clone()),
                used,
                borrowed: borrowed.filter(|amount| !amount.is_empty() && amount != "0"),
            });
        }
    }
    Queue {
        namespace: None,
        name: object.name_any(),
        parent: object.spec.cohort_name.clone(),
        pending: status.pending_workloads,
        reserving: status.reserving_workloads,
        admitted: status.admitted_workloads,
        stopped: stopped(object.spec.stop_policy, &status.conditions),
        flavors,
        created: object.creation_timestamp().map(|time| time.0),
    }
}

/// A LocalQueue as a row.
#[must_use]
pub fn local_queue(object: &LocalQueue) -> Queue {
    let status = object.status.clone().unwrap_or_default();
    let used = status.flavors_reservation.iter().flat_map(|flavor| {
        flavor.resources.iter().map(|usage| Use {
            flavor: flavor.name.clone(),
            resource: usage.name.clone(),
            quota: None,
            used: usage.total.0.clone(),
            borrowed: None,
        })
    });
    Queue {
        namespace: object.namespace(),
        name: object.name_any(),
        parent: object.spec.cluster_queue.clone(),
        pending: status.pending_workloads,
        reserving: status.reserving_workloads,
        admitted: status.admitted_workloads,
        stopped: stopped(object.spec.stop_policy, &status.conditions),
        flavors: used.collect(),
        created: object.creation_timestamp().map(|time| time.0),
    }
}

fn stopped(
    policy: StopPolicy,
    known: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
) -> Option<String> {
    if policy != StopPolicy::None {
        return Some(format!("{policy:?}"));
    }
    match conditions::find(known, conditions::ACTIVE) {
        Some(active) if active.status == conditions::TRUE => None,
        Some(active) => Some(active.reason.clone()),
        // The controller has not written the condition yet.
        None => Some("Unknown".to_owned()),
    }
}

impl Listed for Queue {
    fn name(&self) -> String {
        let kind = if self.namespace.is_some() { "localqueue" } else { "clusterqueue" };
        format!("{kind}/{}", self.name)
    }

    fn color(&self, column: &str) -> Option<Color> {
        let color = if self.stopped.is_none() { Color::Good } else { Color::Bad };
        (column == "STATE").then_some(color)
    }
}

fn table(rows: &[Queue], is_local: bool, now: Timestamp) -> (Columns, Vec<Vec<String>>) {
    let headings: &[&str] = if is_local {
        &["NAMESPACE", "QUEUE", "CLUSTERQUEUE", "STATE", "PENDING", "ADMITTED", "AGE", "USED"]
    } else {
        &["QUEUE", "COHORT", "STATE", "PENDING", "ADMITTED", "AGE", "USED/QUOTA"]
    };
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, now)).collect();
    (Columns::new(headings, &cells), cells)
}

fn cells(row: &Queue, now: Timestamp) -> Vec<String> {
    let age = row.created.map(|at| table::age(now.as_second() - at.as_second()));
    let mut cells: Vec<String> = row.namespace.iter().cloned().collect();
    cells.extend([
        row.name.clone(),
        row.parent.clone().unwrap_or_else(|| "-".to_owned()),
        row.stopped.clone().unwrap_or_else(|| "Active".to_owned()),
        row.pending.to_string(),
        row.admitted.to_string(),
        age.unwrap_or_else(|| "-".to_owned()),
        summary(&row.flavors),
    ]);
    cells
}

/// Use by flavor in one cell, such as `h100: nvidia.com/gpu 3/8, cpu 12/64`.
fn summary(flavors: &[Use]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (at, usage) in flavors.iter().enumerate() {
        let amount = match &usage.quota {
            Some(quota) => format!("{} {}/{quota}", usage.resource, usage.used),
            None => format!("{} {}", usage.resource, usage.used),
        };
        let before = at.checked_sub(1).and_then(|before| flavors.get(before));
        match parts.last_mut() {
            Some(last) if before.is_some_and(|before| before.flavor == usage.flavor) => {
                last.push_str(&format!(", {amount}"));
            }
            _ => parts.push(format!("{}: {amount}", usage.flavor)),
        }
    }
    parts.join("; ")
}

/// A row for each flavor and resource.
fn wide(rows: &[Queue], is_local: bool) -> (Columns, Vec<Vec<String>>) {
    let or_none = |text: Option<&String>| text.cloned().unwrap_or_else(|| "-".to_owned());
    let mut cells = Vec::new();
    for queue in rows {
        for usage in &queue.flavors {
            let mut row: Vec<String> = queue.namespace.iter().cloned().collect();
            row.extend([
                queue.name.clone(),
                or_none(queue.parent.as_ref()),
                usage.flavor.clone(),
                usage.resource.clone(),
            ]);
            if !is_local {
                row.push(or_none(usage.quota.as_ref()));
            }
            row.push(usage.used.clone());
            if !is_local {
                row.push(or_none(usage.borrowed.as_ref()));
            }
            row.extend([queue.pending.to_string(), queue.admitted.to_string()]);
            cells.push(row);
        }
    }
    let headings: &[&str] = if is_local {
        &["NAMESPACE", "QUEUE", "CLUSTERQUEUE", "FLAVOR", "RESOURCE", "USED", "PENDING", "ADMITTED"]
    } else {
        &[
            "QUEUE", "COHORT", "FLAVOR", "RESOURCE", "QUOTA", "USED", "BORROWED", "PENDING",
            "ADMITTED",
        ]
    };
    (Columns::new(headings, &cells), cells)
}

fn lines(columns: &Columns, cells: &[Vec<String>]) -> String {
    let plain = |_: &str, text: &str| text.to_owned();
    cells.iter().map(|row| columns.line(row, plain)).collect()
}

#[cfg(test)]
pub(crate) mod samples {
    use serde_json::json;
    use switchyard_api::v1beta2::{ClusterQueue, LocalQueue};

    /// A ClusterQueue in use that borrows.
    pub(crate) fn gpu() -> ClusterQueue {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
            "metadata": {"name": "gpu", "creationTimestamp": "2026-11-21T10:00:00Z"},
            "spec": {"cohortName": "all", "resourceGroups": [{
                "coveredResources": ["cpu", "nvidia.com/gpu"],
                "flavors": [
                    {"name": "h100", "resources": [{"name": "cpu", "nominalQuota": "64"},
                        {"name": "nvidia.com/gpu", "nominalQuota": "8"}]},
                    {"name": "a100", "resources": [{"name": "cpu", "nominalQuota": "32"},
                        {"name": "nvidia.com/gpu", "nominalQuota": "4"}]},
                ],
            }]},
            "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-11-21T10:00:00Z"}],
                "pendingWorkloads": 7, "reservingWorkloads": 3, "admittedWorkloads": 2, "flavorsReservation": [
                {"name": "h100", "resources": [{"name": "cpu", "total": "12"},
                    {"name": "nvidia.com/gpu", "total": "10", "borrowed": "2"}]},
            ]},
        }))
        .unwrap()
    }

    /// A LocalQueue that is held.
    pub(crate) fn team() -> LocalQueue {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": "team", "creationTimestamp": "2026-11-21T10:00:00Z"},
            "spec": {"clusterQueue": "gpu", "stopPolicy": "Hold"},
            "status": {"pendingWorkloads": 2, "admittedWorkloads": 1, "reservingWorkloads": 1, "flavorsReservation": [
                {"name": "h100", "resources": [{"name": "cpu", "total": "4"}]}]},
        }))
        .unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    fn wide_text(rows: &[Queue], is_local: bool) -> String {
        let (columns, cells) = wide(rows, is_local);
        columns.heading() + &lines(&columns, &cells)
    }

    #[test]
    fn cluster_queues_show_use_beside_quota() {
        let rows = [cluster_queue(&samples::gpu())];
        let text = render(Format::Table, &rows, |_| table(&rows, false, now()), ColorChoice::Never);
        insta::assert_snapshot!(text.unwrap(), @r"
        QUEUE   COHORT   STATE    PENDING   ADMITTED   AGE    USED/QUOTA
        gpu     all      Active   7         2          120m   h100: cpu 12/64, nvidia.com/gpu 10/8; a100: cpu 0/32, nvidia.com/gpu 0/4
        ");
        insta::assert_snapshot!(wide_text(&rows, false), @r"
        QUEUE   COHORT   FLAVOR   RESOURCE         QUOTA   USED   BORROWED   PENDING   ADMITTED
        gpu     all      h100     cpu              64      12     -          7         2
        gpu     all      h100     nvidia.com/gpu   8       10     2          7         2
        gpu     all      a100     cpu              32      0      -          7         2
        gpu     all      a100     nvidia.com/gpu   4       0      -          7         2
        ");
    }

    #[test]
    fn queue_without_a_condition_is_not_shown_as_active() {
        let mut queue = samples::gpu();
        let state = |queue: &ClusterQueue| cluster_queue(queue).stopped;
        assert_eq!(state(&queue), None);
        let status = queue.status.as_mut().unwrap();
        status.conditions[0].status = "False".into();
        status.conditions[0].reason = "FlavorNotFound".into();
        assert_eq!(state(&queue).as_deref(), Some("FlavorNotFound"));
        queue.status.as_mut().unwrap().conditions.clear();
        assert_eq!(state(&queue).as_deref(), Some("Unknown"));
    }

    #[test]
    fn local_queues_show_why_they_admit_nothing() {
        let rows = [local_queue(&samples::team())];
        let text = render(Format::Table, &rows, |_| table(&rows, true, now()), ColorChoice::Never);
        insta::assert_snapshot!(text.unwrap(), @r"
        NAMESPACE   QUEUE   CLUSTERQUEUE   STATE   PENDING   ADMITTED   AGE    USED
        team        main    gpu            Hold    2         1          120m   h100: cpu 4
        ");
        insta::assert_snapshot!(wide_text(&rows, true), @r"
        NAMESPACE   QUEUE   CLUSTERQUEUE   FLAVOR   RESOURCE   USED   PENDING   ADMITTED
        team        main    gpu            h100     cpu        4      2         1
        ");
    }
}
