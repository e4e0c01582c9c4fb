//! The admission and conversion webhooks: one HTTPS server that makes, shares and registers its own
//! certificate.
//!
//! Every replica serves; the leader registers. [`configuration`] says which requests the API server
//! sends and what happens while no replica answers, [`crd_conversion`] covers conversion of Kueue's
//! `v1beta1`, and [`switchyard_platform::cert`] the certificates.
//!
//! Conversion is served from the start: the API server cannot list objects stored in the older
//! version without it. Admission reviews need the stores, so they get 503 until those are filled.

mod body;
mod cluster_deletion;
mod configuration;
mod convert;
mod corrections;
mod crd_conversion;
mod job;
mod job_webhook;
mod json_patch;
mod live_reads;
mod objects;
mod operator_requests;
mod registrar;
mod review;
mod secret;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{Router, extract::Request, http::StatusCode, middleware, response::IntoResponse};
use crd_conversion::CrdConversion;
use job_webhook::JobWebhook;
use parking_lot::Mutex;
use registrar::{Registrar, service_account};
use review::{Handler, ReviewRequest};
use secret::SecretStore;
use switchyard_jobs::{KindId, enabled_kinds};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{context::Context, endpoint::tls_policy, reconcilers::job::lookup};
use switchyard_platform::{
    cert::{Bundle, CertLifetimes},
    https::{self, Certificate, Open},
};

/// Name in [`switchyard_platform::components`].
const COMPONENT: &str = "webhook";
/// Delay before a failed attempt is repeated.
const RETRY: Duration = Duration::from_secs(5);

/// How the API server reaches the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advertise {
    /// `https://host:port`.
    Url(String),
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
}

impl Advertise {
    /// Names that the serving certificate must cover.
    fn names(&self) -> BTreeSet<String> {
        match self {
            Self::Url(url) => {
                let authority =
                    url.trim_start_matches("https://").split('/').next().unwrap_or_default();
                let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
                BTreeSet::from([host.trim_matches(['[', ']']).to_owned()])
            }
            Self::Service { namespace, name, .. } => [".svc", ".svc.cluster.local", ""]
                .map(|suffix| format!("{name}.{namespace}{suffix}"))
                .into(),
        }
    }
}

#[derive(Debug)]
pub struct WebhookOptions {
    pub listener: std::net::TcpListener,
    /// How the API server reaches `listener`.
    pub advertise: Advertise,
    /// How the API server reaches replicas that are not ready: they need conversion before they can
    /// read their own lists. `None` means by `advertise`. As a Service it needs
    /// `publishNotReadyAddresses`.
    pub conversion: Option<Advertise>,
    /// Name of both webhook configurations.
    pub configuration: String,
    /// Name of the Secret with the certificates, in Switchyard's own namespace.
    pub secret: String,
    pub lives: CertLifetimes,
    /// Another program, such as cert-manager, writes `tls.crt`, `tls.key` and `ca.crt`; Switchyard
    /// only reads them.
    pub external_certificates: bool,
    /// Deny jobs with a queue while no replica answers. Otherwise they are created and the
    /// reconciler suspends them. On a hub, creation is always denied.
    pub fail_closed: bool,
    /// Ignore the annotation `kueue.x-k8s.io/queue-name` of new jobs; only the label counts.
    pub ignores_queue_annotation: bool,
}

impl WebhookOptions {
    /// Default name of both webhook configurations.
    pub const CONFIGURATION: &str = "switchyard";

    /// Options with the default names and `fail_closed` off.
    #[must_use]
    pub fn new(listener: std::net::TcpListener, advertise: Advertise) -> Self {
        Self {
            listener,
            advertise,
            conversion: None,
            configuration: Self::CONFIGURATION.into(),
            secret: "switchyard-webhook-cert".into(),
            lives: CertLifetimes::default(),
            external_certificates: false,
            fail_closed: false,
            ignores_queue_annotation: false,
        }
    }
}

