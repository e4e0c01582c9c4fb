//! Variants of one workload: one flavor each, and the best admitted one runs.

use crate::fixtures::{Stage, cq, wl};
use crate::{ClusterQueue, EngineSettings, PreemptionPolicy, PreemptionRules, Workload};

impl Workload {
    fn variant(mut self, parent: &str, flavor: &str) -> Self {
        (self.parent, self.flavors) = (Some(parent.into()), Some(vec![flavor.into()]));
        self
    }
}

/// A variant of `job` for the flavor, with 4 cores.
fn variant(flavor: &str) -> Workload {
    wl(flavor).pods("main", 1).request("cpu", 4).variant("job", flavor)
}

/// A queue with these cores on its first and second flavor.
fn flavors(default: i64, spot: i64) -> ClusterQueue {
    cq("main").quota("default", "cpu", default).quota("spot", "cpu", spot)
}

/// The variant for `spot` runs, because `default` had no free quota.
fn on_spot(change: impl Fn(ClusterQueue) -> ClusterQueue) -> Stage {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.queue(change(flavors(0, 10)));
    stage.submit(variant("default").at(1));
    stage.submit(variant("spot").at(2));
    assert_eq!(stage.admit_all(), ["spot"]);
    stage.queue(change(flavors(10, 10)));
    stage.wait(2);
    stage
}

#[test]
fn workload_gets_only_its_allowed_flavors() {
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
fn variants_wait_while_a_better_one_runs() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.queue(flavors(10, 10));
    stage.submit(variant("default").at(1));
    stage.submit(variant("spot").at(2));
    // Also before the reservation of the better variant is written.
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
fn variant_of_another_workload_is_no_sibling() {
    let mut stage = Stage::new();
    stage.queue(flavors(10, 10));
    stage.submit(variant("default").at(1));
    stage.submit(Workload { parent: Some("other".into()), ..variant("spot").at(2) });
    assert_eq!(stage.admit_all(), ["default", "spot"]);
}

#[test]
fn worse_variant_is_evicted_once_before_the_better_runs() {
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
fn flavor_after_last_acceptable_is_no_migration_target() {
    for (last, expected) in [("reserved", false), ("default", true), ("spot", true)] {
        let constrained = |queue: ClusterQueue| {
            let mut queue = ClusterQueue { last_acceptable: Some(last.into()), ..queue };
            let first = queue.resource_groups[0].flavors[0].clone();
            let reserved = crate::FlavorQuotas { name: "reserved".into(), ..first };
            queue.resource_groups[0].flavors.insert(0, reserved);
            queue
        };
        let mut stage = Stage::with_preemption(EngineSettings::default());
        stage.apply(crate::Event::ResourceFlavor(crate::fixtures::flavor("reserved")));
        stage.queue(constrained(flavors(0, 10)));
        stage.submit(variant("default").at(1));
        stage.submit(variant("spot").at(2));
        assert_eq!(stage.admit_all(), ["spot"]);
        stage.queue(constrained(flavors(10, 10)));
        stage.wait(2);
        let rendered = stage.cycle();
        assert_eq!(rendered[0].starts_with("migrate"), expected, "{last}: {rendered:?}");
        if !expected {
            assert_eq!(
                rendered,
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
fn migrated_variant_is_no_victim() {
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
fn gated_variant_migrates_after_gate_and_victim() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
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
fn better_variant_waiting_for_checks_blocks_no_variant() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.check("slow", "example.com/slow", true);
    stage.queue(flavors(10, 10).check("slow", &["default"]));
    stage.submit(variant("default").at(1));
    stage.submit(variant("spot").at(2));
    assert_eq!(stage.cycle(), ["admit default: main x 1 cpu 4 on default"]);
    assert_eq!(stage.cycle(), ["admit spot: main x 1 cpu 4 on spot"]);
}
