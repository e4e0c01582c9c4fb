//! `switchyard cluster add NAME`: creates what a hub and a new worker need of each other. Existing
//! objects are changed as needed, so the command can be repeated after any failure.

mod account;
mod agent;
mod kubeconfig;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use switchyard_agent::HubAddress;
use switchyard_api::conditions;
use switchyard_api::v1beta2::MultiKueueCluster;
use tokio::time::{Instant, sleep, timeout};

use crate::deadline::Deadline;
use crate::outage::Outage;
use crate::{Output, check, join_token, output};

const FIELD_MANAGER: &str = "switchyard-cli";

/// Interval for reading the hub's status while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Interval for reading the hub's Lease while waiting.
const LEASE_INTERVAL: Duration = Duration::from_secs(5);

/// How long to wait for a hub that does not lead. A change of leader takes less.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Arguments of `switchyard cluster add`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the MultiKueueCluster. Without further flags, the cluster gets an agent, and the
    /// commands to run on it are printed.
    #[arg(value_parser = join_token::cluster_name)]
    pub name: String,
    /// Context of your kubeconfig for the worker, to prepare the agent there.
    #[arg(long, value_name = "CONTEXT", conflicts_with_all = ["with_kubeconfig", "from_context"])]
    pub worker_context: Option<String>,
    /// With --worker-context: also apply this manifest there, such as worker.yaml of the release.
    #[arg(long, value_name = "FILE", requires = "worker_context")]
    pub manifest: Option<PathBuf>,
    /// Connect the worker without an agent, by this kubeconfig, which the hub stores.
    #[arg(long, value_name = "FILE", conflicts_with = "from_context")]
    pub with_kubeconfig: Option<PathBuf>,
    /// Connect the worker without an agent: create an account, its roles and a kubeconfig there,
    /// through this context of your kubeconfig.
    #[arg(long, value_name = "CONTEXT")]
    pub from_context: Option<String>,
    /// With --from-context: address at which the hub reaches the worker's API server, if it differs
    /// from yours. A later run without the flag keeps it.
    #[arg(long, value_name = "URL", requires = "from_context")]
    pub server: Option<String>,
    /// With --from-context: replace the account's token. The old one stays valid until the hub uses
    /// the new one.
    #[arg(long, requires = "from_context")]
    pub rotate: bool,
    /// Address at which the agent reaches the hub: https://HOST:PORT. Default: the hub's advertised
    /// address, else that of its Service.
    #[arg(long)]
    pub hub_address: Option<HubAddress>,
    /// The namespace of the hub.
    #[arg(long, default_value = crate::DEFAULT_HUB_NAMESPACE)]
    pub hub_namespace: String,
    /// The namespace of the agent, or of the account, on the worker.
    #[arg(long, default_value = crate::DEFAULT_HUB_NAMESPACE)]
    pub worker_namespace: String,
    /// How long the token can be used, such as 30m or 1h; at most a week.
    #[arg(long, default_value = "1h", value_parser = join_token::ttl)]
    pub ttl: SignedDuration,
    /// Chart in the printed command.
    #[arg(long, default_value = concat!("switchyard-", env!("CARGO_PKG_VERSION"), ".tgz"))]
    pub chart: String,
    /// Print the steps, and change nothing. A kubeconfig that is given is still tried.
    #[arg(long)]
    pub dry_run: bool,
    /// How long the command waits in all: for the hub, for its address, and for the worker to connect.
    #[arg(long, value_name = "TIMEOUT", default_value = "2m", value_parser = crate::wait::seconds_up_to_an_hour)]
    pub timeout: u64,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Added {
    pub cluster: String,
    /// `agent` or `kubeconfig`.
    pub link: &'static str,
    /// The worker's API server in the kubeconfig of the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    pub connected: bool,
    /// It was connected before this command, which does not change that connection.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub was_connected: bool,
    /// Message of the hub about the cluster. At the deadline, it names the missing step first.
    pub message: String,
    /// Shell commands that are left to run; empty if there are none.
    pub commands: String,
    /// When the token expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<jiff::Timestamp>,
    /// With --dry-run: what would be done, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
}

