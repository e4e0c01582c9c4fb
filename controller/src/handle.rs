//! Starts and stops a controller.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use switchyard_config::Configuration;
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::{
    audit,
    context::Context,
    endpoint::Endpoint,
    engine::{
        EngineHandle, admission::Admitter, capacity::Capacity, convert::time::engine_time,
        inbox::Inbox, recording::RecordedEngine, settings, task::EngineTask, views::Views,
    },
    event_conventions,
    gauges::{Gauges, LastShares},
    http::{self, MetricsReaders},
    metrics::{CustomLabels, LocalQueueFilter, Metrics, ReplicaRole},
    options::{self, LeaderMode, Options},
    reconcilers::{
        concurrent_admission, elastic, failure_recovery, job, priority, provisioning, queue_status,
        topology, workload,
    },
    stores::Stores,
    visibility,
    webhook::{self, WebhookOptions},
    workload::ReasonDetail,
};
use switchyard_platform::{
    clock::Clock,
    components::Components,
    events::{self, Events},
    lease::{Elector, EpochFloor, Leadership},
};

/// Deadline of the first lists. After it the process ends and names the missing kinds.
const FIRST_LISTS: Duration = Duration::from_secs(120);
/// Time for work in progress at shutdown.
const FINISH: Duration = Duration::from_secs(10);
/// Time for queued events at shutdown.
const FLUSH: Duration = Duration::from_secs(3);

