//! Pods that run, beside what their Workloads are charged.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use switchyard_api::jobs::pod_requests::{RequestDefaults, pod_requests};
use switchyard_api::names;
use switchyard_api::quantity::format_shortest;
use switchyard_api::v1beta2::Workload;

use crate::amounts::{Amounts, add, add_all, by_resource, charge};
use crate::cluster::{Cluster, is_admitted, mark, name, namespace, reservation};
use crate::finding::{Finding, Kind, Object};
use crate::owners::Owners;

/// The resource that counts pods.
const PODS: &str = "pods";

/// Pods named in a message.
const NAMED: usize = 3;

pub(crate) fn findings(cluster: &Cluster) -> Vec<Finding> {
    let owners = Owners::of(cluster);
    let mut found = Vec::new();
    let mut groups = BTreeMap::<BTreeSet<usize>, Vec<&Pod>>::new();
    for pod in cluster.pods.iter().filter(|pod| runs(pod)) {
        let workloads = owners.workloads(pod);
        if workloads.is_empty() && !owners.is_queued(pod) {
            continue;
        }
        let known = |index: &usize| cluster.workloads.get(*index);
        if !workloads.iter().filter_map(known).any(is_admitted) {
            found.push(without_admission(cluster, pod, workloads.iter().filter_map(known)));
        }
        let charged: BTreeSet<usize> =
            workloads.into_iter().filter(|index| known(index).is_some_and(|it| reservation(it).is_some())).collect();
        if !charged.is_empty() {
            groups.entry(charged).or_default().push(pod);
        }
    }
    for (workloads, pods) in groups {
        let workloads: Vec<&Workload> = workloads.iter().filter_map(|index| cluster.workloads.get(*index)).collect();
        found.extend(above_charge(cluster, &workloads, &pods));
    }
    found
}

/// Whether containers of a pod run, or may start at any moment: no gate holds it, and it has not ended. One that is being deleted
/// runs until it has ended, if it has ever been given a node.
fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let spec = pod.spec.as_ref();
    let gated = spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
    let placed = spec.and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty());
    let never = pod.metadata.deletion_timestamp.is_some() && !placed;
    !matches!(phase, "Succeeded" | "Failed") && !gated && !never
}

fn object_of(workload: &Workload) -> Object {
    Object::new("Workload", namespace(&workload.metadata), name(&workload.metadata))
}

fn pod_of(pod: &Pod) -> Object {
    Object::new("Pod", namespace(&pod.metadata), name(&pod.metadata))
}

fn without_admission<'a>(cluster: &Cluster, pod: &Pod, workloads: impl Iterator<Item = &'a Workload>) -> Finding {
    let workloads: Vec<Object> = workloads.map(object_of).collect();
    let why = match workloads.as_slice() {
        [] => "there is no Workload for it".to_owned(),
        [one] => format!("{one} is not admitted"),
        several => format!("none of its {} Workloads is admitted", several.len()),
    };
    let message = format!("{} runs, and {why}", pod_of(pod));
    let objects = std::iter::once(pod_of(pod)).chain(workloads).collect();
    Finding::new(Kind::RunsWithoutAdmission, &cluster.name, objects, message)
}

/// What a pod asks for, by resource. What the API server has admitted can be read; else it is skipped.
fn requests(pod: &Pod) -> BTreeMap<String, i64> {
    let spec = pod.spec.as_ref();
    let asked = spec.and_then(|spec| pod_requests(spec, &RequestDefaults::default()).ok());
    let mut asked = asked.unwrap_or_default();
    asked.insert(PODS.to_owned(), 1);
    asked
}

/// By flavor what pods of these Workloads ask for. None where the pod set of one is not known.
fn used(workloads: &[&Workload], pods: &[&Pod]) -> Option<Amounts> {
    let assignments = || workloads.iter().filter_map(|it| reservation(it)).flat_map(|it| &it.pod_set_assignments);
    let mut names: Vec<&str> = assignments().map(|assignment| assignment.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut used = Amounts::new();
    for pod in pods {
        let pod_set = match (mark(&pod.metadata.labels, names::POD_SET), names.as_slice()) {
            (_, [only]) => only,
            (Some(named), _) => named,
            (None, _) => return None,
        };
        for (resource, amount) in requests(pod) {
            let mut of_set = assignments().filter(|assignment| assignment.name == pod_set);
            let flavor = of_set.find_map(|assignment| assignment.flavors.get(&resource));
            add(&mut used, flavor.map_or("", String::as_str), &resource, amount);
        }
    }
    Some(used)
}

/// The resources that the ClusterQueues of these Workloads count. The others were left out by the configuration, or something else
/// is counted in their place.
fn covered<'a>(cluster: &'a Cluster, workloads: &[&Workload]) -> BTreeSet<&'a str> {
    let queues: BTreeSet<&str> =
        workloads.iter().filter_map(|it| reservation(it)).map(|it| it.cluster_queue.as_str()).collect();
    let queues = cluster.cluster_queues.iter().filter(|queue| queues.contains(name(&queue.metadata)));
    queues
        .flat_map(|queue| &queue.spec.resource_groups)
        .flat_map(|it| &it.covered_resources)
        .map(String::as_str)
        .collect()
}

fn above_charge(cluster: &Cluster, workloads: &[&Workload], pods: &[&Pod]) -> Vec<Finding> {
    let mut charged = Amounts::new();
    workloads.iter().for_each(|workload| add_all(&mut charged, &charge(workload)));
    let covered = covered(cluster, workloads);
    let mut whole = Amounts::new();
    for (resource, amount) in pods.iter().flat_map(|pod| requests(pod)) {
        add(&mut whole, "", &resource, amount);
    }
    let mut found = Vec::new();
    let totals = by_resource(&charged);
    for (resource, asked) in by_resource(&whole) {
        let limit = totals.get(resource).copied().unwrap_or(0);
        if asked > limit && covered.contains(resource) {
            found.push(exceeds(cluster, workloads, pods, ("", resource), (asked, limit)));
        }
    }
    if found.is_empty() {
        for ((flavor, resource), asked) in used(workloads, pods).into_iter().flatten() {
            let limit = charged.get(&(flavor.clone(), resource.clone())).copied().unwrap_or(0);
            if asked > limit && covered.contains(resource.as_str()) {
                found.push(exceeds(cluster, workloads, pods, (&flavor, &resource), (asked, limit)));
            }
        }
    }
    found
}

fn exceeds(
    cluster: &Cluster,
    workloads: &[&Workload],
    pods: &[&Pod],
    (flavor, resource): (&str, &str),
    (asked, limit): (i64, i64),
) -> Finding {
    let mut objects: Vec<Object> = workloads.iter().map(|workload| object_of(workload)).collect();
    let charged = objects.iter().map(Object::to_string).collect::<Vec<_>>().join(" and ");
    objects.extend(pods.iter().take(NAMED).map(|pod| pod_of(pod)));
    let of = if flavor.is_empty() { String::new() } else { format!(" of flavor {flavor}") };
    let asking = if pods.len() == 1 { "1 pod asks".to_owned() } else { format!("{} pods ask", pods.len()) };
    let message = format!(
        "{asking} for {} {resource}{of}, and {charged} is charged {}",
        format_shortest(resource, asked),
        format_shortest(resource, limit),
    );
    Finding::new(Kind::RunsAboveCharge, &cluster.name, objects, message).of_amounts(flavor, resource, asked, limit)
}
