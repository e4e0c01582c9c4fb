//! `switchyard explain WORKLOAD`: why a job waits, or where it is.
//!
//! The command lists the objects that decisions depend on and asks the same engine that decides, in this process. So it
//! needs to list and nothing else, and works on any cluster with Kueue's API, whoever decides there.

mod clusters;
mod placed;
mod quota;
mod settings;
mod text;
mod unknown;
mod verdict;
mod view;

use std::path::PathBuf;

use anyhow::Context as _;
use jiff::Timestamp;
use switchyard_api::v1beta2::Workload;
use switchyard_config::Configuration;
use switchyard_controller::load::{self, LoadError};
use switchyard_controller::stores::Stores;
use switchyard_scheduler::{Name, WorkloadKey};

use crate::Output;
use crate::find::find;

pub use settings::Settings;
pub use view::View;

/// Arguments of `switchyard explain`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A Workload, or a job as `job/NAME` (any kind: `jobset/NAME`); a plain NAME may be either.
    pub workload: String,
    /// The namespace. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The configuration file of the controller, where it differs from Kueue's defaults. Without it, fair sharing is taken
    /// to be on if the queues' status shows shares.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Explains one workload.
///
/// # Errors
/// When something cannot be listed, or there is no such workload; then close names are given.
pub async fn run(client: kube::Client, namespace: &str, args: &Args) -> anyhow::Result<String> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let given = args.config.as_deref().map(read).transpose()?;
    let stores = Stores::default();
    load::lists(&client, &stores).await.map_err(|error| refused(&error))?;
    let fleet = load::fleet(&client, &stores).await;
    let now = Timestamp::now();
    let in_namespace = stores.workloads.in_namespace(namespace);
    let workload = find(&in_namespace, namespace, &args.workload)?;
    let settings = Settings::of(given, &stores);
    let mut view = view(&stores, &settings, workload, now)?;
    view.unknown.extend(fleet.err().map(|error| {
        format!("which worker clusters its rules allow: {error} failed: {}", error.source)
    }));
    args.output.render(&view, |view| text::text(view, now))
}

/// What there is to say about a workload of these lists. Pure.
///
/// # Errors
/// Never for a workload that is in the lists.
pub fn view(
    stores: &Stores,
    settings: &Settings,
    workload: &Workload,
    now: Timestamp,
) -> anyhow::Result<View> {
    let engine = load::engine(stores, &settings.config, now);
    let part = |value: &Option<String>| Name::from(value.as_deref().unwrap_or_default());
    let key = WorkloadKey {
        namespace: part(&workload.metadata.namespace),
        name: part(&workload.metadata.name),
    };
    let explanation = engine
        .explain(&key, switchyard_controller::clock::engine_time(now))
        .with_context(|| format!("workload {key} is not in the lists"))?;
    Ok(View::new(&explanation, workload, stores, settings))
}

fn read(path: &std::path::Path) -> anyhow::Result<Configuration> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("--config {}", path.display()))?;
    switchyard_config::load(&text).with_context(|| format!("--config {}", path.display()))
}

fn refused(error: &LoadError) -> anyhow::Error {
    crate::explain(&error.source, &error.to_string())
}

#[cfg(test)]
mod tests;
