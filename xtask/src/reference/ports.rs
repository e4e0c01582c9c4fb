//! Makes `docs/ports.md`: the ports, their clients, and their numbers in the chart.

use anyhow::{Context, bail};

use super::{head, read, table};

const DEPLOYMENT: &str = "deploy/charts/switchyard/templates/deployment.yaml";
const CONFIGURATION: &str = "api/config/src/manager.rs";

/// The ports of the pods: name in the chart, server, clients, and encryption.
const PORTS: [[&str; 4]; 4] = [
    [
        "health",
        "hub, agent, single mode",
        "the kubelet; Prometheus for an agent's `/metrics`",
        "none",
    ],
    [
        "webhooks",
        "hub, agent, single mode",
        "the API server, for admission and conversion",
        "TLS, the program's own authority",
    ],
    [
        "metrics",
        "hub, single mode",
        "Prometheus, with the right to read `/metrics`",
        "TLS, the program's own certificate",
    ],
    [
        "agents",
        "hub",
        "agents, from their clusters",
        "mutual TLS 1.3 with ALPN `h2`, the hub's own authority",
    ],
];

pub(super) fn page() -> anyhow::Result<String> {
    let template = read(DEPLOYMENT)?;
    let mut rows = Vec::new();
    for line in template.lines().map(str::trim).filter(|line| line.contains("containerPort:")) {
        let field = |name: &str| -> Option<&str> {
            let (_, rest) = line.split_once(&format!("{name}: "))?;
            Some(rest.split([',', '}']).next().unwrap_or(rest).trim())
        };
        let name = field("name").context("a port without a name")?;
        let Some([_, server, client, encryption]) = PORTS.iter().find(|port| port[0] == name)
        else {
            bail!(
                "{DEPLOYMENT} has a port {name} that xtask/src/reference/ports.rs does not describe"
            );
        };
        // The chart computes the port of the metrics from the configuration.
        let number = match field("containerPort") {
            Some(number) if number.parse::<u16>().is_ok() => number.to_owned(),
            _ => metrics_port()?,
        };
        let [server, client, encryption] = [*server, *client, *encryption].map(str::to_owned);
        rows.push([name.to_owned(), number, server, client, encryption]);
    }
    if rows.len() != PORTS.len() {
        bail!("{DEPLOYMENT} has {} ports, and {} are described", rows.len(), PORTS.len());
    }
    let mut out = head(
        "Ports",
        "This page is for network and security teams. All connections are TCP. Between clusters there is one kind: from agents to\n\
         the hub, or from the hub to the API servers of kubeconfig workers. [The network](network.md) says what lies in between.\n",
    );
    out.push_str("## Served by the pods\n\n");
    out.push_str(&table(["name", "port", "served by", "clients", "encryption"], &rows));
    out.push_str(
        "\nThe visibility API, where it is enabled, is served on `visibilityServer.bindPort` (8082) to the API server, with TLS.\n\n\
         ## Dialled by the pods\n\n\
         | from | to | for |\n|---|---|---|\n\
         | all | the cluster's API server | watches and writes |\n\
         | agent | the hub's Service, port 7443 | sessions and enrolment |\n\
         | hub | API servers of kubeconfig workers | as an agent would do there |\n",
    );
    Ok(out)
}

/// The port of the default `metrics.bindAddress`.
fn metrics_port() -> anyhow::Result<String> {
    let source = read(CONFIGURATION)?;
    let address = source
        .lines()
        .find_map(|line| line.trim().strip_prefix("bind_address: \":")?.split('"').next());
    Ok(address.context("the default of metrics.bindAddress is not found")?.to_owned())
}
