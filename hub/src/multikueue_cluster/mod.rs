//! Reconciles the status of MultiKueueClusters and of AdmissionChecks that use them, and closes the
//! session of a deleted MultiKueueCluster.

pub mod conditions;
mod status;
mod status_draft;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use switchyard_api::conditions as api_conditions;
use switchyard_api::conditions::reasons::multi_kueue_cluster as reasons;
use switchyard_api::names;
use switchyard_api::v1beta2::{
    AdmissionCheck, AdmissionCheckStatus, ClusterQueue, MultiKueueCluster, MultiKueueClusterStatus,
};
use switchyard_controller::Context;
use switchyard_platform::api_call::within;
use switchyard_platform::store::{Change, Store};
use switchyard_platform::work_queue::{self, Outcome, Queue};
use switchyard_platform::write::{Target, WriteError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster_reports::ClusterReports;
use crate::hosted::{CLUSTER_PROFILE_GATE, HostedStates};
use crate::reachability::{self, Reachability};
use crate::server::{ClusterLookup, CopyKeys, KnownCluster, Registry};
pub use status::agent_status;
use status_draft::{StatusDraft, StatusPlan};

/// Concurrent status writes.
const WRITERS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ReconcileKey {
    Cluster(String),
    Check(String),
}

/// Deadline of [`ClusterLookup::look_up`].
const LOOK_UP: Duration = Duration::from_secs(10);

/// MultiKueueClusters for the authorization of agents.
pub struct StoredClusters {
    /// As the watch shows them.
    pub store: Store<MultiKueueCluster>,
    /// For MultiKueueClusters that the watch does not show yet.
    pub client: Client,
}

impl ClusterLookup for StoredClusters {
    fn agent_cluster(&self, name: &str) -> Option<String> {
        let cluster = self.store.get("", name)?;
        may_have_agent(&cluster).then(|| cluster.uid()).flatten()
    }

    fn look_up<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        Box::pin(async move {
            let found = within(LOOK_UP, api.get_opt(name)).await;
            let cluster = found
                .inspect_err(|error| tracing::warn!(cluster = name, %error, "cluster not read"))
                .ok()??;
            may_have_agent(&cluster).then(|| cluster.uid()).flatten()
        })
    }
}

fn known_cluster(cluster: &MultiKueueCluster) -> KnownCluster {
    let made = cluster.creation_timestamp().map_or(i64::MAX, |at| at.0.as_second());
    let agent = cluster.status.as_ref().and_then(|status| status.agent.as_ref());
    let worker = agent.and_then(|agent| agent.cluster_uid.clone());
    let worker = worker.filter(|_| cluster.metadata.deletion_timestamp.is_none());
    let session = agent.and_then(|agent| agent.session_id.as_deref()?.parse().ok());
    KnownCluster { rank: (made, cluster.name_any()), worker, session }
}

fn may_have_agent(cluster: &MultiKueueCluster) -> bool {
    cluster.metadata.deletion_timestamp.is_none() && cluster.spec.cluster_source.agent.is_some()
}

/// Writes status, and closes sessions.
pub struct Reconciler {
    ctx: Arc<Context>,
    registry: Arc<Registry>,
    reports: Arc<ClusterReports>,
    hosted: Arc<HostedStates>,
    copy_keys: Arc<CopyKeys>,
    queue: Queue<ReconcileKey>,
    written: Mutex<BTreeMap<String, Instant>>,
}

impl Reconciler {
    /// Subscribes to the stores. Writes nothing before [`Self::run`].
    pub fn new(
        ctx: Arc<Context>,
        registry: Arc<Registry>,
        reports: Arc<ClusterReports>,
        hosted: Arc<HostedStates>,
        copy_keys: Arc<CopyKeys>,
    ) -> Arc<Self> {
        let (queue, written) = (Queue::default(), Mutex::default());
        let reconciler =
            Arc::new(Self { ctx, registry, reports, hosted, copy_keys, queue, written });
        reconciler.connect();
        reconciler
    }

