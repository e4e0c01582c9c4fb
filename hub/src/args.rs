//! The hub's command line and environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use switchyard_controller::flags::{
    self, AuditFlags, ClusterFlags, ConfigFlags, RecordingFlags, ServingFlags, WebhookFlags,
    listen, listen_unless_none,
};
use switchyard_controller::{LeaderMode, Role};
use switchyard_dispatcher::DispatcherSettings;
use switchyard_platform::lease::holder_identity;
use switchyard_platform::telemetry::LogFormat;

use crate::hosted::PATH_PREFIX;
use crate::options::{HubOptions, Options, dispatch_settings};

/// Longest lifetime of agents' certificates, in seconds. A CA rotation relies on it.
const MAX_LIFE: u32 = 24 * 3600;

/// The role of this process.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Enforces global quota and sends jobs to worker clusters.
    #[default]
    Hub,
    /// Enforces quota in this cluster, where the jobs run.
    Single,
}

/// Queues jobs, enforces quota, and sends them to worker clusters (or runs them here, in mode
/// "single").
///
/// The cluster is the one of --kubeconfig, of the kubeconfig in KUBECONFIG, or the one it runs in.
#[derive(Parser, Debug)]
#[command(name = "switchyard-hub", version = switchyard_api::build::version())]
pub struct Args {
    /// Hub of a fleet, or single cluster.
    #[arg(long, env = "SWITCHYARD_MODE", value_enum, default_value_t)]
    pub mode: Mode,
    /// The hub's own namespace: Leases, certificates, tokens, and the Secrets with kubeconfigs of
    /// workers.
    #[arg(long, env = "POD_NAMESPACE", default_value = "switchyard-system", value_parser = flags::parse_namespace)]
    pub namespace: String,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// Name of this replica among the hub's replicas. Default: the host's name and an id of the
    /// process.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub replica: Option<String>,
    #[command(flatten)]
    pub config: ConfigFlags,
    /// The address on which agents connect; "[::]" also accepts IPv4.
    #[arg(
        long,
        env = "SWITCHYARD_AGENT_LISTEN",
        default_value = "[::]:7443",
        value_name = "ADDRESS"
    )]
    pub agent_listen: SocketAddr,
    /// The URL at which agents reach that address from their clusters: https://HOST[:PORT].
    /// `switchyard cluster add` gives it to the agent.
    #[arg(long, env = "SWITCHYARD_ADVERTISE", value_name = "URL")]
    pub advertise: Option<String>,
    /// Lifetime of agents' certificates in seconds; agents renew at two thirds of it.
    #[arg(long, env = "SWITCHYARD_AGENT_CERTIFICATE_LIFE", default_value_t = MAX_LIFE, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(30..=i64::from(MAX_LIFE)))]
    pub agent_certificate_life: u32,
    /// The directory for worker kubeconfigs that are named by path.
    #[arg(long, env = "SWITCHYARD_KUBECONFIG_DIR", default_value = PATH_PREFIX, value_name = "DIRECTORY")]
    pub kubeconfig_dir: PathBuf,
    /// Serves /healthz, /livez, /readyz and /metrics; "none" serves nothing.
    #[arg(
        long,
        env = "SWITCHYARD_HEALTH_LISTEN",
        default_value = "[::]:8081",
        value_name = "ADDRESS"
    )]
    pub health_listen: String,
    #[command(flatten)]
    pub caution: CautionFlags,
    #[command(flatten)]
    pub webhook: WebhookFlags,
    #[command(flatten)]
    pub serving: ServingFlags,
    #[command(flatten)]
    pub recording: RecordingFlags,
    #[command(flatten)]
    pub audit: AuditFlags,
    /// Filter of log lines, such as "info,switchyard_hub=debug".
    #[arg(long, env = "SWITCHYARD_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// The format of log lines.
    #[arg(long, env = "SWITCHYARD_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

impl Args {
    /// Opens listeners, reads the configuration, and connects to the cluster.
    ///
    /// # Errors
    /// Names the flag or the field of the file, and how to correct it.
    pub async fn options(self) -> anyhow::Result<Options> {
        let config = Arc::new(self.config.read()?);
        let advertise = self.advertise.as_deref().map(Advertised::parse).transpose()?;
        let webhook = self.webhook.options(&self.namespace)?;
        let health = listen_unless_none("--health-listen", &self.health_listen)?;
        let (metrics, visibility) =
            (self.serving.metrics(&config)?, self.serving.visibility(&config)?);
        let hub = match self.mode {
            Mode::Single => None,
            Mode::Hub => {
                let listener = listen("--agent-listen", &self.agent_listen.to_string())?;
                let mut hub = HubOptions::new(listener);
                if let Some(advertised) = advertise {
                    hub.names = vec![advertised.host];
                    hub.advertise = Some(advertised.url);
                }
                hub.server.agent_certificate_life =
                    Duration::from_secs(u64::from(self.agent_certificate_life));
                hub.kubeconfig_dir.clone_from(&self.kubeconfig_dir);
                hub.dispatch = Some(self.caution.apply(dispatch_settings(&config)));
                Some(hub)
            }
        };
        let client = self.cluster.client().await?;
        let identity =
            self.replica.clone().unwrap_or_else(|| holder_identity::name("hub", rand::random()));
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
        controller.role = if hub.is_some() { Role::Hub } else { Role::Single };
        controller.recording = self.recording.options();
        controller.audit = self.audit.interval();
        controller.webhook = webhook;
        controller.health = health;
        controller.metrics = metrics;
        controller.visibility = visibility;
        Ok(Options { controller, hub })
    }
}

