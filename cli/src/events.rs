//! `switchyard events JOB`: the events of a job and of its Workload.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use switchyard_api::v1beta2::Workload;

use crate::find::find;
use crate::{Output, status, table};

/// Arguments of `switchyard events`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A job (`NAME`, `KIND/NAME`), or a Workload.
    pub job: String,
    /// Namespace. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Debug, Serialize, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// When it happened last.
    pub last: Option<Timestamp>,
    pub count: i32,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    pub reason: String,
    /// KIND/NAME of the object.
    pub object: String,
    pub message: String,
}

/// Lists the events of one job.
///
/// # Errors
/// When the API cannot be read, or there is no such job; then close names are given.
pub async fn run(client: Client, namespace: &str, args: &Args) -> anyhow::Result<String> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let workloads: Api<Workload> = Api::namespaced(client.clone(), namespace);
    let found = status::list(&workloads).await;
    let found = found.map_err(|error| crate::with_hint(&error, "listing workloads"))?;
    let lines = of(&client, namespace, find(&found, namespace, &args.job)?).await?;
    args.output.render(&lines, |lines| text(lines, Timestamp::now()))
}

/// The events of a Workload and of its job, oldest first.
///
/// # Errors
/// When they cannot be read.
pub(crate) async fn of(
    client: &Client,
    namespace: &str,
    workload: &Workload,
) -> anyhow::Result<Vec<Line>> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let owners = workload.owner_references().iter().map(|owner| owner.uid.clone());
    let uids = owners.chain(workload.uid());
    let mut found = BTreeMap::new();
    for uid in uids {
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let listed = events.list(&params).await;
        let listed = listed.map_err(|error| crate::with_hint(&error, "listing events"))?;
        found.extend(listed.items.into_iter().map(|event| (event.name_any(), event)));
    }
    let mut lines: Vec<Line> = found.values().map(line).collect();
    lines.sort_by_key(|line| line.last);
    Ok(lines)
}

fn line(event: &Event) -> Line {
    let series = event.series.as_ref();
    let last = series
        .and_then(|series| series.last_observed_time.as_ref())
        .or(event.event_time.as_ref())
        .map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0).or(last);
    let object = &event.involved_object;
    Line {
        last: last.or_else(|| event.creation_timestamp().map(|time| time.0)),
        count: series.and_then(|series| series.count).or(event.count).unwrap_or(1),
        type_: event.type_.clone().unwrap_or_default(),
        reason: event.reason.clone().unwrap_or_default(),
        object: format!(
            "{}/{}",
            object.kind.as_deref().unwrap_or_default(),
            object.name.as_deref().unwrap_or_default()
        ),
        message: event.message.clone().unwrap_or_default(),
    }
}

/// The events as a table.
#[must_use]
pub(crate) fn text(lines: &[Line], now: Timestamp) -> String {
    if lines.is_empty() {
        return "No events. The API server keeps them for an hour, unless it is set up otherwise.\n"
            .to_owned();
    }
    let rows: Vec<[String; 6]> = lines
        .iter()
        .map(|line| {
            let age = line.last.map(|last| table::age(now.as_second() - last.as_second()));
            [
                age.unwrap_or_else(|| "-".to_owned()),
                line.count.to_string(),
                line.type_.clone(),
                line.reason.clone(),
                line.object.clone(),
                line.message.clone(),
            ]
        })
        .collect();
    table::render(["AGE", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_both_apis_show_when_they_happened_last() {
        let event = |value: serde_json::Value| serde_json::from_value::<Event>(value).unwrap();
        let object = serde_json::json!({"kind": "Job", "name": "train"});
        let lines = [
            line(&event(serde_json::json!({
                "metadata": {"name": "a"}, "involvedObject": object, "type": "Normal", "reason": "Dispatched",
                "message": "sent to east", "eventTime": "2026-11-21T10:00:00.000000Z",
            }))),
            line(&event(serde_json::json!({
                "metadata": {"name": "b"}, "involvedObject": object, "type": "Warning", "reason": "Unschedulable",
                "message": "0/1 nodes", "eventTime": "2026-11-21T10:00:00.000000Z",
                "series": {"count": 4, "lastObservedTime": "2026-11-21T10:04:00.000000Z"},
            }))),
        ];
        insta::assert_snapshot!(text(&lines, "2026-11-21T10:05:00Z".parse().unwrap()), @r"
        AGE    COUNT   TYPE      REASON          OBJECT      MESSAGE
        5m0s   1       Normal    Dispatched      Job/train   sent to east
        60s    4       Warning   Unschedulable   Job/train   0/1 nodes
        ");
    }
}
