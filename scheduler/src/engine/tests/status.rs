//! Views of queues.

use std::collections::BTreeMap;

use crate::fixtures::{Stage, cq, flavor, lq, wl};
use crate::{ClusterQueue, Event, LocalQueueKey, StopPolicy};

const MULTI_KUEUE: &str = "kueue.x-k8s.io/multikueue";
const PROVISIONING: &str = "kueue.x-k8s.io/provisioning-request";

fn queue() -> ClusterQueue {
    cq("main").quota("default", "cpu", 10).quota("spot", "cpu", 10)
}

fn condition(change: impl FnOnce(&mut Stage)) -> String {
    let mut stage = Stage::new();
    stage.check("mk", MULTI_KUEUE, true);
    stage.check("mk2", MULTI_KUEUE, true);
    stage.check("prov", PROVISIONING, true);
    stage.check("off", "example.com/check", false);
    change(&mut stage);
    let (active, reason, message) = stage.engine.cluster_queue("main").unwrap().active_condition();
    format!("{active} {reason}: {message}")
}

#[test]
fn inactive_causes_have_reasons_and_messages() {
    insta::assert_snapshot!(condition(|s| s.queue(queue())), @"true Ready: Can admit new workloads");
    insta::assert_snapshot!(condition(|s| s.queue(queue().check("mk", &[]))), @"true Ready: Can admit new workloads");
    insta::assert_snapshot!(condition(|s| s.queue(queue().stop(StopPolicy::HoldAndDrain))), @"false Stopped: Can't admit new workloads: is stopped.");
    insta::assert_snapshot!(condition(|s| s.queue(queue().quota("x", "cpu", 1).quota("y", "cpu", 1))), @"false FlavorNotFound: Can't admit new workloads: references missing ResourceFlavor(s): x,y.");
    insta::assert_snapshot!(condition(|s| s.queue(queue().check("gone", &[]).check("also", &[]))), @"false AdmissionCheckNotFound: Can't admit new workloads: references missing AdmissionCheck(s): also,gone.");
    insta::assert_snapshot!(condition(|s| s.queue(queue().check("off", &[]))), @"false AdmissionCheckInactive: Can't admit new workloads: references inactive AdmissionCheck(s): off.");
    insta::assert_snapshot!(condition(|s| s.queue(queue().check("mk", &[]).check("mk2", &[]))), @"false MultipleMultiKueueAdmissionChecks: Can't admit new workloads: Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: mk,mk2.");
    insta::assert_snapshot!(condition(|s| s.queue(queue().check("mk", &["default"]))), @"false MultiKueueAdmissionCheckAppliedPerFlavor: Can't admit new workloads: Cannot specify MultiKueue AdmissionCheck per flavor, found: mk.");
    insta::assert_snapshot!(condition(|s| s.queue(queue().check("mk", &["spot", "default"]))), @"true Ready: Can admit new workloads");
    insta::assert_snapshot!(condition(|s| s.queue(queue().check("mk", &[]).check("prov", &[]))), @"false MultiKueueWithProvisioningRequest: Can't admit new workloads: Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: mk, prov.");
    insta::assert_snapshot!(condition(|s| {
        s.queue(queue());
        s.apply(Event::ResourceFlavor(crate::ResourceFlavor { topology_name: Some("racks".into()), ..flavor("default") }));
    }), @r#"false TopologyNotFound: Can't admit new workloads: there is no Topology "racks" for TAS flavor "default"."#);
    insta::assert_snapshot!(condition(|s| {
        s.queue(queue());
        s.apply(Event::ResourceFlavor(crate::ResourceFlavor { topology_name: Some("racks".into()), ..flavor("default") }));
        s.apply(Event::Topology { name: "racks".into(), levels: Vec::new() });
    }), @"true Ready: Can admit new workloads");
    insta::assert_snapshot!(condition(|s| s.queue(ClusterQueue { deleting: true, ..queue() })), @"false Terminating: Can't admit new workloads; clusterQueue is terminating");
    insta::assert_snapshot!(condition(|s| {
        s.apply(Event::Cohort(crate::fixtures::cohort("a").below("a")));
        s.queue(queue().cohort("a"));
    }), @"false CohortCycleDetected: Can't admit new workloads: the cohorts above form a cycle.");
    insta::assert_snapshot!(condition(|s| s.queue(queue().stop(StopPolicy::Hold).check("gone", &[]).quota("x", "cpu", 1))), @"false Stopped: Can't admit new workloads: is stopped, references missing ResourceFlavor(s): x, references missing AdmissionCheck(s): gone.");
}

#[test]
fn referenced_objects_activate_a_queue() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("late", "cpu", 10).check("late", &[]));
    stage.submit(wl("a").request("cpu", 1));
    assert_eq!(stage.cycle(), [""; 0]);
    stage.apply(Event::ResourceFlavor(flavor("late")));
    stage.check("late", "example.com/check", true);
    assert_eq!(stage.admit(), ["a"]);
    stage.apply(Event::ResourceFlavorDeleted { name: "late".into() });
    stage.submit(wl("b").request("cpu", 1));
    assert_eq!(stage.cycle(), [""; 0]);
    assert_eq!(stage.why("b"), "Suspended: ClusterQueue main is inactive");
}

