//! Checks how agents reach the hub: the Service, its pods, and the TLS endpoint.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PodSpec, Secret, Service};
use kube::ResourceExt as _;
use switchyard_agent::HubAddress;
use switchyard_agent::proxy::ProxyFlag;
use switchyard_agent::route::Route;
use switchyard_agent::tls::{self, Pin};
use switchyard_hub_pki::ca;
use switchyard_hub_pki::store::ADDRESS_KEY;
use switchyard_platform::authority::authority;

use super::explain::CheckName;
use super::facts::ClusterFacts;
use super::mode::Mode;
use super::report::Line;
use crate::output::{counted, is_or_are};

const CHECK: CheckName = CheckName::AgentsDoor;

/// The Secret with the join token, unless the agent's Deployment mounts another one.
pub(crate) const JOIN_SECRET: &str = "switchyard-agent-join";

/// The volume of the agent's pods with the join token.
const JOIN_VOLUME: &str = "join";

/// For a TLS connection to the hub.
const DEADLINE: Duration = Duration::from_secs(10);

/// Checks on a hub whether agents reach it.
pub(super) async fn check_hub(facts: &ClusterFacts) -> Vec<Line> {
    let mut lines: Vec<Line> = check_service(facts).into_iter().collect();
    let secret = match &facts.authority {
        Ok(Some(secret)) => secret,
        Ok(None) => {
            let mend = "the hub makes it at its first start: see `deployment` and `leader`";
            lines.push(Line::failure(CHECK, "the hub has no authority for its agents yet", mend));
            return lines;
        }
        Err(error) => {
            lines.push(Line::unread(CHECK, error));
            return lines;
        }
    };
    let advertised = advertised(secret);
    let found = facts.services.as_ref().ok().and_then(|all| hub_service(all)).and_then(address_of);
    lines.push(match (advertised.or(found), pin(secret)) {
        (None, _) => Line::warning(
            CHECK,
            "it is not known where agents reach the hub",
            "wait for the load balancer's address, or set hub.advertise, or name it with `switchyard cluster add --hub-address`",
        ),
        (Some(_), None) => Line::failure(
            CHECK,
            "the Secret switchyard-hub-ca holds no CA certificate",
            "restore the Secret from a backup, or delete it and enrol each agent again",
        ),
        (Some(address), Some(pin)) => probe(CHECK, &address, &pin, &ProxyFlag::default()).await,
    });
    lines
}

/// Checks on a worker whether the agent reaches its hub and can join.
pub(super) async fn check_agent(facts: &ClusterFacts) -> Vec<Line> {
    const CHECK: CheckName = CheckName::HubReachable;
    let mend = "on the hub, `switchyard cluster add NAME` makes the Secret";
    let name = &facts.join_secret;
    let join = match &facts.join {
        Ok(Some(join)) => join.data.clone().unwrap_or_default(),
        Ok(None) if facts.deployment().is_none() => return Vec::new(),
        Ok(None) => {
            return vec![Line::failure(CHECK, format!("there is no Secret {name}"), mend)];
        }
        Err(error) => return vec![Line::unread(CHECK, error)],
    };
    let text =
        |key: &str| join.get(key).map(|value| String::from_utf8_lossy(&value.0).trim().to_owned());
    let (Some(address), Some(pin)) = (text("hub"), text("hub-ca-sha256")) else {
        return vec![Line::failure(
            CHECK,
            format!("the Secret {name} lacks hub or hub-ca-sha256"),
            mend,
        )];
    };
    let mut lines = vec![match &facts.proxy {
        Ok(proxy) => probe(CHECK, &address, &pin, proxy).await,
        Err(error) => Line::unread(CHECK, error),
    }];
    let has_token = text("token").is_some_and(|token| !token.is_empty());
    lines.extend(match (&facts.identity, has_token) {
        (Ok(None), false) => {
            Some(Line::failure(CHECK, "the agent has neither an identity nor a token", mend))
        }
        (Ok(None), true) => Some(Line::warning(
            CHECK,
            format!("the agent has not enrolled: the hub has not accepted the token of the Secret {name}"),
            "the agent's log has the hub's answer. A token is valid once, for a time, and for one cluster: on the hub, \
             `switchyard cluster add NAME` makes a new one",
        )),
        _ => None,
    });
    lines
}

