//! Compares the flavors and resources that dispatching ClusterQueues charge with those of the
//! workers' queues, as the workers report them. Flavors are compared by name, as the hub pins them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use switchyard_api::v1beta2::{ClusterQueue, LocalQueue, MultiKueueConfig};

use super::cluster::shorten;
use super::explain::CheckName;
use super::facts::ClusterFacts;
use super::fleet::{Dispatch, capacity, cluster_queue_of, dispatches, full_name, is_selected};
use super::report::{Line, Outcome};

/// Kueue counts pods only where a ClusterQueue covers them.
const PODS: &str = "pods";

/// A worker with the LocalQueue.
struct Worker<'a> {
    name: String,
    has_agent: bool,
    /// Flavor and resource of each quota behind the LocalQueue.
    quotas: BTreeSet<(&'a str, &'a str)>,
}

impl Worker<'_> {
    fn covers(&self, resource: &str) -> bool {
        self.quotas.iter().any(|(_, covered)| *covered == resource)
    }
}

/// The reason why charges of the hub fit no queue of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    /// No flavor there has the resource.
    Resource,
    /// Only other flavors have it there.
    Flavor,
    /// As `Flavor`, on a worker by kubeconfig, where stock Kueue may choose.
    Unpinned,
}

/// Equal findings of several LocalQueues of one ClusterQueue.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    cluster_queue: String,
    gap: Gap,
    /// The resources, or the hub's flavors.
    names: Vec<String>,
    workers: Vec<String>,
    /// Whether the hub sends to these workers alone.
    are_all: bool,
    config: String,
}

/// Checks each dispatching ClusterQueue, as far as its workers report their queues.
pub(super) fn check_flavors(hub: &ClusterFacts, only: &[String]) -> Vec<Line> {
    let (Ok(cluster_queues), Ok(local_queues)) = (&hub.cluster_queues, &hub.local_queues) else {
        // The check `queues` reports it.
        return Vec::new();
    };
    let mut findings: BTreeMap<Finding, Vec<String>> = BTreeMap::new();
    let mut compared = BTreeSet::new();
    for queue in local_queues {
        let name = cluster_queue_of(queue);
        let Some(cluster_queue) = cluster_queues.iter().find(|it| it.name_any() == name) else {
            continue;
        };
        for dispatch in dispatches(hub, cluster_queue) {
            if !dispatch.config.spec.clusters.iter().any(|name| is_selected(name, only)) {
                continue;
            }
            let (workers, are_all) = workers(hub, dispatch.config, queue);
            if workers.is_empty() {
                continue;
            }
            compared.insert(name);
            for (gap, names) in gaps(cluster_queue, &dispatch, &workers) {
                let finding = Finding {
                    cluster_queue: name.to_owned(),
                    gap,
                    names: names.into_iter().map(str::to_owned).collect(),
                    workers: workers.iter().map(|worker| worker.name.clone()).collect(),
                    are_all,
                    config: dispatch.config.name_any(),
                };
                findings.entry(finding).or_default().push(full_name(queue));
            }
        }
    }
    if findings.is_empty() && !compared.is_empty() {
        let queues: Vec<String> = compared.into_iter().map(str::to_owned).collect();
        let message = format!(
            "workers have the flavors and resources that ClusterQueue {} charges",
            shorten(&queues)
        );
        return vec![Line::ok(CheckName::Flavors, message)];
    }
    findings.iter().map(|(finding, queues)| line(finding, queues)).collect()
}

/// The config's workers that report the LocalQueue, and whether all others report that they lack it.
fn workers<'a>(
    hub: &'a ClusterFacts,
    config: &MultiKueueConfig,
    queue: &LocalQueue,
) -> (Vec<Worker<'a>>, bool) {
    let (mut found, mut are_all) = (Vec::new(), true);
    let clusters = hub.clusters.as_deref().unwrap_or_default();
    for cluster in clusters.iter().filter(|it| config.spec.clusters.contains(&it.name_any())) {
        let Some(capacity) = capacity(cluster) else {
            are_all = false;
            continue;
        };
        let name = full_name(queue);
        let quotas: BTreeSet<(&str, &str)> = capacity
            .iter()
            .filter(|quota| quota.local_queue == name)
            .map(|quota| (quota.flavor.as_str(), quota.resource.as_str()))
            .collect();
        if !quotas.is_empty() {
            let has_agent = cluster.spec.cluster_source.agent.is_some();
            found.push(Worker { name: cluster.name_any(), has_agent, quotas });
        }
    }
    (found, are_all)
}

