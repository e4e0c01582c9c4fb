//! The hub's process: the admission controller, the dispatcher, and the agents' server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, Client, ResourceExt as _};
use switchyard_agent::foreign::ForeignMarks;
use switchyard_controller::{Context, Handle, Role};
use switchyard_dispatcher::{DispatcherSettings, StoreLoss};
use switchyard_hub_pki::store::{self, HubIdentity};
use switchyard_hub_pki::token_store;
use switchyard_platform::api_call::with_deadline;
use switchyard_platform::clock::Clock;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster_channel::ClusterChannels;
use crate::cluster_reports::ClusterReports;
use crate::dispatcher_task::{self, Inbox, SESSION_EVENTS, TaskInputs};
use crate::hosted::{
    CLUSTER_PROFILE_GATE, ClusterProfiles, HostedStates, Hosting, KubeconfigSource,
};
use crate::metrics::{ClusterGauges, HubMetrics};
use crate::multikueue_cluster::{Reconciler, StoredClusters};
use crate::options::{HubOptions, Options, dispatch_settings};
use crate::server::{
    self, AgentService, AgentServices, Authorizer, CopyKeys, EnrolmentService, ListenerTls,
    Registry, Sessions, TokenCache,
};
use crate::{api_clock, api_objects, authority_watch, hosted, multikueue_cluster, quota};

/// How long the API server may take to answer at the start.
const FIRST_CALLS: Duration = Duration::from_secs(60);
/// Deadline of one of them.
const FIRST_CALL: Duration = Duration::from_secs(20);
/// How long the first lists may take.
const FIRST_LISTS: Duration = Duration::from_secs(120);
/// How often expired join tokens are removed.
const SWEEP: Duration = Duration::from_secs(600);
/// How long the hub's tasks may take to stop.
const FINISH: Duration = Duration::from_secs(10);

/// Runs until `shutdown`.
///
/// # Errors
/// A task failed or ended: the process should end, too.
pub async fn run(options: Options, shutdown: CancellationToken) -> anyhow::Result<()> {
    match options.hub {
        None => switchyard_controller::run(options.controller, shutdown).await,
        Some(hub) => run_hub(options.controller, hub, shutdown).await,
    }
}

async fn run_hub(
    mut controller: switchyard_controller::Options,
    hub: HubOptions,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let inbox = Arc::new(Inbox::default());
    controller.role = Role::Hub;
    controller.placement = Some(inbox.clone());
    let handle = switchyard_controller::start(controller)?;
    handle.context.components.set("dispatcher", false);
    let stop = CancellationToken::new();
    let mut tasks: Tasks = JoinSet::new();
    let result = tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        () = handle.closed() => Err(anyhow::anyhow!("the admission controller ended")),
        ended = serve(&handle, hub, inbox, &mut tasks, &stop) => ended,
    };
    // Stop the tasks that decide and write before the controller that they use.
    stop.cancel();
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(FINISH, all).await.is_err() {
        tracing::warn!("the hub's parts did not end in time, aborted");
        tasks.shutdown().await;
    }
    handle.shutdown();
    let ended = handle.ended().await;
    result.and(ended)
}

