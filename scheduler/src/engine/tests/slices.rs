//! Workload slices of elastic jobs.

use crate::fixtures::{Stage, cq, flavor, lq, wl};
use crate::{
    Amount, ClusterQueue, Decision, EngineSettings, Event, PreemptionPolicy, PreemptionRules,
    RefusedReason, Workload, WorkloadKey,
};

impl Workload {
    fn replacing(mut self, name: &str) -> Self {
        self.replaces = Some(WorkloadKey::new("ns", name));
        self
    }
}

/// A job of `pods` pods with one core each.
fn job(name: &str, pods: i32) -> Workload {
    wl(name).pods("main", pods).request("cpu", 1)
}

/// A queue of 10 cores, where `old` has 6.
fn grown_from_six(change: impl FnOnce(ClusterQueue) -> ClusterQueue) -> Stage {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.queue(change(cq("main").quota("default", "cpu", 10)));
    stage.submit(job("old", 6));
    assert_eq!(stage.admit(), ["old"]);
    stage
}

fn preempts_lower(queue: ClusterQueue) -> ClusterQueue {
    let within_cluster_queue = PreemptionPolicy::LowerOrNewerEqualPriority;
    ClusterQueue {
        preemption: PreemptionRules { within_cluster_queue, ..PreemptionRules::default() },
        ..queue
    }
}

fn finish(stage: &mut Stage, name: &str) {
    stage.change(name, |workload| workload.finished = true);
}

#[test]
fn new_slice_reuses_the_old_quota_without_double_charge() {
    let mut stage = grown_from_six(|queue| queue);
    stage.submit(job("new", 9).replacing("old"));
    assert_eq!(stage.reserved("main"), 6);
    let decisions = stage.engine.cycle(stage.now).decisions;
    let [Decision::Reserve { key, replaces: Some((old, uid)), admission, .. }] = &decisions[..]
    else {
        panic!("{decisions:?}")
    };
    assert_eq!((&*key.name, &*old.name, &**uid), ("new", "old", "uid-old"));
    assert_eq!(stage.reserved("main"), 9, "decided");
    let admission = admission.clone();
    stage.change("new", |workload| workload.reservation = Some(admission));
    assert_eq!(stage.reserved("main"), 9, "written");
    finish(&mut stage, "old");
    assert_eq!(stage.reserved("main"), 9, "the older one is over");
    finish(&mut stage, "new");
    assert_eq!(stage.reserved("main"), 0);
}

#[test]
fn new_slice_waits_for_the_missing_quota() {
    let mut stage = grown_from_six(|queue| queue);
    stage.submit(job("other", 3));
    stage.admit();
    stage.submit(job("new", 9).replacing("old"));
    assert_eq!(
        stage.cycle(),
        [
            "pending new: WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in \
          flavor default, 2 more needed"
        ]
    );
    assert_eq!(stage.reserved("main"), 9);
    finish(&mut stage, "other");
    stage.wait(2);
    assert_eq!(stage.admit(), ["new"]);
    assert_eq!(stage.reserved("main"), 9);
}

#[test]
fn maximum_capacity_counts_the_whole_new_slice() {
    let mut stage = grown_from_six(|queue| queue);
    stage.submit(job("new", 11).replacing("old"));
    assert_eq!(
        stage.cycle(),
        [
            "pending new: ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor \
          default, previously considered podsets requests (0) + current podset request (11) > maximum capacity (10)"
        ]
    );
}

#[test]
fn new_slice_stays_on_the_old_flavors() {
    let mut stage = grown_from_six(|queue| queue.quota("spot", "cpu", 100));
    stage.submit(job("new", 12).replacing("old"));
    let [told] = &stage.cycle()[..] else { panic!("one is told") };
    assert!(
        told.contains(
            "could not assign spot flavor since the original workload is assigned: default"
        ),
        "{told}"
    );
    stage.change("new", |workload| workload.pod_sets[0].count = 8);
    assert_eq!(stage.cycle(), ["admit new: main x 8 cpu 8 on default"]);
}

#[test]
fn new_slice_preempts_others_but_not_the_old_slice() {
    let mut stage = grown_from_six(preempts_lower);
    stage.submit(job("lower", 4).priority(-1));
    stage.admit();
    // Older than the replaced slice, so that by age it could preempt it.
    stage.submit(job("new", 9).at(-5).replacing("old"));
    let decided = stage.cycle();
    assert_eq!(decided[0], "preempt lower for new: InClusterQueue");
    assert!(!decided.iter().any(|text| text.starts_with("preempt old")), "{decided:?}");
    stage.evict("lower");
    stage.wait(2);
    assert_eq!(stage.admit()[0], "new");
}

#[test]
fn old_slice_counts_once_as_free_quota() {
    let mut stage = grown_from_six(preempts_lower);
    for (name, priority) in [("lower", -1), ("higher", 9)] {
        stage.submit(job(name, 2).priority(priority));
        stage.admit();
    }
    stage.submit(job("new", 9).at(-5).replacing("old"));
    let [told] = &stage.cycle()[..] else { panic!("nobody goes") };
    assert!(told.starts_with("pending new: WaitingForQuota"), "{told}");
}

