//! The status of queues, and the expected status.

use std::collections::BTreeMap;

use serde_json::Value;
use switchyard_api::conditions::{FINISHED, QUOTA_RESERVED};
use switchyard_api::v1beta2::Workload;

use super::site::{has, is_waiting, queue_of};

/// The status of a queue: waiting, holding, admitted, and the reserved and used amount of each flavor.
pub(crate) type Figures = (i64, i64, i64, BTreeMap<String, String>, BTreeMap<String, String>);

pub(crate) fn shown(status: &Value) -> Figures {
    let amounts = |field: &str| {
        let mut amounts = BTreeMap::new();
        for flavor in status[field].as_array().into_iter().flatten() {
            for resource in flavor["resources"].as_array().into_iter().flatten() {
                let key = format!("{} {}", text(&flavor["name"]), text(&resource["name"]));
                amounts.insert(key, text(&resource["total"]));
            }
        }
        amounts.retain(|_, amount| amount != "0");
        amounts
    };
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let (reserved, used) = (amounts("flavorsReservation"), amounts("flavorsUsage"));
    (
        count("pendingWorkloads"),
        count("reservingWorkloads"),
        count("admittedWorkloads"),
        reserved,
        used,
    )
}

/// The expected status of a LocalQueue, or of a ClusterQueue by the LocalQueue of its name. All pods here ask for one CPU
/// and one GiB.
pub(crate) fn expected(workloads: &[Workload], local: &str, cluster: &str) -> Figures {
    let waiting =
        workloads.iter().filter(|workload| is_waiting(workload) && queue_of(workload) == local);
    let (mut holding, mut pods) = (0, BTreeMap::<String, i32>::new());
    for workload in workloads
        .iter()
        .filter(|workload| has(workload, QUOTA_RESERVED) && !has(workload, FINISHED))
    {
        let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
        let admission = admission
            .filter(|admission| admission.cluster_queue == cluster && queue_of(workload) == local);
        for assigned in admission.iter().flat_map(|admission| &admission.pod_set_assignments) {
            let flavor = assigned.flavors.get("cpu").cloned().unwrap_or_default();
            *pods.entry(flavor).or_default() += assigned.count.unwrap_or(0);
        }
        holding += i64::from(admission.is_some());
    }
    let amounts = pods.iter().flat_map(|(flavor, pods)| {
        [
            (format!("{flavor} cpu"), pods.to_string()),
            (format!("{flavor} memory"), format!("{pods}Gi")),
        ]
    });
    let amounts: BTreeMap<_, _> = amounts.collect();
    (i64::try_from(waiting.count()).unwrap_or(i64::MAX), holding, holding, amounts.clone(), amounts)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