/// The template of the agent's pods.
fn agent_pod(deployments: &[Deployment]) -> Option<&PodSpec> {
    let agent = deployments.iter().find(|it| it.name_any() == Mode::Agent.name())?;
    agent.spec.as_ref()?.template.spec.as_ref()
}

/// The Secret with the join token that the agent mounts.
pub(crate) fn join_secret(deployments: &[Deployment]) -> String {
    let pod = agent_pod(deployments);
    let mut volumes = pod.and_then(|pod| pod.volumes.as_ref()).into_iter().flatten();
    let mounted = volumes.find(|it| it.name == JOIN_VOLUME).and_then(|it| it.secret.as_ref());
    let named = mounted.and_then(|secret| secret.secret_name.clone());
    named.unwrap_or_else(|| JOIN_SECRET.to_owned())
}

/// The variable of the agent's pods with the proxy to the hub.
const PROXY_VARIABLE: &str = "SWITCHYARD_PROXY";

/// Where the agent's pods have the proxy from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProxySource {
    /// The variable's value; empty without the variable.
    Value(String),
    Secret {
        name: String,
        key: String,
    },
}

/// The proxy of the agent's Deployment.
pub(super) fn proxy(deployments: &[Deployment]) -> ProxySource {
    let mut variables = agent_pod(deployments)
        .into_iter()
        .flat_map(|pod| &pod.containers)
        .flat_map(|container| container.env.iter().flatten());
    let variable = variables.find(|it| it.name == PROXY_VARIABLE);
    let secret = variable.and_then(|it| it.value_from.as_ref()?.secret_key_ref.clone());
    match secret {
        Some(secret) => ProxySource::Secret { name: secret.name, key: secret.key },
        None => ProxySource::Value(variable.and_then(|it| it.value.clone()).unwrap_or_default()),
    }
}

/// The Service and the pods behind it.
fn check_service(facts: &ClusterFacts) -> Option<Line> {
    let services = facts.services.as_ref().ok()?;
    // A hub outside of a Deployment needs no Service.
    facts.deployment()?;
    let Some(service) = hub_service(services) else {
        let mend = "helm upgrade, or kubectl apply --server-side --filename hub.yaml";
        return Some(Line::failure(CHECK, "the Service switchyard-hub is missing", mend));
    };
    let slices = facts.endpoints.as_ref().ok()?.iter().filter(|slice| {
        slice
            .labels()
            .get("kubernetes.io/service-name")
            .is_some_and(|name| *name == service.name_any())
    });
    let is_ready = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    let ready =
        slices.flat_map(|slice| &slice.endpoints).filter(|endpoint| is_ready(endpoint)).count();
    Some(match ready {
        0 => Line::failure(
            CHECK,
            "no ready pod is behind the Service switchyard-hub",
            "see `deployment` and `pods`",
        ),
        ready => {
            let (pods, are) = (counted(ready, "pod"), is_or_are(ready));
            Line::ok(CHECK, format!("{pods} {are} behind the Service switchyard-hub"))
        }
    })
}

pub(crate) fn hub_service(services: &[Service]) -> Option<&Service> {
    services.iter().find(|service| service.name_any() == Mode::Hub.name())
}

/// The address of the Service in its status or external IPs, usually a load balancer's. Node
/// addresses are not included.
pub(crate) fn address_of(service: &Service) -> Option<String> {
    let port = service.spec.as_ref()?.ports.as_ref()?.first()?.port;
    let external =
        service.spec.as_ref()?.external_ips.as_ref().and_then(|all| all.first().cloned());
    let ingress = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
    let host = ingress
        .and_then(|ingress| ingress.hostname.clone().or_else(|| ingress.ip.clone()))
        .or(external)?;
    Some(format!("https://{}", authority(&host, port)))
}

pub(crate) fn advertised(secret: &Secret) -> Option<String> {
    let address = secret.data.as_ref()?.get(ADDRESS_KEY)?;
    Some(String::from_utf8_lossy(&address.0).into_owned()).filter(|address| !address.is_empty())
}

fn pin(secret: &Secret) -> Option<String> {
    ca::pin_of_pem(&secret.data.as_ref()?.get("tls.crt")?.0).ok()
}

