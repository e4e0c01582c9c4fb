//! Each reason in Kueue's words.

use std::sync::Arc;

use super::*;
use crate::TaintEffect;

fn rendered(reason: &Reason) -> String {
    format!("{}: {}", reason.condition_reason(), reason.message())
}

fn pod_sets(causes: Vec<Cause>) -> Vec<PodSetReason> {
    vec![PodSetReason { name: "main".into(), causes }]
}

fn no_fit(kind: NoFitKind, cause: Cause) -> String {
    rendered(&Reason::NoFit { kind, pod_sets: pod_sets(vec![cause]) })
}

fn insufficient(flavor: &str, resource: &str, asked: i64, free: i64) -> Cause {
    let (asked, free, most) = (Amount::new(asked), Amount::new(free), Amount::new(asked * 2));
    Cause::Insufficient { flavor: flavor.into(), resource: resource.into(), asked, free, most }
}

#[test]
fn causes_render_by_flavor_and_resource() {
    use NoFitKind::{ExceedsMaxQuota, NoMatchingFlavor, WaitingForQuota};
    insta::assert_snapshot!(no_fit(WaitingForQuota, insufficient("default", "cpu", 3500, 2000)), @"WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1500m more needed");
    insta::assert_snapshot!(no_fit(WaitingForQuota, insufficient("default", "memory", 3 << 30, 1 << 30)), @"WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for memory in flavor default, 2Gi more needed");
    insta::assert_snapshot!(no_fit(WaitingForQuota, insufficient("a100", "nvidia.com/gpu", 8, 0)), @"WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more needed");
    let too_much = |earlier, asked, most| Cause::ExceedsMaxCapacity {
        flavor: "default".into(),
        resource: "cpu".into(),
        earlier,
        asked,
        most,
    };
    insta::assert_snapshot!(no_fit(ExceedsMaxQuota, too_much(Amount::new(500), Amount::new(2000), Amount::new(1000))), @"ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered podsets requests (500m) + current podset request (2) > maximum capacity (1)");
    insta::assert_snapshot!(no_fit(ExceedsMaxQuota, too_much(Amount::UNLIMITED, Amount::ZERO, Amount::ZERO)), @"ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered podsets requests (<unlimited>) + current podset request (0) > maximum capacity (0)");
    let taint = Taint {
        key: "instance".to_owned(),
        value: "spot".to_owned(),
        effect: TaintEffect::NoSchedule,
    };
    insta::assert_snapshot!(no_fit(NoMatchingFlavor, Cause::UntoleratedTaint { flavor: "tainted".into(), taint }), @"NoMatchingFlavor: couldn't assign flavors to pod set main: untolerated taint {instance spot NoSchedule <nil>} in flavor tainted");
    insta::assert_snapshot!(no_fit(NoMatchingFlavor, Cause::AffinityMismatch { flavor: "default".into() }), @"NoMatchingFlavor: couldn't assign flavors to pod set main: flavor default doesn't match node affinity");
    insta::assert_snapshot!(no_fit(NoMatchingFlavor, Cause::FlavorMissing { flavor: "gone".into() }), @"NoMatchingFlavor: couldn't assign flavors to pod set main: flavor gone not found");
    insta::assert_snapshot!(no_fit(NoMatchingFlavor, Cause::ResourceUnavailable { resource: "example.com/x".into() }), @"NoMatchingFlavor: couldn't assign flavors to pod set main: resource example.com/x unavailable in ClusterQueue");
    insta::assert_snapshot!(no_fit(NoMatchingFlavor, Cause::NotNominated { flavor: "spot".into(), resource: "cpu".into() }), @"NoMatchingFlavor: couldn't assign flavors to pod set main: skipping flavor spot as it is not found in the nomination mapping for resource cpu");
    insta::assert_snapshot!(rendered(&Reason::NoFit { kind: NoFitKind::TopologyPlacementFailed, pod_sets: Vec::new() }), @"TopologyPlacementFailed: the workload has no pod sets");
}

