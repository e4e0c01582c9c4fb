//! Flags of every program that contains a controller.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use axum::http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use switchyard_api::validate::is_subdomain;
use switchyard_config::{self as config, Configuration};

use crate::cause::with_root;
use crate::options::Endpoint;
use crate::recording::RecordingOptions;
use crate::webhook::{Advertise, WebhookOptions};

/// The value for "off".
const NONE: &str = "none";
/// The value for "as in the configuration file".
const CONFIG: &str = "config";

/// How the webhooks are served and reached.
#[derive(clap::Args, Debug, Clone)]
pub struct WebhookFlags {
    /// Address to serve the admission webhooks at. Default: they are neither served nor registered.
    #[arg(long, env = "SWITCHYARD_WEBHOOK_LISTEN", value_name = "ADDRESS")]
    pub webhook_listen: Option<SocketAddr>,
    /// URL at which the API server reaches the webhooks from outside the cluster:
    /// https://HOST:PORT.
    #[arg(long, env = "SWITCHYARD_WEBHOOK_URL", value_name = "URL", value_parser = webhook_url, conflicts_with = "webhook_service")]
    pub webhook_url: Option<String>,
    /// Service through which the API server reaches the webhooks, in Switchyard's namespace:
    /// NAME[:PORT].
    #[arg(long, env = "SWITCHYARD_WEBHOOK_SERVICE", value_name = "SERVICE")]
    pub webhook_service: Option<String>,
    /// Name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration. The role
    /// must allow this name too.
    #[arg(long, env = "SWITCHYARD_WEBHOOK_CONFIGURATION", value_name = "NAME", value_parser = object_name,
        default_value = WebhookOptions::CONFIGURATION)]
    pub webhook_configuration: String,
    /// Service in Switchyard's namespace, NAME[:PORT], through which the API server reaches
    /// replicas that are not ready. They need conversion to read objects stored in v1beta1, so the
    /// Service needs publishNotReadyAddresses. Default: as the webhooks.
    #[arg(
        long,
        env = "SWITCHYARD_CONVERSION_SERVICE",
        value_name = "SERVICE",
        requires = "webhook_listen"
    )]
    pub conversion_service: Option<String>,
    /// Policy for jobs that are created or changed while no replica answers the webhooks, on a
    /// single cluster and on workers. "ignore" allows them; new ones run until they are suspended.
    /// "fail" denies jobs with a queue, as Kueue does. New jobs on a hub, and pods and kinds queued
    /// by their pods, are always denied.
    #[arg(long, env = "SWITCHYARD_JOB_WEBHOOKS", value_enum, default_value_t)]
    pub job_webhooks: JobWebhooks,
    /// Ignore the annotation kueue.x-k8s.io/queue-name of new jobs, as later Kueue releases do.
    /// Default: as in Kueue 0.1, it becomes the label of that name, with a warning to the job's
    /// creator.
    #[arg(long, env = "SWITCHYARD_IGNORE_QUEUE_ANNOTATION")]
    pub ignore_queue_annotation: bool,
    /// Another program, such as cert-manager, keeps the Secret switchyard-webhook-cert with
    /// tls.crt, tls.key and ca.crt. They are read every ten minutes. Default: Switchyard makes and
    /// renews the certificates.
    #[arg(long, env = "SWITCHYARD_EXTERNAL_WEBHOOK_CERTIFICATES", requires = "webhook_listen")]
    pub external_webhook_certificates: bool,
}

/// Policy for jobs while no replica answers the webhooks.
#[derive(clap::ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JobWebhooks {
    /// They are denied, as with Kueue.
    Fail,
    /// They are allowed.
    #[default]
    Ignore,
}

/// Parses a namespace.
///
/// # Errors
/// The rules for a namespace's name.
pub fn namespace(text: &str) -> Result<String, String> {
    let label = !text.contains('.') && text.len() <= 63 && is_subdomain(text);
    label.then(|| text.to_owned()).ok_or_else(|| {
        "a namespace's name has at most 63 lower case letters, digits and '-', and begins and ends with one of the former"
            .to_owned()
    })
}

fn object_name(text: &str) -> Result<String, String> {
    is_subdomain(text).then(|| text.to_owned()).ok_or_else(|| {
        "a name has lower case letters, digits, '-' and '.', and begins and ends with a letter or digit".to_owned()
    })
}

