//! The API server as a front proxy: it authenticates users and names them in headers. The headers
//! are believed only with the proxy's client certificate.
//!
//! Every API server publishes its settings for the servers behind it in the ConfigMap
//! `extension-apiserver-authentication` of `kube-system`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::User;
use crate::api_call::with_deadline;
use crate::https::{Certificate, TlsPolicy, tls_policy, with_protocols};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// Group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";
/// Group and name of unauthenticated users.
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// The settings that the API server publishes about itself as a front proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// CA of its client certificate, PEM. Empty: no certificate is believed.
    ca: String,
    /// Common names that the certificate may have. Empty: any.
    allowed_names: Vec<String>,
    username: Vec<String>,
    uid: Vec<String>,
    group: Vec<String>,
    extra_prefix: Vec<String>,
}

impl FrontProxy {
    /// Reads the published settings.
    ///
    /// # Errors
    ///
    /// When the API server does not answer, or forbids the request.
    pub async fn read(client: &Client) -> kube::Result<Self> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let published = with_deadline(api.get(NAME)).await?;
        Ok(Self::of(&published.data.unwrap_or_default()))
    }

    fn of(data: &BTreeMap<String, String>) -> Self {
        let list = |key: &str| -> Vec<String> {
            data.get(key).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        };
        Self {
            ca: data.get("requestheader-client-ca-file").cloned().unwrap_or_default(),
            allowed_names: list("requestheader-allowed-names"),
            username: list("requestheader-username-headers"),
            uid: list("requestheader-uid-headers"),
            group: list("requestheader-group-headers"),
            extra_prefix: list("requestheader-extra-headers-prefix"),
        }
    }

    /// A server configuration that verifies the proxy's client certificate if a client shows one.
    ///
    /// # Errors
    ///
    /// When the published CA is not a certificate.
    pub fn tls(
        &self,
        serving: Arc<Certificate>,
        policy: &TlsPolicy,
    ) -> anyhow::Result<ServerConfig> {
        let builder = tls_policy::server(policy)?;
        let config = match self.verifier()? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        Ok(with_protocols(config.with_cert_resolver(serving)))
    }

    fn verifier(&self) -> anyhow::Result<Option<Arc<dyn ClientCertVerifier>>> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(self.ca.as_bytes()) {
            roots.add(root?)?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        match WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
        {
            Ok(verifier) => Ok(Some(verifier)),
            Err(VerifierBuilderError::NoRootAnchors) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the proxy made this connection. Needs the configuration of [`FrontProxy::tls`].
    pub fn is_proxy(&self, connection: &ServerConnection) -> bool {
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        shown.is_some_and(|certificate| self.allows(certificate))
    }

    fn allows(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let mut names =
            certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        self.allowed_names.is_empty()
            || names.any(|name| self.allowed_names.iter().any(|allowed| allowed == name))
    }

    /// The user that the proxy authenticated.
    pub fn user(&self, headers: &HeaderMap) -> Option<User> {
        let values = |names: &[String]| -> Vec<String> {
            let all = names.iter().flat_map(|name| headers.get_all(name.as_str()));
            all.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect()
        };
        let first = |names: &[String]| values(names).into_iter().find(|value| !value.is_empty());
        let (name, mut groups) = (first(&self.username)?, values(&self.group));
        // Every aggregated server adds this group: the proxy's own requests, such as for OpenAPI,
        // have no group.
        if name != ANONYMOUS
            && !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED)
        {
            groups.push(AUTHENTICATED.to_owned());
        }
        Some(User { name, uid: first(&self.uid), groups, extra: self.extra(headers) })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            let key = self.extra_prefix.iter().find_map(|prefix| {
                // hyper gives header names in lower case.
                name.as_str().strip_prefix(&prefix.to_ascii_lowercase())
            });
            if let (Some(key), Ok(value)) = (key, value.to_str()) {
                extra.entry(unescaped(key)).or_default().push(value.to_owned());
            }
        }
        extra
    }
}

/// Decodes percent escapes of a key. Malformed escapes stay.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = if *first == b'%' { tail.get(..2).and_then(hex) } else { None };
        bytes.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

fn hex(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn published() -> FrontProxy {
        FrontProxy::of(&BTreeMap::from(
            [
                ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
                ("requestheader-username-headers", r#"["X-Remote-User"]"#),
                ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
                ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        ))
    }

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        all.iter().map(header).collect()
    }

    #[test]
    fn headers_name_the_user() {
        let user = published().user(&headers(&[
            ("x-remote-user", "system:serviceaccount:a:b"),
            ("x-remote-group", "one"),
            ("x-remote-group", "two"),
            ("x-remote-extra-authentication.kubernetes.io%2fpod-name", "p"),
            ("x-other", "no"),
        ]));
        let user = user.unwrap();
        assert_eq!(user.name, "system:serviceaccount:a:b");
        assert_eq!(user.groups, ["one", "two", AUTHENTICATED]);
        let extra = BTreeMap::from([(
            "authentication.kubernetes.io/pod-name".to_owned(),
            vec!["p".to_owned()],
        )]);
        assert_eq!(user.extra, extra);
        assert_eq!(published().user(&headers(&[("x-remote-group", "one")])), None);
        assert_eq!(FrontProxy::default().user(&headers(&[("x-remote-user", "ann")])), None);
    }

    #[test]
    fn authenticated_user_gets_the_authenticated_group() {
        for (name, group, expected) in [
            ("system:aggregator", None, &[AUTHENTICATED][..]),
            ("ann", Some(AUTHENTICATED), &[AUTHENTICATED]),
            ("bob", Some(UNAUTHENTICATED), &[UNAUTHENTICATED]),
            (ANONYMOUS, None, &[]),
        ] {
            let mut all = vec![("x-remote-user", name)];
            all.extend(group.map(|group| ("x-remote-group", group)));
            assert_eq!(published().user(&headers(&all)).unwrap().groups, expected, "{name}");
        }
    }

    #[test]
    fn malformed_escapes_stay() {
        for (key, plain) in
            [("a%2fb", "a/b"), ("a%zz", "a%zz"), ("a%2", "a%2"), ("%ff", "%ff"), ("ab", "ab")]
        {
            assert_eq!(unescaped(key), plain);
        }
    }

    #[test]
    fn only_certificate_with_allowed_name_is_the_proxys() {
        let certificate = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.self_signed(&KeyPair::generate().unwrap()).unwrap()
        };
        let allows = |proxy: &FrontProxy, name: &str| proxy.allows(certificate(name).der());
        assert!(allows(&published(), "front-proxy-client"));
        assert!(!allows(&published(), "somebody"));
        assert!(allows(&FrontProxy::default(), "somebody"));
        assert!(FrontProxy::default().verifier().unwrap().is_none());
    }
}
