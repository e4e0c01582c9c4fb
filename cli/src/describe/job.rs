//! `switchyard describe job`.

use jiff::Timestamp;
use kube::{Api, Client};
use serde::Serialize;
use switchyard_api::v1beta2::Workload;

use super::Named;
use crate::color::ColorChoice;
use crate::events::{self, Line};
use crate::find::find;
use crate::paint;
use crate::status::{self, Detail, JobState};

/// Everything known of a job, and its events.
#[derive(Debug, Serialize)]
struct Described {
    #[serde(flatten)]
    detail: Detail,
    events: Vec<Line>,
    /// Why there are no events.
    #[serde(skip)]
    unreadable: Option<String>,
}

pub(super) async fn run(
    client: Client,
    namespace: &str,
    args: &Named,
    color: ColorChoice,
) -> anyhow::Result<String> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let workloads: Api<Workload> = Api::namespaced(client.clone(), namespace);
    let found = status::list(&workloads).await;
    let found = found.map_err(|error| crate::with_hint(&error, "listing workloads"))?;
    let workload = find(&found, namespace, &args.name)?;
    let mut detail = status::detail(workload);
    status::ready::fill_in(&client, Some(namespace), std::slice::from_mut(&mut detail.row)).await;
    let (events, unreadable) = match events::of(&client, namespace, workload).await {
        Ok(events) => (events, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let described = Described { detail, events, unreadable };
    args.output.render(&described, |it| paint::states(color, &text(it, Timestamp::now())))
}

fn text(described: &Described, now: Timestamp) -> String {
    let Described { detail, events, unreadable } = described;
    let mut out = status::render_detail(detail, now);
    out.push_str("\nEvents:\n");
    match unreadable {
        Some(error) => out.push_str(&format!("not readable: {error}\n")),
        None => out.push_str(&events::text(events, now)),
    }
    if matches!(detail.row.state, JobState::Pending | JobState::QuotaReserved) {
        out.push_str(&format!(
            "\n`switchyard why {} -n {}` explains why it waits.\n",
            detail.row.job, detail.row.namespace
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_shows_its_attempts_and_events() {
        let detail = status::detail(&status::samples::moved());
        let event = Line {
            last: Some("2026-11-21T10:02:00Z".parse().unwrap()),
            count: 1,
            type_: "Normal".into(),
            reason: "Dispatched".into(),
            object: "Job/moved".into(),
            message: "sent to west".into(),
        };
        let described = Described { detail, events: vec![event], unreadable: None };
        insta::assert_snapshot!(text(&described, "2026-11-21T10:10:00Z".parse().unwrap()));
    }
}
