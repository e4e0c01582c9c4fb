//! An operator as a process, with the rights of its service account on one cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use kube::api::DeleteParams;
use serde_json::Value;
use switchyard_e2e::fleet::account_in;
use switchyard_e2e::wait::{eventually, never};
use switchyard_e2e::{
    Authority, Cluster, PORT_TRIES, Pair, Process, Program, http, lost_port, ports,
};
use switchyard_jobs::apply_merge;

use super::catalog::{Operator, Place};
use super::dashboard::Dashboard;
use super::manifests::Manifests;

/// How long it may take to be ready, and to end.
const TIME: Duration = Duration::from_secs(60);
/// The certificate of all webhooks.
#[derive(Debug)]
pub(super) struct Certificates {
    /// The authority's certificate, PEM.
    pub(super) authority: String,
    pair: Pair,
}

impl Certificates {
    pub(super) fn new() -> anyhow::Result<Self> {
        let authority = Authority::new("operators")?;
        Ok(Self { pair: authority.server(&["127.0.0.1"])?, authority: authority.pem() })
    }

    fn write(&self, dir: &Path) -> std::io::Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("ca.crt"), &self.authority)?;
        fs::write(dir.join("tls.crt"), &self.pair.certificate)?;
        fs::write(dir.join("tls.key"), &self.pair.key)
    }
}

/// Resources of operators beside the clusters.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) certificates: Certificates,
    pub(super) dashboard: Dashboard,
}

/// An operator, ready to be installed.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) binary: PathBuf,
    /// The version of its module.
    pub(super) version: String,
    pub(super) manifests: Manifests,
}

/// An operator that runs on one cluster.
pub(super) struct Running<'a> {
    cluster: &'a Cluster,
    process: Process,
    /// Kind and name of each of its webhook configurations.
    webhooks: Vec<(String, String)>,
}

impl<'a> Running<'a> {
    /// Installs it, starts it, and registers its webhooks once it is ready.
    ///
    /// # Errors
    /// When the API server refuses an object; or the end of its log.
    pub(super) async fn start(
        cluster: &'a Cluster,
        operator: &Operator,
        package: &Package,
        beside: &Beside,
    ) -> anyhow::Result<Self> {
        let started = Self::install(cluster, operator, package, beside).await;
        started.with_context(|| format!("{} on {}", operator.part.name(), cluster.name()))
    }

    async fn install(
        cluster: &'a Cluster,
        operator: &Operator,
        package: &Package,
        beside: &Beside,
    ) -> anyhow::Result<Self> {
        for _ in 0..PORT_TRIES {
            let place = place(cluster, operator, beside)?;
            cluster.apply(package.manifests.objects(place.webhook, &beside.certificates)).await?;
            let process = program(cluster, operator, package, &place).await?.start()?;
            let webhooks = package.manifests.webhooks(place.webhook, &beside.certificates);
            match ready(&process, operator, &place, !webhooks.is_empty()).await {
                Ok(()) => {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let named = webhooks
                        .iter()
                        .map(|it| (text(&it["kind"]), text(&it["metadata"]["name"])))
                        .collect();
                    cluster.apply(webhooks).await?;
                    return Ok(Self { cluster, process, webhooks: named });
                }
                Err(_) if lost_port(&process) => {
                    tracing::debug!("a port was taken, again with others")
                }
                Err(error) => bail!("{error:#}; its log ends with:\n{}", process.log_tail(20)),
            }
        }
        bail!("no port stays free")
    }

    /// Ends it and deletes its webhook configurations, which would lead nowhere.
    ///
    /// # Errors
    /// When the API server refuses.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        for (kind, name) in &self.webhooks {
            let api = self.cluster.dynamic("admissionregistration.k8s.io/v1", kind, "").await?;
            api.delete(name, &DeleteParams::default())
                .await
                .with_context(|| format!("{kind} {name}"))?;
        }
        self.process.terminate(TIME).await;
        Ok(())
    }
}

fn place(cluster: &Cluster, operator: &Operator, beside: &Beside) -> anyhow::Result<Place> {
    let dir = cluster.state_dir().join(format!("{}-certificates", operator.part.name()));
    beside.certificates.write(&dir).with_context(|| format!("cannot write {}", dir.display()))?;
    let dashboard = beside.dashboard.url();
    Ok(Place { health: ports::free()?, webhook: ports::free()?, certificates: dir, dashboard })
}

async fn program(
    cluster: &Cluster,
    operator: &Operator,
    package: &Package,
    place: &Place,
) -> anyhow::Result<Program> {
    let (name, manifests) = (operator.part.name(), &package.manifests);
    let mut program =
        Program::new(name, &package.binary, cluster.dir().join(format!("{name}.log")))
            .env("KUBECONFIG", account_in(cluster, &manifests.namespace, &manifests.account).await?)
            .args(&manifests.args)
            .args((operator.flags)(place));
    for (variable, value) in (operator.env)(place) {
        program = program.env(variable, value);
    }
    if let Some(config) = &manifests.config {
        let mut config = config.clone();
        apply_merge(&mut config, &(operator.config)(place));
        let path = cluster.state_dir().join(format!("{name}.yaml"));
        let text = serde_saphyr::to_string(&config)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        program = program.arg(format!("--config={}", path.display()));
    }
    Ok(program)
}

async fn ready(
    process: &Process,
    operator: &Operator,
    place: &Place,
    serves: bool,
) -> anyhow::Result<()> {
    eventually(TIME, format!("{} to be ready", process.name()), async || {
        process.check().map_err(never)?;
        http::get(place.health, operator.ready).await?;
        ensure!(!serves || ports::is_open(place.webhook), "it does not serve its webhooks");
        Ok(())
    })
    .await
}
