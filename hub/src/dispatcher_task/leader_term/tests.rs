//! How a term takes in the objects of the API.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_config::Configuration;
use switchyard_controller::Role;
use switchyard_controller::stores::Stores;
use switchyard_dispatcher::{ClusterConfig, DispatcherSettings, Name, StoreLoss};
use switchyard_jobs::kind_for;
use switchyard_platform::clock::SystemClock;
use switchyard_platform::events::Events;
use switchyard_platform::lease::{EpochFloor, Leadership};
use switchyard_platform::object::Object;
use switchyard_proto::v1::{Observation, Phase, State};
use tokio::sync::{Semaphore, mpsc, watch};

use super::*;
use crate::cluster_channel::Outgoing;
use crate::cluster_channel::outbox::MessageLimits;
use crate::dispatcher_task::Inbox;
use crate::dispatcher_task::job_status::{self, JobStatus};
use crate::metrics::HubMetrics;
use crate::server::Registry;

/// A hub whose API server never answers.
fn context() -> Arc<Context> {
    context_of(Configuration::default())
}

fn context_of(config: Configuration) -> Arc<Context> {
    let silent = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    context_with(kube::Client::new(silent, "default"), config)
}

fn context_with(client: kube::Client, config: Configuration) -> Arc<Context> {
    let config = Arc::new(config);
    Arc::new(Context {
        events: Events::new(client.clone(), "hub", switchyard_controller::event_conventions::KUEUE)
            .0,
        client,
        stores: Arc::new(Stores::new(&config)),
        config,
        leadership: watch::channel(Leadership::alone()).1,
        epoch_floor: EpochFloor::default(),
        clock: Arc::new(SystemClock),
        metrics: Arc::default(),
        role: Role::Hub,
        namespace: "kueue-system".into(),
        components: Default::default(),
        term_start: Default::default(),
    })
}

/// Starts a term with the stores' objects and with cluster `east`.
fn begin(ctx: &Arc<Context>) -> LeaderTerm {
    begin_with(ctx, DispatcherSettings::default())
}

fn begin_with(ctx: &Arc<Context>, settings: DispatcherSettings) -> LeaderTerm {
    let metrics = HubMetrics::register(&ctx.metrics);
    let (results, _) = mpsc::channel(1);
    let writer = WriteContext {
        ctx: ctx.clone(),
        permits: Arc::new(Semaphore::new(0)),
        results,
        metrics: metrics.clone(),
    };
    let parts = TaskInputs {
        ctx: ctx.clone(),
        engine: EngineHandle::disconnected(),
        inbox: Arc::default(),
        channels: Arc::default(),
        registry: Arc::new(Registry::default()),
        term: watch::channel(None).0,
        reports: Arc::default(),
        settings,
        metrics,
    };
    let mut state = LeaderTerm::begin(&parts, writer, 1, TermClock::new(ctx.clock.now()));
    state.apply(DispatchEvent::ClusterConfigured {
        name: "east".into(),
        config: ClusterConfig::default(),
    });
    state.apply(DispatchEvent::SessionOpened { name: "east".into() });
    state
}

/// The assignments that cluster `east` receives.
fn told(state: &LeaderTerm) -> Vec<(String, Phase)> {
    let channel = state.channels.of("east");
    channel.open(1, None);
    let mut told = Vec::new();
    while let Some(out) = channel.next(1, MessageLimits::default()) {
        let Outgoing::Desired(desired) = out else { continue };
        told.extend(desired.assignments.iter().map(|it| (it.workload_uid.clone(), it.phase())));
    }
    told
}

