//! Variants of one workload: each for one flavor, the best that is admitted runs.

use crate::fixtures::{Stage, cq, wl};
use crate::{ClusterQueue, PreemptionPolicy, PreemptionRules, Settings, Workload};

impl Workload {
    fn variant(mut self, parent: &str, flavor: &str) -> Self {
        (self.parent, self.flavors) = (Some(parent.into()), Some(vec![flavor.into()]));
        self
    }
}

/// A variant of `job` for the flavor, of 4 cores.
fn variant(flavor: &str) -> Workload {
    wl(flavor).pods("main", 1).request("cpu", 4).variant("job", flavor)
}

/// A queue with so many cores on its first flavor and on its second.
fn flavors(default: i64, spot: i64) -> ClusterQueue {
    cq("main").quota("default", "cpu", default).quota("spot", "cpu", spot)
}

/// The variant for `spot` runs, as `default` had no room.
fn on_spot(change: impl Fn(ClusterQueue) -> ClusterQueue) -> Stage {
    let mut stage = Stage::preempting(Settings::default());
    stage.queue(change(flavors(0, 10)));
    stage.submit(variant("default").at(1));
    stage.submit(variant("spot").at(2));
    assert_eq!(stage.admit_all(), ["spot"]);
    stage.queue(change(flavors(10, 10)));
    stage.wait(2);
    stage
}

#[test]
fn a_workload_gets_only_the_flavors_that_it_is_for() {
    let mut stage = Stage::new();
    stage.queue(flavors(10, 2));
    stage.submit(variant("spot"));
    assert_eq!(
        stage.cycle(),
        [
            "pending spot: ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor \
          spot, previously considered podsets requests (0) + current podset request (4) > maximum capacity (2), skipping \
          flavor default due to WorkloadAllowedResourceFlavorAnnotation annotation"
        ]
    );
    stage.submit(variant("default").at(5));
    assert_eq!(
        stage.cycle(),
        ["admit default: main x 1 cpu 4 on default"],
        "it is no equal of the other"
    );
}

#[test]
fn beside_a_better_one_the_others_wait_until_that_is_gone() {
    let mut stage = Stage::preempting(Settings::default());
    stage.queue(flavors(10, 10));
    stage.submit(variant("default").at(1));
    stage.submit(variant("spot").at(2));
    // Also before the reservation of the better one is written.
    assert_eq!(stage.cycle(), ["admit default: main x 1 cpu 4 on default"]);
    assert_eq!(
        stage.cycle(),
        ["pending spot: PendingEvaluation: A more favorable variant is already admitted"]
    );
    assert!(!stage.engine.has_heads(stage.now), "it is not tried again and again");
    stage.delete("default");
    stage.wait(2);
    assert_eq!(stage.admit(), ["spot"]);
}

#[test]
fn another_workload_is_no_sibling() {
    let mut stage = Stage::new();
    stage.queue(flavors(10, 10));
    stage.submit(variant("default").at(1));
    stage.submit(Workload { parent: Some("other".into()), ..variant("spot").at(2) });
    assert_eq!(stage.admit_all(), ["default", "spot"]);
}

#[test]
fn for_a_better_flavor_the_worse_one_goes_first_and_is_told_once() {
    let mut stage = on_spot(|queue| queue);
    let waits =
        "pending default: WaitingForPreemptedWorkloads: Pending the migration of 1 workload(s)";
    assert_eq!(stage.cycle(), ["migrate spot to uid-default", waits]);
    assert_eq!(stage.cycle(), [waits]);
    stage.change("spot", |workload| workload.evicted = true);
    assert_eq!(stage.cycle(), [waits], "its pods run still");
    stage.evict("spot");
    assert_eq!(stage.admit(), ["default"]);
    assert_eq!(
        stage.cycle(),
        ["pending spot: PendingEvaluation: A more favorable variant is already admitted"]
    );
}

