//! Agents that reach their hub through an HTTP proxy, and API servers behind one. The hub's name
//! resolves nowhere, so only the proxy leads to it.

mod connect_proxy;

use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use connect_proxy::ConnectProxy;
use serde_json::{Value, json};
use switchyard::join_token::JoinToken;
use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{
    ClusterSpec, Environment, NodeSpec, Process, fixture, job, paths, queues, ready,
};

/// Longer than the agent's longest back-off, and the time that a busy machine adds.
const SOON: Duration = Duration::from_secs(120);
const TARGET: &str = "hub.proxied.test:7443";

/// A fleet whose agent is not started, a proxy to its hub, and a token with the hub's name there.
async fn begin(name: &str, credentials: &str) -> (Fleet, ConnectProxy, JoinToken) {
    let worker = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8));
    let fleet = Fleet::builder(name).agent(worker).start().await.unwrap();
    fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
    let token = fleet.join_token("west").await.unwrap();
    let backend = token.hub_address.trim_start_matches("https://");
    let proxy = ConnectProxy::open(TARGET, backend, credentials).await;
    (fleet, proxy, JoinToken { hub_address: format!("https://{TARGET}"), ..token })
}

/// Waits until the agent has logged these words.
async fn logged(fleet: &Fleet, words: &str) {
    eventually(SOON, format!("the agent's log to say {words:?}"), async || {
        let log = fleet.with("west", Process::log)?;
        ensure!(log.contains(words), "it does not");
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until the proxy got more than `count` requests, and the hub has a session again.
async fn connected_again(fleet: &Fleet, proxy: &ConnectProxy, count: usize) {
    eventually(SOON, "the agent to dial again", async || {
        let requests = proxy.targets().len();
        ensure!(requests > count, "{requests} requests, as before");
        Ok(())
    })
    .await
    .unwrap();
    fleet.connected("west").await.unwrap();
}

/// Jobs, enrolment, session and renewal use one route, so a forgotten connection would fail here.
#[test]
fn agent_behind_a_proxy_enrols_and_runs_jobs() {
    fixture::run(async {
        let (fleet, proxy, token) = begin("proxied", "agent:s3cret@").await;
        let url = format!("http://agent:s3cret%40@127.0.0.1:{}", proxy.port);
        fleet.start_agent_with("west", &token, &["--proxy", &url]).await.unwrap();
        fleet.connected("west").await.unwrap();

        let quota = [("cpu", "8")];
        let tenant = fleet.tenant("proxied").hub(&quota).worker("west", &quota);
        let tenant = tenant.make().await.unwrap();
        let work = tenant.job("work").run_for(Duration::from_secs(1));
        tenant.submit(work).await.unwrap();
        let done = job::complete(&fleet.hub().admin, tenant.name(), "work", SOON).await.unwrap();
        assert_eq!(done.status.unwrap().succeeded, Some(1));

        let (targets, hellos) = (proxy.targets(), proxy.hellos());
        assert!(targets.len() >= 2, "one to enrol, one for the session: {targets:?}");
        assert!(targets.iter().all(|target| target == TARGET), "{targets:?}");
        let name = TARGET.split(':').next().unwrap().as_bytes();
        let routed = |hello: &Vec<u8>| hello.windows(name.len()).any(|part| part == name);
        assert!(hellos.iter().all(routed), "SNI is the dialled host");

        // A proxy that ends, and one that forgets its connections without a word.
        proxy.cut();
        connected_again(&fleet, &proxy, targets.len()).await;
        let requests = proxy.targets().len();
        proxy.stall();
        connected_again(&fleet, &proxy, requests).await;

        let log = fleet.with("west", Process::log).unwrap();
        let started = log.lines().filter(|line| !line.starts_with("--- start: "));
        assert!(!started.collect::<String>().contains("s3cret"), "{log}");
    });
}

#[test]
fn refusal_of_a_proxy_is_logged_with_its_mend() {
    fixture::run(async {
        let (fleet, proxy, token) = begin("unproxied", "agent:right").await;
        let url = format!("http://agent:wrong@127.0.0.1:{}", proxy.port);
        fleet.start_agent_with("west", &token, &["--proxy", &url]).await.unwrap();
        let refused = |status: &str| {
            let port = proxy.port;
            format!("the proxy 127.0.0.1:{port} answered {status} to CONNECT {TARGET}: ")
        };
        let unknown = refused("407 Proxy Authentication Required");
        logged(&fleet, &format!("{unknown}correct the user and password")).await;
        proxy.refuse(Some("403 Forbidden"));
        let forbidden = refused("403 Forbidden");
        logged(&fleet, &format!("{forbidden}allow CONNECT to {TARGET}")).await;
        // The token is still valid: it was sent nowhere.
        proxy.refuse(None);
        proxy.accept("agent:wrong");
        ready::worker_cluster(fleet.hub(), "west", SOON).await.unwrap();
    });
}

/// The agent has a kubeconfig here, for which HTTPS_PROXY counts, too.
#[test]
fn api_server_on_loopback_is_dialled_without_the_proxy() {
    fixture::run(async {
        let (fleet, proxy, token) = begin("environment", "agent:s3cret").await;
        let url = format!("http://agent:s3cret@127.0.0.1:{}", proxy.port);
        let environment = [("HTTPS_PROXY", url.as_str()), ("NO_PROXY", "other.test")];
        fleet.start_agent_in("west", &token, &environment).await.unwrap();
        fleet.connected("west").await.unwrap();
        let targets = proxy.targets();
        assert!(targets.iter().all(|target| target == TARGET), "{targets:?}");
        assert!(!fleet.with("west", Process::log).unwrap().contains("s3cret"));
    });
}

#[test]
fn api_server_is_dialled_through_the_kubeconfigs_proxy() {
    fixture::run(async {
        let spec = ClusterSpec::new("hub");
        let environment = Environment::builder("bastion").cluster(spec).start().await.unwrap();
        let cluster = environment.cluster("hub");
        cluster.install().await.unwrap();
        let address = cluster.url().trim_start_matches("https://").trim_end_matches('/').to_owned();
        let proxy = ConnectProxy::open(&address, &address, "user:s3cret").await;
        let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
        let get_clusters = |password: &str| {
            let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
            let url = format!("http://user:{password}@127.0.0.1:{}", proxy.port);
            kubeconfig["clusters"][0]["cluster"]["proxy-url"] = json!(url);
            let file = cluster.state_dir().join("behind-a-proxy");
            std::fs::write(&file, kubeconfig.to_string()).unwrap();
            let mut command = Command::new(paths::binary("switchyard").unwrap());
            let output = command.arg("--kubeconfig").arg(file).args(["get", "clusters"]).output();
            let output = output.unwrap();
            (output.status.success(), String::from_utf8(output.stderr).unwrap())
        };
        let (done, errors) = get_clusters("s3cret");
        assert!(done, "{errors}");
        assert!(proxy.targets().contains(&address), "{:?}", proxy.targets());
        let (done, errors) = get_clusters("wr0ng");
        assert!(!done && !errors.contains("wr0ng"), "{errors}");
    });
}
