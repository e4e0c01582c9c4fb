//! The hub's certificate authority. Only issues; [`super::store`] keeps its key.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};
use sha2::{Digest, Sha256};
use switchyard_proto::ClusterIdentity;
use thiserror::Error;

use super::token::hex;

pub use switchyard_proto::SERVER_NAME;
/// Default lifetime of agents' certificates. Agents renew at two thirds of it.
pub const AGENT_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Lifetime of the hub's own certificate. Each process makes one, and renews it at two thirds.
pub const SERVER_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Certificates start this long ago, for clocks that run behind. Short-lived ones start a tenth of
/// their lifetime ago.
const BACKDATE: Duration = Duration::from_secs(300);
/// A signing request with an RSA-4096 key takes about 1.7 KiB.
const MAX_CSR_BYTES: usize = 16 * 1024;

/// Why no certificate was issued.
#[derive(Debug, Error)]
pub enum CaError {
    #[error("bad signing request: {0}")]
    BadRequest(String),
    #[error("unusable CA: {0}")]
    BadCa(String),
    #[error("issuing failed")]
    Issue(#[from] rcgen::Error),
}

/// A certificate authority with its key.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    key_pem: String,
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ca({})", self.pin())
    }
}

/// A certificate and key for the agents' listener.
#[derive(Debug)]
pub struct ServerCertificate {
    /// Leaf first, then the CA, so that a client that knows only the CA's hash can verify the
    /// chain.
    pub chain: Vec<CertificateDer<'static>>,
    /// PKCS#8.
    pub key: PrivateKeyDer<'static>,
    pub not_after: Timestamp,
}

impl Ca {
    /// A new CA for the hub with this id.
    ///
    /// # Errors
    /// The library cannot make a key.
    pub fn generate(hub_id: &str, now: Timestamp) -> Result<Self, CaError> {
        let key = KeyPair::generate()?;
        let mut params = params(now, CA_LIFE);
        params.distinguished_name.push(DnType::CommonName, format!("switchyard hub {hub_id}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.der().clone();
        let key_pem = key.serialize_pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate, key_pem })
    }

    /// Reads a stored CA.
    ///
    /// # Errors
    /// A part is unreadable, or key and certificate do not match.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, CaError> {
        let bad =
            |what: &str, error: &dyn std::fmt::Display| CaError::BadCa(format!("{what}: {error}"));
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|e| bad("certificate", &e))?;
        let pair = KeyPair::from_pem(key).map_err(|e| bad("key", &e))?;
        {
            let (_, parsed) =
                x509_parser::parse_x509_certificate(&der).map_err(|e| bad("certificate", &e))?;
            let in_certificate = parsed.public_key().subject_public_key.data.as_ref();
            if in_certificate != pair.public_key_raw() {
                return Err(CaError::BadCa("the key does not belong to the certificate".into()));
            }
        }
        let issuer = Issuer::from_ca_cert_der(&der, pair)?;
        Ok(Self { issuer, certificate: der, key_pem: key.to_owned() })
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub fn certificate_pem(&self) -> String {
        certificate_pem(&self.certificate)
    }

    /// PEM of the private key, for the Secret only.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// The value for `--hub-ca-sha256`: SHA-256 of the CA's DER certificate, lower-case hex.
    pub fn pin(&self) -> String {
        pin(&self.certificate)
    }

    /// A certificate for the listener, valid for [`SERVER_NAME`] and the given names and addresses.
    ///
    /// # Errors
    /// A name is neither a DNS name nor an address.
    pub fn issue_server(
        &self,
        names: &[String],
        now: Timestamp,
    ) -> Result<ServerCertificate, CaError> {
        let key = KeyPair::generate()?;
        let mut all = vec![SERVER_NAME.to_owned()];
        all.extend(names.iter().filter(|name| *name != SERVER_NAME).cloned());
        let dated = params(now, SERVER_LIFE);
        let mut params = CertificateParams::new(all)?;
        params.not_before = dated.not_before;
        params.not_after = dated.not_after;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, SERVER_NAME);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf = params.signed_by(&key, &self.issuer)?;
        Ok(ServerCertificate {
            chain: vec![leaf.der().clone(), self.certificate.clone()],
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            not_after: after(now, SERVER_LIFE),
        })
    }

    /// A certificate for an agent. Only the request's public key is used; its signature proves that
    /// the caller has the private key. The hub sets the name.
    ///
    /// # Errors
    /// [`CaError::BadRequest`] says what is wrong with the request.
    pub fn issue_agent(
        &self,
        csr: &[u8],
        identity: &ClusterIdentity,
        life: Duration,
        now: Timestamp,
    ) -> Result<(CertificateDer<'static>, Timestamp), CaError> {
        if csr.len() > MAX_CSR_BYTES {
            return Err(CaError::BadRequest(format!(
                "{} bytes, more than {MAX_CSR_BYTES}",
                csr.len()
            )));
        }
        let request =
            CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(csr))
                .map_err(|error| CaError::BadRequest(error.to_string()))?;
        let mut params = params(now, life);
        // A common name has at most 64 characters, a cluster name may have more. The URI is the
        // identity.
        params
            .distinguished_name
            .push(DnType::CommonName, identity.cluster.chars().take(64).collect::<String>());
        let uri = identity.to_string().try_into().map_err(CaError::Issue)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let leaf = params.signed_by(&request.public_key, &self.issuer)?;
        Ok((leaf.der().clone(), after(now, life)))
    }
}

