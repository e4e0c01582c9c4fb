//! Explanations beyond the reason: queue position, outlooks and obstacles.

use crate::fixtures::{Stage, cohort, cq, lq, wl};
use crate::{
    Amount, ClusterQueue, EngineSettings, Event, Explanation, Outlook, PreemptionPolicy,
    PreemptionRules, QuotaBound, StopPolicy, Verdict, WorkloadKey,
};

fn explain(stage: &Stage, name: &str) -> Explanation {
    stage.engine.explain(&WorkloadKey::new("ns", name), stage.now).expect("the workload is known")
}

/// The outlook, then each obstacle with its workloads.
fn obstacles(stage: &Stage, name: &str) -> Vec<String> {
    let explanation = explain(stage, name);
    let mut lines = vec![explanation.outlook.name().to_owned()];
    for flavor in explanation.pod_sets.iter().flat_map(|pod_set| &pod_set.flavors) {
        for resource in &flavor.resources {
            let (verdict, missing) =
                (resource.verdict.name(), resource.missing().format(&resource.resource));
            lines.push(format!(
                "{} {}: {verdict}, {missing} missing",
                flavor.flavor, resource.resource
            ));
            for refusal in
                resource.preemption.iter().flat_map(|preemption| &preemption.non_candidates)
            {
                let (queue, message) = (&refusal.cluster_queue, refusal.obstacle.message());
                lines.push(format!(
                    "  {} of {queue} with {}: {message}",
                    refusal.workloads, refusal.holds
                ));
            }
        }
    }
    lines
}

impl ClusterQueue {
    fn rules(mut self, within: PreemptionPolicy, reclaim: PreemptionPolicy) -> Self {
        self.preemption = PreemptionRules {
            within_cluster_queue: within,
            reclaim_within_cohort: reclaim,
            ..PreemptionRules::default()
        };
        self
    }
}

/// `main` and `other` share the cohort `all`, with five cores each. `other` runs workloads of
/// `theirs` cores.
fn two_queues(settings: EngineSettings, main: ClusterQueue, theirs: &[i64]) -> Stage {
    let mut stage = Stage::with_preemption(settings);
    stage.apply(Event::LocalQueue(lq("other", "other")));
    stage.queue(main.cohort("all").quota("default", "cpu", 5));
    stage.queue(cq("other").cohort("all").quota("default", "cpu", 5));
    for (number, cores) in theirs.iter().enumerate() {
        stage.submit(wl(&format!("theirs-{number}")).queue("other").request("cpu", *cores));
    }
    stage.admit_all();
    stage
}

use PreemptionPolicy::{Any, LowerPriority, Never};

#[test]
fn within_cluster_queue_never_protects_own_queue() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.queue(cq("main").quota("default", "cpu", 5));
    stage.submit(wl("a").request("cpu", 4));
    stage.admit_all();
    stage.submit(wl("b").request("cpu", 3).priority(9));
    insta::assert_snapshot!(obstacles(&stage, "b").join("\n"), @r"
    Blocked
    default cpu: NoCandidates, 2 missing
      1 of main with 4000: preemption.withinClusterQueue is Never
    ");
}

#[test]
fn obstacle_shows_the_lowest_priority() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.queue(cq("main").rules(LowerPriority, Never).quota("default", "cpu", 5));
    stage.submit(wl("a").request("cpu", 2).priority(7));
    stage.submit(wl("b").request("cpu", 3).priority(5));
    stage.admit_all();
    stage.submit(wl("c").request("cpu", 1).priority(5));
    insta::assert_snapshot!(obstacles(&stage, "c").join("\n"), @r"
    Blocked
    default cpu: NoCandidates, 1 missing
      2 of main with 5000: preemption.withinClusterQueue is LowerPriority: priority 5 or more is not lower than 5
    ");
}

