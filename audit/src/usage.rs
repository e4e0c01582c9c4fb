//! What the statuses of queues say is used, beside the sum of what their Workloads are charged.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use switchyard_api::quantity::{amount_of, format_shortest};
use switchyard_api::v1beta2::Workload;
use switchyard_api::{names, variants};

use crate::amounts::{Amounts, add, add_all, charge};
use crate::cluster::{Cluster, is_admitted, mark, name, namespace, reservation};
use crate::finding::{Finding, Kind, Object};

/// What Workloads are charged in a queue.
#[derive(Default)]
struct Charges {
    reserved: Amounts,
    admitted: Amounts,
}

impl Charges {
    fn take(&mut self, workload: &Workload) {
        let charge = charge(workload);
        add_all(&mut self.reserved, &charge);
        if is_admitted(workload) {
            add_all(&mut self.admitted, &charge);
        }
    }
}

pub(crate) fn findings(cluster: &Cluster) -> Vec<Finding> {
    let (mut of_cluster_queues, mut of_local_queues) = (BTreeMap::<_, Charges>::new(), BTreeMap::<_, Charges>::new());
    for workload in cluster.workloads.iter().filter(|workload| is_counted(workload)) {
        let Some(admission) = reservation(workload) else { continue };
        of_cluster_queues.entry(admission.cluster_queue.as_str()).or_default().take(workload);
        let queue = workload.spec.queue_name.as_deref().unwrap_or_default();
        of_local_queues.entry((namespace(&workload.metadata), queue)).or_default().take(workload);
    }
    let (none, mut found) = (Charges::default(), Vec::new());
    for queue in &cluster.cluster_queues {
        let Some(status) = &queue.status else { continue };
        let charges = of_cluster_queues.get(name(&queue.metadata)).unwrap_or(&none);
        let object = Object::new("ClusterQueue", "", name(&queue.metadata));
        for (field, said, charged) in [
            ("flavorsReservation", &status.flavors_reservation, &charges.reserved),
            ("flavorsUsage", &status.flavors_usage, &charges.admitted),
        ] {
            let said = said.iter().flat_map(|it| it.resources.iter().map(|used| (&it.name, &used.name, &used.total)));
            found.extend(differences(cluster, &object, field, said, charged));
        }
    }
    for queue in &cluster.local_queues {
        let Some(status) = &queue.status else { continue };
        let key = (namespace(&queue.metadata), name(&queue.metadata));
        let charges = of_local_queues.get(&key).unwrap_or(&none);
        let object = Object::new("LocalQueue", key.0, key.1);
        for (field, said, charged) in [
            ("flavorsReservation", &status.flavors_reservation, &charges.reserved),
            ("flavorsUsage", &status.flavors_usage, &charges.admitted),
        ] {
            let said = said.iter().flat_map(|it| it.resources.iter().map(|used| (&it.name, &used.name, &used.total)));
            found.extend(differences(cluster, &object, field, said, charged));
        }
    }
    found
}

/// Whether a queue counts a Workload: not one whose variants are counted in its place, nor one that was deactivated and that no job
/// has taken.
fn is_counted(workload: &Workload) -> bool {
    let annotations = &workload.metadata.annotations;
    let taken = workload.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty())
        || mark(annotations, names::WORKLOAD_UID).is_some();
    !variants::is_parent(workload) && (workload.spec.is_active() || taken)
}

fn differences<'a>(
    cluster: &Cluster,
    object: &Object,
    field: &str,
    said: impl Iterator<Item = (&'a String, &'a String, &'a Quantity)>,
    charged: &Amounts,
) -> Vec<Finding> {
    let mut stated = Amounts::new();
    for (flavor, resource, total) in said {
        add(&mut stated, flavor, resource, amount_of(resource, total));
    }
    let mut found = Vec::new();
    for ((flavor, resource), is) in stated {
        let should_be = charged.get(&(flavor.clone(), resource.clone())).copied().unwrap_or(0);
        if is == should_be {
            continue;
        }
        let message = format!(
            "{object} says in status.{field} that {} {resource} of flavor {flavor} are used, and its Workloads are charged {}",
            format_shortest(&resource, is),
            format_shortest(&resource, should_be),
        );
        let finding = Finding::new(Kind::UsageDiffers, &cluster.name, vec![object.clone()], message);
        found.push(finding.of_amounts(&flavor, &resource, is, should_be));
    }
    found
}
