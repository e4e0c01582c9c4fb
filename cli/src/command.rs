//! The commands and their arguments: verbs first, nouns as kubectl has them. Commands of earlier versions stay, hidden.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::color::ColorChoice;
use crate::{
    adopt, audit, authority, breaker, bundle, check, cluster_add, cluster_remove, clusters,
    completion, copies, describe, events, explain, get, hand_back, join_token, move_job, operate,
    orphans, preflight, replay, status, version, wait,
};

/// `switchyard`, also `kubectl switchyard`.
#[derive(Parser, Debug)]
#[command(
    name = "switchyard",
    version = switchyard_api::build::version(),
    about = "Where jobs are, why they wait, and which clusters are connected",
    disable_help_subcommand = true,
)]
pub struct Args {
    /// Kubeconfig of the hub cluster. Default: $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Colour states. `auto` colours on a terminal, unless $NO_COLOR is set.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub color: ColorChoice,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands. `help.rs` puts the ones that are not hidden into groups.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// List jobs, worker clusters or queues
    #[command(subcommand)]
    Get(get::Command),
    /// Show everything known of a job, a worker cluster or a queue
    #[command(subcommand)]
    Describe(describe::Command),
    /// Explain why a job waits, or where it is
    ///
    /// Shows requests, free quota, the jobs before it, why preemption does not help, and last what would have to change.
    #[command(
        after_help = "Examples:\n  switchyard why train\n  switchyard why jobset/train -n team -o json"
    )]
    Why(explain::Args),
    /// List the events of a job and of its Workload, oldest first
    #[command(
        after_help = "Examples:\n  switchyard events train\n  switchyard events rayjob/tune -n team"
    )]
    Events(events::Args),
    /// Wait until a job is admitted, runs, or has finished
    ///
    /// Exits with 0 once the job is there, with 2 if it failed, and with 1 after the timeout.
    #[command(
        after_help = "Examples:\n  switchyard wait train --for running\n  switchyard wait train --for finished --timeout 6h"
    )]
    Wait(wait::Args),
    /// Move a job to another cluster: it is stopped, and starts again there
    #[command(
        after_help = "Examples:\n  switchyard move train --to west --dry-run\n  switchyard move train --to west --wait"
    )]
    Move(move_job::Args),
    /// Add, list and remove worker clusters, and take them out of use
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show or resume evictions that the hub has paused because much was lost at once
    #[command(subcommand)]
    Evictions(breaker::Command),
    /// Show or rotate the certificate authority of the agents
    #[command(subcommand)]
    Ca(authority::Command),
    /// Recover a hub that lost its etcd, or was restored from a backup; see docs/recovery.md
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// Check an installation: versions, CRDs, roles, webhooks, workers, queues
    ///
    /// Exits with 2 if something fails; see docs/checks.md.
    #[command(
        after_help = "Examples:\n  switchyard check\n  switchyard check --cluster east -o json\n  switchyard check --explain queues"
    )]
    Check(check::Args),
    /// Compare what pods request with what their queues are charged
    ///
    /// Exits with 0 if they agree, with 2 if they do not, and with 1 if something cannot be read; see docs/audit.md.
    #[command(
        after_help = "Examples:\n  switchyard audit\n  switchyard audit --worker east=east.kubeconfig --grace 1m"
    )]
    Audit(audit::Args),
    /// Move a cluster between Kueue and Switchyard; see docs/migrate.md
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// Replay recorded decisions, and gather what a maintainer needs
    #[command(subcommand)]
    Debug(DebugCommand),
    /// Print the versions of this program, of Kubernetes and of the agents
    #[command(after_help = "Examples:\n  switchyard version\n  switchyard version --client")]
    Version(version::Args),
    /// Print the completion script of a shell
    #[command(after_help = "Examples:\n  source <(switchyard completion bash)")]
    Completion(completion::Args),

    // The names of earlier versions.
    /// As `get jobs` and `describe job`
    #[command(hide = true)]
    Status(status::Args),
    /// As `get clusters` and `cluster cordon`, `drain` and so on
    #[command(hide = true)]
    Clusters(clusters::Args),
    /// As `why`
    #[command(hide = true)]
    Explain(explain::Args),
    /// As `evictions`
    #[command(hide = true, subcommand)]
    Breaker(breaker::Command),
    /// As `ca`, and `recover start`
    #[command(hide = true, subcommand)]
    Authority(authority::OldCommand),
    /// As `recover orphans`
    #[command(hide = true)]
    Orphans(orphans::Args),
    /// As `recover adopt`
    #[command(hide = true)]
    Adopt(adopt::Args),
    /// As `recover export`
    #[command(hide = true)]
    Copies(copies::Args),
    /// As `migrate hand-back`
    #[command(hide = true)]
    HandBack(hand_back::Args),
    /// As `debug replay`
    #[command(hide = true)]
    Replay(replay::Args),
}

