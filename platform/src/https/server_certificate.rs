//! The certificate of a server whose callers get their trust bundle from elsewhere, or do not
//! verify: read from a folder, or self-signed.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use rustls::sign::CertifiedKey;

use super::Certificate;
use crate::cert::{self, Bundle, CertError, CertLifetimes, Pair};

/// A server's certificate and its source.
pub struct ServerCertificate {
    source: Source,
    pub certificate: Arc<Certificate>,
}

enum Source {
    /// Self-signed by this process.
    Made { names: BTreeSet<String>, bundle: Box<Bundle> },
    /// A folder that another program updates, such as a mounted Secret of cert-manager.
    Folder { folder: PathBuf, served: Pair },
}

impl ServerCertificate {
    /// The certificate of the folder, if one is given, or else a self-signed one for `name`.
    ///
    /// # Errors
    ///
    /// When keys or certificates cannot be made or read.
    pub fn new(folder: Option<&Path>, name: String, now: Timestamp) -> Result<Self, CertError> {
        let (source, key) = match folder {
            Some(folder) => {
                let served = read(folder)?;
                let key = served.certified_key()?;
                (Source::Folder { folder: folder.to_owned(), served }, key)
            }
            None => {
                let names = BTreeSet::from([name]);
                let bundle = Box::new(cert::create(&CertLifetimes::default(), &names, now)?);
                let key = bundle.certified_key()?;
                (Source::Made { names, bundle }, key)
            }
        };
        Ok(Self { source, certificate: Certificate::new(key) })
    }

    /// Loads a changed certificate from the folder, or replaces a self-signed one that is due. A
    /// failure is logged, and the current certificate stays.
    pub fn renew(&mut self, now: Timestamp) {
        match self.source.next(now) {
            Ok(None) => {}
            Ok(Some(key)) => self.certificate.set(key),
            Err(error) => tracing::warn!(%error, "a server's certificate is not renewed"),
        }
    }

    /// The trust bundle.
    #[cfg(test)]
    pub(super) fn trusted(&self) -> String {
        match &self.source {
            Source::Made { bundle, .. } => bundle.trusted(),
            Source::Folder { served, .. } => served.certificate.clone(),
        }
    }
}

impl Source {
    fn next(&mut self, now: Timestamp) -> Result<Option<Arc<CertifiedKey>>, CertError> {
        match self {
            Self::Made { names, bundle } => {
                let Some(renewed) =
                    cert::renew(&CertLifetimes::default(), Some(bundle), names, now)?
                else {
                    return Ok(None);
                };
                let key = renewed.certified_key()?;
                **bundle = renewed;
                Ok(Some(key))
            }
            Self::Folder { folder, served } => {
                let found = read(folder)?;
                if found == *served {
                    return Ok(None);
                }
                let key = found.certified_key()?;
                *served = found;
                Ok(Some(key))
            }
        }
    }
}

/// The files of a mounted Secret of type `kubernetes.io/tls`.
fn read(folder: &Path) -> Result<Pair, CertError> {
    let text = |what: &'static str| {
        let path = folder.join(what);
        fs::read_to_string(&path).map_err(|error| CertError::Read {
            what,
            problem: format!("{}: {error}", path.display()),
        })
    };
    Ok(Pair { certificate: text("tls.crt")?, key: text("tls.key")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, pair: &Pair) {
        fs::write(folder.join("tls.crt"), &pair.certificate).unwrap();
        fs::write(folder.join("tls.key"), &pair.key).unwrap();
    }

    #[test]
    fn folders_certificate_is_served_and_reloaded() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let made = || {
            cert::create(&CertLifetimes::default(), &BTreeSet::from(["a".to_owned()]), now)
                .unwrap()
                .serving
        };
        let (folder, first, second) = (tempfile::tempdir().unwrap(), made(), made());
        let missing = ServerCertificate::new(Some(folder.path()), "a".to_owned(), now)
            .err()
            .unwrap()
            .to_string();
        assert!(missing.contains("tls.crt: "), "{missing}");

        write(folder.path(), &first);
        let mut identity =
            ServerCertificate::new(Some(folder.path()), "a".to_owned(), now).unwrap();
        let served = |identity: &ServerCertificate| identity.certificate.served();
        let chain = |pair: &Pair| pair.certified_key().unwrap().cert.clone();
        assert_eq!(served(&identity), chain(&first));
        // As between the two writes of an update: a key that is not the certificate's.
        write(
            folder.path(),
            &Pair { certificate: second.certificate.clone(), key: first.key.clone() },
        );
        identity.renew(now);
        assert_eq!(served(&identity), chain(&first), "the old one stays");
        write(folder.path(), &second);
        identity.renew(now);
        assert_eq!(served(&identity), chain(&second));
    }

    #[test]
    fn self_signed_certificate_is_replaced_when_due() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let mut identity = ServerCertificate::new(None, "a".to_owned(), now).unwrap();
        let first = identity.certificate.served();
        identity.renew(now);
        assert_eq!(identity.certificate.served(), first);
        identity.renew(now + jiff::SignedDuration::from_hours(24 * 80));
        assert_ne!(identity.certificate.served(), first);
    }
}