/// When the hub gives up workloads of lost clusters; see docs/guarantees.md.
#[derive(clap::Args, Debug, Clone, PartialEq, Eq)]
pub struct CautionFlags {
    /// Opens the circuit breaker when more than this share of the clusters is lost at about one
    /// time; 100 disables it.
    #[arg(long, env = "SWITCHYARD_BREAKER_CLUSTERS", default_value_t = 34, value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub breaker_clusters: u32,
    /// Opens the circuit breaker when more than this share of the running workloads, and at least
    /// 100, is lost at about one time; 100 disables it.
    #[arg(long, env = "SWITCHYARD_BREAKER_WORKLOADS", default_value_t = 67, value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub breaker_workloads: u32,
    /// Most workloads that are given up in a minute.
    #[arg(long, env = "SWITCHYARD_EVICTIONS_PER_MINUTE", default_value_t = 600, value_name = "NUMBER",
        value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub evictions_per_minute: u32,
    /// After a start, nothing is given up for this many seconds.
    #[arg(long, env = "SWITCHYARD_RESTART_GRACE", default_value_t = 60, value_name = "SECONDS")]
    pub restart_grace: u32,
}

impl CautionFlags {
    fn apply(&self, mut settings: DispatcherSettings) -> DispatcherSettings {
        settings.restart_grace = i64::from(self.restart_grace) * 1_000;
        let limits = &mut settings.breaker_limits;
        (limits.clusters, limits.workloads) = (self.breaker_clusters, self.breaker_workloads);
        limits.evictions_per_minute = self.evictions_per_minute;
        settings
    }
}

/// `--advertise`, checked.
#[derive(Debug, PartialEq, Eq)]
struct Advertised {
    url: String,
    host: String,
}

impl Advertised {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let wrong = || format!("--advertise {text}: write it as https://HOST[:PORT]");
        let uri: http::Uri = text.parse().with_context(wrong)?;
        let plain = uri.scheme_str() == Some("https")
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none();
        let host = uri.host().filter(|_| plain).with_context(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { url: text.trim_end_matches('/').to_owned(), host })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["switchyard-hub"], flags].concat())
    }

    #[test]
    fn default_flags_start_a_hub() {
        let args = parse(&[]).unwrap();
        assert_eq!((args.mode, args.namespace.as_str()), (Mode::Hub, "switchyard-system"));
        assert_eq!(parse(&["--mode", "single"]).unwrap().mode, Mode::Single);
        let flags = parse(&["--breaker-clusters", "50", "--restart-grace", "5"]).unwrap().caution;
        let settings = flags.apply(DispatcherSettings::default());
        assert_eq!(
            (
                settings.breaker_limits.clusters,
                settings.breaker_limits.workloads,
                settings.restart_grace
            ),
            (50, 67, 5_000)
        );
        assert_eq!(Duration::from_secs(u64::from(MAX_LIFE)), switchyard_hub_pki::ca::AGENT_LIFE);
        assert!(parse(&["--agent-certificate-life", "86401"]).is_err());
        assert!(parse(&["--breaker-clusters", "0"]).is_err());
        assert!(
            parse(&["--mode", "both"])
                .unwrap_err()
                .to_string()
                .contains("possible values: hub, single")
        );
    }

    #[test]
    fn default_addresses_are_of_both_families() {
        let args = parse(&[]).unwrap();
        for address in [args.agent_listen.to_string(), args.health_listen] {
            let (host, _) = address.rsplit_once(':').unwrap();
            let listener = listen("--flag", &format!("{host}:0")).unwrap();
            let port = listener.local_addr().unwrap().port();
            for host in ["127.0.0.1", "::1"] {
                std::net::TcpStream::connect((host, port)).unwrap();
            }
        }
    }

    #[test]
    fn advertise_accepts_only_https_host_and_port() {
        for (text, host) in [
            ("https://hub.example:7443", "hub.example"),
            ("https://10.0.0.1", "10.0.0.1"),
            ("https://[::1]:1/", "::1"),
        ] {
            assert_eq!(Advertised::parse(text).unwrap().host, host, "{text}");
        }
        for text in ["hub:7443", "http://hub", "https://hub/path", "https://"] {
            let error = format!("{:#}", Advertised::parse(text).unwrap_err());
            assert!(error.contains("write it as https://HOST[:PORT]"), "{text}: {error}");
        }
    }

    #[test]
    fn webhook_flags_need_listener_and_address() {
        let webhook = |flags: &[&str]| {
            parse(flags).unwrap().webhook.options("ns").map_err(|error| error.to_string())
        };
        assert!(webhook(&[]).unwrap().is_none());
        assert!(
            webhook(&["--webhook-listen", "127.0.0.1:0"])
                .unwrap_err()
                .contains("needs --webhook-service")
        );
        assert!(
            webhook(&["--webhook-url", "https://x"]).unwrap_err().contains("need --webhook-listen")
        );
    }
}
