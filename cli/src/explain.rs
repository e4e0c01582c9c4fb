//! `switchyard why WORKLOAD`: why a job waits, or where it is.
//!
//! Lists the objects that decisions depend on and runs the production engine on them, in this
//! process. It needs only the right to list, and works on any cluster with Kueue's API.

mod clusters;
mod placed;
mod quota;
mod settings;
mod text;
mod topology;
mod unknown;
mod verdict;
mod view;

use std::path::PathBuf;

use anyhow::Context as _;
use jiff::Timestamp;
use switchyard_api::v1beta2::Workload;
use switchyard_config::Configuration;
use switchyard_controller::engine::load::{self, LoadError};
use switchyard_controller::stores::Stores;
use switchyard_scheduler::{Name, WorkloadKey};

use crate::color::ColorChoice;
use crate::find::find;
use crate::{Output, paint};

pub use settings::AssumedConfig;
pub use view::ExplanationView;

/// Arguments of `switchyard why`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A Workload, or a job as `job/NAME` (any kind, such as `jobset/NAME`); a plain NAME may be
    /// either.
    pub workload: String,
    /// Namespace. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The controller's configuration file, if it differs from Kueue's defaults. Without it, fair
    /// sharing counts as on if the queues' status has shares.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Explains one workload.
///
/// # Errors
/// If objects cannot be listed, or if there is no such workload; the message then names similar
/// ones.
pub async fn run(
    client: kube::Client,
    namespace: &str,
    args: &Args,
    color: ColorChoice,
) -> anyhow::Result<String> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let given = args.config.as_deref().map(read).transpose()?;
    let stores = Stores::default();
    load::read_lists(&client, &stores).await.map_err(|error| refused(&error))?;
    let fleet = load::read_fleet(&client, &stores).await;
    let now = Timestamp::now();
    let in_namespace = stores.workloads.in_namespace(namespace);
    let workload = find(&in_namespace, namespace, &args.workload)?;
    let settings = AssumedConfig::of(given, &stores);
    let mut view = view(&stores, &settings, workload, now)?;
    view.unknown.extend(fleet.err().map(|error| {
        format!("which worker clusters its rules allow: {error} failed: {}", error.source)
    }));
    args.output.render(&view, |view| paint::states(color, &text::render_text(view, now)))
}

/// The explanation of a workload. Pure.
///
/// # Errors
/// Never for a workload in `stores`.
pub fn view(
    stores: &Stores,
    settings: &AssumedConfig,
    workload: &Workload,
    now: Timestamp,
) -> anyhow::Result<ExplanationView> {
    let engine = load::build_engine(stores, &settings.config, now);
    let part = |value: &Option<String>| Name::from(value.as_deref().unwrap_or_default());
    let key = WorkloadKey {
        namespace: part(&workload.metadata.namespace),
        name: part(&workload.metadata.name),
    };
    let explanation = engine
        .explain(&key, switchyard_controller::engine::convert::time::engine_time(now))
        .with_context(|| format!("workload {key} is not in the lists"))?;
    Ok(ExplanationView::new(&explanation, workload, stores, settings))
}

fn read(path: &std::path::Path) -> anyhow::Result<Configuration> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("--config {}", path.display()))?;
    switchyard_config::load(&text).with_context(|| format!("--config {}", path.display()))
}

fn refused(error: &LoadError) -> anyhow::Error {
    crate::with_hint(&error.source, &error.to_string())
}

#[cfg(test)]
mod tests;
