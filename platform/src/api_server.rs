//! The way to API servers, as kubectl takes it: through the proxy of the kubeconfig, else through
//! that of the environment.

use thiserror::Error;

use crate::proxy_environment;

/// The port of an API server's URL without one.
const HTTPS: u16 = 443;

/// A proxy that cannot be used. The message leaves its URL out, because it may hold a password.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0} is not http://, https:// or socks5://[USER:PASSWORD@]HOST[:PORT]")]
pub struct BadProxy(&'static str);

/// The configuration with the proxy that leads to its API server: `proxy-url` of the kubeconfig,
/// else `HTTPS_PROXY`, unless `NO_PROXY` names the API server. kube compares `NO_PROXY` with the
/// proxy's own host. In a cluster, kube ignores the environment.
///
/// # Errors
///
/// The URL is of another kind.
pub fn through_proxy(config: kube::Config) -> Result<kube::Config, BadProxy> {
    select(config, |name| std::env::var(name).ok())
}

fn select(
    mut config: kube::Config,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<kube::Config, BadProxy> {
    let Some(proxy) = &config.proxy_url else { return Ok(config) };
    let mut name = "proxy-url of the kubeconfig";
    let of_environment = ["HTTPS_PROXY", "https_proxy"].into_iter().find(|name| {
        variable(name).is_some_and(|value| value.parse().ok().as_ref() == Some(proxy))
    });
    if let Some(variable_name) = of_environment {
        name = variable_name;
        let host = config.cluster_url.host().unwrap_or_default();
        let port = config.cluster_url.port_u16().unwrap_or(HTTPS);
        if proxy_environment::select(host, port, &variable).is_none() {
            config.proxy_url = None;
            return Ok(config);
        }
    }
    match proxy.scheme_str() {
        Some("http" | "https" | "socks5") => Ok(config),
        _ => Err(BadProxy(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(proxy: &str, no_proxy: &str) -> Result<Option<String>, String> {
        let mut config = kube::Config::new("https://api.example:6443".parse().unwrap());
        config.proxy_url = Some(proxy.parse().unwrap());
        let variable = |name: &str| match name {
            "https_proxy" => Some("http://u:p@proxy".to_owned()),
            "NO_PROXY" => Some(no_proxy.to_owned()),
            _ => None,
        };
        let config = select(config, variable).map_err(|error| error.to_string())?;
        Ok(config.proxy_url.map(|proxy| proxy.to_string()))
    }

    #[test]
    fn no_proxy_excludes_api_servers_from_the_environment() {
        let environment = "http://u:p@proxy";
        assert_eq!(selected(environment, "other"), Ok(Some("http://u:p@proxy/".to_owned())));
        assert_eq!(selected(environment, "example"), Ok(None));
        let own = "socks5://bastion:1080";
        assert_eq!(selected(own, "example"), Ok(Some("socks5://bastion:1080/".to_owned())));
    }

    #[test]
    fn unusable_proxy_is_refused_without_its_password() {
        let error = selected("ftp://u:s3cret@proxy", "").unwrap_err();
        assert!(error.starts_with("proxy-url of the kubeconfig is not http://"), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