/// Connects like an agent that enrols.
async fn probe(check: CheckName, address: &str, pin: &str, proxy: &ProxyFlag) -> Line {
    let (hub, pin): (HubAddress, Pin) = match (address.parse(), pin.parse()) {
        (Ok(hub), Ok(pin)) => (hub, pin),
        _ => {
            let mend = "`switchyard cluster add NAME --hub-address https://HOST:PORT` writes both";
            return Line::failure(
                check,
                format!("{address:?} is no address of a hub, or {pin:?} no SHA-256"),
                mend,
            );
        }
    };
    let proxy = match proxy.select(&hub) {
        Ok(proxy) => proxy,
        Err(error) => {
            return Line::failure(
                check,
                error.to_string(),
                "correct the proxy: agent.proxy or the Secret of agent.proxySecret on a worker, else HTTPS_PROXY on this machine",
            );
        }
    };
    let through =
        proxy.as_ref().map(|proxy| format!(" through the proxy {proxy}")).unwrap_or_default();
    match tokio::time::timeout(DEADLINE, tls::probe(&Route::new(hub, proxy), &pin)).await {
        Ok(Ok(())) => Line::ok(check, format!("the hub answers at {address}{through}")),
        Ok(Err(error)) => unreachable(check, address, &error.to_string()),
        Err(_) => {
            unreachable(check, address, &format!("no answer within {} s", DEADLINE.as_secs()))
        }
    }
}

