//! Flags of every program that contains a controller.

mod webhook;

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use switchyard_api::validate::is_subdomain;
use switchyard_config::{self as config, Configuration};

use crate::endpoint::Endpoint;
use crate::engine::recording::RecordingOptions;
use switchyard_platform::api_server;
use switchyard_platform::errors::with_root_cause;

pub use self::webhook::{JobWebhooks, WebhookFlags};

/// The value for "off".
const NONE: &str = "none";
/// The value for "as in the configuration file".
const CONFIG: &str = "config";

/// Parses a namespace.
///
/// # Errors
/// The rules for a namespace's name.
pub fn parse_namespace(text: &str) -> Result<String, String> {
    let label = !text.contains('.') && text.len() <= 63 && is_subdomain(text);
    label.then(|| text.to_owned()).ok_or_else(|| {
        "a namespace's name has at most 63 lower case letters, digits and '-', and begins and ends with one of the former"
            .to_owned()
    })
}

#[derive(clap::Args, Debug, Clone, Default)]
pub struct ClusterFlags {
    /// Kubeconfig of the cluster. Default: KUBECONFIG, else the cluster that the program runs in.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

impl ClusterFlags {
    /// A client for the cluster.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub async fn client(&self) -> anyhow::Result<Client> {
        Client::try_from(self.config().await?).map_err(|error| self.explain(&error))
    }

    /// A client that sends each request once. Other clients repeat requests that were answered with
    /// 429, 503 or 504 and return only the last answer, so an earlier attempt may have taken
    /// effect.
    ///
    /// # Errors
    /// As [`ClusterFlags::client`].
    pub async fn client_without_retries(&self) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        config.default_retry = false;
        Client::try_from(config).map_err(|error| self.explain(&error))
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let config = match &self.kubeconfig {
            None => api_server::infer().await,
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| self.explain(&error))?;
                api_server::of_kubeconfig(file, &KubeConfigOptions::default()).await
            }
        };
        config.map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &(dyn std::error::Error + 'static)) -> anyhow::Error {
        let root = with_root_cause(error);
        match &self.kubeconfig {
            Some(path) => anyhow!("--kubeconfig {}: {root}", path.display()),
            None => {
                anyhow!(
                    "no cluster: {root}; name a kubeconfig in --kubeconfig or KUBECONFIG, or run in the cluster"
                )
            }
        }
    }
}

/// Recording of decisions, which `switchyard debug replay` repeats.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct RecordingFlags {
    /// Record the engine's events and decisions in this file; an older part is kept as FILE.1.
    /// Default: off.
    #[arg(long, env = "SWITCHYARD_RECORD", value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Limit for both recording files together, in MiB. It must exceed twice the engine's state,
    /// which is about 2 MiB for 1,000 workloads.
    #[arg(long, env = "SWITCHYARD_RECORD_MAX_MIB", default_value_t = 256, value_name = "MIB")]
    pub record_max_mib: u64,
}

impl RecordingFlags {
    #[must_use]
    pub fn options(&self) -> Option<RecordingOptions> {
        let file = self.record.clone()?;
        Some(RecordingOptions { file, max_bytes: self.record_max_mib.saturating_mul(1024 * 1024) })
    }
}

#[derive(clap::Args, Debug, Clone)]
pub struct AuditFlags {
    /// Seconds between audits. An audit compares this cluster's pods with what their queues are
    /// charged and shows lasting differences as metrics. 0: never. A slow audit delays the next
    /// one.
    #[arg(long, env = "SWITCHYARD_AUDIT_INTERVAL", default_value_t = 60, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub audit_interval: u64,
}

impl AuditFlags {
    /// The time between two audits; `None`: off.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        (self.audit_interval > 0).then(|| Duration::from_secs(self.audit_interval))
    }
}

