//! The rows and details of jobs, and the hidden command `status [JOB]` of earlier versions.

mod detail;
pub(crate) mod ready;
#[cfg(test)]
pub(crate) mod samples;

use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use switchyard_api::v1beta2::Workload;

use crate::Output;
use crate::find::find;
use crate::table::{self, Columns};

pub use crate::job_row::{JobRow, JobState, ReadyPods, row};
pub use detail::{Detail, detail};
pub(crate) use detail::{render_conditions, render_text as render_detail};

/// Arguments of `switchyard status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A job (`NAME`, `job/NAME`) or a Workload, to show everything about it. Default: list all.
    pub job: Option<String>,
    /// Namespace. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "job"])]
    pub all_namespaces: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Workloads per list request; a hub may have hundreds of thousands.
const PAGE: u32 = 500;

/// Lists the jobs, or shows one.
///
/// # Errors
/// If the API cannot be read, or if there is no such job; the message then names similar ones.
pub async fn run(client: kube::Client, namespace: &str, args: &Args) -> anyhow::Result<String> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let workloads: Api<Workload> = if args.all_namespaces {
        Api::all(client.clone())
    } else {
        Api::namespaced(client.clone(), namespace)
    };
    let found =
        list(&workloads).await.map_err(|error| crate::with_hint(&error, "listing workloads"))?;
    let now = Timestamp::now();
    match &args.job {
        None => {
            let mut rows: Vec<JobRow> = found.iter().map(row).collect();
            ready::fill_in(&client, (!args.all_namespaces).then_some(namespace), &mut rows).await;
            args.output.render(&rows, |rows| render_text(rows, args.all_namespaces, now))
        }
        Some(job) => {
            let mut detail = detail(find(&found, namespace, job)?);
            ready::fill_in(&client, Some(namespace), std::slice::from_mut(&mut detail.row)).await;
            args.output.render(&detail, |detail| detail::render_text(detail, now))
        }
    }
}

pub(crate) async fn list(workloads: &Api<Workload>) -> Result<Vec<Workload>, kube::Error> {
    let mut params = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = workloads.list(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return Ok(found),
        }
    }
}

/// The rows as a table, oldest first.
#[must_use]
pub fn render_text(rows: &[JobRow], namespaces: bool, now: Timestamp) -> String {
    if rows.is_empty() {
        return "No queued jobs. A job is queued by its label kueue.x-k8s.io/queue-name.\n"
            .to_owned();
    }
    let mut rows: Vec<&JobRow> = rows.iter().collect();
    rows.sort_by(|a, b| (a.created, &a.namespace, &a.job).cmp(&(b.created, &b.namespace, &b.job)));
    let rows: Vec<JobRow> = rows.into_iter().cloned().collect();
    let (columns, cells) = table(&rows, namespaces, false, now);
    let plain = |_: &str, text: &str| text.to_owned();
    cells.iter().fold(columns.heading(), |out, cells| out + &columns.line(cells, plain))
}

/// The columns and cells of the rows, in their order. `wide` adds columns.
pub(crate) fn table(
    rows: &[JobRow],
    namespaces: bool,
    wide: bool,
    now: Timestamp,
) -> (Columns, Vec<Vec<String>>) {
    let mut headings = vec!["JOB", "QUEUE", "PRIORITY", "STATE", "READY", "CLUSTER", "AGE"];
    if namespaces {
        headings.insert(0, "NAMESPACE");
    }
    if wide {
        headings.extend(["KIND", "WORKLOAD", "ATTEMPT", "FLAVORS"]);
    }
    headings.push("REASON");
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| cells(row, namespaces, wide, now)).collect();
    (Columns::new(&headings, &cells), cells)
}

/// The cells of one row of [`table`].
pub(crate) fn cells(row: &JobRow, namespaces: bool, wide: bool, now: Timestamp) -> Vec<String> {
    let age = row.created.map(|created| table::age(now.as_second() - created.as_second()));
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut cells = Vec::with_capacity(13);
    if namespaces {
        cells.push(row.namespace.clone());
    }
    cells.extend([
        row.job.clone(),
        row.queue.clone(),
        row.priority.to_string(),
        row.state.to_string(),
        or_none(row.ready.map(|ready| ready.to_string())),
        or_none(row.cluster.clone()),
        or_none(age),
    ]);
    if wide {
        let flavors = (!row.flavors.is_empty()).then(|| row.flavors.join(","));
        cells.extend([
            row.kind.clone(),
            row.workload.clone(),
            row.attempt.to_string(),
            or_none(flavors),
        ]);
    }
    cells.push(row.reason.clone());
    cells
}

#[cfg(test)]
mod tests;