fn condition(kind: &str, reason: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// A uid whose order says nothing.
fn uid(index: usize) -> String {
    format!("u{}", 9 - index)
}

/// The Workloads of an elastic job that grew, in order, named by `named`. They hold the copy of the
/// first on `east`, one after the other.
fn chain(named: &[usize], last_is_over: bool) -> Vec<Workload> {
    let name = |index: usize| format!("job-j-{}", named[index]);
    let link = |index: usize| -> Workload {
        let mut annotations =
            json!({names::ELASTIC_JOB: "true", names::WORKLOAD_SLICE_NAME: name(0)});
        let mut conditions =
            vec![condition("QuotaReserved", "QuotaReserved"), condition("Admitted", "Admitted")];
        let mut dispatch = json!({"attempt": 1});
        if let Some(before) = index.checked_sub(1) {
            annotations[names::WORKLOAD_SLICE_REPLACEMENT_FOR] =
                format!("ns/{}", name(before)).into();
            dispatch["workloadUid"] = uid(0).into();
        }
        if index + 1 < named.len() {
            conditions.push(condition("Finished", "WorkloadSliceReplaced"));
        } else if last_is_over {
            conditions.push(condition("Finished", "JobFinished"));
        }
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true});
        let pod_set =
            json!({"name": "main", "count": index + 1, "template": {"spec": {"containers": []}}});
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": name(index), "namespace": "ns", "uid": uid(index), "resourceVersion": "1",
                "annotations": annotations, "ownerReferences": [owner],
            },
            "spec": {"queueName": "lq", "podSets": [pod_set]},
            "status": {"clusterName": "east", "dispatch": dispatch, "conditions": conditions},
        }))
        .unwrap()
    };
    (0..named.len()).map(link).collect()
}

fn permutations(of: usize) -> Vec<Vec<usize>> {
    let Some(rest) = of.checked_sub(1) else { return vec![Vec::new()] };
    let with_last = |shorter: Vec<usize>| {
        (0..of).map(move |at| {
            let mut longer = shorter.clone();
            longer.insert(at, rest);
            longer
        })
    };
    permutations(rest).into_iter().flat_map(with_last).collect()
}

fn job() -> Object {
    let template = json!({"spec": {"containers": []}});
    Object::new(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "uid": "j", "annotations": {names::ELASTIC_JOB: "true"}},
        "spec": {"parallelism": 4, "managedBy": "kueue.x-k8s.io/multikueue", "template": template},
    }))
    .unwrap()
}

#[rstest]
#[case::twice(3, false, false)]
#[case::three_times(4, false, false)]
#[case::and_ended(4, true, false)]
#[case::and_those_before_are_gone(4, false, true)]
#[tokio::test]
async fn grown_job_copy_belongs_to_its_last_workload(
    #[case] links: usize,
    #[case] last_is_over: bool,
    #[case] only_neighbours: bool,
) {
    let last = Uid::from(uid(links - 1).as_str());
    for named in permutations(links) {
        let ctx = context();
        ctx.stores.job("batch", "Job").unwrap().store.insert(job());
        // Links alone do not lead to the end of a chain with a gap.
        let is_there = |index: usize| !only_neighbours || index + 2 != links;
        for (index, workload) in chain(&named, last_is_over).into_iter().enumerate() {
            if is_there(index) {
                ctx.stores.workloads.insert(workload);
            }
        }
        let mut state = begin(&ctx);
        assert_eq!(state.dispatcher.hub_uid(&uid(0).as_str().into()), last, "{named:?}");
        let run = (uid(0), Phase::Run);
        let expected = if last_is_over { Vec::new() } else { vec![run] };
        assert_eq!(told(&state), expected, "{named:?}");
        let observation = Observation {
            workload_uid: uid(0),
            namespace: "ns".into(),
            name: format!("job-j-{}", named[0]),
            attempt: 1,
            state: State::Running.into(),
            ..Observation::default()
        };
        state.observed(&Name::from("east"), &observation);
        let expected = if last_is_over { vec![(uid(0), Phase::Absent)] } else { expected };
        assert_eq!(told(&state), expected, "{named:?}");
    }
}

