//! Sets the quota of the hub's ClusterQueues to the sum of the workers', as Kueue's
//! `MultiKueueManagerQuotaAutomation` does for a MultiKueueConfig with `quotaManagement:
//! Automated`.
//!
//! Workers report the quota behind each LocalQueue. A disconnected worker counts with its last
//! report until it is given up. If this process has no report of it, no quota is lowered: others
//! could reclaim what runs there. In Kueue a disconnected worker counts nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use switchyard_api::conditions::{self, MULTIKUEUE_MANAGER_QUOTA_AUTOMATION};
use switchyard_api::quantity::{amount_of, format_shortest};
use switchyard_api::v1beta2::{
    ClusterQueue, ClusterQueueStatus, MultiKueueCluster, MultiKueueConfig, QuotaManagement,
    ResourceGroup,
};
use switchyard_controller::Context;
use switchyard_controller::stores::dispatching::multi_kueue_check;
use switchyard_platform::log_limit::LogLimit;
use switchyard_platform::write::{Target, WriteError};
use switchyard_proto::v1 as proto;
use tokio_util::sync::CancellationToken;

use crate::api_objects::{is_declared_lost, is_held, lost_since, parameters};
use crate::cluster_reports::ClusterReports;

/// Kueue's feature gate.
const GATE: &str = "MultiKueueManagerQuotaAutomation";
/// How often quota is compared. Changes within this time go into one write.
const EVERY: Duration = Duration::from_secs(1);

/// Field manager of the writes.
const MANAGER: &str = "switchyard-hub-quota";

/// The condition that a ClusterQueue should have, and its resource groups if they should change.
#[derive(Clone, Debug, PartialEq)]
struct DesiredQuota {
    automated: bool,
    reason: &'static str,
    message: String,
    groups: Option<Vec<ResourceGroup>>,
}

impl DesiredQuota {
    fn not(reason: &'static str, message: impl Into<String>) -> Self {
        Self { automated: false, reason, message: message.into(), groups: None }
    }

    /// Kueue's rule. `config` is None if the check names no MultiKueueConfig that exists.
    fn of(
        queue: &ClusterQueue,
        config: Option<&MultiKueueConfig>,
        totals: impl Fn(&MultiKueueConfig) -> WorkerTotals,
    ) -> Self {
        let unsupported = |message: String| {
            Self::not(
                conditions::reasons::quota_automation::UNSUPPORTED_CONFIGURATION,
                conditions::truncated_message(message),
            )
        };
        let Some(config) = config else {
            return unsupported("The referenced MultiKueueConfig was not found.".to_owned());
        };
        if config.spec.quota_management.unwrap_or_default() == QuotaManagement::Manual {
            return Self::not(
                conditions::reasons::quota_automation::NOT_REQUESTED,
                "MultiKueue manager quota automation has not been requested.",
            );
        }
        let [group] = queue.spec.resource_groups.as_slice() else {
            return unsupported(ONE_FLAVOR.to_owned());
        };
        if group.flavors.len() != 1 {
            return unsupported(ONE_FLAVOR.to_owned());
        }
        let WorkerTotals { sums, unknown } = totals(config);
        let covered: BTreeSet<&str> = group.covered_resources.iter().map(String::as_str).collect();
        let missing: Vec<&str> =
            sums.keys().map(String::as_str).filter(|name| !covered.contains(name)).collect();
        if !missing.is_empty() {
            return unsupported(format!(
                "manager-side coveredResources is missing resources configured on workers: [{}]",
                missing.join(" ")
            ));
        }
        Self {
            automated: true,
            reason: conditions::reasons::quota_automation::QUOTA_AUTOMATED,
            message: match unknown.as_slice() {
                [] => AUTOMATED.to_owned(),
                unknown => conditions::truncated_message(format!(
                    "{AUTOMATED} It is not lowered until these have reported or are given up: {}.",
                    unknown.join(", ")
                )),
            },
            groups: changed(group, &sums, !unknown.is_empty()).map(|group| vec![group]),
        }
    }

    fn condition(&self, queue: &ClusterQueue) -> Condition {
        Condition {
            type_: MULTIKUEUE_MANAGER_QUOTA_AUTOMATION.to_owned(),
            status: if self.automated { conditions::TRUE } else { conditions::FALSE }.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            observed_generation: queue.metadata.generation,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        }
    }
}

const ONE_FLAVOR: &str =
    "Quota automation requires that the manager-side ClusterQueue has exactly one ResourceFlavor";

const AUTOMATED: &str = "ClusterQueue quota is automatically managed based on MultiKueue workers.";

/// Quota by resource: milli-CPU for cpu, base units for others.
type Sums = BTreeMap<String, i64>;

