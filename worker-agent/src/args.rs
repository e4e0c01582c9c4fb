//! The agent's command line and environment.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser;
use switchyard_controller::flags::{
    self, AuditFlags, ClusterFlags, ConfigFlags, RecordingFlags, WebhookFlags, listen_unless_none,
};
use switchyard_controller::{LeaderMode, Role};
use switchyard_ledger::AllowedNamespaces;
use switchyard_platform::lease::holder_identity;
use switchyard_platform::telemetry::LogFormat;

use crate::allow::Allowed;
use crate::enrol::{EnrolError, Join};
use crate::hub_address::HubAddress;
use crate::join::JoinSource;
use crate::proxy::ProxyFlag;
use crate::tls::Pin;
use crate::{DryRunCounts, Options};

/// Connects a worker cluster to its Switchyard hub, and admits the hub's jobs against the cluster's
/// own quota.
///
/// The cluster is the one of --kubeconfig, of the kubeconfig in KUBECONFIG, or the one it runs in.
#[derive(Parser, Debug)]
#[command(name = "switchyard-agent", version = switchyard_api::build::version())]
pub struct Args {
    /// The hub's address: https://HOST[:PORT]. An address in --join-directory takes precedence.
    #[arg(
        long,
        env = "SWITCHYARD_HUB",
        value_name = "URL",
        required_unless_present = "join_directory"
    )]
    pub hub: Option<HubAddress>,
    /// A single-use join token of `switchyard cluster add`. The agent tries it once and then uses
    /// the stored identity.
    #[arg(
        long,
        env = "SWITCHYARD_JOIN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        requires = "hub_ca_sha256"
    )]
    pub join: Option<String>,
    /// A directory with the files `hub`, `token` and `hub-ca-sha256`, such as a mounted Secret.
    /// While the agent has no session, it also reads a new address from it, and a new token when
    /// the hub refuses its certificate.
    #[arg(long, env = "SWITCHYARD_JOIN_DIRECTORY", value_name = "DIR")]
    pub join_directory: Option<PathBuf>,
    /// The SHA-256 of the hub's CA certificate in hex, as the join command prints it.
    #[arg(long, env = "SWITCHYARD_HUB_CA_SHA256", value_name = "HEX")]
    pub hub_ca_sha256: Option<Pin>,
    /// The HTTP proxy to the hub: http://[USER:PASSWORD@]HOST[:PORT], or "none". Default: that of
    /// HTTPS_PROXY, unless NO_PROXY names the hub. No API server is dialled through this one.
    #[arg(long, env = "SWITCHYARD_PROXY", hide_env_values = true, value_name = "URL")]
    pub proxy: Option<ProxyFlag>,
    /// The agent's own namespace, with its identity, its Lease and its webhooks' certificate.
    #[arg(long, env = "POD_NAMESPACE", default_value = "switchyard-system", value_parser = flags::parse_namespace)]
    pub namespace: String,
    /// The worker cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// The name of this replica among the agent's replicas. Default: host name and process id.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub replica: Option<String>,
    /// Namespaces that the hub may use, separated by commas. Default: all.
    #[arg(long, env = "SWITCHYARD_ALLOW_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub allow_namespaces: Vec<String>,
    /// Kinds of jobs that the hub may run, by their names in Kueue's integrations.frameworks, such
    /// as batch/job; separated by commas. Default: all.
    #[arg(long, env = "SWITCHYARD_ALLOW_KINDS", value_delimiter = ',', value_name = "KINDS")]
    pub allow_kinds: Vec<String>,
    /// Service accounts as which the hub's jobs may run: NAME in every namespace, or
    /// NAMESPACE/NAME; separated by commas. A pod that names none runs as "default". Default: all.
    #[arg(
        long,
        env = "SWITCHYARD_ALLOW_SERVICE_ACCOUNTS",
        value_delimiter = ',',
        value_name = "NAMES"
    )]
    pub allow_service_accounts: Vec<String>,
    /// Whether to try a pod of each job with a server-side dry run before the job is accepted.
    /// Switch it off where policies let only the cluster's own controllers create pods.
    #[arg(long, env = "SWITCHYARD_DRY_RUNS", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub dry_runs: bool,
    /// The configuration of this cluster's admission.
    #[command(flatten)]
    pub config: ConfigFlags,
    /// Serves /healthz, /readyz, /sessionz and /metrics; "none": not served.
    #[arg(
        long,
        env = "SWITCHYARD_HEALTH_LISTEN",
        default_value = "[::]:8081",
        value_name = "ADDRESS"
    )]
    pub health_listen: String,
    /// The admission webhooks.
    #[command(flatten)]
    pub webhook: WebhookFlags,
    /// The recording.
    #[command(flatten)]
    pub recording: RecordingFlags,
    /// The audit.
    #[command(flatten)]
    pub audit: AuditFlags,
    /// Concurrent writes to the cluster's API server for the hub's workloads.
    #[arg(long, env = "SWITCHYARD_WRITES_IN_FLIGHT", default_value_t = 32, value_name = "N")]
    pub writes_in_flight: usize,
    /// The log filter, such as "info,switchyard_agent=debug".
    #[arg(long, env = "SWITCHYARD_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// The format of log lines.
    #[arg(long, env = "SWITCHYARD_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

