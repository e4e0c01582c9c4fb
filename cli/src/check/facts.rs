//! The facts of one cluster: plain objects, and answers of its API server. Switchyard need not run.

use std::fmt::Debug;
use std::time::Duration;

use futures::join;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ListParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use switchyard_api::v1beta2::{
    AdmissionCheck, ClusterQueue, LocalQueue, MultiKueueCluster, MultiKueueConfig,
};

use super::mode::Mode;
use super::{rights, trial};

/// A request that is not answered after this long counts as refused.
const DEADLINE: Duration = Duration::from_secs(20);

/// The Lease of the admission controller.
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

/// The name of both webhook configurations.
const WEBHOOKS: &str = "switchyard";

/// A value that was read, or why it could not be.
pub(super) type Read<T> = Result<T, String>;

/// The API server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// Its version, as v1.36.3.
    pub(super) version: String,
    /// How far its clock is ahead of this machine's, in seconds; none if it says no time.
    pub(super) ahead: Option<i64>,
    /// Its time.
    pub(super) now: Timestamp,
}

/// One cluster.
pub(super) struct Facts {
    /// The namespace that was looked into.
    pub(super) namespace: String,
    pub(super) server: Read<Server>,
    pub(super) crds: Read<Vec<CustomResourceDefinition>>,
    pub(super) deployments: Read<Vec<Deployment>>,
    pub(super) pods: Read<Vec<Pod>>,
    pub(super) lease: Read<Option<Lease>>,
    pub(super) mutating: Read<Option<MutatingWebhookConfiguration>>,
    pub(super) validating: Read<Option<ValidatingWebhookConfiguration>>,
    /// The Secret with the webhooks' certificate.
    pub(super) certificate: Read<Option<Secret>>,
    /// The hub's Secret with its authority and address.
    pub(super) authority: Read<Option<Secret>>,
    /// The agent's Secret with the hub's address and a token.
    pub(super) join: Read<Option<Secret>>,
    /// The agent's Secret with its identity.
    pub(super) identity: Read<Option<Secret>>,
    pub(super) services: Read<Vec<Service>>,
    pub(super) endpoints: Read<Vec<EndpointSlice>>,
    /// The configuration file of each mode's ConfigMap, by name.
    pub(super) configs: Read<Vec<ConfigMap>>,
    pub(super) namespaces: Read<Vec<Namespace>>,
    pub(super) clusters: Read<Vec<MultiKueueCluster>>,
    pub(super) multikueue_configs: Read<Vec<MultiKueueConfig>>,
    pub(super) checks: Read<Vec<AdmissionCheck>>,
    pub(super) cluster_queues: Read<Vec<ClusterQueue>>,
    pub(super) local_queues: Read<Vec<LocalQueue>>,
    /// Rights that the program lacks.
    pub(super) denied: Read<Vec<String>>,
    /// The answers to an object and a job that were created by dry run.
    pub(super) trial: trial::Trial,
}

impl Facts {
    /// Reads a cluster. Boxed, since so many requests at once take more than a small stack holds.
    pub(super) async fn read_boxed(client: &Client, namespace: &str) -> Self {
        Box::pin(Self::read(client, namespace)).await
    }

    async fn read(client: &Client, namespace: &str) -> Self {
        let c = || client.clone();
        let own =
            |name: &'static str| get(Api::<Secret>::namespaced(client.clone(), namespace), name);
        let (server, crds, deployments, pods, lease) = join!(
            server(client),
            list(Api::all(c())),
            list(Api::namespaced(c(), namespace)),
            list(Api::namespaced(c(), namespace)),
            get(Api::namespaced(c(), namespace), LEASE),
        );
        let (mutating, validating, certificate, authority) = join!(
            get(Api::all(c()), WEBHOOKS),
            get(Api::all(c()), WEBHOOKS),
            own("switchyard-webhook-cert"),
            own(switchyard_hub::pki::store::CA_SECRET),
        );
        let (identity, join) =
            join!(own(switchyard_agent::identity::SECRET), own(super::door::JOIN_SECRET));
        let (services, endpoints, configs, namespaces) = join!(
            list(Api::namespaced(c(), namespace)),
            list(Api::namespaced(c(), namespace)),
            list(Api::namespaced(c(), namespace)),
            list(Api::all(c())),
        );
        let (clusters, multikueue_configs, checks, cluster_queues, local_queues) = join!(
            list(Api::all(c())),
            list(Api::all(c())),
            list(Api::all(c())),
            list(Api::all(c())),
            list(Api::all(c())),
        );
        let mut facts = Self {
            namespace: namespace.to_owned(),
            server,
            crds,
            deployments,
            pods,
            lease,
            mutating,
            validating,
            certificate,
            authority,
            identity,
            join,
            services,
            endpoints,
            configs,
            namespaces,
            clusters,
            multikueue_configs,
            checks,
            cluster_queues,
            local_queues,
            denied: Ok(Vec::new()),
            trial: trial::Trial::default(),
        };
        if let Some(mode) = facts.mode() {
            facts.denied = rights::denied(client, mode, namespace).await;
            facts.trial =
                trial::run(client, facts.local_queues.as_deref().unwrap_or_default()).await;
        }
        facts
    }