/// The quota of the workers, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
struct WorkerTotals {
    /// The sum over the workers with a report.
    sums: Sums,
    /// Workers that were connected before, without a report in this process.
    unknown: Vec<String>,
}

/// The group with these quotas, or None if it has them. With `floor`, no quota is lowered.
/// Borrowing and lending limits are removed, as in Kueue.
fn changed(group: &ResourceGroup, sums: &Sums, floor: bool) -> Option<ResourceGroup> {
    let mut wanted = group.clone();
    let flavor = wanted.flavors.first_mut()?;
    let mut as_is = true;
    for quota in &mut flavor.resources {
        let now = amount_of(&quota.name, &quota.nominal_quota);
        let sum = sums.get(quota.name.as_str()).copied().unwrap_or(0);
        let sum = if floor { sum.max(now) } else { sum };
        as_is &= sum == now && quota.borrowing_limit.is_none() && quota.lending_limit.is_none();
        quota.nominal_quota = Quantity(format_shortest(&quota.name, sum));
        (quota.borrowing_limit, quota.lending_limit) = (None, None);
    }
    (!as_is).then_some(wanted)
}

/// The sum of the worker ClusterQueues behind these LocalQueues. Each ClusterQueue counts once.
fn sums<'a>(
    local_queues: &BTreeSet<(String, String)>,
    workers: impl IntoIterator<Item = &'a proto::Capacity>,
) -> Sums {
    let mut sums = Sums::new();
    for worker in workers {
        let mut counted = BTreeSet::new();
        for queue in &worker.queues {
            let ours = local_queues.contains(&(queue.namespace.clone(), queue.local_queue.clone()));
            if !ours || !counted.insert(&queue.cluster_queue) {
                continue;
            }
            for flavor in &queue.flavors {
                let sum = sums.entry(flavor.resource.clone()).or_default();
                *sum = sum.saturating_add(flavor.nominal);
            }
        }
    }
    sums
}

/// Keeps the quota until `stop`, if the feature gate is on.
pub(crate) async fn run(ctx: Arc<Context>, reports: Arc<ClusterReports>, stop: CancellationToken) {
    if !ctx.config.enabled(GATE) {
        return stop.cancelled().await;
    }
    let log = LogLimit::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if !ctx.leading() {
            continue;
        }
        for queue in ctx
            .stores
            .cluster_queues
            .filter(|queue| queue.spec.admission_checks_strategy.is_some() || has_condition(queue))
        {
            match keep(&ctx, &reports, &queue).await {
                // The next round tries again.
                Ok(()) | Err(WriteError::Conflict | WriteError::Gone | WriteError::NotLeading) => {}
                Err(error) => {
                    if let Some(left_out) = log.admit(tokio::time::Instant::now()) {
                        let cluster_queue = queue.name_any();
                        tracing::warn!(cluster_queue, %error, left_out, "quota not written");
                    }
                }
            }
        }
    }
}

fn has_condition(queue: &ClusterQueue) -> bool {
    let status = queue.status.as_ref();
    status.is_some_and(|it| {
        conditions::find(&it.conditions, MULTIKUEUE_MANAGER_QUOTA_AUTOMATION).is_some()
    })
}

async fn keep(
    ctx: &Context,
    reports: &ClusterReports,
    queue: &ClusterQueue,
) -> Result<(), WriteError> {
    let Some(check) = multi_kueue_check(&ctx.stores, queue) else {
        return show(ctx, queue, |status| {
            conditions::remove(&mut status.conditions, MULTIKUEUE_MANAGER_QUOTA_AUTOMATION)
        })
        .await;
    };
    let config = parameters(&check).and_then(|name| ctx.stores.multi_kueue_configs.get("", name));
    let wanted =
        DesiredQuota::of(queue, config.as_deref(), |config| workers(ctx, reports, queue, config));
    let api: Api<ClusterQueue> = Api::all(ctx.client.clone());
    let store = &ctx.stores.cluster_queues;
    let written = match &wanted.groups {
        None => None,
        Some(groups) => {
            let target =
                Target { api: api.clone(), store, object: queue, manager: MANAGER, what: "quota" };
            Some(target.patch(ctx, json!({"spec": {"resourceGroups": groups}})).await?)
        }
    };
    let object = written.as_ref().unwrap_or(queue);
    show(ctx, object, |status| {
        conditions::set(&mut status.conditions, wanted.condition(object), ctx.clock.now())
    })
    .await
}

