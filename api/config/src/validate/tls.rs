//! Rules of `tls`. Unknown names are rejected: leaving one out would allow more than the file says,
//! or nothing.

use std::collections::BTreeSet;

use crate::Configuration;
use switchyard_syntax::field::{FieldError, Path};

/// Supported cipher suites, by Go's names. TLS 1.3 suites are always on, as in Go, and may be
/// named.
pub const SUITES: [&str; 9] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Supported curves, by number and Go's names.
pub const CURVES: [(i32, &str); 5] = [
    (23, "CurveP256"),
    (24, "CurveP384"),
    (29, "X25519"),
    (4587, "SecP256r1MLKEM768"),
    (4588, "X25519MLKEM768"),
];

/// Curves that Kueue supports and Switchyard does not.
const CURVES_OF_KUEUE: [(i32, &str); 2] = [(25, "CurveP521"), (4589, "SecP384r1MLKEM1024")];

pub(super) fn tls(config: &Configuration, errors: &mut Vec<FieldError>) {
    let Some(tls) = &config.tls else { return };
    let path = Path::new("tls");
    let versions = ["VersionTLS12", "VersionTLS13"];
    if !tls.min_version.is_empty() && !versions.contains(&tls.min_version.as_str()) {
        errors.push(FieldError::not_supported(
            &path.child("minVersion"),
            &tls.min_version,
            &versions,
        ));
    }
    if tls.min_version == "VersionTLS13" && !tls.cipher_suites.is_empty() {
        let detail = "may not be specified when `minVersion` is 'VersionTLS13'";
        errors.push(FieldError::forbidden(&path.child("cipherSuites"), detail));
    }
    for (index, name) in tls.cipher_suites.iter().enumerate() {
        if !SUITES.iter().any(|suite| is_suite(suite, name)) {
            errors.push(FieldError::not_supported(
                &path.child("cipherSuites").index(index),
                name,
                &SUITES,
            ));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, number) in tls.curve_preferences.iter().enumerate() {
        let path = path.child("curvePreferences").index(index);
        let name = |list: &[(i32, &'static str)]| {
            list.iter().find(|(known, _)| known == number).map(|(_, name)| *name)
        };
        if !seen.insert(number) {
            errors.push(FieldError::duplicate(&path, number));
        } else if name(&CURVES).is_none() {
            let known = CURVES.map(|(number, name)| format!("{number} ({name})")).join(", ");
            let what = name(&CURVES_OF_KUEUE).map_or_else(
                || "is no curve that is known".to_owned(),
                |name| format!("is {name}, which there is none of here"),
            );
            errors.push(FieldError::invalid(&path, *number, format!("{what}; there are {known}")));
        }
    }
}

/// Whether `name` means this suite. Go has a second, shorter name for some.
#[must_use]
pub fn is_suite(suite: &str, name: &str) -> bool {
    suite == name
        || suite.ends_with("POLY1305_SHA256") && suite.strip_suffix("_SHA256") == Some(name)
}
