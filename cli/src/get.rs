//! `switchyard get jobs | clusters | queues`.

pub mod clusters;
pub mod jobs;
pub mod queues;
mod selection;

use clap::Subcommand;
use serde::Serialize;

use crate::Output;
use crate::color::{Color, ColorChoice};
use crate::table::Columns;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List jobs: state, ready pods, cluster, and why they wait
    #[command(
        visible_alias = "job",
        after_help = "Examples:\n  switchyard get jobs -A\n  switchyard get jobs --state pending,evicted --queue gpu -w\n  \
                      switchyard get jobs -l team=vision --cluster east -o name"
    )]
    Jobs(jobs::Args),
    /// List worker clusters: how they are reached, whether they are connected, and since when
    #[command(
        visible_alias = "cluster",
        after_help = "Examples:\n  switchyard get clusters\n  switchyard get clusters --capacity\n  switchyard get clusters -o wide"
    )]
    Clusters(clusters::Args),
    /// List queues: quota, use, and how many jobs wait
    #[command(
        visible_aliases = ["queue", "localqueues", "clusterqueues"],
        after_help = "Examples:\n  switchyard get queues\n  switchyard get queues -n team\n  switchyard get queues -A -o wide"
    )]
    Queues(queues::Args),
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A table.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// YAML. Fields are only ever added.
    Yaml,
    /// JSON, with the same fields.
    Json,
    /// KIND/NAME, a line each.
    Name,
}

/// A row of a list.
trait Listed: Serialize {
    /// KIND/NAME.
    fn name(&self) -> String;
    /// The colour of a cell, if it has one.
    fn color(&self, column: &str) -> Option<Color>;
}

/// Prints a list that has been read.
fn render<R: Listed>(
    format: Format,
    rows: &[R],
    table: impl FnOnce(bool) -> (Columns, Vec<Vec<String>>),
    color: ColorChoice,
) -> anyhow::Result<String> {
    match format {
        Format::Json => Output::Json.render(&rows, |_| String::new()),
        Format::Yaml => Output::Yaml.render(&rows, |_| String::new()),
        Format::Name => Ok(rows.iter().map(|row| row.name() + "\n").collect()),
        Format::Table | Format::Wide => {
            let (columns, cells) = table(format == Format::Wide);
            let mut out = columns.heading();
            for (row, cells) in rows.iter().zip(&cells) {
                out.push_str(&line(row, &columns, cells, color));
            }
            Ok(out)
        }
    }
}

/// Renders a changed row for the end of a printed list, whose columns keep their widths.
fn render_change<R: Listed>(
    format: Format,
    row: &R,
    columns: &Columns,
    cells: impl FnOnce(bool) -> Vec<String>,
    color: ColorChoice,
) -> anyhow::Result<String> {
    Ok(match format {
        Format::Table | Format::Wide => line(row, columns, &cells(format == Format::Wide), color),
        Format::Json => serde_json::to_string(row)? + "\n",
        Format::Yaml => format!("---\n{}", serde_saphyr::to_string(row)?),
        Format::Name => row.name() + "\n",
    })
}

fn line<R: Listed>(row: &R, columns: &Columns, cells: &[String], color: ColorChoice) -> String {
    columns.line(cells, |column, text| match row.color(column) {
        Some(it) => color.paint(it, text),
        None => text.to_owned(),
    })
}
