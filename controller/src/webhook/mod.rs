//! The admission and conversion webhooks: one HTTPS server that makes, shares and registers its own
//! certificate.
//!
//! Every replica serves; the leader registers. [`configuration`] says which requests the API server
//! sends and what happens while no replica answers, [`definitions`] covers conversion of Kueue's
//! `v1beta1`, and [`crate::cert`] the certificates.
//!
//! Conversion is served from the start: the API server cannot list objects stored in the older
//! version without it. Admission reviews need the stores, so they get 503 until those are filled.

mod body;
mod configuration;
mod contest;
mod convert;
mod definitions;
mod job;
mod json_patch;
mod leaving;
mod live;
mod objects;
mod registrar;
mod review;
mod secret;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Context as _;
use axum::{Router, extract::Request, http::StatusCode, middleware, response::IntoResponse};
use definitions::Definitions;
use kube::core::Selector;
use registrar::{Registrar, service_account};
use review::{Answer, Question, Rule};
use secret::SecretStore;
use serde_json::Value;
use switchyard_api::{names, v1beta2::Workload};
use switchyard_jobs::{
    Held, JobKind, KindId, elastic, enabled_kinds, meta, same_copy, serving::Group,
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    cert::{Bundle, Lives},
    context::{Context, Role},
    https::{self, Certificate, Open},
    jobs::{ancestor::Top, lookup, owners},
    object::Object,
    workload,
};

/// Name in [`crate::components`].
const COMPONENT: &str = "webhook";
/// Why a pod is denied when neither the caches nor the API server know its owners.
const UNREAD: &str =
    "the owners cannot be read at the moment, so it is not known what queues this: try again";
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
    pub lives: Lives,
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
            lives: Lives::default(),
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
    for component in [COMPONENT, definitions::COMPONENT] {
        ctx.components.set(component, false);
    }
    options.listener.set_nonblocking(true).context("webhook listener")?;
    let listener =
        tokio::net::TcpListener::from_std(options.listener).context("webhook listener")?;
    let early = options.conversion.unwrap_or_else(|| options.advertise.clone());
    let names = &options.advertise.names() | &early.names();
    let external = options.external_certificates;
    let secrets = SecretStore::new(
        ctx.client.clone(),
        &ctx.namespace,
        &options.secret,
        options.lives,
        external,
    );
    let router = closed_until(filled.clone(), router(&ctx, options.ignores_queue_annotation)?)
        .merge(convert::router());
    let Some(bundle) = first_bundle(&ctx, &secrets, &names, &shutdown).await else { return Ok(()) };
    let certificate = Certificate::new(bundle.certified_key()?);
    let site = Open::new(COMPONENT, certificate.clone(), ctx.config.tls_options(), router)
        .context("webhook server")?;
    let (trusted, trusts) = watch::channel(bundle.trusted());
    let definitions = Definitions {
        ctx: ctx.clone(),
        advertise: options.advertise.clone(),
        early,
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
        look: options.lives.look,
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
        () = registrar.follow(bundle) => {}
        () = definitions.follow() => {}
    }
    Ok(())
}

/// Answers 503 until the stores are filled; the API server then applies the failure policy.
fn closed_until(filled: watch::Receiver<bool>, router: Router) -> Router {
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
    let mut rules: Vec<(String, Rule)> = Vec::new();
    for kind in enabled_kinds(&ctx.config.integrations.frameworks) {
        let jobs =
            Jobs { ctx: ctx.clone(), managed: managed.clone(), kind, ignores_queue_annotation };
        let (mutate, validate) = (Arc::new(jobs), kind.id());
        let jobs = mutate.clone();
        rules.push((
            job_path("mutate", validate),
            Arc::new(move |question| mutate.default(question)),
        ));
        rules.push((
            job_path("validate", validate),
            Arc::new(move |question| jobs.validate(question)),
        ));
    }
    let (partial, gates) = (ctx.config.enabled("PartialAdmission"), ctx.config.validation_gates());
    let default_workload =
        move |question: &Question<'_>| objects::default_workload(question, partial);
    rules.push((objects::path("mutate", "workload"), Arc::new(default_workload)));
    for kind in objects::KINDS {
        rules.push((
            objects::path("validate", kind.singular),
            Arc::new(move |question| kind.answer(question, gates)),
        ));
    }
    let of_cluster = ctx.clone();
    let leaving = move |question: &Question<'_>| leaving::warn(&of_cluster, question);
    rules.push((objects::path("validate", leaving::SINGULAR), Arc::new(leaving)));
    Ok(review::router(rules))
}

/// The webhooks of one job kind.
#[derive(Clone)]
struct Jobs {
    ctx: Arc<Context>,
    managed: Selector,
    kind: &'static dyn JobKind,
    ignores_queue_annotation: bool,
}