/// Serves until `shutdown`. Admission reviews are answered once `filled` says that the stores are.
///
/// # Errors
/// If the listener, the namespace selector of the configuration or TLS is unusable. An unreachable
/// API server is retried.
pub async fn run(
    ctx: Arc<Context>,
    options: WebhookOptions,
    filled: watch::Receiver<bool>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    for component in [COMPONENT, crd_conversion::COMPONENT] {
        ctx.components.set(component, false);
    }
    options.listener.set_nonblocking(true).context("webhook listener")?;
    let listener =
        tokio::net::TcpListener::from_std(options.listener).context("webhook listener")?;
    let advertise_unready = options.conversion.unwrap_or_else(|| options.advertise.clone());
    let names = &options.advertise.names() | &advertise_unready.names();
    let external = options.external_certificates;
    let secrets = SecretStore::new(
        ctx.client.clone(),
        &ctx.namespace,
        &options.secret,
        options.lives,
        external,
    );
    let router = unavailable_until(filled.clone(), router(&ctx, options.ignores_queue_annotation)?)
        .merge(convert::router());
    let Some(bundle) = first_bundle(&ctx, &secrets, &names, &shutdown).await else { return Ok(()) };
    let certificate = Certificate::new(bundle.certified_key()?);
    let site = Open::new(COMPONENT, certificate.clone(), &tls_policy(&ctx.config), router)
        .context("webhook server")?;
    let (trusted, trusts) = watch::channel(bundle.trusted());
    let definitions = CrdConversion {
        ctx: ctx.clone(),
        advertise: options.advertise.clone(),
        advertise_unready,
        trusted: trusts,
    };
    let registrar = Registrar {
        service_account: service_account(&ctx).await,
        changed: Arc::new(Notify::new()),
        applied: Mutex::default(),
        advertise: options.advertise,
        name: options.configuration,
        fail_closed: options.fail_closed,
        ignores_queue_annotation: options.ignores_queue_annotation,
        resync: options.lives.check_interval,
        certificate,
        ctx,
        secrets,
        names,
        trusted,
        filled,
    };
    registrar.subscribe();
    tokio::select! {
        () = https::serve(listener, Arc::new(site), shutdown.clone()) => {}
        () = registrar.run(bundle) => {}
        () = definitions.run() => {}
    }
    Ok(())
}

/// Answers 503 until the stores are filled; the API server then applies the failure policy.
fn unavailable_until(filled: watch::Receiver<bool>, router: Router) -> Router {
    router.layer(middleware::from_fn(move |request: Request, next: middleware::Next| {
        let open = *filled.borrow();
        async move {
            if open {
                next.run(request).await
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "the first lists are not there yet")
                    .into_response()
            }
        }
    }))
}

/// Path of a job kind's reviews, as in Kueue.
fn job_path(verb: &str, id: KindId) -> String {
    format!("/{verb}-{}-{}-{}", id.group.replace('.', "-"), id.version, id.kind.to_lowercase())
}

fn router(ctx: &Arc<Context>, ignores_queue_annotation: bool) -> anyhow::Result<Router> {
    let managed = lookup::managed_namespaces(&ctx.config, &ctx.namespace)?;
    let mut handlers: Vec<(String, Handler)> = Vec::new();
    for kind in enabled_kinds(&ctx.config.integrations.frameworks) {
        let jobs = JobWebhook {
            ctx: ctx.clone(),
            managed: managed.clone(),
            kind,
            ignores_queue_annotation,
        };
        let (mutate, validate) = (Arc::new(jobs), kind.id());
        let jobs = mutate.clone();
        handlers
            .push((job_path("mutate", validate), Arc::new(move |request| mutate.default(request))));
        handlers.push((
            job_path("validate", validate),
            Arc::new(move |request| jobs.validate(request)),
        ));
    }
    let (partial, gates) = (ctx.config.enabled("PartialAdmission"), ctx.config.validation_gates());
    let default_workload =
        move |request: &ReviewRequest<'_>| objects::default_workload(request, partial);
    handlers.push((objects::path("mutate", "workload"), Arc::new(default_workload)));
    for kind in objects::KINDS {
        handlers.push((
            objects::path("validate", kind.singular),
            Arc::new(move |request| kind.validate(request, gates)),
        ));
    }
    let cluster_ctx = ctx.clone();
    let deletion = move |request: &ReviewRequest<'_>| cluster_deletion::warn(&cluster_ctx, request);
    handlers.push((objects::path("validate", cluster_deletion::SINGULAR), Arc::new(deletion)));
    // `review` writes the audit lines of every kind; this path only brings it these writes.
    let allow = |_: &ReviewRequest<'_>| review::ReviewOutcome::Allow;
    handlers.push((objects::path("audit", operator_requests::SINGULAR), Arc::new(allow)));
    Ok(review::router(handlers))
}

/// Loads the certificates, retrying until the API server answers. `None` at shutdown.
async fn first_bundle(
    ctx: &Context,
    secrets: &SecretStore,
    names: &BTreeSet<String>,
    shutdown: &CancellationToken,
) -> Option<Bundle> {
    loop {
        match secrets.load(names, ctx.clock.now()).await {
            Ok(bundle) => return Some(bundle),
            Err(error) => tracing::warn!(%error, "no webhook certificate yet"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(RETRY) => (),
        }
    }
}
