//! What is spoken: the versions, suites and curves of TLS that the configuration's `tls` allows. It names only what there is.

use std::sync::Arc;

use rustls::{
    ConfigBuilder, Error, ProtocolVersion, ServerConfig, SupportedProtocolVersion, WantsVerifier,
    crypto::{
        CryptoProvider,
        aws_lc_rs::{self, ALL_KX_GROUPS},
    },
    version::{TLS12, TLS13},
};
use switchyard_config::{Tls, is_tls_suite};

static FROM_TLS12: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static FROM_TLS13: [&SupportedProtocolVersion; 1] = [&TLS13];

/// Begins the configuration of a server.
///
/// # Errors
/// When no suite is left for any version, or no curve.
pub(crate) fn server(
    allowed: Option<&Tls>,
) -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, Error> {
    let only_tls13 = allowed.is_some_and(|tls| tls.min_version == "VersionTLS13");
    let versions = if only_tls13 { &FROM_TLS13[..] } else { &FROM_TLS12 };
    ServerConfig::builder_with_provider(Arc::new(provider(allowed)))
        .with_protocol_versions(versions)
}

/// With the suites and curves that are allowed, of those that there are. Suites of TLS 1.3 are not for choice, as in Go.
fn provider(allowed: Option<&Tls>) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let Some(tls) = allowed else { return provider };
    if !tls.cipher_suites.is_empty() {
        provider.cipher_suites.retain(|suite| {
            let name = suite.suite().as_str().unwrap_or_default();
            suite.version().version == ProtocolVersion::TLSv1_3
                || tls.cipher_suites.iter().any(|it| is_tls_suite(name, it))
        });
    }
    if !tls.curve_preferences.is_empty() {
        let group = |number: &i32| {
            ALL_KX_GROUPS.iter().find(|it| i32::from(u16::from(it.name())) == *number).copied()
        };
        provider.kx_groups = tls.curve_preferences.iter().filter_map(group).collect();
    }
    provider
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use switchyard_config::{TLS_CURVES, TLS_SUITES};

    use super::*;

    fn tls(min_version: &str, suites: &[&str], curves: &[i32]) -> Tls {
        Tls {
            min_version: min_version.to_owned(),
            cipher_suites: suites.iter().map(|it| (*it).to_owned()).collect(),
            curve_preferences: curves.to_vec(),
        }
    }

    #[rstest]
    #[case::nothing_is_said(tls("", &[], &[]), (true, 9, 4))]
    #[case::from_1_2_on(tls("VersionTLS12", &[], &[]), (true, 9, 4))]
    #[case::from_1_3_on(tls("VersionTLS13", &[], &[]), (false, 9, 4))]
    #[case::one_suite_and_those_of_1_3(tls("", &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], &[]), (true, 4, 4))]
    #[case::a_suite_by_its_shorter_name(tls("", &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], &[]), (true, 4, 4))]
    #[case::only_suites_of_1_3(tls("", &["TLS_AES_128_GCM_SHA256"], &[]), (true, 3, 4))]
    #[case::one_curve_and_one_that_is_not_known(tls("", &[], &[29, 999]), (true, 9, 1))]
    #[case::a_curve_that_is_not_spoken_otherwise(tls("", &[], &[4587, 29]), (true, 9, 2))]
    fn what_the_configuration_allows_is_spoken(
        #[case] allowed: Tls,
        #[case] want: (bool, usize, usize),
    ) {
        let provider = provider(Some(&allowed));
        let config = server(Some(&allowed)).unwrap();
        let spoken = format!("{config:?}");
        let has_tls12 = spoken.contains("TLSv1_2");
        assert_eq!(
            (has_tls12, provider.cipher_suites.len(), provider.kx_groups.len()),
            want,
            "{spoken}"
        );
    }
    #[test]
    fn without_a_curve_that_is_known_nothing_is_spoken() {
        assert!(server(Some(&tls("", &[], &[999]))).is_err());
    }

    #[test]
    fn all_that_a_configuration_may_name_is_there() {
        let curves = TLS_CURVES.map(|(number, _)| number);
        let suites = TLS_SUITES.iter().filter(|name| name.contains("_WITH_"));
        let provider = provider(Some(&tls("", &suites.copied().collect::<Vec<_>>(), &curves)));
        assert_eq!(
            (provider.cipher_suites.len(), provider.kx_groups.len()),
            (TLS_SUITES.len(), TLS_CURVES.len())
        );
        assert_eq!(
            aws_lc_rs::default_provider().cipher_suites.len(),
            TLS_SUITES.len(),
            "and nothing else"
        );
    }
}