type Tasks = JoinSet<(&'static str, anyhow::Result<()>)>;

/// Starts all tasks and waits until one ends.
async fn serve(
    handle: &Handle,
    hub: HubOptions,
    inbox: Arc<Inbox>,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let ctx = handle.context.clone();
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let found = identity(&ctx.client, &secrets, hub.advertise.as_deref(), &*ctx.clock).await?;
    let (HubIdentity { authority, hub_id, memory_since, copy_key }, store_loss) = found;
    if let Some(since) = memory_since {
        tracing::warn!(%since, "this hub remembers nothing from before: what clusters have from then waits for its jobs");
    }
    tracing::info!(hub_id, ca_sha256 = authority.signer().pin(), "hub identity");
    let (authority, authorities) = watch::channel(Arc::new(authority));

    let (registry, channels, reports) = (
        Arc::new(Registry::default()),
        Arc::new(ClusterChannels::default()),
        Arc::new(ClusterReports::default()),
    );
    let states = Arc::new(HostedStates::default());
    let (term, watched) = watch::channel(None);
    let (events, session_events) = mpsc::channel(SESSION_EVENTS);
    let sessions = Sessions::new(
        &hub_id,
        hub.server.clone(),
        registry.clone(),
        channels.clone(),
        watched.clone(),
        events,
    );
    let sessions = sessions.with_clock(ctx.clock.clone());
    let workloads = ctx.stores.workloads.clone();
    let guarded =
        sessions.with_job_guard(move |cluster| api_objects::has_jobs(&workloads, cluster));
    let sessions = Arc::new(guarded.with_epoch_floor(ctx.epoch_floor.clone()));
    inbox.connect(&ctx.stores, store_loss.is_some());
    let clusters = ctx.stores.multi_kueue_clusters.clone();
    let copy_keys =
        CopyKeys::new(copy_key, secrets.clone(), clusters, registry.clone(), ctx.clock.clone());
    let copy_keys = Arc::new(copy_keys);
    let reconciler = Reconciler::new(
        ctx.clone(),
        registry.clone(),
        reports.clone(),
        states.clone(),
        copy_keys.clone(),
    );

    let authorizer = authorizer(&ctx, &hub_id);
    let enrolment = EnrolmentService::new(
        authorizer.clone(),
        authorities.clone(),
        Arc::new(TokenCache::new(secrets.clone())),
        hub.server.agent_certificate_life,
    );
    let services = AgentServices {
        enrolment: enrolment.with_copy_keys(copy_keys.clone(), watched.clone()),
        agent: AgentService::new(authorizer, sessions.clone()),
    };
    let tls = Arc::new(ListenerTls::new(authorities, hub.names.clone(), ctx.clock.clone())?);
    let listener = agent_listener(hub.listener)?;
    tracing::info!(address = %listener.local_addr()?, "agents may dial in");

    let gauges =
        ClusterGauges { ctx: ctx.clone(), registry: registry.clone(), reports: reports.clone() };
    let foreign = ForeignMarks::default();
    ctx.metrics.register(|shown| {
        foreign.show(shown);
        shown.register_collector(Box::new(gauges));
        registry.show(shown);
    });
    ctx.stores.ready(FIRST_LISTS).await?;
    spawn(tasks, "quota of workers", ok(quota::run(ctx.clone(), reports.clone(), stop.clone())));
    let inputs = TaskInputs {
        ctx: ctx.clone(),
        engine: handle.engine.clone(),
        inbox,
        channels,
        registry,
        term,
        reports,
        settings: DispatcherSettings {
            lease: i64::try_from(hub.server.lease.as_millis()).unwrap_or(i64::MAX),
            store_loss,
            ..hub.dispatch.unwrap_or_else(|| dispatch_settings(&ctx.config))
        },
        metrics: HubMetrics::register(&ctx.metrics),
    };
    spawn(tasks, "dispatcher", dispatcher_task::run(inputs, session_events, stop.clone()));
    spawn(tasks, "agents' door", server::serve(listener, tls, services, hub.server, stop.clone()));
    spawn(
        tasks,
        "cluster conditions",
        ok(multikueue_cluster::Reconciler::run(reconciler, stop.clone())),
    );
    let hosting = Hosting {
        clusters: ctx.stores.multi_kueue_clusters.clone(),
        source: KubeconfigSource::new(secrets.clone(), hub.kubeconfig_dir)
            .with_profiles(profiles(&ctx)),
        sessions,
        states,
        hub_id,
        ctx: ctx.clone(),
        origin: ctx.config.multi_kueue.origin.clone(),
        frameworks: ctx.config.all_frameworks(),
        copy_keys,
        foreign,
        term: watched,
    };
    spawn(tasks, "hosted agents", ok(hosted::run(hosting, stop.clone())));
    spawn(
        tasks,
        "token sweep",
        ok(sweep_tokens(secrets.clone(), handle.leadership(), stop.clone())),
    );
    spawn(
        tasks,
        "authority",
        ok(authority_watch::follow(secrets, authority, ctx.clone(), stop.clone())),
    );
    ctx.components.set("dispatcher", true);
    let ended = first_end(tasks).await;
    ctx.components.set("dispatcher", false);
    ended
}

/// Waits until a task ends. No task should.
async fn first_end(tasks: &mut Tasks) -> anyhow::Result<()> {
    match tasks.join_next().await {
        Some(Ok((name, Ok(())))) => anyhow::bail!("{name} ended by itself"),
        Some(Ok((name, Err(error)))) => Err(error.context(format!("{name} failed"))),
        Some(Err(error)) => Err(anyhow::Error::new(error).context("a part of the hub panicked")),
        None => Ok(()),
    }
}

fn authorizer(ctx: &Context, hub_id: &str) -> Authorizer {
    let clusters = StoredClusters {
        store: ctx.stores.multi_kueue_clusters.clone(),
        client: ctx.client.clone(),
    };
    Authorizer::new(hub_id, Arc::new(clusters), ctx.clock.clone())
}

fn agent_listener(listener: std::net::TcpListener) -> anyhow::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true).context("the agents' listener")?;
    tokio::net::TcpListener::from_std(listener).context("the agents' listener")
}

