//! A worker with an agent: a join token and the hub's address, in a Secret on the worker.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context as _, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use switchyard_hub_pki::store::CA_SECRET;
use switchyard_platform::authority::authority;

use super::{
    Added, Args, Until, account, apply, apply_cluster, apply_secret, cluster_step, find_cluster,
    wait_for_link,
};
use crate::check::agent_endpoint::{self, JOIN_SECRET};
use crate::deadline::Deadline;
use crate::join_token::{self, JoinToken};
use crate::wait;

/// The agent's Deployment.
const AGENT: &str = "switchyard-agent";

pub(super) async fn add(
    client: &Client,
    file: Option<&Path>,
    args: &Args,
    deadline: Deadline,
) -> anyhow::Result<Added> {
    let source = json!({"agent": {}});
    if args.dry_run {
        return plan(client, file, args, &source, deadline).await;
    }
    apply_cluster(client, &args.name, &source).await?;
    let Some(before) = wait_for_link(client, args, Until::Seen, deadline).await? else {
        bail!(
            "after {deadline}, the hub has not looked at MultiKueueCluster \"{}\": `switchyard check` says why. Repeat this command then",
            args.name
        );
    };
    let hub_address = match &args.hub_address {
        Some(address) => address.clone(),
        None => hub_address(client, args, deadline).await?.parse().context("the hub's address")?,
    };
    let token = join_token::Args {
        ttl: args.ttl,
        hub_address: Some(hub_address),
        ..join_token::Args::new(&args.name, &args.hub_namespace)
    };
    let token = join_token::make(client.clone(), &token).await?;
    let mut added = Added {
        cluster: args.name.clone(),
        link: "agent",
        server: None,
        connected: false,
        was_connected: before.connected,
        message: String::new(),
        commands: String::new(),
        expires_at: Some(token.expires_at),
        steps: Vec::new(),
    };
    let Some(context) = &args.worker_context else {
        added.commands = format!("{}{}", secret_command(args, &token), helm_command(args));
        return Ok(added);
    };
    let (worker, _) = crate::connect(file, Some(context)).await.context("--worker-context")?;
    prepare(&worker, args, &token).await?;
    // The manifest may have brought the agent.
    let deployments = deployments(&worker, args).await?;
    if !deployments.iter().any(|it| it.name_any() == AGENT) {
        added.commands = helm_command(args);
        return Ok(added);
    }
    // An agent that is connected keeps its session.
    let link = wait_for_link(client, args, Until::Connected(None), deadline).await?;
    let link = link.unwrap_or_default();
    added.connected = link.connected;
    added.message = match link.connected {
        true => link.message,
        false => format!("after {deadline}, its agent has not connected: {}", link.message),
    };
    if added.connected {
        await_ready_pod(&worker, args, deadline).await?;
    }
    Ok(added)
}

/// Waits until a pod of the agent is ready. Before, the worker's webhooks refuse every queue.
async fn await_ready_pod(worker: &Client, args: &Args, deadline: Deadline) -> anyhow::Result<()> {
    let goal = format!("a pod of the agent of {} is ready", args.name);
    wait::poll(deadline, &goal, async || {
        let deployments = deployments(worker, args).await?;
        let agent = deployments.iter().find(|it| it.name_any() == AGENT);
        let ready = agent.and_then(|it| it.status.as_ref()?.ready_replicas).unwrap_or_default();
        Ok(match ready {
            0 => ControlFlow::Continue(format!(
                "{} is connected, but no pod of the agent is ready. Until then, the webhooks refuse queues there: \
                 `switchyard check` on the worker says why",
                args.name
            )),
            _ => ControlFlow::Break(()),
        })
    })
    .await
}

/// The steps, with what can be found out without a change.
async fn plan(
    client: &Client,
    file: Option<&Path>,
    args: &Args,
    source: &serde_json::Value,
    deadline: Deadline,
) -> anyhow::Result<Added> {
    let found = find_cluster(client, &args.name, source).await?;
    let address = match &args.hub_address {
        Some(address) => address.to_string(),
        None => hub_address(client, args, deadline).await?,
    };
    let namespace = &args.worker_namespace;
    let mut steps = vec![
        cluster_step(&args.name, found.as_ref()),
        format!("create a token for one enrolment, valid for {:#}", args.ttl),
    ];
    match &args.worker_context {
        None => steps.push(format!(
            "print the commands for the worker, whose agent dials the hub at {address}"
        )),
        Some(context) => {
            let (worker, _) =
                crate::connect(file, Some(context)).await.context("--worker-context")?;
            let secret = agent_endpoint::join_secret(&deployments(&worker, args).await?);
            steps.push(format!(
                "in context {context}: apply Namespace {namespace} and Secret {namespace}/{secret}, with the hub at {address}"
            ));
            steps
                .extend(args.manifest.iter().map(|path| format!("apply {} there", path.display())));
        }
    }
    Ok(Added::planned(args, "agent", found.as_ref(), steps))
}