/// Writes a ClusterQueue's status if it changed.
async fn show(
    ctx: &Context,
    object: &ClusterQueue,
    change: impl FnOnce(&mut ClusterQueueStatus) -> bool,
) -> Result<(), WriteError> {
    let before = object.status.clone().unwrap_or_default();
    let mut after = before.clone();
    if !change(&mut after) {
        return Ok(());
    }
    let (api, store) = (Api::all(ctx.client.clone()), &ctx.stores.cluster_queues);
    let target = Target { api, store, object, manager: MANAGER, what: "quota" };
    target
        .status(ctx, &serde_json::to_value(before)?, &serde_json::to_value(after)?)
        .await
        .map(drop)
}

fn workers(
    ctx: &Context,
    reports: &ClusterReports,
    queue: &ClusterQueue,
    config: &MultiKueueConfig,
) -> WorkerTotals {
    let name = queue.name_any();
    let leads_here = |local: &switchyard_api::v1beta2::LocalQueue| {
        local.spec.cluster_queue.as_ref() == Some(&name)
    };
    let local = ctx.stores.local_queues.filter(leads_here);
    let local = local
        .iter()
        .map(|local| (local.namespace().unwrap_or_default(), local.name_any()))
        .collect();
    let (now, patience) = (ctx.clock.now(), ctx.config.multi_kueue.worker_lost_timeout.std());
    let (mut reported, mut unknown) = (Vec::new(), Vec::new());
    for name in &config.spec.clusters {
        let cluster = ctx
            .stores
            .multi_kueue_clusters
            .get("", name)
            .filter(|it| still_counts(it, now, patience));
        match (reports.capacity(name), cluster) {
            (Some(report), _) => reported.push(report),
            (None, Some(cluster)) => match reports.last_capacity(name) {
                Some(last) => reported.push(last),
                None if has_reported(&cluster) => unknown.push(name.clone()),
                None => {}
            },
            (None, None) => {}
        }
    }
    WorkerTotals { sums: sums(&local, reported.iter().map(AsRef::as_ref)), unknown }
}

/// Whether the cluster was ever connected.
fn has_reported(cluster: &MultiKueueCluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| status.agent.is_some())
}

