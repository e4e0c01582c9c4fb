//! Running pods of queued owners without an admitted Workload.

use switchyard_api::v1beta2::Workload;

use crate::chain::ChainObject;
use crate::cluster::Cluster;
use crate::finding::{Finding, FindingKind, Object};
use crate::running::Running;
use crate::workload::{allows_pods, is_finished, reservation};

pub(crate) fn findings(cluster: &Cluster, running: &[Running<'_>]) -> Vec<Finding> {
    running.iter().filter_map(|pod| finding(cluster, pod)).collect()
}

fn finding(cluster: &Cluster, running: &Running<'_>) -> Option<Finding> {
    let queued = running.chain.queued()?;
    let workloads: Vec<&Workload> =
        running.workload_indexes.iter().filter_map(|index| cluster.workloads.get(*index)).collect();
    if workloads.iter().any(|workload| allows_pods(workload)) {
        return None;
    }
    let metadata = &running.pod.metadata;
    let pod = Object::new("Pod", metadata);
    let message = format!("{pod} runs{}, but {}", owner_text(queued), reason(&workloads));
    let owner = (queued.kind != "Pod").then(|| queued.object());
    let workloads = workloads.iter().map(|workload| Object::new("Workload", &workload.metadata));
    let identity = format!("{pod} {}", metadata.uid.as_deref().unwrap_or_default());
    let objects = std::iter::once(pod).chain(owner).chain(workloads).collect();
    Some(Finding::new(FindingKind::RunsWithoutAdmission, &cluster.name, objects, identity, message))
}

fn owner_text(queued: ChainObject<'_>) -> String {
    if queued.kind == "Pod" { String::new() } else { format!(" for {}", queued.object()) }
}

fn reason(workloads: &[&Workload]) -> String {
    match workloads {
        [] => "it has no Workload".to_owned(),
        [one] => format!("its {} {}", Object::new("Workload", &one.metadata), state(one)),
        several => format!("none of its {} Workloads is admitted", several.len()),
    }
}

fn state(workload: &Workload) -> &'static str {
    if is_finished(workload) {
        "has finished"
    } else if reservation(workload).is_some() {
        "has its quota reserved only"
    } else {
        "is not admitted"
    }
}
