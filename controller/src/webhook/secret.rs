//! Shares certificates among replicas through a Secret and renews them when due. Or reads those
//! that another program, such as cert-manager, keeps there.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use switchyard_platform::{
    api_call::with_deadline,
    cert::{self, Bundle, CertError, CertLifetimes, Pair, renew},
};

/// Attempts to write the Secret while other replicas write it too.
const ATTEMPTS: usize = 5;

#[derive(Clone, Debug)]
pub(super) struct SecretStore {
    api: Api<Secret>,
    namespace: String,
    name: String,
    lives: CertLifetimes,
    /// Another program writes the Secret.
    external: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SecretError {
    #[error("Secret {name}: {source}")]
    Api { name: String, source: kube::Error },
    #[error("Secret {0}: other replicas keep writing it")]
    Contended(String),
    #[error("Secret {0}: it is not there; who keeps it, such as cert-manager, has to make it")]
    Missing(String),
    #[error("Secret {name}, {field}: {problem}")]
    Invalid { name: String, field: &'static str, problem: String },
    #[error(transparent)]
    Cert(#[from] CertError),
}

impl SecretStore {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        name: &str,
        lives: CertLifetimes,
        external: bool,
    ) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.into(), name: name.into(), lives, external }
    }

    /// The certificates as of `now`, renew and written back if due. If replicas renew at once,
    /// one wins and the others take what it wrote. An external Secret is only read.
    pub(super) async fn load(
        &self,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Bundle, SecretError> {
        if self.external {
            return self.load_external(names, now).await;
        }
        for _ in 0..ATTEMPTS {
            let found = with_deadline(self.api.get_opt(&self.name))
                .await
                .map_err(|source| self.error(source))?;
            let current = found.as_ref().and_then(parse_bundle);
            let Some(bundle) = renew(&self.lives, current.as_ref(), names, now)? else {
                // Nothing is due only if a bundle exists.
                return current.ok_or_else(|| SecretError::Contended(self.name.clone()));
            };
            let written = match found {
                None => {
                    with_deadline(
                        self.api.create(&PostParams::default(), &self.secret(None, None, &bundle)),
                    )
                    .await
                }
                Some(found) => {
                    // A Secret's type is immutable, and cert-manager may have created this one with
                    // another.
                    let secret = self.secret(found.metadata.resource_version, found.type_, &bundle);
                    with_deadline(self.api.replace(&self.name, &PostParams::default(), &secret))
                        .await
                }
            };
            match written {
                Ok(_) => return Ok(bundle),
                Err(kube::Error::Api(status))
                    if status.is_conflict()
                        || status.is_already_exists()
                        || status.is_not_found() =>
                {
                    tracing::debug!(
                        secret = self.name,
                        "another replica wrote the certificates first"
                    );
                }
                Err(source) => return Err(self.error(source)),
            }
        }
        Err(SecretError::Contended(self.name.clone()))
    }

    async fn load_external(
        &self,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Bundle, SecretError> {
        let found = with_deadline(self.api.get_opt(&self.name))
            .await
            .map_err(|source| self.error(source))?;
        let found = found.ok_or_else(|| SecretError::Missing(self.full_name()))?;
        let wrong =
            |field, problem| SecretError::Invalid { name: self.full_name(), field, problem };
        let bundle = external_bundle(&found)
            .map_err(|field| wrong(field, "there is none; it has to be PEM".to_owned()))?;
        bundle.certified_key()?;
        match cert::problem(&bundle.serving.certificate, names, now)? {
            None => Ok(bundle),
            Some(problem) => Err(wrong("tls.crt", problem)),
        }
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn error(&self, source: kube::Error) -> SecretError {
        SecretError::Api { name: self.full_name(), source }
    }

    fn secret(
        &self,
        resource_version: Option<String>,
        type_: Option<String>,
        bundle: &Bundle,
    ) -> Secret {
        Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                resource_version,
                ..ObjectMeta::default()
            },
            type_: type_.or_else(|| Some("Opaque".into())),
            data: Some(bundle_data(bundle)),
            ..Secret::default()
        }
    }
}

fn bundle_data(bundle: &Bundle) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::from([
        ("ca.crt", bundle.trusted()),
        ("signer.crt", bundle.ca.certificate.clone()),
        ("signer.key", bundle.ca.key.clone()),
        ("former.crt", bundle.former.concat()),
        ("tls.crt", bundle.serving.certificate.clone()),
        ("tls.key", bundle.serving.key.clone()),
    ]);
    if let Some(next) = &bundle.next {
        data.insert("next.crt", next.certificate.clone());
        data.insert("next.key", next.key.clone());
    }
    data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()
}

