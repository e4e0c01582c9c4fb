//! The conditions of MultiKueueClusters and of their AdmissionChecks. Pure. Reasons and messages
//! are Kueue's where it has them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use switchyard_api::conditions::{self, reasons};
use switchyard_api::v1beta2::{
    AdmissionCheck, ClusterQueue, DisconnectPolicy, MultiKueueCluster, MultiKueueConfig,
    OrphanedWorkload,
};
use switchyard_dispatcher::BreakerTrip;

use crate::api_objects::parameters;
use crate::reachability::Reachability;
use crate::server::clock_skew;

/// `Active` of a MultiKueueCluster.
pub fn cluster_active(cluster: &MultiKueueCluster, reach: &Reachability) -> Condition {
    conditions::new(
        conditions::ACTIVE,
        reach.active,
        reach.reason,
        &reach.message,
        cluster.metadata.generation,
    )
}

/// A condition that reports a fault: True with `now`, or False with `over` if it was True before.
/// None if the fault never occurred.
fn amiss(
    cluster: &MultiKueueCluster,
    type_: &str,
    now: Option<(&str, String)>,
    over: (&str, &str),
) -> Option<Condition> {
    let known =
        cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let (holds, reason, message) = match now {
        Some((reason, message)) => (true, reason, message),
        None if conditions::is_true(known, type_) => (false, over.0, over.1.to_owned()),
        None => return None,
    };
    Some(conditions::new(type_, holds, reason, message, cluster.metadata.generation))
}

/// `EvictionsStopped` of a MultiKueueCluster. None if evictions were never stopped.
pub fn evictions_stopped(
    cluster: &MultiKueueCluster,
    open: Option<&BreakerTrip>,
) -> Option<Condition> {
    let now = open.map(|open| {
        let message = format!(
            "{}: nothing is given up until all are back, or until `switchyard evictions resume`",
            open.message
        );
        (reasons::multi_kueue_cluster::MANY_LOST_AT_ONCE, message)
    });
    let over = (reasons::multi_kueue_cluster::RELEASED, "what is lost is given up by its policy");
    amiss(cluster, conditions::EVICTIONS_STOPPED, now, over)
}

/// `FenceUnavailable` of a MultiKueueCluster without an agent. `queues` are the ClusterQueues with
/// `onDisconnect.policy` Fence that dispatch to it. None if there never were any.
pub fn fence_unavailable(cluster: &MultiKueueCluster, queues: &[String]) -> Option<Condition> {
    let now = (!queues.is_empty()).then(|| {
        let message = format!(
            "onDisconnect.policy Fence of ClusterQueue {} does not hold here: only an agent can stop jobs that the hub cannot \
             reach; what this cluster's own onDisconnect says holds instead",
            some_of(queues)
        );
        (reasons::multi_kueue_cluster::NO_AGENT, message)
    });
    let over = (
        reasons::multi_kueue_cluster::NOT_ASKED_FOR,
        "no ClusterQueue asks for a fence here any more",
    );
    amiss(cluster, conditions::FENCE_UNAVAILABLE, now, over)
}

/// `OrphansFound` of a MultiKueueCluster, for the orphans in its status. None if it never had any.
pub fn orphans_found(
    cluster: &MultiKueueCluster,
    orphans: &[OrphanedWorkload],
) -> Option<Condition> {
    let now = (!orphans.is_empty()).then(|| {
        let names: Vec<String> = orphans.iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect();
        let message = format!(
            "has workloads with this hub's mark that the hub does not know: {}; `switchyard recover orphans` lists them",
            some_of(&names)
        );
        (reasons::multi_kueue_cluster::UNKNOWN_WORKLOADS, message)
    });
    let over = (
        reasons::multi_kueue_cluster::ALL_KNOWN,
        "every workload with this hub's mark is known to it",
    );
    amiss(cluster, conditions::ORPHANS_FOUND, now, over)
}

/// `CopiesUnproved` of a MultiKueueCluster. `obstacle` says why its agent accepts copies without a
/// proof; empty if it does not. None if it never did.
pub fn copies_unproved(cluster: &MultiKueueCluster, obstacle: &str) -> Option<Condition> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let now = (!obstacle.is_empty()).then(|| {
        let mend = match obstacle.contains("and no proof") {
            true => format!(
                ". If all of it is the hub's: `switchyard cluster trust-copies {name}`; else delete the other objects first"
            ),
            false => String::new(),
        };
        let message =
            format!("{obstacle}. What has this hub's marks there counts as its copy, proved or not{mend}");
        (reasons::multi_kueue_cluster::NO_PROOF, message)
    });
    let over = (
        reasons::multi_kueue_cluster::PROVED,
        "nothing that counts as this hub's copy there lacks a proof",
    );
    amiss(cluster, conditions::COPIES_UNPROVED, now, over)
}

