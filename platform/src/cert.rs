//! Certificates of a server that only the API server calls: a CA of its own, and a serving
//! certificate that it signs.
//!
//! Replicas share one [`Bundle`] through a Secret. Everything except the making of keys is pure;
//! time is an argument.
//!
//! # Guarantees
//!
//! - A client with the trust bundle of up to [`CertLifetimes::overlap`] ago accepts the serving
//!   certificate. A new CA is trusted for that long before it signs, and the old CA stays trusted
//!   until it expires.
//! - [`renew`] returns `None` while nothing is due, so that replicas do not overwrite each other's
//!   bundles.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use x509_parser::prelude::{ASN1Time, FromDer, GeneralName, X509Certificate};

/// Lifetimes of certificates. Each certificate is replaced in the last third of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertLifetimes {
    pub ca: Duration,
    pub serving: Duration,
    /// How long a new CA is trusted before it signs. Longer than API servers take to learn of it.
    pub overlap: Duration,
    /// How far `notBefore` lies in the past, for clients whose clocks are behind.
    pub backdate: Duration,
    /// Interval between checks for due certificates. Shorter than `overlap` and a third of each
    /// lifetime.
    pub check_interval: Duration,
}

impl Default for CertLifetimes {
    fn default() -> Self {
        const DAY: u64 = 24 * 3600;
        Self {
            ca: Duration::from_secs(2 * 365 * DAY),
            serving: Duration::from_secs(90 * DAY),
            overlap: Duration::from_secs(3600),
            backdate: Duration::from_secs(300),
            check_interval: Duration::from_secs(600),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// Keys or certificates could not be made.
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A stored certificate or key cannot be parsed.
    #[error("reading {what}: {problem}")]
    Read { what: &'static str, problem: String },
    /// TLS does not accept the key and certificate.
    #[error("using the serving certificate: {0}")]
    Use(#[from] rustls::Error),
}

fn unreadable(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> CertError {
    move |problem| CertError::Read { what, problem: problem.to_string() }
}

/// A certificate and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(..)")
    }
}

impl Pair {
    /// The pair as rustls serves it.
    ///
    /// # Errors
    ///
    /// When the certificate or key cannot be used, or they do not match.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, CertError> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect();
        let chain = chain.map_err(|e| unreadable("tls.crt")(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|e| unreadable("tls.key")(&e))?;
        Ok(Arc::new(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?))
    }
}

/// The certificates that replicas share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The CA that signs now.
    pub ca: Pair,
    /// The CA that signs next. Clients trust it already.
    pub next: Option<Pair>,
    /// CAs that signed before, as PEM. Clients trust them until they expire.
    pub former: Vec<String>,
    pub serving: Pair,
}

impl Bundle {
    /// The trust bundle: all CAs, as PEM.
    #[must_use]
    pub fn trusted(&self) -> String {
        let next = self.next.iter().map(|pair| &pair.certificate);
        let all: Vec<&str> = std::iter::once(&self.ca.certificate)
            .chain(next)
            .chain(&self.former)
            .map(|pem| pem.trim_end())
            .collect();
        all.join("\n") + "\n"
    }

    /// The serving pair as rustls serves it.
    ///
    /// # Errors
    ///
    /// When the stored certificate or key cannot be used.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, CertError> {
        self.serving.certified_key()
    }
}

/// The parsed fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ParsedCertificate {
    from: Timestamp,
    to: Timestamp,
    names: BTreeSet<String>,
}

impl ParsedCertificate {
    fn of(pem: &str, what: &'static str) -> Result<Self, CertError> {
        let der = der(pem, what)?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| unreadable(what)(&e))?;
        let time =
            |at: ASN1Time| Timestamp::from_second(at.timestamp()).map_err(|e| unreadable(what)(&e));
        let names = certificate.subject_alternative_name().map_err(|e| unreadable(what)(&e))?;
        let names = names
            .iter()
            .flat_map(|extension| &extension.value.general_names)
            .filter_map(name)
            .collect();
        Ok(Self {
            from: time(certificate.validity().not_before)?,
            to: time(certificate.validity().not_after)?,
            names,
        })
    }

    /// Whether it is in the last third of its life, or not valid yet.
    fn is_due(&self, now: Timestamp) -> bool {
        let life = self.to.duration_since(self.from);
        now < self.from || now.duration_since(self.from) >= life - life / 3
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|b| IpAddr::from(b).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|b| IpAddr::from(b).to_string()),
        },
        _ => None,
    }
}

