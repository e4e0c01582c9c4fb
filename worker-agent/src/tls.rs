//! TLS to the hub: version 1.3 and HTTP/2, with the hub's own CA as the only root.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version,
};
use sha2::{Digest as _, Sha256};
use switchyard_platform::clock::{Clock, RustlsClock};
use switchyard_proto::SERVER_NAME;
use thiserror::Error;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::identity::Identity;
use crate::route::Route;

/// The deadline of a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// The SHA-256 of the hub's CA certificate, as a join command contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin([u8; 32]);

/// The text is not a pin.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("it takes 64 hexadecimal digits, as the join command prints them")]
pub struct BadPin;

impl std::str::FromStr for Pin {
    type Err = BadPin;

    fn from_str(text: &str) -> Result<Self, BadPin> {
        let text = text.trim().trim_start_matches("sha256:");
        let digits: Option<Vec<u8>> = text
            .chars()
            .filter(|it| *it != ':')
            .map(|it| it.to_digit(16).map(|it| it as u8))
            .collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or(BadPin)?;
        let mut pin = [0; 32];
        for (byte, pair) in pin.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |sum, digit| sum << 4 | digit);
        }
        Ok(Self(pin))
    }
}

impl Pin {
    pub fn matches(&self, certificate: &CertificateDer<'_>) -> bool {
        Sha256::digest(certificate).as_slice() == self.0
    }
}

/// Why no connection can be made.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The agent's certificate, key or trust is invalid.
    #[error("the identity cannot be used for TLS: {0}")]
    Config(String),
    /// No server, or not the hub.
    #[error("cannot connect to the hub at {address}: {cause}")]
    Connect {
        address: String,
        /// The error with all its causes: a pin that does not match is the last of them.
        cause: String,
    },
}

/// The configuration for an agent with an identity.
pub(crate) fn with_identity(
    identity: &Identity,
    clock: &Arc<dyn Clock>,
) -> Result<ClientConfig, TlsError> {
    let config = |error: rustls::Error| TlsError::Config(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in &identity.trust {
        roots.add(certificate.clone()).map_err(config)?;
    }
    let roots = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| TlsError::Config(error.to_string()))?;
    let client = builder(clock)
        .map_err(config)?
        .dangerous()
        .with_custom_certificate_verifier(verifier(Trust::Roots(roots)))
        .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(config)?;
    Ok(http2(client))
}

