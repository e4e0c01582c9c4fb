//! The command line. It uses only the hub's Kubernetes API with the caller's kubeconfig, so it
//! shows nothing that the caller could not see with `kubectl`.

pub mod adopt;
pub mod audit;
pub mod authority;
pub mod breaker;
pub mod check;
pub mod cluster_add;
pub mod clusters;
pub mod completion;
pub mod copies;
pub mod explain;
mod find;
pub mod hand_back;
pub mod join_token;
pub mod move_job;
pub mod operate;
pub mod orphans;
pub mod output;
pub mod replay;
pub mod status;
pub mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Parser, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};

pub use output::Output;

/// Default namespace of the hub, as in `deploy/rbac`.
pub const DEFAULT_HUB_NAMESPACE: &str = "switchyard-system";

/// For silence within an answer of the API server.
const READ_TIME: Duration = Duration::from_secs(60);

/// The command `switchyard`, also `kubectl switchyard`.
#[derive(Parser, Debug)]
#[command(name = "switchyard", version = switchyard_api::build::version(), about = "Where jobs are, why they wait, and which clusters are connected")]
pub struct Args {
    /// Kubeconfig of the hub cluster. Default: $KUBECONFIG, then ~/.kube/config, then the pod's
    /// service account.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List worker clusters with connection and capacity; cordon, uncordon, drain or declare one
    /// lost.
    Clusters(clusters::Args),
    /// List jobs, where they are and why they wait. With a job's name, show everything about it.
    Status(status::Args),
    /// Explain why a job waits: requests, free quota, position in the queue and preemption. Or
    /// where it runs.
    Explain(explain::Args),
    /// Move a job to another cluster. It is stopped and starts again there.
    Move(move_job::Args),
    /// Compare what pods request with what their queues are charged. Exits with 0 if they agree,
    /// with 2 if they do not, and with 1 if something cannot be read; see docs/audit.md.
    Audit(audit::Args),
    /// Check an installation: versions, CRDs, roles, webhooks, workers, queues. Exits with 2 if a
    /// check fails; see docs/checks.md.
    Check(check::Args),
    /// Print the completion script of a shell. Load it with `source <(switchyard completion bash)`.
    Completion(completion::Args),
    /// List copies on clusters that carry this hub's mark and that the hub does not know.
    Orphans(orphans::Args),
    /// Connect a job that was applied again with its copy from before the hub lost its store,
    /// although the two differ; see docs/recovery.md.
    Adopt(adopt::Args),
    /// On a worker: print the jobs that a hub created there as manifests, if the hub's store and
    /// the users' manifests are lost; see docs/recovery.md.
    Copies(copies::Args),
    /// Show or close the circuit breaker, which stops evictions.
    #[command(subcommand)]
    Breaker(breaker::Command),
    /// Prepare a cluster's Workloads for stock Kueue, after Switchyard was stopped; see
    /// docs/migrate.md.
    HandBack(hand_back::Args),
    /// Repeat the decisions of a recording and report the first difference. Needs no cluster.
    Replay(replay::Args),
    /// Show or replace the CA that signs agents' certificates.
    #[command(subcommand)]
    Authority(authority::Command),
    /// Add worker clusters and create join tokens.
    #[command(subcommand)]
    Cluster(ClusterCommand),
}

#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Create a one-time token for a cluster's agent to enrol, and print the agent's command.
    JoinToken(join_token::Args),
    /// Add a worker cluster: its MultiKueueCluster, and what its agent or kubeconfig needs. Can be
    /// repeated.
    Add(Box<cluster_add::Args>),
}

/// Result of a command that looks for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// No fault, or none looked for.
    Clean,
    Faulty,
}

/// 0, or 2 for a fault. Errors exit with 1.
impl From<ExitStatus> for std::process::ExitCode {
    fn from(exit_status: ExitStatus) -> Self {
        match exit_status {
            ExitStatus::Clean => Self::SUCCESS,
            ExitStatus::Faulty => Self::from(2),
        }
    }
}

