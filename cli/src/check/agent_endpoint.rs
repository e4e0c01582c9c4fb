//! Checks how agents reach the hub: the Service, its pods, and the TLS endpoint.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::ResourceExt as _;
use switchyard_agent::HubAddress;
use switchyard_agent::route::Route;
use switchyard_agent::tls::{self, Pin};
use switchyard_hub_pki::ca;
use switchyard_hub_pki::store::ADDRESS_KEY;
use switchyard_platform::authority::authority;

use super::agent_proxy::{self, AgentProxy, Way, agent_pod};
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
        (Some(address), Some(pin)) => probe(CHECK, &address, &pin, &AgentProxy::default()).await,
    });
    lines
}

/// Checks on a worker whether the agent reaches its hub and can join.
pub(super) async fn check_agent(facts: &ClusterFacts) -> Vec<Line> {
    const CHECK: CheckName = CheckName::HubReachable;
    let mend = "on the hub, `switchyard cluster add NAME` makes the Secret";
    let name = &facts.join_secret;
    match &facts.join {
        Ok(Some(_)) => {}
        Ok(None) if facts.deployment().is_none() => return Vec::new(),
        Ok(None) => {
            return vec![Line::failure(CHECK, format!("there is no Secret {name}"), mend)];
        }
        Err(error) => return vec![Line::unread(CHECK, error)],
    }
    let text = |key: &str| join_text(facts, key);
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
    lines.extend(facts.proxy.as_ref().ok().and_then(AgentProxy::check_api_server));
    let has_token = text("token").is_some_and(|token| !token.is_empty());
    lines.extend(match (&facts.identity, has_token) {
        (Ok(None), false) => {
            Some(Line::failure(CHECK, "the agent has neither an identity nor a token", mend))
        }
        (Ok(None), true) => Some(not_enrolled(facts, &address)),
        _ => None,
    });
    lines
}

/// The line about an agent with a token and no identity.
fn not_enrolled(facts: &ClusterFacts, address: &str) -> Line {
    const MEND: &str = "the agent's log has the hub's answer. A token is valid once, for a time, and for one cluster: on the hub, \
                        `switchyard cluster add NAME` makes a new one";
    let hub = address.parse::<HubAddress>().ok();
    let way = hub.as_ref().zip(facts.proxy.as_ref().ok()).and_then(|(hub, it)| it.way(hub).ok());
    // The agent does not use the proxy of this machine.
    let way = way.unwrap_or_default();
    let proxy = way.proxy.as_ref().filter(|_| way.is_of_pods).zip(hub.as_ref());
    let name = &facts.join_secret;
    let message = format!(
        "the agent has not enrolled: the hub has not accepted the token of the Secret {name}"
    );
    match proxy {
        None => Line::warning(CheckName::HubReachable, message, MEND),
        Some((proxy, hub)) => Line::warning(
            CheckName::HubReachable,
            format!("{message}, which the agent sends{way}"),
            format!("{MEND}. Or {}", agent_proxy::mend(hub, proxy)),
        ),
    }
}

/// A text of the Secret with the join token.
pub(super) fn join_text(facts: &ClusterFacts, key: &str) -> Option<String> {
    let join = facts.join.as_ref().ok()?.as_ref()?;
    let value = join.data.as_ref()?.get(key)?;
    Some(String::from_utf8_lossy(&value.0).trim().to_owned())
}

