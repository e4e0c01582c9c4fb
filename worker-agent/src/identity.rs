//! The cluster's identity at its hub: a certificate, and the key that never leaves the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use pem::{EncodeConfig, LineEnding, Pem};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use switchyard_proto::{ClusterIdentity, v1};
use thiserror::Error;
use x509_parser::extensions::GeneralName;

/// The deadline of a request to the API server.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// The Secret that holds the identity, in the agent's own namespace.
pub const SECRET: &str = "switchyard-agent-identity";
/// The prefix of entries of the Secret that do not belong to the identity and survive its renewal.
pub(crate) const KEPT: &str = "copies.";

/// Key of [`SECRET`]: the SHA-256 of the last join token that was tried, in hexadecimal digits.
const TOKEN_DIGEST: &str = "join-token-sha256";

/// An identity and its validity.
#[derive(Debug)]
pub struct Identity {
    /// The cluster's name on the hub.
    pub cluster: String,
    pub hub_id: String,
    /// Leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Generated on this cluster.
    pub key: PrivateKeyDer<'static>,
    /// The hub's CA certificates.
    pub trust: Vec<CertificateDer<'static>>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// The digest of the last join token that was tried. A token that is still mounted is not tried
    /// again.
    pub token_digest: Option<String>,
}

/// Why an identity cannot be read, stored or issued.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The hub issued, or the Secret holds, no valid identity.
    #[error("not an identity: {0}")]
    Malformed(String),
    #[error("the Secret {SECRET} cannot be used: {0}")]
    Secret(#[from] kube::Error),
    #[error(
        "the Secret {SECRET} cannot be used: no answer from the API server within {ANSWER_DEADLINE:?}"
    )]
    Late,
}

/// A new key and its signing request. The request names no subject: the hub knows the caller.
pub struct KeyRequest {
    /// PKCS#8, DER.
    pub key: Vec<u8>,
    /// PKCS#10, DER.
    pub csr: Vec<u8>,
}

impl std::fmt::Debug for KeyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRequest").finish_non_exhaustive()
    }
}

impl KeyRequest {
    /// Generates an ECDSA P-256 key.
    ///
    /// # Errors
    ///
    /// The random source or the encoder failed.
    pub fn generate() -> Result<Self, IdentityError> {
        let malformed = |error: rcgen::Error| IdentityError::Malformed(error.to_string());
        let key =
            rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(malformed)?;
        let params = rcgen::CertificateParams::default();
        let csr = params.serialize_request(&key).map_err(malformed)?;
        Ok(Self { key: key.serialize_der(), csr: csr.der().to_vec() })
    }
}

impl Identity {
    /// The identity that the hub issued for this key.
    ///
    /// # Errors
    ///
    /// The certificate names no cluster, or another one than the message.
    pub fn issued(certificate: v1::Certificate, key: Vec<u8>) -> Result<Self, IdentityError> {
        let chain = certificate.chain.into_iter().map(CertificateDer::from).collect();
        let trust = certificate.trust.into_iter().map(CertificateDer::from).collect();
        let identity = Self::assemble(chain, PrivatePkcs8KeyDer::from(key).into(), trust)?;
        if identity.cluster != certificate.cluster {
            let text = format!(
                "the certificate is for {:?}, the message says {:?}",
                identity.cluster, certificate.cluster
            );
            return Err(IdentityError::Malformed(text));
        }
        Ok(identity)
    }

    fn assemble(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        trust: Vec<CertificateDer<'static>>,
    ) -> Result<Self, IdentityError> {
        let malformed = |text: &str| IdentityError::Malformed(text.to_owned());
        let leaf = chain.first().ok_or_else(|| malformed("no certificate"))?;
        if trust.is_empty() {
            return Err(malformed("no CA certificate to trust"));
        }
        let (_, parsed) = x509_parser::parse_x509_certificate(leaf)
            .map_err(|error| malformed(&error.to_string()))?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let uri =
            names.iter().flat_map(|names| &names.value.general_names).find_map(|name| match name {
                GeneralName::URI(uri) => Some(*uri),
                _ => None,
            });
        let ClusterIdentity { hub_id, cluster, .. } = uri
            .and_then(|uri| uri.parse().ok())
            .ok_or_else(|| malformed("the certificate names no spiffe://HUB/cluster/NAME/UID"))?;
        let time = |at: x509_parser::time::ASN1Time| {
            Timestamp::from_second(at.timestamp()).map_err(|error| malformed(&error.to_string()))
        };
        let (not_before, not_after) =
            (time(parsed.validity().not_before)?, time(parsed.validity().not_after)?);
        Ok(Self { cluster, hub_id, chain, key, trust, not_before, not_after, token_digest: None })
    }

