//! The certificate authority that signs, and those trusted beside it during a CA rotation. Pure.
//!
//! A new CA is announced before it signs. The old CA stays trusted until all its certificates have
//! expired:
//!
//! | from | signs | trusted, and announced to agents |
//! |---|---|---|
//! | the first sight of the new CA by the hub | old | old and new |
//! | [`OVERLAP`] later | new | old and new |
//! | [`OVERLAP`] later | new | new |
//!
//! A valid agent certificate is at most [`AGENT_LIFE`] old. So when the signer changes, each agent
//! with a valid certificate got it after the announcement, and knows the new CA.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use thiserror::Error;

use super::ca::{AGENT_LIFE, Ca, CaError};

/// Length of each step: the lifetime of certificates from the step before, and an hour for replicas
/// that read the change late.
pub const OVERLAP: Duration = Duration::from_secs(AGENT_LIFE.as_secs() + 3600);

/// Keys of the Secret.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const NEXT_SINCE: &str = "next-since";
const OLD_CERTIFICATE: &str = "old.crt";
const OLD_SINCE: &str = "old-since";

/// Why the stored authority cannot be used or replaced.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// A key of the Secret is missing or unreadable.
    #[error("{0}: {1}")]
    Unusable(&'static str, String),
    /// A rotation is under way.
    #[error("the authority is being replaced already: the next step comes {0}")]
    UnderWay(String),
    #[error(transparent)]
    Ca(#[from] CaError),
}

/// The CAs of one hub at one time.
#[derive(Debug, Clone)]
pub struct Authority {
    signer: Arc<Ca>,
    /// The next signer, and since when the hub knows it, by the hub's clock.
    next: Option<(Arc<Ca>, Option<Timestamp>)>,
    /// The last signer, and when it was replaced.
    old: Option<(CertificateDer<'static>, Timestamp)>,
}

impl Authority {
    /// An authority without a rotation under way.
    pub fn new(signer: Ca) -> Self {
        Self { signer: Arc::new(signer), next: None, old: None }
    }

    /// Reads what [`Self::write`] has written.
    ///
    /// # Errors
    /// Names the key of the Secret that is missing or unreadable.
    pub fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, AuthorityError> {
        let signer = Arc::new(Ca::from_pem(&text(data, CERTIFICATE)?, &text(data, KEY)?)?);
        let next = match data.contains_key(NEXT_CERTIFICATE) {
            false => None,
            true => {
                let ca = Ca::from_pem(&text(data, NEXT_CERTIFICATE)?, &text(data, NEXT_KEY)?)?;
                let since =
                    data.contains_key(NEXT_SINCE).then(|| time(data, NEXT_SINCE)).transpose()?;
                Some((Arc::new(ca), since))
            }
        };
        let old = match data.get(OLD_CERTIFICATE) {
            None => None,
            Some(pem) => {
                let certificate = CertificateDer::from_pem_slice(&pem.0);
                let unusable = |error: rustls::pki_types::pem::Error| {
                    AuthorityError::Unusable(OLD_CERTIFICATE, error.to_string())
                };
                Some((certificate.map_err(unusable)?, time(data, OLD_SINCE)?))
            }
        };
        Ok(Self { signer, next, old })
    }

    /// Writes the CAs into the Secret's data, and keeps its other keys.
    pub fn write(&self, data: &mut BTreeMap<String, ByteString>) {
        for key in [NEXT_CERTIFICATE, NEXT_KEY, NEXT_SINCE, OLD_CERTIFICATE, OLD_SINCE] {
            data.remove(key);
        }
        let mut set =
            |key: &str, text: String| data.insert(key.to_owned(), ByteString(text.into_bytes()));
        set(CERTIFICATE, self.signer.certificate_pem());
        set(KEY, self.signer.key_pem().to_owned());
        if let Some((ca, since)) = &self.next {
            set(NEXT_CERTIFICATE, ca.certificate_pem());
            set(NEXT_KEY, ca.key_pem().to_owned());
            if let Some(since) = since {
                set(NEXT_SINCE, since.to_string());
            }
        }
        if let Some((certificate, since)) = &self.old {
            set(OLD_CERTIFICATE, super::ca::certificate_pem(certificate));
            set(OLD_SINCE, since.to_string());
        }
    }

    /// Starts a rotation to `next`. Its time starts when the hub sees it, in [`Self::step`]: the
    /// caller's clock may be wrong.
    ///
    /// # Errors
    /// [`AuthorityError::UnderWay`].
    pub fn replace(&self, next: Ca) -> Result<Self, AuthorityError> {
        if self.is_being_replaced() {
            let when = self.next_step().map_or_else(
                || "when the hub has seen the new one".to_owned(),
                |at| format!("at {at}"),
            );
            return Err(AuthorityError::UnderWay(when));
        }
        Ok(Self { next: Some((Arc::new(next), None)), ..self.clone() })
    }

    /// The authority after the next step, if it is due.
    #[must_use]
    pub fn step(&self, now: Timestamp) -> Option<Self> {
        if let Some((next, None)) = &self.next {
            return Some(Self { next: Some((next.clone(), Some(now))), ..self.clone() });
        }
        if self.next_step().is_none_or(|at| now < at) {
            return None;
        }
        Some(match &self.next {
            Some((next, _)) => Self {
                signer: next.clone(),
                next: None,
                old: Some((self.signer.certificate().clone(), now)),
            },
            None => Self { old: None, ..self.clone() },
        })
    }

    pub fn is_being_replaced(&self) -> bool {
        self.next.is_some() || self.old.is_some()
    }

    /// When the next step is due. None without a rotation, or before the hub has seen the new CA.
    pub fn next_step(&self) -> Option<Timestamp> {
        let since = match &self.next {
            Some((_, since)) => (*since)?,
            None => self.old.as_ref().map(|(_, since)| *since)?,
        };
        let overlap = SignedDuration::try_from(OVERLAP).unwrap_or(SignedDuration::MAX);
        Some(since.checked_add(overlap).unwrap_or(Timestamp::MAX))
    }

    pub fn signer(&self) -> &Ca {
        &self.signer
    }

    pub fn next(&self) -> Option<&Ca> {
        self.next.as_ref().map(|(ca, _)| &**ca)
    }

    /// The certificates of all trusted CAs, the signer's first.
    pub fn trusted(&self) -> Vec<CertificateDer<'static>> {
        let next = self.next.as_ref().map(|(ca, _)| ca.certificate());
        let old = self.old.as_ref().map(|(certificate, _)| certificate);
        std::iter::once(self.signer.certificate()).chain(next).chain(old).cloned().collect()
    }

    /// Whether both have the same signer and trust the same CAs.
    pub fn is_same(&self, other: &Self) -> bool {
        self.trusted() == other.trusted()
    }
}

fn text(data: &BTreeMap<String, ByteString>, key: &'static str) -> Result<String, AuthorityError> {
    let bytes =
        data.get(key).ok_or_else(|| AuthorityError::Unusable(key, "it is missing".to_owned()))?;
    String::from_utf8(bytes.0.clone())
        .map_err(|_| AuthorityError::Unusable(key, "it is not text".to_owned()))
}

fn time(
    data: &BTreeMap<String, ByteString>,
    key: &'static str,
) -> Result<Timestamp, AuthorityError> {
    text(data, key)?
        .trim()
        .parse()
        .map_err(|error: jiff::Error| AuthorityError::Unusable(key, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + i64::try_from(seconds).unwrap()).unwrap()
    }

    fn ca(at: Timestamp) -> Ca {
        Ca::generate("hub", at).unwrap()
    }

    fn stored(authority: &Authority) -> Authority {
        let mut data = BTreeMap::from([("hub-id".to_owned(), ByteString(b"hub".to_vec()))]);
        authority.write(&mut data);
        assert!(data.contains_key("hub-id"), "what else is in the Secret stays");
        Authority::read(&data).unwrap()
    }

    #[test]
    fn ca_rotation_announces_before_signing_and_trusts_long_enough() {
        let step = OVERLAP.as_secs();
        let (old, new) = (ca(at(0)), ca(at(0)));
        let (first, second) = (old.certificate().clone(), new.certificate().clone());
        let authority = Authority::new(old);
        assert_eq!((authority.trusted(), authority.next_step()), (vec![first.clone()], None));

        let authority = stored(&authority.replace(new).unwrap());
        assert_eq!(
            (authority.trusted().len(), authority.next_step()),
            (2, None),
            "its time has not begun"
        );
        assert!(authority.replace(ca(at(0))).is_err());
        let authority = stored(&authority.step(at(10)).unwrap());
        assert_eq!(authority.signer().certificate(), &first);
        assert_eq!(authority.trusted(), [first.clone(), second.clone()]);
        assert_eq!(authority.next_step(), Some(at(10 + step)));
        assert!(authority.step(at(9 + step)).is_none());
        let error = authority.replace(ca(at(0))).unwrap_err().to_string();
        assert!(error.starts_with("the authority is being replaced already"), "{error}");

        let authority = stored(&authority.step(at(10 + step)).unwrap());
        assert_eq!(authority.signer().certificate(), &second);
        assert_eq!(authority.trusted(), [second.clone(), first]);
        assert!(authority.step(at(9 + 2 * step)).is_none());

        let authority = stored(&authority.step(at(10 + 2 * step)).unwrap());
        assert_eq!((authority.trusted(), authority.next_step()), (vec![second], None));
        assert!(authority.step(at(100 * step)).is_none());
    }

    #[test]
    fn authority_error_names_the_secret_key() {
        let mut data = BTreeMap::new();
        assert_eq!(Authority::read(&data).unwrap_err().to_string(), "tls.crt: it is missing");
        Authority::new(ca(at(0))).replace(ca(at(0))).unwrap().write(&mut data);
        data.insert(NEXT_SINCE.to_owned(), ByteString(b"yesterday".to_vec()));
        assert!(Authority::read(&data).unwrap_err().to_string().starts_with("next-since: "));
    }
}
