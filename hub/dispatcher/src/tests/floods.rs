//! Cost of one cluster's reports, in decisions. An agent may send them without end.

use super::*;

const WAITING: u64 = 5_000;
/// Decisions that one cluster's reports may cause in a second.
const BUDGET: u64 = 10_000;

/// A hub with 5,000 waiting jobs, a second after their first scan.
fn crowded() -> Bench {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 0, 1_000), ("b", 0, 1_000)]);
    for number in 0..WAITING {
        bench.reserve(facts(&format!("w{number}")));
    }
    bench.log.clear();
    bench
}

/// Sends an event every few milliseconds for two seconds. Returns their number and the decisions.
fn flood(bench: &mut Bench, every: usize, event: impl Fn(u64) -> Vec<DispatchEvent>) -> (u64, u64) {
    let (before, mut sent) = (bench.dispatcher.decided(), 0);
    for _ in (0..2_000).step_by(every) {
        for event in event(sent) {
            bench.apply(event);
        }
        sent += 1;
        bench.now += i64::try_from(every).unwrap();
    }
    bench.log.clear();
    (sent, bench.dispatcher.decided() - before)
}

#[test]
fn capacity_flood_costs_its_cluster_budget() {
    let mut bench = crowded();
    let alternating = |number: u64| {
        let free = i64::from(!number.is_multiple_of(2));
        vec![DispatchEvent::CapacityReported {
            cluster: "a".into(),
            report: report(queues(free, 1_000)),
        }]
    };
    // 1,000 a second. Without a budget, each would cost 5,000 decisions.
    let (sent, decided) = flood(&mut bench, 1, alternating);
    assert_eq!(sent, 2_000);
    assert!((WAITING..=2 * BUDGET + WAITING).contains(&decided), "{decided} decisions");
    // The other cluster's report has its own budget.
    let before = bench.dispatcher.decided();
    bench.capacity("b", 0, 1_000);
    assert!(bench.dispatcher.decided() - before >= WAITING, "it has to wait");
}

#[test]
fn last_report_of_flood_is_scanned_within_budget() {
    let mut bench = crowded();
    for free in [0, 0, 1_000] {
        bench.capacity("b", free, 1_000);
    }
    bench.log.clear();
    let due = bench.dispatcher.next_wakeup().unwrap();
    assert!(due <= bench.now + 500, "{due}");
    let before = bench.dispatcher.decided();
    bench.now += 500;
    bench.apply(DispatchEvent::Tick);
    assert!(bench.dispatcher.decided() - before >= WAITING);
}

#[test]
fn session_and_inventory_floods_cost_their_cluster_budget() {
    let mut bench = crowded();
    let inventory =
        |_| vec![DispatchEvent::InventoryComplete { cluster: "b".into(), uids: Uids::new() }];
    let there =
        bench.dispatcher.entries.values().filter(|entry| entry.remotes.contains_key("b")).count()
            as u64;
    let (sent, decided) = flood(&mut bench, 500, inventory);
    assert!(decided <= sent * (WAITING + there), "{decided} decisions for {sent} inventories");
    let again = |_| {
        vec![
            DispatchEvent::SessionClosed { name: "b".into() },
            DispatchEvent::SessionOpened { name: "b".into() },
        ]
    };
    let (sent, decided) = flood(&mut bench, 500, again);
    assert!(
        decided <= sent * (WAITING + 2 * there) + WAITING,
        "{decided} decisions for {sent} sessions"
    );
}

#[test]
fn inventory_reconciles_no_workloads_of_others() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 0, 1_000)]);
    bench.rules("silent", LossPolicy::Hold);
    for number in 0..WAITING {
        let evicted = committed(&format!("w{number}"), "silent", 1).with(|it| {
            it.evicted = true;
            it.cluster = None;
        });
        bench.apply(DispatchEvent::WorkloadChanged(evicted));
    }
    bench.log.clear();
    let inventory =
        |_| vec![DispatchEvent::InventoryComplete { cluster: "a".into(), uids: Uids::new() }];
    let (sent, decided) = flood(&mut bench, 1, inventory);
    assert!(decided <= 2 * BUDGET + WAITING, "{decided} decisions for {sent} inventories");
    bench.connect("silent", &[]);
    // Its session scanned them just before.
    bench.later(500);
    assert_eq!(
        bench.take().iter().filter(|line| line.starts_with("release ")).count() as u64,
        WAITING
    );
}

#[test]
fn orphans_without_a_job_cost_their_cluster_budget() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    for cluster in ["a", "b"] {
        bench.tells(cluster, Vec::new());
    }
    for number in 0..WAITING {
        bench.reserve(WorkloadFacts {
            subject: copies::again().subject,
            ..facts(&format!("w{number}"))
        });
    }
    bench.log.clear();
    let alternating = |number: u64| {
        let state = if number.is_multiple_of(2) { State::Running } else { State::Gone };
        let observation = Observation { name: "old".into(), ..observation("x", 1, state) };
        vec![DispatchEvent::Observed { cluster: "a".into(), observation }]
    };
    // Each end of the orphan could release its whole namespace.
    let (sent, decided) = flood(&mut bench, 1, alternating);
    assert!(decided <= 2 * BUDGET + 2 * WAITING, "{decided} decisions for {sent} observations");
}

#[test]
fn observation_reconciles_no_jobs_of_another_cluster() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 0, 1_000), ("b", 0, 1_000)]);
    for number in 0..WAITING {
        bench.apply(DispatchEvent::WorkloadChanged(committed(&format!("w{number}"), "b", 1)));
    }
    bench.runs("own", "a", 1);
    bench.dispatcher.check_index();
    let again = |_| {
        let name = || Name::from("a");
        let inventory =
            DispatchEvent::InventoryComplete { cluster: name(), uids: Uids::from(["own".into()]) };
        vec![
            DispatchEvent::SessionClosed { name: name() },
            DispatchEvent::SessionOpened { name: name() },
            inventory,
        ]
    };
    let (sent, decided) = flood(&mut bench, 1, again);
    // The end of a session, the next session and its inventory each reconcile the cluster's own
    // job.
    assert!(decided <= 3 * sent, "{decided} decisions for {sent} sessions");
}
