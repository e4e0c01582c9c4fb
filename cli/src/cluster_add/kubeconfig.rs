//! A worker without an agent: a self-contained kubeconfig in a Secret of the hub.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::config::{AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use switchyard_api::names::KUBECONFIG_SECRET_KEY;
use switchyard_hub_pki::store;
use switchyard_platform::api_server;

use super::account::Token;
use super::{
    Added, Args, Link, Until, account, apply_cluster, apply_secret, cluster_step, find_cluster,
    wait_for_link,
};
use crate::deadline::Deadline;

pub(super) async fn add(
    client: &Client,
    file: Option<&Path>,
    args: &Args,
    deadline: Deadline,
) -> anyhow::Result<Added> {
    let name = format!("{}-kubeconfig", args.name);
    let source = json!({"kubeConfig": {"location": name, "locationType": "Secret"}});
    if args.dry_run {
        return plan(client, file, args, &name, &source).await;
    }
    find_cluster(client, &args.name, &source).await?;
    let (text, what, token, server) = match (&args.with_kubeconfig, &args.from_context) {
        (Some(path), _) => {
            let (text, server) = from_file(path)?;
            (text, format!("--with-kubeconfig {}", path.display()), None, server)
        }
        (None, Some(context)) => {
            let hub_id = hub_id(client, args).await?;
            let (cluster, is_kept) = cluster_for_hub(client, file, args, &name, context).await?;
            let mut what = format!("--from-context {context}");
            if let (Some(server), true) = (&cluster.server, is_kept) {
                what.push_str(&format!(" at {server} as before (--server names another)"));
            }
            let (text, token) = from_context(args, file, &cluster, &hub_id, deadline).await?;
            (text, what, Some(token), cluster.server)
        }
        (None, None) => {
            bail!("name a kubeconfig with --with-kubeconfig, or a context with --from-context")
        }
    };
    if let Err(error) = test_kubeconfig(&text).await {
        if let Some(token) = &token {
            token.discard().await;
        }
        return Err(error.context(what));
    }
    let before = find_cluster(client, &args.name, &source).await?;
    let is_new =
        apply_secret(client, &args.hub_namespace, &name, &json!({KUBECONFIG_SECRET_KEY: text}))
            .await?;
    apply_cluster(client, &args.name, &source).await?;
    // The hub ends the session of an earlier kubeconfig within seconds. Until then the status
    // describes the earlier session.
    let earlier = before.as_ref().and_then(Link::of).and_then(|link| link.session);
    let earlier = earlier.filter(|_| is_new);
    let link = wait_for_link(client, args, Until::Connected(earlier.as_deref()), deadline).await?;
    let connected = link.as_ref().is_some_and(|link| link.is_up(earlier.as_deref()));
    let mut message = match link {
        None => format!("after {deadline}, the hub has not looked at it"),
        Some(link) if link.connected && !connected => {
            format!("after {deadline}, the hub has not used the new kubeconfig")
        }
        Some(link) if !connected => {
            format!("after {deadline}, the hub has not connected: {}", link.message)
        }
        Some(link) => link.message,
    };
    match token {
        Some(token) if connected => token.revoke_others().await.context("on the worker")?,
        Some(token) if args.rotate => {
            message.push_str(&format!(". {}", token.left_over()));
        }
        _ => {}
    }
    Ok(Added {
        cluster: args.name.clone(),
        link: "kubeconfig",
        server,
        connected,
        was_connected: false,
        message,
        commands: String::new(),
        expires_at: None,
        steps: Vec::new(),
    })
}

