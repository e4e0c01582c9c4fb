//! Compares copies on workers with the hub's Workloads.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_api::names;
use switchyard_api::v1beta2::{ClusterQueue, Workload, WorkloadStatus};

use crate::amounts::{Pair, text};
use crate::charge::Charges;
use crate::cluster::{Cluster, Key, key, mark, name};
use crate::finding::{Finding, FindingKind, Object, Quantities, quantity};
use crate::workload::{is_admitted, is_counted, original_uid, reservation};

/// Finds copies that charge more than the hub's Workloads. The result is sorted. Compares sums over
/// all flavors, because a worker's flavors may have other names.
#[must_use]
pub fn compare(hub: &Cluster, workers: &[Cluster]) -> Vec<Finding> {
    let hub = Hub::of(hub, workers);
    let mut found: Vec<Finding> = workers.iter().flat_map(|worker| hub.compare(worker)).collect();
    found.sort();
    found
}

/// How a copy names its Workload on the hub.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CopyOrigin<'a> {
    /// Stamped by Switchyard.
    Uid(&'a str),
    /// MultiKueue names the copy like the Workload.
    Name(Key<'a>),
}

impl<'a> CopyOrigin<'a> {
    /// `None` if the Workload is no copy.
    fn of(workload: &'a Workload) -> Option<Self> {
        let by_name = || {
            mark(&workload.metadata.labels, names::MULTIKUEUE_ORIGIN)
                .map(|_| Self::Name(key(&workload.metadata)))
        };
        original_uid(workload).map(Self::Uid).or_else(by_name)
    }
}

struct Hub<'a> {
    cluster: &'a Cluster,
    charges: Charges,
    by_origin: BTreeMap<CopyOrigin<'a>, BTreeSet<usize>>,
    /// This hub's ids on its copies, as far as known.
    ids: BTreeSet<&'a str>,
}

impl<'a> Hub<'a> {
    fn of(cluster: &'a Cluster, workers: &'a [Cluster]) -> Self {
        let mut by_origin = BTreeMap::<_, BTreeSet<usize>>::new();
        for (index, workload) in cluster.workloads.iter().enumerate() {
            // A Workload that adopted a copy, or replaces the slice of one, has another uid there.
            let dispatch = workload.status.as_ref().and_then(|status| status.dispatch.as_ref());
            let adopted = dispatch.and_then(|dispatch| dispatch.workload_uid.as_deref());
            let uids =
                workload.metadata.uid.as_deref().into_iter().chain(adopted).map(CopyOrigin::Uid);
            for origin in uids.chain([CopyOrigin::Name(key(&workload.metadata))]) {
                by_origin.entry(origin).or_default().insert(index);
            }
        }
        let copies = workers.iter().flat_map(|worker| &worker.workloads);
        let known = copies.filter(|copy| {
            original_uid(copy).is_some_and(|uid| by_origin.contains_key(&CopyOrigin::Uid(uid)))
        });
        let ids = known.filter_map(|copy| mark(&copy.metadata.labels, names::HUB_ID)).collect();
        Self { cluster, charges: Charges::of(&cluster.workloads), by_origin, ids }
    }

    fn compare(&self, worker: &Cluster) -> Vec<Finding> {
        let charges = Charges::of(&worker.workloads);
        let mut copies = BTreeMap::<CopyOrigin<'_>, Vec<usize>>::new();
        for (index, workload) in worker.workloads.iter().enumerate() {
            if let Some(origin) = self.origin(workload) {
                copies.entry(origin).or_default().push(index);
            }
        }
        copies
            .into_iter()
            .flat_map(|(origin, copies)| self.compare_copies(worker, &charges, origin, &copies))
            .collect()
    }