/// Watches may be apart when a term begins: the Workload is read before its job.
#[tokio::test(start_paused = true)]
async fn committed_job_that_is_not_read_yet_is_sent_once_it_is() {
    let ctx = context();
    for workload in chain(&[0], false) {
        ctx.stores.workloads.insert(workload);
    }
    let mut state = begin(&ctx);
    let inbox = Arc::new(Inbox::default());
    inbox.connect(&ctx.stores, false);
    inbox.open();
    assert_eq!(told(&state), []);
    // Another cluster still has a copy of an offer.
    let west = Name::from("west");
    let config = ClusterConfig::default();
    state.apply(DispatchEvent::ClusterConfigured { name: west.clone(), config });
    state.apply(DispatchEvent::SessionOpened { name: west.clone() });
    let observation = Observation {
        workload_uid: uid(0),
        attempt: 1,
        state: State::Waiting.into(),
        ..Observation::default()
    };
    state.observed(&west, &observation);
    ctx.stores.job("batch", "Job").unwrap().store.insert(job());
    state.changed(inbox.take());
    assert_eq!(told(&state), [(uid(0), Phase::Run)], "it is not refused");
    assert!(state.unsent.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ended_job_that_is_read_late_is_not_sent_after_a_store_loss() {
    let ctx = context();
    ctx.stores.workloads.insert(chain(&[0], false).remove(0));
    let now = ctx.clock.now().as_millisecond();
    let store_loss = Some(StoreLoss::new(now - 1_000, now, now));
    let mut state = begin_with(&ctx, DispatcherSettings { store_loss, ..Default::default() });
    let mut ended = Arc::unwrap_or_clone(job().value());
    ended["status"] = json!({"conditions": [condition("Complete", "Completed")]});
    ctx.stores.job("batch", "Job").unwrap().store.insert(Object::new(ended).unwrap());
    let workloads = BTreeSet::from([Key::new("ns", "job-j-0")]);
    state.changed(Changes { workloads, ..Changes::default() });
    assert_eq!(told(&state), [], "its cluster may have removed it");
}

/// The slice that takes over the copy sends what waits for the job of the replaced one.
#[tokio::test(start_paused = true)]
async fn copy_that_a_slice_takes_over_is_sent_once_its_job_is_read() {
    let ctx = context();
    ctx.stores.workloads.insert(chain(&[0], false).remove(0));
    let mut state = begin(&ctx);
    let mut change = |slices: Vec<Workload>| {
        let workloads = slices.iter().map(Key::of).collect();
        slices.into_iter().for_each(|slice| ctx.stores.workloads.insert(slice));
        state.changed(Changes { workloads, ..Changes::default() });
        told(&state)
    };
    assert_eq!(change(chain(&[0, 1], false)), []);
    ctx.stores.job("batch", "Job").unwrap().store.insert(job());
    assert_eq!(change(chain(&[0, 1], false)), [(uid(0), Phase::Run)]);
}

/// Watches may be apart when a term begins: the end is reported before the job is read.
#[tokio::test]
async fn end_is_written_to_a_job_that_is_not_read_yet() {
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let server = tower::service_fn(move |request: Request<Body>| {
        let is_write = request.method() == http::Method::PATCH;
        count.fetch_add(usize::from(is_write), Ordering::SeqCst);
        let body = Body::from(serde_json::to_vec(&job()).unwrap());
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    let ctx = context_with(kube::Client::new(server, "default"), Configuration::default());
    let end = json!({"succeeded": 4, "conditions": [condition("Complete", "Completed")]});
    let workload = chain(&[0], false).remove(0);
    let status = JobStatus::Remote(Arc::new(end));
    job_status::write_job_status(&ctx, &workload, &status).await.unwrap();
    assert_eq!(written.load(Ordering::SeqCst), 1);
    let mut other = workload;
    other.metadata.owner_references.as_mut().unwrap()[0].uid = "k".to_owned();
    job_status::write_job_status(&ctx, &other, &status).await.unwrap();
    assert_eq!(written.load(Ordering::SeqCst), 1, "its job was created again");
}

/// Watches may be apart when a term begins: the Workload is read before its check.
#[tokio::test(start_paused = true)]
async fn workload_with_quota_is_tracked_once_its_check_is_read() {
    let ctx = context();
    ctx.stores.job("batch", "Job").unwrap().store.insert(job());
    let mut workload = chain(&[0], false).remove(0);
    let status = workload.status.as_mut().unwrap();
    (status.cluster_name, status.dispatch) = (None, None);
    let check = json!({"name": "mk", "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    status.admission_checks = serde_json::from_value(json!([check])).unwrap();
    ctx.stores.workloads.insert(workload);
    let mut state = begin(&ctx);
    assert!(!state.dispatcher.knows(&uid(0)));
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
    let spec = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
    let check = json!({"metadata": {"name": "mk"}, "spec": spec});
    ctx.stores.admission_checks.insert(serde_json::from_value(check).unwrap());
    let config = json!({"metadata": {"name": "all"}, "spec": {"clusters": ["east"]}});
    ctx.stores.multi_kueue_configs.insert(serde_json::from_value(config).unwrap());
    state.changed(Changes { cluster_set: true, ..Changes::default() });
    assert!(state.dispatcher.knows(&uid(0)));
}

#[tokio::test(start_paused = true)]
async fn later_replica_is_requeued_once_the_first_has_quota() {
    let kind = kind_for("leaderworkerset.x-k8s.io", "LeaderWorkerSet").unwrap();
    let mut config = Configuration::default();
    config.integrations.frameworks.push(kind.id().framework.to_owned());
    let ctx = context_of(config);
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm", "namespace": "ns", "uid": "llm"}, "spec": {"replicas": 2},
    });
    let owner = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "llm", "uid": "llm",
    });
    let groups = kind.serving().unwrap().groups(&set);
    let reservation = |index: usize| -> Reservation {
        let metadata = json!({
            "name": groups[index].name, "namespace": "ns", "uid": uid(index), "resourceVersion": "1",
            "annotations": {names::IS_GROUP_WORKLOAD: "true"}, "ownerReferences": [owner],
        });
        let spec = json!({"queueName": "lq", "podSets": []});
        let workload: Workload =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        Reservation {
            workload: Arc::new(workload),
            cycle: 1,
            admission: Admission::default(),
            check: "mk".to_owned(),
            other_checks: false,
            waited_since: jiff::Timestamp::UNIX_EPOCH,
            note: String::new(),
        }
    };
    let (first, later) = (reservation(0), reservation(1));
    ctx.stores
        .job(kind.id().group, kind.id().kind)
        .unwrap()
        .store
        .insert(Object::new(set).unwrap());
    for reservation in [&first, &later] {
        ctx.stores.workloads.insert((*reservation.workload).clone());
    }
    let mut state = begin(&ctx);
    let clusters = vec!["east".into()];
    state.apply(DispatchEvent::CheckConfigured { name: "mk".into(), clusters });
    let is_parked = |state: &LeaderTerm| state.dispatcher.needs_changes(&uid(1));
    state.reserved(later);
    tokio::time::advance(Duration::from_secs(1)).await;
    state.tick();
    assert!(is_parked(&state) && !state.dispatcher.knows(&uid(1)), "the first has no quota");
    state.reserved(first);
    assert!(!is_parked(&state));
}

#[tokio::test(start_paused = true)]
async fn silence_counts_from_the_first_workload_of_an_unheard_cluster() {
    let ctx = context();
    let mut state = begin(&ctx);
    state.apply(DispatchEvent::SessionClosed { name: "east".into() });
    ctx.stores.workloads.insert(chain(&[0], false).remove(0));
    let workloads = BTreeSet::from([Key::new("ns", "job-j-0")]);
    state.changed(Changes { workloads, ..Changes::default() });
    assert!(state.silent_since.contains_key("east"));
}

/// The condition of a job on a silent cluster says what the cluster's policy means for it.
#[tokio::test(start_paused = true)]
async fn policy_change_of_silent_cluster_reviews_its_jobs() {
    let ctx = context();
    for workload in chain(&[0], false) {
        ctx.stores.workloads.insert(workload);
    }
    let mut state = begin(&ctx);
    state.apply(DispatchEvent::SessionClosed { name: "east".into() });
    state.mark_silent(&"east".into());
    tokio::time::advance(Duration::from_secs(40)).await;
    // The reviews of the silence itself are over.
    state.reviews.clear();
    let spec = json!({"clusterSource": {"agent": {}}, "onDisconnect": {"policy": "Duplicate"}});
    let cluster = json!({"metadata": {"name": "east"}, "spec": spec});
    ctx.stores.multi_kueue_clusters.insert(serde_json::from_value(cluster).unwrap());
    assert_eq!(state.troubles.next(), None);
    state.update_cluster_set();
    assert!(state.troubles.next().is_some());
}
