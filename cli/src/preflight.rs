//! `switchyard migrate preflight`: reads a cluster that stock Kueue manages, and tells what a
//! takeover by Switchyard changes. It writes nothing.

mod assess;
mod census;
mod read;
mod release;
mod report;
mod schema;
mod settings;
mod steps;
#[cfg(test)]
mod tests;
mod workers;

use std::path::PathBuf;

use kube::Client;

use crate::Output;

pub use report::{Effect, Finding, Report, Step};

/// Arguments of `switchyard migrate preflight`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Namespace of Kueue.
    #[arg(long, default_value = "kueue-system")]
    pub kueue_namespace: String,
    /// Version of Kueue, such as v0.19.2. Default: the tag of its image.
    #[arg(long, value_name = "VERSION", value_parser = release::Release::parse)]
    pub kueue_version: Option<release::Release>,
    /// Kueue's configuration file. Default: the ConfigMap kueue-manager-config.
    #[arg(long, value_name = "FILE")]
    pub kueue_config: Option<PathBuf>,
    /// On a MultiKueue manager: do not connect to the workers.
    #[arg(long)]
    pub skip_workers: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Reads the cluster and makes the report.
///
/// # Errors
/// If the API server does not answer, or --kueue-config cannot be read. An object that the caller
/// may not read is a finding.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<Report> {
    Ok(assess::assess(&Box::pin(read::read(&client, args)).await?))
}