#[test]
fn waiting_slice_claims_only_the_difference() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    for name in ["main", "other"] {
        let mut queue = preempts_lower(cq(name).cohort("all").quota("default", "cpu", 10));
        queue.resource_groups[0].flavors[0].resources[0].1.borrowing_limit = Some(Amount::ZERO);
        stage.queue(queue);
    }
    stage.apply(Event::LocalQueue(lq("other", "other")));
    stage.submit(job("old", 6));
    stage.admit();
    stage.submit(job("lower", 4).priority(-1));
    stage.admit();
    stage.submit(job("beside", 10).queue("other"));
    stage.submit(job("new", 9).priority(1).replacing("old"));
    let decided = stage.cycle();
    assert!(decided.contains(&"preempt lower for new: InClusterQueue".to_owned()), "{decided:?}");
    assert!(decided.iter().any(|text| text.starts_with("admit beside")), "{decided:?}");
}

#[test]
fn failed_write_leaves_the_old_slice_charged() {
    let mut stage = grown_from_six(|queue| queue);
    stage.submit(job("new", 9).replacing("old"));
    stage.cycle();
    stage.refuse("new", RefusedReason::WriteFailed { message: "no".to_owned() });
    assert_eq!(stage.reserved("main"), 6);
    assert_eq!(stage.admit(), ["new"]);
    stage.delete("new");
    assert_eq!(
        stage.reserved("main"),
        6,
        "the newer one was deleted before the older one was over"
    );
}

#[test]
fn old_slice_keeps_its_own_charge_until_the_write() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.queue(cq("main").quota("default", "cpu", 10).quota("default", "gpu", 10));
    let of = |name: &str, cpus: i32, gpus: i32| {
        wl(name).pods("driver", cpus).request("cpu", 1).pods("worker", gpus).request("gpu", 1)
    };
    stage.submit(of("old", 6, 2));
    stage.admit();
    stage.submit(of("new", 4, 8).replacing("old"));
    stage.engine.cycle(stage.now);
    assert_eq!(stage.reserved("main"), 6, "it may be refused yet");
    stage.refuse("new", RefusedReason::WriteFailed { message: "no".to_owned() });
    assert_eq!(stage.admit(), ["new"]);
    assert_eq!(stage.reserved("main"), 4);
}

#[test]
fn slice_being_evicted_is_not_replaced() {
    let mut stage = grown_from_six(|queue| queue);
    stage.change("old", |workload| workload.evicted = true);
    stage.submit(job("new", 9).replacing("old"));
    let taken = "pending new: WaitingForQuota: Workload has overlapping preemption targets with another workload";
    assert_eq!(stage.cycle(), [taken]);
    stage.evict("old");
    stage.change("old", |workload| workload.active = false);
    stage.wait(2);
    assert_eq!(
        stage.cycle(),
        ["admit new: main x 9 cpu 9 on default"],
        "nobody is left to replace"
    );
}

/// `old` is a victim of another workload, so that `new` waits. Then the eviction is withdrawn.
fn stays_after_all(how: impl FnOnce(&mut Stage)) -> Stage {
    let mut stage = grown_from_six(preempts_lower);
    stage.submit(job("higher", 8).priority(9));
    assert_eq!(stage.cycle()[0], "preempt old for higher: InClusterQueue");
    stage.submit(job("new", 7).at(5).replacing("old"));
    stage.delete("higher");
    stage.wait(2);
    let taken = "pending new: WaitingForQuota: Workload has overlapping preemption targets with another workload";
    assert_eq!(stage.cycle(), [taken]);
    // Waits for the triggers of the other workload's end.
    stage.wait(2);
    stage.cycle();
    assert_eq!(stage.order("main"), "[new]");
    how(&mut stage);
    stage
}

#[test]
fn new_slice_is_retried_when_the_eviction_is_withdrawn() {
    let key = || WorkloadKey::new("ns", "old");
    let mut refused = stays_after_all(|stage| stage.apply(Event::PreemptionFailed { key: key() }));
    assert_eq!(refused.admit(), ["new"]);
    let mut changed =
        stays_after_all(|stage| stage.change("old", |workload| workload.pods_ready = true));
    assert_eq!(changed.admit(), ["new"]);
    let leaves = stays_after_all(|stage| stage.change("old", |workload| workload.evicted = true));
    assert_eq!(leaves.order("main"), "[new]", "it waits for the end of that");
}

#[test]
fn slice_in_another_queue_does_not_share_quota() {
    let mut stage = grown_from_six(|queue| queue);
    stage.queue(cq("other").quota("default", "cpu", 10));
    stage.apply(Event::LocalQueue(lq("other", "other")));
    stage.submit(job("new", 9).queue("other").replacing("old"));
    assert_eq!(stage.admit(), ["new"]);
    assert_eq!((stage.reserved("main"), stage.reserved("other")), (6, 9));
    finish(&mut stage, "old");
    assert_eq!((stage.reserved("main"), stage.reserved("other")), (0, 9));
}

