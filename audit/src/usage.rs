//! Compares the usage in queue statuses with the sum of the charges.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use switchyard_api::quantity::try_amount_of;
use switchyard_api::v1beta2::{
    ClusterQueue, FlavorUsage, LocalQueue, LocalQueueFlavorUsage, ResourceGroup,
};

use crate::amounts::{Amounts, Pair, text};
use crate::charge::Charges;
use crate::cluster::{Cluster, Key, key, name};
use crate::finding::{Finding, FindingKind, Object, Quantities, quantity};
use crate::workload::{is_admitted, is_counted, reservation};

pub(crate) fn findings(cluster: &Cluster, charges: &Charges) -> Vec<Finding> {
    let sums = Sums::of(cluster, charges);
    let quotas: BTreeMap<&str, &ClusterQueue> =
        cluster.cluster_queues.iter().map(|queue| (name(&queue.metadata), queue)).collect();
    let mut found = Vec::new();
    for queue in &cluster.cluster_queues {
        let sum = sums.cluster_queues.get(name(&queue.metadata));
        found.extend(
            StatedUsage::of_cluster_queue(queue).iter().flat_map(|it| it.findings(cluster, sum)),
        );
    }
    for queue in &cluster.local_queues {
        let sum = sums.local_queues.get(&key(&queue.metadata));
        let above = queue.spec.cluster_queue.as_deref().and_then(|name| quotas.get(name));
        let stated =
            above.map(|above| StatedUsage::of_local_queue(queue, above)).unwrap_or_default();
        found.extend(stated.iter().flat_map(|it| it.findings(cluster, sum)));
    }
    found
}

/// The charges of one queue's Workloads.
#[derive(Default)]
struct Sum {
    reserved: Amounts,
    admitted: Amounts,
    /// A charge is unreadable, so the queue is not checked.
    is_unreadable: bool,
    /// Changes with each Workload and each charge.
    digest: DefaultHasher,
}

#[derive(Default)]
struct Sums<'a> {
    cluster_queues: BTreeMap<&'a str, Sum>,
    local_queues: BTreeMap<Key<'a>, Sum>,
}

impl<'a> Sums<'a> {
    fn of(cluster: &'a Cluster, charges: &Charges) -> Self {
        let mut sums = Self::default();
        for (index, workload) in
            cluster.workloads.iter().enumerate().filter(|(_, workload)| is_counted(workload))
        {
            let Some(admission) = reservation(workload) else { continue };
            let (namespace, _) = key(&workload.metadata);
            let local_queue = (namespace, workload.spec.queue_name.as_deref().unwrap_or_default());
            for sum in [
                sums.cluster_queues.entry(&admission.cluster_queue).or_default(),
                sums.local_queues.entry(local_queue).or_default(),
            ] {
                sum.add(&workload.metadata, charges.get(index), is_admitted(workload));
            }
        }
        sums
    }
}

impl Sum {
    fn add(&mut self, of: &ObjectMeta, charge: Option<&Amounts>, is_admitted: bool) {
        let Some(charge) = charge else {
            self.is_unreadable = true;
            return;
        };
        (key(of), of.uid.as_deref(), is_admitted).hash(&mut self.digest);
        charge.iter().for_each(|amount| amount.hash(&mut self.digest));
        self.reserved.add_all(charge);
        if is_admitted {
            self.admitted.add_all(charge);
        }
    }
}

/// One list of usage in a queue's status.
struct StatedUsage {
    queue: Object,
    uid: String,
    field: &'static str,
    /// For the pairs with quota. `None` if the amount is unreadable.
    usage: BTreeMap<Pair, Option<i64>>,
}

