//! The HTTP proxy that the environment names, by the rules of Go's programs.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use crate::authority::authority;

/// The variable that names a proxy, and its value, which may hold a password.
pub type Setting = (&'static str, String);

/// The proxy to `https://host:port` of `HTTPS_PROXY` or `https_proxy`. None for hosts in `NO_PROXY`
/// or `no_proxy`, and for this machine.
pub fn select(host: &str, port: u16, variable: impl Fn(&str) -> Option<String>) -> Option<Setting> {
    let first = |names: [&'static str; 2]| {
        names.into_iter().find_map(|name| {
            let text = variable(name)?.trim().to_owned();
            (!text.is_empty()).then_some((name, text))
        })
    };
    let proxy = first(["HTTPS_PROXY", "https_proxy"])?;
    let exceptions = first(["NO_PROXY", "no_proxy"]).map(|(_, list)| list).unwrap_or_default();
    (!is_local(host) && !is_exception(host, port, &exceptions)).then_some(proxy)
}

fn is_local(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || bare(host).parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether NO_PROXY names the host. The library knows names, addresses, networks and `*`; Go's
/// programs also accept `*.example.com` and `HOST:PORT`.
fn is_exception(host: &str, port: u16, list: &str) -> bool {
    let entries = list.split(',').filter_map(|entry| {
        let entry = entry.trim();
        let entry = entry.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(entry);
        match entry.rsplit_once(':') {
            Some((host, only)) if !host.contains(':') || host.ends_with(']') => {
                (only.parse() == Ok(port)).then(|| bare(host))
            }
            _ => Some(bare(entry)),
        }
    });
    let list = entries.collect::<Vec<_>>().join(",");
    let target = format!("https://{}", authority(bare(host), port));
    let Ok(target) = target.parse::<Uri>() else { return false };
    Matcher::builder().https("http://proxy").no(list).build().intercept(&target).is_none()
}

/// An address without brackets.
fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_names_hosts_as_go_reads_it() {
        for (host, list, expected) in [
            ("api.example", "", true),
            ("api.example", "other.example", true),
            ("api.example", "example", false),
            ("api.example", "*.example", false),
            ("api.example", "api.example:6443", false),
            ("api.example", "api.example:443", true),
            ("api.example", "*", false),
            ("10.1.2.3", "10.0.0.0/8", false),
            ("192.0.2.1", "10.0.0.0/8", true),
            ("[2001:db8::1]", "2001:db8::1", false),
            ("127.0.0.1", "", false),
            ("localhost", "", false),
        ] {
            let variable = |name: &str| match name {
                "https_proxy" => Some("http://proxy:8080".to_owned()),
                "NO_PROXY" => Some(list.to_owned()),
                _ => None,
            };
            let found = select(host, 6443, variable).map(|(name, _)| name);
            assert_eq!(found, expected.then_some("https_proxy"), "{host} with {list:?}");
        }
        assert_eq!(select("api.example", 443, |_| None), None);
    }
}