/// The configuration for an agent that knows only the hash of the hub's CA.
pub(crate) fn with_pin(pin: &Pin, clock: &Arc<dyn Clock>) -> Result<ClientConfig, TlsError> {
    let builder = builder(clock).map_err(|error| TlsError::Config(error.to_string()))?;
    let verifier = verifier(Trust::Pin(pin.clone()));
    Ok(http2(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

fn builder(
    clock: &Arc<dyn Clock>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_details(provider(), Arc::new(RustlsClock(clock.clone())))
        .with_protocol_versions(&[&version::TLS13])
}

fn verifier(trust: Trust) -> Arc<HubVerifier> {
    Arc::new(HubVerifier { trust, provider: provider() })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn http2(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Connects as an agent without an identity, and sends no request.
///
/// # Errors
///
/// No server answers, or it is not the hub.
pub async fn probe(route: &Route, pin: &Pin) -> Result<(), TlsError> {
    connect(route, with_pin(pin, &route.clock)?).await.map(drop)
}

/// Connects. HTTP/2 pings detect a dead peer between messages.
pub(crate) async fn connect(route: &Route, config: ClientConfig) -> Result<Channel, TlsError> {
    let address = &route.hub;
    let failed = |error: &dyn std::error::Error| TlsError::Connect {
        address: address.to_string(),
        cause: chain(error),
    };
    let origin: Uri =
        address.to_string().parse().map_err(|error: http::uri::InvalidUri| failed(&error))?;
    // The connector does TLS itself, so tonic must see a plain connection.
    let plain = address.to_string().replacen("https", "http", 1);
    let endpoint = Endpoint::from_shared(plain).map_err(|error| failed(&error))?;
    let endpoint = endpoint
        .origin(origin)
        .connect_timeout(CONNECT_DEADLINE)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    let tls = TlsConnector::from(Arc::new(config));
    let (dial, target) = (route.dial.clone(), (address.host.clone(), address.port));
    let connector = tower::service_fn(move |_: Uri| {
        let (tls, dial, target) = (tls.clone(), dial.clone(), target.clone());
        async move {
            let name = requested_name(&target.0).map_err(std::io::Error::other)?;
            let stream = dial.dial(&target.0, target.1).await?;
            Ok::<_, std::io::Error>(TokioIo::new(tls.connect(name, stream).await?))
        }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| failed(&error))
}

/// The server name in the handshake: the host that the agent dials, so that a load balancer can
/// route by it. It does not change which certificate [`HubVerifier`] accepts. SNI has no IP
/// addresses; for them, it is the hub's own name.
fn requested_name(host: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
    match ServerName::try_from(host.to_owned()) {
        Ok(name @ ServerName::DnsName(_)) => Ok(name),
        _ => ServerName::try_from(SERVER_NAME),
    }
}

/// The error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let next = inner.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = inner.source();
    }
    text
}

/// The status on one line.
pub(crate) fn said(status: &tonic::Status) -> String {
    let text: String = status.message().chars().take(300).collect();
    format!("{}: {text}", status.code())
}

/// The agent's knowledge of the hub's authority.
#[derive(Debug)]
enum Trust {
    /// The certificates of its identity.
    Roots(Arc<WebPkiServerVerifier>),
    /// The hash of the one from the server's chain that is the only root.
    Pin(Pin),
}

/// Accepts only certificates for the hub's own name, whichever name the agent dialled.
#[derive(Debug)]
struct HubVerifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl HubVerifier {
    /// Verifies by the roots that count for a server's chain.
    fn for_chain(
        &self,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        let pin = match &self.trust {
            Trust::Roots(verifier) => return Ok(verifier.clone()),
            Trust::Pin(pin) => pin,
        };
        let Some(root) = intermediates.iter().find(|certificate| pin.matches(certificate)) else {
            let text = "the server's chain has no certificate with the hash of --hub-ca-sha256: this is not the hub that made the token";
            return Err(rustls::Error::General(text.to_owned()));
        };
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }
}

impl ServerCertVerifier for HubVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let hub = ServerName::try_from(SERVER_NAME)
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let verifier = self.for_chain(intermediates)?;
        verifier.verify_server_cert(end_entity, intermediates, &hub, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::future::BoxFuture;
    use rustls::ServerConfig;
    use switchyard_platform::clock::SystemClock;
    use tokio_rustls::LazyConfigAcceptor;

    use super::*;
    use crate::identity::tests::Pki;
    use crate::route::{Dial, Io};
    use crate::testing;

    #[test]
    fn ca_pins_are_parsed() {
        let hash = Sha256::digest(b"certificate");
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let certificate = CertificateDer::from(b"certificate".to_vec());
        for text in [hex.clone(), hex.to_uppercase(), format!("sha256:{hex}")] {
            assert!(text.parse::<Pin>().unwrap().matches(&certificate), "{text}");
        }
        for text in ["", "abcd", &hex[1..], &format!("{}g", &hex[1..])] {
            assert_eq!(text.parse::<Pin>(), Err(BadPin), "{text}");
        }
    }

    /// Every address leads to one TLS server. It records the server names in handshakes.
    struct Server {
        config: Arc<ServerConfig>,
        names: Arc<parking_lot::Mutex<Vec<Option<String>>>>,
    }

    impl Dial for Server {
        fn dial<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Io>>> {
            Box::pin(async move {
                let (near, far) = tokio::io::duplex(1 << 16);
                let (config, names) = (self.config.clone(), self.names.clone());
                tokio::spawn(async move {
                    let hello = LazyConfigAcceptor::new(Default::default(), far).await.unwrap();
                    names.lock().push(hello.client_hello().server_name().map(str::to_owned));
                    // The agent may refuse the certificate.
                    if let Ok(mut stream) = hello.into_stream(config).await {
                        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                    }
                });
                Ok(Box::new(near) as Box<dyn Io>)
            })
        }
    }

    /// Dials this host with a pin, and then with an identity. The server has a certificate of the
    /// hub's CA for `certified`. Returns both results and the server names that it saw.
    async fn dial(host: &str, certified: &str) -> (Vec<Result<(), TlsError>>, Vec<Option<String>>) {
        let pki = Pki::new();
        let names = Arc::default();
        let server =
            Server { config: Arc::new(testing::tls(&pki, certified)), names: Arc::clone(&names) };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let hub = format!("https://{host}:7443").parse().unwrap();
        let route = Route { hub, dial: Arc::new(server), clock: clock.clone() };
        let pin = Pin(Sha256::digest(&pki.ca).into());
        let identity = with_identity(&pki.identity("east", -10, 3600), &clock).unwrap();
        let results = vec![probe(&route, &pin).await, connect(&route, identity).await.map(drop)];
        (results, names.lock().clone())
    }

    #[tokio::test]
    async fn server_name_is_the_dialled_host() {
        let cases = [
            ("hub.example", "hub.example"),
            ("hub.example.", "hub.example"),
            ("localhost", "localhost"),
            ("192.0.2.1", SERVER_NAME),
            ("[2001:db8::1]", SERVER_NAME),
        ];
        for (host, expected) in cases {
            let (results, names) = dial(host, SERVER_NAME).await;
            assert!(results.iter().all(Result::is_ok), "{host}: {results:?}");
            let expected = Some(expected.to_owned());
            assert_eq!(names, [expected.clone(), expected], "{host}");
        }
    }

    /// The hub's CA also signs agents' certificates, so the name of the dialled host proves
    /// nothing.
    #[tokio::test]
    async fn certificate_for_the_dialled_host_is_refused() {
        for (host, certified) in [("hub.example", "hub.example"), ("192.0.2.1", "192.0.2.1")] {
            let (results, _) = dial(host, certified).await;
            for result in results {
                let error = result.unwrap_err().to_string();
                assert!(error.contains("certificate"), "{error}");
                assert!(error.contains(SERVER_NAME), "{error}");
            }
        }
    }
}
