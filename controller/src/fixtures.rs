//! Builders of objects for tests.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde_json::json;
use switchyard_api::{
    conditions,
    v1beta2::{
        Admission, AdmissionCheckState, CheckState, ClusterQueue, LocalQueue, PodSet,
        PodSetAssignment, StopPolicy, Workload, WorkloadStatus,
    },
};
use switchyard_config::Configuration;
use switchyard_platform::{
    clock::SystemClock,
    components::Components,
    events::Events,
    lease::{EpochFloor, Leadership},
    work_queue::{Outcome, Queue},
};

use crate::{
    context::{Context, TermStart},
    event_conventions,
    role::Role,
    stores::Stores,
};

/// A leading controller of one cluster with empty stores.
pub(crate) fn context(client: kube::Client, config: Configuration) -> Context {
    Context {
        events: Events::new(client.clone(), "test", event_conventions::KUEUE).0,
        client,
        stores: Arc::new(Stores::new(&config)),
        config: Arc::new(config),
        leadership: tokio::sync::watch::channel(Leadership::alone()).1,
        epoch_floor: EpochFloor::default(),
        clock: Arc::new(SystemClock),
        metrics: Arc::default(),
        role: Role::Single,
        namespace: "kueue-system".into(),
        components: Components::default(),
        term_start: TermStart::default(),
    }
}

/// A client of an API server that never answers.
pub(crate) fn silent_client() -> kube::Client {
    type Answer = Result<axum::http::Response<kube::client::Body>, std::convert::Infallible>;
    let silent = |_: axum::http::Request<kube::client::Body>| std::future::pending::<Answer>();
    kube::Client::new(tower::service_fn(silent), "default")
}

/// Takes all ready keys from the queue.
pub(crate) async fn drain<K: Ord + Clone>(queue: &Queue<K>) -> Vec<K> {
    let mut keys = Vec::new();
    while !queue.is_empty() {
        let key = queue.next().await;
        queue.done(&key, Outcome::Done);
        keys.push(key);
    }
    keys.sort();
    keys
}

/// Seconds after a fixed moment.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// An active workload `ns/NAME` in LocalQueue `lq` with one pod set, created at second 0, owned by
/// a job.
pub(crate) fn workload(name: &str) -> Workload {
    let mut workload = Workload::default();
    workload.metadata.namespace = Some("ns".into());
    workload.metadata.name = Some(name.into());
    workload.metadata.uid = Some(format!("uid-{name}"));
    workload.metadata.generation = Some(1);
    workload.metadata.creation_timestamp = Some(Time(at(0)));
    workload.metadata.finalizers = Some(vec!["kueue.x-k8s.io/resource-in-use".into()]);
    workload.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
        name: name.into(),
        uid: format!("job-{name}"),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    workload.spec.queue_name = Some("lq".into());
    let template =
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    workload.spec.pod_sets =
        vec![PodSet { template: template.into(), count: 3, ..PodSet::default() }];
    workload
}

/// LocalQueue `ns/lq` of ClusterQueue `cq`.
pub(crate) fn local_queue(policy: StopPolicy) -> LocalQueue {
    let mut queue = LocalQueue::default();
    queue.metadata.namespace = Some("ns".into());
    queue.metadata.name = Some("lq".into());
    queue.spec.cluster_queue = Some("cq".into());
    queue.spec.stop_policy = policy;
    queue
}

/// ClusterQueue `cq` with cpu on flavors `default` and `gpu`, and these admission checks for all
/// flavors.
pub(crate) fn cluster_queue(policy: StopPolicy, checks: &[&str]) -> ClusterQueue {
    let checks: Vec<_> = checks.iter().map(|name| json!({"name": name})).collect();
    let flavor =
        |name: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": "9"}]});
    let mut spec = json!({
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor("default"), flavor("gpu")]}],
        "stopPolicy": policy,
    });
    if !checks.is_empty() {
        spec["admissionChecksStrategy"] = json!({"admissionChecks": checks});
    }
    serde_json::from_value(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec}))
        .unwrap()
}

