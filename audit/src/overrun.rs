//! Owners whose pods request more than their Workloads charge.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_api::names;
use switchyard_api::v1beta2::{ClusterQueue, PodSetAssignment, Workload};
use switchyard_jobs::pod_requests::{RequestDefaults, pod_requests};

use crate::amounts::{Amounts, Pair, text};
use crate::charge::Charges;
use crate::cluster::{Cluster, mark, name};
use crate::finding::{Finding, FindingKind, Object, Quantities, quantity};
use crate::running::Running;
use crate::workload::{allows_pods, reservation};

/// The resource that counts pods.
const PODS: &str = "pods";

pub(crate) fn findings(
    cluster: &Cluster,
    charges: &Charges,
    running: &[Running<'_>],
) -> Vec<Finding> {
    let queues =
        cluster.cluster_queues.iter().map(|queue| (name(&queue.metadata), queue)).collect();
    sharing(cluster, running)
        .into_iter()
        .flat_map(|share| share.findings(cluster, charges, &queues))
        .collect()
}

type Queues<'a> = BTreeMap<&'a str, &'a ClusterQueue>;

/// Pods, and the Workloads whose quota they share.
#[derive(Default)]
struct SharedQuota<'a, 'r> {
    workload_indexes: BTreeSet<usize>,
    pods: Vec<&'r Running<'a>>,
}

/// Pods that may run, in groups without a common Workload.
fn sharing<'a, 'r>(cluster: &Cluster, running: &'r [Running<'a>]) -> Vec<SharedQuota<'a, 'r>> {
    let may_run = |index: &usize| cluster.workloads.get(*index).is_some_and(allows_pods);
    let mut shares = BTreeMap::<usize, SharedQuota<'a, 'r>>::new();
    // By Workload, the key of its group in `shares`.
    let mut places = BTreeMap::<usize, usize>::new();
    for (place, pod) in
        running.iter().enumerate().filter(|(_, pod)| pod.workload_indexes.iter().any(may_run))
    {
        let joined: BTreeSet<usize> =
            pod.workload_indexes.iter().filter_map(|holder| places.get(holder).copied()).collect();
        let place = joined.first().copied().unwrap_or(place);
        let mut share = shares.remove(&place).unwrap_or_default();
        for other in joined.iter().filter_map(|other| shares.remove(other)) {
            places.extend(other.workload_indexes.iter().map(|holder| (*holder, place)));
            share.workload_indexes.extend(other.workload_indexes);
            share.pods.extend(other.pods);
        }
        places.extend(pod.workload_indexes.iter().map(|holder| (*holder, place)));
        share.workload_indexes.extend(&pod.workload_indexes);
        share.pods.push(pod);
        shares.insert(place, share);
    }
    shares.into_values().collect()
}

impl<'a> SharedQuota<'a, '_> {
    fn findings(
        &self,
        cluster: &'a Cluster,
        charges: &Charges,
        queues: &Queues<'a>,
    ) -> Vec<Finding> {
        // The charged slice, which is the newer one, precedes the replaced ones.
        let is_uncharged =
            |index: &usize| charges.get(*index).is_none_or(|charge| charge.iter().next().is_none());
        let holds_quota =
            |index: &usize| cluster.workloads.get(*index).and_then(reservation).is_some();
        let mut workload_indexes: Vec<usize> =
            self.workload_indexes.iter().copied().filter(holds_quota).collect();
        workload_indexes.sort_by_key(is_uncharged);
        let workloads: Vec<&Workload> =
            workload_indexes.iter().filter_map(|index| cluster.workloads.get(*index)).collect();
        let Some(mut charged) = charges.sum(workload_indexes) else { return Vec::new() };
        let requests = Requests::of(&self.pods, &workloads, queues);
        if !requests.is_by_flavor {
            charged = charged.over_flavors();
        }
        let above = requests.amounts.iter().filter(|(pair, asked)| *asked > charged.get(pair));
        above
            .map(|(pair, asked)| {
                self.finding(cluster, &workloads, pair, (asked, charged.get(pair)))
            })
            .collect()
    }

    fn finding(
        &self,
        cluster: &Cluster,
        workloads: &[&Workload],
        pair: &Pair,
        (asked, charged): (i64, i64),
    ) -> Finding {
        let of = |workload: &&Workload| Object::new("Workload", &workload.metadata);
        let mut objects: Vec<Object> = workloads.iter().map(of).collect();
        let pods = if let [_] = self.pods.as_slice() {
            "1 pod asks".into()
        } else {
            format!("{} pods ask", self.pods.len())
        };
        let owner = objects.iter().map(Object::to_string).collect::<Vec<_>>().join(" and ");
        let (asks, holds) = (text(pair, asked), quantity(pair, charged));
        let is = if workloads.len() == 1 { "is" } else { "are" };
        let message = format!(
            "{pods} for {asks}, but {owner} {is} charged {}",
            holds.clone().unwrap_or_default()
        );
        let uids: Vec<&str> =
            workloads.iter().filter_map(|it| it.metadata.uid.as_deref()).collect();
        let identity = format!("{owner} {}", uids.join(" "));
        objects.extend(self.owners());
        objects.extend(self.pods.iter().map(|running| Object::new("Pod", &running.pod.metadata)));
        let amounts =
            Quantities { running: quantity(pair, asked), charged: holds, ..Quantities::default() };
        Finding::new(FindingKind::RunsAboveCharge, &cluster.name, objects, identity, message)
            .about(pair, amounts)
    }

    /// The queued owners of the pods.
    fn owners(&self) -> BTreeSet<Object> {
        let queued = self.pods.iter().filter_map(|running| running.chain.queued());
        queued.filter(|owner| owner.kind != "Pod").map(|owner| owner.object()).collect()
    }
}