impl StatedUsage {
    fn of_cluster_queue(queue: &ClusterQueue) -> Vec<Self> {
        let Some(status) = queue.status.as_ref().filter(|status| !status.conditions.is_empty())
        else {
            return Vec::new();
        };
        let amounts = |usage: &[FlavorUsage]| {
            let flat = usage
                .iter()
                .flat_map(|it| it.resources.iter().map(|used| (&it.name, &used.name, &used.total)));
            usage_of(&queue.spec.resource_groups, flat)
        };
        let stated =
            |field, usage| Self::new("ClusterQueue", &queue.metadata, field, amounts(usage));
        let (reserved, admitted) = (&status.flavors_reservation, &status.flavors_usage);
        vec![stated("flavorsReservation", reserved), stated("flavorsUsage", admitted)]
    }

    fn of_local_queue(queue: &LocalQueue, above: &ClusterQueue) -> Vec<Self> {
        let Some(status) = queue.status.as_ref().filter(|status| !status.conditions.is_empty())
        else {
            return Vec::new();
        };
        let amounts = |usage: &[LocalQueueFlavorUsage]| {
            let flat = usage
                .iter()
                .flat_map(|it| it.resources.iter().map(|used| (&it.name, &used.name, &used.total)));
            usage_of(&above.spec.resource_groups, flat)
        };
        let stated = |field, usage| Self::new("LocalQueue", &queue.metadata, field, amounts(usage));
        let (reserved, admitted) = (&status.flavors_reservation, &status.flavors_usage);
        vec![stated("flavorsReservation", reserved), stated("flavorsUsage", admitted)]
    }

    fn new(
        kind: &str,
        queue: &ObjectMeta,
        field: &'static str,
        usage: BTreeMap<Pair, Option<i64>>,
    ) -> Self {
        let uid = queue.uid.clone().unwrap_or_default();
        Self { queue: Object::new(kind, queue), uid, field, usage }
    }

    fn findings(&self, cluster: &Cluster, sum: Option<&Sum>) -> Vec<Finding> {
        let none = Sum::default();
        let sum = sum.unwrap_or(&none);
        if sum.is_unreadable {
            return Vec::new();
        }
        let charged = if self.field == "flavorsUsage" { &sum.admitted } else { &sum.reserved };
        let readable = self.usage.iter().filter_map(|(pair, stated)| Some((pair, (*stated)?)));
        let different = readable.filter(|(pair, stated)| *stated != charged.get(pair));
        different
            .map(|(pair, stated)| self.finding(cluster, sum, pair, (stated, charged.get(pair))))
            .collect()
    }

    fn finding(
        &self,
        cluster: &Cluster,
        sum: &Sum,
        pair: &Pair,
        (stated, charged): (i64, i64),
    ) -> Finding {
        let Self { queue, uid, field, .. } = self;
        let charge = quantity(pair, charged);
        let whose = if *field == "flavorsUsage" { "that are admitted" } else { "that hold quota" };
        let message = format!(
            "status.{field} of {queue} says {}, but its Workloads {whose} are charged {}",
            text(pair, stated),
            charge.clone().unwrap_or_default(),
        );
        let identity = format!("{queue} {uid} {field} {stated} {:x}", sum.digest.finish());
        let amounts = Quantities {
            in_status: quantity(pair, stated),
            charged: charge,
            ..Quantities::default()
        };
        Finding::new(
            FindingKind::UsageDiffers,
            &cluster.name,
            vec![queue.clone()],
            identity,
            message,
        )
        .about(pair, amounts)
    }
}

/// The stated usage of each pair with quota; zero if the status lacks the pair.
fn usage_of<'a>(
    groups: &[ResourceGroup],
    stated: impl Iterator<Item = (&'a String, &'a String, &'a Quantity)>,
) -> BTreeMap<Pair, Option<i64>> {
    let quotas = groups.iter().flat_map(|group| &group.flavors);
    let pairs = quotas
        .flat_map(|quota| quota.resources.iter().map(|it| (quota.name.clone(), it.name.clone())));
    let mut usage: BTreeMap<Pair, Option<i64>> = pairs.map(|pair| (pair, Some(0))).collect();
    for (flavor, resource, total) in stated {
        // Removed quota disappears from the status later.
        if let Some(amount) = usage.get_mut(&(flavor.clone(), resource.clone())) {
            *amount = try_amount_of(resource, total).ok();
        }
    }
    usage
}
