//! Host and port as URLs have them.

use std::fmt::Display;

/// `HOST:PORT`, with brackets around an IPv6 address. The host has none.
pub fn authority(host: &str, port: impl Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ipv6_have_brackets() {
        assert_eq!(authority("hub.example", 443), "hub.example:443");
        assert_eq!(authority("192.0.2.1", 443), "192.0.2.1:443");
        assert_eq!(authority("2001:db8::1", 443), "[2001:db8::1]:443");
    }
}
