//! `switchyard describe job | cluster | queue`.

mod cluster;
mod job;
mod queue;
mod topology;

use clap::Subcommand;
use kube::Client;

use crate::Output;
use crate::color::ColorChoice;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show a job: state, clusters that it was sent to, quota, checks, conditions, events
    #[command(
        after_help = "Examples:\n  switchyard describe job train\n  switchyard describe job jobset/train -n team"
    )]
    Job(Named),
    /// Show a worker cluster: connection, capacity, the jobs on it, conditions
    #[command(after_help = "Examples:\n  switchyard describe cluster east")]
    Cluster(Global),
    /// Show a queue: quota, use, the jobs that hold it and the jobs that wait
    #[command(
        after_help = "Examples:\n  switchyard describe queue gpu\n  switchyard describe queue main -n team\n  switchyard describe queue localqueue/main -n team"
    )]
    Queue(NamedQueue),
}

#[derive(clap::Args, Debug)]
pub struct Named {
    /// Name of the job, also KIND/NAME, or of its Workload.
    pub name: String,
    /// Namespace. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(clap::Args, Debug)]
pub struct NamedQueue {
    /// Name of the queue, also as `get queues -o name` prints it: clusterqueue/NAME or localqueue/NAME.
    pub name: String,
    /// Namespace of a LocalQueue. Default: a ClusterQueue; for localqueue/NAME, the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(clap::Args, Debug)]
pub struct Global {
    /// Name of the MultiKueueCluster, also as `get clusters -o name` prints it.
    #[arg(value_parser = crate::find::cluster)]
    pub name: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Describes the object.
///
/// # Errors
/// When the API cannot be read, or there is no such object.
pub async fn run(
    client: Client,
    namespace: &str,
    command: &Command,
    color: ColorChoice,
) -> anyhow::Result<String> {
    match command {
        Command::Job(args) => job::run(client, namespace, args, color).await,
        Command::Cluster(args) => cluster::run(client, args, color).await,
        Command::Queue(args) => queue::run(client, namespace, args, color).await,
    }
}

/// Lines of `Name: value`, the values under each other.
fn facts(facts: &[(&str, String)]) -> String {
    let widest = facts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    facts
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{:<1$} {value}\n", format!("{name}:"), widest + 1))
        .collect()
}