/// The line for a failed connection.
fn unreachable(check: CheckName, address: &str, error: &str) -> Line {
    if super::skew::is_out_of_date(error) {
        return super::skew::certificate_out_of_date(check, address, error);
    }
    let other = ["certificate", "no certificate with the hash", "alert", "corrupt", "handshake"];
    if other.iter().any(|word| error.contains(word)) {
        return Line::failure(
            check,
            format!("what answers at {address} is not the hub: {error}"),
            "let TLS pass through to the hub: a load balancer, ingress or proxy in between must forward TCP (layer 4), and not end TLS",
        );
    }
    Line::warning(
        check,
        format!("{address} cannot be reached from this machine: {error}"),
        "see whether the workers reach it: the name resolves, the load balancer has an address, firewalls let the port through",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::report::Outcome;

    fn service(spec: &serde_json::Value, status: &serde_json::Value) -> Service {
        serde_json::from_value(
            json!({"metadata": {"name": "switchyard-hub"}, "spec": spec, "status": status}),
        )
        .unwrap()
    }

    #[test]
    fn service_address_is_the_load_balancers() {
        let ports = json!({"ports": [{"port": 7443}]});
        let with = |ingress: serde_json::Value| {
            address_of(&service(&ports, &json!({"loadBalancer": {"ingress": [ingress]}})))
        };
        assert_eq!(with(json!({"ip": "192.0.2.1"})).as_deref(), Some("https://192.0.2.1:7443"));
        assert_eq!(
            with(json!({"hostname": "lb.example", "ip": "192.0.2.1"})).as_deref(),
            Some("https://lb.example:7443")
        );
        assert_eq!(
            with(json!({"ip": "2001:db8::1"})).as_deref(),
            Some("https://[2001:db8::1]:7443")
        );
        assert_eq!(address_of(&service(&ports, &json!({}))), None);
        let external = json!({"ports": [{"port": 443}], "externalIPs": ["192.0.2.9"]});
        assert_eq!(
            address_of(&service(&external, &json!({}))).as_deref(),
            Some("https://192.0.2.9:443")
        );
    }

    #[test]
    fn join_secret_is_the_mounted_one() {
        let with = |volumes: serde_json::Value| -> Vec<Deployment> {
            let spec = json!({"selector": {}, "template": {"spec": {"containers": [], "volumes": volumes}}});
            vec![
                serde_json::from_value(
                    json!({"metadata": {"name": "switchyard-agent"}, "spec": spec}),
                )
                .unwrap(),
            ]
        };
        let mine = json!([{"name": "config"}, {"name": "join", "secret": {"secretName": "mine"}}]);
        assert_eq!(join_secret(&with(mine)), "mine");
        assert_eq!(join_secret(&with(json!([]))), JOIN_SECRET);
        assert_eq!(join_secret(&[]), JOIN_SECRET);
    }

    /// The outcomes and messages about a worker whose Secret has these keys.
    async fn on_worker(keys: serde_json::Value, has_identity: bool) -> Vec<String> {
        let mut facts = crate::check::tests::facts();
        facts.join_secret = "mine".to_owned();
        facts.join = Ok(Some(serde_json::from_value(json!({"stringData": {}})).unwrap()));
        let data = keys.as_object().unwrap().iter().map(|(key, text)| {
            let text = text.as_str().unwrap().as_bytes().to_vec();
            (key.clone(), k8s_openapi::ByteString(text))
        });
        if let Ok(Some(join)) = &mut facts.join {
            join.data = Some(data.collect());
        }
        facts.identity = Ok(has_identity.then(Secret::default));
        let lines = check_agent(&facts).await;
        lines.into_iter().map(|it| format!("{:?}: {}", it.outcome, it.message)).collect()
    }

    #[test]
    fn proxy_is_that_of_the_agents_pods() {
        let with = |env: serde_json::Value| {
            let containers = json!([{"name": "agent", "env": env}]);
            let spec = json!({"selector": {}, "template": {"spec": {"containers": containers}}});
            let deployment = json!({"metadata": {"name": "switchyard-agent"}, "spec": spec});
            proxy(&[serde_json::from_value(deployment).unwrap()])
        };
        let url =
            json!([{"name": "X", "value": "x"}, {"name": "SWITCHYARD_PROXY", "value": "http://p"}]);
        assert_eq!(with(url), ProxySource::Value("http://p".to_owned()));
        let reference = json!({"secretKeyRef": {"name": "mine", "key": "proxy"}});
        let secret = json!([{"name": "SWITCHYARD_PROXY", "valueFrom": reference}]);
        let expected = ProxySource::Secret { name: "mine".to_owned(), key: "proxy".to_owned() };
        assert_eq!(with(secret), expected);
        assert_eq!(with(json!([])), ProxySource::Value(String::new()));
        assert_eq!(proxy(&[]), ProxySource::Value(String::new()));
    }

    #[tokio::test]
    async fn proxy_is_on_the_way_of_the_probe() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = b"HTTP/1.1 403 Forbidden\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
            // Until the agent closes it.
            let mut rest = Vec::new();
            let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await;
        });
        let proxy = ProxyFlag::from(format!("http://user:s3cret@{address}").as_str());
        let line = probe(CHECK, "https://hub.example:7443", &"0".repeat(64), &proxy).await;
        assert_eq!(line.outcome, Outcome::Warning);
        let expected = format!(
            "the proxy {address} answered 403 Forbidden to CONNECT hub.example:7443: allow CONNECT"
        );
        assert!(line.message.contains(&expected), "{}", line.message);
        assert!(!line.message.contains("s3cret"), "{}", line.message);
        let bad = probe(CHECK, "https://hub", &"0".repeat(64), &"ftp://proxy".into()).await;
        assert_eq!(bad.outcome, Outcome::Failure);
    }

    #[tokio::test]
    async fn join_secret_that_does_not_enrol_is_reported() {
        let told = on_worker(json!({"token": "east.00.s"}), false).await;
        assert_eq!(told, ["Failure: the Secret mine lacks hub or hub-ca-sha256"]);
        let bad = json!({"hub": "no address", "hub-ca-sha256": "00", "token": "east.00.s"});
        let told = on_worker(bad.clone(), false).await;
        assert!(told[0].contains("is no address of a hub"), "{told:?}");
        assert!(told[1].starts_with("Warning: the agent has not enrolled"), "{told:?}");
        assert_eq!(on_worker(bad, true).await.len(), 1);
        let none = json!({"hub": "no address", "hub-ca-sha256": "00"});
        let told = on_worker(none, false).await;
        assert_eq!(told[1], "Failure: the agent has neither an identity nor a token");
    }

    #[tokio::test]
    async fn hub_that_does_not_answer_is_a_warning() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        // A port that was free a moment ago.
        let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        drop(listener);
        let keys = json!({"hub": address, "hub-ca-sha256": "0".repeat(64), "token": "east.00.s"});
        let told = on_worker(keys, true).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(&format!("Warning: {address} cannot be reached")), "{told:?}");
    }

    #[test]
    fn wrong_certificate_fails_and_no_answer_warns() {
        let interception = unreachable(
            CHECK,
            "https://hub",
            "the server's chain has no certificate with the hash of --hub-ca-sha256",
        );
        assert_eq!(interception.outcome, Outcome::Failure);
        assert!(interception.mend.unwrap().contains("must forward TCP"));
        assert_eq!(
            unreachable(CHECK, "https://hub", "Connection refused").outcome,
            Outcome::Warning
        );
    }
}