/// `ClockSkewed` of a MultiKueueCluster, for the difference at the start of its session. None if it
/// never was skewed.
pub fn clock_skewed(cluster: &MultiKueueCluster, skew: i64) -> Option<Condition> {
    let now = clock_skew::report(skew)
        .map(|message| (reasons::multi_kueue_cluster::CLOCKS_DIFFER, message));
    let over = (
        reasons::multi_kueue_cluster::CLOCKS_AGREE,
        "the clocks of hub and agent are less than a minute apart",
    );
    amiss(cluster, conditions::CLOCK_SKEWED, now, over)
}

/// The first ten names, and the number of the rest.
fn some_of(names: &[String]) -> String {
    const NAMED: usize = 10;
    match names.len().checked_sub(NAMED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMED].join(", ")),
    }
}

/// The ClusterQueues with `onDisconnect.policy` Fence whose jobs may go to a cluster.
pub fn fencing_queues<'a>(
    cluster: &str,
    queues: impl IntoIterator<Item = &'a ClusterQueue>,
    check: &dyn Fn(&str) -> Option<std::sync::Arc<AdmissionCheck>>,
    config: &dyn Fn(&str) -> Option<std::sync::Arc<MultiKueueConfig>>,
) -> Vec<String> {
    let sends = |name: &str| {
        let config = check(name).and_then(|check| config(parameters(&check)?));
        config.is_some_and(|config| config.spec.clusters.iter().any(|it| it == cluster))
    };
    let fences = |queue: &&ClusterQueue| {
        let fence = queue
            .spec
            .on_disconnect
            .as_ref()
            .is_some_and(|rule| rule.policy == DisconnectPolicy::Fence);
        fence && queue.spec.admission_checks().iter().any(|rule| sends(&rule.name))
    };
    queues.into_iter().filter(fences).filter_map(|queue| queue.metadata.name.clone()).collect()
}

/// `Active` of a MultiKueue AdmissionCheck.
pub fn check_active(
    check: &AdmissionCheck,
    config: &dyn Fn(&str) -> Option<std::sync::Arc<MultiKueueConfig>>,
    cluster: &dyn Fn(&str) -> Option<std::sync::Arc<MultiKueueCluster>>,
) -> Condition {
    let (holds, reason, message) = match load(check, config) {
        Ok(config) => judge(&config, cluster),
        Err(error) => {
            let message = format!("Cannot load the AdmissionChecks parameters: {error}");
            (false, reasons::admission_check::BAD_CONFIG, message)
        }
    };
    conditions::new(conditions::ACTIVE, holds, reason, message, check.metadata.generation)
}

fn load(
    check: &AdmissionCheck,
    config: &dyn Fn(&str) -> Option<std::sync::Arc<MultiKueueConfig>>,
) -> Result<std::sync::Arc<MultiKueueConfig>, String> {
    if check.spec.parameters.is_none() {
        return Err("missing parameters reference".into());
    }
    let Some(name) = parameters(check) else { return Err("wrong parameters group or kind".into()) };
    config(name).ok_or_else(|| format!("MultiKueueConfig.kueue.x-k8s.io \"{name}\" not found"))
}

