//! The configuration of a client by kubeconfig, with the proxy that kubectl would take: that of the
//! kubeconfig, else that of the environment.
//!
//! kube compares `NO_PROXY` with the proxy's own host, and does so for a kubeconfig's proxy, too. So
//! its choice is replaced.

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use thiserror::Error;

use crate::proxy_environment;

/// The port of an API server's URL without one.
const HTTPS: u16 = 443;
const OWN: &str = "proxy-url of the kubeconfig";

/// Why a kubeconfig gives no configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A proxy that cannot be used. The message leaves its URL out, because it may hold a password.
    #[error("{0} is not http://, https:// or socks5://[USER:PASSWORD@]HOST[:PORT]")]
    Proxy(&'static str),
    /// kube's own parser refuses the list.
    #[error(
        "NO_PROXY has an empty or invalid entry: write names, addresses, networks or HOST:PORT, separated by commas"
    )]
    NoProxy,
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    InCluster(#[from] kube::config::InferConfigError),
}

/// The configuration of a kubeconfig.
///
/// # Errors
///
/// The kubeconfig or its proxy is invalid.
pub async fn of_kubeconfig(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<kube::Config, ConfigError> {
    let own = proxy_url(&kubeconfig, options);
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, options).await;
    let config = config.map_err(|error| match error {
        KubeconfigError::ParseNoProxy(_) => ConfigError::NoProxy,
        KubeconfigError::ParseProxyUrl(_) => {
            ConfigError::Proxy(if own.is_some() { OWN } else { "HTTPS_PROXY" })
        }
        other => other.into(),
    })?;
    with_proxy(config, own, |name| std::env::var(name).ok())
}

/// The configuration of the user's kubeconfig, else that of the cluster that the program runs in.
/// There, no proxy is used.
///
/// # Errors
///
/// Neither exists, or the kubeconfig or its proxy is invalid.
pub async fn infer() -> Result<kube::Config, ConfigError> {
    match Kubeconfig::read() {
        Ok(kubeconfig) => of_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await,
        // This reports why neither way leads to a cluster.
        Err(_) => Ok(kube::Config::infer().await?),
    }
}

/// The proxy that a kubeconfig names for the cluster of its context.
fn proxy_url(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Option<String> {
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let of_context = || {
        let found = kubeconfig.contexts.iter().find(|it| Some(&it.name) == context)?;
        Some(&found.context.as_ref()?.cluster)
    };
    let cluster = options.cluster.as_ref().or_else(of_context)?;
    let found = kubeconfig.clusters.iter().find(|it| it.name == *cluster)?;
    found.cluster.as_ref()?.proxy_url.clone().filter(|url| !url.is_empty())
}

fn with_proxy(
    mut config: kube::Config,
    own: Option<String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<kube::Config, ConfigError> {
    let host = config.cluster_url.host().unwrap_or_default();
    let port = config.cluster_url.port_u16().unwrap_or(HTTPS);
    let found =
        own.map(|url| (OWN, url)).or_else(|| proxy_environment::select(host, port, variable));
    config.proxy_url = found.map(|(name, url)| parse(name, &url)).transpose()?;
    Ok(config)
}

/// A URL without a scheme is that of an HTTP proxy.
fn parse(name: &'static str, url: &str) -> Result<http::Uri, ConfigError> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let parsed: http::Uri = whole.parse().map_err(|_| ConfigError::Proxy(name))?;
    match parsed.scheme_str() {
        Some("http" | "https" | "socks5") if parsed.host().is_some() => Ok(parsed),
        _ => Err(ConfigError::Proxy(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(own: Option<&str>, no_proxy: &str) -> Result<Option<String>, String> {
        let config = kube::Config::new("https://api.example:6443".parse().unwrap());
        let variable = |name: &str| match name {
            "https_proxy" => Some("u:p@10.0.0.5:3128".to_owned()),
            "NO_PROXY" => Some(no_proxy.to_owned()),
            _ => None,
        };
        let config = with_proxy(config, own.map(ToOwned::to_owned), variable);
        let config = config.map_err(|error| error.to_string())?;
        Ok(config.proxy_url.map(|proxy| proxy.to_string()))
    }

    #[test]
    fn no_proxy_excludes_api_servers_from_the_environment() {
        let environment = Ok(Some("http://u:p@10.0.0.5:3128/".to_owned()));
        assert_eq!(selected(None, "10.0.0.0/8"), environment, "the proxy's host does not count");
        assert_eq!(selected(None, "example,"), Ok(None));
        let own = Some("socks5://bastion:1080");
        assert_eq!(selected(own, "example"), Ok(Some("socks5://bastion:1080/".to_owned())));
    }

    #[test]
    fn unusable_proxy_is_refused_without_its_password() {
        let error = selected(Some("ftp://u:s3cret@proxy"), "").unwrap_err();
        assert!(error.starts_with("proxy-url of the kubeconfig is not http://"), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn proxy_is_that_of_the_contexts_cluster() {
        let kubeconfig = Kubeconfig::from_yaml(
            "{current-context: a, contexts: [{name: a, context: {cluster: x}}, {name: b, context: {cluster: y}}], \
             clusters: [{name: x, cluster: {server: s}}, {name: y, cluster: {server: s, proxy-url: p}}]}",
        )
        .unwrap();
        let of = |context: Option<&str>| {
            let context = context.map(ToOwned::to_owned);
            proxy_url(&kubeconfig, &KubeConfigOptions { context, ..KubeConfigOptions::default() })
        };
        assert_eq!((of(None), of(Some("b"))), (None, Some("p".to_owned())));
    }
}