/// As [`cluster_queue`], with a `concurrentAdmissionPolicy`.
pub(crate) fn cluster_queue_with_policy(checks: &[&str]) -> ClusterQueue {
    let mut queue = cluster_queue(StopPolicy::None, checks);
    let policy = json!({"migration": {"mode": "TryPreferredFlavors"}});
    queue.spec.concurrent_admission_policy = serde_json::from_value(policy).unwrap();
    queue
}

/// Fluent changes of a workload.
pub(crate) trait WorkloadExt: Sized {
    fn edit(self, edit: impl FnOnce(&mut Workload)) -> Self;

    fn status(self, edit: impl FnOnce(&mut WorkloadStatus)) -> Self {
        self.edit(|workload| edit(workload.status.get_or_insert_with(WorkloadStatus::default)))
    }

    fn condition_at(
        self,
        second: i64,
        type_: &str,
        holds: bool,
        reason: &str,
        message: &str,
    ) -> Self {
        self.status(|status| {
            let condition = conditions::new(type_, holds, reason, message, Some(1));
            conditions::set(&mut status.conditions, condition, at(second));
        })
    }

    fn condition(self, type_: &str, holds: bool, reason: &str, message: &str) -> Self {
        self.condition_at(5, type_, holds, reason, message)
    }

    fn reserved(self, cluster_queue: &str) -> Self {
        let message = format!("Quota reserved in ClusterQueue {cluster_queue}");
        let flavors = [("cpu".to_owned(), "default".to_owned())].into();
        let assignment =
            PodSetAssignment { flavors, count: Some(3), ..PodSetAssignment::default() };
        let admission = Admission {
            cluster_queue: cluster_queue.to_owned(),
            pod_set_assignments: vec![assignment],
        };
        self.condition_at(10, "QuotaReserved", true, "QuotaReserved", &message)
            .status(|status| status.admission = Some(admission))
    }

    fn admitted(self) -> Self {
        self.condition_at(12, "Admitted", true, "Admitted", "The workload is admitted")
    }

    fn check(self, name: &str, state: CheckState, message: &str) -> Self {
        self.status(|status| {
            status.admission_checks.push(AdmissionCheckState {
                name: name.to_owned(),
                state,
                last_transition_time: Time(at(15)),
                message: message.to_owned(),
                requeue_after_seconds: None,
                retry_count: None,
                pod_set_updates: Vec::new(),
            });
        })
    }

    fn created(self, second: i64) -> Self {
        self.edit(|workload| workload.metadata.creation_timestamp = Some(Time(at(second))))
    }

    fn inactive(self) -> Self {
        self.edit(|workload| workload.spec.active = Some(false))
    }

    fn annotation(self, key: &str, value: &str) -> Self {
        self.edit(|workload| {
            workload
                .metadata
                .annotations
                .get_or_insert_with(BTreeMap::new)
                .insert(key.to_owned(), value.to_owned());
        })
    }

    fn deleting(self) -> Self {
        self.edit(|workload| workload.metadata.deletion_timestamp = Some(Time(at(20))))
    }
}

impl WorkloadExt for Workload {
    fn edit(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }
}

/// One line a condition: second, type, status, reason, message.
pub(crate) fn conditions(status: &WorkloadStatus) -> String {
    let lines = status.conditions.iter().map(|condition| {
        let at = condition.last_transition_time.0.as_second();
        format!(
            "{at}s {}={} {}: {}",
            condition.type_, condition.status, condition.reason, condition.message
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The conditions, and the rest of the status as JSON.
pub(crate) fn rendered(status: &WorkloadStatus) -> String {
    let rest = WorkloadStatus { conditions: Vec::new(), ..status.clone() };
    format!("{}\n{}", conditions(status), serde_json::to_string_pretty(&rest).unwrap())
}
