//! The hub's process: the admission controller, and around it the dispatcher and the agents' door.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, Client, ResourceExt as _};
use switchyard_agent::foreign::ForeignMarks;
use switchyard_api::names;
use switchyard_config::{Configuration, MultiKueue};
use switchyard_controller::{Context, Handle, Role};
use switchyard_dispatcher::{DispatchMode, DispatcherSettings, StoreLoss};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster_channel::Ports;
use crate::copy_keys::CopyKeys;
use crate::dispatcher_task::{self, Inbox, Parts, Reports, SESSION_EVENTS};
use crate::hosted::{CLUSTER_PROFILE_GATE, HostedStates, Hosting, PATH_PREFIX, Profiles, Source};
use crate::metrics::{ClusterGauges, HubMetrics};
use crate::multikueue_cluster::{Reconciler, StoredClusters};
use switchyard_hub_pki::store::{self, Stored};
use crate::server::{
    self, AgentService, EnrolmentService, Gate, Registry, SecretTokens, Services, Sessions,
    TlsKeeper,
};
use crate::{api_clock, authority_watch, hosted, multikueue_cluster, quota};

/// The API server has to answer within this at start.
const FIRST_CALLS: Duration = Duration::from_secs(60);
/// The first lists have to be there within this.
const FIRST_LISTS: Duration = Duration::from_secs(120);
/// How often expired tokens are swept.
const SWEEP: Duration = Duration::from_secs(600);
/// Parts that were told to end may take this long.
const FINISH: Duration = Duration::from_secs(10);
/// The round of Kueue's incremental dispatcher, in milliseconds.
const ROUND: i64 = 5 * 60_000;
/// For so long no other worker may preempt for a workload, as in Kueue. Milliseconds.
const PREEMPTION_TIMEOUT: i64 = 5 * 60_000;

/// What a caller gives to run a hub.
pub struct Options {
    /// The admission controller: of the hub, or of the single cluster.
    pub controller: switchyard_controller::Options,
    /// The rest of a hub; none runs a single cluster.
    pub hub: Option<HubOptions>,
}

/// What a hub needs besides its controller.
pub struct HubOptions {
    /// Where agents dial in.
    pub listener: TcpListener,
    /// How agents reach that, for people: https://HOST[:PORT].
    pub advertise: Option<String>,
    /// Names and addresses in the listener's certificate, besides the one that agents ask for.
    pub names: Vec<String>,
    /// Deadlines and bounds.
    pub server: server::Settings,
    /// Where kubeconfigs by path may lie.
    pub kubeconfig_dir: PathBuf,
    /// The dispatcher's settings; none takes them from the configuration.
    pub dispatch: Option<DispatcherSettings>,
}

impl HubOptions {
    /// A hub that agents reach at this listener.
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            advertise: None,
            names: Vec::new(),
            server: server::Settings::default(),
            kubeconfig_dir: PATH_PREFIX.into(),
            dispatch: None,
        }
    }
}

/// What the configuration says of dispatching.
pub fn dispatch_settings(config: &Configuration) -> DispatcherSettings {
    let multi_kueue = &config.multi_kueue;
    let mode = match multi_kueue.dispatcher_name.as_str() {
        names::DISPATCHER_BEST_FIT => DispatchMode::BestFit,
        names::DISPATCHER_ALL_AT_ONCE => DispatchMode::AllAtOnce,
        names::DISPATCHER_INCREMENTAL => {
            let configured = config.enabled("MultiKueueIncrementalDispatcherConfig");
            let step = if configured {
                multi_kueue.step_size()
            } else {
                MultiKueue::default().step_size()
            };
            DispatchMode::Incremental { step, round: ROUND }
        }
        _ => DispatchMode::External,
    };
    let timeout =
        i64::try_from(multi_kueue.worker_lost_timeout.std().as_millis()).unwrap_or(i64::MAX);
    let gated = mode.keeps_copies() && config.enabled("MultiKueueOrchestratedPreemption");
    let preemption_timeout = gated.then_some(PREEMPTION_TIMEOUT);
    let by_name = !config.enabled("MultiKueueIncrementalDispatcherRespectConfigOrder");
    let mut settings = DispatcherSettings {
        mode,
        worker_lost_timeout: timeout,
        preemption_timeout,
        nominate_by_name: by_name,
        ..DispatcherSettings::default()
    };
    if multi_kueue.gc_interval.std().is_zero() {
        // No garbage collection: what is unknown is reported, and stays.
        settings.orphan_grace = i64::MAX;
    }
    settings
}

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
    let guarded = sessions.guarding(move |cluster| hosted::has_jobs(&workloads, cluster));
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
        settings: DispatcherSettings {
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
    spawn(tasks, "authority", ok(authority_watch::follow(secrets, authority, ctx.clone(), stop.clone())));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatchers_are_known_by_kueues_names() {
        let mode = |name: &str| {
            let mut config = Configuration::default();
            config.multi_kueue.dispatcher_name = name.to_owned();
            dispatch_settings(&config).mode
        };
        assert_eq!(dispatch_settings(&Configuration::default()).mode, DispatchMode::BestFit);
        assert_eq!(
            mode("kueue.x-k8s.io/multikueue-dispatcher-all-at-once"),
            DispatchMode::AllAtOnce
        );
        let incremental = DispatchMode::Incremental { step: 3, round: 300_000 };
        assert_eq!(mode("kueue.x-k8s.io/multikueue-dispatcher-incremental"), incremental);
        assert_eq!(mode("example.com/mine"), DispatchMode::External);
        assert_eq!(dispatch_settings(&Configuration::default()).worker_lost_timeout, 900_000);
    }

    #[test]
    fn gates_switch_what_the_incremental_dispatcher_goes_by() {
        let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                    multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, \
                    incrementalDispatcherConfig: {stepSize: 7}}\n";
        let settings = |gates: &str| {
            let config = switchyard_config::load_with_gates(file, gates).unwrap();
            assert_eq!(config.ignored(), []);
            let settings = dispatch_settings(&config);
            (settings.mode, settings.nominate_by_name)
        };
        let of = |step| DispatchMode::Incremental { step, round: 300_000 };
        assert_eq!(settings(""), (of(7), false));
        assert_eq!(settings("MultiKueueIncrementalDispatcherConfig=false"), (of(3), false));
        assert_eq!(
            settings("MultiKueueIncrementalDispatcherRespectConfigOrder=false"),
            (of(7), true)
        );
    }

    #[test]
    fn copies_have_gates_where_several_clusters_are_asked_and_the_feature_is_on() {
        let timeout = |name: &str, on: bool| {
            let mut config = Configuration::default();
            config.multi_kueue.dispatcher_name = name.to_owned();
            config.feature_gates.insert("MultiKueueOrchestratedPreemption".to_owned(), on);
            dispatch_settings(&config).preemption_timeout
        };
        assert_eq!(timeout(names::DISPATCHER_ALL_AT_ONCE, true), Some(300_000));
        assert_eq!(timeout("example.com/mine", true), Some(300_000));
        assert_eq!(timeout(names::DISPATCHER_ALL_AT_ONCE, false), None);
        assert_eq!(
            timeout(names::DISPATCHER_BEST_FIT, true),
            None,
            "one cluster at a time is asked"
        );
    }
}