fn webhook_url(text: &str) -> Result<String, String> {
    // Kubernetes accepts neither a query nor a user in `clientConfig.url`.
    let taken = text.parse::<Uri>().ok().filter(|uri| {
        uri.scheme_str() == Some("https")
            && uri.query().is_none()
            && uri.authority().is_some_and(|authority| {
                !authority.host().is_empty() && !authority.as_str().contains('@')
            })
    });
    taken.map(|_| text.to_owned()).ok_or_else(|| "write it as https://HOST:PORT".to_owned())
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
        Client::try_from(self.config().await?).map_err(|error| self.said(&error))
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
        Client::try_from(config).map_err(|error| self.said(&error))
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let Some(path) = &self.kubeconfig else {
            return Config::infer().await.map_err(|error| self.said(&error));
        };
        let file = Kubeconfig::read_from(path).map_err(|error| self.said(&error))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        config.map_err(|error| self.said(&error))
    }

    fn said(&self, error: &(dyn std::error::Error + 'static)) -> anyhow::Error {
        let root = with_root(error);
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

impl WebhookFlags {
    /// Opens the listener, if one is configured.
    ///
    /// # Errors
    /// Names the flag and what to do.
    pub fn options(&self, namespace: &str) -> anyhow::Result<Option<WebhookOptions>> {
        let advertise = match (&self.webhook_url, &self.webhook_service) {
            (Some(url), _) => Some(Advertise::Url(url.clone())),
            (None, Some(service)) => Some(service_of("--webhook-service", service, namespace)?),
            (None, None) => None,
        };
        match (self.webhook_listen, advertise) {
            (None, None) => Ok(None),
            (Some(address), Some(advertise)) => {
                let listener = listen("--webhook-listen", &address.to_string())?;
                let configuration = self.webhook_configuration.clone();
                let conversion = self.conversion_service.as_deref();
                let conversion = conversion
                    .map(|name| service_of("--conversion-service", name, namespace))
                    .transpose()?;
                Ok(Some(WebhookOptions {
                    configuration,
                    conversion,
                    external_certificates: self.external_webhook_certificates,
                    fail_closed: self.job_webhooks == JobWebhooks::Fail,
                    ignores_queue_annotation: self.ignore_queue_annotation,
                    ..WebhookOptions::new(listener, advertise)
                }))
            }
            (Some(_), None) => bail!(
                "--webhook-listen needs --webhook-service or --webhook-url, so that the API server can be told where to call"
            ),
            (None, Some(_)) => bail!(
                "--webhook-service and --webhook-url need --webhook-listen, such as 0.0.0.0:9443"
            ),
        }
    }
}

fn service_of(flag: &str, text: &str, namespace: &str) -> anyhow::Result<Advertise> {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => {
            (name, port.parse().with_context(|| format!("{flag} {text}: not NAME[:PORT]"))?)
        }
        None => (text, 443),
    };
    Ok(Advertise::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
}

/// Recording of decisions, which `switchyard replay` repeats.
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
                warn_idle("metrics.bindAddress", "--metrics-listen");
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
                warn_idle("visibilityServer", "--visibility-listen");
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

/// Warns that an address in the file counts only if its flag says so.
fn warn_idle(field: &str, flag: &str) {
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
        for config::Ignored { path, reason } in config.ignored() {
            tracing::warn!(field = path, reason, "this field of the configuration has no effect");
        }
        for config::Later { path, is_honoured, reason } in config.later() {
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

/// Listens at an address from a flag. `:8443` means all addresses.
///
/// # Errors
/// Names the flag and the address.
pub fn listen(flag: &str, address: &str) -> anyhow::Result<TcpListener> {
    let everywhere = address.strip_prefix(':').map(|port| format!("0.0.0.0:{port}"));
    let at = everywhere.as_deref().unwrap_or(address);
    TcpListener::bind(at).with_context(|| format!("{flag} {address}: cannot listen there"))
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
    fn webhook_url_must_be_https() {
        for url in ["https://10.0.0.1:9443", "https://hub.example", "https://[::1]:9443/"] {
            assert_eq!(webhook_url(url).as_deref(), Ok(url));
        }
        for url in [
            "http://hub:9443",
            "hub:9443",
            "https://",
            "https://a@hub",
            "https://hub?x=1",
            "",
            "größe",
        ] {
            assert_eq!(webhook_url(url).unwrap_err(), "write it as https://HOST:PORT", "{url}");
        }
    }

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
        let said = format!("{:#}", read(Some(&file), "PartialAdmission=false").unwrap_err());
        assert!(said.starts_with("--config ") && said.contains("by --feature-gates"), "{said}");
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn namespace_must_be_one_label() {
        assert_eq!(namespace("switchyard-system").as_deref(), Ok("switchyard-system"));
        for name in ["", "Not Valid", "a.b", "-a", "größe", &"a".repeat(64)] {
            assert!(namespace(name).unwrap_err().contains("at most 63"), "{name}");
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
