//! Certificates of a server that only one API server calls: our own CA, and a serving certificate that it signs.
//!
//! Everything is kept as one [`Bundle`], which replicas share through a Secret. Pure but for the making of keys; time is an
//! argument.
//!
//! # Guarantees
//! - A client that trusts [`Bundle::trusted`] as it was up to [`CertLifetimes::overlap`] ago trusts the serving certificate: a new CA is
//!   trusted for that long before it signs, and the old one stays trusted until it expires.
//! - [`renewed`] gives nothing while nothing is due, so that replicas do not write in turn.

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

/// How long certificates live. Each is replaced in the last third of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertLifetimes {
    /// A CA.
    pub ca: Duration,
    /// A serving certificate.
    pub serving: Duration,
    /// How long a new CA is trusted before it signs anything: longer than API servers take to learn of it.
    pub overlap: Duration,
    /// Certificates are valid from so long before they are made, for clocks that are behind.
    pub backdate: Duration,
    /// How often it is looked whether one is due. Shorter than the overlap, and than a third of each life.
    pub look: Duration,
}

impl Default for CertLifetimes {
    fn default() -> Self {
        const DAY: u64 = 24 * 3600;
        Self {
            ca: Duration::from_secs(2 * 365 * DAY),
            serving: Duration::from_secs(90 * DAY),
            overlap: Duration::from_secs(3600),
            backdate: Duration::from_secs(300),
            look: Duration::from_secs(600),
        }
    }
}

/// Why certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// Keys or certificates could not be made.
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// What is stored is no certificate or key.
    #[error("reading {what}: {problem}")]
    Read {
        /// Which part.
        what: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Key and certificate cannot be used for TLS.
    #[error("using the serving certificate: {0}")]
    Use(#[from] rustls::Error),
}

fn unreadable(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> CertError {
    move |problem| CertError::Read { what, problem: problem.to_string() }
}

/// A certificate and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(..)")
    }
}

impl Pair {
    /// What a TLS server serves with.
    ///
    /// # Errors
    /// When certificate or key cannot be used, or are not each other's.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, CertError> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect();
        let chain = chain.map_err(|e| unreadable("tls.crt")(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|e| unreadable("tls.key")(&e))?;
        Ok(Arc::new(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?))
    }
}

/// All that replicas share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The CA that signs.
    pub ca: Pair,
    /// The CA that will sign next: trusted already.
    pub next: Option<Pair>,
    /// CAs that signed before, as PEM: trusted until they expire.
    pub former: Vec<String>,
    /// The serving certificate.
    pub serving: Pair,
}

impl Bundle {
    /// What clients trust: all CAs, as PEM.
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

    /// What a TLS server serves with.
    ///
    /// # Errors
    /// When the stored serving certificate or key cannot be used.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, CertError> {
        self.serving.certified_key()
    }
}

/// What a certificate says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Facts {
    from: Timestamp,
    to: Timestamp,
    names: BTreeSet<String>,
}

impl Facts {
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

    /// True in the last third of its life, and before it.
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

/// What is wrong with a serving certificate that others made for a server of these DNS names and IP addresses, if
/// anything, and the mend.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn problem(
    pem: &str,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Option<String>, CertError> {
    let facts = Facts::of(pem, "tls.crt")?;
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

/// The bundle as it should be at `now` for a server of these DNS names and IP addresses, or `None` when `current` is. A
/// bundle that cannot be read or has expired is made anew.
///
/// # Errors
/// When keys or certificates cannot be made.
pub fn renewed(
    lives: &CertLifetimes,
    current: Option<&Bundle>,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Option<Bundle>, CertError> {
    let Some(current) = current else { return made(lives, names, now).map(Some) };
    let facts = (
        Facts::of(&current.ca.certificate, "ca.crt"),
        Facts::of(&current.serving.certificate, "tls.crt"),
    );
    let (Ok(ca), Ok(serving)) = facts else { return made(lives, names, now).map(Some) };
    if now >= ca.to || current.certified_key().is_err() {
        return made(lives, names, now).map(Some);
    }
    let mut bundle = current.clone();
    bundle.former.retain(|pem| Facts::of(pem, "former CA").is_ok_and(|facts| now < facts.to));
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
            let made = Facts::of(&next.certificate, "next CA")?.from + signed(lives.backdate);
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

/// A new bundle for a server of these DNS names and IP addresses.
///
/// # Errors
/// When keys or certificates cannot be made.
pub(crate) fn made(
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
    // Two CAs of one name are told apart by their key identifiers, but not by all readers of logs.
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

    fn renewed(
        current: Option<&Bundle>,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Option<Bundle>, CertError> {
        super::renewed(&CertLifetimes::default(), current, names, now)
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
    fn a_new_bundle_serves_and_is_left_alone() {
        let names = names(&["a.ns.svc", "127.0.0.1"]);
        let bundle = renewed(None, &names, at(0)).unwrap().unwrap();
        assert!(verifies(&bundle.trusted(), &bundle, at(0)));
        assert_eq!(Facts::of(&bundle.serving.certificate, "tls.crt").unwrap().names, names);
        assert_eq!(renewed(Some(&bundle), &names, at(50)).unwrap(), None);
    }

    #[test]
    fn the_serving_certificate_is_renewed_in_its_last_third_by_the_same_ca() {
        let first = renewed(None, &names(&["a.ns.svc"]), at(0)).unwrap().unwrap();
        let second = renewed(Some(&first), &names(&["a.ns.svc"]), at(61)).unwrap().unwrap();
        assert_eq!((&first.ca, first.trusted()), (&second.ca, second.trusted()));
        assert_ne!(first.serving, second.serving);
    }

    #[test]
    fn another_name_is_added_to_those_of_other_replicas() {
        let first = renewed(None, &names(&["a.ns.svc"]), at(0)).unwrap().unwrap();
        let second = renewed(Some(&first), &names(&["10.0.0.1"]), at(0)).unwrap().unwrap();
        assert_eq!(
            Facts::of(&second.serving.certificate, "tls.crt").unwrap().names,
            names(&["10.0.0.1", "a.ns.svc"])
        );
        assert_eq!(renewed(Some(&second), &names(&["a.ns.svc"]), at(0)).unwrap(), None);
    }

    #[test]
    fn through_a_change_of_ca_a_client_that_lags_behind_is_served() {
        let names = names(&["a.ns.svc"]);
        let mut bundle = renewed(None, &names, at(0)).unwrap().unwrap();
        let (first_ca, mut trusted_before) = (bundle.ca.clone(), bundle.trusted());
        let (mut changes, mut now) = (0, at(0));
        // Past the life of the first CA, looking every half hour in the days around its change and daily otherwise.
        while now < at(760) {
            if let Some(next) = renewed(Some(&bundle), &names, now).unwrap() {
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
    fn what_is_expired_or_broken_is_made_anew() {
        let names = names(&["a.ns.svc"]);
        let bundle = renewed(None, &names, at(0)).unwrap().unwrap();
        let late = renewed(Some(&bundle), &names, at(800)).unwrap().unwrap();
        assert!(late.ca != bundle.ca && verifies(&late.trusted(), &late, at(800)));
        let mut broken = bundle;
        broken.serving.key = "none".into();
        assert!(renewed(Some(&broken), &names, at(0)).unwrap().is_some());
    }
}