/// SHA-256 of a DER certificate, lower-case hex.
pub fn pin(certificate: &CertificateDer<'_>) -> String {
    hex(&Sha256::digest(certificate))
}

/// [`pin`] of a PEM certificate.
///
/// # Errors
/// [`CaError::BadCa`] if there is no certificate in it.
pub fn pin_of_pem(pem: &[u8]) -> Result<String, CaError> {
    let certificate =
        CertificateDer::from_pem_slice(pem).map_err(|error| CaError::BadCa(error.to_string()))?;
    Ok(pin(&certificate))
}

/// The cluster identity in a certificate: its only URI name. TLS has verified the signer before.
pub fn identity_of(certificate: &CertificateDer<'_>) -> Option<ClusterIdentity> {
    use x509_parser::extensions::GeneralName;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    match (uris.next(), uris.next()) {
        (Some(uri), None) => uri.parse().ok(),
        _ => None,
    }
}

/// When a certificate expires. None if it is unreadable.
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

fn params(now: Timestamp, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = SystemTime::from(now);
    params.not_before = now.checked_sub(BACKDATE.min(life / 10)).unwrap_or(now).into();
    params.not_after = now.checked_add(life).unwrap_or(now).into();
    params.distinguished_name = DistinguishedName::new();
    params.use_authority_key_identifier_extension = true;
    params
}

fn after(now: Timestamp, life: Duration) -> Timestamp {
    Timestamp::from_second(now.as_second().saturating_add(life.as_secs() as i64))
        .unwrap_or(Timestamp::MAX)
}

/// A certificate as PEM.
pub(super) fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    let certificate = Pem::new("CERTIFICATE", certificate.to_vec());
    pem::encode_config(&certificate, EncodeConfig::new().set_line_ending(LineEnding::LF))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn identity() -> ClusterIdentity {
        ClusterIdentity { hub_id: "hub".into(), cluster: "east".into(), uid: "u1".into() }
    }

    fn csr(names: &[&str]) -> Vec<u8> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        CertificateParams::new(names).unwrap().serialize_request(&key).unwrap().der().to_vec()
    }

    #[test]
    fn agent_certificate_ignores_requested_names() {
        let ca = Ca::generate("hub", now()).unwrap();
        let (leaf, not_after) =
            ca.issue_agent(&csr(&["other.example"]), &identity(), AGENT_LIFE, now()).unwrap();
        assert_eq!(identity_of(&leaf), Some(identity()));
        assert_eq!(not_after.as_second() - now().as_second(), 24 * 3600);
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).unwrap();
        assert_eq!(
            parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(),
            1
        );
        assert!(!parsed.is_ca());
        assert!(parsed.validity().not_after.timestamp() == not_after.as_second());
    }

    #[test]
    fn certificate_holds_the_longest_cluster_name() {
        let ca = Ca::generate("hub", now()).unwrap();
        let identity = ClusterIdentity { cluster: "c".repeat(253), ..identity() };
        let (leaf, _) = ca.issue_agent(&csr(&[]), &identity, AGENT_LIFE, now()).unwrap();
        assert_eq!(identity_of(&leaf), Some(identity));
    }

    #[test]
    fn ca_round_trips_through_pem() {
        let ca = Ca::generate("hub", now()).unwrap();
        let again = Ca::from_pem(&ca.certificate_pem(), ca.key_pem()).unwrap();
        assert_eq!(again.pin(), ca.pin());
        assert!(!ca.certificate_pem().contains('\r'), "some readers take only LF");
        again.issue_agent(&csr(&[]), &identity(), AGENT_LIFE, now()).unwrap();
        let other = Ca::generate("hub", now()).unwrap();
        let error = Ca::from_pem(&ca.certificate_pem(), other.key_pem()).unwrap_err();
        assert_eq!(error.to_string(), "unusable CA: the key does not belong to the certificate");
    }

    #[test]
    fn bad_signing_request_is_refused() {
        let ca = Ca::generate("hub", now()).unwrap();
        let mut forged = csr(&[]);
        let last = forged.len() - 1;
        forged[last] ^= 1;
        for (case, request) in [
            ("empty", Vec::new()),
            ("junk", vec![1; 100]),
            ("too large", vec![0; 20_000]),
            ("bad signature", forged),
        ] {
            let refused = ca.issue_agent(&request, &identity(), AGENT_LIFE, now());
            assert!(matches!(refused, Err(CaError::BadRequest(_))), "{case}");
        }
    }

    #[test]
    fn server_certificate_chain_includes_the_ca() {
        let ca = Ca::generate("hub", now()).unwrap();
        let server = ca.issue_server(&["127.0.0.1".into(), "hub.example".into()], now()).unwrap();
        assert_eq!(pin(&server.chain[1]), ca.pin());
        assert_eq!(identity_of(&server.chain[0]), None);
    }
}