/// The Secret with the join token that the agent mounts.
pub(crate) fn join_secret(deployments: &[Deployment]) -> String {
    let pod = agent_pod(deployments);
    let mut volumes = pod.and_then(|pod| pod.volumes.as_ref()).into_iter().flatten();
    let mounted = volumes.find(|it| it.name == JOIN_VOLUME).and_then(|it| it.secret.as_ref());
    let named = mounted.and_then(|secret| secret.secret_name.clone());
    named.unwrap_or_else(|| JOIN_SECRET.to_owned())
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
async fn probe(check: CheckName, address: &str, pin: &str, proxy: &AgentProxy) -> Line {
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
    let way = match proxy.way(&hub) {
        Ok(way) => way,
        Err(error) => {
            return Line::failure(
                check,
                error.to_string(),
                "correct the proxy: on a worker agent.proxy, the Secret of agent.proxySecret, or HTTPS_PROXY of the agent's pods; \
                 else HTTPS_PROXY on this machine",
            );
        }
    };
    let route = Route::new(hub.clone(), way.proxy.clone());
    match tokio::time::timeout(DEADLINE, tls::probe(&route, &pin)).await {
        Ok(Ok(())) => Line::ok(check, format!("the hub answers at {address}{way}")),
        Ok(Err(error)) => unreachable(check, &hub, address, &way, &error.to_string()),
        Err(_) => {
            let error = format!("no answer within {} s", DEADLINE.as_secs());
            unreachable(check, &hub, address, &way, &error)
        }
    }
}

/// The line for a failed connection.
fn unreachable(check: CheckName, hub: &HubAddress, address: &str, way: &Way, error: &str) -> Line {
    if super::skew::is_out_of_date(error) {
        return super::skew::certificate_out_of_date(check, address, error);
    }
    let other = ["certificate", "no certificate with the hash", "alert", "corrupt", "handshake"];
    if other.iter().any(|word| error.contains(word)) {
        return Line::failure(
            check,
            format!("what answers at {address}{way} is not the hub: {error}"),
            "let TLS pass through to the hub: a load balancer, ingress or proxy in between must forward TCP (layer 4), and not end TLS",
        );
    }
    let mend = way.mend(hub).unwrap_or_else(|| {
        "see whether the workers reach it: the name resolves, the load balancer has an address, firewalls let the port through".to_owned()
    });
    Line::warning(
        check,
        format!("{address} cannot be reached from this machine{way}: {error}"),
        mend,
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

    fn with_flag(url: &str) -> AgentProxy {
        AgentProxy::new([("SWITCHYARD_PROXY", url.to_owned())].into(), false)
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
        let proxy = with_flag(&format!("http://user:s3cret@{address}"));
        let line = probe(CHECK, "https://hub.example:7443", &"0".repeat(64), &proxy).await;
        assert_eq!(line.outcome, Outcome::Warning);
        let expected = format!(
            "the proxy {address} answered 403 Forbidden to CONNECT hub.example:7443: allow CONNECT"
        );
        assert!(line.message.contains(&expected), "{}", line.message);
        let (message, mend) = (line.message, line.mend.unwrap());
        assert!(!message.contains("s3cret") && !mend.contains("s3cret"), "{message}, {mend}");
        let step = format!("see whether {address} allows CONNECT to hub.example:7443");
        assert!(mend.starts_with(&step), "{mend}");
        let bad = probe(CHECK, "https://hub", &"0".repeat(64), &with_flag("ftp://proxy")).await;
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

    #[test]
    fn agent_that_has_not_enrolled_is_shown_with_its_proxy() {
        let mut facts = crate::check::tests::facts();
        let message = |facts: &ClusterFacts| {
            let line = not_enrolled(facts, "https://hub.example:7443");
            (line.message, line.mend.unwrap())
        };
        assert!(message(&facts).0.ends_with("the token of the Secret switchyard-agent-join"));
        facts.proxy = Ok(with_flag("http://user:s3cret@10.0.0.5:3128"));
        let (told, mend) = message(&facts);
        assert!(
            told.ends_with(
                "which the agent sends through the proxy 10.0.0.5:3128 (SWITCHYARD_PROXY of the agent's pods)"
            ),
            "{told}"
        );
        assert!(mend.contains("allows CONNECT to hub.example:7443"), "{mend}");
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
        let hub: HubAddress = "https://hub".parse().unwrap();
        let of = |error: &str| unreachable(CHECK, &hub, "https://hub", &Way::default(), error);
        let interception =
            of("the server's chain has no certificate with the hash of --hub-ca-sha256");
        assert_eq!(interception.outcome, Outcome::Failure);
        assert!(interception.mend.unwrap().contains("must forward TCP"));
        assert_eq!(of("Connection refused").outcome, Outcome::Warning);
    }
}
