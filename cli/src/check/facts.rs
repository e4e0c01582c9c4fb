//! Reads the objects and answers of one cluster that the checks need. Switchyard need not run.

use std::collections::BTreeMap;
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

use super::agent_proxy::{self, AgentProxy, Source};
use super::mode::Mode;
use super::{dry_run, rights};

/// For each request; later counts as denied.
const DEADLINE: Duration = Duration::from_secs(20);

/// The Lease of the admission controller; stock Kueue's has the same name.
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

/// Name of both webhook configurations.
const WEBHOOKS: &str = "switchyard";

/// A value, or why it could not be read.
pub(crate) type ReadResult<T> = Result<T, String>;

#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// For example v1.36.3.
    pub(crate) version: String,
    /// Seconds that its clock is ahead of this machine's; `None` without a Date header.
    pub(super) ahead: Option<i64>,
    /// Time of the Date header, else this machine's.
    pub(super) now: Timestamp,
}

/// Facts about one cluster.
pub(super) struct ClusterFacts {
    /// Namespace of the installation.
    pub(super) namespace: String,
    pub(super) server: ReadResult<Server>,
    pub(super) crds: ReadResult<Vec<CustomResourceDefinition>>,
    pub(super) deployments: ReadResult<Vec<Deployment>>,
    pub(super) pods: ReadResult<Vec<Pod>>,
    pub(super) lease: ReadResult<Option<Lease>>,
    pub(super) mutating: ReadResult<Option<MutatingWebhookConfiguration>>,
    pub(super) validating: ReadResult<Option<ValidatingWebhookConfiguration>>,
    /// The webhooks' certificate.
    pub(super) certificate: ReadResult<Option<Secret>>,
    /// The hub's CA and address.
    pub(super) authority: ReadResult<Option<Secret>>,
    /// The agent's join token and hub address.
    pub(super) join: ReadResult<Option<Secret>>,
    /// The name of that Secret.
    pub(super) join_secret: String,
    /// The proxy of the agent's pods.
    pub(super) proxy: ReadResult<AgentProxy>,
    /// The agent's identity.
    pub(super) identity: ReadResult<Option<Secret>>,
    pub(super) services: ReadResult<Vec<Service>>,
    pub(super) endpoints: ReadResult<Vec<EndpointSlice>>,
    /// ConfigMaps of the namespace; each mode's holds its configuration file.
    pub(super) configs: ReadResult<Vec<ConfigMap>>,
    pub(super) namespaces: ReadResult<Vec<Namespace>>,
    pub(super) clusters: ReadResult<Vec<MultiKueueCluster>>,
    pub(super) multikueue_configs: ReadResult<Vec<MultiKueueConfig>>,
    pub(super) checks: ReadResult<Vec<AdmissionCheck>>,
    pub(super) cluster_queues: ReadResult<Vec<ClusterQueue>>,
    pub(super) local_queues: ReadResult<Vec<LocalQueue>>,
    /// Rights that the program lacks.
    pub(super) denied: ReadResult<Vec<String>>,
    /// Results of creating objects by dry run.
    pub(super) dry_run: dry_run::DryRun,
}

impl ClusterFacts {
    /// Reads a cluster. Boxed, because the future of so many requests is too large for a small
    /// stack.
    pub(super) async fn read_boxed(client: &Client, namespace: &str) -> Self {
        Box::pin(Self::read(client, namespace)).await
    }

