//! `switchyard get clusters`, also `cluster list`.

use std::io::Write;

use jiff::Timestamp;
use kube::{Api, Client};
use switchyard_api::v1beta2::MultiKueueCluster;

use super::selection::all_found;
use super::{Format, Listed, render, render_change};
use crate::clusters::{self, ClusterRow};
use crate::color::{Color, ColorChoice};
use crate::follow::{Rows, follow_rows};

/// Arguments of `switchyard get clusters`.
#[derive(clap::Args, Debug, Default)]
pub struct Args {
    /// Only these clusters.
    #[arg(value_name = "CLUSTER", value_parser = crate::find::cluster)]
    pub clusters: Vec<String>,
    /// Only clusters whose MultiKueueCluster has these labels.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Also print the capacity that agents report, by queue, flavor and resource.
    #[arg(long, conflicts_with = "watch")]
    pub capacity: bool,
    /// Print the list, then a line for each change, until interrupted.
    #[arg(short, long)]
    pub watch: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Lists the clusters; with --watch, follows their changes.
///
/// # Errors
/// When the API cannot be read, or a cluster that was named is not there.
pub async fn run(
    client: Client,
    args: &Args,
    color: ColorChoice,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let api = Api::all(client);
    let found = clusters::select(&api, args.selector.as_deref()).await?;
    let all: Vec<ClusterRow> = found.iter().map(clusters::cluster_row).collect();
    all_found(&args.clusters, |name| all.iter().any(|cluster| cluster.name == name))?;
    let is_wanted =
        |cluster: &ClusterRow| args.clusters.is_empty() || args.clusters.contains(&cluster.name);
    let rows: Vec<ClusterRow> = all.into_iter().filter(|cluster| is_wanted(cluster)).collect();
    let is_table = matches!(args.output, Format::Table | Format::Wide);
    if rows.is_empty() && is_table && !args.watch {
        return crate::print(clusters::NONE, out);
    }
    let of_rows = |wide: bool| clusters::table(&rows, wide, Timestamp::now());
    let mut text = render(args.output, &rows, of_rows, color)?;
    if args.capacity && is_table {
        text.push('\n');
        text.push_str(&clusters::capacity(&rows));
    }
    crate::print(&text, out)?;
    if !args.watch {
        return Ok(());
    }
    let columns = of_rows(args.output == Format::Wide).0;
    let labels = args.selector.clone();
    let followed = Rows {
        read: clusters::cluster_row,
        is_wanted: |_: &MultiKueueCluster, row: &ClusterRow| is_wanted(row),
        line: change,
    };
    follow_rows(
        &api,
        labels.as_deref(),
        &found,
        followed,
        async |_| Ok(()),
        |mut row, is_deleted| {
            if is_deleted {
                "removed".clone_into(&mut row.message);
            }
            let cells = |wide: bool| clusters::cells(&row, wide, Timestamp::now());
            crate::print_while_read(&render_change(args.output, &row, &columns, cells, color)?, out)
        },
    )
    .await
}

/// The fields whose change prints a line. Capacity changes all the time and prints none.
fn change(row: &ClusterRow) -> String {
    let ClusterRow { connected, reason, message, scheduling, software, .. } = row;
    format!("{connected} {reason} {message} {scheduling:?} {software:?}")
}

impl Listed for ClusterRow {
    fn name(&self) -> String {
        format!("multikueuecluster/{}", self.name)
    }

    fn color(&self, column: &str) -> Option<Color> {
        let color = match (self.connected, &self.scheduling) {
            (false, _) => Color::Bad,
            (true, Some(_)) => Color::Waiting,
            (true, None) => Color::Good,
        };
        (column == "CONNECTED").then_some(color)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::samples;

    #[test]
    fn wide_table_has_cost_agent_and_reason() {
        let rows: Vec<ClusterRow> = samples::objects().iter().map(clusters::cluster_row).collect();
        let now = samples::NOW.parse().unwrap();
        let text = render(
            Format::Wide,
            &rows,
            |wide| clusters::table(&rows, wide, now),
            ColorChoice::Never,
        )
        .unwrap();
        insta::assert_snapshot!(text);
    }
}