/// The steps. A kubeconfig that is given is read and tried, as without --dry-run.
async fn plan(
    client: &Client,
    file: Option<&Path>,
    args: &Args,
    secret: &str,
    source: &Value,
) -> anyhow::Result<Added> {
    let found = find_cluster(client, &args.name, source).await?;
    let mut steps = Vec::new();
    let mut server = None;
    let mut at = String::new();
    if let Some(path) = &args.with_kubeconfig {
        let what = format!("--with-kubeconfig {}", path.display());
        let (text, of_file) = from_file(path)?;
        test_kubeconfig(&text).await.context(what)?;
        server = of_file;
    }
    if let Some(context) = &args.from_context {
        let token = if args.rotate { "with a new token" } else { "with a token" };
        steps.push(format!(
            "in context {context}: apply the account and roles of deploy/rbac/kubeconfig-worker.yaml in {}, {token}",
            args.worker_namespace
        ));
        let (cluster, is_kept) = cluster_for_hub(client, file, args, secret, context).await?;
        server = cluster.server;
        if is_kept {
            at.push_str(" as before (--server names another)");
        }
    }
    if let Some(server) = &server {
        at.insert_str(0, &format!(", for the API server at {server}"));
    }
    steps.push(format!("write Secret {}/{secret} with the kubeconfig{at}", args.hub_namespace));
    steps.push(cluster_step(&args.name, found.as_ref()));
    steps.push("wait until the hub is connected to the worker".to_owned());
    if args.rotate {
        steps.push("then delete the tokens from before on the worker".to_owned());
    }
    Ok(Added { server, ..Added::planned(args, "kubeconfig", found.as_ref(), steps) })
}

/// The hub's id, by which the worker tells the tokens of several hubs apart.
async fn hub_id(client: &Client, args: &Args) -> anyhow::Result<String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &args.hub_namespace);
    store::hub_id(&secrets).await.with_context(|| {
        format!("the hub's id, in namespace {}: see --hub-namespace", args.hub_namespace)
    })
}

/// The current context of a file as a kubeconfig, and its server.
fn from_file(path: &Path) -> anyhow::Result<(String, Option<String>)> {
    let kubeconfig = Kubeconfig::read_from(path)
        .with_context(|| format!("--with-kubeconfig {}", path.display()))?;
    let (cluster, user) = read_context(&kubeconfig, None)?;
    Ok((render(&cluster, &user)?, cluster.server))
}

/// The cluster of a context as the hub gets it, and whether its server is kept from before.
async fn cluster_for_hub(
    client: &Client,
    file: Option<&Path>,
    args: &Args,
    secret: &str,
    context: &str,
) -> anyhow::Result<(Cluster, bool)> {
    let kubeconfig =
        file.map_or_else(Kubeconfig::read, Kubeconfig::read_from).context("--from-context")?;
    let mut cluster = cluster_of_context(&kubeconfig, context)?;
    if let Some(server) = &args.server {
        cluster.server = Some(server.clone());
    } else if let Some(server) = earlier_server(client, args, secret, &cluster).await? {
        cluster.server = Some(server);
        return Ok((cluster, true));
    }
    Ok((cluster, false))
}

/// The cluster of a context. The context's user does not matter: the hub gets another.
fn cluster_of_context(kubeconfig: &Kubeconfig, context: &str) -> anyhow::Result<Cluster> {
    inline_authority(cluster_of(kubeconfig, find_context(kubeconfig, Some(context))?)?)
}

/// The server of the kubeconfig that the hub has, if that is of the same cluster: an earlier
/// `--server` stays.
async fn earlier_server(
    client: &Client,
    args: &Args,
    secret: &str,
    cluster: &Cluster,
) -> anyhow::Result<Option<String>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &args.hub_namespace);
    let secret = secrets.get_opt(secret).await;
    let secret = secret.map_err(|error| crate::with_hint(&error, "reading the Secret"))?;
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    let Some(text) = data.get(KUBECONFIG_SECRET_KEY) else { return Ok(None) };
    let text = String::from_utf8_lossy(&text.0);
    // Anybody may have written the Secret: what is no kubeconfig is replaced.
    let Ok(kubeconfig) = Kubeconfig::from_yaml(&text) else { return Ok(None) };
    // File paths in it would name files of the hub, and are not read here.
    let earlier = find_context(&kubeconfig, None).and_then(|it| cluster_of(&kubeconfig, it));
    let Ok(earlier) = earlier else { return Ok(None) };
    let authority = |it: &Cluster| it.certificate_authority_data.clone();
    let is_same = authority(&earlier).is_some() && authority(&earlier) == authority(cluster);
    Ok(earlier.server.filter(|server| is_same && cluster.server.as_ref() != Some(server)))
}

