//! What is spoken: the versions, suites and curves of TLS that the configuration's `tls` allows.

use std::sync::Arc;

use rustls::{
    ConfigBuilder, Error, ProtocolVersion, ServerConfig, SupportedProtocolVersion, WantsVerifier,
    crypto::{CryptoProvider, aws_lc_rs},
    version::{TLS12, TLS13},
};
use switchyard_api::config::Tls;

static FROM_TLS12: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static FROM_TLS13: [&SupportedProtocolVersion; 1] = [&TLS13];

/// Begins the configuration of a server.
///
/// # Errors
/// When no suite is left for any version.
pub(crate) fn server(allowed: Option<&Tls>) -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, Error> {
    let only_tls13 = allowed.is_some_and(|tls| tls.min_version == "VersionTLS13");
    let versions = if only_tls13 { &FROM_TLS13[..] } else { &FROM_TLS12 };
    ServerConfig::builder_with_provider(Arc::new(provider(allowed))).with_protocol_versions(versions)
}

/// With the suites and curves that are allowed, of those that there are. Suites of TLS 1.3 are not for choice, as in Go.
fn provider(allowed: Option<&Tls>) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let Some(tls) = allowed else { return provider };
    if !tls.cipher_suites.is_empty() {
        provider.cipher_suites.retain(|suite| {
            let name = suite.suite().as_str().unwrap_or_default();
            suite.version().version == ProtocolVersion::TLSv1_3 || tls.cipher_suites.iter().any(|it| it == name)
        });
    }
    let group = |number: &i32| provider.kx_groups.iter().find(|it| i32::from(u16::from(it.name())) == *number).copied();
    let groups: Vec<_> = tls.curve_preferences.iter().filter_map(group).collect();
    if !groups.is_empty() {
        provider.kx_groups = groups;
    }
    provider
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

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
    #[case::one_curve_and_one_that_is_not_known(tls("", &[], &[29, 999]), (true, 9, 1))]
    fn what_the_configuration_allows_is_spoken(#[case] allowed: Tls, #[case] want: (bool, usize, usize)) {
        let provider = provider(Some(&allowed));
        let config = server(Some(&allowed)).unwrap();
        let spoken = format!("{config:?}");
        let has_tls12 = spoken.contains("TLSv1_2");
        assert_eq!((has_tls12, provider.cipher_suites.len(), provider.kx_groups.len()), want, "{spoken}");
    }
}