    /// When to renew it: at two thirds of its life.
    pub fn renew_at(&self) -> Timestamp {
        let (from, to) = (self.not_before.as_second(), self.not_after.as_second());
        Timestamp::from_second(from + (to - from) * 2 / 3).unwrap_or(self.not_after)
    }

    pub fn expired(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }

    fn to_data(&self) -> BTreeMap<String, ByteString> {
        let entry = |name: &str, text: String| (name.to_owned(), ByteString(text.into_bytes()));
        let mut data = BTreeMap::from([
            entry("tls.crt", self.chain.iter().map(|it| pem("CERTIFICATE", it)).collect()),
            entry("tls.key", pem("PRIVATE KEY", self.key.secret_der())),
            entry("ca.crt", self.trust.iter().map(|it| pem("CERTIFICATE", it)).collect()),
        ]);
        data.extend(self.token_digest.clone().map(|digest| entry(TOKEN_DIGEST, digest)));
        data
    }

    fn from_data(data: &BTreeMap<String, ByteString>) -> Result<Self, IdentityError> {
        let part = |name: &str| {
            let bytes = data.get(name).map(|bytes| bytes.0.as_slice());
            bytes.ok_or_else(|| IdentityError::Malformed(format!("the key {name} is missing")))
        };
        let malformed = |name: &str, error: rustls::pki_types::pem::Error| {
            IdentityError::Malformed(format!("{name} is not PEM: {error}"))
        };
        let list = |name: &str| -> Result<Vec<CertificateDer<'static>>, IdentityError> {
            CertificateDer::pem_slice_iter(part(name)?)
                .collect::<Result<_, _>>()
                .map_err(|error| malformed(name, error))
        };
        let key = PrivateKeyDer::from_pem_slice(part("tls.key")?)
            .map_err(|error| malformed("tls.key", error))?;
        let digest =
            data.get(TOKEN_DIGEST).map(|digest| String::from_utf8_lossy(&digest.0).into_owned());
        Ok(Self { token_digest: digest, ..Self::assemble(list("tls.crt")?, key, list("ca.crt")?)? })
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    pem::encode_config(&Pem::new(label, der), EncodeConfig::new().set_line_ending(LineEnding::LF))
}

/// Stores the identity in its Secret.
#[derive(Clone)]
pub struct IdentityStore {
    api: Api<Secret>,
    namespace: String,
}