/// The requests of pods, for resources that their ClusterQueues cover.
struct Requests {
    amounts: Amounts,
    /// Whether the pod set of each pod, and with it the flavor, is known. If not, the amounts are
    /// sums over all flavors.
    is_by_flavor: bool,
}

impl Requests {
    fn of(pods: &[&Running<'_>], workloads: &[&Workload], queues: &Queues<'_>) -> Self {
        let assignments = assignments(workloads);
        let covered = covered(workloads, queues);
        let mut requests = Self { amounts: Amounts::default(), is_by_flavor: true };
        for running in pods {
            let assignment = assignment_of(running, &assignments);
            requests.is_by_flavor &= assignment.is_some();
            // The API server rejects pods with unreadable requests.
            let mut asked =
                pod_requests(running.spec, &RequestDefaults::default()).unwrap_or_default();
            asked.insert(PODS.to_owned(), 1);
            for (resource, amount) in
                asked.iter().filter(|(resource, _)| covered.contains(resource.as_str()))
            {
                let flavor = assignment.and_then(|assignment| assignment.flavors.get(resource));
                requests.amounts.add(flavor.map_or("", String::as_str), resource, *amount);
            }
        }
        if !requests.is_by_flavor {
            requests.amounts = requests.amounts.over_flavors();
        }
        requests
    }
}

fn assignments<'a>(workloads: &[&'a Workload]) -> Vec<&'a PodSetAssignment> {
    workloads
        .iter()
        .filter_map(|workload| reservation(workload))
        .flat_map(|it| &it.pod_set_assignments)
        .collect()
}

/// The assignment that a pod's label names, or the only one.
fn assignment_of<'a>(
    running: &Running<'_>,
    assignments: &[&'a PodSetAssignment],
) -> Option<&'a PodSetAssignment> {
    let named = mark(&running.pod.metadata.labels, names::POD_SET);
    let labelled =
        named.and_then(|named| assignments.iter().find(|assignment| assignment.name == named));
    let first = assignments.first();
    let only =
        first.filter(|first| assignments.iter().all(|assignment| assignment.name == first.name));
    labelled.or(only).copied()
}

/// The resources that the ClusterQueues cover; of an unknown ClusterQueue, the assigned resources.
/// The configuration excludes all others, or transforms them into these.
fn covered<'a>(workloads: &[&'a Workload], queues: &Queues<'a>) -> BTreeSet<&'a str> {
    let mut covered = BTreeSet::new();
    for admission in workloads.iter().filter_map(|workload| reservation(workload)) {
        match queues.get(admission.cluster_queue.as_str()) {
            Some(queue) => {
                let resources =
                    queue.spec.resource_groups.iter().flat_map(|group| &group.covered_resources);
                covered.extend(resources.map(String::as_str));
            }
            None => {
                let resources =
                    admission.pod_set_assignments.iter().flat_map(|it| it.flavors.iter());
                covered.extend(resources.map(|(resource, _)| resource.as_str()));
            }
        }
    }
    covered
}
