//! Restricts the versions, cipher suites and curves of TLS.

use std::sync::Arc;

use rustls::{
    ConfigBuilder, Error, ProtocolVersion, ServerConfig, SupportedProtocolVersion, WantsVerifier,
    crypto::{
        CryptoProvider,
        aws_lc_rs::{self, ALL_KX_GROUPS},
    },
    version::{TLS12, TLS13},
};

/// The versions, suites and curves that a server offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPolicy {
    /// Refuse TLS 1.2.
    pub only_tls13: bool,
    /// Names of the allowed suites of TLS 1.2. `None` allows all. As in Go, the suites of TLS 1.3
    /// cannot be restricted.
    pub tls12_suites: Option<Vec<String>>,
    /// IANA numbers of the allowed curves, the preferred first. Empty allows the default ones.
    pub curves: Vec<i32>,
}

static FROM_TLS12: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static FROM_TLS13: [&SupportedProtocolVersion; 1] = [&TLS13];

/// Starts the configuration of a server.
///
/// # Errors
///
/// When no suite is left for a version, or no curve.
pub fn server(policy: &TlsPolicy) -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, Error> {
    let versions = if policy.only_tls13 { &FROM_TLS13[..] } else { &FROM_TLS12 };
    ServerConfig::builder_with_provider(Arc::new(provider(policy))).with_protocol_versions(versions)
}

/// The suites and curves of aws-lc-rs that the policy allows.
#[must_use]
pub fn provider(policy: &TlsPolicy) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    if let Some(allowed) = &policy.tls12_suites {
        provider.cipher_suites.retain(|suite| {
            let name = suite.suite().as_str().unwrap_or_default();
            suite.version().version == ProtocolVersion::TLSv1_3
                || allowed.iter().any(|it| it == name)
        });
    }
    if !policy.curves.is_empty() {
        let group = |number: &i32| {
            ALL_KX_GROUPS.iter().find(|it| i32::from(u16::from(it.name())) == *number).copied()
        };
        provider.kx_groups = policy.curves.iter().filter_map(group).collect();
    }
    provider
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn policy(only_tls13: bool, suites: &[&str], curves: &[i32]) -> TlsPolicy {
        let suites: Vec<String> = suites.iter().map(|it| (*it).to_owned()).collect();
        TlsPolicy {
            only_tls13,
            tls12_suites: (!suites.is_empty()).then_some(suites),
            curves: curves.to_vec(),
        }
    }

    #[rstest]
    #[case::empty(policy(false, &[], &[]), (true, 9, 4))]
    #[case::from_tls_1_3(policy(true, &[], &[]), (false, 9, 4))]
    #[case::one_suite_besides_tls_1_3(policy(false, &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], &[]), (true, 4, 4))]
    #[case::only_tls_1_3_suites(policy(false, &["TLS_AES_128_GCM_SHA256"], &[]), (true, 3, 4))]
    #[case::one_known_and_one_unknown_curve(policy(false, &[], &[29, 999]), (true, 9, 1))]
    #[case::curve_that_is_off_by_default(policy(false, &[], &[4587, 29]), (true, 9, 2))]
    fn server_offers_what_the_policy_allows(
        #[case] policy: TlsPolicy,
        #[case] want: (bool, usize, usize),
    ) {
        let provider = provider(&policy);
        let config = server(&policy).unwrap();
        let offered = format!("{config:?}");
        let has_tls12 = offered.contains("TLSv1_2");
        assert_eq!(
            (has_tls12, provider.cipher_suites.len(), provider.kx_groups.len()),
            want,
            "{offered}"
        );
    }

    #[test]
    fn policy_without_known_curve_is_an_error() {
        assert!(server(&policy(false, &[], &[999])).is_err());
    }
}