/// Flavor and resource of each quota that a job can be charged to and that is dispatched.
fn charges<'a>(queue: &'a ClusterQueue, dispatch: &Dispatch<'_>) -> Vec<(&'a str, &'a str)> {
    let may_borrow = queue.spec.cohort_name.is_some();
    let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
    let sent = flavors.filter(|flavor| {
        dispatch.on_flavors.is_empty() || dispatch.on_flavors.contains(&flavor.name)
    });
    let mut charges = Vec::new();
    for flavor in sent {
        for quota in &flavor.resources {
            if may_borrow || !is_zero(&quota.nominal_quota) {
                charges.push((flavor.name.as_str(), quota.name.as_str()));
            }
        }
    }
    charges
}

fn is_zero(quantity: &Quantity) -> bool {
    !quantity.0.contains(|digit: char| ('1'..='9').contains(&digit))
}

/// Charges of the hub that no worker can take, by gap.
fn gaps<'a>(
    queue: &'a ClusterQueue,
    dispatch: &Dispatch<'_>,
    workers: &[Worker<'_>],
) -> BTreeMap<Gap, BTreeSet<&'a str>> {
    let config = &dispatch.config.spec;
    let mut gaps: BTreeMap<Gap, BTreeSet<&str>> = BTreeMap::new();
    for (flavor, resource) in charges(queue, dispatch) {
        let covering: Vec<_> = workers.iter().filter(|it| it.covers(resource)).collect();
        let has_flavor = |worker: &&Worker<'_>| {
            worker.quotas.contains(&(config.worker_flavor(&worker.name, flavor), resource))
        };
        if covering.is_empty() {
            if resource != PODS {
                gaps.entry(Gap::Resource).or_default().insert(resource);
            }
        } else if config.pins_flavors() && !covering.iter().any(has_flavor) {
            let are_pinned = covering.iter().all(|worker| worker.has_agent);
            let gap = if are_pinned { Gap::Flavor } else { Gap::Unpinned };
            gaps.entry(gap).or_default().insert(flavor);
        }
    }
    gaps
}

