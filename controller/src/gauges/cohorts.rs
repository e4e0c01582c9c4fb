//! Gauges of Cohorts: position, subtree and share.

use switchyard_scheduler::{Amount, CohortView};

use super::{Families, Gauges, amount, number};

pub(super) fn add(gauges: &Gauges, families: &mut Families, role: &str) {
    for (name, view) in gauges.views.cohorts() {
        // Below a cycle, sums are meaningless.
        let Some(root) = &view.root else { continue };
        let cohort = || vec![("cohort", name.clone()), ("replica_role", role.to_owned())];
        let mut place = cohort();
        let parent = view.parent.as_deref().unwrap_or_default().to_owned();
        place.extend([("parent_cohort", parent), ("root_cohort", root.to_string())]);
        families.add("kueue_cohort_info", "Where a Cohort stands", place, 1.0);
        families.add(
            "kueue_cohort_subtree_admitted_active_workloads",
            "Admitted workloads below a Cohort",
            cohort(),
            number(view.admitted),
        );
        if gauges.fair && gauges.stores.cohorts.get("", &name).is_some() {
            let help = "Share of what could be lent, by weight";
            families.add("kueue_cohort_weighted_share", help, cohort(), view.precise_share);
        }
        subtree(families, &name, &view, role);
    }
}

fn subtree(families: &mut Families, name: &str, view: &CohortView, role: &str) {
    for slot in &view.subtree {
        let mut add = |metric, help, value: Amount| {
            if value > Amount::ZERO {
                let labels = vec![
                    ("cohort", name.to_owned()),
                    ("flavor", slot.flavor.to_string()),
                    ("resource", slot.resource.to_string()),
                    ("replica_role", role.to_owned()),
                ];
                families.add(metric, help, labels, amount(&slot.resource, value));
            }
        };
        add("kueue_cohort_subtree_quota", "Quota of a Cohort and those below", slot.quota);
        add("kueue_cohort_subtree_resource_reservations", "Reserved below a Cohort", slot.reserved);
    }
}
