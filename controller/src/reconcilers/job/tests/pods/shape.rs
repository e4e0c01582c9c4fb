//! Groups whose pods differ from those that their workload was created for.

use rstest::rstest;

use super::*;

const TOLD_DELETED: &str = "delete g\nNormal DeletedWorkload: Deleted not matching Workload: ns/g";
const UPDATED: &str =
    "Normal UpdatedWorkload: Updated not matching Workload for suspended job: ns/g";

/// The pair with a time limit that its workload lacks.
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
#[case::pending(["Pending", "Pending"], of_pair(), UPDATED)]
#[case::check_pending(["Pending", "Pending"], of_pair().reserved(), TOLD_DELETED)]
#[case::about_to_start(["Pending", "Pending"], of_pair().admitted(), TOLD_DELETED)]
#[case::partly_started(["Running", "Pending"], of_pair().admitted(), TOLD_DELETED)]
#[case::started_before(["Pending", "Pending"], of_pair().finished(), TOLD_DELETED)]
#[case::finished(["Succeeded", "Succeeded"], of_pair().admitted(), TOLD_DELETED)]
#[case::running(
    ["Running", "Running"],
    of_pair().admitted(),
    "end a, b for NoMatchingWorkload: No matching Workload; restoring pod templates according to existent Workload"
)]
#[case::being_deleted(["Pending", "Pending"], of_pair().deleting(), "")]
fn group_with_another_time_limit(
    #[case] phases: [&str; 2],
    #[case] workload: TestWorkload,
    #[case] expected: &str,
) {
    let told = world_of(&in_phases(limited(), phases)).named(workload).told();
    assert!(told.contains(expected), "{told}");
    assert_eq!(expected == UPDATED, told.contains(r#""maximumExecutionTimeSeconds":60"#), "{told}");
}

#[test]
fn workload_is_deleted_when_its_running_pods_terminate() {
    let going = group(limited().map(|pod| pod.phase("Running").deleting()));
    assert_eq!(world_of(&going).named(of_pair().admitted()).told(), TOLD_DELETED);
}

#[test]
fn pending_group_of_other_roles_updates_its_workload() {
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
fn failed_and_excess_pods_of_other_roles_are_released() {
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
fn incomplete_group_of_other_roles_keeps_its_workload() {
    let few = group([pod("c").of_group("2").role("y")]);
    let told = world_of(&few).named(of_pair()).told();
    assert_eq!(told, "Warning ErrWorkloadCompose: 'g' group has fewer runnable pods than expected");
}

#[test]
fn pod_of_unknown_role_waits() {
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
#[case::same_pods("g", ["x", "x"], of_pair(), true)]
#[case::additional_role("g", ["x", "y"], of_pair(), false)]
#[case::additional_role_finished("g", ["x", "y"], of_pair().finished(), false)]
#[case::more_pods("g", ["x", "x"], of_pair().edit(|workload| workload.spec.pod_sets[0].count = 1), false)]
#[case::more_pods_finished(
    "g", ["x", "x"], of_pair().edit(|workload| workload.spec.pod_sets[0].count = 1).finished(), true
)]
#[case::fewer_pods("g", ["x", "x"], of_pair().edit(|workload| workload.spec.pod_sets[0].count = 3), true)]
#[case::another_name("other", ["x", "x"], of_pair(), false)]
fn prebuilt_workload_of_the_group_is_in_sync(
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
fn too_many_roles_are_refused() {
    let of = |roles: usize| {
        let pods = (0..roles).map(|at| {
            pod(&format!("p{at:02}")).of_group(&roles.to_string()).role(&format!("r{at:02}"))
        });
        world_of(&group(pods)).told()
    };
    assert_eq!(of(19), "Warning ErrWorkloadCompose: pod group can't include more than 18 roles");
    assert!(of(18).starts_with("create g"), "{}", of(18));
}
