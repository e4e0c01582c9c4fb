//! Services of a cluster with a real node. This process does the work of kube-proxy and of a cloud's load balancer.
//!
//! For each port of a Service, a proxy listens on the Service's address and forwards to its pods. A Service of type
//! LoadBalancer also gets an address in its status, which pods of other clusters can reach. As with kube-proxy, a connection
//! goes to one pod, even if that pod has just ended.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use super::RealNode;
use crate::forward::Forward;

/// How often Services are read.
const PERIOD: Duration = Duration::from_millis(250);
/// The label that names the Service of an EndpointSlice.
const SERVICE: &str = "kubernetes.io/service-name";

/// Serves the Services of a cluster until it is dropped.
#[derive(Debug)]
pub(crate) struct Services {
    task: JoinHandle<()>,
}

impl Services {
    pub(crate) fn start(node: RealNode, client: Client, api_port: u16) -> Self {
        Self { task: tokio::spawn(keep(node, client, api_port)) }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(node: RealNode, client: Client, api_port: u16) {
    let mut open: BTreeMap<SocketAddr, Forward> = BTreeMap::new();
    loop {
        match wanted(&node, &client, api_port).await {
            Ok(wanted) => follow(&mut open, wanted).await,
            Err(error) => tracing::debug!("Services are left as they are: {error:#}"),
        }
        tokio::time::sleep(PERIOD).await;
    }
}

async fn follow(
    open: &mut BTreeMap<SocketAddr, Forward>,
    wanted: BTreeMap<SocketAddr, Vec<SocketAddr>>,
) {
    open.retain(|address, _| wanted.contains_key(address));
    for (address, backends) in wanted {
        match open.get(&address) {
            Some(forward) => forward.lead_to(backends),
            None => match Forward::open(address, backends, 1).await {
                Ok(forward) => _ = open.insert(address, forward),
                Err(error) => tracing::warn!("{error:#}"),
            },
        }
    }
}

/// The addresses of Services, each with its backends.
async fn wanted(
    node: &RealNode,
    client: &Client,
    api_port: u16,
) -> anyhow::Result<BTreeMap<SocketAddr, Vec<SocketAddr>>> {
    // The API server's cache is fresh enough, and such a list costs etcd nothing.
    let params = ListParams::default().match_any();
    let mut services = Api::<Service>::all(client.clone()).list(&params).await?.items;
    services.sort_by_key(|service| service.metadata.creation_timestamp.clone());
    let slices = Api::<EndpointSlice>::all(client.clone()).list(&params).await?.items;
    let mut wanted = BTreeMap::new();
    let mut balanced = 0;
    for service in &services {
        let api_server =
            service.name_any() == "kubernetes" && service.namespace().as_deref() == Some("default");
        let mut addresses: Vec<IpAddr> = cluster_ip(service).into_iter().collect();
        if service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer")) {
            balanced += 1;
            let address = node.load_balancer(balanced).into();
            addresses.push(address);
            tell(client, service, address).await?;
        }
        for port in service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()) {
            let backends = if api_server {
                vec![SocketAddr::from(([127, 0, 0, 1], api_port))]
            } else {
                backends(service, port.name.as_deref(), &slices)
            };
            let Ok(port) = u16::try_from(port.port) else { continue };
            wanted.extend(
                addresses.iter().map(|address| (SocketAddr::new(*address, port), backends.clone())),
            );
        }
    }
    Ok(wanted)
}

fn cluster_ip(service: &Service) -> Option<IpAddr> {
    service.spec.as_ref()?.cluster_ip.as_ref()?.parse().ok()
}

/// The ready endpoints of a Service's port. With `publishNotReadyAddresses`, EndpointSlices show all as ready.
fn backends(service: &Service, port: Option<&str>, slices: &[EndpointSlice]) -> Vec<SocketAddr> {
    let own = slices.iter().filter(|slice| {
        slice.namespace() == service.namespace()
            && slice.labels().get(SERVICE) == Some(&service.name_any())
    });
    let mut found = Vec::new();
    for slice in own {
        let named = |it: &&k8s_openapi::api::discovery::v1::EndpointPort| {
            it.name.as_deref().unwrap_or_default() == port.unwrap_or_default()
        };
        let number =
            slice.ports.iter().flatten().find(named).and_then(|it| u16::try_from(it.port?).ok());
        let Some(number) = number else { continue };
        let ready = slice
            .endpoints
            .iter()
            .filter(|it| it.conditions.as_ref().and_then(|it| it.ready) != Some(false));
        let addresses =
            ready.flat_map(|it| &it.addresses).filter_map(|address| address.parse().ok());
        found.extend(addresses.map(|address| SocketAddr::new(address, number)));
    }
    found
}

/// Writes a load balancer's address into the status of its Service.
async fn tell(client: &Client, service: &Service, address: IpAddr) -> anyhow::Result<()> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    if balancer.is_some_and(|it| it.ingress.as_ref().is_some_and(|all| !all.is_empty())) {
        return Ok(());
    }
    let services: Api<Service> =
        Api::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    let status =
        json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}});
    services
        .patch_status(&service.name_any(), &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}