#[test]
fn causes_are_sorted_within_ordered_pod_sets() {
    let pod_sets = vec![
        PodSetReason {
            name: "driver".into(),
            causes: vec![
                insufficient("spot", "cpu", 2000, 0),
                insufficient("default", "cpu", 1000, 0),
            ],
        },
        PodSetReason {
            name: "workers".into(),
            causes: vec![Cause::FlavorMissing { flavor: "gone".into() }],
        },
    ];
    insta::assert_snapshot!(rendered(&Reason::NoCandidates { pod_sets: pod_sets.clone() }), @"WaitingForQuota: couldn't assign flavors to pod set driver: insufficient unused quota for cpu in flavor default, 1 more needed, insufficient unused quota for cpu in flavor spot, 2 more needed; couldn't assign flavors to pod set workers: flavor gone not found");
    insta::assert_snapshot!(rendered(&Reason::Preempting { pod_sets: pod_sets[1..].to_vec(), victims: 3 }), @"WaitingForPreemptedWorkloads: couldn't assign flavors to pod set workers: flavor gone not found. Pending the preemption of 3 workload(s)");
}

#[test]
fn reasons_beyond_quota_render() {
    let queue = || LocalQueueKey::new("team-a", "jobs");
    insta::assert_snapshot!(rendered(&Reason::PreemptionGated), @"AdmissionGated: Workload requires preemption, but it's gated");
    insta::assert_snapshot!(rendered(&Reason::VictimsShared), @"WaitingForPreemptedWorkloads: Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete");
    insta::assert_snapshot!(rendered(&Reason::VictimsTaken), @"WaitingForQuota: Workload has overlapping preemption targets with another workload");
    insta::assert_snapshot!(rendered(&Reason::Overtaken), @"WaitingForQuota: Workload no longer fits after processing another workload");
    insta::assert_snapshot!(rendered(&Reason::ChecksFailed), @"PendingEvaluation: The workload has failed admission checks");
    insta::assert_snapshot!(rendered(&Reason::ClusterQueueInactive { name: "gpu".into() }), @"Suspended: ClusterQueue gpu is inactive");
    insta::assert_snapshot!(rendered(&Reason::ClusterQueueMissing { name: "gpu".into() }), @"Misconfigured: ClusterQueue gpu doesn't exist");
    insta::assert_snapshot!(rendered(&Reason::LocalQueueInactive { queue: queue() }), @"Suspended: LocalQueue jobs is inactive");
    let none = LocalQueueKey { name: "".into(), ..queue() };
    insta::assert_snapshot!(rendered(&Reason::LocalQueueMissing { queue: none }), @"Misconfigured: LocalQueue is not named: the job has no label kueue.x-k8s.io/queue-name");
    insta::assert_snapshot!(rendered(&Reason::LocalQueueMissing { queue: queue() }), @"Misconfigured: LocalQueue jobs doesn't exist");
    insta::assert_snapshot!(rendered(&Reason::NamespaceMismatch), @"Misconfigured: workload namespace doesn't match ClusterQueue selector");
    insta::assert_snapshot!(rendered(&Reason::NamespaceMissing { name: "x".into() }), @r#"Misconfigured: workload namespace "x" does not exist: Namespace "x" not found"#);
    insta::assert_snapshot!(rendered(&Reason::Invalid { message: "resources validation failed: ...".to_owned() }), @"Misconfigured: resources validation failed: ...");
    let cause = Arc::new(Reason::NoFit { kind: NoFitKind::ExceedsMaxQuota, pod_sets: Vec::new() });
    insta::assert_snapshot!(rendered(&Reason::EquivalentFailed { cause }), @"ExceedsMaxQuota: Bypassed scheduling evaluation because an equivalent workload recently failed");
    let head = WorkloadKey::new("team-a", "first");
    insta::assert_snapshot!(rendered(&Reason::Waiting { cluster_queue: "gpu".into(), head, ahead: 3 }), @"PendingEvaluation: Workload is pending evaluation in the scheduling queue");
    insta::assert_snapshot!(rendered(&Reason::BackingOff { until: None }), @"PendingEvaluation: Workload is waiting for its back-off to finish");
    insta::assert_snapshot!(rendered(&Reason::WriteFailed { message: "conflict".to_owned() }), @"PendingEvaluation: Failed to admit workload: conflict");
    insta::assert_snapshot!(rendered(&Reason::DispatchFailed { message: "no cluster took it".to_owned() }), @"PendingEvaluation: no cluster took it");
    insta::assert_snapshot!(rendered(&Reason::Deactivated), @"Deactivated: The workload is deactivated");
    insta::assert_snapshot!(rendered(&Reason::OnHold), @"OnHold: The workload is on hold");
}