    fn connect(self: &Arc<Self>) {
        let stores = &self.ctx.stores;
        let this = self.clone();
        stores.multi_kueue_clusters.subscribe(move |change| {
            this.close_ended_session(change);
            this.registry
                .update_cluster(&change.key.name, change.new.as_deref().map(known_cluster));
            this.queue.add(ReconcileKey::Cluster(change.key.name.to_string()));
            this.all_checks();
        });
        let this = self.clone();
        stores.multi_kueue_configs.subscribe(move |_| {
            this.all_checks();
            this.all_clusters();
        });
        let this = self.clone();
        stores.cluster_queues.subscribe(move |change| {
            let rules = |queue: &Option<Arc<ClusterQueue>>| {
                queue.as_ref().map(|it| {
                    (it.spec.on_disconnect.clone(), it.spec.admission_checks_strategy.clone())
                })
            };
            if rules(&change.old) != rules(&change.new) {
                this.all_clusters();
            }
        });
        let this = self.clone();
        stores.admission_checks.subscribe(move |change| {
            this.queue.add(ReconcileKey::Check(change.key.name.to_string()));
            let spec =
                |check: &Option<Arc<AdmissionCheck>>| check.as_ref().map(|it| it.spec.clone());
            if spec(&change.old) != spec(&change.new) {
                this.all_clusters();
            }
        });
    }

    /// Closes the session of a MultiKueueCluster that was deleted, recreated, or has no agent any
    /// more.
    fn close_ended_session(&self, change: &Change<MultiKueueCluster>) {
        let Some(old) = &change.old else { return };
        let goes_on =
            change.new.as_ref().is_some_and(|new| new.uid() == old.uid() && may_have_agent(new));
        if may_have_agent(old) && !goes_on {
            self.registry.close(
                &change.key.name,
                "the MultiKueueCluster was deleted or is no longer an agent's",
            );
        }
    }

    fn all_checks(&self) {
        // This runs in a handler of another store, under that store's lock. A handler may read all
        // stores.
        for check in self.ctx.stores.admission_checks.all() {
            self.queue.add(ReconcileKey::Check(check.name_any()));
        }
    }

    fn all_clusters(&self) {
        for cluster in self.ctx.stores.multi_kueue_clusters.all() {
            self.queue.add(ReconcileKey::Cluster(cluster.name_any()));
        }
    }

