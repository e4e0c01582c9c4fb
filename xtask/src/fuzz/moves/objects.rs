//! Removes queues, cohorts, flavors and resources, with all references to them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{changed, everywhere, list, name, retain, steps};

/// Scenarios without one ClusterQueue, its LocalQueues and their workloads.
pub(super) fn without_queues(scenario: &Value) -> Vec<Value> {
    let without = |queue: &str| {
        changed(scenario, |scenario| {
            let leads_there = |local: &Value| local["spec"]["clusterQueue"] == queue;
            let gone: BTreeSet<(String, String)> = list(scenario, "localQueues")
                .iter()
                .filter(|local| leads_there(local))
                .map(place)
                .collect();
            let waits_there = |workload: &Value| {
                let namespace = workload["metadata"]["namespace"].as_str().unwrap_or_default();
                gone.contains(&(
                    namespace.to_owned(),
                    workload["spec"]["queueName"].as_str().unwrap_or_default().to_owned(),
                ))
            };
            let submitted = list(scenario, "steps").iter().flat_map(|step| list(step, "submit"));
            let workloads: BTreeSet<_> =
                submitted.filter(|workload| waits_there(workload)).map(super::key).collect();
            steps::forget(scenario, &|key| workloads.contains(key));
            retain(scenario, "localQueues", |local| !leads_there(local));
            retain(scenario, "clusterQueues", |object| name(object) != queue);
            not_applied(scenario, "ClusterQueue", queue);
        })
    };
    let queues = list(scenario, "clusterQueues");
    if queues.len() < 2 {
        Vec::new()
    } else {
        queues.iter().filter_map(|object| without(name(object))).collect()
    }
}

/// Namespace and name of a LocalQueue.
fn place(local: &Value) -> (String, String) {
    (local["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(), name(local).to_owned())
}

/// Removes an object from all steps that apply it.
fn not_applied(scenario: &mut Value, kind: &str, gone: &str) {
    for step in scenario["steps"].as_array_mut().into_iter().flatten() {
        retain(step, "apply", |object| object["kind"] != kind || name(object) != gone);
    }
}

/// Scenarios without one Cohort's object, and scenarios without all references to it.
pub(super) fn without_cohorts(scenario: &Value) -> Vec<Value> {
    let mut smaller = Vec::new();
    for cohort in list(scenario, "cohorts").iter().map(name) {
        let remove = |scenario: &mut Value| {
            retain(scenario, "cohorts", |object| name(object) != cohort);
            not_applied(scenario, "Cohort", cohort);
        };
        smaller.extend(changed(scenario, |scenario| {
            remove(scenario);
            everywhere(scenario, &mut |value| {
                for field in ["cohortName", "parentName"] {
                    if value.get(field).is_some_and(|named| named == cohort) {
                        value.as_object_mut().map(|object| object.remove(field));
                    }
                }
            });
        }));
        smaller.extend(changed(scenario, remove));
    }
    smaller
}

/// Scenarios without one flavor.
pub(super) fn without_flavors(scenario: &Value) -> Vec<Value> {
    let flavors = list(scenario, "resourceFlavors");
    let without = |flavor: &str| {
        changed(scenario, |scenario| {
            retain(scenario, "resourceFlavors", |object| name(object) != flavor);
            everywhere(scenario, &mut |value| {
                retain(value, "flavors", |quotas| quotas["name"] != flavor);
                retain(value, "resourceGroups", |group| !list(group, "flavors").is_empty());
            });
        })
    };
    if flavors.len() < 2 {
        Vec::new()
    } else {
        flavors.iter().filter_map(|object| without(name(object))).collect()
    }
}

/// Scenarios without one resource.
pub(super) fn without_resources(scenario: &Value) -> Vec<Value> {
    let mut resources = BTreeSet::new();
    let mut read = scenario.clone();
    everywhere(&mut read, &mut |value| {
        resources.extend(
            list(value, "coveredResources").iter().filter_map(Value::as_str).map(str::to_owned),
        );
    });
    let without = |resource: &String| {
        changed(scenario, |scenario| {
            everywhere(scenario, &mut |value| {
                retain(value, "coveredResources", |covered| covered != resource);
                retain(value, "resources", |quota| quota["name"] != *resource);
                retain(value, "resourceGroups", |group| {
                    !list(group, "coveredResources").is_empty()
                });
                if let Some(requests) = value.get_mut("requests").and_then(Value::as_object_mut) {
                    requests.remove(resource);
                }
            });
        })
    };
    if resources.len() < 2 { Vec::new() } else { resources.iter().filter_map(without).collect() }
}

/// The scenario without namespaces that have no LocalQueue.
pub(super) fn without_namespaces(scenario: &Value) -> Option<Value> {
    changed(scenario, |scenario| {
        let used: BTreeSet<_> =
            list(scenario, "localQueues").iter().map(|local| place(local).0).collect();
        retain(scenario, "namespaces", |namespace| used.contains(name(namespace)));
    })
}