/// The bundle of an external Secret, or the key that it lacks. The CA's private key is not needed.
fn external_bundle(secret: &Secret) -> Result<Bundle, &'static str> {
    let part = |key| text(secret, key).filter(|text| !text.trim().is_empty()).ok_or(key);
    Ok(Bundle {
        ca: Pair { certificate: part("ca.crt")?, key: String::new() },
        next: None,
        former: Vec::new(),
        serving: Pair { certificate: part("tls.crt")?, key: part("tls.key")? },
    })
}

fn parse_bundle(secret: &Secret) -> Option<Bundle> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = |key: &str| text(secret, key);
    let pair = |certificate: &str, key: &str| {
        Some(Pair { certificate: text(certificate)?, key: text(key)? })
    };
    let former = text("former.crt").unwrap_or_default();
    let former = former
        .split_inclusive(END)
        .filter(|pem| pem.contains(END))
        .map(|pem| format!("{}\n", pem.trim()));
    Some(Bundle {
        ca: pair("signer.crt", "signer.key")?,
        next: pair("next.crt", "next.key"),
        former: former.collect(),
        serving: pair("tls.crt", "tls.key")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundle_survives_a_round_trip_through_the_secret() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let make = || {
            renew(&CertLifetimes::default(), None, &BTreeSet::from(["a".to_owned()]), now)
                .unwrap()
                .unwrap()
        };
        let (a, b, c) = (make(), make(), make());
        let pem = |pair: &Pair| format!("{}\n", pair.certificate.trim());
        let bundle = Bundle { next: Some(b.ca.clone()), former: vec![pem(&b.ca), pem(&c.ca)], ..a };
        let secret = Secret { data: Some(bundle_data(&bundle)), ..Secret::default() };
        assert_eq!(parse_bundle(&secret), Some(bundle));
        assert_eq!(parse_bundle(&Secret::default()), None);
    }

    #[test]
    fn external_certificates_are_read_and_checked() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let made = renew(&CertLifetimes::default(), None, &names(&["a.ns.svc", "b.ns.svc"]), now)
            .unwrap()
            .unwrap();
        let mut secret = Secret { data: Some(bundle_data(&made)), ..Secret::default() };
        let bundle = external_bundle(&secret).unwrap();
        assert_eq!((bundle.trusted(), &bundle.serving), (made.trusted(), &made.serving));
        let problem = |of: &[&str], at: &str| {
            cert::problem(&bundle.serving.certificate, &names(of), at.parse().unwrap())
                .unwrap()
                .unwrap_or_default()
        };
        assert_eq!(problem(&["a.ns.svc"], "2026-11-21T10:00:00Z"), "");
        let lacks = "it lacks the DNS names c.ns.svc; have it issued with them";
        assert_eq!(problem(&["a.ns.svc", "c.ns.svc"], "2026-11-21T10:00:00Z"), lacks);
        assert!(problem(&["a.ns.svc"], "2027-11-21T10:00:00Z").ends_with("have it issued anew"));
        for key in ["ca.crt", "tls.crt", "tls.key"] {
            let data = secret.data.as_mut().unwrap();
            let kept = data.insert(key.to_owned(), ByteString(Vec::new())).unwrap();
            assert_eq!(external_bundle(&secret).unwrap_err(), key);
            secret.data.as_mut().unwrap().insert(key.to_owned(), kept);
        }
    }
}