    /// The origin of a copy; `None` if another hub sent it.
    fn origin<'w>(&self, copy: &'w Workload) -> Option<CopyOrigin<'w>> {
        let origin = CopyOrigin::of(copy)?;
        let id = mark(&copy.metadata.labels, names::HUB_ID);
        let is_of_other = !self.ids.is_empty() && id.is_some_and(|id| !self.ids.contains(id));
        (self.by_origin.contains_key(&origin) || !is_of_other).then_some(origin)
    }

    fn compare_copies(
        &self,
        worker: &Cluster,
        charges: &Charges,
        origin: CopyOrigin<'_>,
        copies: &[usize],
    ) -> Vec<Finding> {
        let originals = self.by_origin.get(&origin).cloned().unwrap_or_default();
        let counted = copies
            .iter()
            .copied()
            .filter(|index| worker.workloads.get(*index).is_some_and(is_counted));
        // Unreadable amounts are not compared.
        let sums = charges.sum(counted).zip(self.charges.sum(originals.iter().copied()));
        let Some((there, here)) =
            sums.map(|(there, here)| (there.over_flavors(), here.over_flavors()))
        else {
            return Vec::new();
        };
        let originals: Vec<&Workload> =
            originals.iter().filter_map(|index| self.cluster.workloads.get(*index)).collect();
        let copies: Vec<&Workload> =
            copies.iter().filter_map(|index| worker.workloads.get(*index)).collect();
        let may_run = copies.iter().any(|copy| is_admitted(copy));
        let is_charged = here.iter().next().is_some();
        if !may_run && (!is_charged || !is_committed(&originals, worker)) {
            return Vec::new();
        }
        let covered = self.covered(&originals);
        let is_compared =
            |pair: &Pair| covered.as_ref().is_none_or(|covered| covered.contains(pair.1.as_str()));
        let more =
            there.iter().filter(|(pair, amount)| *amount > here.get(pair) && is_compared(pair));
        let on_hub = |pair| (!originals.is_empty()).then(|| here.get(pair));
        more.map(|(pair, amount)| {
            self.finding(worker, origin, &copies, pair, (amount, on_hub(pair)))
        })
        .collect()
    }

    /// `on_hub` is `None` if the hub has no Workload.
    fn finding(
        &self,
        worker: &Cluster,
        origin: CopyOrigin<'_>,
        copies: &[&Workload],
        pair: &Pair,
        (charged, on_hub): (i64, Option<i64>),
    ) -> Finding {
        let objects: Vec<Object> =
            copies.iter().map(|copy| Object::new("Workload", &copy.metadata)).collect();
        let names = objects.iter().map(Object::to_string).collect::<Vec<_>>().join(" and ");
        let (hub, charged_on_hub) = (&self.cluster.name, quantity(pair, on_hub.unwrap_or(0)));
        let but = match on_hub {
            Some(_) => {
                format!("its charge on {hub} is {}", charged_on_hub.clone().unwrap_or_default())
            }
            None => format!("{hub} has no Workload for it"),
        };
        let is = if copies.len() == 1 { "is" } else { "are" };
        let message =
            format!("{names} on {} {is} charged {}, but {but}", worker.name, text(pair, charged));
        let amounts = Quantities {
            charged: quantity(pair, charged),
            charged_on_hub,
            ..Quantities::default()
        };
        Finding::new(FindingKind::HubChargedLess, &worker.name, objects, identity(origin), message)
            .about(pair, amounts)
    }

    /// The resources that the hub's ClusterQueues cover; `None` if no ClusterQueue is known. A
    /// worker may charge resources that the hub does not count.
    fn covered(&self, originals: &[&'a Workload]) -> Option<BTreeSet<&'a str>> {
        let queues: Vec<&ClusterQueue> =
            originals.iter().filter_map(|workload| self.queue_of(workload)).collect();
        let groups = queues.iter().flat_map(|queue| &queue.spec.resource_groups);
        let covered =
            groups.flat_map(|group| &group.covered_resources).map(String::as_str).collect();
        (!queues.is_empty()).then_some(covered)
    }

    /// The ClusterQueue whose quota a Workload has, or in which it waits.
    fn queue_of(&self, workload: &'a Workload) -> Option<&'a ClusterQueue> {
        let queue = match reservation(workload) {
            Some(admission) => admission.cluster_queue.as_str(),
            None => {
                let (namespace, _) = key(&workload.metadata);
                let wanted = (namespace, workload.spec.queue_name.as_deref()?);
                let mut queues = self.cluster.local_queues.iter();
                queues
                    .find(|queue| key(&queue.metadata) == wanted)?
                    .spec
                    .cluster_queue
                    .as_deref()?
            }
        };
        self.cluster.cluster_queues.iter().find(|it| name(&it.metadata) == queue)
    }
}

/// Whether the hub has chosen this worker. After an eviction only the last attempt shows the
/// choice, while pods still end there.
fn is_committed(originals: &[&Workload], worker: &Cluster) -> bool {
    let statuses = originals.iter().filter_map(|workload| workload.status.as_ref());
    let last = |status: &WorkloadStatus| {
        status.dispatch.as_ref().and_then(|dispatch| dispatch.cluster_name.clone())
    };
    statuses
        .filter_map(|status| status.cluster_name.clone().or_else(|| last(status)))
        .any(|cluster| cluster == worker.name)
}

fn identity(origin: CopyOrigin<'_>) -> String {
    match origin {
        CopyOrigin::Uid(uid) => uid.to_owned(),
        CopyOrigin::Name((namespace, name)) => format!("{namespace}/{name}"),
    }
}