/// Servers besides the webhooks, as in Kueue.
#[derive(clap::Args, Debug, Clone)]
pub struct ServingFlags {
    /// Address to serve /metrics over HTTPS at, to clients that may read it. "config": as
    /// `metrics.bindAddress` of the configuration. "none": on the probes' port, to everybody.
    /// Otherwise the probes' port does not serve metrics.
    #[arg(long, env = "SWITCHYARD_METRICS_LISTEN", default_value = NONE, value_name = "ADDRESS")]
    pub metrics_listen: String,
    /// Address to serve the visibility API at, for an APIService. "config": as `visibilityServer`
    /// of the configuration. "none": not served.
    #[arg(long, env = "SWITCHYARD_VISIBILITY_LISTEN", default_value = NONE, value_name = "ADDRESS")]
    pub visibility_listen: String,
    /// Directory with the metrics server's certificate, tls.crt and tls.key, provided by another
    /// program, such as cert-manager. It is read every minute. Default: each replica makes its own.
    #[arg(long, env = "SWITCHYARD_METRICS_CERTIFICATES", value_name = "DIRECTORY")]
    pub metrics_certificates: Option<PathBuf>,
    /// Directory with the visibility API's certificate, tls.crt and tls.key, provided by another
    /// program. It is read every minute. Default: each replica makes its own.
    #[arg(long, env = "SWITCHYARD_VISIBILITY_CERTIFICATES", value_name = "DIRECTORY")]
    pub visibility_certificates: Option<PathBuf>,
}

impl ServingFlags {
    /// Opens the listener for metrics, if one is configured.
    ///
    /// # Errors
    /// Names the flag or the field, and the address.
    pub fn metrics(&self, config: &Configuration) -> anyhow::Result<Option<Endpoint>> {
        let certificates = self.metrics_certificates.clone();
        Ok(self.metrics_listener(config)?.map(|listener| Endpoint { listener, certificates }))
    }

    fn metrics_listener(&self, config: &Configuration) -> anyhow::Result<Option<TcpListener>> {
        match self.metrics_listen.as_str() {
            NONE if config.metrics.bind_address
                != Configuration::default().metrics.bind_address =>
            {
                warn_ignored("metrics.bindAddress", "--metrics-listen");
                Ok(None)
            }
            CONFIG => {
                let address = &config.metrics.bind_address;
                listen_unless_none(
                    "metrics.bindAddress",
                    if address == "0" { NONE } else { address },
                )
            }
            address => listen_unless_none("--metrics-listen", address),
        }
    }

    /// Opens the listener of the visibility API, if one is configured and its feature gate is on.
    ///
    /// # Errors
    /// Names the flag or the field, and the address.
    pub fn visibility(&self, config: &Configuration) -> anyhow::Result<Option<Endpoint>> {
        let certificates = self.visibility_certificates.clone();
        Ok(self.visibility_listener(config)?.map(|listener| Endpoint { listener, certificates }))
    }

    fn visibility_listener(&self, config: &Configuration) -> anyhow::Result<Option<TcpListener>> {
        match self.visibility_listen.as_str() {
            NONE if config.visibility_server != Configuration::default().visibility_server => {
                warn_ignored("visibilityServer", "--visibility-listen");
                Ok(None)
            }
            CONFIG if !config.enabled("VisibilityOnDemand") => {
                tracing::warn!(
                    field = "featureGates.VisibilityOnDemand",
                    "the visibility API is not served, since its feature gate is off; APIServices that lead here answer nothing"
                );
                Ok(None)
            }
            CONFIG => {
                let server = &config.visibility_server;
                let host = server.bind_address.as_deref().unwrap_or_default();
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                listen("visibilityServer", &format!("{host}:{}", server.bind_port)).map(Some)
            }
            address => listen_unless_none("--visibility-listen", address),
        }
    }
}

/// Warns that an address in the file has no effect unless its flag is `config`.
fn warn_ignored(field: &str, flag: &str) {
    let mend = format!("it has an effect with {flag}={CONFIG}");
    tracing::warn!(field, mend, "this field of the configuration has no effect");
}

#[derive(clap::Args, Debug, Clone, Default)]
pub struct ConfigFlags {
    /// Kueue's configuration file.
    #[arg(long, env = "SWITCHYARD_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates by Kueue's names, such as PartialAdmission=false,PriorityBoost=true. The
    /// configuration file must not set any then.
    #[arg(
        long,
        env = "SWITCHYARD_FEATURE_GATES",
        value_name = "GATES",
        default_value = "",
        hide_default_value = true
    )]
    pub feature_gates: String,
}

impl ConfigFlags {
    /// Reads the file, or the defaults without one. Warns of fields without effect.
    ///
    /// # Errors
    /// Names the file, the field and what to do.
    pub fn read(&self) -> anyhow::Result<Configuration> {
        let (text, named) = match &self.config {
            None => (
                format!("apiVersion: {}\nkind: {}\n", config::API_VERSION, config::KIND),
                String::new(),
            ),
            Some(path) => {
                let named = format!("--config {}", path.display());
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("{named}: cannot be read"))?;
                (text, named)
            }
        };
        let config = config::load_with_gates(&text, &self.feature_gates);
        let config = if named.is_empty() { config? } else { config.context(named)? };
        for config::IgnoredField { path, reason } in config.ignored() {
            tracing::warn!(field = path, reason, "this field of the configuration has no effect");
        }
        for config::LaterSetting { path, is_honoured, reason } in config.later() {
            match is_honoured {
                true => tracing::info!(
                    field = path,
                    reason,
                    "this field of a later release of Kueue is honoured"
                ),
                false => tracing::warn!(
                    field = path,
                    reason,
                    "this field of a later release of Kueue has no effect"
                ),
            }
        }
        Ok(config)
    }
}

