//! `switchyard cluster join-token NAME`.

use anyhow::{Context as _, anyhow, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde::Serialize;
use switchyard_agent::HubAddress;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_api::validate::{SUBDOMAIN_MESSAGE, is_subdomain};
use switchyard_hub_pki::store::{ADDRESS_KEY, CA_SECRET};
use switchyard_hub_pki::token::{MAX_TTL_SECONDS, Token};
use switchyard_hub_pki::{ca, token_store};

use crate::Output;

/// Arguments of `switchyard cluster join-token`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the MultiKueueCluster that the agent will represent.
    #[arg(value_parser = cluster_name)]
    pub name: String,
    /// How long the token can be used, such as 30m or 1h; at most a week.
    #[arg(long, default_value = "1h", value_parser = ttl)]
    pub ttl: SignedDuration,
    /// Address at which the agent reaches the hub: https://HOST:PORT. Default: the hub's advertised
    /// address.
    #[arg(long)]
    pub hub_address: Option<HubAddress>,
    /// The namespace of the hub.
    #[arg(long, default_value = crate::DEFAULT_HUB_NAMESPACE)]
    pub hub_namespace: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

impl Args {
    /// Default arguments for a hub in `hub_namespace`.
    #[must_use]
    pub fn new(name: &str, hub_namespace: &str) -> Self {
        Self {
            name: name.to_owned(),
            ttl: SignedDuration::from_hours(1),
            hub_address: None,
            hub_namespace: hub_namespace.to_owned(),
            output: Output::default(),
        }
    }
}

pub(crate) fn ttl(text: &str) -> Result<SignedDuration, String> {
    let ttl: SignedDuration =
        text.parse().map_err(|_| format!("\"{text}\" is no duration; write it as 30m or 1h"))?;
    if (1..=MAX_TTL_SECONDS).contains(&ttl.as_secs()) {
        return Ok(ttl);
    }
    Err(format!("must be from 1s to {}h", MAX_TTL_SECONDS / 3600))
}

pub(crate) fn cluster_name(text: &str) -> Result<String, String> {
    if is_subdomain(text) { Ok(text.to_owned()) } else { Err(SUBDOMAIN_MESSAGE.to_owned()) }
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinToken {
    /// The cluster that may enrol with it.
    pub cluster: String,
    /// Its holder can enrol as the cluster, once.
    pub token: String,
    pub expires_at: Timestamp,
    /// SHA-256 of the hub's CA certificate in hex, by which the agent verifies the hub.
    pub hub_ca_sha256: String,
    /// Address at which the agent reaches the hub.
    pub hub_address: String,
    /// Whether the MultiKueueCluster exists. Until it does, the hub refuses the token.
    pub approved: bool,
}

/// Creates the token and renders instructions.
///
/// # Errors
/// As [`make`].
pub async fn run(client: kube::Client, args: &Args) -> anyhow::Result<String> {
    args.output.render(&make(client, args).await?, render_text)
}

/// Creates the token and stores its hash.
///
/// # Errors
/// If the hub has never started, or the caller may not write the Secret.
pub async fn make(client: kube::Client, args: &Args) -> anyhow::Result<JoinToken> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &args.hub_namespace);
    let (hub_ca_sha256, advertised) = hub(&secrets, &args.hub_namespace).await?;
    let Some(hub_address) = args.hub_address.as_ref().map(ToString::to_string).or(advertised)
    else {
        bail!("where will the agent reach the hub? Pass --hub-address https://HOST:PORT");
    };
    let clusters: Api<MultiKueueCluster> = Api::all(client);
    let found = clusters
        .get_opt(&args.name)
        .await
        .map_err(|error| crate::with_hint(&error, "reading the cluster"))?;
    if found.as_ref().is_some_and(|cluster| cluster.spec.cluster_source.agent.is_none()) {
        bail!(
            "MultiKueueCluster \"{}\" is not reached by an agent: its spec.clusterSource has no `agent`",
            args.name
        );
    }
    let now = Timestamp::now();
    let token = Token::from_random(&args.name, rand::random(), rand::random());
    token_store::add(&secrets, &token, args.ttl.as_secs(), now)
        .await
        .context("storing the token")?;
    Ok(JoinToken {
        cluster: args.name.clone(),
        token: token.to_string(),
        expires_at: now.checked_add(args.ttl).context("--ttl is too long")?,
        hub_ca_sha256,
        hub_address,
        approved: found.is_some(),
    })
}

