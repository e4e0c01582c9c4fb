//! Whole lives of jobs: after each step, actions are performed on a small world until none are
//! left.

use super::*;

/// Performs decisions until none are left. Returns the number of writes.
fn settle(world: &mut World) -> usize {
    let mut writes = 0;
    for _ in 0..20 {
        let decision = world.decide();
        if decision.actions.is_empty() {
            return writes;
        }
        for action in decision.actions {
            writes += usize::from(!matches!(
                action,
                Action::Event { .. } | Action::MemberEvents { .. } | Action::WorkloadEvent { .. }
            ));
            perform(world, action);
        }
    }
    panic!("never settles: {}", world.told());
}

fn perform(world: &mut World, action: Action) {
    let replace = |world: &mut World, new: Workload| {
        let at = world.workloads.iter().position(|w| w.metadata.name == new.metadata.name).unwrap();
        let gone = new.metadata.deletion_timestamp.is_some()
            && new.metadata.finalizers.iter().flatten().count() == 0;
        if gone {
            world.workloads.remove(at);
        } else {
            world.workloads[at] = Arc::new(new);
        }
    };
    match action {
        Action::UpdateJob(wanted) | Action::UpdateJobStatus(wanted) => {
            world.job = Some(TestJob(*wanted))
        }
        Action::CreateWorkload(workload) => world.workloads.push(Arc::new(*workload)),
        Action::UpdateWorkload { new, .. } => replace(world, *new),
        Action::UpdateWorkloadStatus { old, status } => {
            let mut new = Workload::clone(&old);
            new.status = Some(*status);
            replace(world, new);
        }
        Action::DeleteJob | Action::Terminate { .. } => world.job = None,
        Action::DeleteWorkload(workload) => {
            world.workloads.retain(|w| w.metadata.name != workload.metadata.name)
        }
        Action::Event { .. } | Action::MemberEvents { .. } | Action::WorkloadEvent { .. } => {}
    }
}

fn change(world: &mut World, change: impl FnOnce(TestWorkload) -> TestWorkload) {
    let workload = Workload::clone(&world.workloads.pop().unwrap());
    world.workloads.push(Arc::new(change(TestWorkload(workload)).0));
}

fn job_status(world: &mut World, status: Value) {
    world.job = Some(world.job.take().unwrap().with(json!({ "status": status })));
}

#[test]
fn job_is_queued_admitted_evicted_admitted_and_finished() {
    let original = job().0;
    let mut world = world(job());
    assert_eq!(settle(&mut world), 1, "the workload");
    change(&mut world, TestWorkload::admitted);
    assert_eq!(settle(&mut world), 1, "the start");
    assert_eq!(world.job.as_ref().unwrap().0["spec"]["suspend"], json!(false));

    job_status(&mut world, json!({"active": 3, "startTime": "2026-11-21T09:59:30Z"}));
    assert_eq!(settle(&mut world), 0, "it runs");
    change(&mut world, TestWorkload::evicted);
    assert_eq!(settle(&mut world), 1, "the stop; its pods still run");
    job_status(&mut world, json!({"active": null, "terminating": 3}));
    assert_eq!(settle(&mut world), 0, "its pods are being deleted");
    job_status(
        &mut world,
        json!({"terminating": 0, "startTime": null, "conditions": [{"type": "Suspended", "status": "True"}]}),
    );
    assert_eq!(settle(&mut world), 2, "its templates, then the quota");
    assert_eq!(world.job.as_ref().unwrap().0["spec"], original["spec"]);

    change(&mut world, TestWorkload::admitted);
    assert_eq!(settle(&mut world), 1, "the start again");
    job_status(
        &mut world,
        json!({"conditions": [{"type": "Complete", "status": "True", "message": "ok"}]}),
    );
    assert_eq!(settle(&mut world), 1, "the end");
    assert_eq!(settle(&mut world), 0);
}

#[test]
fn job_that_the_webhook_missed_gets_queued() {
    let mut world = world(job().running());
    settle(&mut world);
    job_status(
        &mut world,
        json!({"active": null, "conditions": [{"type": "Suspended", "status": "True"}]}),
    );
    settle(&mut world);
    assert_eq!(world.workloads.len(), 1);
    let job = &world.job.as_ref().unwrap().0;
    assert_eq!(
        (job["spec"]["suspend"].clone(), job["status"].get("startTime")),
        (json!(true), None)
    );
}

#[test]
fn changed_job_with_quota_gets_a_new_workload() {
    let mut world = world(job().with(json!({"spec": {"parallelism": 2}})))
        .workload(job().workload().reserved());
    assert_eq!(settle(&mut world), 2);
    assert_eq!(world.workloads[0].spec.pod_sets[0].count, 2);
    assert_eq!(world.workloads[0].status, None);
}

#[test]
fn deleted_job_releases_its_workload() {
    let mut world = World { job: None, ..world(job()) }.workload(job().workload().admitted());
    assert_eq!(settle(&mut world), 2);
    assert_eq!(world.workloads[0].metadata.finalizers.as_deref(), Some(&[][..]));
}

#[test]
fn deactivated_job_is_deleted_after_its_retention() {
    let deactivated = |reason: &'static str, seconds: u64| {
        let workload = job().workload().status(|edit| {
            edit.set(conditions::EVICTED, true, reason, "The workload is deactivated");
        });
        let workload = workload.edit(|workload| workload.spec.active = Some(false));
        World { keep_deactivated: Some(Duration::from_secs(seconds)), ..world(job()) }
            .workload(workload)
    };
    let due_to = "DeactivatedDueToRequeuingLimitExceeded";
    insta::assert_snapshot!(deactivated(due_to, 30).told(), @r"
    delete the job
    Normal Deleted: Deleted job: deactivation retention period expired
    ");
    // Evicted a minute ago.
    assert_eq!(deactivated(due_to, 90).told(), "again after 30s");
    assert_eq!(deactivated("Deactivated", 30).told(), "", "by its user");
    assert_eq!(
        World { keep_deactivated: None, ..deactivated(due_to, 0) }.told(),
        "",
        "nobody asked for it"
    );
    let mut reactivated = deactivated(due_to, 30);
    change(&mut reactivated, |workload| workload.edit(|workload| workload.spec.active = None));
    assert_eq!(reactivated.told(), "", "it waits again");
    let mut holds = deactivated(due_to, 30);
    change(&mut holds, |workload| {
        workload.admitted().status(|edit| {
            edit.set(conditions::EVICTED, true, due_to, "The workload is deactivated");
        })
    });
    assert_eq!(
        settle(&mut holds),
        4,
        "its quota, the job, and then the end of its workload, which is let go"
    );
}