#[test]
fn reclaim_within_cohort_never_protects_borrowers() {
    let mut stage = two_queues(EngineSettings::default(), cq("main"), &[8]);
    stage.submit(wl("b").request("cpu", 3).priority(9));
    insta::assert_snapshot!(obstacles(&stage, "b").join("\n"), @r"
    Blocked
    default cpu: NoCandidates, 1 missing
      1 of other with 8000: preemption.reclaimWithinCohort is Never
    ");
}

#[test]
fn non_borrowing_queue_is_protected() {
    let mut stage = two_queues(EngineSettings::default(), cq("main").rules(Never, Any), &[5]);
    stage.submit(wl("mine").request("cpu", 4));
    stage.admit_all();
    stage.submit(wl("b").request("cpu", 3));
    insta::assert_snapshot!(obstacles(&stage, "b").join("\n"), @r"
    Blocked
    default cpu: NoCandidates, 2 missing
      1 of main with 4000: preemption.withinClusterQueue is Never
      1 of other with 5000: other uses no more than its own quota
    ");
}

#[test]
fn borrowing_preemptor_does_not_preempt_borrowers() {
    let mut stage = two_queues(EngineSettings::default(), cq("main").rules(Never, Any), &[6]);
    stage.submit(wl("b").request("cpu", 6).priority(9));
    let told = obstacles(&stage, "b");
    assert_eq!(told[0], "Blocked");
    assert!(told[2].ends_with(
        "this workload would itself borrow, and preemption.borrowWithinCohort is Never"
    ));
}

#[test]
fn higher_share_forbids_preemption() {
    let settings = EngineSettings { fair_sharing: true, ..EngineSettings::default() };
    let mut stage = two_queues(settings, cq("main").rules(Never, Any), &[6]);
    stage.submit(wl("mine").request("cpu", 4));
    stage.admit_all();
    stage.submit(wl("b").request("cpu", 4).priority(9));
    insta::assert_snapshot!(obstacles(&stage, "b").join("\n"), @r"
    Blocked
    default cpu: NoCandidates, 4 missing
      1 of main with 4000: preemption.withinClusterQueue is Never
      1 of other with 6000: fair sharing: the share would be 300 here and is 100 there
    ");
}

#[test]
fn explanation_names_the_victims() {
    let mut stage = two_queues(EngineSettings::default(), cq("main").rules(Never, Any), &[4, 4]);
    stage.submit(wl("b").request("cpu", 5));
    let explanation = explain(&stage, "b");
    assert_eq!(explanation.outlook, Outlook::Preempts);
    let victims: Vec<_> = explanation
        .victims
        .iter()
        .map(|victim| format!("{} {}", victim.key, victim.reason))
        .collect();
    assert_eq!(victims, ["ns/theirs-0 InCohortReclamation"]);
    assert_eq!(explanation.pod_sets[0].flavors[0].verdict, Verdict::Reclaim);
    assert!(
        explanation
            .message()
            .is_some_and(|message| message.ends_with("Pending the preemption of 1 workload(s)"))
    );
}

#[test]
fn explanation_shows_free_quota_and_its_bound() {
    let mut stage = two_queues(EngineSettings::default(), cq("main"), &[2]);
    let mut limited = cq("main").cohort("all").quota("default", "cpu", 5);
    limited.resource_groups[0].flavors[0].resources[0].1.borrowing_limit = Some(Amount::new(1000));
    stage.submit(wl("a").request("cpu", 7));
    let resource = |stage: &Stage| explain(stage, "a").pod_sets[0].flavors[0].resources[0].clone();
    let open = resource(&stage);
    assert_eq!((open.free.get(), open.borrowable.get(), open.most.get()), (8000, 3000, 10000));
    assert_eq!(open.bound, QuotaBound::Cohort { name: "all".into() });
    assert_eq!(explain(&stage, "a").outlook, Outlook::Fits);
    stage.queue(limited);
    let bound = resource(&stage);
    assert_eq!((bound.free.get(), bound.borrowable.get()), (6000, 1000));
    assert_eq!(
        bound.bound,
        QuotaBound::BorrowingLimit { name: "main".into(), limit: Amount::new(1000) }
    );
    assert_eq!(explain(&stage, "a").outlook, Outlook::Blocked);
}

#[test]
fn explanation_shows_withheld_quota() {
    let mut stage = two_queues(EngineSettings::default(), cq("main"), &[]);
    let mut other = cq("other").cohort("all").quota("default", "cpu", 5);
    other.resource_groups[0].flavors[0].resources[0].1.lending_limit = Some(Amount::new(2000));
    stage.queue(other);
    stage.apply(Event::Cohort(cohort("all")));
    stage.submit(wl("a").request("cpu", 8));
    let resource = explain(&stage, "a").pod_sets[0].flavors[0].resources[0].clone();
    assert_eq!(
        (resource.free.get(), resource.most.get(), resource.verdict),
        (7000, 7000, Verdict::ExceedsMaxQuota)
    );
    let withheld: Vec<_> = resource
        .withheld
        .iter()
        .map(|withheld| format!("{} {}", withheld.name, withheld.amount))
        .collect();
    assert_eq!(withheld, ["other 3000"]);
}

#[test]
fn explanation_shows_queue_position_and_head() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.apply(Event::LocalQueue(lq("second", "main")));
    stage.queue(cq("main").strict().quota("default", "cpu", 5));
    for (at, (name, queue)) in
        [("a", "main"), ("b", "second"), ("c", "main"), ("d", "second")].iter().enumerate()
    {
        stage.submit(wl(name).queue(queue).request("cpu", 4).at(at as i64));
    }
    stage.admit();
    stage.cycle();
    let place = explain(&stage, "d").place.expect("it waits");
    assert_eq!((place.in_cluster_queue, place.of_cluster_queue), (2, 3));
    assert_eq!((place.in_local_queue, place.of_local_queue), (1, 2));
    let head = place.head.expect("it is not the head");
    assert_eq!((&*head.key.name, place.strict, head.solo_reason.is_some()), ("b", true, true));
    assert!(explain(&stage, "b").place.is_some_and(|place| place.head.is_none()));
}

#[test]
fn untried_workload_has_no_solo_reason() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.queue(cq("main").stop(StopPolicy::Hold).quota("default", "cpu", 5));
    stage.submit(wl("a").request("cpu", 4));
    let explanation = explain(&stage, "a");
    assert_eq!((explanation.outlook, explanation.solo_reason.clone()), (Outlook::NotTried, None));
    assert_eq!(explanation.message().as_deref(), Some("ClusterQueue main is inactive"));
    assert_eq!(explanation.inactive[0].reason, "Stopped");
}

#[test]
fn workload_with_quota_shows_its_reservation() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.queue(cq("main").quota("default", "cpu", 5));
    stage.submit(wl("a").request("cpu", 4));
    stage.admit();
    let explanation = explain(&stage, "a");
    assert_eq!((explanation.outlook, explanation.reason.clone()), (Outlook::Admitted, None));
    assert_eq!(explanation.held.expect("it holds quota").admission.pod_sets[0].count, 1);
    assert!(explanation.pod_sets.is_empty());
}

#[test]
fn explaining_all_workloads_changes_no_decision() {
    let build = || {
        let mut stage =
            two_queues(EngineSettings::default(), cq("main").rules(LowerPriority, Any), &[4, 4]);
        for number in 0..6 {
            stage.submit(
                wl(&format!("w{number}"))
                    .request("cpu", 1 + number % 3)
                    .priority(number as i32 % 2),
            );
        }
        stage
    };
    let (mut asked, mut plain) = (build(), build());
    for _ in 0..6 {
        for number in 0..6 {
            explain(&asked, &format!("w{number}"));
        }
        assert_eq!(asked.cycle(), plain.cycle());
        assert_eq!(asked.admit(), plain.admit());
    }
}