/// SHA-256 of the hub's CA certificate, and the hub's advertised address.
async fn hub(secrets: &Api<Secret>, namespace: &str) -> anyhow::Result<(String, Option<String>)> {
    let secret = secrets.get_opt(CA_SECRET).await;
    let secret = secret.map_err(|error| {
        anyhow!(
            "reading the hub's CA, as an administrator of the hub may: {}",
            crate::cause(&error)
        )
    })?;
    let secret = secret.with_context(|| {
        format!("no Secret {CA_SECRET} in namespace {namespace}: start the hub once, or pass --hub-namespace")
    })?;
    let data = secret.data.unwrap_or_default();
    let certificate = data
        .get("tls.crt")
        .with_context(|| format!("the Secret {CA_SECRET} has no key \"tls.crt\""))?;
    let pin = ca::pin_of_pem(&certificate.0)
        .with_context(|| format!("the Secret {CA_SECRET}: tls.crt"))?;
    let address = data.get(ADDRESS_KEY).map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
    Ok((pin, address))
}

/// Instructions for the user.
#[must_use]
pub fn render_text(made: &JoinToken) -> String {
    let approval = if made.approved {
        String::new()
    } else {
        format!(
            "\nMultiKueueCluster \"{0}\" does not exist yet; the hub refuses the token until it does:\n\n  \
             kubectl apply -f - <<'EOF'\n  apiVersion: kueue.x-k8s.io/v1beta2\n  kind: MultiKueueCluster\n  \
             metadata: {{name: {0}}}\n  spec: {{clusterSource: {{agent: {{}}}}}}\n  EOF\n",
            made.cluster
        )
    };
    format!(
        "Token for cluster \"{cluster}\", good once, until {expires}:\n\n  {token}\n\n\
         Start the agent in the worker cluster:\n\n  switchyard-agent --hub {hub} \\\n    --hub-ca-sha256 {pin} \\\n    \
         --join {token}\n{approval}",
        cluster = made.cluster,
        expires = made.expires_at.round(jiff::Unit::Second).unwrap_or(made.expires_at),
        token = made.token,
        hub = made.hub_address,
        pin = made.hub_ca_sha256,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(approved: bool) -> JoinToken {
        JoinToken {
            cluster: "east".into(),
            token: "east.0011.s3cret".into(),
            expires_at: "2026-11-21T12:00:00.4Z".parse().unwrap(),
            hub_ca_sha256: "ab12".into(),
            hub_address: "https://hub.example:7443".into(),
            approved,
        }
    }

    #[test]
    fn command_can_be_pasted() {
        insta::assert_snapshot!(render_text(&made(true)), @r#"
        Token for cluster "east", good once, until 2026-11-21T12:00:00Z:

          east.0011.s3cret

        Start the agent in the worker cluster:

          switchyard-agent --hub https://hub.example:7443 \
            --hub-ca-sha256 ab12 \
            --join east.0011.s3cret
        "#);
    }

    #[test]
    fn missing_cluster_is_pointed_out() {
        let text = render_text(&made(false));
        assert!(text.contains("kind: MultiKueueCluster\n  metadata: {name: east}"), "{text}");
    }

    #[test]
    fn invalid_duration_is_explained() {
        assert_eq!(ttl("soon").unwrap_err(), "\"soon\" is no duration; write it as 30m or 1h");
        assert_eq!(ttl("1h30m").unwrap().as_secs(), 5400);
        for out_of_bounds in ["0s", "-5m", "200h", "9999999999h"] {
            assert_eq!(
                ttl(out_of_bounds).unwrap_err(),
                "must be from 1s to 168h",
                "{out_of_bounds}"
            );
        }
    }

    #[test]
    fn invalid_cluster_name_is_rejected() {
        assert_eq!(cluster_name("east.example").as_deref(), Ok("east.example"));
        for name in ["East", "a_b", "", "größe"] {
            assert!(cluster_name(name).unwrap_err().contains("RFC 1123"), "{name}");
        }
    }
}
