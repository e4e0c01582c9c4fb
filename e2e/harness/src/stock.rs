//! Runs stock Kueue on a cluster, for tests of interoperation and for comparisons.

mod webhooks;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::certs::Authority;
use crate::cluster::Cluster;
use crate::process::{self, Process, Program};
use crate::usage_writer::{RunningWriter, UsageWriterState};
use crate::{fixture, ports, ready};
use switchyard_parts::{Part, Parts, SourceEdit};

/// How long it may take to be ready.
const READY_TIME: Duration = Duration::from_secs(60);
/// How long it may take to end.
const STOP_TIME: Duration = Duration::from_secs(30);
/// The only directory from which Kueue reads the certificate of its metrics. Kueue can also manage certificates itself, but
/// then needs webhooks that reach it through a Service.
const METRICS_CERTS: &str = "/etc/kueue/metrics/certs";
pub const NAMESPACE: &str = "kueue-system";

/// Its configuration, besides the settings that it needs to run here.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests a second that its client may send. Default as in its manifests: 300.
    pub qps: u32,
    /// Burst of requests of its client. Default as in its manifests: 500.
    pub burst: u32,
    /// Merged into the configuration, objects key by key.
    pub config: Value,
    /// Feature gates, such as `("MultiKueueIncrementalDispatcherConfig", false)`.
    pub gates: Vec<(String, bool)>,
    /// Registers its webhooks and the conversion of its CRDs, as its manifests do. They stay after its end, as in a real
    /// cluster; [`Kueue::unregister`] removes them.
    pub webhooks: bool,
    /// Changes of its source, for behaviour without a setting. See [`Parts::edited`].
    pub edits: &'static [SourceEdit],
}

impl Default for Options {
    fn default() -> Self {
        Self {
            qps: 300,
            burst: 500,
            config: Value::Null,
            gates: Vec::new(),
            webhooks: false,
            edits: &[],
        }
    }
}

/// Stock Kueue, running with all rights on one cluster. Its webhooks are registered only with [`Options::webhooks`]. Without
/// them, Jobs must be created suspended, and Jobs to dispatch with `managedBy`. Dropping this ends Kueue.
#[derive(Debug)]
pub struct Kueue {
    process: Process,
    usage_writer: Arc<UsageWriterState>,
    writer: RunningWriter,
}

impl Kueue {
    /// Builds it if needed, installs its CRDs into the cluster, starts it, and waits until it is ready.
    pub async fn start(cluster: &Cluster, options: &Options) -> anyhow::Result<Self> {
        let process = Self::start_all(cluster, options)
            .await
            .with_context(|| format!("stock Kueue on {}", cluster.name()))?;
        let usage_writer = Arc::clone(&cluster.usage_writer);
        Ok(Self { process, writer: usage_writer.start(), usage_writer })
    }

    async fn start_all(cluster: &Cluster, options: &Options) -> anyhow::Result<Process> {
        let edits = options.edits;
        let (binary, source) = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
            let parts = Parts::new()?;
            Ok((parts.edited(Part::Kueue, edits)?, parts.own_source_dir(Part::Kueue)?))
        })
        .await??;
        let dir = cluster.state_dir().join("kueue");
        let authority = write_certificates(&dir)?;
        cluster
            .apply([
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            ])
            .await?;
        cluster.apply_dir(source.join("config/components/crd/bases")).await?;
        let mut gates = String::from("VisibilityOnDemand=false");
        for (gate, on) in &options.gates {
            gates.push_str(&format!(",{gate}={on}"));
        }
        for _ in 0..process::PORT_TRIES {
            let (health, webhook) = (ports::free()?, ports::free()?);
            let config = dir.join("config.yaml");
            fs::write(
                &config,
                serde_saphyr::to_string(&configuration(&dir, health, webhook, options)?)?,
            )?;
            let process = Program::new(
                "kueue",
                &binary,
                cluster.dir().join(format!("{}.log", fixture::unique("kueue"))),
            )
            .arg(format!("--config={}", config.display()))
            .arg(format!("--feature-gates={gates}"))
            .env("POD_NAMESPACE", NAMESPACE)
            .env("KUBECONFIG", cluster.kubeconfig())
            .start()?;
            let answers = (health, "/readyz");
            match ready::program("stock Kueue", || process.check(), answers, READY_TIME).await {
                Ok(()) if options.webhooks => {
                    webhooks::register(cluster, &source.join("config"), webhook, &authority)
                        .await?;
                    return Ok(process);
                }
                Ok(()) => return Ok(process),
                Err(_) if process::lost_port(&process) => {
                    tracing::debug!("a port of kueue was taken, again")
                }
                Err(error) => return Err(error.context(process.log_tail(20))),
            }
        }
        anyhow::bail!("no port stays free")
    }

    /// Its process, for its memory, CPU time and log.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills it (SIGKILL).
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts it again with the same settings, and does not wait for it.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill();
        self.process = self.process.program().start()?;
        self.writer = self.usage_writer.start();
        Ok(())
    }

    /// Ends it as the deletion of its pod would. Registered webhooks stay.
    pub async fn stop(self) {
        self.process.terminate(STOP_TIME).await;
    }

    /// Deletes its webhook configurations.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn unregister(cluster: &Cluster) -> anyhow::Result<()> {
        webhooks::unregister(cluster).await
    }
}

/// Writes the certificates of its webhook and metrics servers. Returns the CA certificate, PEM.
fn write_certificates(dir: &Path) -> anyhow::Result<String> {
    let authority = Authority::new("kueue")?;
    let pair = authority.server(&["127.0.0.1", "localhost"])?;
    let write = |dir: &Path| -> std::io::Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("tls.crt"), &pair.certificate)?;
        fs::write(dir.join("tls.key"), &pair.key)?;
        fs::write(dir.join("ca.crt"), authority.pem())
    };
    write(&dir.join("certs"))?;
    let metrics = Path::new(METRICS_CERTS);
    if metrics.exists() {
        return Ok(authority.pem());
    }
    // A rename replaces both files at once. Otherwise the certificate of one process could lie beside the key of another.
    let unfinished = metrics.with_file_name(fixture::unique("certs"));
    let written = write(&unfinished).and_then(|()| fs::rename(&unfinished, metrics));
    if written.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    match written {
        Err(_) if metrics.exists() => Ok(authority.pem()),
        other => other.map(|()| authority.pem()).with_context(|| {
            format!("cannot write {METRICS_CERTS}, where stock Kueue looks for a certificate; run as root, once")
        }),
    }
}

fn configuration(
    dir: &Path,
    health: u16,
    webhook: u16,
    options: &Options,
) -> anyhow::Result<Value> {
    let mut config = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        "metrics": {"bindAddress": format!("127.0.0.1:{}", ports::free()?)},
        "webhook": {"port": webhook, "host": "127.0.0.1", "certDir": dir.join("certs")},
        "internalCertManagement": {"enable": false},
        "leaderElection": {"leaderElect": false},
        "clientConnection": {"qps": options.qps, "burst": options.burst},
        "integrations": {"frameworks": ["batch/job"]},
    });
    merge(&mut config, &options.config);
    Ok(config)
}

fn merge(base: &mut Value, over: &Value) {
    match (base.as_object_mut(), over.as_object()) {
        (Some(base), Some(over)) => {
            for (key, value) in over {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        _ if over.is_null() => {}
        _ => *base = over.clone(),
    }
}