fn der(pem: &str, what: &'static str) -> Result<CertificateDer<'static>, CertError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| unreadable(what)(&e))
}

/// Why a certificate made elsewhere does not serve these DNS names and IP addresses, with the
/// remedy. `None` if it does.
///
/// # Errors
///
/// When the certificate cannot be read.
pub fn problem(
    pem: &str,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Option<String>, CertError> {
    let facts = ParsedCertificate::of(pem, "tls.crt")?;
    let missing: Vec<&str> = names.difference(&facts.names).map(String::as_str).collect();
    if !missing.is_empty() {
        return Ok(Some(format!(
            "it lacks the DNS names {}; have it issued with them",
            missing.join(", ")
        )));
    }
    let valid = facts.from <= now && now < facts.to;
    let problem =
        || format!("it is valid from {} to {}; have it issued anew", facts.from, facts.to);
    Ok((!valid).then(problem))
}

/// The bundle to store at `now` for these DNS names and IP addresses, or `None` if `current` is
/// still good. A bundle that cannot be read or has expired is replaced whole.
///
/// # Errors
///
/// When keys or certificates cannot be made.
pub fn renew(
    lives: &CertLifetimes,
    current: Option<&Bundle>,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Option<Bundle>, CertError> {
    let Some(current) = current else { return create(lives, names, now).map(Some) };
    let facts = (
        ParsedCertificate::of(&current.ca.certificate, "ca.crt"),
        ParsedCertificate::of(&current.serving.certificate, "tls.crt"),
    );
    let (Ok(ca), Ok(serving)) = facts else { return create(lives, names, now).map(Some) };
    if now >= ca.to || current.certified_key().is_err() {
        return create(lives, names, now).map(Some);
    }
    let mut bundle = current.clone();
    bundle
        .former
        .retain(|pem| ParsedCertificate::of(pem, "former CA").is_ok_and(|facts| now < facts.to));
    if ca.is_due(now) {
        rotate_ca(lives, &mut bundle, now)?;
    }
    let signed_anew = bundle.ca != current.ca;
    if signed_anew || serving.is_due(now) || !names.is_subset(&serving.names) {
        let names = names.union(&serving.names).cloned().collect();
        bundle.serving = serving_certificate(lives, &bundle.ca, &names, now)?;
    }
    Ok((bundle != *current).then_some(bundle))
}

fn rotate_ca(lives: &CertLifetimes, bundle: &mut Bundle, now: Timestamp) -> Result<(), CertError> {
    match bundle.next.take() {
        None => bundle.next = Some(authority(lives, now)?),
        Some(next) => {
            let made =
                ParsedCertificate::of(&next.certificate, "next CA")?.from + signed(lives.backdate);
            if now.duration_since(made) < signed(lives.overlap) {
                bundle.next = Some(next);
            } else {
                let former = std::mem::replace(&mut bundle.ca, next);
                bundle.former.push(former.certificate);
            }
        }
    }
    Ok(())
}

/// A new bundle for these DNS names and IP addresses.
///
/// # Errors
///
/// When keys or certificates cannot be made.
pub fn create(
    lives: &CertLifetimes,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Bundle, CertError> {
    let ca = authority(lives, now)?;
    let serving = serving_certificate(lives, &ca, names, now)?;
    Ok(Bundle { ca, next: None, former: Vec::new(), serving })
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn validity(
    lives: &CertLifetimes,
    params: &mut CertificateParams,
    now: Timestamp,
    life: Duration,
) -> Result<(), CertError> {
    let time = |at: Timestamp| ASN1Time::from_timestamp(at.as_second()).map(|at| at.to_datetime());
    params.not_before =
        time(now - signed(lives.backdate)).map_err(|e| unreadable("the clock")(&e))?;
    params.not_after = time(now + signed(life)).map_err(|e| unreadable("the clock")(&e))?;
    Ok(())
}

fn authority(lives: &CertLifetimes, now: Timestamp) -> Result<Pair, CertError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    // Key identifiers tell two CAs apart. The serial in the name is for readers of logs.
    params
        .distinguished_name
        .push(DnType::CommonName, format!("switchyard-webhook-ca@{}", now.as_second()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity(lives, &mut params, now, lives.ca)?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

fn serving_certificate(
    lives: &CertLifetimes,
    ca: &Pair,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Pair, CertError> {
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, "switchyard-webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    validity(lives, &mut params, now, lives.serving)?;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn renew(
        current: Option<&Bundle>,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Option<Bundle>, CertError> {
        super::renew(&CertLifetimes::default(), current, names, now)
    }

    fn at(days: u32) -> Timestamp {
        "2026-11-21T10:00:00Z".parse::<Timestamp>().unwrap() + signed(DAY * days)
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn verifies(trusted: &str, bundle: &Bundle, now: Timestamp) -> bool {
        use rustls::{
            client::danger::ServerCertVerifier,
            pki_types::{ServerName, UnixTime},
        };
        let mut roots = rustls::RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
        let certificate = der(&bundle.serving.certificate, "test").unwrap();
        verifier
            .verify_server_cert(
                &certificate,
                &[],
                &ServerName::try_from("a.ns.svc").unwrap(),
                &[],
                now,
            )
            .is_ok()
    }

    #[test]
    fn new_bundle_serves_and_needs_no_renewal() {
        let names = names(&["a.ns.svc", "127.0.0.1"]);
        let bundle = renew(None, &names, at(0)).unwrap().unwrap();
        assert!(verifies(&bundle.trusted(), &bundle, at(0)));
        assert_eq!(
            ParsedCertificate::of(&bundle.serving.certificate, "tls.crt").unwrap().names,
            names
        );
        assert_eq!(renew(Some(&bundle), &names, at(50)).unwrap(), None);
    }

    #[test]
    fn serving_certificate_in_last_third_is_renewed_by_same_ca() {
        let first = renew(None, &names(&["a.ns.svc"]), at(0)).unwrap().unwrap();
        let second = renew(Some(&first), &names(&["a.ns.svc"]), at(61)).unwrap().unwrap();
        assert_eq!((&first.ca, first.trusted()), (&second.ca, second.trusted()));
        assert_ne!(first.serving, second.serving);
    }

    #[test]
    fn names_of_other_replicas_are_kept() {
        let first = renew(None, &names(&["a.ns.svc"]), at(0)).unwrap().unwrap();
        let second = renew(Some(&first), &names(&["10.0.0.1"]), at(0)).unwrap().unwrap();
        assert_eq!(
            ParsedCertificate::of(&second.serving.certificate, "tls.crt").unwrap().names,
            names(&["10.0.0.1", "a.ns.svc"])
        );
        assert_eq!(renew(Some(&second), &names(&["a.ns.svc"]), at(0)).unwrap(), None);
    }

    #[test]
    fn client_with_old_bundle_is_served_through_ca_change() {
        let names = names(&["a.ns.svc"]);
        let mut bundle = renew(None, &names, at(0)).unwrap().unwrap();
        let (first_ca, mut trusted_before) = (bundle.ca.clone(), bundle.trusted());
        let (mut changes, mut now) = (0, at(0));
        // Past the life of the first CA. Checks run every half hour around its change and daily
        // otherwise.
        while now < at(760) {
            if let Some(next) = renew(Some(&bundle), &names, now).unwrap() {
                assert!(
                    verifies(&trusted_before, &next, now),
                    "a client with the bundle from before at {now}"
                );
                changes += 1;
                bundle = next;
                trusted_before = bundle.trusted();
            }
            assert!(verifies(&bundle.trusted(), &bundle, now));
            let near = now > at(485) && now < at(489);
            now += signed(if near { DAY / 48 } else { DAY });
        }
        assert!(changes > 10 && bundle.ca != first_ca);
        assert!(bundle.former.is_empty(), "an expired CA is not trusted any more");
    }

    #[test]
    fn expired_or_broken_bundle_is_replaced() {
        let names = names(&["a.ns.svc"]);
        let bundle = renew(None, &names, at(0)).unwrap().unwrap();
        let late = renew(Some(&bundle), &names, at(800)).unwrap().unwrap();
        assert!(late.ca != bundle.ca && verifies(&late.trusted(), &late, at(800)));
        let mut broken = bundle;
        broken.serving.key = "none".into();
        assert!(renew(Some(&broken), &names, at(0)).unwrap().is_some());
    }
}