impl Added {
    /// The result of a dry run, with the present state of the cluster.
    fn planned(
        args: &Args,
        link: &'static str,
        found: Option<&MultiKueueCluster>,
        steps: Vec<String>,
    ) -> Self {
        let status = found.and_then(|cluster| cluster.status.as_ref());
        let active =
            status.and_then(|status| conditions::find(&status.conditions, conditions::ACTIVE));
        Self {
            cluster: args.name.clone(),
            link,
            server: None,
            connected: active.is_some_and(|active| active.status == conditions::TRUE),
            was_connected: false,
            message: active.map(|active| active.message.clone()).unwrap_or_default(),
            commands: String::new(),
            expires_at: None,
            steps,
        }
    }
}

/// Adds the cluster.
///
/// # Errors
/// Names the step that failed and what to do. Earlier steps stay done, and a repetition skips them.
pub async fn run(client: Client, file: Option<&Path>, args: &Args) -> anyhow::Result<String> {
    let deadline = Deadline::after(Duration::from_secs(args.timeout));
    let added = if args.with_kubeconfig.is_some() || args.from_context.is_some() {
        kubeconfig::add(&client, file, args, deadline).await?
    } else {
        agent::add(&client, file, args, deadline).await?
    };
    let result = output::DryRun { value: &added, dry_run: args.dry_run };
    args.output.render(&result, |result| render_text(result.value))
}

fn render_text(added: &Added) -> String {
    let Added { cluster, message, commands, .. } = added;
    if !added.steps.is_empty() {
        let mut out = format!("{cluster} would be added. Nothing is changed. The steps:\n");
        for (at, step) in added.steps.iter().enumerate() {
            out.push_str(&format!("  {}. {step}\n", at + 1));
        }
        return out;
    }
    let mut out = match added.connected {
        true if added.was_connected => format!(
            "{cluster} is connected, as before this command. The agent keeps its identity, and uses the new token only once the hub refuses that identity, a new address only once its session ends.\n"
        ),
        true => match &added.server {
            Some(server) => {
                format!("{cluster} is connected. The hub uses its API server at {server}.\n")
            }
            None => format!("{cluster} is connected.\n"),
        },
        false if commands.is_empty() => {
            format!("{cluster} is not connected yet: {message}\n`switchyard check` says more.\n")
        }
        false => format!(
            "MultiKueueCluster \"{cluster}\" is there. On the worker cluster, run\n\n{commands}"
        ),
    };
    if let Some(expires) = added.expires_at.filter(|_| !commands.is_empty()) {
        let expires = expires.round(jiff::Unit::Second).unwrap_or(expires);
        out.push_str(&format!(
            "\nThe token enrols one agent, once, until {expires}. `switchyard get clusters` shows when {cluster} is connected.\n"
        ));
    }
    out
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value, right: &str) -> anyhow::Result<K>
where
    K: Clone + DeserializeOwned + std::fmt::Debug + Resource,
{
    let applied =
        api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object)).await;
    applied.map_err(|error| crate::with_required_right(&error, &format!("writing {name}"), right))
}

/// The MultiKueueCluster, if it exists. One with another kind of source is an error.
async fn find_cluster(
    client: &Client,
    name: &str,
    source: &Value,
) -> anyhow::Result<Option<MultiKueueCluster>> {
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    let found = clusters
        .get_opt(name)
        .await
        .map_err(|error| crate::with_hint(&error, "reading the cluster"))?;
    if let Some(found) = &found {
        let there =
            serde_json::to_value(&found.spec.cluster_source).context("its clusterSource")?;
        let (wanted, has) = (source.as_object(), there.as_object());
        let same = wanted
            .zip(has)
            .is_some_and(|(wanted, has)| wanted.keys().all(|key| has.contains_key(key)));
        if !same {
            bail!(
                "MultiKueueCluster \"{name}\" is reached in another way: its spec.clusterSource is {there}. Change it with `kubectl edit` \
                 if that is what you want: what runs there goes on"
            );
        }
    }
    Ok(found)
}

/// The first step of a dry run.
fn cluster_step(name: &str, found: Option<&MultiKueueCluster>) -> String {
    match found {
        Some(_) => format!("keep MultiKueueCluster \"{name}\""),
        None => format!("create MultiKueueCluster \"{name}\""),
    }
}

/// Creates or updates the MultiKueueCluster. One with another kind of source is an error.
async fn apply_cluster(client: &Client, name: &str, source: &Value) -> anyhow::Result<()> {
    find_cluster(client, name, source).await?;
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": name},
        "spec": {"clusterSource": source},
    });
    apply(&clusters, name, &object, "patch multikueueclusters").await.map(drop)
}

