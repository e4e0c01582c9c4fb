//! The address of the hub.

use http::Uri;
use switchyard_platform::authority::authority;
use thiserror::Error;

/// Host and port of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The text is not a hub's address.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not https://HOST[:PORT]")]
pub struct BadAddress(String);

impl std::str::FromStr for HubAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        match (uri.scheme_str(), uri.host()) {
            (Some("https"), Some(host)) if bare => {
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                Ok(Self { host, port: uri.port_u16().unwrap_or(443) })
            }
            _ => Err(bad()),
        }
    }
}

impl std::fmt::Display for HubAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}", authority(&self.host, self.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_addresses_are_parsed() {
        let cases = [
            ("https://hub.example", Some("https://hub.example:443")),
            ("https://127.0.0.1:7443/", Some("https://127.0.0.1:7443")),
            ("https://[::1]:7443", Some("https://[::1]:7443")),
            ("http://hub.example", None),
            ("hub.example:7443", None),
            ("https://hub.example/path", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<HubAddress>().ok().map(|address| address.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text:?}");
        }
    }
}