fn judge(
    config: &MultiKueueConfig,
    cluster: &dyn Fn(&str) -> Option<std::sync::Arc<MultiKueueCluster>>,
) -> (bool, &'static str, String) {
    let (mut missing, mut inactive) = (Vec::new(), Vec::new());
    for name in &config.spec.clusters {
        match cluster(name) {
            None => missing.push(name.as_str()),
            Some(cluster) => {
                let status = cluster.status.as_ref();
                if !status.is_some_and(|status| {
                    conditions::is_true(&status.conditions, conditions::ACTIVE)
                }) {
                    inactive.push(name.as_str());
                }
            }
        }
    }
    let mut parts = Vec::new();
    if !missing.is_empty() {
        parts.push(format!("Missing clusters: [{}]", missing.join(" ")));
    }
    if !inactive.is_empty() {
        parts.push(format!("Inactive clusters: [{}]", inactive.join(" ")));
    }
    let unusable = missing.len() + inactive.len();
    match unusable {
        0 => (true, reasons::admission_check::ACTIVE, "The admission check is active".into()),
        _ if unusable < config.spec.clusters.len() => {
            (true, reasons::admission_check::SOME_ACTIVE_CLUSTERS, parts.join(", "))
        }
        _ => (false, reasons::admission_check::NO_USABLE_CLUSTERS, parts.join(", ")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn check(parameters: &Value) -> AdmissionCheck {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "ac1", "generation": 1},
            "spec": {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters},
        }))
        .unwrap()
    }

    pub(crate) fn cluster(name: &str, active: Option<bool>, agent: &Value) -> MultiKueueCluster {
        let conditions: Vec<Value> = active
            .into_iter()
            .map(|active| {
                let status = if active { "True" } else { "False" };
                json!({"type": "Active", "status": status, "reason": "X", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": name},
            "spec": {"clusterSource": {"agent": {}}}, "status": {"conditions": conditions, "agent": agent},
        }))
        .unwrap()
    }

    #[test]
    fn check_active_names_missing_and_inactive_clusters() {
        let reference =
            json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "config1"});
        let wrong = json!({"apiGroup": "kueue.x-k8s.io", "kind": "Other", "name": "config1"});
        let cases: Vec<(&str, Value, Option<&[&str]>, &str)> = vec![
            (
                "no config",
                reference.clone(),
                None,
                r#"False BadConfig: Cannot load the AdmissionChecks parameters: MultiKueueConfig.kueue.x-k8s.io "config1" not found"#,
            ),
            (
                "another kind",
                wrong,
                Some(&["up"]),
                "False BadConfig: Cannot load the AdmissionChecks parameters: wrong parameters group or kind",
            ),
            (
                "all up",
                reference.clone(),
                Some(&["up"]),
                "True Active: The admission check is active",
            ),
            (
                "one of each",
                reference.clone(),
                Some(&["gone", "up", "down"]),
                "True SomeActiveClusters: Missing clusters: [gone], Inactive clusters: [down]",
            ),
            (
                "none usable",
                reference,
                Some(&["down", "never", "gone"]),
                "False NoUsableClusters: Missing clusters: [gone], Inactive clusters: [down never]",
            ),
        ];
        for (case, parameters, clusters, expected) in cases {
            let config = |_: &str| {
                let clusters = clusters?.iter().map(|name| (*name).to_owned()).collect();
                let spec = switchyard_api::v1beta2::MultiKueueConfigSpec {
                    clusters,
                    ..Default::default()
                };
                Some(Arc::new(MultiKueueConfig::new("config1", spec)))
            };
            let find = |name: &str| match name {
                "up" => Some(Arc::new(cluster(name, Some(true), &Value::Null))),
                "down" => Some(Arc::new(cluster(name, Some(false), &Value::Null))),
                "never" => Some(Arc::new(cluster(name, None, &Value::Null))),
                _ => None,
            };
            let condition = check_active(&check(&parameters), &config, &find);
            let said = format!("{} {}: {}", condition.status, condition.reason, condition.message);
            assert_eq!(said, expected, "{case}");
            assert_eq!(condition.observed_generation, Some(1));
        }
    }

    #[test]
    fn orphans_condition_names_ten_and_clears_only_if_set() {
        let orphan = |number: usize| -> OrphanedWorkload {
            serde_json::from_value(json!({"workloadUid": format!("u{number}"), "namespace": "team",
                "name": format!("job-{number}"), "attempt": 1, "state": "Running", "since": "2026-01-01T00:00:00Z"}))
            .unwrap()
        };
        let mut east = cluster("east", Some(true), &Value::Null);
        assert!(orphans_found(&east, &[]).is_none());
        let found = orphans_found(&east, &(0..12).map(orphan).collect::<Vec<_>>()).unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("True", "UnknownWorkloads"));
        assert!(
            found.message.contains("team/job-0, team/job-1")
                && found.message.contains("job-9 and 2 more; `switchyard")
        );
        east.status.as_mut().unwrap().conditions.push(found);
        assert_eq!(orphans_found(&east, &[]).unwrap().reason, "AllKnown");
    }

    #[test]
    fn clock_skewed_holds_until_clocks_agree() {
        let mut east = cluster("east", Some(true), &Value::Null);
        assert!(clock_skewed(&east, 59).is_none());
        let found = clock_skewed(&east, -3600).unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("True", "ClocksDiffer"));
        assert!(found.message.contains("3600 s behind the hub's"), "{}", found.message);
        east.status.as_mut().unwrap().conditions.push(found);
        let over = clock_skewed(&east, 0).unwrap();
        assert_eq!((over.status.as_str(), over.reason.as_str()), ("False", "ClocksAgree"));
    }

    #[test]
    fn copies_unproved_holds_until_copies_are_proved() {
        let mut east = cluster("east", Some(true), &Value::Null);
        assert!(copies_unproved(&east, "").is_none());
        let found = copies_unproved(
            &east,
            "2 objects have this hub's marks and no proof: Job ns/a, Job ns/b",
        )
        .unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("True", "NoProof"));
        assert!(
            found.message.contains("Job ns/b. What has")
                && found.message.contains("trust-copies east`")
        );
        east.status.as_mut().unwrap().conditions.push(found);
        assert_eq!(copies_unproved(&east, "").unwrap().reason, "Proved");
    }
}