#[test]
fn second_replacement_of_a_slice_waits() {
    let mut stage = grown_from_six(|queue| queue);
    stage.submit(job("one", 7).replacing("old"));
    stage.submit(job("two", 3).at(5).replacing("old"));
    assert_eq!(stage.admit(), ["one"]);
    assert!(stage.cycle()[0].starts_with("pending two: WaitingForQuota: Workload has overlapping"));
    assert_eq!(stage.reserved("main"), 7);
}

#[test]
fn slice_without_quota_is_not_reused() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(job("new", 9).replacing("old"));
    assert_eq!(stage.cycle(), ["admit new: main x 9 cpu 9 on default"]);
}

#[test]
fn restart_charges_both_slices_once_in_any_order() {
    let mut told = grown_from_six(|queue| queue);
    told.submit(job("new", 9).replacing("old"));
    let Some(Decision::Reserve { admission, .. }) = told.engine.cycle(told.now).decisions.pop()
    else {
        panic!()
    };
    let pods = |count: i32| {
        let mut admission = admission.clone();
        admission.pod_sets[0].count = count;
        admission.pod_sets[0]
            .usage
            .values_mut()
            .for_each(|usage| *usage = Amount::new(i64::from(count) * 1000));
        Some(admission)
    };
    for first in ["old", "new"] {
        let mut stage = Stage::new();
        stage.queue(cq("main").quota("default", "cpu", 10));
        let old = Workload { reservation: pods(6), ..job("old", 6) };
        let new = Workload { reservation: pods(9), ..job("new", 9).replacing("old") };
        let (one, two) = if first == "old" { (old, new) } else { (new, old) };
        stage.submit(one);
        stage.submit(two);
        assert_eq!(stage.reserved("main"), 9, "{first} first");
        stage.change("old", |workload| workload.pods_ready = true);
        assert_eq!(stage.reserved("main"), 9, "{first} first, and the older one changes");
    }
}

#[test]
fn slices_that_replace_each_other_are_both_charged() {
    let mut stage = grown_from_six(|queue| queue);
    stage.submit(job("new", 3).replacing("old"));
    stage.admit();
    assert_eq!(stage.reserved("main"), 3);
    stage.change("old", |workload| workload.replaces = Some(WorkloadKey::new("ns", "new")));
    assert_eq!(stage.reserved("main"), 9);
}

#[test]
fn equal_workload_without_replacement_is_independent() {
    let mut stage = grown_from_six(|queue| queue);
    stage.submit(job("alike", 9));
    assert!(stage.cycle()[0].starts_with("pending alike"));
    stage.submit(job("new", 9).replacing("old"));
    assert_eq!(stage.cycle(), ["admit new: main x 9 cpu 9 on default"]);
    assert!(stage.why("alike").contains("more needed"), "{}", stage.why("alike"));
}

#[test]
fn fewer_pods_free_quota() {
    let mut stage = grown_from_six(|queue| queue);
    stage.submit(job("waits", 7));
    stage.cycle();
    stage.change("old", |workload| workload.pod_sets[0].count = 3);
    assert_eq!(stage.reserved("main"), 3);
    stage.wait(2);
    assert_eq!(stage.admit(), ["waits"]);
}

#[test]
fn explanation_counts_slices_as_the_cycle_does() {
    let mut stage = grown_from_six(|queue| queue);
    stage.apply(Event::ResourceFlavor(flavor("default")));
    stage.submit(job("other", 3));
    stage.admit();
    stage.submit(job("new", 9).replacing("old"));
    stage.cycle();
    let explained =
        stage.engine.explain(&WorkloadKey::new("ns", "new"), stage.now).expect("it is known");
    let resource = &explained.pod_sets[0].flavors[0].resources[0];
    assert_eq!((resource.asked.get(), resource.free.get()), (9000, 7000));
}

#[test]
fn empty_pod_set_gets_a_flavor_that_fits_one_pod() {
    // Quota of `default` and `spot`, and the flavor of the job without pods.
    let cases = [
        ("the first holds a pod", (4, 16), "default"),
        ("the first holds none", (0, 16), "spot"),
        ("the first holds less than a pod", (1, 16), "spot"),
        ("none holds a pod, and nothing runs", (0, 1), "default"),
    ];
    for (case, (default, spot), want) in cases {
        let mut stage = Stage::new();
        stage.queue(cq("main").quota("default", "gpu", default).quota("spot", "gpu", spot));
        stage.submit(wl("job").pods("main", 0).request("gpu", 2));
        assert_eq!(stage.cycle(), [format!("admit job: main x 0 gpu 0 on {want}")], "{case}");
    }
}

#[test]
fn empty_job_grows_on_a_flavor_that_fits() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "gpu", 0).quota("spot", "gpu", 16));
    stage.submit(wl("old").pods("main", 0).request("gpu", 2));
    assert_eq!(stage.admit(), ["old"]);
    stage.submit(wl("new").pods("main", 3).request("gpu", 2).replacing("old"));
    assert_eq!(stage.cycle(), ["admit new: main x 3 gpu 6 on spot"]);
}
