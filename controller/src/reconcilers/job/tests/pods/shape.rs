//! Groups whose pods are not those that their workload was made for.

use rstest::rstest;

use super::*;

const TOLD_DELETED: &str = "delete g\nNormal DeletedWorkload: Deleted not matching Workload: ns/g";
const UPDATED: &str =
    "Normal UpdatedWorkload: Updated not matching Workload for suspended job: ns/g";

/// The pair with a time that its workload has not.
fn limited() -> [TestPod; 2] {
    pair().map(|pod| {
        pod.with(json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "60"}}}))
    })
}

fn in_phases(pods: [TestPod; 2], phases: [&str; 2]) -> Value {
    group(pods.into_iter().zip(phases).map(|(pod, phase)| pod.phase(phase)))
}

fn of_pair() -> TestWorkload {
    workload(&group(pair()))
}

#[rstest]
#[case::waits(["Pending", "Pending"], of_pair(), UPDATED)]
#[case::waits_for_a_check(["Pending", "Pending"], of_pair().reserved(), TOLD_DELETED)]
#[case::is_to_start(["Pending", "Pending"], of_pair().admitted(), TOLD_DELETED)]
#[case::has_started_in_part(["Running", "Pending"], of_pair().admitted(), TOLD_DELETED)]
#[case::had_an_earlier_life(["Pending", "Pending"], of_pair().finished(), TOLD_DELETED)]
#[case::has_ended(["Succeeded", "Succeeded"], of_pair().admitted(), TOLD_DELETED)]
#[case::runs(
    ["Running", "Running"],
    of_pair().admitted(),
    "end a, b for NoMatchingWorkload: No matching Workload; restoring pod templates according to existent Workload"
)]
#[case::is_deleted_anyway(["Pending", "Pending"], of_pair().deleting(), "")]
fn a_group_that_gets_another_time_while_it(
    #[case] phases: [&str; 2],
    #[case] workload: TestWorkload,
    #[case] expected: &str,
) {
    let told = world_of(&in_phases(limited(), phases)).named(workload).told();
    assert!(told.contains(expected), "{told}");
    assert_eq!(expected == UPDATED, told.contains(r#""maximumExecutionTimeSeconds":60"#), "{told}");
}

#[test]
fn the_workload_goes_when_its_running_pods_are_on_their_way() {
    let going = group(limited().map(|pod| pod.phase("Running").deleting()));
    assert_eq!(world_of(&going).named(of_pair().admitted()).told(), TOLD_DELETED);
}

#[test]
fn a_waiting_group_of_other_roles_changes_its_workload_and_is_owner_of_it_next() {
    let others =
        || ["c", "d"].map(|name| pod(name).of_group("2").role(if name == "c" { "y" } else { "z" }));
    let decision = world_of(&group(others())).named(of_pair()).decide();
    let [Action::UpdateWorkload { new, .. }, Action::Event { .. }] = decision.actions.as_slice()
    else {
        panic!("{decision:?}")
    };
    let roles: Vec<(&str, i32)> =
        new.spec.pod_sets.iter().map(|it| (it.name.as_str(), it.count)).collect();
    assert_eq!(roles, [("y", 1), ("z", 1)]);
    let told = world_of(&group(others())).named(TestWorkload((**new).clone())).told();
    assert!(
        told.starts_with("workload ") && told.contains("uid-c") && told.contains("uid-d"),
        "{told}"
    );
}

#[test]
fn of_a_group_of_other_roles_what_has_failed_and_what_is_too_much_is_let_go() {
    let pods = [("c", "y", "09:01"), ("d", "y", "09:02"), ("e", "y", "09:03"), ("f", "z", "09:00")];
    let pods = pods.map(|(name, role, time)| pod(name).of_group("2").role(role).created(time));
    let [c, d, e, f] = pods;
    let told = world_of(&group([c, d, e, f.phase("Failed")])).named(of_pair()).told();
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        lines[..2].iter().all(|line| line.ends_with(r#"{"metadata":{"finalizers":[]}}"#)),
        "{told}"
    );
    assert!(lines[0].starts_with("pod f ") && lines[1].starts_with("pod e "), "{told}");
    assert_eq!(
        (lines[2], lines[3]),
        ("end e", "tell e: ExcessPodDeleted: Excess pod deleted"),
        "{told}"
    );
    assert_eq!(lines.last(), Some(&UPDATED), "{told}");
}

#[test]
fn a_group_of_other_roles_that_is_not_whole_leaves_the_workload_as_it_is() {
    let few = group([pod("c").of_group("2").role("y")]);
    let told = world_of(&few).named(of_pair()).told();
    assert_eq!(told, "Warning ErrWorkloadCompose: 'g' group has fewer runnable pods than expected");
}

#[test]
fn a_pod_of_a_role_that_the_workload_has_not_waits_beside_the_others() {
    let [a, b] = pair();
    let third = pod("c").of_group("2").role("y");
    let told = world_of(&group([a.phase("Running"), b.phase("Running"), third]))
        .named(of_pair().admitted())
        .told();
    assert_eq!(told, "", "the others run on");
    let [a, b] = pair();
    let third = pod("c").of_group("2").role("y");
    let told = world_of(&group([a, b, third])).named(of_pair().admitted()).told();
    assert_eq!(
        told.lines().last(),
        Some("tell a, b: Started: Admitted by clusterQueue cq"),
        "{told}"
    );
    assert!(!told.contains("pod c"), "{told}");
}

#[rstest]
#[case::of_the_same_pods("g", ["x", "x"], of_pair(), true)]
#[case::of_one_role_more("g", ["x", "y"], of_pair(), false)]
#[case::of_one_role_more_and_finished("g", ["x", "y"], of_pair().finished(), false)]
#[case::with_more_pods("g", ["x", "x"], of_pair().edit(|workload| workload.spec.pod_sets[0].count = 1), false)]
#[case::with_more_pods_and_finished(
    "g", ["x", "x"], of_pair().edit(|workload| workload.spec.pod_sets[0].count = 1).finished(), true
)]
#[case::with_fewer_pods("g", ["x", "x"], of_pair().edit(|workload| workload.spec.pod_sets[0].count = 3), true)]
#[case::of_another_name("other", ["x", "x"], of_pair(), false)]
fn a_prebuilt_workload_of_the_group_is_in_sync(
    #[case] named: &str,
    #[case] roles: [&str; 2],
    #[case] workload: TestWorkload,
    #[case] in_sync: bool,
) {
    let labels = json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": named}}});
    let pods =
        ["a", "b"].into_iter().zip(roles).map(|(name, role)| pod(name).of_group("2").role(role));
    let told = world_of(&group(pods.map(|pod| pod.with(labels.clone())))).named(workload).told();
    assert_eq!(
        !told.contains(
            "Finished=True/OutOfSync: The prebuilt workload is out of sync with its user job"
        ),
        in_sync,
        "{told}"
    );
}

#[test]
fn more_roles_than_a_workload_may_have_are_refused_until_there_are_fewer() {
    let of = |roles: usize| {
        let pods = (0..roles).map(|at| {
            pod(&format!("p{at:02}")).of_group(&roles.to_string()).role(&format!("r{at:02}"))
        });
        world_of(&group(pods)).told()
    };
    assert_eq!(of(19), "Warning ErrWorkloadCompose: pod group can't include more than 18 roles");
    assert!(of(18).starts_with("create g"), "{}", of(18));
}
