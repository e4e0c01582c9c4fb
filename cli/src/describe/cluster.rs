//! `switchyard describe cluster`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use switchyard_api::v1beta2::{MultiKueueCluster, Workload};

use super::{Global, facts};
use crate::clusters::{self, ClusterRow};
use crate::color::ColorChoice;
use crate::status::{self, JobRow, JobState};
use crate::{operate, paint, table};

/// Jobs that are listed; more are counted.
const SHOWN: usize = 20;

/// A cluster and what is on it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    #[serde(flatten)]
    cluster: ClusterRow,
    labels: std::collections::BTreeMap<String, String>,
    /// Workloads on the cluster that have not finished, oldest first.
    workloads: Vec<JobRow>,
    /// Workloads with the hub's mark of which the hub knows nothing.
    orphans: usize,
    conditions: Vec<Condition>,
}

pub(super) async fn run(
    client: Client,
    args: &Global,
    color: ColorChoice,
) -> anyhow::Result<String> {
    let object: MultiKueueCluster =
        operate::get_cluster(&Api::all(client.clone()), &args.name).await?;
    let workloads: Api<Workload> = Api::all(client);
    let found = status::list(&workloads).await;
    let found = found.map_err(|error| crate::with_hint(&error, "listing workloads"))?;
    args.output
        .render(&described(&object, &found), |it| paint::states(color, &text(it, Timestamp::now())))
}

fn described(object: &MultiKueueCluster, workloads: &[Workload]) -> Described {
    let cluster = clusters::cluster_row(object);
    let is_there =
        |row: &JobRow| row.cluster.as_ref() == Some(&cluster.name) && !row.state.is_final();
    let mut rows: Vec<JobRow> = workloads.iter().map(status::row).filter(is_there).collect();
    rows.sort_by(|a, b| (a.created, &a.namespace, &a.job).cmp(&(b.created, &b.namespace, &b.job)));
    let status = object.status.clone().unwrap_or_default();
    Described {
        labels: object.labels().clone(),
        workloads: rows,
        orphans: status.orphans.len(),
        conditions: status.conditions,
        cluster,
    }
}

fn text(it: &Described, now: Timestamp) -> String {
    let cluster = &it.cluster;
    let since = cluster.since.map(|since| table::age(now.as_second() - since.as_second()));
    let connected = if cluster.connected { "yes" } else { "no" };
    let labels: Vec<String> =
        it.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let running = it.workloads.iter().filter(|row| row.state == JobState::Running).count();
    let mut out = facts(&[
        ("Cluster", cluster.name.clone()),
        ("Link", cluster.link.to_owned()),
        (
            "Connected",
            since.map_or_else(|| connected.to_owned(), |it| format!("{connected}, for {it}")),
        ),
        ("Message", clusters::message(cluster)),
        ("Agent", cluster.software.clone().unwrap_or_default()),
        ("Cost", cluster.cost.map(|cost| cost.to_string()).unwrap_or_default()),
        ("Labels", labels.join(",")),
        ("Workloads", format!("{}, {running} of them running", it.workloads.len())),
        ("Orphans", if it.orphans == 0 { String::new() } else { it.orphans.to_string() }),
    ]);
    if !cluster.capacity.is_empty() {
        out.push('\n');
        out.push_str(&clusters::capacity(std::slice::from_ref(cluster)));
    }
    if !it.workloads.is_empty() {
        let shown = it.workloads.get(..SHOWN.min(it.workloads.len())).unwrap_or_default();
        out.push('\n');
        out.push_str(&status::render_text(shown, true, now));
        if let Some(more) = it.workloads.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            out.push_str(&format!(
                "and {more} more: switchyard get jobs -A --cluster {}\n",
                cluster.name
            ));
        }
    }
    out.push_str(&status::render_conditions(&it.conditions, now));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_shows_capacity_jobs_and_conditions() {
        let object = clusters::samples::objects().swap_remove(0);
        let workloads = status::samples::workloads();
        let described = described(&object, &workloads);
        insta::assert_snapshot!(text(&described, "2026-11-21T10:10:00Z".parse().unwrap()));
    }
}