impl Args {
    /// Opens listeners, reads the configuration, and finds the cluster.
    ///
    /// # Errors
    /// Names the flag or the file's field, and how to correct it.
    pub async fn options(self) -> anyhow::Result<Options> {
        let config = Arc::new(self.config.read()?);
        let given = match (
            self.join.as_ref().filter(|token| !token.trim().is_empty()),
            self.hub_ca_sha256.clone(),
        ) {
            (Some(token), Some(pin)) => {
                let join = Join::new(token, pin);
                join.cluster().ok_or(EnrolError::BadToken)?;
                Some(join)
            }
            _ => None,
        };
        let join = JoinSource::new(given, self.join_directory.clone());
        join.current()?;
        let hub = join.hub()?.or(self.hub);
        let hub = hub.context("no address of the hub: the file `hub` of --join-directory is missing or empty. Set --hub, or run `switchyard cluster add NAME` on the hub again, and on this cluster the commands that it prints")?;
        let proxy = self.proxy.clone().unwrap_or_default();
        proxy.select(&hub)?;
        let allow = Allowed::parse(&self.allow_kinds, &self.allow_service_accounts)?;
        let webhook = self.webhook.options(&self.namespace)?;
        let health = listen_unless_none("--health-listen", &self.health_listen)?;
        let (client, once) =
            (self.cluster.client().await?, self.cluster.client_without_retries().await?);
        let identity =
            self.replica.clone().unwrap_or_else(|| holder_identity::name("agent", rand::random()));
        let mut controller = switchyard_controller::Options::new(
            client,
            config.clone(),
            identity,
            self.namespace.clone(),
        );
        controller.leader = if config.leader_election.leader_elect {
            LeaderMode::Elect
        } else {
            LeaderMode::Always
        };
        controller.role = Role::Worker;
        controller.recording = self.recording.options();
        controller.audit = self.audit.interval();
        controller.webhook = webhook;
        Ok(Options {
            controller,
            client: once,
            hub,
            proxy,
            join,
            namespaces: allowed(&self.allow_namespaces),
            allowed: allow,
            health,
            dry_runs: self.dry_runs.then(DryRunCounts::default),
            concurrency: self.writes_in_flight,
        })
    }
}

fn allowed(names: &[String]) -> AllowedNamespaces {
    let names: BTreeSet<String> =
        names.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    if names.is_empty() { AllowedNamespaces::All } else { AllowedNamespaces::Only(names) }
}

#[cfg(test)]
mod tests {
    use switchyard_controller::webhook::Advertise;

    use super::*;