/// Whether the hub may still keep jobs for a disconnected cluster.
fn still_counts(cluster: &MultiKueueCluster, now: Timestamp, patience: Duration) -> bool {
    let lost = lost_since(cluster).map_or(Duration::ZERO, |since| {
        Duration::try_from(now.duration_since(since)).unwrap_or_default()
    });
    !is_declared_lost(cluster) && (lost < patience || is_held(cluster))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// LocalQueue, ClusterQueue, and its quota by resource.
    type Queue<'a> = (&'a str, &'a str, &'a [(&'a str, i64)]);

    fn worker(queues: &[Queue<'_>]) -> proto::Capacity {
        let queue = |(local_queue, cluster_queue, flavors): &Queue<'_>| proto::QueueCapacity {
            namespace: "ns".to_owned(),
            local_queue: (*local_queue).to_owned(),
            cluster_queue: (*cluster_queue).to_owned(),
            flavors: flavors
                .iter()
                .map(|(resource, nominal)| proto::FlavorCapacity {
                    resource: (*resource).to_owned(),
                    nominal: *nominal,
                    ..proto::FlavorCapacity::default()
                })
                .collect(),
            ..proto::QueueCapacity::default()
        };
        proto::Capacity { queues: queues.iter().map(queue).collect(), ..Default::default() }
    }

    fn queue(groups: &Value) -> ClusterQueue {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
            "spec": {"resourceGroups": groups},
        }))
        .unwrap()
    }

    fn group(resources: &[(&str, &str)]) -> Value {
        let quotas =
            resources.iter().map(|(name, nominal)| json!({"name": name, "nominalQuota": nominal}));
        json!({
            "coveredResources": resources.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "flavors": [{"name": "default", "resources": quotas.collect::<Vec<_>>()}],
        })
    }

    fn config(management: &str) -> MultiKueueConfig {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": "mk"},
            "spec": {"clusters": ["a"], "quotaManagement": management},
        }))
        .unwrap()
    }

    #[test]
    fn cluster_queue_counts_once_and_behind_known_local_queues() {
        let first = worker(&[
            ("lq", "a", &[("cpu", 2_000), ("memory", 4)]),
            ("lq2", "a", &[("cpu", 2_000)]),
        ]);
        let second = worker(&[("lq", "b", &[("cpu", 1_200)]), ("other", "c", &[("cpu", 9_000)])]);
        let ours = ["lq", "lq2"].map(|name| ("ns".to_owned(), name.to_owned())).into();
        let expected = Sums::from([("cpu".to_owned(), 3_200), ("memory".to_owned(), 4)]);
        assert_eq!(sums(&ours, [&first, &second]), expected);
    }

    #[test]
    fn quota_is_written_when_it_differs_in_amount() {
        let sums = Sums::from([("cpu".to_owned(), 3_200), ("memory".to_owned(), 20_000_000_000)]);
        let of = |cpu: &str, memory: &str| {
            let totals = WorkerTotals { sums: sums.clone(), unknown: Vec::new() };
            let queue = queue(&json!([group(&[("cpu", cpu), ("memory", memory)])]));
            DesiredQuota::of(&queue, Some(&config("Automated")), |_| totals.clone())
        };
        let wanted = of("0", "0");
        let groups = wanted.groups.as_ref().unwrap();
        let nominal =
            groups[0].flavors[0].resources.iter().map(|quota| quota.nominal_quota.0.as_str());
        assert_eq!(nominal.collect::<Vec<_>>(), ["3200m", "20G"]);
        assert_eq!((wanted.automated, wanted.reason), (true, "QuotaAutomated"));
        assert_eq!(of("3.2", "20000M").groups, None);
    }

    #[test]
    fn quota_is_not_lowered_while_a_worker_is_unknown() {
        let unknown = WorkerTotals {
            sums: Sums::from([("cpu".to_owned(), 3_000)]),
            unknown: vec!["east".to_owned(), "west".to_owned()],
        };
        let of = |cpu: &str| {
            DesiredQuota::of(
                &queue(&json!([group(&[("cpu", cpu)])])),
                Some(&config("Automated")),
                |_| unknown.clone(),
            )
        };
        let kept = of("8");
        assert_eq!((kept.automated, kept.groups), (true, None));
        assert!(
            kept.message
                .ends_with("not lowered until these have reported or are given up: east, west."),
            "{}",
            kept.message
        );
        let raised = of("2").groups.unwrap();
        assert_eq!(raised[0].flavors[0].resources[0].nominal_quota.0, "3");
    }

    #[rstest::rstest]
    #[case::held_by_default(json!({"agent": {}}), Value::Null, 10_000, false, true)]
    #[case::held_by_policy(json!({"agent": {}}), json!({"policy": "Hold"}), 10_000, false, true)]
    #[case::fenced_and_just_gone(json!({"agent": {}}), json!({"policy": "Fence"}), 800, false, true)]
    #[case::fenced_and_gone_for_long(json!({"agent": {}}), json!({"policy": "Fence"}), 1_000, false, false)]
    #[case::with_a_kubeconfig(json!({"kubeConfig": {"location": "s"}}), Value::Null, 1_000, false, false)]
    #[case::declared_lost(json!({"agent": {}}), Value::Null, 10, true, false)]
    fn disconnected_worker_counts_until_given_up(
        #[case] source: Value,
        #[case] rule: Value,
        #[case] seconds: i64,
        #[case] declared: bool,
        #[case] expected: bool,
    ) {
        let since = "2026-01-01T00:00:00Z";
        let annotations =
            if declared { json!({"switchyard.dev/declared-lost": since}) } else { json!({}) };
        let active = json!({"type": "Active", "status": "False", "reason": "r", "message": "", "lastTransitionTime": since});
        let cluster: MultiKueueCluster = serde_json::from_value(json!({
            "metadata": {"name": "east", "annotations": annotations},
            "spec": {"clusterSource": source, "onDisconnect": rule},
            "status": {"conditions": [active]},
        }))
        .unwrap();
        let now = since.parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds);
        assert_eq!(still_counts(&cluster, now, Duration::from_secs(900)), expected);
    }

    #[test]
    fn quota_automation_reports_why_it_is_off() {
        let one = json!([group(&[("cpu", "1")])]);
        let two = json!([group(&[("cpu", "1")]), group(&[("memory", "1")])]);
        let memory =
            || WorkerTotals { sums: Sums::from([("memory".to_owned(), 1)]), unknown: Vec::new() };
        for (groups, config, reason, message) in [
            (
                &one,
                None,
                "UnsupportedConfiguration",
                "The referenced MultiKueueConfig was not found.",
            ),
            (&one, Some(config("Manual")), "NotRequested", "has not been requested."),
            (
                &two,
                Some(config("Automated")),
                "UnsupportedConfiguration",
                "exactly one ResourceFlavor",
            ),
            (
                &one,
                Some(config("Automated")),
                "UnsupportedConfiguration",
                "configured on workers: [memory]",
            ),
        ] {
            let wanted = DesiredQuota::of(&queue(groups), config.as_ref(), |_| memory());
            assert_eq!((wanted.automated, wanted.reason), (false, reason));
            assert!(
                wanted.message.contains(message) && wanted.groups.is_none(),
                "{}",
                wanted.message
            );
        }
    }
}
