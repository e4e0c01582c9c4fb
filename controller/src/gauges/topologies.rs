//! Gauges of fragmentation: the free capacity of topologies, and how much of it one domain has.

use super::{Families, Gauges, amount};

pub(super) fn add(gauges: &Gauges, families: &mut Families, role: &str) {
    for domain in gauges.views.largest_free_domains().iter() {
        let labels = || {
            vec![
                ("flavor", domain.flavor.to_string()),
                ("level", domain.level.to_string()),
                ("resource", domain.resource.to_string()),
                ("replica_role", role.to_owned()),
            ]
        };
        families.add(
            "switchyard_topology_free",
            "Free on the nodes of a flavor with a topology, by resource that a ClusterQueue covers; equal at all levels",
            labels(),
            amount(&domain.resource, domain.total),
        );
        families.add(
            "switchyard_topology_largest_free_domain",
            "Free in the domain of this level that has the most",
            labels(),
            amount(&domain.resource, domain.free),
        );
    }
}