/// Listens at an address from a flag. `:8443` and `[::]:8443` mean all addresses, of IPv6 and of
/// IPv4.
///
/// # Errors
/// Names the flag and the address.
pub fn listen(flag: &str, address: &str) -> anyhow::Result<TcpListener> {
    switchyard_platform::listen::listen(address)
        .with_context(|| format!("{flag} {address}: cannot listen there"))
}

/// [`listen`], or `None` for "none".
///
/// # Errors
/// As [`listen`].
pub fn listen_unless_none(flag: &str, address: &str) -> anyhow::Result<Option<TcpListener>> {
    match address {
        NONE | "" => Ok(None),
        address => listen(flag, address).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_from_file_and_gates() {
        let file =
            std::env::temp_dir().join(format!("switchyard-flags-{}.yaml", std::process::id()));
        let write = |body: &str| {
            let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
            std::fs::write(&file, format!("{head}{body}\n")).unwrap();
        };
        let read = |config: Option<&PathBuf>, gates: &str| {
            ConfigFlags { config: config.cloned(), feature_gates: gates.to_owned() }.read()
        };
        assert_eq!(read(None, "").unwrap(), Configuration::default());
        assert!(!read(None, "PartialAdmission=false").unwrap().enabled("PartialAdmission"));
        assert!(
            read(None, "PartialAdmission")
                .unwrap_err()
                .to_string()
                .starts_with("--feature-gates: ")
        );
        write("manageJobsWithoutQueueName: true");
        let both = read(Some(&file), "PartialAdmission=false").unwrap();
        assert!(both.manage_jobs_without_queue_name && !both.enabled("PartialAdmission"));
        write("featureGates: {PartialAdmission: true}");
        let message = format!("{:#}", read(Some(&file), "PartialAdmission=false").unwrap_err());
        assert!(
            message.starts_with("--config ") && message.contains("by --feature-gates"),
            "{message}"
        );
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn namespace_must_be_one_label() {
        assert_eq!(parse_namespace("switchyard-system").as_deref(), Ok("switchyard-system"));
        for name in ["", "Not Valid", "a.b", "-a", "größe", &"a".repeat(64)] {
            assert!(parse_namespace(name).unwrap_err().contains("at most 63"), "{name}");
        }
    }

    #[test]
    fn endpoints_are_opened_by_flag_or_file() {
        let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
        let config = |section: &str| config::load(&format!("{file}{section}\n")).unwrap();
        let flags = |both: &str| ServingFlags {
            metrics_listen: both.to_owned(),
            visibility_listen: both.to_owned(),
            metrics_certificates: Some("/metrics".into()),
            visibility_certificates: Some("/visibility".into()),
        };
        let port = |endpoint: anyhow::Result<Option<Endpoint>>| {
            endpoint.unwrap().map(|endpoint| endpoint.listener.local_addr().unwrap().port())
        };
        assert_eq!(port(flags("none").metrics(&config(""))), None);
        assert_eq!(port(flags("none").visibility(&config(""))), None);
        assert!(port(flags("127.0.0.1:0").metrics(&config(""))).is_some());
        assert!(port(flags("config").metrics(&config("metrics: {bindAddress: \":0\"}"))).is_some());
        assert_eq!(port(flags("config").metrics(&config("metrics: {bindAddress: \"0\"}"))), None);
        assert_eq!(
            port(flags("config").visibility(&config("featureGates: {VisibilityOnDemand: false}"))),
            None
        );
        let metrics = flags("127.0.0.1:0").metrics(&config("")).unwrap().unwrap();
        assert_eq!(metrics.certificates.as_deref(), Some(std::path::Path::new("/metrics")));
        let error = flags("config")
            .visibility(&config("visibilityServer: {bindAddress: 203.0.113.1, bindPort: 8082}"));
        assert!(error.unwrap_err().to_string().contains("visibilityServer 203.0.113.1:8082"));
    }
}
