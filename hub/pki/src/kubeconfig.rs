//! Checks a worker's kubeconfig. Pure. Reasons are Kueue's where it has them. The hub connects to no
//! worker, and `migrate preflight` reads none, whose kubeconfig fails these checks.

use kube::config::{AuthInfo, Kubeconfig};
use switchyard_api::conditions::reasons::multi_kueue_cluster as reasons;
use thiserror::Error;

/// Why a kubeconfig is not used.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum BadKubeconfig {
    /// It is missing or no kubeconfig.
    #[error("{0}")]
    Unreadable(String),
    /// The hub's API server did not return it. The last known one may still be right.
    #[error("{0}")]
    Unavailable(String),
    /// It uses something that a kubeconfig of another party must not, such as a file of the hub.
    #[error("{0}")]
    Insecure(String),
    /// The ClusterProfile is missing or has no usable provider.
    #[error("{0}")]
    Profile(String),
    /// The kubeconfig made from a ClusterProfile fails the checks.
    #[error("{0}")]
    ProfileInsecure(String),
}

/// Whether a kubeconfig may name a command that prints credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecPlugins {
    /// For ClusterProfiles: the hub's own configuration names the command.
    Allowed,
    /// For kubeconfigs of another party.
    Refused,
}

impl BadKubeconfig {
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable(_) | Self::Unavailable(_) => reasons::BAD_KUBE_CONFIG,
            Self::Insecure(_) => reasons::INSECURE_KUBE_CONFIG,
            Self::Profile(_) => reasons::BAD_CLUSTER_PROFILE,
            Self::ProfileInsecure(_) => reasons::BAD_REST_CONFIG,
        }
    }

    #[must_use]
    pub fn message(&self) -> String {
        format!("load client config failed: {self}")
    }
}

/// Reads and checks a kubeconfig.
///
/// # Errors
/// The first fault found.
pub fn parse(bytes: &[u8], exec: ExecPlugins) -> Result<Kubeconfig, BadKubeconfig> {
    let insecure = match exec {
        ExecPlugins::Allowed => BadKubeconfig::ProfileInsecure,
        ExecPlugins::Refused => BadKubeconfig::Insecure,
    };
    // Kueue reports an unparsable kubeconfig as insecure, too.
    let unreadable =
        |why: String| insecure(format!("failed to parse kubeconfig(apiconfig): {why}"));
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable("not text".into()))?;
    let config = Kubeconfig::from_yaml(text)
        .map_err(|error| unreadable(without_values(&error.to_string())))?;
    for user in config.auth_infos.iter().filter_map(|user| user.auth_info.as_ref()) {
        check_user(user, exec).map_err(insecure)?;
    }
    for named in &config.clusters {
        let name = shortened(&named.name);
        let cluster = named.cluster.as_ref();
        if cluster.and_then(|cluster| cluster.insecure_skip_tls_verify) == Some(true) {
            return Err(insecure(format!(
                "insecure TLS verification is not allowed for cluster {name}"
            )));
        }
        if cluster.is_some_and(|cluster| given(cluster.certificate_authority.as_ref())) {
            return Err(insecure(format!(
                "certificate-authority file paths are not allowed, use certificate-authority-data for cluster {name}"
            )));
        }
        let server = cluster.and_then(|cluster| cluster.server.as_deref()).unwrap_or_default();
        if server.is_empty() {
            return Err(insecure(format!("server URL is required for cluster {name}")));
        }
        if !is_host(server) {
            return Err(insecure("untrusted server endpoint".into()));
        }
        if !is_https(server) {
            return Err(insecure(format!(
                "clusters[{name}].cluster.server must begin with https://: the hub sends credentials and jobs there"
            )));
        }
    }
    if config.current_context.as_deref().unwrap_or_default().is_empty()
        && config.contexts.is_empty()
    {
        return Err(insecure("invalid configuration: no configuration has been provided".into()));
    }
    Ok(config)
}

/// The reader's message without the value that it quotes, which may be a credential. Names of fields
/// stay.
fn without_values(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let Some(invalid) = line.find("invalid ") else { return line.to_owned() };
    let (before, after) = line.split_at(invalid);
    match (after.find(['"', '`']), after.rfind(['"', '`'])) {
        (Some(first), Some(last)) if first < last => {
            format!("{before}{}...{}", &after[..=first], &after[last..])
        }
        (Some(first), _) => format!("{before}{}...", &after[..first]),
        _ => line.to_owned(),
    }
}

/// Length of the longest name of a Kubernetes object. Longer names are cut in messages.
const LONGEST_NAME: usize = 253;