/// Worker clusters.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Add a worker cluster: its MultiKueueCluster, and what its agent or its kubeconfig needs. Can be repeated
    #[command(
        after_help = "Examples:\n  switchyard cluster add east --dry-run\n  switchyard cluster add east\n  switchyard cluster add east --worker-context east-admin\n  \
                      switchyard cluster add west --from-context west-admin"
    )]
    Add(Box<cluster_add::Args>),
    /// List the worker clusters
    #[command(
        after_help = "Examples:\n  switchyard cluster list\n  switchyard cluster list -o wide"
    )]
    List(get::clusters::Args),
    /// Remove a worker cluster from the fleet
    #[command(
        after_help = "Examples:\n  switchyard cluster drain east --wait\n  switchyard cluster remove east"
    )]
    Remove(cluster_remove::Args),
    /// Take a cluster out of use, or use it again.
    #[command(flatten)]
    Operate(operate::Command),
    /// Make a one-time token with which a cluster's agent enrols, and print the agent's command
    #[command(hide = true)]
    JoinToken(join_token::Args),
}

/// Recovering a hub.
#[derive(Subcommand, Debug)]
pub enum RecoverCommand {
    /// Before the hub starts: say that its store was lost, or restored from a backup
    #[command(
        after_help = "Examples:\n  switchyard recover start --dry-run\n  switchyard recover start --yes\n  switchyard recover start --yes --hub-id 6b1f9f0e"
    )]
    Start(authority::Recover),
    /// List what runs on clusters with this hub's mark, and is unknown to the hub
    #[command(after_help = "Examples:\n  switchyard recover orphans")]
    Orphans(orphans::Args),
    /// On a worker: print the jobs that a hub created there, as manifests to apply on the hub
    #[command(after_help = "Examples:\n  switchyard recover export -A --context east > jobs.json")]
    Export(copies::Args),
    /// Connect a job that was applied again with what runs on a cluster, although the two differ
    #[command(
        after_help = "Examples:\n  switchyard recover adopt train --from east --uid 0d2f… --dry-run\n  switchyard recover adopt train --from east --uid 0d2f… --yes --wait"
    )]
    Adopt(adopt::Args),
}

/// Between Kueue and Switchyard.
#[derive(Subcommand, Debug)]
pub enum MigrateCommand {
    /// Read a cluster that stock Kueue manages, and tell what a takeover changes. Changes nothing
    ///
    /// Exits with 2 if jobs would suffer; see docs/migrate.md.
    #[command(
        after_help = "Examples:\n  switchyard migrate preflight\n  switchyard migrate preflight --skip-workers -o json"
    )]
    Preflight(preflight::Args),
    /// After Switchyard was stopped: make a cluster's Workloads ready for stock Kueue
    #[command(
        after_help = "Examples:\n  switchyard migrate hand-back --dry-run\n  switchyard migrate hand-back\n  switchyard migrate hand-back --copies --yes --context east"
    )]
    HandBack(hand_back::Args),
}

/// Looking into the program.
#[derive(Subcommand, Debug)]
pub enum DebugCommand {
    /// Decide again what a recording contains, and print the first difference. Needs no cluster
    #[command(after_help = "Examples:\n  switchyard debug replay decisions.jsonl")]
    Replay(replay::Args),
    /// Write versions, objects, events, checks, metrics and logs into one archive, without secrets
    #[command(
        after_help = "Examples:\n  switchyard debug bundle\n  switchyard debug bundle --out fleet.tar.gz --worker east=east.kubeconfig"
    )]
    Bundle(bundle::Args),
}
