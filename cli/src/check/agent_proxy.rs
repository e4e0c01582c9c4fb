//! The proxy between an agent and its hub, by the variables of the agent's pods.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{EnvVar, PodSpec};
use kube::ResourceExt as _;
use switchyard_agent::HubAddress;
use switchyard_agent::proxy::{BadProxy, Proxy, ProxyFlag};
use switchyard_api::conditions;

use super::explain::CheckName;
use super::facts::ClusterFacts;
use super::mode::Mode;
use super::report::Line;

const FLAG: &str = "SWITCHYARD_PROXY";
const PROXIES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const EXCEPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];
const KUBECONFIG: &str = "KUBECONFIG";

/// The hub in a CONNECT request, `HOST:PORT`.
fn target(hub: &HubAddress) -> String {
    hub.to_string().trim_start_matches("https://").to_owned()
}

/// The advice about a proxy that keeps an agent from its hub.
pub(super) fn mend(hub: &HubAddress, proxy: &Proxy) -> String {
    let target = target(hub);
    format!(
        "see whether {proxy} allows CONNECT to {target} and reaches it; the agent's log has its answer. agent.proxy or agent.proxySecret names \
         another proxy, and agent.proxy=none dials the hub directly: docs/network.md"
    )
}

/// Where a variable of the agent's pods has its value from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    Value(String),
    Secret { name: String, key: String },
    ConfigMap { name: String, key: String },
}

/// The template of the agent's pods.
pub(super) fn agent_pod(deployments: &[Deployment]) -> Option<&PodSpec> {
    let agent = deployments.iter().find(|it| it.name_any() == Mode::Agent.name())?;
    agent.spec.as_ref()?.template.spec.as_ref()
}

fn variables(deployments: &[Deployment]) -> impl Iterator<Item = &EnvVar> {
    let containers = agent_pod(deployments).into_iter().flat_map(|pod| &pod.containers);
    containers.flat_map(|container| container.env.iter().flatten())
}

/// The variables that decide about the proxy. The last one with a name counts.
pub(super) fn sources(deployments: &[Deployment]) -> BTreeMap<&'static str, Source> {
    let names = || [FLAG, KUBECONFIG].into_iter().chain(PROXIES).chain(EXCEPTIONS);
    let known = variables(deployments).filter_map(|variable| {
        let name = names().find(|name| *name == variable.name)?;
        Some((name, source(variable)?))
    });
    known.collect()
}

fn source(variable: &EnvVar) -> Option<Source> {
    let Some(from) = &variable.value_from else {
        return Some(Source::Value(variable.value.clone().unwrap_or_default()));
    };
    match (from.secret_key_ref.clone(), from.config_map_key_ref.clone()) {
        (Some(it), _) => Some(Source::Secret { name: it.name, key: it.key }),
        (None, Some(it)) => Some(Source::ConfigMap { name: it.name, key: it.key }),
        (None, None) => None,
    }
}

/// Whether the agent reaches its API server by a kubeconfig. Else it does so directly.
pub(super) fn has_kubeconfig_flag(deployments: &[Deployment]) -> bool {
    let containers = agent_pod(deployments).into_iter().flat_map(|pod| &pod.containers);
    let mut words = containers.flat_map(|container| {
        container.command.iter().flatten().chain(container.args.iter().flatten())
    });
    words.any(|word| word == "--kubeconfig" || word.starts_with("--kubeconfig="))
}

/// The values of these variables.
#[derive(Clone, Default)]
pub(super) struct AgentProxy {
    values: BTreeMap<&'static str, String>,
    has_kubeconfig_flag: bool,
}

// Keeps passwords out of messages.
impl std::fmt::Debug for AgentProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgentProxy")
    }
}

/// The way from the agent's pods, or from this machine, to the hub.
#[derive(Debug, Default)]
pub(super) struct Way {
    pub(super) proxy: Option<Proxy>,
    /// Whether the agent's pods name the proxy, and not this machine.
    pub(super) is_of_pods: bool,
    /// The words after the hub's address in a message.
    text: String,
}