    async fn read(client: &Client, namespace: &str) -> Self {
        let c = || client.clone();
        let own = async |name: &str| {
            get(Api::<Secret>::namespaced(client.clone(), namespace), name).await
        };
        let server = server(client).await;
        // Nothing else would be answered, and each request has its deadline.
        if let Err(error) = &server {
            return Self::unread(namespace, error);
        }
        let (crds, deployments, pods, lease) = join!(
            list(Api::all(c())),
            list(Api::namespaced(c(), namespace)),
            list(Api::namespaced(c(), namespace)),
            get(Api::namespaced(c(), namespace), LEASE),
        );
        let (mutating, validating, certificate, authority) = join!(
            get(Api::all(c()), WEBHOOKS),
            get(Api::all(c()), WEBHOOKS),
            own("switchyard-webhook-cert"),
            own(switchyard_hub_pki::store::CA_SECRET),
        );
        let join_secret =
            super::agent_endpoint::join_secret(deployments.as_deref().unwrap_or_default());
        let (identity, join) = join!(own(switchyard_agent::identity::SECRET), own(&join_secret));
        let proxy = read_proxy(client, namespace, deployments.as_deref().unwrap_or_default()).await;
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
            join_secret,
            proxy,
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
            dry_run: dry_run::DryRun::default(),
        };
        if let Some(mode) = facts.mode() {
            facts.denied = rights::denied(client, mode, namespace).await;
            facts.dry_run =
                dry_run::run(client, facts.local_queues.as_deref().unwrap_or_default()).await;
        }
        facts
    }

    /// The facts about a cluster that does not answer.
    fn unread(namespace: &str, error: &str) -> Self {
        fn no<T>(error: &str) -> ReadResult<T> {
            Err(error.to_owned())
        }
        Self {
            namespace: namespace.to_owned(),
            server: no(error),
            crds: no(error),
            deployments: no(error),
            pods: no(error),
            lease: no(error),
            mutating: no(error),
            validating: no(error),
            certificate: no(error),
            authority: no(error),
            join: no(error),
            join_secret: String::new(),
            proxy: no(error),
            identity: no(error),
            services: no(error),
            endpoints: no(error),
            configs: no(error),
            namespaces: no(error),
            clusters: no(error),
            multikueue_configs: no(error),
            checks: no(error),
            cluster_queues: no(error),
            local_queues: no(error),
            denied: no(error),
            dry_run: dry_run::DryRun::default(),
        }
    }

    /// The installed mode; `None` without Switchyard.
    pub(super) fn mode(&self) -> Option<Mode> {
        let has = |name: &str| {
            let all = self.deployments.as_deref().unwrap_or_default();
            all.iter().any(|it| it.metadata.name.as_deref() == Some(name))
        };
        let by_deployment = Mode::ALL.into_iter().find(|mode| has(mode.name()));
        let holder = |lease: &Lease| {
            lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
        };
        // After a removal, a Lease may keep its holder.
        let is_left = |lease: &Lease| {
            let spec = lease.spec.as_ref();
            let renewed = spec.and_then(|spec| Some((spec, spec.renew_time.as_ref()?)));
            let has_webhooks = !matches!(&self.mutating, Ok(None));
            !has_webhooks
                && renewed.is_some_and(|(spec, time)| {
                    super::cluster::is_overdue(spec, self.seconds_since(time))
                })
        };
        let leads = matches!(&self.lease, Ok(Some(lease)) if holder(lease).is_some() && !is_left(lease))
            && !has("kueue-controller-manager");
        let is_there = |secret: &ReadResult<Option<Secret>>| matches!(secret, Ok(Some(_)));
        // A program outside of a Deployment is recognised by the Lease that it holds.
        let by_traces = match (is_there(&self.authority), is_there(&self.identity)) {
            (true, _) => Mode::Hub,
            (false, true) => Mode::Agent,
            (false, false) => Mode::Single,
        };
        by_deployment.or_else(|| leads.then_some(by_traces))
    }

    /// Age of a time by the API server's clock.
    pub(super) fn seconds_since(&self, time: &MicroTime) -> i64 {
        seconds_since(&self.server, time)
    }

    pub(super) fn deployment(&self) -> Option<&Deployment> {
        let name = self.mode()?.name();
        self.deployments
            .as_deref()
            .unwrap_or_default()
            .iter()
            .find(|it| it.metadata.name.as_deref() == Some(name))
    }

    /// The configuration file of the mode, if it is readable.
    pub(super) fn config(&self) -> Option<switchyard_config::Configuration> {
        let name = format!("{}-config", self.mode()?.name());
        let all = self.configs.as_deref().unwrap_or_default();
        let map = all.iter().find(|it| it.metadata.name.as_deref() == Some(&name))?;
        let text = map.data.as_ref()?.get("controller_manager_config.yaml")?;
        switchyard_config::load(text).ok()
    }
}