/// Creates an account on the cluster of the context, and a kubeconfig of it.
async fn from_context(
    args: &Args,
    file: Option<&Path>,
    cluster: &Cluster,
    hub_id: &str,
    deadline: Deadline,
) -> anyhow::Result<(String, Token)> {
    let context = args.from_context.as_deref();
    let (worker, _) = crate::connect(file, context).await.context("--from-context")?;
    let token = account::token(&worker, &args.worker_namespace, hub_id, args.rotate, deadline)
        .await
        .context("on the worker")?;
    match render(cluster, &json!({"token": token.text})) {
        Ok(text) => Ok((text, token)),
        Err(error) => {
            token.discard().await;
            Err(error)
        }
    }
}

/// A context, or the current one.
fn find_context<'a>(
    kubeconfig: &'a Kubeconfig,
    context: Option<&str>,
) -> anyhow::Result<&'a Context> {
    let name =
        context.or(kubeconfig.current_context.as_deref()).context("it has no current context")?;
    let found =
        kubeconfig.contexts.iter().find(|it| it.name == name).and_then(|it| it.context.as_ref());
    found.with_context(|| format!("it has no context {name}"))
}

/// The cluster of a context, as written.
fn cluster_of(kubeconfig: &Kubeconfig, context: &Context) -> anyhow::Result<Cluster> {
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|it| it.name == context.cluster)
        .and_then(|it| it.cluster.clone());
    cluster.with_context(|| format!("it has no cluster {}", context.cluster))
}

fn inline_authority(mut cluster: Cluster) -> anyhow::Result<Cluster> {
    if let Some(path) = cluster.certificate_authority.take() {
        cluster.certificate_authority_data = Some(inline(&path)?);
    }
    Ok(cluster)
}

/// Cluster and user of a context, with all files inlined.
fn read_context(
    kubeconfig: &Kubeconfig,
    context: Option<&str>,
) -> anyhow::Result<(Cluster, Value)> {
    let found = find_context(kubeconfig, context)?;
    let cluster = inline_authority(cluster_of(kubeconfig, found)?)?;
    let user = found.user.as_deref();
    let user = kubeconfig
        .auth_infos
        .iter()
        .find(|it| Some(it.name.as_str()) == user)
        .and_then(|it| it.auth_info.as_ref());
    let user = user.map(inline_credential).transpose()?.unwrap_or_else(|| json!({}));
    Ok((cluster, user))
}

/// The user's credential, with files inlined. A credential plugin is an error, because the hub's
/// image has no other programs.
fn inline_credential(user: &AuthInfo) -> anyhow::Result<Value> {
    let user = serde_json::to_value(user).context("its user")?;
    let field = |name: &str| user[name].as_str();
    ensure!(
        user["exec"].is_null() && user["auth-provider"].is_null(),
        "its user gets credentials from a program, which the hub does not have: use --from-context, which makes an account with \
         a token"
    );
    if let Some(token) = field("token") {
        return Ok(json!({"token": token}));
    }
    if let Some(path) = field("tokenFile") {
        let token = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        return Ok(json!({"token": token.trim()}));
    }
    let data = |of: &str| match (field(&format!("{of}-data")), field(of)) {
        (Some(data), _) => Ok(Some(data.to_owned())),
        (None, Some(path)) => inline(path).map(Some),
        (None, None) => anyhow::Ok(None),
    };
    let (Some(certificate), Some(key)) = (data("client-certificate")?, data("client-key")?) else {
        bail!("its user has neither a token nor a client certificate");
    };
    Ok(json!({"client-certificate-data": certificate, "client-key-data": key}))
}

fn inline(path: &str) -> anyhow::Result<String> {
    Ok(BASE64_STANDARD.encode(std::fs::read(path).with_context(|| format!("cannot read {path}"))?))
}

/// A kubeconfig of one cluster and one user.
fn render(cluster: &Cluster, user: &Value) -> anyhow::Result<String> {
    let server = cluster.server.as_deref().context("its cluster has no server")?;
    ensure!(server.starts_with("https://"), "its server {server} is not https://");
    ensure!(
        cluster.insecure_skip_tls_verify != Some(true),
        "it skips the verification of {server}, which the hub refuses: give it certificate-authority-data"
    );
    let local = ["https://127.", "https://localhost", "https://[::1]", "https://0.0.0.0"];
    if local.iter().any(|it| server.starts_with(it)) {
        eprintln!(
            "warning: {server} is an address of this machine: if the hub is elsewhere, name another with --server"
        );
    }
    let mut of_cluster = json!({"server": server});
    for (key, value) in [
        ("certificate-authority-data", &cluster.certificate_authority_data),
        ("proxy-url", &cluster.proxy_url),
        ("tls-server-name", &cluster.tls_server_name),
    ] {
        if let Some(value) = value {
            of_cluster[key] = json!(value);
        }
    }
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "worker",
        "clusters": [{"name": "worker", "cluster": of_cluster}],
        "users": [{"name": "hub", "user": user}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": "hub"}}],
    });
    serde_saphyr::to_string(&kubeconfig).context("cannot write the kubeconfig")
}