    /// Runs until shutdown. Only the leader writes; a new leader reconciles every object.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut leadership = self.ctx.leadership.clone();
        let news = async {
            loop {
                tokio::select! {
                    () = self.status_changed() => self.all_clusters(),
                    changed = leadership.changed() => {
                        if changed.is_err() {
                            // The sender is gone: this process leads without an election.
                            loop {
                                self.status_changed().await;
                                self.all_clusters();
                            }
                        }
                        self.all_clusters();
                        self.all_checks();
                    }
                }
            }
        };
        let working = work_queue::run(self.queue.clone(), WRITERS, shutdown.clone(), |item| {
            let this = self.clone();
            async move { this.reconcile(&item).await }
        });
        tokio::select! {
            () = working => {}
            () = news => {}
        }
    }

    /// Waits until something that a cluster's status shows has changed.
    async fn status_changed(&self) {
        tokio::select! {
            () = self.reports.changed.notified() => {}
            () = self.hosted.changed.notified() => {}
            () = self.registry.changed.notified() => {}
            () = self.copy_keys.changed.notified() => {}
        }
    }

    async fn reconcile(&self, item: &ReconcileKey) -> Outcome {
        if !self.ctx.leading() {
            return Outcome::Done;
        }
        let written = match item {
            ReconcileKey::Cluster(name) => match self.ctx.stores.multi_kueue_clusters.get("", name)
            {
                Some(cluster) => self.cluster(&cluster).await,
                None => {
                    self.written.lock().remove(name);
                    self.reports.forget(name);
                    self.copy_keys.forget(name);
                    return Outcome::Done;
                }
            },
            ReconcileKey::Check(name) => match self.ctx.stores.admission_checks.get("", name) {
                Some(check) => self.check(&check).await,
                None => return Outcome::Done,
            },
        };
        match written {
            Ok(outcome) => outcome,
            Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
            Err(WriteError::Conflict) => Outcome::Failed,
            Err(error) => {
                tracing::warn!(?item, %error, "status not written");
                Outcome::Failed
            }
        }
    }

    async fn cluster(&self, cluster: &MultiKueueCluster) -> Result<Outcome, WriteError> {
        let name = cluster.name_any();
        let draft = self.draft(cluster, &name);
        let warnings = match draft.plan(self.written_ago(&name)) {
            StatusPlan::Done => return Ok(Outcome::Done),
            StatusPlan::Later(left) => return Ok(Outcome::Requeue(left)),
            StatusPlan::Write(warnings) => warnings,
        };
        let target = Target {
            api: Api::<MultiKueueCluster>::all(self.ctx.client.clone()),
            store: &self.ctx.stores.multi_kueue_clusters,
            object: cluster,
            manager: names::FIELD_MANAGER,
            what: "multikueuecluster",
        };
        let (before, after) =
            (serde_json::to_value(draft.before())?, serde_json::to_value(&draft.after)?);
        target.status(&self.ctx, &before, &after).await?;
        self.written.lock().insert(name, Instant::now());
        for (reason, note) in warnings {
            self.ctx.events.warning(cluster, reason, note);
        }
        Ok(Outcome::Done)
    }

    /// The status that a MultiKueueCluster should have now.
    fn draft(&self, cluster: &MultiKueueCluster, name: &str) -> StatusDraft {
        let mut draft = StatusDraft::new(cluster, self.ctx.clock.now());
        let reachability = self.reachability(cluster, name, &mut draft.after);
        draft.set(conditions::cluster_active(cluster, &reachability));
        let open =
            self.reports.breaker().filter(|open| open.lost.is_empty() || open.lost.contains(name));
        if let Some(condition) = conditions::evictions_stopped(cluster, open.as_ref()) {
            draft.set_and_warn(api_conditions::EVICTIONS_STOPPED, condition);
        }
        if let Some(condition) =
            conditions::fence_unavailable(cluster, &self.fencing_queues(cluster, name))
        {
            draft.set(condition);
        }
        if let Some(obstacle) = self.unproved(name)
            && let Some(condition) = conditions::copies_unproved(cluster, &obstacle)
        {
            draft.set_and_warn_once(api_conditions::COPIES_UNPROVED, condition);
        }
        // Without a session, the last one counts. Without an agent, no clock is known.
        let skew = match cluster.spec.cluster_source.agent {
            Some(_) => self.registry.get(name).and_then(|live| live.skew),
            None => Some(0),
        };
        if let Some(skew) = skew
            && let Some(condition) = conditions::clock_skewed(cluster, skew)
        {
            draft.set_and_warn_once(api_conditions::CLOCK_SKEWED, condition);
        }
        if let Some(orphans) = self.reports.orphans(name) {
            draft.after.orphans = orphans.iter().map(status::orphan).collect();
            if let Some(condition) = conditions::orphans_found(cluster, &draft.after.orphans) {
                draft.set_and_warn_once(api_conditions::ORPHANS_FOUND, condition);
            }
        }
        draft
    }

    /// Why the agent accepts copies without a proof. Empty: it does not. None: not known yet.
    fn unproved(&self, name: &str) -> Option<String> {
        match self.registry.get(name) {
            Some(live) if live.proves => Some(String::new()),
            _ => self.copy_keys.obstacle(name),
        }
    }

    /// ClusterQueues that ask for a fence on a cluster without an agent.
    fn fencing_queues(&self, cluster: &MultiKueueCluster, name: &str) -> Vec<String> {
        if cluster.spec.cluster_source.agent.is_some() {
            return Vec::new();
        }
        let stores = &self.ctx.stores;
        conditions::fencing_queues(
            name,
            stores.cluster_queues.all().iter().map(AsRef::as_ref),
            &|name| stores.admission_checks.get("", name),
            &|name| stores.multi_kueue_configs.get("", name),
        )
    }

    /// Whether the cluster can be reached. Also updates `status.agent`.
    fn reachability(
        &self,
        cluster: &MultiKueueCluster,
        name: &str,
        status: &mut MultiKueueClusterStatus,
    ) -> Reachability {
        let source = &cluster.spec.cluster_source;
        let live = self.registry.get(name);
        if source.agent.is_some() {
            let (left, capacity) = (self.registry.left_unable(name), self.reports.capacity(name));
            status.agent =
                agent_status(live.as_ref(), left, status.agent.as_ref(), capacity.as_deref());
            let duplicate = self.registry.holder_of_refused(name).filter(|_| live.is_none());
            if let Some((known, found)) =
                self.registry.wrong_worker(name).filter(|_| live.is_none())
            {
                return reachability::wrong_agent_cluster(&known, &found);
            }
            return match (duplicate, live.as_ref().and_then(|live| live.unable)) {
                (Some(duplicate), _) => reachability::duplicate_cluster(&duplicate),
                (None, Some(since)) => reachability::agent_unable(since),
                (None, None) => reachability::agent_reach(cluster, live.is_some()),
            };
        }
        status.agent = status.agent.as_ref().and_then(status::place);
        if source.cluster_profile_ref.is_some() && !self.ctx.config.enabled(CLUSTER_PROFILE_GATE) {
            let message =
                "load client config failed: MultiKueueClusterProfile feature gate is disabled";
            return Reachability::failed(reasons::CLUSTER_PROFILE_FEATURE_DISABLED, message);
        }
        if let Some(live) = &live {
            status.agent = Some(status::connected(live, self.reports.capacity(name).as_deref()));
        }
        self.hosted.get(name).unwrap_or_else(|| {
            // Until the first attempt ends, keep the known condition.
            let known = cluster
                .status
                .as_ref()
                .map(|status| status.conditions.as_slice())
                .unwrap_or_default();
            match api_conditions::find(known, api_conditions::ACTIVE) {
                Some(condition) if condition.status == api_conditions::TRUE => {
                    Reachability::connected()
                }
                Some(condition) => Reachability::failed(
                    reasons::CLIENT_CONNECTION_FAILED,
                    condition.message.clone(),
                ),
                None => Reachability::failed(reasons::CLIENT_CONNECTION_FAILED, "connecting"),
            }
        })
    }

    /// How long ago this process wrote the status.
    fn written_ago(&self, name: &str) -> Option<Duration> {
        let last = self.written.lock().get(name).copied()?;
        Some(last.elapsed())
    }

    async fn check(&self, check: &AdmissionCheck) -> Result<Outcome, WriteError> {
        if !check.spec.is_multi_kueue() {
            return Ok(Outcome::Done);
        }
        let stores = &self.ctx.stores;
        let condition = conditions::check_active(
            check,
            &|name| stores.multi_kueue_configs.get("", name),
            &|name| stores.multi_kueue_clusters.get("", name),
        );
        let before: AdmissionCheckStatus = check.status.clone().unwrap_or_default();
        let mut after = before.clone();
        if !api_conditions::set(&mut after.conditions, condition, self.ctx.clock.now()) {
            return Ok(Outcome::Done);
        }
        let target = Target {
            api: Api::<AdmissionCheck>::all(self.ctx.client.clone()),
            store: &stores.admission_checks,
            object: check,
            manager: names::FIELD_MANAGER,
            what: "admissioncheck",
        };
        target
            .status(&self.ctx, &serde_json::to_value(&before)?, &serde_json::to_value(&after)?)
            .await?;
        Ok(Outcome::Done)
    }
}