/// None if the feature gate is off.
fn profiles(ctx: &Context) -> Option<ClusterProfiles> {
    let config = &ctx.config;
    config.enabled(CLUSTER_PROFILE_GATE).then(|| {
        let profile = config.multi_kueue.cluster_profile.clone().unwrap_or_default();
        let providers = [profile.access_providers, profile.credentials_providers].concat();
        ClusterProfiles::new(ctx.client.clone(), &ctx.namespace, providers)
    })
}

fn spawn(
    tasks: &mut Tasks,
    name: &'static str,
    task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) {
    tasks.spawn(async move { (name, task.await) });
}

async fn ok(task: impl Future<Output = ()>) -> anyhow::Result<()> {
    task.await;
    Ok(())
}

/// The hub's id and CA. A new hub's id is the uid of its cluster's namespace kube-system: unique,
/// and as old as the cluster's store.
async fn identity(
    client: &Client,
    secrets: &Api<Secret>,
    address: Option<&str>,
    clock: &dyn Clock,
) -> anyhow::Result<(HubIdentity, Option<StoreLoss>)> {
    use backon::{ExponentialBuilder, Retryable as _};
    let load = || async {
        let loaded = tokio::time::timeout(FIRST_CALL, async {
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let system =
                namespaces.get("kube-system").await.context("reading the namespace kube-system")?;
            let hub_id = system.uid().context("the namespace kube-system has no uid")?;
            let now = api_clock::now(client, || clock.now()).await?;
            let stored = store::load_or_create(secrets, &hub_id, address, now).await?;
            let loss = stored.memory_since.map(|since| store_loss(since, now, clock.now()));
            anyhow::Ok((stored, loss))
        });
        loaded.await.context("no answer from the API server")?
    };
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(5))
        .with_total_delay(Some(FIRST_CALLS))
        .without_max_times();
    let notify = |error: &anyhow::Error, pause: Duration| {
        tracing::warn!(
            error = format!("{error:#}"),
            ?pause,
            "the hub's identity cannot be read yet"
        );
    };
    load.retry(backoff).notify(notify).await
}

fn store_loss(since: Timestamp, api_now: Timestamp, now: Timestamp) -> StoreLoss {
    StoreLoss::new(since.as_millisecond(), api_now.as_millisecond(), now.as_millisecond())
}

async fn sweep_tokens(
    secrets: Api<Secret>,
    leadership: watch::Receiver<switchyard_platform::lease::Leadership>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP) => {}
        }
        if !leadership.borrow().leading {
            continue;
        }
        match with_deadline(token_store::sweep(&secrets, Timestamp::now())).await {
            Ok(0) => {}
            Ok(swept) => tracing::info!(swept, "expired join tokens removed"),
            Err(error) => tracing::warn!(%error, "expired join tokens not removed"),
        }
    }
}
