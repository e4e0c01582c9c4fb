//! Gauges of retained finished workloads, and of unadmitted ones by reason.

use std::collections::BTreeMap;

use switchyard_api::{
    conditions::{self, reasons},
    v1beta2::Workload,
    variants,
};

use super::{Families, Gauges, number};
use crate::workload;
use switchyard_platform::store::Key;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum CountedAs {
    Finished,
    Unadmitted { reason: String, cause: String },
}

pub(super) fn add(gauges: &Gauges, families: &mut Families, role: &str) {
    let stores = &gauges.stores;
    let mut counts: BTreeMap<(String, String, CountedAs), usize> = BTreeMap::new();
    for subject in stores
        .workloads
        .filter(|workload| !workload::is_admitted(workload) || workload::is_finished(workload))
    {
        // A workload with variants counts once.
        if variants::parent_of(&subject).is_some() {
            continue;
        }
        let Some(kind) = counted_as(&subject, gauges.unadmitted) else { continue };
        let namespace = subject.metadata.namespace.clone().unwrap_or_default();
        *counts.entry((namespace, workload::queue_name(&subject).to_owned(), kind)).or_default() +=
            1;
    }
    let mut by_cluster_queue: BTreeMap<(String, CountedAs), usize> = BTreeMap::new();
    for ((namespace, name, kind), count) in counts {
        let queue = stores.local_queues.get(&namespace, &name);
        // Without a LocalQueue, a workload belongs to no ClusterQueue.
        let Some(cluster_queue) = queue.and_then(|queue| queue.spec.cluster_queue.clone()) else {
            continue;
        };
        let shown = gauges.shows(&Key::new(&namespace, &name));
        let mut labels =
            vec![("name", name), ("namespace", namespace), ("replica_role", role.to_owned())];
        let (metric, help) = match &kind {
            CountedAs::Finished => {
                ("kueue_local_queue_finished_workloads", "Finished workloads that are kept")
            }
            CountedAs::Unadmitted { reason, cause } => {
                labels.push(("cluster_queue", cluster_queue.clone()));
                labels.extend([("reason", reason.clone()), ("underlying_cause", cause.clone())]);
                (
                    "kueue_local_queue_unadmitted_workloads",
                    "Workloads that are not admitted, by why",
                )
            }
        };
        if shown {
            families.add(metric, help, labels, number(count));
        }
        *by_cluster_queue.entry((cluster_queue, kind)).or_default() += count;
    }
    for ((cluster_queue, kind), count) in by_cluster_queue {
        let mut labels = vec![("cluster_queue", cluster_queue), ("replica_role", role.to_owned())];
        let (metric, help) = match kind {
            CountedAs::Finished => ("kueue_finished_workloads", "Finished workloads that are kept"),
            CountedAs::Unadmitted { reason, cause } => {
                labels.extend([("reason", reason), ("underlying_cause", cause)]);
                ("kueue_unadmitted_workloads", "Workloads that are not admitted, by why")
            }
        };
        families.add(metric, help, labels, number(count));
    }
}

/// `unadmitted`: whether unadmitted workloads count.
fn counted_as(subject: &Workload, unadmitted: bool) -> Option<CountedAs> {
    if workload::is_finished(subject) {
        return Some(CountedAs::Finished);
    }
    if !unadmitted
        || workload::is_admitted(subject)
        || subject.metadata.deletion_timestamp.is_some()
    {
        return None;
    }
    let admitted = workload::condition(subject, conditions::ADMITTED);
    let reason =
        admitted.map_or(reasons::admitted::NO_RESERVATION, |condition| condition.reason.as_str());
    let cause = match workload::condition(subject, conditions::QUOTA_RESERVED) {
        None => reasons::quota_reserved::PENDING_EVALUATION,
        Some(condition) if condition.status == conditions::TRUE => "",
        Some(condition) => condition.reason.as_str(),
    };
    Some(CountedAs::Unadmitted { reason: reason.to_owned(), cause: cause.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, WorkloadExt};

    fn unadmitted(reason: &str, cause: &str) -> Option<CountedAs> {
        Some(CountedAs::Unadmitted { reason: reason.into(), cause: cause.into() })
    }

    #[rstest::rstest]
    #[case::new(fixtures::workload("a"), unadmitted("NoReservation", "PendingEvaluation"))]
    #[case::waiting_for_quota(
        fixtures::workload("a").condition("QuotaReserved", false, "WaitingForQuota", ""),
        unadmitted("NoReservation", "WaitingForQuota")
    )]
    #[case::waiting_for_check(
        fixtures::workload("a").reserved("cq").condition("Admitted", false, "UnsatisfiedAdmissionChecks", ""),
        unadmitted("UnsatisfiedAdmissionChecks", "")
    )]
    #[case::admitted(fixtures::workload("a").reserved("cq").admitted(), None)]
    #[case::finished(
        fixtures::workload("a").reserved("cq").admitted().condition("Finished", true, "Succeeded", ""),
        Some(CountedAs::Finished)
    )]
    fn workload_is_counted_by_state(
        #[case] workload: Workload,
        #[case] expected: Option<CountedAs>,
    ) {
        assert_eq!(counted_as(&workload, true), expected);
        assert_eq!(
            counted_as(&workload, false),
            expected.filter(|kind| *kind == CountedAs::Finished),
            "without the feature gate"
        );
    }
}