impl Jobs {
    fn facts(&self, question: &Question<'_>, ruled: bool) -> job::Facts {
        let stores = &self.ctx.stores;
        job::Facts {
            managed_namespace: lookup::is_managed_namespace(
                stores,
                &self.managed,
                question.namespace,
            ),
            without_queue_name: self.ctx.config.manage_jobs_without_queue_name,
            default_queue: lookup::has_default_queue(stores, question.namespace),
            default_priority_class: self.ctx.config.enabled("WorkloadPriorityClassDefaulting")
                && stores.workload_priority_classes.get("", names::DEFAULT).is_some(),
            implied: lookup::is_implied(&self.ctx.config, self.kind, question.object),
            owned: lookup::owned_by_job(stores, &self.ctx.config, question.object),
            ruled,
            quota_left: question.old.is_some_and(|old| self.has_quota_left(old)),
            holds_quota: question.old.is_some_and(|old| self.holds_quota(old)),
            elastic: self.ctx.config.enabled(elastic::FEATURE_GATE),
            topology: self.ctx.config.topology_gates(),
            lets_ray_and_spark_go: !self.ctx.config.enabled("ValidateRayAndSparkJobUpdates"),
            resizes_groups: !self.ctx.config.enabled("LWSImmutableGroupSize"),
            ignores_admission_gates: !self.ctx.config.enabled("AdmissionGatedBy"),
            admitted_copy: question.old.is_none() && self.is_admitted_copy(question),
        }
    }

    /// Whether a queued job owns the object, at any distance. `None` if the caches lack an owner.
    fn is_ruled(&self, object: &Value) -> Option<bool> {
        match owners::known_top(&self.ctx, object) {
            Top::Unread(_) => None,
            top => Some(!matches!(top, Top::None)),
        }
    }

    /// Whether a group scaled to zero still has quota, or a Workload that is being deleted.
    fn has_quota_left(&self, old: &Value) -> bool {
        let going = |it: &Workload| {
            it.metadata.deletion_timestamp.is_some() || workload::has_reservation(it)
        };
        self.has_group(old, |group, workload| group.at_rest && going(workload))
    }

    /// Whether a group that should have pods has quota.
    fn holds_quota(&self, old: &Value) -> bool {
        self.has_group(old, |group, workload| !group.at_rest && workload::has_reservation(workload))
    }

    /// Whether a pod group of the object has a Workload for which `is` holds.
    fn has_group(&self, object: &Value, is: impl Fn(&Group, &Workload) -> bool) -> bool {
        let Some(serving) = self.kind.serving() else { return false };
        let workload =
            |group: &Group| self.ctx.stores.workloads.get(meta::namespace(object), &group.name);
        let named = lookup::as_named(&self.ctx.stores, serving, object);
        serving.groups(&named).iter().any(|group| workload(group).is_some_and(|it| is(group, &it)))
    }

    /// Whether the object is an agent's copy whose Workload is admitted. Suspending it would only
    /// delay it, as it would be resumed at once.
    fn is_admitted_copy(&self, question: &Question<'_>) -> bool {
        let name = meta::prebuilt_workload_name(question.object);
        let workload = self.ctx.stores.workloads.get(question.namespace, name);
        workload.is_some_and(|it| {
            workload::runs(&it) && same_copy(self.kind.id(), question.object, &it)
        })
    }

    fn default(&self, question: &Question<'_>) -> Answer {
        let queued = (question.old.is_none() && !self.ignores_queue_annotation)
            .then(|| job::with_annotated_queue(question.object))
            .flatten();
        let question =
            &Question { object: queued.as_ref().unwrap_or(question.object), ..*question };
        let (stores, mut wanted) = (&self.ctx.stores, question.object.clone());
        let mut facts = self.facts(question, false);
        let matters = job::may_be_ruled(self.kind, question.object, &facts);
        let ruled = if matters { self.is_ruled(question.object) } else { Some(false) };
        facts.ruled = ruled.unwrap_or_default();
        let dispatches = |queue: &str| {
            self.ctx.role == Role::Hub
                && lookup::multi_kueue_check(stores, question.namespace, queue).is_some()
        };
        job::default(self.kind, &mut wanted, &facts, dispatches);
        let queue = meta::queue_name(&wanted);
        let late = self.ctx.role == Role::Hub
            && question.old.is_none()
            && !queue.is_empty()
            && !live::is_cached(stores, question.namespace, queue);
        if ruled.is_some() && !late {
            return Answer::Change(Box::new(wanted));
        }
        let (jobs, namespace, object) =
            (self.clone(), question.namespace.to_owned(), question.object.clone());
        Answer::Later(Box::pin(async move {
            let question = Question { namespace: &namespace, object: &object, old: None };
            jobs.default_late(&question, facts, ruled).await
        }))
    }

