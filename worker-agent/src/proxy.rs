//! The HTTP proxy between an agent and its hub: its URL, and the CONNECT request.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use switchyard_platform::authority::authority;
use switchyard_platform::errors::with_root_cause;
use switchyard_platform::proxy_environment;
use thiserror::Error;

use crate::dial::{Dial, Io};
use crate::hub_address::HubAddress;

/// The deadline for a proxy's answer. It is shorter than that of the whole connection, so that the
/// error names the proxy.
const DEADLINE: Duration = Duration::from_secs(8);
/// The most bytes of a proxy's answer.
const LARGEST_ANSWER: usize = 16 * 1024;
/// The port of a URL without one.
const DEFAULT_PORT: u16 = 80;
/// The value of `--proxy` for "no proxy".
const NONE: &str = "none";
const FLAG: &str = "--proxy (SWITCHYARD_PROXY)";

/// Not a proxy's URL. The message leaves the URL out, because it may hold a password.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{0} is not http://[USER:PASSWORD@]HOST[:PORT]; in user and password, write @ as %40, : as %3A, / as %2F and # as %23. `--proxy none` dials the hub directly"
)]
pub struct BadProxy(&'static str);

/// The value of `--proxy`: a URL, "none", or nothing for the proxy of the environment.
#[derive(Clone, Default)]
pub struct ProxyFlag(String);

impl From<&str> for ProxyFlag {
    fn from(text: &str) -> Self {
        Self(text.trim().to_owned())
    }
}

// Keeps the password out of logs.
impl std::fmt::Debug for ProxyFlag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProxyFlag")
    }
}

impl ProxyFlag {
    /// The proxy for this hub: that of the flag, else that of the environment.
    ///
    /// # Errors
    ///
    /// The flag or the variable with an invalid URL.
    pub fn select(&self, hub: &HubAddress) -> Result<Option<Proxy>, BadProxy> {
        self.select_with(hub, |name| std::env::var(name).ok())
    }

    /// As [`Self::select`], with these variables instead of this process's.
    ///
    /// # Errors
    ///
    /// The flag or the variable with an invalid URL.
    pub fn select_with(
        &self,
        hub: &HubAddress,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Proxy>, BadProxy> {
        match self.0.as_str() {
            "" => match proxy_environment::select(&hub.host, hub.port, variable) {
                Some((name, url)) => Proxy::parse(&url).map(Some).ok_or(BadProxy(name)),
                None => Ok(None),
            },
            NONE => Ok(None),
            url => Proxy::parse(url).map(Some).ok_or(BadProxy(FLAG)),
        }
    }
}

/// An HTTP proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<HeaderValue>,
}

impl Proxy {
    fn parse(url: &str) -> Option<Self> {
        let url = url.trim();
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let bare = rest.strip_suffix('/').unwrap_or(rest);
        // A password with such a character would be cut off, and the rest taken for the host.
        if bare.contains(['/', '?', '#']) || bare.matches('@').count() > 1 {
            return None;
        }
        let intercept =
            Matcher::builder().https(url).build().intercept(&Uri::from_static("https://hub"))?;
        let uri = intercept.uri();
        let (authority, host) = (uri.authority()?.as_str(), uri.host()?);
        let port = match authority.strip_prefix(host)?.strip_prefix(':') {
            None => DEFAULT_PORT,
            Some(port) => port.parse().ok().filter(|port| *port != 0)?,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let authorization = intercept.basic_auth().cloned();
        (uri.scheme_str() == Some("http") && !host.is_empty()).then_some(Self {
            host,
            port,
            authorization,
        })
    }
}

/// The address, without user and password.
impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&authority(&self.host, self.port))
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Dials through a proxy.
pub struct Tunnel {
    pub proxy: Proxy,
    /// Reaches the proxy.
    pub dial: Arc<dyn Dial>,
}

impl Dial for Tunnel {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            let target = authority(host, port);
            match tokio::time::timeout(DEADLINE, self.open(&target)).await {
                Ok(opened) => opened,
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "the proxy {} did not answer CONNECT {target} within {} s",
                        self.proxy,
                        DEADLINE.as_secs()
                    ),
                )),
            }
        })
    }
}

impl Tunnel {
    async fn open(&self, target: &str) -> io::Result<Box<dyn Io>> {
        let proxy = &self.proxy;
        let stream = self.dial.dial(&proxy.host, proxy.port).await.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot connect to the proxy {proxy}: {error}"))
        })?;
        let failed = |error: hyper::Error| {
            let cause = with_root_cause(&error);
            io::Error::other(format!(
                "the proxy {proxy} gave no valid answer to CONNECT {target}: {cause}"
            ))
        };
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(LARGEST_ANSWER)
            .title_case_headers(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(target)
            .header(HOST, target)
            .header(USER_AGENT, concat!("switchyard-agent/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &proxy.authorization {
            request = request.header(PROXY_AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::<&'static [u8]>::new()).map_err(io::Error::other)?;
        let exchange = async move {
            let response = sender.send_request(request).await.map_err(failed)?;
            if !response.status().is_success() {
                return Err(io::Error::other(self.refusal(&response, target)));
            }
            hyper::upgrade::on(response).await.map_err(failed)
        };
        let (mut exchange, connection) = (pin!(exchange), pin!(connection.with_upgrades()));
        let upgraded = tokio::select! {
            biased;
            upgraded = &mut exchange => upgraded?,
            // Its error reaches the exchange too.
            _ = connection => exchange.await?,
        };
        Ok(Box::new(TokioIo::new(upgraded)))
    }

    /// The message about a status that opens no tunnel.
    fn refusal<T>(&self, response: &Response<T>, target: &str) -> String {
        let (proxy, status) = (&self.proxy, response.status());
        let offers_basic = response.headers().get_all(PROXY_AUTHENTICATE).iter().any(|offer| {
            offer.to_str().is_ok_and(|offer| offer.to_ascii_lowercase().contains("basic"))
        });
        let mend = match (status, &proxy.authorization) {
            (StatusCode::PROXY_AUTHENTICATION_REQUIRED, _) if !offers_basic => format!(
                "it does not offer Basic authentication, the only one that agents have; let it pass {target} without authentication"
            ),
            (StatusCode::PROXY_AUTHENTICATION_REQUIRED, None) => {
                "give a user and a password: http://USER:PASSWORD@HOST:PORT in --proxy, or in the Secret of agent.proxySecret".to_owned()
            }
            (StatusCode::PROXY_AUTHENTICATION_REQUIRED, Some(_)) => {
                "correct the user and password in --proxy, HTTPS_PROXY, or the Secret of agent.proxySecret".to_owned()
            }
            (StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED, _) => format!(
                "allow CONNECT to {target} in its rules; many proxies allow port 443 alone"
            ),
            (
                StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT,
                _,
            ) => format!("it cannot reach {target}: see its DNS, its firewall and its log"),
            _ => "its log has the reason".to_owned(),
        };
        format!("the proxy {proxy} answered {status} to CONNECT {target}: {mend}")
    }
}

#[cfg(test)]
mod tests;
