//! The command line. It uses only the hub's Kubernetes API with the caller's kubeconfig, so it
//! shows nothing that the caller could not see with `kubectl`.

pub mod adopt;
pub mod audit;
pub mod authority;
pub mod breaker;
pub mod bundle;
pub mod check;
mod client;
pub mod cluster_add;
pub mod cluster_remove;
pub mod clusters;
pub mod color;
pub mod command;
pub mod completion;
mod confirm;
pub mod copies;
mod deadline;
pub mod describe;
pub mod events;
pub mod explain;
mod find;
mod follow;
pub mod get;
pub mod hand_back;
pub mod help;
mod job_row;
pub mod join_token;
mod kubeconfig;
pub mod move_job;
#[cfg(test)]
mod old_names;
pub mod operate;
pub mod orphans;
mod outage;
pub mod output;
mod paint;
pub mod preflight;
pub mod reference;
pub mod replay;
mod request;
pub mod status;
pub mod table;
pub mod version;
pub mod wait;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context as _, anyhow};

pub use command::{Args, Command};
use command::{ClusterCommand, DebugCommand, MigrateCommand, RecoverCommand};
pub use output::Output;
pub use request::message;
pub(crate) use request::{cause, with_hint, with_required_right};

/// Default namespace of the hub, as in `deploy/rbac`.
pub const DEFAULT_HUB_NAMESPACE: &str = "switchyard-system";

/// Result of a command that looks for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// No fault, or none looked for.
    Clean,
    Faulty,
}

impl ExitStatus {
    const fn faulty_if(has_fault: bool) -> Self {
        if has_fault { Self::Faulty } else { Self::Clean }
    }
}

/// The exit code: 0, or 2 for a fault. Errors end with 1.
impl From<ExitStatus> for std::process::ExitCode {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Clean => Self::SUCCESS,
            ExitStatus::Faulty => Self::from(2),
        }
    }
}

/// Runs the command and writes its result to `out`.
///
/// # Errors
/// A message for a person: what failed, and what to do.
pub async fn run(args: Args, out: &mut impl Write) -> anyhow::Result<ExitStatus> {
    if let Some(text) = without_cluster(&args.command)? {
        return print(&text, out).map(|()| ExitStatus::Clean);
    }
    let (client, namespace) = connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let (file, color) = (args.kubeconfig, args.color);
    let text = match args.command {
        Command::Get(get::Command::Jobs(args)) => {
            Box::pin(get::jobs::run(client, &namespace, &args, color, out)).await?;
            String::new()
        }
        Command::Get(get::Command::Clusters(args))
        | Command::Cluster(ClusterCommand::List(args)) => {
            Box::pin(get::clusters::run(client, &args, color, out)).await?;
            String::new()
        }
        Command::Get(get::Command::Queues(args)) => {
            Box::pin(get::queues::run(client, &args, color, out)).await?;
            String::new()
        }
        Command::Describe(command) => {
            Box::pin(describe::run(client, &namespace, &command, color)).await?
        }
        Command::Why(args) | Command::Explain(args) => {
            Box::pin(explain::run(client, &namespace, &args, color)).await?
        }
        Command::Events(args) => Box::pin(events::run(client, &namespace, &args)).await?,
        Command::Wait(args) => return Box::pin(wait::run(client, &namespace, &args)).await,
        Command::Move(args) => Box::pin(move_job::run(client, &namespace, &args)).await?,
        Command::Cluster(command) => Box::pin(cluster(client, file.as_deref(), command)).await?,
        Command::Evictions(command) | Command::Breaker(command) => {
            Box::pin(breaker::run(client, &command)).await?
        }
        Command::Ca(command) | Command::Authority(authority::OldCommand::Ca(command)) => {
            Box::pin(authority::run(client, &command)).await?
        }
        Command::Recover(RecoverCommand::Start(args))
        | Command::Authority(authority::OldCommand::Recover(args)) => {
            Box::pin(authority::recover(client, &args)).await?
        }
        Command::Recover(RecoverCommand::Orphans(args)) | Command::Orphans(args) => {
            Box::pin(orphans::run(client, &args)).await?
        }
        Command::Recover(RecoverCommand::Export(args)) | Command::Copies(args) => {
            Box::pin(copies::run(client, &namespace, &args)).await?
        }
        Command::Recover(RecoverCommand::Adopt(args)) | Command::Adopt(args) => {
            Box::pin(adopt::run(client, &namespace, &args)).await?
        }
        Command::Migrate(MigrateCommand::Preflight(args)) => {
            let report = Box::pin(preflight::run(client, &args)).await?;
            print(&args.output.render(&report, preflight::Report::text)?, out)?;
            return Ok(ExitStatus::faulty_if(report.is_refused || !report.is_complete));
        }
        Command::Migrate(MigrateCommand::HandBack(args)) | Command::HandBack(args) => {
            Box::pin(hand_back::run(client, &args)).await?
        }
        Command::Check(args) => {
            let report = Box::pin(check::run(client, &args)).await?;
            let text = |report: &check::Report| paint::outcomes(color, &report.text());
            print(&args.output.render(&report, text)?, out)?;
            return Ok(ExitStatus::faulty_if(report.failures > 0));
        }
        Command::Audit(args) => {
            let report = Box::pin(audit::run(client, &args)).await?;
            print(&args.output.render(&report, audit::Report::text)?, out)?;
            return Ok(ExitStatus::faulty_if(!report.findings.is_empty()));
        }
        Command::Debug(DebugCommand::Bundle(args)) => Box::pin(bundle::run(client, &args)).await?,
        Command::Status(args) => Box::pin(status::run(client, &namespace, &args)).await?,
        Command::Clusters(args) => Box::pin(clusters::run(client, &args)).await?,
        Command::Version(args) => Box::pin(version::run(client, &args)).await?,
        command @ (Command::Debug(DebugCommand::Replay(_))
        | Command::Replay(_)
        | Command::Completion(_)) => without_cluster(&command)?.unwrap_or_default(),
    };
    print(&text, out).map(|()| ExitStatus::Clean)
}