fn line(finding: &Finding, queues: &[String]) -> Line {
    let Finding { cluster_queue, gap, names, workers, are_all, config } = finding;
    let (names, workers) = (shorten(names), shorten(workers));
    let queue = queues.first().map(String::as_str).unwrap_or_default();
    let fate = match are_all {
        true => "wait for ever",
        false => "are not sent there",
    };
    let subject = format!("ClusterQueue {cluster_queue} charges");
    let behind = format!("the ClusterQueue behind LocalQueue {queue} there");
    let map = format!("or name its flavor in spec.flavorPins of the MultiKueueConfig {config}");
    let (message, mend) = match gap {
        Gap::Resource => (
            format!(
                "{subject} {names}, which no queue of {workers} covers: jobs that request it {fate}"
            ),
            format!("add {names} to spec.resourceGroups of {behind}"),
        ),
        Gap::Flavor => (
            format!("{subject} flavor {names}, which no queue of {workers} has: jobs in it {fate}"),
            format!("add flavor {names} to {behind}, {map}"),
        ),
        Gap::Unpinned => (
            format!(
                "{subject} flavor {names}, which no queue of {workers} has: Kueue on a worker by kubeconfig uses another flavor, \
                 Switchyard there refuses the job"
            ),
            format!("add flavor {names} to {behind}, {map}"),
        ),
    };
    let outcome = match gap {
        Gap::Resource | Gap::Flavor if *are_all => Outcome::Failure,
        _ => Outcome::Warning,
    };
    match outcome {
        Outcome::Failure => Line::failure(CheckName::Flavors, message, mend),
        _ => Line::warning(CheckName::Flavors, message, mend),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::tests::{facts, object};

    /// Name, source, and quotas by flavor and resource.
    type Worker<'a> = (&'a str, Value, &'a [(&'a str, &'a str)]);

    /// A hub with `spot` and `reserved` for cpu and memory, and workers with these quotas.
    fn hub(config: &Value, workers: &[Worker<'_>]) -> ClusterFacts {
        let flavor = |name: &str| {
            let resources = json!([{"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "8Gi"}]);
            json!({"name": name, "resources": resources})
        };
        let group = json!({"coveredResources": ["cpu", "memory"], "flavors": [flavor("spot"), flavor("reserved")]});
        let cluster = |(name, source, quotas): &Worker<'_>| {
            let quota = |(flavor, resource): &(&str, &str)| {
                json!({"localQueue": "team/main", "clusterQueue": "there", "flavor": flavor, "resource": resource,
                    "nominal": "1", "used": "0", "available": "1"})
            };
            object(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": name},
                "spec": {"clusterSource": source},
                "status": {
                    "conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
                        "lastTransitionTime": "2026-11-21T10:00:00Z"}],
                    "agent": {"capacity": quotas.iter().map(quota).collect::<Vec<_>>()},
                },
            }))
        };
        let mut hub = facts();
        let queue = &mut hub.cluster_queues.as_mut().unwrap()[0];
        queue.spec.resource_groups = vec![object(group)];
        hub.clusters = Ok(workers.iter().map(cluster).collect());
        let mut spec = config.clone();
        spec["clusters"] = workers.iter().map(|(name, ..)| *name).collect();
        hub.multikueue_configs =
            Ok(vec![object(json!({"metadata": {"name": "mk"}, "spec": spec}))]);
        hub
    }

    const SPOT: [(&str, &str); 2] = [("spot", "cpu"), ("spot", "memory")];
    const RESERVED: [(&str, &str); 2] = [("reserved", "cpu"), ("reserved", "memory")];

    fn agent() -> Value {
        json!({"agent": {}})
    }

    fn kubeconfig() -> Value {
        json!({"kubeConfig": {"location": "west"}})
    }

    fn lines(hub: &ClusterFacts, only: &[&str]) -> Vec<String> {
        let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
        check_flavors(hub, &only)
            .iter()
            .map(|line| format!("{:?}: {}", line.outcome, line.message))
            .collect()
    }

    #[test]
    fn flavor_of_one_worker_is_enough() {
        let split = hub(&json!({}), &[("east", agent(), &SPOT), ("west", agent(), &RESERVED)]);
        let ok = "Ok: workers have the flavors and resources that ClusterQueue cq charges";
        assert_eq!(lines(&split, &[]), [ok]);
        assert_eq!(lines(&split, &["east"]), [ok], "west has the other one");
        assert_eq!(lines(&split, &["north"]), [""; 0], "nothing is sent there");
    }

    #[test]
    fn flavor_without_a_worker_fails_unless_pins_are_off_or_mapped() {
        let workers = [("east", agent(), &SPOT[..])];
        let missing = hub(&json!({}), &workers);
        assert_eq!(
            lines(&missing, &[]),
            [
                "Failure: ClusterQueue cq charges flavor reserved, which no queue of east has: jobs in it wait for ever"
            ]
        );
        let line = &check_flavors(&missing, &[])[0];
        assert_eq!(
            line.mend.as_deref().unwrap(),
            "add flavor reserved to the ClusterQueue behind LocalQueue team/main there, or name its flavor in \
             spec.flavorPins of the MultiKueueConfig mk"
        );
        let mapping = json!([{"flavor": "reserved", "workerFlavor": "spot", "cluster": "east"}]);
        let elsewhere = json!([{"flavor": "reserved", "workerFlavor": "spot", "cluster": "west"}]);
        for (config, count) in [
            (json!({"flavorPins": {"policy": "None"}}), 0),
            (json!({"quotaManagement": "Automated"}), 0),
            (json!({"flavorPins": {"mapping": mapping}}), 0),
            (json!({"flavorPins": {"mapping": elsewhere}}), 1),
        ] {
            let faults = check_flavors(&hub(&config, &workers), &[]);
            let faults = faults.iter().filter(|line| line.outcome != Outcome::Ok);
            assert_eq!(faults.count(), count, "{config}");
        }
    }

    #[test]
    fn missing_flavor_of_a_kubeconfig_worker_is_a_warning() {
        let missing = hub(&json!({}), &[("west", kubeconfig(), &SPOT)]);
        assert_eq!(
            lines(&missing, &[]),
            [
                "Warning: ClusterQueue cq charges flavor reserved, which no queue of west has: Kueue on a worker by kubeconfig \
                 uses another flavor, Switchyard there refuses the job"
            ]
        );
    }

    #[test]
    fn missing_resource_fails_whatever_the_pins() {
        let off = json!({"flavorPins": {"policy": "None"}});
        let mut missing = hub(&off, &[("east", agent(), &[("other", "cpu")])]);
        let expected =
            "ClusterQueue cq charges memory, which no queue of east covers: jobs that request it";
        assert_eq!(lines(&missing, &[]), [format!("Failure: {expected} wait for ever")]);

        // A worker that does not report may have it.
        let mut silent = missing.clusters.as_ref().unwrap()[0].clone();
        silent.metadata.name = Some("west".to_owned());
        silent.status = None;
        missing.clusters.as_mut().unwrap().push(silent);
        missing.multikueue_configs.as_mut().unwrap()[0].spec.clusters.push("west".to_owned());
        assert_eq!(lines(&missing, &[]), [format!("Warning: {expected} are not sent there")]);
    }

    #[test]
    fn quota_that_is_never_charged_is_not_compared() {
        let workers = [("east", agent(), &SPOT[..])];
        let ok = |hub: &ClusterFacts| {
            check_flavors(hub, &[]).iter().all(|line| line.outcome == Outcome::Ok)
        };
        let queue = |hub: &mut ClusterFacts, change: fn(&mut ClusterQueue)| {
            change(&mut hub.cluster_queues.as_mut().unwrap()[0]);
        };
        let mut hub = hub(&json!({}), &workers);
        assert!(!ok(&hub));
        queue(&mut hub, |queue| {
            for quota in &mut queue.spec.resource_groups[0].flavors[1].resources {
                quota.nominal_quota.0 = "0".to_owned();
            }
        });
        assert!(ok(&hub), "no quota");
        queue(&mut hub, |queue| queue.spec.cohort_name = Some("all".to_owned()));
        assert!(!ok(&hub), "it may borrow");
        queue(&mut hub, |queue| {
            let strategy = queue.spec.admission_checks_strategy.as_mut().unwrap();
            strategy.admission_checks[0].on_flavors = vec!["spot".to_owned()];
        });
        assert!(ok(&hub), "jobs in reserved are not dispatched");
        queue(&mut hub, |queue| {
            let group = &mut queue.spec.resource_groups[0];
            let mut pods = group.flavors[0].resources[0].clone();
            pods.name = PODS.to_owned();
            group.flavors[0].resources.push(pods);
        });
        assert!(ok(&hub), "workers need not count pods");
    }

    #[test]
    fn equal_findings_of_local_queues_are_one_line() {
        let mut hub = hub(&json!({}), &[("east", agent(), &SPOT)]);
        let second = |name: &str| {
            object::<LocalQueue>(json!({
                "metadata": {"namespace": "team", "name": name}, "spec": {"clusterQueue": "cq"},
            }))
        };
        hub.local_queues.as_mut().unwrap().push(second("other"));
        let status = hub.clusters.as_mut().unwrap()[0].status.as_mut().unwrap();
        let capacity = &mut status.agent.as_mut().unwrap().capacity;
        let more: Vec<_> = capacity
            .iter()
            .map(|quota| switchyard_api::v1beta2::AgentCapacity {
                local_queue: "team/other".to_owned(),
                ..quota.clone()
            })
            .collect();
        capacity.extend(more);
        assert_eq!(check_flavors(&hub, &[]).len(), 1);
    }
}
