//! `switchyard version`.

use kube::{Api, Client};
use serde::Serialize;
use switchyard_api::v1beta2::MultiKueueCluster;

use crate::{Output, clusters};

/// Arguments of `switchyard version`.
#[derive(clap::Args, Debug, Default)]
pub struct Args {
    /// Print the version of this program alone, and ask no cluster.
    #[arg(long)]
    pub client: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Debug, Serialize, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// This program's.
    pub client: String,
    /// Kubernetes' on the cluster of the kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Versions of the agents, which each agent reports when it connects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<Agent>,
}

#[derive(Debug, Serialize, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    pub cluster: String,
    pub software: String,
}

impl Versions {
    #[must_use]
    pub fn client() -> Self {
        Self {
            client: switchyard_api::build::version().to_owned(),
            kubernetes: None,
            agents: Vec::new(),
        }
    }
}

/// Asks the cluster.
///
/// # Errors
/// When the API server does not answer. Without MultiKueueClusters, or the right to list them, the
/// list of agents is empty.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<String> {
    let server = client.apiserver_version().await;
    let server = server.map_err(|error| crate::with_hint(&error, "reading Kubernetes' version"))?;
    let found: Vec<MultiKueueCluster> = clusters::list(&Api::all(client)).await.unwrap_or_default();
    let agents = found
        .iter()
        .map(clusters::cluster_row)
        .filter_map(|cluster| Some(Agent { cluster: cluster.name, software: cluster.software? }));
    let versions = Versions {
        kubernetes: Some(server.git_version),
        agents: agents.collect(),
        ..Versions::client()
    };
    args.output.render(&versions, text)
}

/// The versions as lines.
#[must_use]
pub fn text(versions: &Versions) -> String {
    let mut out = format!("switchyard: {}\n", versions.client);
    if let Some(kubernetes) = &versions.kubernetes {
        out.push_str(&format!("Kubernetes: {kubernetes}\n"));
    }
    for Agent { cluster, software } in &versions.agents {
        out.push_str(&format!("agent of {cluster}: {software}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_fleet_are_lines() {
        let agent = Agent { cluster: "east".into(), software: "switchyard-agent 0.1.0".into() };
        let versions = Versions {
            client: "0.1.0".into(),
            kubernetes: Some("v1.36.3".into()),
            agents: vec![agent],
        };
        insta::assert_snapshot!(text(&versions), @r"
        switchyard: 0.1.0
        Kubernetes: v1.36.3
        agent of east: switchyard-agent 0.1.0
        ");
    }
}