#[test]
fn queue_view_shows_usage_counts_and_borrowing() {
    let mut stage = Stage::new();
    stage
        .queue(cq("main").cohort("all").quota("default", "cpu", 4).quota("default", "memory", 100));
    stage.queue(cq("other").cohort("all").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 6).request("memory", 10));
    stage.admit();
    stage.submit(wl("b").request("cpu", 2).request("memory", 10));
    stage.cycle();
    stage.submit(wl("c").request("cpu", 90));
    stage.submit(wl("d").request("cpu", 91).at(1));
    stage.cycle();
    let view = stage.engine.cluster_queue("main").unwrap();
    let text = |usage: &[crate::ResourceUsage]| -> Vec<String> {
        let line = |u: &crate::ResourceUsage| {
            let (total, borrowed) = (u.total.format(&u.resource), u.borrowed.format(&u.resource));
            format!("{} {}: {total} ({borrowed} borrowed)", u.flavor, u.resource)
        };
        usage.iter().map(line).collect()
    };
    assert_eq!(
        text(&view.reservation),
        ["default cpu: 8 (4 borrowed)", "default memory: 20 (0 borrowed)"]
    );
    assert_eq!(
        text(&view.usage),
        ["default cpu: 6 (2 borrowed)", "default memory: 10 (0 borrowed)"]
    );
    assert_eq!((view.reserving, view.admitted), (2, 1));
    assert_eq!((view.pending_active, view.pending_inadmissible), (1, 1));
    let parked = stage.engine.parked_by_local_queue("main");
    assert_eq!(parked, BTreeMap::from([(LocalQueueKey::new("ns", "main"), 1)]));
    let asked = stage.engine.pending_requests("main");
    let asked: Vec<_> = asked
        .iter()
        .map(|(resource, amount)| format!("{resource} {}", amount.format(resource)))
        .collect();
    assert_eq!(asked, ["cpu 181", "memory 0"]);
    let local = stage.engine.local_queue(&LocalQueueKey::new("ns", "main")).unwrap();
    assert_eq!((local.pending, local.reserving, local.admitted), (2, 2, 1));
    assert_eq!(
        text(&local.reservation),
        ["default cpu: 8 (0 borrowed)", "default memory: 20 (0 borrowed)"]
    );
    assert_eq!(
        text(&local.usage),
        ["default cpu: 6 (0 borrowed)", "default memory: 10 (0 borrowed)"]
    );
}

#[test]
fn inactive_local_queue_says_why() {
    let condition = |policy, stage: &mut Stage| {
        stage.apply(Event::LocalQueue(crate::LocalQueue {
            stop_policy: policy,
            ..lq("main", "main")
        }));
        let (active, reason, message) =
            stage.engine.local_queue(&LocalQueueKey::new("ns", "main")).unwrap().active_condition();
        format!("{active} {reason}: {message}")
    };
    let mut stage = Stage::new();
    insta::assert_snapshot!(condition(StopPolicy::None, &mut stage), @"false ClusterQueueDoesNotExist: Can't submit new workloads to clusterQueue");
    stage.queue(queue().stop(StopPolicy::Hold));
    insta::assert_snapshot!(condition(StopPolicy::None, &mut stage), @"false ClusterQueueIsInactive: Can't submit new workloads to clusterQueue");
    stage.queue(queue());
    insta::assert_snapshot!(condition(StopPolicy::None, &mut stage), @"true Ready: Can submit new workloads to localQueue");
    insta::assert_snapshot!(condition(StopPolicy::Hold, &mut stage), @"false Stopped: LocalQueue is stopped");
}