fn shortened(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

fn check_user(user: &AuthInfo, exec: ExecPlugins) -> Result<(), String> {
    let refused = |what: &str| Err(what.to_owned());
    if given(user.token_file.as_ref()) {
        return refused("tokenFile is not allowed");
    }
    if given(user.username.as_ref()) || user.password.is_some() {
        return refused("basic auth is not allowed");
    }
    if user.exec.is_some() && exec == ExecPlugins::Refused {
        return refused("exec plugins are not allowed");
    }
    if user.auth_provider.is_some() {
        return refused("auth providers are not allowed");
    }
    if given(user.client_certificate.as_ref()) || given(user.client_key.as_ref()) {
        return refused(
            "client certificate file paths are not allowed, use client-certificate-data and client-key-data",
        );
    }
    Ok(())
}

fn given(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// A URL without a scheme counts as not encrypted.
fn is_https(server: &str) -> bool {
    server.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
}

/// Whether the URL's host is an IP address or a DNS name.
fn is_host(server: &str) -> bool {
    let Ok(uri) = server.to_lowercase().parse::<http::Uri>() else { return false };
    let Some(host) = uri.host() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    let label = |label: &str| {
        let inner = label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: w, user: u}}\n\
             clusters:\n- name: w\n  cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
        )
    }

    #[test]
    fn kubeconfig_with_files_commands_or_no_tls_is_refused() {
        let good = "server: 'https://worker.example:6443', certificate-authority-data: 'YQ=='";
        let cases = [
            ("a good one", config(good, "token: t"), ""),
            ("an address", config("server: 'https://[::1]:6443'", "token: t"), ""),
            ("upper case", config("server: 'https://Worker.Example'", "token: t"), ""),
            ("token file", config(good, "tokenFile: /etc/shadow"), "tokenFile is not allowed"),
            (
                "no verification",
                config("server: 'https://w', insecure-skip-tls-verify: true", "token: t"),
                "insecure TLS verification is not allowed for cluster w",
            ),
            (
                "CA by path",
                config("server: 'https://w', certificate-authority: /etc/ca", "token: t"),
                "certificate-authority file paths are not allowed, use certificate-authority-data for cluster w",
            ),
            (
                "no server",
                config("certificate-authority-data: 'YQ=='", "token: t"),
                "server URL is required for cluster w",
            ),
            (
                "bad host",
                config("server: 'https://bad_host'", "token: t"),
                "untrusted server endpoint",
            ),
            (
                "plain text",
                config("server: 'http://worker.example:6443'", "token: t"),
                "clusters[w].cluster.server must begin with https://: the hub sends credentials and jobs there",
            ),
            (
                "plain text in upper case",
                config("server: 'HTTP://worker.example'", "token: t"),
                "clusters[w].cluster.server must begin with https://: the hub sends credentials and jobs there",
            ),
            (
                "no scheme",
                config("server: 'worker.example:6443'", "token: t"),
                "clusters[w].cluster.server must begin with https://: the hub sends credentials and jobs there",
            ),
            ("basic auth", config(good, "username: a, password: b"), "basic auth is not allowed"),
            (
                "exec",
                config(good, "exec: {command: sh, apiVersion: x}"),
                "exec plugins are not allowed",
            ),
            (
                "auth provider",
                config(good, "auth-provider: {name: gcp, config: {}}"),
                "auth providers are not allowed",
            ),
            (
                "certificate by path",
                config(good, "client-certificate: /x, client-key: /y"),
                "client certificate file paths are not allowed, use client-certificate-data and client-key-data",
            ),
        ];
        for (case, text, expected) in cases {
            let said = parse(text.as_bytes(), ExecPlugins::Refused)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert_eq!(said, expected, "{case}");
        }
        let exec = config(good, "exec: {command: login, apiVersion: x}");
        assert!(parse(exec.as_bytes(), ExecPlugins::Allowed).is_ok());
        let error =
            parse(config(good, "tokenFile: /x").as_bytes(), ExecPlugins::Allowed).unwrap_err();
        assert_eq!(error.reason(), "BadRestConfig");
        // The server of a ClusterProfile is checked the same way.
        let plain =
            config("server: 'http://worker.example'", "exec: {command: login, apiVersion: x}");
        let error = parse(plain.as_bytes(), ExecPlugins::Allowed).unwrap_err();
        assert_eq!(error.reason(), "BadRestConfig");
        assert!(error.to_string().contains("cluster.server must begin with https://"), "{error}");
        let error = parse(b"{[", ExecPlugins::Refused).unwrap_err();
        assert_eq!(error.reason(), "InsecureKubeConfig");
        assert_eq!(error.message().lines().count(), 1);
        assert!(
            error
                .message()
                .starts_with("load client config failed: failed to parse kubeconfig(apiconfig): ")
        );
    }

    #[test]
    fn message_about_a_bad_kubeconfig_shows_no_credential() {
        let said = |text: &str| parse(text.as_bytes(), ExecPlugins::Refused).unwrap_err().message();
        for secret in ["s3cr3t", "'s3cr3t'", "12345678901234567890"] {
            for text in [secret.to_owned(), format!("users: {secret}"), format!("- {secret}")] {
                let said = said(&text);
                assert!(!said.contains(secret.trim_matches('\'')), "{said}");
            }
        }
        let long = said(
            &config("", "token: t").replace("name: w", &format!("name: {}", "w".repeat(9_999))),
        );
        assert!(long.ends_with("w..."), "{long}");
        assert!(long.len() < 400, "{}", long.len());
    }
}
