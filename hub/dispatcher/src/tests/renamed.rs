//! Renamed clusters.

use super::*;

impl Bench {
    fn is(&mut self, cluster: &str, uid: &str) {
        self.apply(DispatchEvent::ClusterIdentified { name: cluster.into(), uid: uid.into() });
    }

    fn gone(&mut self, cluster: &str) {
        self.apply(DispatchEvent::ClusterDeleted { name: cluster.into() });
    }

    fn configure(&mut self, clusters: &[&str]) {
        let clusters = clusters.iter().map(|name| Name::from(*name)).collect();
        self.apply(DispatchEvent::CheckConfigured { name: "mk".into(), clusters });
    }
}

/// `w` ran on `a`, which is deleted. `c` has a session. `uids` are those of both, if known.
fn deleted(uids: [Option<&str>; 2]) -> Bench {
    let mut bench = Bench::running();
    if let Some(uid) = uids[0] {
        bench.is("a", uid);
    }
    bench.rules("c", LossPolicy::GiveUp);
    bench.configure(&["a", "b", "c"]);
    bench.gone("a");
    if let Some(uid) = uids[1] {
        bench.is("c", uid);
    }
    bench.apply(DispatchEvent::SessionOpened { name: "c".into() });
    assert!(bench.take().is_empty(), "its policy says what follows, later");
    bench
}

#[test]
fn renamed_cluster_keeps_its_job() {
    for (case, uids) in [
        ("the same uid", [Some("u"), Some("u")]),
        ("a hub that began since", [None, Some("u")]),
        ("clusters that tell no uid", [None, None]),
    ] {
        let mut bench = deleted(uids);
        bench.observe("c", "w", 1, State::Running);
        assert_eq!(bench.take(), ["rename w/1 from a to c"], "{case}");
        bench.apply(DispatchEvent::InventoryComplete {
            cluster: "c".into(),
            uids: Uids::from(["w".into()]),
        });
        assert!(bench.take().is_empty(), "{case}");
        bench.written(WriteOutcome::Done, committed("w", "c", 1));
        assert_eq!(bench.take(), ["mirror w/1 from c", "Run w/1 on c"], "{case}");
        bench.later(24 * 3_600_000);
        assert!(bench.take().is_empty(), "{case}: nobody waits for the deleted name");
        bench.observe("c", "w", 1, State::Succeeded);
        assert_eq!(bench.take(), ["finish w/1 from c: true"], "{case}");
    }
}

#[test]
fn copy_on_another_cluster_is_no_rename() {
    for (case, uids, state) in [
        ("another uid", [Some("u"), Some("v")], State::Running),
        ("an offer", [None, Some("u")], State::Reserved),
    ] {
        let mut bench = deleted(uids);
        bench.observe("c", "w", 1, state);
        assert_eq!(bench.take(), ["Absent w/1 on c"], "{case}");
    }
}

#[test]
fn end_on_renamed_cluster_is_acknowledged_after_write() {
    let mut bench = deleted([Some("u"), Some("u")]);
    bench.observe("c", "w", 1, State::Succeeded);
    assert_eq!(bench.take(), ["rename w/1 from a to c"]);
    bench.written(WriteOutcome::Done, committed("w", "c", 1));
    assert_eq!(bench.take(), ["finish w/1 from c: true"]);
    bench.written(WriteOutcome::Done, committed("w", "c", 1).with(|it| it.finished = true));
    assert!(bench.take().contains(&"ack w/1 to c".to_owned()));
}

#[test]
fn eviction_on_renamed_cluster_ignores_old_name() {
    let mut bench = deleted([Some("u"), Some("u")]);
    bench.observe("c", "w", 1, State::Running);
    bench.take();
    bench.written(WriteOutcome::Superseded, committed("w", "a", 1).with(|it| it.evicted = true));
    assert_eq!(bench.take(), ["Absent w/1 on c"]);
    bench.observe("c", "w", 1, State::Gone);
    bench.later(100);
    assert_eq!(bench.take(), ["forget w/1 on c", "release w"]);
}

#[test]
fn interrupted_rename_is_completed() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("b", 4000, 4000)]);
    bench.rules("c", LossPolicy::Hold);
    bench.configure(&["b", "c"]);
    bench
        .apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1).with(|it| it.cluster = None)));
    assert!(
        !bench.take().iter().any(|line| line.starts_with("commit")),
        "a cluster has not spoken"
    );
    bench.apply(DispatchEvent::SessionOpened { name: "c".into() });
    bench.observe("c", "w", 1, State::Running);
    bench.apply(DispatchEvent::InventoryComplete {
        cluster: "c".into(),
        uids: Uids::from(["w".into()]),
    });
    assert!(bench.take().contains(&"rename w/1 from - to c".to_owned()));
}

#[test]
fn rename_to_unconfigured_name_follows_policy() {
    let mut bench = deleted([Some("u"), Some("u")]);
    bench.configure(&["a", "b"]);
    bench.observe("c", "w", 1, State::Running);
    assert!(bench.take().is_empty(), "it stays");
    bench.later(15 * 60_000);
    assert_eq!(bench.take(), [r#"retry w: Admitting remote lost, Previously: "Ready""#]);
}