/// Writes a Secret. Returns whether that changed it.
async fn apply_secret(
    client: &Client,
    namespace: &str,
    name: &str,
    data: &Value,
) -> anyhow::Result<bool> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let before = secrets.get_opt(name).await;
    let before = before.map_err(|error| crate::with_hint(&error, &format!("reading {name}")))?;
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": data,
    });
    let right = format!("patch secrets in {namespace}");
    let after = apply(&secrets, name, &object, &right).await?;
    Ok(before.and_then(|before| before.data) != after.data)
}

/// The session by which a cluster is connected, by the hub's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    connected: bool,
    message: String,
    session: Option<String>,
}

impl Link {
    /// None until the hub has reconciled the MultiKueueCluster.
    fn of(cluster: &MultiKueueCluster) -> Option<Self> {
        let status = cluster.status.as_ref()?;
        let active = conditions::find(&status.conditions, conditions::ACTIVE)?;
        Some(Self {
            connected: active.status == conditions::TRUE,
            message: active.message.clone(),
            session: status.agent.as_ref().and_then(|agent| agent.session_id.clone()),
        })
    }

    /// Whether it is connected, and not by the session that began before a change.
    fn is_up(&self, before: Option<&str>) -> bool {
        self.connected
            && match (before, self.session.as_deref()) {
                (None, _) => true,
                (Some(before), now) => now.is_some_and(|now| now != before),
            }
    }
}

/// The end of a wait for the hub's status.
#[derive(Clone, Copy)]
enum Until<'a> {
    /// The hub has reconciled the MultiKueueCluster.
    Seen,
    /// It is connected, by another session than this one.
    Connected(Option<&'a str>),
}

impl Until<'_> {
    /// Follows "until".
    fn goal(self, name: &str) -> String {
        match self {
            Self::Seen => format!("the hub has looked at MultiKueueCluster \"{name}\""),
            Self::Connected(_) => format!("{name} is connected"),
        }
    }
}