impl Way {
    /// The advice about a hub that cannot be reached through the proxy of this way.
    pub(super) fn mend(&self, hub: &HubAddress) -> Option<String> {
        let proxy = self.proxy.as_ref()?;
        if self.is_of_pods {
            return Some(mend(hub, proxy));
        }
        let target = target(hub);
        Some(format!(
            "set NO_PROXY on this machine, or let the proxy {proxy} allow CONNECT to {target}"
        ))
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl AgentProxy {
    pub(super) fn new(values: BTreeMap<&'static str, String>, has_kubeconfig_flag: bool) -> Self {
        Self { values, has_kubeconfig_flag }
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn first(&self, names: [&'static str; 2]) -> Option<&'static str> {
        names.into_iter().find(|name| self.value(name).is_some())
    }

    /// The way to a hub: that of the agent's pods, or of this machine if their variables name none.
    ///
    /// # Errors
    /// A proxy whose URL cannot be used.
    pub(super) fn way(&self, hub: &HubAddress) -> Result<Way, BadProxy> {
        if let Some(value) = self.value(FLAG) {
            return Ok(of_pods(ProxyFlag::from(value).select(hub)?, FLAG));
        }
        let flag = ProxyFlag::default();
        let Some(name) = self.first(PROXIES) else {
            return Ok(through(flag.select(hub)?, "HTTPS_PROXY of this machine"));
        };
        let proxy = flag.select_with(hub, |name| self.value(name).map(ToOwned::to_owned))?;
        if proxy.is_none()
            && let Some(exceptions) = self.first(EXCEPTIONS)
        {
            let text = format!(", past {name} of the agent's pods, whose {exceptions} names it");
            return Ok(Way { proxy: None, is_of_pods: true, text });
        }
        Ok(of_pods(proxy, name))
    }

    /// A proxy of the environment is also that of the API server of a kubeconfig. In a cluster, the
    /// agent dials its API server directly.
    pub(super) fn check_api_server(&self) -> Option<Line> {
        let name = self.first(PROXIES)?;
        let has_kubeconfig = self.has_kubeconfig_flag || self.value(KUBECONFIG).is_some();
        (has_kubeconfig && self.first(EXCEPTIONS).is_none()).then(|| {
            Line::warning(
                CheckName::HubReachable,
                format!(
                    "the agent dials the API server of its kubeconfig through {name} of its pods, too: there is no NO_PROXY"
                ),
                "name the API server in NO_PROXY, or set agent.proxy, which counts for the hub alone, instead of HTTPS_PROXY",
            )
        })
    }
}

fn of_pods(proxy: Option<Proxy>, variable: &str) -> Way {
    Way { is_of_pods: true, ..through(proxy, &format!("{variable} of the agent's pods")) }
}

fn through(proxy: Option<Proxy>, setting: &str) -> Way {
    let text = proxy.as_ref().map(|proxy| format!(" through the proxy {proxy} ({setting})"));
    Way { proxy, is_of_pods: false, text: text.unwrap_or_default() }
}

/// A worker that the hub does not hear, and whose agent has a proxy.
pub(super) fn check_lost(hub: &ClusterFacts, worker: &ClusterFacts, name: &str) -> Option<Line> {
    let cluster = hub.clusters.as_ref().ok()?.iter().find(|it| it.name_any() == name)?;
    let known = cluster.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    if conditions::is_true(known, conditions::ACTIVE) {
        return None;
    }
    let address: HubAddress = super::agent_endpoint::join_text(worker, "hub")?.parse().ok()?;
    let way = worker.proxy.as_ref().ok()?.way(&address).ok()?;
    let proxy = way.proxy.as_ref().filter(|_| way.is_of_pods)?;
    let message = format!("{name} is not connected, and its agent dials {address}{way}");
    Some(Line::warning(CheckName::HubReachable, message, mend(&address, proxy)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A Deployment of the agent with these variables.
    fn deployments(env: &Value, args: &[&str]) -> Vec<Deployment> {
        let containers = json!([{"name": "agent", "env": env, "args": args}]);
        let spec = json!({"selector": {}, "template": {"spec": {"containers": containers}}});
        let deployment = json!({"metadata": {"name": "switchyard-agent"}, "spec": spec});
        vec![serde_json::from_value(deployment).unwrap()]
    }

    fn proxy(values: &[(&'static str, &str)]) -> AgentProxy {
        let values = values.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        AgentProxy::new(values, false)
    }

    #[test]
    fn variables_are_those_of_the_agents_pods() {
        let reference = json!({"name": "mine", "key": "proxy"});
        let env = json!([
            {"name": "X", "value": "x"},
            {"name": "SWITCHYARD_PROXY", "value": "http://early"},
            {"name": "NO_PROXY", "valueFrom": {"configMapKeyRef": reference}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "SWITCHYARD_PROXY", "valueFrom": {"secretKeyRef": reference}},
            {"name": "HTTPS_PROXY", "value": "http://p"},
        ]);
        let (name, key) = ("mine".to_owned(), "proxy".to_owned());
        let expected = [
            ("HTTPS_PROXY", Source::Value("http://p".to_owned())),
            ("NO_PROXY", Source::ConfigMap { name: name.clone(), key: key.clone() }),
            ("SWITCHYARD_PROXY", Source::Secret { name, key }),
        ];
        assert_eq!(sources(&deployments(&env, &[])), BTreeMap::from(expected));
        assert!(sources(&[]).is_empty());
    }

    #[test]
    fn way_is_that_of_the_pods_without_the_password() {
        let hub: HubAddress = "https://hub.example:7443".parse().unwrap();
        let text = |values: &[(&'static str, &str)]| proxy(values).way(&hub).unwrap().to_string();
        let url = "http://user:s3cret@10.0.0.5:3128";
        assert_eq!(
            text(&[("SWITCHYARD_PROXY", url), ("HTTPS_PROXY", "http://other")]),
            " through the proxy 10.0.0.5:3128 (SWITCHYARD_PROXY of the agent's pods)"
        );
        assert_eq!(
            text(&[("https_proxy", url), ("NO_PROXY", "10.0.0.0/8")]),
            " through the proxy 10.0.0.5:3128 (https_proxy of the agent's pods)"
        );
        assert_eq!(
            text(&[("HTTPS_PROXY", url), ("no_proxy", "hub.example")]),
            ", past HTTPS_PROXY of the agent's pods, whose no_proxy names it"
        );
        assert_eq!(text(&[("SWITCHYARD_PROXY", "none"), ("HTTPS_PROXY", url)]), "");
        assert!(proxy(&[("HTTPS_PROXY", "socks5://x")]).way(&hub).is_err());
    }

    #[test]
    fn advice_about_a_proxy_names_its_owner() {
        let hub: HubAddress = "https://hub.example:7443".parse().unwrap();
        let of_pods = proxy(&[("SWITCHYARD_PROXY", "http://p:3128")]).way(&hub).unwrap();
        let mend = of_pods.mend(&hub).unwrap();
        assert!(mend.contains("agent.proxy"), "{mend}");
        let here = Way { is_of_pods: false, ..of_pods };
        assert_eq!(
            here.mend(&hub).unwrap(),
            "set NO_PROXY on this machine, or let the proxy p:3128 allow CONNECT to hub.example:7443"
        );
        assert_eq!(Way::default().mend(&hub), None);
    }

    #[test]
    fn api_server_of_a_kubeconfig_needs_no_proxy() {
        let env = [("HTTPS_PROXY", "http://p")];
        assert_eq!(proxy(&env).check_api_server(), None, "in a cluster it is dialled directly");
        let mut by_flag = proxy(&env);
        by_flag.has_kubeconfig_flag =
            has_kubeconfig_flag(&deployments(&json!([]), &["--kubeconfig=/etc/k"]));
        let line = by_flag.check_api_server().unwrap();
        assert!(line.message.contains("through HTTPS_PROXY of its pods"), "{}", line.message);
        let by_variable = [("HTTPS_PROXY", "http://p"), ("KUBECONFIG", "/etc/k")];
        assert!(proxy(&by_variable).check_api_server().is_some());
        let exempt = [by_variable[0], by_variable[1], ("NO_PROXY", "10.0.0.0/8")];
        assert_eq!(proxy(&exempt).check_api_server(), None);
        assert!(!has_kubeconfig_flag(&deployments(&json!([]), &["--hub=https://h"])));
    }

    #[test]
    fn worker_that_the_hub_does_not_hear_is_shown_with_its_proxy() {
        let mut worker = crate::check::tests::facts();
        worker.deployments = Ok(deployments(&json!([]), &[]));
        let data = json!({"hub": "aHR0cHM6Ly9odWIuZXhhbXBsZTo3NDQz"});
        worker.join = Ok(Some(serde_json::from_value(json!({"data": data})).unwrap()));
        worker.proxy = Ok(proxy(&[("HTTPS_PROXY", "http://u:s3cret@p:3128")]));
        let mut hub = crate::check::tests::facts();
        assert_eq!(check_lost(&hub, &worker, "east"), None, "it is connected");
        hub.clusters.as_mut().unwrap()[0].status = None;
        let line = check_lost(&hub, &worker, "east").unwrap();
        assert_eq!(
            line.message,
            "east is not connected, and its agent dials https://hub.example:7443 through the proxy p:3128 (HTTPS_PROXY of the agent's pods)"
        );
        let mend = line.mend.unwrap();
        assert!(
            mend.starts_with("see whether p:3128 allows CONNECT to hub.example:7443"),
            "{mend}"
        );
        worker.proxy = Ok(AgentProxy::default());
        assert_eq!(check_lost(&hub, &worker, "east"), None);
    }
}
