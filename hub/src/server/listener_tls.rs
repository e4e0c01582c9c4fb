//! TLS of the agents' listener: version 1.3 only, a server certificate that renews itself, and
//! client certificates checked against the hub's CAs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use switchyard_hub_pki::Authority;
use switchyard_platform::clock::{Clock, RustlsClock};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The CAs in force. The value changes during a CA rotation.
pub type Authorities = watch::Receiver<Arc<Authority>>;

/// Wait after the certificate could not be issued.
const PAUSE: Duration = Duration::from_secs(60);

/// The TLS configuration for new connections.
pub struct ListenerTls {
    authorities: Authorities,
    names: Vec<String>,
    clock: Arc<dyn Clock>,
    config: ArcSwap<ServerConfig>,
}

impl std::fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerTls").field("names", &self.names).finish_non_exhaustive()
    }
}

impl ListenerTls {
    /// Issues the first certificate for these names and addresses.
    ///
    /// # Errors
    /// A name is neither a DNS name nor an address.
    pub fn new(
        authorities: Authorities,
        names: Vec<String>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let authority = authorities.borrow().clone();
        let config = ArcSwap::new(config(&authority, &names, &clock)?);
        Ok(Self { authorities, names, clock, config })
    }

    pub fn current(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// Renews the certificate until shutdown: at two thirds of its life, and when the CAs change.
    /// Open connections keep the old one.
    pub async fn renew(&self, shutdown: &CancellationToken) {
        let mut authorities = self.authorities.clone();
        let mut pause = switchyard_hub_pki::ca::SERVER_LIFE * 2 / 3;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                () = changed(&mut authorities) => {}
            }
            let authority = authorities.borrow_and_update().clone();
            match config(&authority, &self.names, &self.clock) {
                Ok(config) => {
                    self.config.store(config);
                    pause = switchyard_hub_pki::ca::SERVER_LIFE * 2 / 3;
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(error, "hub certificate not renewed, trying again in a minute");
                    pause = PAUSE;
                }
            }
        }
    }
}

/// Never resolves once the sender is gone.
async fn changed(authorities: &mut Authorities) {
    if authorities.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn config(
    authority: &Authority,
    names: &[String],
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = authority
        .signer()
        .issue_server(names, clock.now())
        .context("issuing the hub's certificate")?;
    let mut roots = RootCertStore::empty();
    for certificate in authority.trusted() {
        roots.add(certificate).context("trusting our own authority")?;
    }
    // Enrolment comes without a certificate. All other calls check for one in their handler.
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .context("checking clients' certificates")?;
    let mut config =
        ServerConfig::builder_with_details(provider, Arc::new(RustlsClock(clock.clone())))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .context("TLS 1.3")?
            .with_client_cert_verifier(clients)
            .with_single_cert(server.chain, server.key)
            .context("using the hub's certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would skip the check of the client certificate.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
