//! Where an HTTPS server listens, and where its certificate is from.

use std::{net::TcpListener, path::PathBuf};

use switchyard_config::{Configuration, TLS_SUITES, is_tls_suite};
use switchyard_platform::https::TlsPolicy;

/// An HTTPS server.
#[derive(Debug)]
pub struct Endpoint {
    pub listener: TcpListener,
    /// A folder with `tls.crt` and `tls.key` that another program provides, such as a mounted
    /// Secret of cert-manager. `None`: each replica makes its own certificate.
    pub certificates: Option<PathBuf>,
}

impl From<TcpListener> for Endpoint {
    fn from(listener: TcpListener) -> Self {
        Self { listener, certificates: None }
    }
}

/// The configuration's `tls`.
pub(crate) fn tls_policy(config: &Configuration) -> TlsPolicy {
    let Some(tls) = config.tls_options() else { return TlsPolicy::default() };
    let suites = TLS_SUITES
        .iter()
        .filter(|suite| tls.cipher_suites.iter().any(|name| is_tls_suite(suite, name)))
        .map(|suite| (*suite).to_owned());
    TlsPolicy {
        only_tls13: tls.min_version == "VersionTLS13",
        tls12_suites: (!tls.cipher_suites.is_empty()).then(|| suites.collect()),
        curves: tls.curve_preferences.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;
    use switchyard_config::{TLS_CURVES, Tls};
    use switchyard_platform::https::tls_policy::provider;

    use super::*;

    fn policy(min_version: &str, suites: &[&str], curves: &[i32]) -> TlsPolicy {
        let tls = Tls {
            min_version: min_version.to_owned(),
            cipher_suites: suites.iter().map(|it| (*it).to_owned()).collect(),
            curve_preferences: curves.to_vec(),
        };
        let mut config = Configuration::default();
        config.tls = Some(tls);
        tls_policy(&config)
    }

    #[rstest::rstest]
    #[case::tls_1_2("VersionTLS12", false)]
    #[case::tls_1_3("VersionTLS13", true)]
    fn minimum_version_is_kept(#[case] version: &str, #[case] only_tls13: bool) {
        assert_eq!(policy(version, &[], &[]), TlsPolicy { only_tls13, ..TlsPolicy::default() });
    }

    #[test]
    fn suite_is_found_by_its_shorter_name() {
        let policy = policy("", &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], &[]);
        assert_eq!(provider(&policy).cipher_suites.len(), 4);
    }

    #[test]
    fn every_configurable_suite_and_curve_exists() {
        let curves = TLS_CURVES.map(|(number, _)| number);
        let suites = TLS_SUITES.iter().filter(|name| name.contains("_WITH_"));
        let provider = provider(&policy("", &suites.copied().collect::<Vec<_>>(), &curves));
        assert_eq!(
            (provider.cipher_suites.len(), provider.kx_groups.len()),
            (TLS_SUITES.len(), TLS_CURVES.len())
        );
        assert_eq!(
            aws_lc_rs::default_provider().cipher_suites.len(),
            TLS_SUITES.len(),
            "and no others"
        );
    }
}
