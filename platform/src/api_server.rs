//! The way to API servers: never through a proxy.

use thiserror::Error;

/// The variables that kube takes a proxy from.
const VARIABLES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];

/// A kubeconfig names a proxy. The message leaves its URL out, because it may hold a password.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the kubeconfig has a proxy-url, and API servers can only be dialled directly")]
pub struct ProxyUrl;

/// The configuration without the proxy of `HTTPS_PROXY`. kube reads that variable for kubeconfigs,
/// without regard to `NO_PROXY`, and ignores it in a cluster.
///
/// # Errors
///
/// The kubeconfig itself names a proxy.
pub fn without_proxy(config: kube::Config) -> Result<kube::Config, ProxyUrl> {
    without_proxy_of(config, |name| std::env::var(name).ok())
}

fn without_proxy_of(
    mut config: kube::Config,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<kube::Config, ProxyUrl> {
    if let Some(proxy) = config.proxy_url.take() {
        let mut values = VARIABLES.into_iter().filter_map(variable);
        if !values.any(|value| value.parse().ok().as_ref() == Some(&proxy)) {
            return Err(ProxyUrl);
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kubeconfigs_own_proxy_is_an_error() {
        let config = |proxy: Option<&str>| {
            let mut config = kube::Config::new("https://api.example".parse().unwrap());
            config.proxy_url = proxy.map(|proxy| proxy.parse().unwrap());
            config
        };
        let variable = |name: &str| (name == "https_proxy").then(|| "http://u:p@proxy".to_owned());
        for proxy in [None, Some("http://u:p@proxy")] {
            let direct = without_proxy_of(config(proxy), variable).unwrap();
            assert_eq!(direct.proxy_url, None);
        }
        let own = config(Some("http://u:p@other"));
        assert_eq!(without_proxy_of(own, variable).map(drop), Err(ProxyUrl));
    }
}