    /// The installed mode; none without Switchyard.
    pub(super) fn mode(&self) -> Option<Mode> {
        let has = |name: &str| {
            let all = self.deployments.as_deref().unwrap_or_default();
            all.iter().any(|it| it.metadata.name.as_deref() == Some(name))
        };
        let by_deployment = Mode::ALL.into_iter().find(|mode| has(mode.name()));
        let holder = |lease: &Lease| {
            lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
        };
        let leads = matches!(&self.lease, Ok(Some(lease)) if holder(lease).is_some())
            && !has("kueue-controller-manager");
        let is_there = |secret: &Read<Option<Secret>>| matches!(secret, Ok(Some(_)));
        // A program that runs outside of a Deployment holds a Lease. Kueue's has the same name.
        let by_traces = match (is_there(&self.authority), is_there(&self.identity)) {
            (true, _) => Mode::Hub,
            (false, true) => Mode::Agent,
            (false, false) => Mode::Single,
        };
        by_deployment.or_else(|| leads.then_some(by_traces))
    }

    /// The age of a time, by the clock of the API server.
    pub(super) fn seconds_since(&self, time: &MicroTime) -> i64 {
        let now = self.server.as_ref().map_or_else(|_| Timestamp::now(), |server| server.now);
        now.as_second() - time.0.as_second()
    }

    /// The Deployment of the mode.
    pub(super) fn deployment(&self) -> Option<&Deployment> {
        let name = self.mode()?.name();
        self.deployments
            .as_deref()
            .unwrap_or_default()
            .iter()
            .find(|it| it.metadata.name.as_deref() == Some(name))
    }

    /// The configuration file of the mode, if it can be read.
    pub(super) fn config(&self) -> Option<switchyard_config::Configuration> {
        let name = format!("{}-config", self.mode()?.name());
        let all = self.configs.as_deref().unwrap_or_default();
        let map = all.iter().find(|it| it.metadata.name.as_deref() == Some(&name))?;
        let text = map.data.as_ref()?.get("controller_manager_config.yaml")?;
        switchyard_config::load(text).ok()
    }
}

/// The version and the time of the API server.
async fn server(client: &Client) -> Read<Server> {
    let request = http::Request::get("/version")
        .body(kube::client::Body::empty())
        .map_err(|error| error.to_string())?;
    let before = Timestamp::now();
    let response = within(client.send(request)).await?;
    let after = Timestamp::now();
    let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| rfc2822::parse(date).ok()).map(|date| date.timestamp());
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await
        .map_err(|error| error.to_string())?;
    let version: serde_json::Value =
        serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
    let version = version["gitVersion"].as_str().unwrap_or("of unknown version").to_owned();
    // The header names whole seconds, rounded down.
    let ahead = date.map(|date| {
        match (before.as_second() - date.as_second() - 1, date.as_second() - after.as_second()) {
            (behind, _) if behind > 0 => -behind,
            (_, ahead) => ahead.max(0),
        }
    });
    Ok(Server { version, ahead, now: date.unwrap_or(after) })
}

/// All objects of a kind; none where the cluster does not serve it.
async fn list<K>(api: Api<K>) -> Read<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug + Resource<DynamicType = ()>,
{
    let resource = K::plural(&());
    match within(api.list(&ListParams::default())).await {
        Ok(list) => Ok(list.items),
        Err(error) if error.starts_with(NOT_FOUND) => Ok(Vec::new()),
        Err(error) => Err(format!("listing {resource}: {error}")),
    }
}

/// An object; none if it is not there.
async fn get<K>(api: Api<K>, name: &str) -> Read<Option<K>>
where
    K: Clone + DeserializeOwned + Debug + Resource<DynamicType = ()>,
{
    within(api.get_opt(name))
        .await
        .map_err(|error| format!("reading {} {name}: {error}", K::plural(&())))
}

const NOT_FOUND: &str = "404";

async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Read<T> {
    match tokio::time::timeout(DEADLINE, request).await {
        Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            Err(format!("{NOT_FOUND}: {}", status.message))
        }
        Ok(result) => result.map_err(|error| crate::cause(&error)),
    }
}