/// The address at which agents reach the hub: the advertised one, or that of its Service. Waits for
/// a load balancer's address.
async fn hub_address(client: &Client, args: &Args, deadline: Deadline) -> anyhow::Result<String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &args.hub_namespace);
    let authority = secrets.get_opt(CA_SECRET).await;
    let authority =
        authority.map_err(|error| crate::with_hint(&error, "reading the hub's authority"))?;
    if let Some(address) = authority.as_ref().and_then(agent_endpoint::advertised) {
        return Ok(address);
    }
    let services: Api<Service> = Api::namespaced(client.clone(), &args.hub_namespace);
    let goal = "the Service switchyard-hub has the load balancer's address";
    wait::poll(deadline, goal, async || {
        let all = services.list(&ListParams::default()).await;
        let all =
            all.map_err(|error| crate::with_hint(&error, "listing the hub's Services"))?.items;
        let Some(service) = agent_endpoint::hub_service(&all) else {
            bail!(
                "no Service switchyard-hub in {}: name where agents reach the hub with --hub-address",
                args.hub_namespace
            );
        };
        if let Some(address) = agent_endpoint::address_of(service) {
            return Ok(ControlFlow::Break(address));
        }
        let kind = service.spec.as_ref().and_then(|spec| spec.type_.clone()).unwrap_or_default();
        if kind == "NodePort" {
            return node_port(client, service).await.map(ControlFlow::Break);
        }
        let missing = format!(
            "the Service switchyard-hub, of type {kind}, has no address from outside: wait for the load balancer, or name where agents \
             reach the hub with --hub-address https://HOST:PORT"
        );
        if kind != "LoadBalancer" || args.dry_run {
            bail!(missing);
        }
        Ok(ControlFlow::Continue(missing))
    })
    .await
}

/// Address of a node, with the Service's node port.
async fn node_port(client: &Client, service: &Service) -> anyhow::Result<String> {
    let port = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()?.first()?.node_port);
    let port =
        port.context("the Service switchyard-hub has no node port yet: repeat the command")?;
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes
        .list(&ListParams::default())
        .await
        .map_err(|error| crate::with_hint(&error, "listing nodes"))?;
    let addresses = |kind: &str| {
        let all = nodes
            .items
            .iter()
            .filter_map(|node| node.status.as_ref()?.addresses.as_ref())
            .flatten();
        all.filter(|address| address.type_ == kind).map(|address| address.address.clone()).next()
    };
    let host = addresses("ExternalIP").or_else(|| addresses("InternalIP"));
    let host =
        host.context("no node has an address: name where agents reach the hub with --hub-address")?;
    Ok(format!("https://{}", authority(&host, port)))
}

/// Creates the namespace and the Secret on the worker, and applies the manifest if there is one.
async fn prepare(worker: &Client, args: &Args, token: &JoinToken) -> anyhow::Result<()> {
    let name = &args.worker_namespace;
    let namespaces: Api<Namespace> = Api::all(worker.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    apply(&namespaces, name, &namespace, "patch namespaces on the worker").await?;
    let data = json!({"hub": token.hub_address, "hub-ca-sha256": token.hub_ca_sha256, "token": token.token});
    let secret = agent_endpoint::join_secret(&deployments(worker, args).await?);
    apply_secret(worker, name, &secret, &data).await.context("on the worker")?;
    if let Some(path) = &args.manifest {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        account::apply_all(worker, &text).await.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The Deployments of the agent's namespace.
async fn deployments(worker: &Client, args: &Args) -> anyhow::Result<Vec<Deployment>> {
    let deployments: Api<Deployment> = Api::namespaced(worker.clone(), &args.worker_namespace);
    let all = deployments.list(&ListParams::default()).await;
    let all = all.map_err(|error| crate::with_hint(&error, "listing the worker's Deployments"))?;
    Ok(all.items)
}

/// Creates the Secret outside of Helm, whose storage of releases would keep the token. Not
/// indented, because the end of a here-document must begin its line.
fn secret_command(args: &Args, token: &JoinToken) -> String {
    let namespace = &args.worker_namespace;
    format!(
        "kubectl apply --server-side --filename - <<'EOF'\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n\
         ---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {JOIN_SECRET}, namespace: {namespace}}}\nstringData:\n  \
         hub: {hub}\n  hub-ca-sha256: \"{pin}\"\n  token: {token}\nEOF\n",
        hub = token.hub_address,
        pin = token.hub_ca_sha256,
        token = token.token,
    )
}

/// Installs the agent. An installed one keeps its other values, such as `agent.allowNamespaces`.
fn helm_command(args: &Args) -> String {
    format!(
        "helm upgrade --install switchyard-agent {} --namespace {} \\\n  --reset-then-reuse-values --set mode=agent,agent.existingSecret={JOIN_SECRET}\n",
        args.chart, args.worker_namespace
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn commands_can_be_pasted() {
        let args = Command::parse_from(["add", "east", "--chart", "switchyard.tgz"]).args;
        let token = JoinToken {
            cluster: "east".into(),
            token: "east.0011.s3cret".into(),
            expires_at: "2026-11-21T12:00:00Z".parse().unwrap(),
            hub_ca_sha256: "0012".into(),
            hub_address: "https://hub.example:7443".into(),
            approved: true,
        };
        let commands = secret_command(&args, &token) + &helm_command(&args);
        assert!(
            commands.lines().any(|line| line == "EOF"),
            "the shell finds the end of the here-document"
        );
        insta::assert_snapshot!(commands, @r#"
          kubectl apply --server-side --filename - <<'EOF'
          apiVersion: v1
          kind: Namespace
          metadata: {name: switchyard-system}
          ---
          apiVersion: v1
          kind: Secret
          metadata: {name: switchyard-agent-join, namespace: switchyard-system}
          stringData:
            hub: https://hub.example:7443
            hub-ca-sha256: "0012"
            token: east.0011.s3cret
          EOF
          helm upgrade --install switchyard-agent switchyard.tgz --namespace switchyard-system \
            --reset-then-reuse-values --set mode=agent,agent.existingSecret=switchyard-agent-join
        "#);
    }
}