impl IdentityStore {
    pub fn new(client: kube::Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    /// The Secret's name for messages.
    pub fn name(&self) -> String {
        format!("{}/{SECRET}", self.namespace)
    }

    /// The stored identity, if any.
    ///
    /// # Errors
    ///
    /// The Secret cannot be read, or holds no valid identity.
    pub async fn load(&self) -> Result<Option<Identity>, IdentityError> {
        let Some(secret) = answered(self.api.get_opt(SECRET)).await? else { return Ok(None) };
        let data = secret.data.unwrap_or_default();
        if data.is_empty() { Ok(None) } else { Identity::from_data(&data).map(Some) }
    }

    /// Replaces the stored identity.
    ///
    /// # Errors
    ///
    /// The API server refuses, or does not answer.
    pub async fn save(&self, identity: &Identity) -> Result<(), IdentityError> {
        let mut secret = Secret {
            metadata: ObjectMeta { name: Some(SECRET.to_owned()), ..ObjectMeta::default() },
            type_: Some("Opaque".to_owned()),
            data: Some(identity.to_data()),
            ..Secret::default()
        };
        let params = PostParams::default();
        match answered(self.api.create(&params, &secret)).await {
            Err(IdentityError::Secret(kube::Error::Api(status))) if status.is_already_exists() => {
                // Only the leader writes, and nothing of an older identity is kept.
                let there = answered(self.api.get(SECRET)).await?;
                secret.metadata.resource_version = there.metadata.resource_version;
                let kept =
                    there.data.into_iter().flatten().filter(|(name, _)| name.starts_with(KEPT));
                secret.data.get_or_insert_default().extend(kept);
                answered(self.api.replace(SECRET, &params, &secret)).await.map(drop)
            }
            other => other.map(drop),
        }
    }

    /// The entries that do not belong to the identity.
    ///
    /// # Errors
    ///
    /// The Secret cannot be read.
    pub(crate) async fn kept(&self) -> Result<BTreeMap<String, ByteString>, IdentityError> {
        let secret = answered(self.api.get_opt(SECRET)).await?;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        Ok(data.into_iter().filter(|(name, _)| name.starts_with(KEPT)).collect())
    }

    /// Replaces the entries that do not belong to the identity.
    ///
    /// # Errors
    ///
    /// The API server refuses, or does not answer, or the Secret has changed meanwhile.
    pub(crate) async fn keep(
        &self,
        kept: BTreeMap<String, ByteString>,
    ) -> Result<(), IdentityError> {
        let mut secret = answered(self.api.get(SECRET)).await?;
        let data = secret.data.get_or_insert_default();
        data.retain(|name, _| !name.starts_with(KEPT));
        data.extend(kept);
        answered(self.api.replace(SECRET, &PostParams::default(), &secret)).await.map(drop)
    }
}

async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, IdentityError> {
    tokio::time::timeout(ANSWER_DEADLINE, request)
        .await
        .map_err(|_| IdentityError::Late)?
        .map_err(IdentityError::Secret)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A CA and a certificate that it issued.
    pub(crate) struct Pki {
        pub(crate) ca: CertificateDer<'static>,
        issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    }

    impl Pki {
        pub(crate) fn new() -> Self {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::default();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
            let ca = params.self_signed(&key).unwrap().der().clone();
            Self { ca, issuer: rcgen::Issuer::new(params, key) }
        }

        /// An agent's certificate for a request's key. Its validity is in seconds relative to now.
        pub(crate) fn agent(
            &self,
            csr: &[u8],
            cluster: &str,
            from: i64,
            to: i64,
        ) -> v1::Certificate {
            let csr = rustls::pki_types::CertificateSigningRequestDer::from(csr);
            let request = rcgen::CertificateSigningRequestParams::from_der(&csr).unwrap();
            let mut params = rcgen::CertificateParams::default();
            let uri = format!("spiffe://hub-1/cluster/{cluster}/uid-1");
            params.subject_alt_names = vec![rcgen::SanType::URI(uri.as_str().try_into().unwrap())];
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            let now = std::time::SystemTime::now();
            let at = |seconds: i64| match u64::try_from(seconds) {
                Ok(later) => now + std::time::Duration::from_secs(later),
                Err(_) => now - std::time::Duration::from_secs(seconds.unsigned_abs()),
            };
            (params.not_before, params.not_after) = (at(from).into(), at(to).into());
            let leaf = params.signed_by(&request.public_key, &self.issuer).unwrap();
            v1::Certificate {
                chain: vec![leaf.der().to_vec()],
                trust: vec![self.ca.to_vec()],
                not_after: None,
                cluster: cluster.to_owned(),
            }
        }

        pub(crate) fn identity(&self, cluster: &str, from: i64, to: i64) -> Identity {
            let request = KeyRequest::generate().unwrap();
            Identity::issued(self.agent(&request.csr, cluster, from, to), request.key).unwrap()
        }

        /// The hub's certificate chain and key.
        pub(crate) fn server(
            &self,
            name: &str,
        ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            let leaf = params.signed_by(&key, &self.issuer).unwrap();
            let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
            (vec![leaf.der().clone(), self.ca.clone()], key)
        }
    }

    #[test]
    fn identity_round_trips_through_secret() {
        let identity = Pki::new().identity("east.example", -100, 200);
        let again = Identity::from_data(&identity.to_data()).unwrap();
        assert_eq!((again.cluster.as_str(), again.hub_id.as_str()), ("east.example", "hub-1"));
        assert_eq!((&again.chain, &again.trust), (&identity.chain, &identity.trust));
        assert_eq!(again.key.secret_der(), identity.key.secret_der());
        assert!(identity.to_data().values().all(|text| !text.0.contains(&b'\r')), "LF alone");
        assert_eq!(again.renew_at().as_second() - again.not_before.as_second(), 200);
        assert!(again.expired(again.not_after) && !again.expired(again.renew_at()));
    }

    #[test]
    fn invalid_identity_names_cause() {
        let identity = Pki::new().identity("east", -100, 200);
        let mut data = identity.to_data();
        data.remove("tls.key");
        assert_eq!(
            Identity::from_data(&data).unwrap_err().to_string(),
            "not an identity: the key tls.key is missing"
        );
        data = identity.to_data();
        data.insert("tls.crt".to_owned(), ByteString(Vec::new()));
        assert_eq!(
            Identity::from_data(&data).unwrap_err().to_string(),
            "not an identity: no certificate"
        );
    }

    #[test]
    fn certificate_for_other_cluster_is_refused() {
        let request = KeyRequest::generate().unwrap();
        let mut certificate = Pki::new().agent(&request.csr, "east", -100, 200);
        certificate.cluster = "west".to_owned();
        let error = Identity::issued(certificate, request.key).unwrap_err().to_string();
        assert_eq!(
            error,
            "not an identity: the certificate is for \"east\", the message says \"west\""
        );
    }
}