/// The proxy by the variables of the agent's pods, with the Secrets and ConfigMaps behind them.
async fn read_proxy(
    client: &Client,
    namespace: &str,
    deployments: &[Deployment],
) -> ReadResult<AgentProxy> {
    let mut values = BTreeMap::new();
    for (variable, source) in agent_proxy::sources(deployments) {
        let missing = |kind: &str, name: &str, key: &str| {
            format!("the {kind} {name} of the agent's {variable} has no key {key}")
        };
        let value = match source {
            Source::Value(value) => value,
            Source::Secret { name, key } => {
                let found =
                    get(Api::<Secret>::namespaced(client.clone(), namespace), &name).await?;
                let value = found.and_then(|secret| secret.data?.remove(&key));
                let value = value.ok_or_else(|| missing("Secret", &name, &key))?;
                String::from_utf8_lossy(&value.0).into_owned()
            }
            Source::ConfigMap { name, key } => {
                let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
                let found = get(maps, &name).await?;
                let value = found.and_then(|map| map.data?.remove(&key));
                value.ok_or_else(|| missing("ConfigMap", &name, &key))?
            }
        };
        values.insert(variable, value);
    }
    Ok(AgentProxy::new(values, agent_proxy::has_kubeconfig_flag(deployments)))
}

fn seconds_since(server: &ReadResult<Server>, time: &MicroTime) -> i64 {
    let now = server.as_ref().map_or_else(|_| Timestamp::now(), |server| server.now);
    now.as_second() - time.0.as_second()
}

/// Since how many seconds no hub renews the Lease of this namespace, if it has expired. A Lease that
/// does not exist or cannot be read counts as renewed.
pub(crate) async fn silence_of_hub(client: &Client, namespace: &str) -> Option<i64> {
    let lease: ReadResult<Option<Lease>> =
        get(Api::namespaced(client.clone(), namespace), LEASE).await;
    let spec = lease.ok()??.spec?;
    let age = seconds_since(&server(client).await, spec.renew_time.as_ref()?);
    super::cluster::is_overdue(&spec, age).then_some(age)
}

pub(crate) async fn server(client: &Client) -> ReadResult<Server> {
    let request = http::Request::get("/version")
        .body(kube::client::Body::empty())
        .map_err(|error| error.to_string())?;
    let before = Timestamp::now();
    let response = within(client.send(request)).await?;
    let after = Timestamp::now();
    let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| rfc2822::parse(date).ok()).map(|date| date.timestamp());
    let body = http_body_util::Limited::new(response.into_body(), LARGEST_VERSION);
    let body = tokio::time::timeout(DEADLINE, http_body_util::BodyExt::collect(body))
        .await
        .map_err(|_| format!("no answer within {} s", DEADLINE.as_secs()))?
        .map_err(|error| error.to_string())?;
    let version: serde_json::Value =
        serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
    let version = version["gitVersion"].as_str().unwrap_or("of unknown version").to_owned();
    // The Date header has whole seconds, rounded down.
    let ahead = date.map(|date| {
        match (before.as_second() - date.as_second() - 1, date.as_second() - after.as_second()) {
            (behind, _) if behind > 0 => -behind,
            (_, ahead) => ahead.max(0),
        }
    });
    Ok(Server { version, ahead, now: date.unwrap_or(after) })
}

/// All objects of a kind; empty if the cluster does not serve it.
async fn list<K>(api: Api<K>) -> ReadResult<Vec<K>>
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

async fn get<K>(api: Api<K>, name: &str) -> ReadResult<Option<K>>
where
    K: Clone + DeserializeOwned + Debug + Resource<DynamicType = ()>,
{
    within(api.get_opt(name))
        .await
        .map_err(|error| format!("reading {} {name}: {error}", K::plural(&())))
}

/// The most bytes of an answer to `/version` that are read.
const LARGEST_VERSION: usize = 64 * 1024;
const NOT_FOUND: &str = "404";

/// The answer to a request, or why there is none within the deadline.
pub(crate) async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> ReadResult<T> {
    match tokio::time::timeout(DEADLINE, request).await {
        Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            Err(format!("{NOT_FOUND}: {}", status.message))
        }
        Ok(result) => result.map_err(|error| crate::cause(&error)),
    }
}