type Tasks = JoinSet<(&'static str, anyhow::Result<()>)>;

/// A running controller. Dropping the handle does not stop it; [`Handle::shutdown`] does.
pub struct Handle {
    /// The client, stores, events and metrics that its tasks share.
    pub context: Arc<Context>,
    /// The remaining capacity of each LocalQueue. Changes at most five times a second.
    pub capacity: watch::Receiver<Arc<Capacity>>,
    pub engine: EngineHandle,
    shutdown: CancellationToken,
    closed: CancellationToken,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    #[must_use]
    pub fn stores(&self) -> &Arc<Stores> {
        &self.context.stores
    }

    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.context.leadership.clone()
    }

    /// Waits until the stores are filled and every part runs.
    ///
    /// # Errors
    ///
    /// After the deadline, or when the controller has ended.
    pub async fn ready(&self, deadline: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        // Its error names the missing kinds.
        self.context.stores.ready(deadline).await?;
        let run = async {
            while !self.context.components.checks().iter().all(|(_, ok)| *ok) {
                anyhow::ensure!(!self.ended.is_finished(), "the controller has ended");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        tokio::time::timeout(deadline.saturating_sub(start.elapsed()), run)
            .await
            .context("the controller is not ready in time")?
    }

    /// Starts the shutdown: no new work begins, work in progress is finished, events are flushed,
    /// the Lease is released.
    pub fn shutdown(&self) {
        self.shutdown.cancel();
    }

    /// The token that [`Handle::shutdown`] cancels, for callers that also wait in
    /// [`Handle::ended`].
    #[must_use]
    pub fn stopper(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Returns when the controller has ended for any reason. [`Handle::ended`] tells which.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Waits for the end. It comes at most 16 s after [`Handle::shutdown`].
    ///
    /// # Errors
    ///
    /// When a part failed, panicked, or ended by itself.
    pub async fn ended(self) -> anyhow::Result<()> {
        self.ended.await.context("the controller panicked")?
    }
}

/// Runs a controller until `shutdown`.
///
/// # Errors
///
/// When a part failed, panicked, or ended by itself. The process should end too.
pub async fn run(options: Options, shutdown: CancellationToken) -> anyhow::Result<()> {
    let handle = start(options)?;
    let stop = handle.shutdown.clone();
    let ended = handle.ended();
    tokio::pin!(ended);
    tokio::select! {
        biased;
        () = shutdown.cancelled() => stop.cancel(),
        result = &mut ended => return result,
    }
    ended.await
}

/// Starts a controller. Needs a tokio runtime.
///
/// # Errors
///
/// When the configuration is invalid.
pub fn start(options: Options) -> anyhow::Result<Handle> {
    let recording = options.recording.clone();
    let mut parts = Parts::new(options);
    let resources = parts.context.config.metrics.enable_cluster_queue_resources;
    let (inbox, views) = (Arc::new(Inbox::default()), Arc::new(Views::new(resources)));
    let admitter = Admitter::new(parts.context.clone(), inbox.clone(), parts.placement.clone());
    let engine = settings::new_engine(&parts.context.config);
    let engine =
        RecordedEngine::new(engine, recording.as_ref(), engine_time(parts.context.clock.now()));
    let (engine, handle, capacity) = EngineTask::new(
        parts.context.clone(),
        engine,
        inbox.clone(),
        admitter.clone(),
        views.clone(),
    );
    let context = parts.context.clone();
    context.metrics.set_local_queue_filter(LocalQueueFilter::new(
        &context.config,
        &context.stores.local_queues,
    )?);
    let custom = CustomLabels::new(&context.config, &context.stores).map(Arc::new);
    if let Some(custom) = custom.clone() {
        context.metrics.set_custom_labels(custom);
    }
    let gauges = Gauges {
        views: views.clone(),
        stores: context.stores.clone(),
        metrics: Arc::downgrade(&context.metrics),
        resources,
        unadmitted: ReasonDetail::of(&context.config) == ReasonDetail::Full,
        fair: context.config.fair_sharing.is_some(),
        shares: LastShares::default(),
        custom,
    };
    context.metrics.register(|registry| registry.register_collector(Box::new(gauges)));
    let shutdown = CancellationToken::new();
    let (asked, webhook, visibility) =
        (handle.clone(), parts.webhook.take(), parts.visibility.take());
    let audit = parts.audit;
    let work = Work { engine, asked, admitter, inbox, views, webhook, visibility, audit };
    let closed = CancellationToken::new();
    // The guard cancels `closed` even if the supervisor panics.
    let close = closed.clone().drop_guard();
    let supervised = supervise(parts, work, shutdown.clone());
    let ended = tokio::spawn(async move {
        let _close = close;
        supervised.await
    });
    Ok(Handle { context, capacity, engine: handle, shutdown, closed, ended })
}

struct Parts {
    context: Arc<Context>,
    placement: Option<Arc<dyn crate::engine::placement::Placement>>,
    events: events::EventWriter,
    elector: Option<Elector>,
    health: Option<std::net::TcpListener>,
    metrics: Option<Endpoint>,
    webhook: Option<WebhookOptions>,
    visibility: Option<Endpoint>,
    audit: Option<Duration>,
}

/// Everything that starts after the first lists.
struct Work {
    engine: EngineTask,
    asked: EngineHandle,
    admitter: Arc<Admitter>,
    inbox: Arc<Inbox>,
    views: Arc<Views>,
    webhook: Option<WebhookOptions>,
    visibility: Option<Endpoint>,
    audit: Option<Duration>,
}

impl Parts {
    fn new(options: Options) -> Self {
        let (events, writer) =
            Events::new(options.client.clone(), &options.identity, event_conventions::KUEUE);
        let epoch_floor = EpochFloor::default();
        let (elector, leadership) = elect(&options, &epoch_floor);
        let metrics = Arc::new(Metrics::default());
        let dropped = events.dropped();
        metrics.register(|registry| {
            let ours = registry.sub_registry_with_prefix("switchyard");
            ours.register("events_dropped", "Events not written because too many waited", dropped);
            let skipped = switchyard_platform::readable::skipped();
            ours.register(
                "objects_skipped",
                "Times that an object was skipped because it cannot be read",
                skipped,
            );
        });
        let context = Arc::new(Context {
            stores: Arc::new(Stores::new(&options.config)),
            client: options.client,
            events,
            config: options.config,
            leadership,
            epoch_floor,
            clock: options.clock,
            metrics,
            role: options.role,
            namespace: options.namespace,
            components: Components::default(),
            term_start: crate::context::TermStart::default(),
        });
        context.components.set("engine", false);
        let (placement, health, webhook) = (options.placement, options.health, options.webhook);
        let (metrics, visibility, audit) = (options.metrics, options.visibility, options.audit);
        Self {
            context,
            placement,
            events: writer,
            elector,
            health,
            metrics,
            webhook,
            visibility,
            audit,
        }
    }
}

fn elect(options: &Options, floor: &EpochFloor) -> (Option<Elector>, watch::Receiver<Leadership>) {
    match options.leader {
        LeaderMode::Elect => {
            let timing = options::lease_timing(&options.config);
            let election = &options.config.leader_election;
            let (name, namespace) = (&election.resource_name, &election.resource_namespace);
            let namespace = if namespace.is_empty() { &options.namespace } else { namespace };
            let clock: Arc<dyn Clock> = options.clock.clone();
            let (elector, leadership) = Elector::new(
                options.client.clone(),
                namespace,
                name,
                &options.identity,
                timing,
                clock,
                floor.clone(),
            );
            (Some(elector), leadership)
        }
        // The sender is dropped at once. The last value stays readable.
        LeaderMode::Always => (None, watch::channel(Leadership::alone()).1),
    }
}

/// Starts all parts and waits for the end. Then it stops them in order: workers first, then the
/// event writer, then leader election and the health server.
async fn supervise(parts: Parts, work: Work, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Parts { context: ctx, events, elector, health, metrics, .. } = parts;
    let (flush, leave) = (CancellationToken::new(), CancellationToken::new());
    let mut base = Tasks::new();
    let mut workers = Tasks::new();
    if let Some(listener) = health {
        let readers =
            metrics.as_ref().map_or(MetricsReaders::Everybody, |_| MetricsReaders::Authorized);
        spawn(&mut base, "http", http::serve(ctx.clone(), listener, readers, leave.clone()));
    }
    if let Some(endpoint) = metrics {
        spawn(&mut base, "metrics", http::metrics::run(ctx.clone(), endpoint, leave.clone()));
    }
    if let Some(elector) = elector {
        spawn(&mut base, "leader election", ok(elector.run(leave.clone())));
    }
    spawn(&mut base, "replica role", ok(follow_role(ctx.clone(), leave.clone())));
    let mut writer = Tasks::new();
    spawn(&mut writer, "events", ok(events.run(flush.clone())));
    let mut watches = JoinSet::new();
    ctx.stores.watch(&ctx.client, ctx.role, &ctx.config, &mut watches, &leave);

    let mut result = tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        ended = base.join_next() => unexpected(ended),
        ended = watches.join_next() => watch_ended(ended),
        result = begin(&ctx, work, &mut workers, &shutdown) => result,
    };
    if result.is_ok() {
        result = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            ended = workers.join_next() => unexpected(ended),
            ended = base.join_next() => unexpected(ended),
            ended = writer.join_next() => unexpected(ended),
            ended = watches.join_next() => watch_ended(ended),
        };
    }
    if let Err(error) = &result {
        tracing::error!(error = format!("{error:#}"), "controller ends");
    }
    shutdown.cancel();
    finish("workers", &mut workers, FINISH).await;
    flush.cancel();
    finish("events", &mut writer, FLUSH).await;
    leave.cancel();
    finish("base", &mut base, FLUSH).await;
    result
}

/// Fills the stores, connects the engine to them, and starts the workers.
async fn begin(
    ctx: &Arc<Context>,
    work: Work,
    workers: &mut Tasks,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let Work { engine, asked, admitter, inbox, views, webhook, visibility, audit: audit_every } =
        work;
    let (filled, when_filled) = watch::channel(false);
    if let Some(webhook) = webhook {
        // Not ready until the webhooks are registered. The first lists may need their conversions.
        ctx.components.set("webhook", false);
        spawn(
            workers,
            "webhook",
            webhook::run(ctx.clone(), webhook, when_filled, shutdown.clone()),
        );
    }
    tokio::select! {
        filled = ctx.stores.ready(first_lists(&ctx.config)) => filled?,
        // Without conversions the first lists may never arrive.
        Some(ended) = workers.join_next() => return unexpected(Some(ended)),
    }
    filled.send_replace(true);
    inbox.connect(&ctx.stores, &ctx.config);
    spawn(workers, "engine", ok(engine.run(shutdown.clone())));
    spawn(workers, "admission", ok(admitter.run(shutdown.clone())));
    spawn(workers, "lifecycle", ok(workload::run(ctx.clone(), views.clone(), shutdown.clone())));
    spawn(workers, "status", ok(queue_status::run(ctx.clone(), views, shutdown.clone())));
    spawn(workers, "priorities", ok(priority::run(ctx.clone(), shutdown.clone())));
    spawn(workers, "failure recovery", ok(failure_recovery::run(ctx.clone(), shutdown.clone())));
    spawn(workers, "elastic jobs", ok(elastic::run(ctx.clone(), shutdown.clone())));
    spawn(workers, "places of pods", ok(topology::ungate::run(ctx.clone(), shutdown.clone())));
    spawn(workers, "failed nodes", ok(topology::failures::run(ctx.clone(), shutdown.clone())));
    spawn(workers, "variants", ok(concurrent_admission::run(ctx.clone(), shutdown.clone())));
    spawn(workers, "provisioning requests", ok(provisioning::run(ctx.clone(), shutdown.clone())));
    spawn(workers, "jobs", job::run(ctx.clone(), shutdown.clone()));
    if let Some(every) = audit_every {
        spawn(workers, "audit", ok(audit::run(ctx.clone(), every, shutdown.clone())));
    }
    if let Some(endpoint) = visibility {
        ctx.components.set("visibility", false);
        spawn(
            workers,
            "visibility",
            visibility::run(ctx.clone(), asked, endpoint, shutdown.clone()),
        );
    }
    ctx.components.set("engine", true);
    tracing::info!(role = ?ctx.role, workloads = ctx.stores.workloads.len(), "controller running");
    Ok(())
}

/// `controller.cacheSyncTimeout`: deadline of the first lists.
fn first_lists(config: &Configuration) -> Duration {
    let timeout = config.controller.cache_sync_timeout.and_then(|nanos| u64::try_from(nanos).ok());
    timeout.filter(|nanos| *nanos > 0).map_or(FIRST_LISTS, Duration::from_nanos)
}

fn spawn<F>(tasks: &mut Tasks, name: &'static str, task: F)
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    tasks.spawn(async move { (name, task.await) });
}

async fn ok<T>(task: impl Future<Output = T>) -> anyhow::Result<()> {
    task.await;
    Ok(())
}

type Ended = Option<Result<(&'static str, anyhow::Result<()>), tokio::task::JoinError>>;

/// A part that ends by itself is an error: the process would look alive without working.
fn unexpected(ended: Ended) -> anyhow::Result<()> {
    match ended {
        None => Ok(()),
        Some(Ok((name, Ok(())))) => anyhow::bail!("{name} ended by itself"),
        Some(Ok((name, Err(error)))) => Err(error.context(format!("{name} failed"))),
        Some(Err(error)) => Err(anyhow::Error::new(error).context("a part panicked")),
    }
}

fn watch_ended(
    ended: Option<Result<anyhow::Result<()>, tokio::task::JoinError>>,
) -> anyhow::Result<()> {
    match ended {
        Some(Ok(Err(error))) => Err(error),
        Some(Err(error)) => Err(anyhow::Error::new(error).context("a watch panicked")),
        Some(Ok(Ok(()))) | None => anyhow::bail!("a watch ended by itself"),
    }
}

async fn finish(what: &str, tasks: &mut Tasks, deadline: Duration) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(deadline, all).await.is_err() {
        tracing::warn!(what, ?deadline, "not finished in time, aborted");
        tasks.shutdown().await;
    }
}

/// Labels metrics with the replica's role.
async fn follow_role(ctx: Arc<Context>, shutdown: CancellationToken) {
    let mut leadership = ctx.leadership.clone();
    loop {
        let Leadership { leading, epoch, .. } = *leadership.borrow_and_update();
        ctx.metrics.set_role(match (leading, epoch) {
            (true, 0) if leadership.has_changed().is_err() => ReplicaRole::Standalone,
            (true, _) => ReplicaRole::Leader,
            (false, _) => ReplicaRole::Follower,
        });
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = leadership.changed() => if changed.is_err() { return shutdown.cancelled().await },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a part's end is reported.
    async fn ended(part: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> String {
        let mut tasks = Tasks::new();
        spawn(&mut tasks, "engine", part);
        format!("{:#}", unexpected(tasks.join_next().await).unwrap_err())
    }

    #[tokio::test]
    async fn part_that_ends_by_itself_is_an_error() {
        assert_eq!(ended(async { Ok(()) }).await, "engine ended by itself");
        assert_eq!(ended(async { anyhow::bail!("no room") }).await, "engine failed: no room");
        let said = ended(async { panic!("a bug") }).await;
        assert!(said.starts_with("a part panicked") && said.contains("a bug"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_part_is_aborted() {
        let mut tasks = Tasks::new();
        spawn(&mut tasks, "stuck", std::future::pending());
        finish("workers", &mut tasks, FINISH).await;
        assert!(tasks.is_empty());
    }
}