#[test]
fn a_flavor_behind_the_last_acceptable_one_is_not_moved_to() {
    for (last, expected) in [("reserved", false), ("default", true), ("spot", true)] {
        let constrained = |queue: ClusterQueue| {
            let mut queue = ClusterQueue { last_acceptable: Some(last.into()), ..queue };
            let first = queue.resource_groups[0].flavors[0].clone();
            let reserved = crate::FlavorQuotas { name: "reserved".into(), ..first };
            queue.resource_groups[0].flavors.insert(0, reserved);
            queue
        };
        let mut stage = Stage::preempting(Settings::default());
        stage.apply(crate::Event::ResourceFlavor(crate::fixtures::flavor("reserved")));
        stage.queue(constrained(flavors(0, 10)));
        stage.submit(variant("default").at(1));
        stage.submit(variant("spot").at(2));
        assert_eq!(stage.admit_all(), ["spot"]);
        stage.queue(constrained(flavors(10, 10)));
        stage.wait(2);
        let said = stage.cycle();
        assert_eq!(said[0].starts_with("migrate"), expected, "{last}: {said:?}");
        if !expected {
            assert_eq!(
                said,
                [
                    "pending default: PendingEvaluation: Target flavor is below LastAcceptableFlavorName"
                ]
            );
            assert!(!stage.engine.has_heads(stage.now));
        }
    }
}

fn preempts(queue: ClusterQueue) -> ClusterQueue {
    let within_cluster_queue = PreemptionPolicy::LowerPriority;
    ClusterQueue {
        preemption: PreemptionRules { within_cluster_queue, ..PreemptionRules::default() },
        ..queue
    }
}

#[test]
fn a_variant_that_made_way_for_a_better_one_is_nobodys_victim_any_more() {
    let mut stage = on_spot(preempts);
    assert_eq!(stage.cycle()[0], "migrate spot to uid-default");
    stage.evict("spot");
    assert_eq!(stage.admit(), ["default"]);
    let urgent = wl("urgent").pods("main", 1).request("cpu", 10).priority(9);
    stage.submit(Workload { flavors: Some(vec!["default".into()]), ..urgent });
    let told: Vec<_> =
        stage.cycle().into_iter().filter(|text| text.starts_with("preempt")).collect();
    assert_eq!(told, ["preempt default for urgent: InClusterQueue"]);
}

#[test]
fn a_gated_variant_says_so_and_moves_once_its_gate_is_open_and_the_victim_gone() {
    let mut stage = Stage::preempting(Settings::default());
    stage.queue(preempts(flavors(4, 4)));
    stage.submit(wl("low").pods("main", 1).request("cpu", 4).priority(-1));
    assert_eq!(stage.admit(), ["low"]);
    stage.submit(Workload { gates_closed: true, ..variant("default").at(1) });
    stage.submit(Workload { gates_closed: true, ..variant("spot").at(2) });
    assert_eq!(
        stage.cycle(),
        ["pending default: AdmissionGated: Workload requires preemption, but it's gated"]
    );
    assert_eq!(stage.admit(), ["spot"]);
    stage.change("default", |workload| workload.gates_closed = false);
    assert_eq!(stage.cycle()[0], "preempt low for default: InClusterQueue");
    stage.delete("low");
    assert_eq!(stage.cycle()[0], "migrate spot to uid-default");
    stage.evict("spot");
    assert_eq!(stage.admit(), ["default"]);
}

#[test]
fn a_better_one_that_waits_for_its_checks_holds_nobody_up() {
    let mut stage = Stage::preempting(Settings::default());
    stage.check("slow", "example.com/slow", true);
    stage.queue(flavors(10, 10).check("slow", &["default"]));
    stage.submit(variant("default").at(1));
    stage.submit(variant("spot").at(2));
    assert_eq!(stage.cycle(), ["admit default: main x 1 cpu 4 on default"]);
    assert_eq!(stage.cycle(), ["admit spot: main x 1 cpu 4 on spot"]);
}
