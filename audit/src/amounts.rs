//! Amounts of resources, and what a Workload is charged.

use std::collections::BTreeMap;

use switchyard_api::quantity::amount_of;
use switchyard_api::v1beta2::{PodSetAssignment, Workload};

use crate::cluster::reservation;

/// Amounts by flavor and resource, in the units of quota: thousandths of cpu, whole units of all else.
pub(crate) type Amounts = BTreeMap<(String, String), i64>;

pub(crate) fn add(to: &mut Amounts, flavor: &str, resource: &str, amount: i64) {
    let sum = to.entry((flavor.to_owned(), resource.to_owned())).or_default();
    *sum = sum.saturating_add(amount);
}

pub(crate) fn add_all(to: &mut Amounts, amounts: &Amounts) {
    for ((flavor, resource), amount) in amounts {
        add(to, flavor, resource, *amount);
    }
}

/// The sum over all flavors of each resource.
pub(crate) fn by_resource(amounts: &Amounts) -> BTreeMap<&str, i64> {
    let mut sums = BTreeMap::<&str, i64>::new();
    for ((_, resource), amount) in amounts {
        let sum = sums.entry(resource).or_default();
        *sum = sum.saturating_add(*amount);
    }
    sums
}

/// What a Workload is charged: what was admitted, but for the pods that are not needed any more (`reclaimablePods`).
pub(crate) fn charge(workload: &Workload) -> Amounts {
    let mut charged = Amounts::new();
    let assignments = reservation(workload).into_iter().flat_map(|admission| &admission.pod_set_assignments);
    for assignment in assignments {
        for (resource, total) in assignment.resource_usage.iter() {
            let flavor = assignment.flavors.get(resource).map_or("", String::as_str);
            add(&mut charged, flavor, resource, part_needed(workload, assignment, amount_of(resource, total)));
        }
    }
    charged
}

fn part_needed(workload: &Workload, assignment: &PodSetAssignment, total: i64) -> i64 {
    let admitted = i64::from(assignment.count.unwrap_or(0));
    let Some(pod_set) = workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == assignment.name) else {
        return total;
    };
    let reclaimable = workload.status.iter().flat_map(|status| &status.reclaimable_pods);
    let gone = reclaimable.filter(|pods| pods.name == assignment.name).map(|pods| i64::from(pods.count)).sum::<i64>();
    let needed = i64::from(pod_set.count).saturating_sub(gone).max(0);
    if admitted > 0 && needed < admitted { (total / admitted).saturating_mul(needed) } else { total }
}
