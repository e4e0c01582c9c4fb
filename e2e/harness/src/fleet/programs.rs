//! The programs of Switchyard with the flags that the documentation shows.

use std::path::PathBuf;

use anyhow::Context;
use switchyard::join_token::JoinToken;

use super::NAMESPACE;
use crate::process::Program;
use crate::{Cluster, paths, ports};

/// A program of Switchyard, and the port of its health endpoints.
#[derive(Clone, Debug)]
pub(crate) struct SwitchyardProgram {
    pub(crate) program: Program,
    pub(crate) health: u16,
}

impl SwitchyardProgram {
    /// The program with flags to serve the webhooks of its cluster.
    pub(crate) fn with_webhooks(self) -> anyhow::Result<Self> {
        let port = ports::free()?;
        Ok(Self { program: webhooks(self.program, (port, port)), ..self })
    }
}

/// The ports at which a hub's process listens, and those at which others reach it. They differ behind a
/// [`Forward`](crate::forward::Forward).
#[derive(Clone, Debug)]
pub(crate) struct HubPorts {
    /// Its name among the replicas. `None`: the program's default.
    pub(crate) replica: Option<&'static str>,
    pub(crate) sessions: u16,
    pub(crate) sessions_at: u16,
    pub(crate) webhooks: u16,
    pub(crate) webhooks_at: u16,
}

impl HubPorts {
    /// Ports of a hub without replicas.
    pub(crate) fn direct() -> anyhow::Result<Self> {
        let (sessions, webhooks) = (ports::free()?, ports::free()?);
        Ok(Self { replica: None, sessions, sessions_at: sessions, webhooks, webhooks_at: webhooks })
    }
}

/// `switchyard-hub` on a cluster.
pub(crate) async fn hub_program(
    cluster: &Cluster,
    ways: &HubPorts,
    config: Option<&str>,
) -> anyhow::Result<SwitchyardProgram> {
    let name = ways.replica.unwrap_or("switchyard-hub");
    let SwitchyardProgram { program, health } = controller(cluster, "switchyard-hub", name).await?;
    let mut program = webhooks(program, (ways.webhooks, ways.webhooks_at));
    let (listen, advertise) =
        (format!("127.0.0.1:{}", ways.sessions), format!("https://127.0.0.1:{}", ways.sessions_at));
    program = program.args(["--mode", "hub", "--agent-listen", &listen, "--advertise", &advertise]);
    if let Some(replica) = ways.replica {
        program = program.args(["--replica", replica]);
    }
    let kubeconfigs = cluster.state_dir().join("kubeconfigs");
    std::fs::create_dir_all(&kubeconfigs)
        .with_context(|| format!("cannot create {}", kubeconfigs.display()))?;
    program = program.arg("--kubeconfig-dir").arg(kubeconfigs);
    Ok(SwitchyardProgram {
        program: configured(program, cluster, "switchyard-hub.yaml", config)?,
        health,
    })
}

/// The program with a configuration file, if there is one.
fn configured(
    program: Program,
    cluster: &Cluster,
    file: &str,
    config: Option<&str>,
) -> anyhow::Result<Program> {
    let Some(config) = config else { return Ok(program) };
    let path = cluster.state_dir().join(file);
    std::fs::write(&path, config).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(program.arg("--config").arg(path))
}

/// `switchyard-hub --mode single` on a cluster.
pub(crate) async fn single_program(
    cluster: &Cluster,
    config: Option<&str>,
) -> anyhow::Result<SwitchyardProgram> {
    let ours = single_without_webhooks(cluster).await?.with_webhooks()?;
    Ok(SwitchyardProgram {
        program: configured(ours.program, cluster, "switchyard.yaml", config)?,
        ..ours
    })
}

/// As [`single_program`], without webhooks and conversion, for clusters without jobs.
pub(crate) async fn single_without_webhooks(
    cluster: &Cluster,
) -> anyhow::Result<SwitchyardProgram> {
    let SwitchyardProgram { program, health } =
        controller(cluster, "switchyard", "switchyard-hub").await?;
    Ok(SwitchyardProgram { program: program.args(["--mode", "single"]), health })
}

/// Settings of both modes of `switchyard-hub`.
async fn controller(
    cluster: &Cluster,
    account_name: &str,
    name: &str,
) -> anyhow::Result<SwitchyardProgram> {
    let health = ports::free()?;
    let log = cluster.dir().join(format!("{name}.log"));
    let program = Program::new("hub", paths::binary("switchyard-hub")?, log)
        .env("KUBECONFIG", account(cluster, account_name).await?)
        .args(["--namespace", NAMESPACE])
        .args(["--health-listen", &format!("127.0.0.1:{health}")]);
    Ok(SwitchyardProgram { program, health })
}

/// Adds the flags of webhooks: the port to listen on, and the port at which the API server reaches it.
fn webhooks(program: Program, (listen, at): (u16, u16)) -> Program {
    program
        .args(["--webhook-listen", &format!("127.0.0.1:{listen}")])
        .args(["--webhook-url", &format!("https://127.0.0.1:{at}")])
}

/// `switchyard-agent` on a cluster, with a token to enrol.
pub(crate) async fn agent_program(
    cluster: &Cluster,
    token: &JoinToken,
    config: Option<&str>,
) -> anyhow::Result<SwitchyardProgram> {
    let health = ports::free()?;
    let binary = paths::binary("switchyard-agent")?;
    let program = Program::new("agent", binary, cluster.dir().join("switchyard-agent.log"))
        .env("KUBECONFIG", account(cluster, "switchyard-agent").await?)
        .args(["--namespace", NAMESPACE])
        .args([
            "--hub",
            &token.hub_address,
            "--hub-ca-sha256",
            &token.hub_ca_sha256,
            "--join",
            &token.token,
        ])
        .args(["--health-listen", &format!("127.0.0.1:{health}")]);
    Ok(SwitchyardProgram {
        program: configured(program, cluster, "switchyard-agent.yaml", config)?,
        health,
    })
}

/// A kubeconfig file with the rights of a service account.
pub(super) async fn account(cluster: &Cluster, name: &str) -> anyhow::Result<PathBuf> {
    account_in(cluster, NAMESPACE, name).await
}

/// A kubeconfig file with the rights of a service account of any namespace.
pub async fn account_in(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<PathBuf> {
    let (_, kubeconfig) = cluster.service_account(namespace, name).await?;
    let path = cluster.state_dir().join(format!("{name}.kubeconfig"));
    std::fs::write(&path, kubeconfig)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