/// The text of a command that needs no cluster.
fn without_cluster(command: &Command) -> anyhow::Result<Option<String>> {
    Ok(Some(match command {
        Command::Debug(DebugCommand::Replay(args)) | Command::Replay(args) => replay::run(args)?,
        Command::Completion(args) => completion::run(args, &mut help::command()),
        Command::Version(args) if args.client => {
            args.output.render(&version::Versions::client(), version::text)?
        }
        Command::Check(check::Args { explain: Some(name), .. }) => check::explain(*name),
        _ => return Ok(None),
    }))
}

async fn cluster(
    client: kube::Client,
    file: Option<&Path>,
    command: ClusterCommand,
) -> anyhow::Result<String> {
    match command {
        ClusterCommand::Add(args) => Box::pin(cluster_add::run(client, file, &args)).await,
        ClusterCommand::Remove(args) => Box::pin(cluster_remove::run(client, &args)).await,
        ClusterCommand::Operate(command) => Box::pin(operate::run(client, &command)).await,
        ClusterCommand::JoinToken(args) => Box::pin(join_token::run(client, &args)).await,
        // Printed row by row, by `run`.
        ClusterCommand::List(_) => Ok(String::new()),
    }
}

fn print(text: &str, out: &mut impl Write) -> anyhow::Result<()> {
    print_while_read(text, out).map(drop)
}

/// Breaks once nothing reads the output any more.
fn print_while_read(text: &str, out: &mut impl Write) -> anyhow::Result<ControlFlow<()>> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A closed pipe, as in `switchyard get jobs | head`, is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        other => {
            other.context("cannot write the result")?;
            Ok(ControlFlow::Continue(()))
        }
    }
}

/// A client for the hub's API, and the kubeconfig's namespace.
async fn connect(
    path: Option<&Path>,
    context: Option<&str>,
) -> anyhow::Result<(kube::Client, String)> {
    let (config, source) = kubeconfig::load(path, context).await?;
    let namespace = config.default_namespace.clone();
    let program = config.auth_info.exec.as_ref().and_then(|exec| exec.command.clone());
    let client = client::new(config).map_err(|error| match (&error, program) {
        (kube::Error::Auth(_), Some(program)) => anyhow!(
            "{source}: its user has the credential from the program \"{program}\", which fails: {}",
            cause(&error)
        ),
        _ => anyhow!("{source} cannot be used: {}", cause(&error)),
    })?;
    Ok((client, namespace))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn failing_credential_program_is_named() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "{current-context: a, contexts: [{name: a, context: {cluster: x, user: u}}], \
             clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {exec: \
             {apiVersion: client.authentication.k8s.io/v1, command: no-such-program, interactiveMode: Never}}}]}";
        std::fs::write(file.path(), text).unwrap();
        let error = connect(Some(file.path()), None).await.err().unwrap().to_string();
        assert!(
            error.ends_with(
                "its user has the credential from the program \"no-such-program\", which fails: No such file or directory (os error 2)"
            ),
            "{error}"
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
