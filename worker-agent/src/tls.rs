//! TLS to the hub: 1.3 only, HTTP/2, the hub verified against its own CA and nobody else's.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
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

/// A connection that is not there after this long is given up.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Where the hub is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubAddress {
    host: String,
    port: u16,
}

/// A text that is no address of a hub.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not https://HOST[:PORT]")]
pub struct BadAddress(String);

impl std::str::FromStr for HubAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        match (uri.scheme_str(), uri.host()) {
            (Some("https"), Some(host)) if bare => {
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                Ok(Self { host, port: uri.port_u16().unwrap_or(443) })
            }
            _ => Err(bad()),
        }
    }
}

impl std::fmt::Display for HubAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') {
            write!(f, "https://[{host}]:{port}")
        } else {
            write!(f, "https://{host}:{port}")
        }
    }
}

/// The SHA-256 of the hub's CA certificate, as a join command carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin([u8; 32]);

/// A text that is no pin.
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
    /// Whether the certificate is the pinned one.
    pub fn matches(&self, certificate: &CertificateDer<'_>) -> bool {
        Sha256::digest(certificate).as_slice() == self.0
    }
}

/// Why no connection can be made.
#[derive(Debug, Error)]
pub enum TlsError {
    /// What we trust or are cannot be used.
    #[error("the identity cannot be used for TLS: {0}")]
    Config(String),
    /// Nobody there, or not the hub.
    #[error("cannot connect to the hub at {address}: {cause}")]
    Connect {
        /// Where.
        address: String,
        /// All of it: a pin that does not match is found in the last part.
        cause: String,
    },
}

/// For a caller with an identity.
pub(crate) fn with_identity(
    identity: &Identity,
    clock: &Arc<dyn Clock>,
) -> Result<ClientConfig, TlsError> {
    let config = |error: rustls::Error| TlsError::Config(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in &identity.trust {
        roots.add(certificate.clone()).map_err(config)?;
    }
    let builder = builder(clock).map_err(config)?.with_root_certificates(roots);
    let client = builder
        .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(config)?;
    Ok(http2(client))
}

/// For a caller who knows nothing of the hub but its CA's hash.
pub(crate) fn with_pin(pin: &Pin, clock: &Arc<dyn Clock>) -> Result<ClientConfig, TlsError> {
    let builder = builder(clock).map_err(|error| TlsError::Config(error.to_string()))?;
    let verifier = Arc::new(PinnedVerifier { pin: pin.clone(), provider: provider() });
    Ok(http2(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

fn builder(
    clock: &Arc<dyn Clock>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_details(provider(), Arc::new(RustlsClock(clock.clone())))
        .with_protocol_versions(&[&version::TLS13])
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn http2(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Connects as an agent does that has no identity yet, and asks for nothing.
///
/// # Errors
///
/// Nobody is there, or not the hub.
pub async fn probe(route: &Route, pin: &Pin) -> Result<(), TlsError> {
    connect(route, with_pin(pin, &route.clock)?).await.map(drop)
}

/// Connects. The connection pings below gRPC, too, so that a dead peer is noticed between messages.
pub(crate) async fn connect(route: &Route, config: ClientConfig) -> Result<Channel, TlsError> {
    let address = &route.hub;
    let failed = |error: &dyn std::error::Error| TlsError::Connect {
        address: address.to_string(),
        cause: chain(error),
    };
    let origin: Uri =
        address.to_string().parse().map_err(|error: http::uri::InvalidUri| failed(&error))?;
    // The connector speaks TLS itself; tonic is to see a plain connection.
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
            let name = ServerName::try_from(SERVER_NAME).map_err(std::io::Error::other)?;
            let stream = dial.dial(&target.0, target.1).await?;
            Ok::<_, std::io::Error>(TokioIo::new(tls.connect(name, stream).await?))
        }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| failed(&error))
}

/// The error and all that is behind it.
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

/// What a status says, in a line.
pub(crate) fn said(status: &tonic::Status) -> String {
    let text: String = status.message().chars().take(300).collect();
    format!("{}: {text}", status.code())
}

/// Takes the certificate of the server's chain that has the pinned hash as the only root.
#[derive(Debug)]
struct PinnedVerifier {
    pin: Pin,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(root) = intermediates.iter().find(|certificate| self.pin.matches(certificate))
        else {
            let text = "the server's chain has no certificate with the hash of --hub-ca-sha256: this is not the hub that made the token";
            return Err(rustls::Error::General(text.to_owned()));
        };
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned())?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
                .build()
                .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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
    use super::*;

    #[test]
    fn addresses() {
        let cases = [
            ("https://hub.example", Some("https://hub.example:443")),
            ("https://127.0.0.1:7443/", Some("https://127.0.0.1:7443")),
            ("https://[::1]:7443", Some("https://[::1]:7443")),
            ("http://hub.example", None),
            ("hub.example:7443", None),
            ("https://hub.example/path", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<HubAddress>().ok().map(|address| address.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn pins() {
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
}
