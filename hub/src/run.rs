//! The hub's process: the admission controller, and around it the dispatcher and the agents' door.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, Client, ResourceExt as _};
use switchyard_agent::foreign::ForeignMarks;
use switchyard_controller::clock::Clock;
use switchyard_controller::{Context, Handle, Role};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster_channel::Ports;
use crate::cluster_reports::Reports;
use crate::dispatch::{Settings, StoreLoss};
use crate::dispatcher_task::{self, Inbox, Parts, SESSION_EVENTS};
use crate::hosted::{CLUSTER_PROFILE_GATE, HostedStates, Hosting, Profiles, Source};
use crate::metrics::{ClusterGauges, HubMetrics};
use crate::multikueue_cluster::{Reconciler, StoredClusters};
use crate::options::{HubOptions, Options, dispatch_settings};
use crate::server::{
    self, AgentService, CopyKeys, EnrolmentService, Gate, Registry, SecretTokens, Services,
    Sessions, TlsKeeper,
};
use crate::{api_clock, api_objects, authority_watch, hosted, multikueue_cluster, quota};
use switchyard_hub_pki::store::{self, Stored};

/// The API server has to answer within this at start.
const FIRST_CALLS: Duration = Duration::from_secs(60);
/// The first lists have to be there within this.
const FIRST_LISTS: Duration = Duration::from_secs(120);
/// How often expired tokens are swept.
const SWEEP: Duration = Duration::from_secs(600);
/// Parts that were told to end may take this long.
const FINISH: Duration = Duration::from_secs(10);
/// Runs until `shutdown`.
///
/// # Errors
/// A part failed, or ended by itself: the process should end too.
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
    // First those that decide and write, then the controller that they stand on.
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

/// Starts all parts and waits until one of them ends.
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
    let (Stored { authority, hub_id, memory_since, copy_key }, store_loss) = found;
    if let Some(since) = memory_since {
        tracing::warn!(%since, "this hub remembers nothing from before: what clusters have from then waits for its jobs");
    }
    tracing::info!(hub_id, ca_sha256 = authority.signer().pin(), "hub identity");
    let (authority, authorities) = watch::channel(Arc::new(authority));

    let (registry, ports, reports) =
        (Arc::new(Registry::default()), Arc::new(Ports::default()), Arc::new(Reports::default()));
    let states = Arc::new(HostedStates::default());
    let (term, watched) = watch::channel(None);
    let (events, heard) = mpsc::channel(SESSION_EVENTS);
    let sessions = Sessions::new(
        &hub_id,
        hub.server.clone(),
        registry.clone(),
        ports.clone(),
        watched.clone(),
        events,
    );
    let workloads = ctx.stores.workloads.clone();
    let guarded = sessions.guarding(move |cluster| api_objects::has_jobs(&workloads, cluster));
    let sessions = Arc::new(guarded.raising(ctx.epoch_floor.clone()));
    inbox.connect(&ctx.stores);
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

    let living = StoredClusters {
        store: ctx.stores.multi_kueue_clusters.clone(),
        client: ctx.client.clone(),
    };
    let gate = Gate::new(&hub_id, Arc::new(living), ctx.clock.clone());
    let tokens = Arc::new(SecretTokens::new(secrets.clone()));
    let services = Services {
        enrolment: EnrolmentService::new(
            gate.clone(),
            authorities.clone(),
            tokens,
            hub.server.agent_life,
        )
        .with_copy_keys(copy_keys.clone(), watched.clone()),
        agent: AgentService::new(gate, sessions.clone()),
    };
    let tls = Arc::new(TlsKeeper::new(authorities, hub.names.clone(), ctx.clock.clone())?);
    hub.listener.set_nonblocking(true).context("the agents' listener")?;
    let listener =
        tokio::net::TcpListener::from_std(hub.listener).context("the agents' listener")?;
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
    let parts = Parts {
        ctx: ctx.clone(),
        engine: handle.engine.clone(),
        inbox,
        ports,
        registry,
        term,
        reports,
        settings: Settings {
            lease: i64::try_from(hub.server.lease.as_millis()).unwrap_or(i64::MAX),
            store_loss,
            ..hub.dispatch.unwrap_or_else(|| dispatch_settings(&ctx.config))
        },
        metrics: HubMetrics::register(&ctx.metrics),
    };
    spawn(tasks, "dispatcher", dispatcher_task::run(parts, heard, stop.clone()));
    spawn(tasks, "agents' door", server::serve(listener, tls, services, hub.server, stop.clone()));
    spawn(
        tasks,
        "cluster conditions",
        ok(multikueue_cluster::Reconciler::run(reconciler, stop.clone())),
    );
    let hosting = Hosting {
        clusters: ctx.stores.multi_kueue_clusters.clone(),
        source: Source::new(secrets.clone(), hub.kubeconfig_dir).with_profiles(profiles(&ctx)),
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
    let ended = tasks.join_next().await;
    ctx.components.set("dispatcher", false);
    match ended {
        Some(Ok((name, Ok(())))) => anyhow::bail!("{name} ended by itself"),
        Some(Ok((name, Err(error)))) => Err(error.context(format!("{name} failed"))),
        Some(Err(error)) => Err(anyhow::Error::new(error).context("a part of the hub panicked")),
        None => Ok(()),
    }
}

/// ClusterProfiles, where they are switched on.
fn profiles(ctx: &Context) -> Option<Profiles> {
    let config = &ctx.config;
    config.enabled(CLUSTER_PROFILE_GATE).then(|| {
        let profile = config.multi_kueue.cluster_profile.clone().unwrap_or_default();
        let providers = [profile.access_providers, profile.credentials_providers].concat();
        Profiles::new(ctx.client.clone(), &ctx.namespace, providers)
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

/// The hub's id and authority. The id of a new hub is the uid of its cluster's kube-system namespace: unique, and as
/// old as what is stored in the cluster.
async fn identity(
    client: &Client,
    secrets: &Api<Secret>,
    address: Option<&str>,
    clock: &dyn Clock,
) -> anyhow::Result<(Stored, Option<StoreLoss>)> {
    use backon::{ExponentialBuilder, Retryable as _};
    let load = || async {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let system =
            namespaces.get("kube-system").await.context("reading the namespace kube-system")?;
        let hub_id = system.uid().context("the namespace kube-system has no uid")?;
        let now = api_clock::now(client, || clock.now()).await?;
        let stored = store::load_or_create(secrets, &hub_id, address, now).await?;
        let loss = stored.memory_since.map(|since| store_loss(since, now, clock.now()));
        Ok((stored, loss))
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
        match store::sweep(&secrets, Timestamp::now()).await {
            Ok(0) => {}
            Ok(swept) => tracing::info!(swept, "expired join tokens removed"),
            Err(error) => tracing::warn!(%error, "expired join tokens not removed"),
        }
    }
}
