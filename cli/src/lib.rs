//! The command line. It talks to the hub's Kubernetes API with the caller's kubeconfig, and to nothing else: what it shows
//! is what the caller may see with `kubectl`, in one place, and join tokens are entries of a Secret.

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

/// The namespace that the hub runs in unless told otherwise: that of `deploy/rbac`.
pub const DEFAULT_HUB_NAMESPACE: &str = "switchyard-system";

/// How long the API server may be silent in the middle of an answer.
const READ_TIME: Duration = Duration::from_secs(60);

/// `switchyard`, also `kubectl switchyard`.
#[derive(Parser, Debug)]
#[command(name = "switchyard", version = switchyard_api::build::version(), about = "Where jobs are, why they wait, and which clusters are connected")]
pub struct Args {
    /// Kubeconfig of the hub cluster. Default: $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Worker clusters: connected since when, room per queue and flavor; and cordon, uncordon, drain, declare-lost.
    Clusters(clusters::Args),
    /// Where jobs are and why they wait; with a job's name, everything known of it.
    Status(status::Args),
    /// Why a job waits: what it asks for, what is free, who is before it, and why nobody gives way; or where it is.
    Explain(explain::Args),
    /// Have a job run on another cluster: it is stopped and begins anew there.
    Move(move_job::Args),
    /// Compare what pods ask for with what their queues are charged. Exits with 0 if they agree, with 2 if they do not, and with 1
    /// if something cannot be read; see docs/audit.md.
    Audit(audit::Args),
    /// Whether an installation is whole: versions, CRDs, roles, webhooks, workers, queues. Exits with 2 if something fails; see
    /// docs/checks.md.
    Check(check::Args),
    /// Print the completion script of a shell. `source <(switchyard completion bash)` loads it.
    Completion(completion::Args),
    /// Workloads with this hub's mark on a cluster, of which the hub knows nothing.
    Orphans(orphans::Args),
    /// Have a job that was applied again become what runs on a cluster since before the hub lost its store, although the two
    /// differ; see docs/recovery.md.
    Adopt(adopt::Args),
    /// On a worker: the jobs that a hub has had made there, as manifests for a hub that has lost its store and whose users have
    /// lost theirs; see docs/recovery.md.
    Copies(copies::Args),
    /// The circuit breaker: nothing is given up while it is open.
    #[command(subcommand)]
    Breaker(breaker::Command),
    /// Make a cluster's Workloads ready for stock Kueue, after Switchyard was stopped there; see docs/migrate.md.
    HandBack(hand_back::Args),
    /// Decide again what a recording says was decided, and tell the first difference. Needs no cluster.
    Replay(replay::Args),
    /// The authority that signs agents' certificates, and its replacement.
    #[command(subcommand)]
    Authority(authority::Command),
    /// Manage worker clusters.
    #[command(subcommand)]
    Cluster(ClusterCommand),
}

/// Managing worker clusters.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Make a one-time token with which a cluster's agent enrols, and print the agent's command.
    JoinToken(join_token::Args),
    /// Add a worker cluster: its MultiKueueCluster, and what its agent or its kubeconfig needs. Can be repeated.
    Add(Box<cluster_add::Args>),
}

/// The answer of a command that judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The command found no fault, or does not look for any.
    Fine,
    /// The command found a fault.
    Faulty,
}

/// The exit code: 0, or 2 for a fault. Errors end with 1.
impl From<Verdict> for std::process::ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Fine => Self::SUCCESS,
            Verdict::Faulty => Self::from(2),
        }
    }
}

/// Does what the arguments say and writes the result to `out`.
///
/// # Errors
/// A message for a person: what failed, and what to do.
pub async fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Verdict> {
    // Commands that need no cluster.
    match &args.command {
        Command::Replay(args) => return print(&replay::run(args)?, out).map(|()| Verdict::Fine),
        Command::Completion(args) => {
            return print(&completion::run(args), out).map(|()| Verdict::Fine);
        }
        _ => {}
    }
    let mut verdict = Verdict::Fine;
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
                verdict = Verdict::Faulty;
            }
            args.output.render(&report, check::Report::text)?
        }
        Command::Audit(args) => {
            let report = audit::run(client, &args).await?;
            if !report.findings.is_empty() {
                verdict = Verdict::Faulty;
            }
            args.output.render(&report, audit::Report::text)?
        }
        Command::Cluster(ClusterCommand::JoinToken(args)) => join_token::run(client, &args).await?,
        Command::Cluster(ClusterCommand::Add(args)) => {
            cluster_add::run(client, file.as_deref(), &args).await?
        }
    };
    print(&text, out).map(|()| verdict)
}

fn print(text: &str, out: &mut impl Write) -> anyhow::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // `switchyard status | head` is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write the result"),
    }
}

/// A client for the hub's API, and the namespace that the kubeconfig chooses.
async fn connect(
    path: Option<&Path>,
    context: Option<&str>,
) -> anyhow::Result<(kube::Client, String)> {
    const MEND: &str = "name the hub's kubeconfig with --kubeconfig or $KUBECONFIG";
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
            .map_err(|error| anyhow!("{error}; {MEND}"))?,
        None => kube::Config::infer().await.map_err(|error| anyhow!("{error}; {MEND}"))?,
    };
    config.read_timeout = Some(READ_TIME);
    let namespace = config.default_namespace.clone();
    Ok((kube::Client::try_from(config).context("the kubeconfig cannot be used")?, namespace))
}

/// Says what a failed call most often means.
fn explain(error: &kube::Error, doing: &str) -> anyhow::Error {
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

/// What the API server answered; else the cause at the end of the chain, such as "Connection refused", since what lies
/// around it says only that there was one.
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

/// As [`explain`], of a change: which right it takes.
fn may_not(error: &kube::Error, doing: &str, right: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => {
            anyhow::anyhow!("{doing}: {error}; it takes the right to {right}")
        }
        _ => explain(error, doing),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named_once() {
        let error = connect(Some(Path::new("/nonexistent")), None).await.err().unwrap();
        assert_eq!(
            format!("{error:#}"),
            "--kubeconfig /nonexistent: failed to read kubeconfig from '\"/nonexistent\"': No such file or directory (os \
             error 2)"
        );
    }

    #[tokio::test]
    async fn a_cluster_that_nobody_serves_is_told_from_one_that_refuses() {
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