/// Waits for the hub's word about the cluster, and returns the last one. An old status, of a hub that
/// has lost the lead, ends no wait. Progress goes to stderr.
///
/// # Errors
/// If reading the cluster fails at the deadline or for good, or if the hubs have lost the lead for a
/// minute or at the deadline.
async fn wait_for_link(
    client: &Client,
    args: &Args,
    until: Until<'_>,
    deadline: Deadline,
) -> anyhow::Result<Option<Link>> {
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    let (began, end) = (Instant::now(), deadline.end_of_wait());
    let mut outage = Outage::default();
    let mut next_look_at_lease = began;
    let mut silence = None;
    let mut printed = String::new();
    loop {
        let found = async {
            let found = clusters.get_opt(&args.name).await;
            found.map_err(|error| crate::with_hint(&error, "reading the cluster"))
        };
        let found = outage.pass_until(end, found).await?;
        // No time is left for another look.
        let is_over = Instant::now() + POLL_INTERVAL >= end;
        let Some(found) = found else {
            if is_over {
                return Err(deadline.missed(&until.goal(&args.name), None, outage.into_error()));
            }
            sleep(POLL_INTERVAL).await;
            continue;
        };
        let link = found.as_ref().and_then(Link::of);
        let is_reached = link.as_ref().is_some_and(|link| match until {
            Until::Seen => true,
            Until::Connected(before) => link.is_up(before),
        });
        if is_reached || is_over || Instant::now() >= next_look_at_lease {
            next_look_at_lease = Instant::now() + LEASE_INTERVAL;
            let lease = check::silence_of_hub(client, &args.hub_namespace);
            // A Lease that is not read in time counts as renewed.
            silence = timeout(LEASE_INTERVAL, lease).await.unwrap_or_default();
            match silence {
                None if is_reached || is_over => return Ok(link),
                Some(age) if is_over || began.elapsed() > SILENCE_LIMIT => bail!(
                    "no hub leads: its Lease was renewed {age} s ago, so the status of \"{}\" is old. `switchyard check` says why. \
                     Repeat this command then",
                    args.name
                ),
                _ => {}
            }
        }
        let now = match link {
            _ if silence.is_some() => "no hub leads".to_owned(),
            None => "the hub has not looked at it".to_owned(),
            Some(link) if link.connected => "the session from before has not ended".to_owned(),
            Some(link) => link.message,
        };
        if printed != now {
            eprintln!("waiting for {}: {now}", args.name);
            printed = now;
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(connected: bool, commands: &str) -> Added {
        Added {
            cluster: "east".into(),
            link: "agent",
            server: None,
            connected,
            was_connected: false,
            message: "no agent has enrolled".into(),
            commands: commands.into(),
            expires_at: Some("2026-11-21T12:00:00.4Z".parse().unwrap()),
            steps: Vec::new(),
        }
    }

    /// Plays the API of a hub that writes no status of the cluster. It answers from this time on.
    fn idle_hub(from: Instant) -> Client {
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let cluster = json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
                "metadata": {"name": "east"}, "spec": {"clusterSource": {"agent": {}}},
            });
            let missing = json!({"kind": "Status", "code": 404, "reason": "NotFound"});
            let (code, body) = match request.uri().path().contains("/multikueueclusters/") {
                true if Instant::now() < from => (503, json!({"kind": "Status", "code": 503})),
                true => (200, cluster),
                false => (404, missing),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        Client::new(service, "default")
    }

    fn args() -> Args {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: Args,
        }
        Command::parse_from(["add", "east"]).args
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_the_hub_share_one_deadline() {
        let began = Instant::now();
        let deadline = Deadline::after(Duration::from_secs(120));
        tokio::time::sleep(Duration::from_secs(90)).await;
        let hub = idle_hub(began);
        let link = wait_for_link(&hub, &args(), Until::Seen, deadline).await.unwrap();
        assert_eq!((link, began.elapsed()), (None, Duration::from_millis(119_500)));
        let link = wait_for_link(&hub, &args(), Until::Connected(None), deadline).await.unwrap();
        assert_eq!((link, began.elapsed()), (None, Duration::from_secs(120)));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_the_hub_outlives_an_outage() {
        let began = Instant::now();
        let deadline = Deadline::after(Duration::from_secs(120));
        let hub = idle_hub(began + Duration::from_secs(30));
        let link = wait_for_link(&hub, &args(), Until::Seen, deadline).await.unwrap();
        assert_eq!((link, began.elapsed()), (None, Duration::from_millis(119_500)));
        let hub = idle_hub(began + Duration::from_secs(3600));
        let deadline = Deadline::after(Duration::from_secs(60));
        let error = wait_for_link(&hub, &args(), Until::Connected(None), deadline).await;
        let error = format!("{:#}", error.unwrap_err());
        assert!(
            error.starts_with("after 1m of waiting until east is connected: reading the cluster"),
            "{error}"
        );
    }

    #[test]
    fn dry_run_lists_the_steps() {
        let steps = vec![cluster_step("east", None), "create a token".to_owned()];
        assert_eq!(
            render_text(&Added { steps, ..added(false, "") }),
            "east would be added. Nothing is changed. The steps:\n  1. create MultiKueueCluster \"east\"\n  2. create a token\n"
        );
    }

    #[test]
    fn session_from_before_a_change_is_no_connection() {
        let link = |active: &str, session: Option<&str>| {
            let cluster: MultiKueueCluster = serde_json::from_value(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "west"},
                "spec": {"clusterSource": {"agent": {}}},
                "status": {"agent": {"sessionId": session}, "conditions": [{"type": "Active", "status": active,
                    "reason": "X", "message": "", "lastTransitionTime": "2026-11-21T10:00:00Z"}]},
            }))
            .unwrap();
            Link::of(&cluster).unwrap()
        };
        assert!(link("True", Some("1")).is_up(None));
        assert!(link("True", None).is_up(None), "a hub that names no sessions");
        assert!(!link("True", Some("1")).is_up(Some("1")));
        assert!(!link("True", None).is_up(Some("1")), "between two sessions");
        assert!(link("True", Some("2")).is_up(Some("1")));
        assert!(!link("False", Some("2")).is_up(Some("1")));
    }

    #[test]
    fn text_ends_with_remaining_commands() {
        let before = render_text(&Added { was_connected: true, ..added(true, "") });
        assert!(before.starts_with("east is connected, as before"), "{before}");
        assert_eq!(render_text(&added(true, "")), "east is connected.\n");
        let server = Some("https://east:6443".to_owned());
        assert_eq!(
            render_text(&Added { server, ..added(true, "") }),
            "east is connected. The hub uses its API server at https://east:6443.\n"
        );
        assert!(
            render_text(&added(false, ""))
                .contains("not connected yet: no agent has enrolled\n`switchyard check`")
        );
        let commands = render_text(&added(false, "  helm install\n"));
        assert!(commands.contains("On the worker cluster, run\n\n  helm install\n\nThe token enrols one agent, once, until 2026-11-21T12:00:00Z."));
    }
}
