//! `switchyard get jobs`.

use std::cell::RefCell;
use std::io::Write;

use jiff::Timestamp;
use kube::{Api, Client, ResourceExt as _};
use switchyard_api::v1beta2::Workload;

use super::selection::{Selection, all_found};
use super::{Format, Listed, render, render_change};
use crate::color::{Color, ColorChoice};
use crate::find::is_meant;
use crate::follow::{Rows, follow_rows};
use crate::status::{self, JobRow, ready};

/// Arguments of `switchyard get jobs`.
#[derive(clap::Args, Debug, Default)]
pub struct Args {
    /// Only these jobs: NAME, KIND/NAME, or the name of a Workload.
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Namespace. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "jobs"])]
    pub all_namespaces: bool,
    /// The filters.
    #[command(flatten)]
    pub selection: Selection,
    /// Print the list, then a line for each change, until interrupted. A job that leaves the list is printed once more. With -l, a job counts by the labels that it had when it was first seen.
    #[arg(short, long)]
    pub watch: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Lists the jobs; with --watch, follows their changes.
///
/// # Errors
/// When the API cannot be read, or a job that was named is not there.
pub async fn run(
    client: Client,
    namespace: &str,
    args: &Args,
    color: ColorChoice,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let scope = (!args.all_namespaces).then_some(namespace);
    let api: Api<Workload> = match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let found = status::list(&api).await;
    let found = found.map_err(|error| crate::with_hint(&error, "listing workloads"))?;
    let labelled = RefCell::new(args.selection.labelled(&client, scope, &found).await?);
    let is_wanted = |workload: &Workload, row: &JobRow| {
        let is_named = |name: &String| is_meant(workload, name);
        (args.jobs.is_empty() || args.jobs.iter().any(is_named))
            && labelled.borrow().as_ref().is_none_or(|it| it.has(workload))
            && args.selection.takes(row)
    };
    all_found(&args.jobs, |name| found.iter().any(|workload| is_meant(workload, name)))?;
    let mut rows: Vec<JobRow> = found
        .iter()
        .map(|workload| (workload, status::row(workload)))
        .filter(|(workload, row)| is_wanted(workload, row))
        .map(|(_, row)| row)
        .collect();
    ready::fill_in(&client, scope, &mut rows).await;
    rows.sort_by(|a, b| (a.created, &a.namespace, &a.job).cmp(&(b.created, &b.namespace, &b.job)));
    let table = |wide: bool| status::table(&rows, args.all_namespaces, wide, Timestamp::now());
    if !args.watch {
        if rows.is_empty() && matches!(args.output, Format::Table | Format::Wide) {
            return crate::print(NONE, out);
        }
        return crate::print(&render(args.output, &rows, table, color)?, out);
    }
    crate::print(&render(args.output, &rows, table, color)?, out)?;
    let columns = table(args.output == Format::Wide).0;
    let followed = Rows { read: status::row, is_wanted, line: change };
    let read_labels = async |workload: &Workload| {
        let unread = labelled.borrow().as_ref().map(|it| it.unread(workload)).unwrap_or_default();
        let namespace = workload.namespace().unwrap_or_default();
        for job in unread {
            let has_labels = args.selection.has_labels(&client, &namespace, &job).await;
            if let (Some(has_labels), Some(labelled)) = (has_labels, &mut *labelled.borrow_mut()) {
                labelled.record(job.uid, has_labels);
            }
        }
        anyhow::Ok(())
    };
    follow_rows(&api, None, &found, followed, read_labels, |mut row, is_deleted| {
        if is_deleted {
            "deleted".clone_into(&mut row.reason);
        }
        let (namespaces, now) = (args.all_namespaces, Timestamp::now());
        let cells = |wide: bool| status::cells(&row, namespaces, wide, now);
        crate::print_while_read(&render_change(args.output, &row, &columns, cells, color)?, out)
    })
    .await
}

const NONE: &str =
    "No queued jobs match. A job is queued by its label kueue.x-k8s.io/queue-name.\n";

/// The fields whose change prints a line.
fn change(row: &JobRow) -> String {
    let JobRow { state, cluster, attempt, ready, reason, queue, priority, .. } = row;
    format!("{state} {cluster:?} {attempt} {ready:?} {reason} {queue} {priority}")
}

impl Listed for JobRow {
    fn name(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.job)
    }

    fn color(&self, column: &str) -> Option<Color> {
        (column == "STATE").then(|| self.state.color())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{JobState, samples};

    const NOW: &str = "2026-11-21T10:10:00Z";

    fn listed(format: Format, color: ColorChoice) -> String {
        let rows: Vec<JobRow> = samples::workloads().iter().map(status::row).collect();
        let now = NOW.parse().unwrap();
        render(format, &rows, |wide| status::table(&rows, true, wide, now), color).unwrap()
    }

    #[test]
    fn wide_table_has_kind_workload_attempt_and_flavors() {
        insta::assert_snapshot!(listed(Format::Wide, ColorChoice::Never));
    }

    #[test]
    fn name_output_is_what_other_commands_take() {
        insta::assert_snapshot!(listed(Format::Name, ColorChoice::Never), @r"
        job/new
        job/waits
        job/dispatching
        job/runs
        job/stops
        job/done
        job/broken
        ");
    }

    #[test]
    fn states_are_coloured_and_columns_stay() {
        let plain = listed(Format::Table, ColorChoice::Never);
        let painted = listed(Format::Table, ColorChoice::Always);
        assert!(painted.contains("\x1b[32mRunning\x1b[0m"), "{painted}");
        let stripped = ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"]
            .iter()
            .fold(painted, |text, code| text.replace(code, ""));
        assert_eq!(stripped, plain);
    }

    #[test]
    fn filters_take_rows_that_pass_all() {
        let rows: Vec<JobRow> = samples::workloads().iter().map(status::row).collect();
        let taken = |selection: &Selection| -> Vec<String> {
            rows.iter().filter(|row| selection.takes(row)).map(|row| row.job.clone()).collect()
        };
        let all = Selection::default();
        assert_eq!(taken(&all).len(), rows.len());
        let on_east = Selection { cluster: Some("east".into()), ..all.clone() };
        assert_eq!(taken(&on_east), ["runs"]);
        let state = vec![JobState::Pending, JobState::Failed];
        assert_eq!(taken(&Selection { state, ..all.clone() }), ["new", "waits", "broken"]);
        assert!(taken(&Selection { queue: Some("other".into()), ..all }).is_empty());
    }

    #[test]
    fn labels_of_each_job_are_read_once() {
        use crate::get::selection::Labelled;
        let workload = &samples::workloads()[0];
        let owners = workload.owner_references().len();
        let mut labelled = Labelled::default();
        assert_eq!((labelled.unread(workload).len(), labelled.has(workload)), (owners, false));
        for owner in labelled.unread(workload) {
            labelled.record(owner.uid, true);
        }
        assert_eq!((labelled.unread(workload).len(), labelled.has(workload)), (0, true));
        assert!(owners > 0);
    }

    #[test]
    fn a_name_without_a_job_is_an_error() {
        let names = ["train".to_owned(), "trian".to_owned()];
        let error = all_found(&names, |name| name == "train").unwrap_err();
        assert_eq!(error.to_string(), "not found: trian");
    }
}
