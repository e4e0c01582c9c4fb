//! Orphans: reported, acknowledged, removed.

use super::*;

#[test]
fn orphan_is_reported_first_and_removed_after_grace() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 0, 0)]);
    bench.observe("a", "x", 4, State::Running);
    bench.observe("a", "x", 4, State::Running);
    assert_eq!(bench.take(), ["orphan x/4 on a"]);
    assert_eq!(bench.dispatcher.cluster_view("a").orphans, 1);
    bench.later(900_000 - 1);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), ["Absent x/4 on a"]);
    bench.observe("a", "x", 4, State::Gone);
    assert_eq!(bench.take(), ["forget x/4 on a"]);
}

#[test]
fn orphans_say_why_none_of_them_is_removed() {
    let orphans = |settings: DispatcherSettings, many: usize| {
        let mut bench = Bench::with(settings, &[("a", 0, 0)]);
        for number in 0..many {
            bench.observe("a", &format!("x{number}"), 4, State::Running);
        }
        bench.later(2 * 900_000);
        let removed = bench.take().iter().filter(|line| line.starts_with("Absent")).count();
        let notes = bench.dispatcher.orphans_of("a", many).into_iter().map(|it| it.note);
        let notes: BTreeSet<Option<String>> = notes.collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        (removed, notes.into_iter().next().flatten().unwrap_or_default())
    };
    let settings = DispatcherSettings::default;
    assert_eq!(orphans(settings(), 9), (9, String::new()));
    let (removed, note) = orphans(settings(), 10);
    assert_eq!(removed, 0);
    assert!(note.starts_with("stays: the cluster has more orphans than known Workloads"), "{note}");
    let (removed, note) =
        orphans(DispatcherSettings { orphan_grace: UnixMillis::MAX, ..settings() }, 1);
    assert_eq!((removed, &*note), (0, "stays: multiKueue.gcInterval is 0"));
}

#[test]
fn orphan_that_becomes_known_is_tracked() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "w", 1, State::Running);
    assert_eq!(bench.take(), ["orphan w/1 on a"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    assert_eq!(bench.take(), ["Run w/1 on a"]);
    bench.later(2 * 900_000);
    assert!(bench.take().is_empty(), "it is not removed");
    assert_eq!(bench.dispatcher.cluster_view("a").orphans, 0);
}

#[test]
fn orphan_end_is_acknowledged_after_short_wait() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "w", 1, State::Succeeded);
    assert_eq!(bench.take(), ["orphan w/1 on a"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    assert_eq!(bench.take(), ["finish w/1 from a: true"]);

    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "x", 1, State::Succeeded);
    bench.later(10_000);
    assert_eq!(bench.take(), ["orphan x/1 on a", "ack x/1 to a"]);
    bench.observe("a", "x", 1, State::Succeeded);
    assert_eq!(bench.take(), ["ack x/1 to a"], "said again, acknowledged again");
    bench.later(890_000);
    assert_eq!(bench.take(), ["Absent x/1 on a"]);
}

#[test]
fn orphan_end_during_removal_is_acknowledged() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "x", 1, State::Running);
    bench.later(900_000);
    assert_eq!(bench.take(), ["orphan x/1 on a", "Absent x/1 on a"]);
    bench.observe("a", "x", 1, State::Succeeded);
    assert_eq!(bench.take(), ["ack x/1 to a"]);
}

#[test]
fn orphan_gone_before_its_workload_leaves_no_state() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "w", 1, State::Succeeded);
    bench.later(900_000);
    assert_eq!(bench.take(), ["orphan w/1 on a", "ack w/1 to a", "Absent w/1 on a"]);
    bench.dispatcher.track(committed("w", "a", 1).with(|it| it.finished = true));
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take().last().map(String::as_str), Some("forget w/1 on a"));
    assert_eq!(bench.dispatcher.cluster_view("a").workloads, 0);
}

#[test]
fn inventory_drops_orphans_that_are_gone() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 0, 0)]);
    bench.observe("a", "x", 4, State::Running);
    bench.apply(DispatchEvent::InventoryComplete { cluster: "a".into(), uids: BTreeSet::new() });
    assert_eq!(bench.dispatcher.cluster_view("a").orphans, 0);
}

#[test]
fn orphan_end_is_acknowledged_despite_later_observations() {
    let ended = || {
        let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
        bench.observe("a", "x", 1, State::Succeeded);
        assert_eq!(bench.take(), ["orphan x/1 on a"]);
        bench
    };
    let mut bench = ended();
    bench.observe("a", "x", 1, State::Reserved);
    bench.later(10_000);
    assert_eq!(bench.take(), ["ack x/1 to a"]);

    let mut bench = ended();
    bench.observe("a", "x", 2, State::Running);
    assert_eq!(bench.take(), ["ack x/1 to a"], "a later attempt says that the earlier one is over");

    let mut bench = ended();
    bench.observe("a", "x", 1, State::Gone);
    assert_eq!(bench.take(), ["ack x/1 to a"]);
}
