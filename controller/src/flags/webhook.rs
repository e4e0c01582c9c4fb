//! Flags of the webhooks.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use axum::http::Uri;
use switchyard_api::validate::is_subdomain;

use super::listen;
use crate::webhook::{Advertise, WebhookOptions};

/// How the webhooks are served and reached.
#[derive(clap::Args, Debug, Clone)]
pub struct WebhookFlags {
    /// Address to serve the admission webhooks at. Default: they are neither served nor registered.
    #[arg(long, env = "SWITCHYARD_WEBHOOK_LISTEN", value_name = "ADDRESS")]
    pub webhook_listen: Option<SocketAddr>,
    /// URL at which the API server reaches the webhooks from outside the cluster:
    /// https://HOST:PORT.
    #[arg(long, env = "SWITCHYARD_WEBHOOK_URL", value_name = "URL", value_parser = parse_webhook_url, conflicts_with = "webhook_service")]
    pub webhook_url: Option<String>,
    /// Service through which the API server reaches the webhooks, in Switchyard's namespace:
    /// NAME[:PORT].
    #[arg(long, env = "SWITCHYARD_WEBHOOK_SERVICE", value_name = "SERVICE")]
    pub webhook_service: Option<String>,
    /// Name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration. The role
    /// must allow this name too.
    #[arg(long, env = "SWITCHYARD_WEBHOOK_CONFIGURATION", value_name = "NAME", value_parser = parse_object_name,
        default_value = WebhookOptions::CONFIGURATION)]
    pub webhook_configuration: String,
    /// Service in Switchyard's namespace, NAME[:PORT], through which the API server reaches
    /// replicas that are not ready. They need conversion to read objects stored in v1beta1, so the
    /// Service needs publishNotReadyAddresses. Default: as the webhooks.
    #[arg(
        long,
        env = "SWITCHYARD_CONVERSION_SERVICE",
        value_name = "SERVICE",
        requires = "webhook_listen"
    )]
    pub conversion_service: Option<String>,
    /// Policy for jobs that are created or changed while no replica answers the webhooks, on a
    /// single cluster and on workers. "ignore" allows them; new ones run until they are suspended.
    /// "fail" denies jobs with a queue, as Kueue does. New jobs on a hub, and pods and kinds queued
    /// by their pods, are always denied.
    #[arg(long, env = "SWITCHYARD_JOB_WEBHOOKS", value_enum, default_value_t)]
    pub job_webhooks: JobWebhooks,
    /// Ignore the annotation kueue.x-k8s.io/queue-name of new jobs, as later Kueue releases do.
    /// Default: as in Kueue 0.1, it becomes the label of that name, with a warning to the job's
    /// creator.
    #[arg(long, env = "SWITCHYARD_IGNORE_QUEUE_ANNOTATION")]
    pub ignore_queue_annotation: bool,
    /// Another program, such as cert-manager, keeps the Secret switchyard-webhook-cert with
    /// tls.crt, tls.key and ca.crt. They are read every ten minutes. Default: Switchyard makes and
    /// renews the certificates.
    #[arg(long, env = "SWITCHYARD_EXTERNAL_WEBHOOK_CERTIFICATES", requires = "webhook_listen")]
    pub external_webhook_certificates: bool,
}

/// Policy for jobs while no replica answers the webhooks.
#[derive(clap::ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JobWebhooks {
    /// They are denied, as with Kueue.
    Fail,
    /// They are allowed.
    #[default]
    Ignore,
}

impl WebhookFlags {
    /// Opens the listener, if one is configured.
    ///
    /// # Errors
    /// Names the flag and what to do.
    pub fn options(&self, namespace: &str) -> anyhow::Result<Option<WebhookOptions>> {
        let advertise = match (&self.webhook_url, &self.webhook_service) {
            (Some(url), _) => Some(Advertise::Url(url.clone())),
            (None, Some(service)) => Some(parse_service("--webhook-service", service, namespace)?),
            (None, None) => None,
        };
        match (self.webhook_listen, advertise) {
            (None, None) => Ok(None),
            (Some(address), Some(advertise)) => {
                let listener = listen("--webhook-listen", &address.to_string())?;
                let configuration = self.webhook_configuration.clone();
                let conversion = self.conversion_service.as_deref();
                let conversion = conversion
                    .map(|name| parse_service("--conversion-service", name, namespace))
                    .transpose()?;
                Ok(Some(WebhookOptions {
                    configuration,
                    conversion,
                    external_certificates: self.external_webhook_certificates,
                    fail_closed: self.job_webhooks == JobWebhooks::Fail,
                    ignores_queue_annotation: self.ignore_queue_annotation,
                    ..WebhookOptions::new(listener, advertise)
                }))
            }
            (Some(_), None) => bail!(
                "--webhook-listen needs --webhook-service or --webhook-url, so that the API server can be told where to call"
            ),
            (None, Some(_)) => bail!(
                "--webhook-service and --webhook-url need --webhook-listen, such as [::]:9443"
            ),
        }
    }
}

fn parse_service(flag: &str, text: &str, namespace: &str) -> anyhow::Result<Advertise> {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => {
            (name, port.parse().with_context(|| format!("{flag} {text}: not NAME[:PORT]"))?)
        }
        None => (text, 443),
    };
    Ok(Advertise::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
}

fn parse_object_name(text: &str) -> Result<String, String> {
    is_subdomain(text).then(|| text.to_owned()).ok_or_else(|| {
        "a name has lower case letters, digits, '-' and '.', and begins and ends with a letter or digit".to_owned()
    })
}

fn parse_webhook_url(text: &str) -> Result<String, String> {
    // Kubernetes accepts neither a query nor a user in `clientConfig.url`.
    let taken = text.parse::<Uri>().ok().filter(|uri| {
        uri.scheme_str() == Some("https")
            && uri.query().is_none()
            && uri.authority().is_some_and(|authority| {
                !authority.host().is_empty() && !authority.as_str().contains('@')
            })
    });
    taken.map(|_| text.to_owned()).ok_or_else(|| "write it as https://HOST:PORT".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhook_url_must_be_https() {
        for url in ["https://10.0.0.1:9443", "https://hub.example", "https://[::1]:9443/"] {
            assert_eq!(parse_webhook_url(url).as_deref(), Ok(url));
        }
        for url in [
            "http://hub:9443",
            "hub:9443",
            "https://",
            "https://a@hub",
            "https://hub?x=1",
            "",
            "größe",
        ] {
            assert_eq!(
                parse_webhook_url(url).unwrap_err(),
                "write it as https://HOST:PORT",
                "{url}"
            );
        }
    }
}