    /// Defaults a job whose owners or queue the caches lack, by asking the API server. If it does
    /// not answer either, the caches decide and the reconciler reports what is wrong; a pod is
    /// denied instead.
    async fn default_late(
        &self,
        question: &Question<'_>,
        mut facts: job::Facts,
        ruled: Option<bool>,
    ) -> Answer {
        let (ctx, mut wanted) = (&self.ctx, question.object.clone());
        facts.ruled = match ruled {
            Some(ruled) => ruled,
            None => match self.rules_late(question, &facts).await {
                Ok(ruled) => ruled,
                Err(refused) => return refused,
            },
        };
        let hub = ctx.role == Role::Hub;
        job::default(self.kind, &mut wanted, &facts, |queue| {
            hub && lookup::multi_kueue_check(&ctx.stores, question.namespace, queue).is_some()
        });
        let queue = meta::queue_name(&wanted);
        if !hub || queue.is_empty() || live::is_cached(&ctx.stores, question.namespace, queue) {
            return Answer::Change(Box::new(wanted));
        }
        let Some(found) = live::look(ctx, &self.managed, question.namespace, queue).await else {
            return Answer::Change(Box::new(wanted));
        };
        if found.managed_namespace && !facts.managed_namespace {
            // The owners mattered only once the namespace turned out to be managed.
            facts.managed_namespace = true;
            if job::may_be_ruled(self.kind, question.object, &facts) {
                facts.ruled = match self.rules_late(question, &facts).await {
                    Ok(ruled) => ruled,
                    Err(refused) => return refused,
                };
            }
        }
        let mut wanted = question.object.clone();
        job::default(self.kind, &mut wanted, &facts, |_| found.dispatches);
        Answer::Change(Box::new(wanted))
    }

    /// Whether a queued job owns the object, asked of the API server. A pod that is gated although
    /// its owner is queued stays gated and is charged twice, so an unknown owner denies it and its
    /// creator retries.
    async fn rules_late(
        &self,
        question: &Question<'_>,
        facts: &job::Facts,
    ) -> Result<bool, Answer> {
        late(self.kind, live::is_ruled(&self.ctx, question.object).await, facts.owned)
    }

    fn validate(&self, question: &Question<'_>) -> Answer {
        // Owners matter for kinds that are queued by their pods only.
        let ruled = if self.kind.held() == Held::ByPods {
            self.is_ruled(question.object)
        } else {
            Some(false)
        };
        if let Some(ruled) = ruled {
            return self.judge(question, ruled);
        }
        let (jobs, namespace, object) =
            (self.clone(), question.namespace.to_owned(), question.object.clone());
        let old = question.old.cloned();
        Answer::Later(Box::pin(async move {
            let question = Question { namespace: &namespace, object: &object, old: old.as_ref() };
            let owned = lookup::owned_by_job(&jobs.ctx.stores, &jobs.ctx.config, &object);
            jobs.judge(&question, live::is_ruled(&jobs.ctx, &object).await.unwrap_or(owned))
        }))
    }

    /// The job with the objects that its pods depend on attached, as far as the stores have them.
    fn attached<'a>(&self, job: &'a Value) -> Cow<'a, Value> {
        if self.kind.dependencies().is_empty() {
            return Cow::Borrowed(job);
        }
        let Ok(object) = Object::new(job.clone()) else { return Cow::Borrowed(job) };
        Cow::Owned(Arc::unwrap_or_clone(
            self.ctx.stores.attached(self.kind, Arc::new(object)).value(),
        ))
    }

    fn judge(&self, question: &Question<'_>, ruled: bool) -> Answer {
        let facts = self.facts(question, ruled);
        let mut errors = job::validate(self.kind, question.old, question.object, &facts);
        let (old, job) =
            (question.old.map(|old| self.attached(old)), self.attached(question.object));
        errors.extend(job::validate_topology(self.kind, old.as_deref(), &job, &facts));
        if !errors.is_empty() {
            return Answer::Refuse(errors);
        }
        let annotated = !self.ignores_queue_annotation && facts.managed_namespace;
        let annotated =
            annotated.then(|| job::annotation_warning(question.old, question.object)).flatten();
        let warning = job::warning(self.kind, question.old, question.object, &facts);
        let warnings: Vec<String> = annotated.into_iter().chain(warning).collect();
        if warnings.is_empty() { Answer::Allow } else { Answer::Warn(warnings) }
    }
}

/// `ruled` if it was read. Otherwise the pod is denied, and `owned` decides for other kinds.
fn late(kind: &dyn JobKind, ruled: Option<bool>, owned: bool) -> Result<bool, Answer> {
    match ruled {
        Some(ruled) => Ok(ruled),
        None if kind.held() == Held::Gated => Err(Answer::Refuse(vec![UNREAD.to_owned()])),
        None => Ok(owned),
    }
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
