//! The store and the certificates that all clusters of an environment share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use switchyard_parts::Part;

use crate::certs::{Authority, Pair, token_keys};
use crate::process::{Process, Program};
use crate::wait::eventually;
use crate::workdir::WorkDir;
use crate::{ports, process};

/// How long etcd may take to serve.
const ETCD_TIME: Duration = Duration::from_secs(30);

/// The user as which an API server passes requests on to aggregated APIs.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// The programs of an environment, built.
pub(crate) type Binaries = BTreeMap<Part, PathBuf>;

/// The etcd, certificates and programs that all clusters of an environment share.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) binaries: Binaries,
    pub(crate) etcd_url: String,
    pub(crate) ca_pem: String,
    pub(crate) authority: Authority,
    pub(crate) serving: Pair,
    pub(crate) admin: Pair,
    /// The authority of the front proxies, PEM, and their certificate.
    pub(crate) front_proxy: (String, Pair),
    pub(crate) token_private: String,
    pub(crate) token_public: String,
    pub(crate) etcd: Process,
}

impl Ground {
    /// Starts etcd. `addresses` are those at which pods reach their API servers, for the certificates.
    pub(crate) async fn start(
        name: &str,
        binaries: Binaries,
        dir: &WorkDir,
        addresses: impl Iterator<Item = String>,
    ) -> anyhow::Result<Self> {
        let authority = Authority::new(&format!("switchyard-e2e-{name}"))?;
        let names: Vec<String> =
            ["127.0.0.1", "localhost"].map(str::to_owned).into_iter().chain(addresses).collect();
        let (token_private, token_public) = token_keys()?;
        let front_proxies = Authority::new("front-proxy")?;
        let front_proxy = (front_proxies.pem(), front_proxies.client(FRONT_PROXY, "front")?);
        let binary = binaries.get(&Part::Etcd).context("etcd not built")?;
        let (etcd, etcd_url) = start_etcd(binary, dir.path(), &dir.state()).await?;
        Ok(Self {
            binaries,
            etcd_url,
            ca_pem: authority.pem(),
            serving: authority.server(&names.iter().map(String::as_str).collect::<Vec<_>>())?,
            admin: authority.client("e2e-admin", "system:masters")?,
            front_proxy,
            authority,
            token_private,
            token_public,
            etcd,
        })
    }

    pub(crate) fn binary(&self, part: Part) -> anyhow::Result<&Path> {
        self.binaries
            .get(&part)
            .map(PathBuf::as_path)
            .with_context(|| format!("{} not built", part.name()))
    }
}

/// Starts an etcd with its log and data in these directories. If another process takes a port first, tries others.
pub(crate) async fn start_etcd(
    binary: &Path,
    logs: &Path,
    state: &Path,
) -> anyhow::Result<(Process, String)> {
    for _ in 0..process::PORT_TRIES {
        let (port, peer_port) = (ports::free()?, ports::free()?);
        let (url, peer) =
            (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
        let etcd = Program::new("etcd", binary, logs.join("etcd.log"))
            .arg("--data-dir")
            .arg(state.join("etcd"))
            .arg("--unsafe-no-fsync")
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "warn"])
            .args(["--quota-backend-bytes", "8589934592"])
            .start()?;
        let up = eventually(ETCD_TIME, "etcd to listen", async || {
            etcd.check().map_err(crate::wait::never)?;
            anyhow::ensure!(ports::is_open(port), "nothing listens on {port}");
            Ok(())
        });
        match up.await {
            Ok(()) => return Ok((etcd, url)),
            Err(_) if process::lost_port(&etcd) => {
                tracing::debug!("a port of etcd was taken, again")
            }
            Err(error) => return Err(error),
        }
    }
    bail!("no port stays free for etcd")
}
