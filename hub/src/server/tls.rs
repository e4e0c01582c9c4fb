//! The listener's TLS: 1.3 only, our certificate renewed in place, clients' certificates checked against our authority.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;

use crate::pki::Ca;

/// Holds the TLS configuration that new connections get.
pub struct TlsKeeper {
    ca: Arc<Ca>,
    names: Vec<String>,
    config: ArcSwap<ServerConfig>,
}

impl std::fmt::Debug for TlsKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsKeeper").field("names", &self.names).finish_non_exhaustive()
    }
}

impl TlsKeeper {
    /// A first certificate for these names and addresses.
    ///
    /// # Errors
    /// When a name is no DNS name or address.
    pub fn new(ca: Arc<Ca>, names: Vec<String>) -> anyhow::Result<Self> {
        let config = ArcSwap::new(config(&ca, &names)?);
        Ok(Self { ca, names, config })
    }

    /// The configuration for a new connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// Renews the certificate at two thirds of its life until shutdown. Open connections keep the old one.
    pub async fn renew(&self, shutdown: &CancellationToken) {
        let life = crate::pki::ca::SERVER_LIFE;
        let mut pause = life * 2 / 3;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            match config(&self.ca, &self.names) {
                Ok(config) => {
                    self.config.store(config);
                    pause = life * 2 / 3;
                }
                Err(error) => {
                    tracing::error!(
                        error = format!("{error:#}"),
                        "hub certificate not renewed, trying again in a minute"
                    );
                    pause = Duration::from_secs(60);
                }
            }
        }
    }
}

fn config(ca: &Ca, names: &[String]) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = ca.issue_server(names, jiff::Timestamp::now()).context("issuing the hub's certificate")?;
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate().clone()).context("trusting our own authority")?;
    // Enrolment comes without a certificate; all else asks for one in its handler.
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .context("checking clients' certificates")?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .context("TLS 1.3")?
        .with_client_cert_verifier(clients)
        .with_single_cert(server.chain, server.key)
        .context("using the hub's certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would not show the certificate's state anew.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