#[test]
fn pending_workloads_are_listed_with_their_positions() {
    let mut stage = Stage::new();
    stage.apply(Event::LocalQueue(lq("second", "main")));
    stage.queue(cq("main").quota("default", "cpu", 1));
    stage.submit(wl("a").request("cpu", 5).at(1));
    stage.submit(wl("b").queue("second").request("cpu", 6).at(2));
    stage.submit(wl("c").request("cpu", 7).at(3));
    stage.cycle();
    let lines: Vec<_> = (stage.engine.pending("main"))
        .map(|entry| {
            format!(
                "{} {} {}.{} parked={} {}",
                entry.key,
                entry.local_queue,
                entry.position_in_cluster_queue,
                entry.position_in_local_queue,
                entry.inadmissible,
                entry.reason.map_or("", |reason| reason.condition_reason())
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            "ns/a main 0.0 parked=true ExceedsMaxQuota",
            "ns/b second 1.0 parked=false ",
            "ns/c main 2.1 parked=false "
        ]
    );
    let waiting = stage.engine.why(&crate::WorkloadKey::new("ns", "c")).unwrap().into_owned();
    let crate::Reason::Waiting { head, ahead, .. } = waiting else { panic!("{waiting:?}") };
    assert_eq!((head.to_string(), ahead), ("ns/b".to_owned(), 1));
}

/// `parent/name (root): share, resource=reserved of quota ..., admitted` of each changed Cohort.
fn cohorts(stage: &mut Stage) -> Vec<String> {
    let changed = stage.engine.changed().cohorts;
    let shown = |name: &crate::Name| match stage.engine.cohort(name) {
        None => format!("{name}: gone"),
        Some(view) => {
            let quota = |slot: &crate::SubtreeQuota| {
                format!("{}={} of {}", slot.resource, slot.reserved, slot.quota)
            };
            let slots: Vec<_> = view.subtree.iter().map(quota).collect();
            let place = format!("{}/{name}", view.parent.as_deref().unwrap_or_default());
            let root = view.root.as_deref().unwrap_or("a cycle");
            format!(
                "{place} ({root}): share {}, {}, {} admitted",
                view.weighted_share,
                slots.join(" "),
                view.admitted
            )
        }
    };
    changed.iter().map(shown).collect()
}

#[test]
fn cohort_view_shows_subtree_and_changes() {
    use crate::fixtures::cohort;
    let mut stage = Stage::new();
    stage.apply(Event::Cohort(cohort("all")));
    stage.apply(Event::Cohort(cohort("team").below("all")));
    stage.queue(cq("main").quota("default", "cpu", 4).cohort("team"));
    stage.queue(cq("rest").quota("default", "cpu", 6).cohort("all"));
    assert_eq!(
        cohorts(&mut stage),
        [
            "/all (all): share 0, cpu=0 of 10000, 0 admitted",
            "all/team (all): share 0, cpu=0 of 4000, 0 admitted"
        ]
    );
    stage.submit(wl("a").request("cpu", 9));
    stage.cycle();
    // Borrows five of the ten that the root can lend.
    assert_eq!(
        cohorts(&mut stage),
        [
            "/all (all): share 0, cpu=9000 of 10000, 0 admitted",
            "all/team (all): share 500, cpu=9000 of 4000, 0 admitted"
        ]
    );
    assert_eq!(cohorts(&mut stage), [""; 0], "nothing happened since");
    stage.apply(Event::Cohort(cohort("all").below("team")));
    assert_eq!(
        cohorts(&mut stage)[0],
        "team/all (a cycle): share 0, , 0 admitted",
        "sums of a cycle say nothing"
    );
    stage.apply(Event::CohortDeleted { name: "team".into() });
    stage.apply(Event::CohortDeleted { name: "all".into() });
    stage.apply(Event::ClusterQueueDeleted { name: "main".into() });
    assert!(cohorts(&mut stage).contains(&"team: gone".to_owned()));
}