/// Runs the command and writes its result to `out`.
///
/// # Errors
/// Says what failed and what to do.
pub async fn run(args: Args, out: &mut impl Write) -> anyhow::Result<ExitStatus> {
    // These commands need no cluster.
    match &args.command {
        Command::Replay(args) => {
            return print(&replay::run(args)?, out).map(|()| ExitStatus::Clean);
        }
        Command::Completion(args) => {
            return print(&completion::run(args), out).map(|()| ExitStatus::Clean);
        }
        _ => {}
    }
    let mut exit_status = ExitStatus::Clean;
    let (client, namespace) = connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let file = args.kubeconfig;
    let text = match args.command {
        Command::Clusters(args) => clusters::run(client, &args).await?,
        Command::Status(args) => status::run(client, &namespace, &args).await?,
        Command::Explain(args) => explain::run(client, &namespace, &args).await?,
        Command::Move(args) => move_job::run(client, &namespace, &args).await?,
        Command::Orphans(args) => orphans::run(client, &args).await?,
        Command::Adopt(args) => adopt::run(client, &namespace, &args).await?,
        Command::Copies(args) => copies::run(client, &namespace, &args).await?,
        Command::Breaker(command) => breaker::run(client, &command).await?,
        Command::Authority(command) => authority::run(client, &command).await?,
        Command::HandBack(args) => hand_back::run(client, &args).await?,
        Command::Replay(args) => replay::run(&args)?,
        Command::Completion(args) => completion::run(&args),
        Command::Check(args) => {
            let report = Box::pin(check::run(client, &args)).await?;
            if report.failures > 0 {
                exit_status = ExitStatus::Faulty;
            }
            args.output.render(&report, check::Report::text)?
        }
        Command::Audit(args) => {
            let report = audit::run(client, &args).await?;
            if !report.findings.is_empty() {
                exit_status = ExitStatus::Faulty;
            }
            args.output.render(&report, audit::Report::text)?
        }
        Command::Cluster(ClusterCommand::JoinToken(args)) => join_token::run(client, &args).await?,
        Command::Cluster(ClusterCommand::Add(args)) => {
            cluster_add::run(client, file.as_deref(), &args).await?
        }
    };
    print(&text, out).map(|()| exit_status)
}

fn print(text: &str, out: &mut impl Write) -> anyhow::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A closed pipe, as in `switchyard status | head`, is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write the result"),
    }
}

/// A client for the hub's API, and the kubeconfig's namespace.
async fn connect(
    path: Option<&Path>,
    context: Option<&str>,
) -> anyhow::Result<(kube::Client, String)> {
    const ADVICE: &str = "name the hub's kubeconfig with --kubeconfig or $KUBECONFIG";
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = match path {
        Some(path) => {
            let flag = format!("--kubeconfig {}", path.display());
            let kubeconfig =
                Kubeconfig::read_from(path).map_err(|error| anyhow!("{flag}: {error}"))?;
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.map_err(|error| anyhow!("{flag}: {error}"))?
        }
        None if context.is_some() => kube::Config::from_kubeconfig(&options)
            .await
            .map_err(|error| anyhow!("{error}; {ADVICE}"))?,
        None => kube::Config::infer().await.map_err(|error| anyhow!("{error}; {ADVICE}"))?,
    };
    config.read_timeout = Some(READ_TIME);
    let namespace = config.default_namespace.clone();
    Ok((kube::Client::try_from(config).context("the kubeconfig cannot be used")?, namespace))
}

/// An error with the most likely remedy.
fn with_hint(error: &kube::Error, doing: &str) -> anyhow::Error {
    let hint = match error {
        kube::Error::Api(status) if status.is_not_found() => {
            "; is this the hub, and are its CRDs installed (kubectl apply -f deploy/crds)?"
        }
        kube::Error::Api(status) if status.is_forbidden() => {
            "; the role switchyard-viewer of deploy/rbac allows it"
        }
        kube::Error::Api(_) => "",
        _ => "; can the cluster be reached with kubectl?",
    };
    anyhow!("{doing}: {}{hint}", cause(error))
}

/// The API server's message, or the last cause of an error, such as "Connection refused".
fn cause(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// As [`with_hint`], for a change, with the right that it needs.
fn with_required_right(error: &kube::Error, doing: &str, right: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => {
            anyhow::anyhow!("{doing}: {error}; it takes the right to {right}")
        }
        _ => with_hint(error, doing),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn missing_kubeconfig_is_named_once() {
        let error = connect(Some(Path::new("/nonexistent")), None).await.err().unwrap();
        assert_eq!(
            format!("{error:#}"),
            "--kubeconfig /nonexistent: failed to read kubeconfig from '\"/nonexistent\"': No such file or directory (os \
             error 2)"
        );
    }

    #[tokio::test]
    async fn unreachable_cluster_differs_from_a_denying_one() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        // A port that was free a moment ago.
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let address = format!("http://127.0.0.1:{port}").parse().unwrap();
        let client = kube::Client::try_from(kube::Config::new(address)).unwrap();
        let error = clusters::run(
            client,
            &clusters::Args { command: None, capacity: false, output: Output::Table },
        )
        .await
        .unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "listing clusters: Connection refused (os error 111); can the cluster be reached with kubectl?"
        );
    }
}