/// Tests the kubeconfig with the request that the hub sends first.
async fn test_kubeconfig(text: &str) -> anyhow::Result<()> {
    let kubeconfig = Kubeconfig::from_yaml(text).context("not a kubeconfig")?;
    let config = api_server::of_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let namespaces: Api<Namespace> = Api::all(crate::client::new(config)?);
    let listed = namespaces.list(&ListParams::default().limit(1)).await;
    listed.map(drop).map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 401 => {
            anyhow::anyhow!("the worker refuses its credential")
        }
        _ => crate::with_required_right(
            &error,
            "asking the worker",
            "list namespaces there (deploy/rbac/kubeconfig-worker.yaml)",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(cluster: &str, user: &str) -> Kubeconfig {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: c\n  cluster: {cluster}\n\
             users:\n- name: u\n  user: {user}\ncontexts:\n- name: a\n  context: {{cluster: c, user: u}}\n"
        );
        Kubeconfig::from_yaml(&text).unwrap()
    }

    fn kubeconfig(cluster: &str, user: &str) -> anyhow::Result<String> {
        let (cluster, user) = read_context(&parsed(cluster, user), None)?;
        render(&cluster, &user)
    }

    /// The kubeconfigs of EKS, GKE, AKS and OIDC have such users.
    #[test]
    fn credential_plugin_does_not_hide_the_cluster() {
        let good = "{server: 'https://w:6443', certificate-authority-data: YQ==}";
        for user in [
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}}",
            "{auth-provider: {name: oidc, config: {}}}",
            "{client-certificate: /nonexistent, client-key: /nonexistent}",
        ] {
            let kubeconfig = parsed(good, user);
            let cluster = cluster_of_context(&kubeconfig, "a").unwrap();
            assert_eq!(cluster.server.as_deref(), Some("https://w:6443"), "{user}");
            let text = render(&cluster, &json!({"token": "t"})).unwrap();
            assert!(text.contains("token: t") && !text.contains("exec"), "{text}");
            let error = cluster_of_context(&kubeconfig, "b").unwrap_err();
            assert_eq!(error.to_string(), "it has no context b");
        }
        let with_file = parsed("{server: 'https://w', certificate-authority: /nonexistent}", "{}");
        let error = format!("{:#}", cluster_of_context(&with_file, "a").unwrap_err());
        assert!(error.starts_with("cannot read /nonexistent"), "{error}");
        let stored = cluster_of(&with_file, find_context(&with_file, None).unwrap()).unwrap();
        assert_eq!(
            stored.server.as_deref(),
            Some("https://w"),
            "a stored one is read without files"
        );
    }

    #[test]
    fn unusable_kubeconfig_is_rejected_with_advice() {
        let good = "{server: 'https://w:6443', certificate-authority-data: YQ==}";
        for (cluster, user, said) in [
            ("{server: 'http://w'}", "{token: t}", "is not https://"),
            (
                "{server: 'https://w', insecure-skip-tls-verify: true}",
                "{token: t}",
                "certificate-authority-data",
            ),
            (
                good,
                "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}}",
                "--from-context",
            ),
            (good, "{username: a, password: b}", "neither a token nor"),
            (
                good,
                "{client-certificate: /nonexistent, client-key-data: YQ==}",
                "cannot read /nonexistent",
            ),
        ] {
            let error = format!("{:#}", kubeconfig(cluster, user).unwrap_err());
            assert!(error.contains(said), "{cluster} {user}: {error}");
        }
        let text = kubeconfig(good, "{token: t}").unwrap();
        let parsed = Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(
            parsed.clusters[0].cluster.as_ref().unwrap().server.as_deref(),
            Some("https://w:6443")
        );
        assert!(
            text.contains("certificate-authority-data: YQ==") && text.contains("token: t"),
            "{text}"
        );
    }
}