    fn parse(flags: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["switchyard-agent"], flags].concat())
    }

    #[test]
    fn join_command_is_parsed() {
        let pin = "ab".repeat(32);
        let args = parse(&[
            "--hub",
            "https://hub:7443",
            "--hub-ca-sha256",
            &pin,
            "--join",
            "east.1.secret",
        ])
        .unwrap();
        assert_eq!(args.hub.unwrap().to_string(), "https://hub:7443");
        assert_eq!(args.namespace, "switchyard-system");
    }

    #[test]
    fn invalid_flags_name_their_correction() {
        let cases: [(&[&str], &str); 4] = [
            (&[], "--hub <URL>"),
            (&["--hub", "hub:7443"], "is not https://HOST[:PORT]"),
            (&["--hub", "https://hub", "--join", "a.b.c"], "--hub-ca-sha256 <HEX>"),
            (&["--hub", "https://hub", "--hub-ca-sha256", "12"], "64 hexadecimal digits"),
        ];
        for (flags, part) in cases {
            let error = parse(flags).unwrap_err().to_string();
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }

    #[tokio::test]
    async fn invalid_token_fails_before_start() {
        let pin = "ab".repeat(32);
        let args =
            parse(&["--hub", "https://hub", "--hub-ca-sha256", &pin, "--join", "garbage"]).unwrap();
        let error = args.options().await.err().unwrap().to_string();
        assert!(error.starts_with("--join is not a join token"), "{error}");
    }

    #[tokio::test]
    async fn address_comes_from_the_flag_or_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let args = parse(&["--join-directory", dir.path().to_str().unwrap()]).unwrap();
        let error = args.options().await.err().unwrap().to_string();
        assert!(error.contains("the file `hub` of --join-directory is missing"), "{error}");
    }

    #[test]
    fn default_address_is_of_both_families() {
        let health = parse(&["--hub", "https://hub"]).unwrap().health_listen;
        let (host, _) = health.rsplit_once(':').unwrap();
        let listener = listen_unless_none("--flag", &format!("{host}:0")).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "::1"] {
            std::net::TcpStream::connect((host, port)).unwrap();
        }
    }

    #[tokio::test]
    async fn invalid_proxy_fails_before_start_without_password() {
        let args = parse(&["--hub", "https://hub", "--proxy", "https://user:s3cret@proxy"]);
        let args = args.unwrap();
        assert!(!format!("{args:?}").contains("s3cret"));
        let error = args.options().await.err().unwrap().to_string();
        assert!(error.starts_with("--proxy (SWITCHYARD_PROXY) is not http://"), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn webhook_flags_require_each_other() {
        let webhook = |flags: &[&str]| {
            let args = parse(&[&["--hub", "https://hub"], flags].concat()).unwrap();
            args.webhook
                .options(&args.namespace)
                .map(|options| options.map(|options| options.advertise))
                .map_err(|error| error.to_string())
        };
        assert_eq!(webhook(&[]), Ok(None));
        assert!(
            webhook(&["--webhook-listen", "127.0.0.1:0"])
                .unwrap_err()
                .contains("needs --webhook-service")
        );
        assert!(
            webhook(&["--webhook-service", "agent"]).unwrap_err().contains("need --webhook-listen")
        );
        let service =
            webhook(&["--webhook-listen", "127.0.0.1:0", "--webhook-service", "agent:9443"]);
        let expected = Advertise::Service {
            namespace: "switchyard-system".into(),
            name: "agent".into(),
            port: 9443,
        };
        assert_eq!(service, Ok(Some(expected)));
    }

    #[test]
    fn empty_namespace_list_allows_all() {
        assert_eq!(allowed(&[]), AllowedNamespaces::All);
        assert_eq!(allowed(&[String::new()]), AllowedNamespaces::All);
        let only = allowed(&["a".to_owned(), " b".to_owned()]);
        assert!(only.allow("a") && only.allow("b") && !only.allow("c"));
    }
}
