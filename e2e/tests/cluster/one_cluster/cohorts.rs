//! Quota that several queues share: reclaiming, limits at three levels, changes and deletions while jobs run, and what is
//! wrong with an object. One controller in this process on a real API server.

use crate::bed::{Bed, WAIT, metrics, several::Shown};
use kube::api::PostParams;
use serde_json::{Value, json};
use switchyard_e2e::auditor::{self, FindingKind};
use switchyard_e2e::{fixture, job, queues, wait};

#[test]
fn a_member_takes_back_what_the_other_borrowed() {
    fixture::run(async {
        let bed = Bed::new("reclaim").await;
        let member = |name: &str| bed.member(name, "2").preemption("Never", "Any").build();
        bed.set_up([member("owner"), member("guest")], &["owner", "guest"]).await;
        let guests = bed.fill("guest", 4).await;
        bed.admitted(&guests, 4).await;
        bed.shows("guest", Shown::cpus(4, 2, 0)).await;

        bed.job_in("owner", "owner").cpu("2").create(bed.admin()).await.unwrap();
        bed.expect_true("owner", "Admitted").await;
        let stay = bed.admitted(&guests, 2).await;
        let (preemptor, job) = (bed.workload_of("owner").await, bed.job_uid("owner").await);
        let message = format!(
            "Preempted to accommodate a workload (UID: {}, JobUID: {job}) due to reclamation within the cohort; \
             preemptor path: /{1}/{2}; preemptee path: /{1}/{3}",
            preemptor.metadata.uid.unwrap(),
            bed.part("all"),
            bed.part("owner"),
            bed.part("guest"),
        );
        for job in guests.iter().filter(|job| !stay.contains(job)) {
            bed.expect(job, "Preempted", "True", "InCohortReclamation", &message).await;
            bed.expect(job, "Evicted", "True", "Preempted", &message).await;
            bed.expect(job, "Requeued", "True", "Preempted", &message).await;
            bed.suspended(job, true).await;
            let workload = bed.workload_of(job).await.metadata.name.unwrap();
            bed.event(&workload, "EvictedDueToPreempted", &message).await;
            bed.event(&workload, "Preempted", &message).await;
        }
        bed.shows("guest", Shown::cpus(2, 0, 2)).await;
        bed.shows("owner", Shown { reserving: 1, admitted: 1, ..Shown::cpus(2, 0, 0) }).await;
        let preempted = format!(
            "kueue_preempted_workloads_total{{preempting_cluster_queue=\"{}\",reason=\"InCohortReclamation\",replica_role=\"standalone\"}} 2",
            bed.part("owner")
        );
        assert!(metrics().contains(&preempted), "no {preempted} in\n{}", metrics());

        // Reclaimed quota is lent again.
        bed.delete_job("owner").await;
        bed.admitted(&guests, 4).await;
        bed.shows("guest", Shown::cpus(4, 2, 0)).await;
    });
}

#[test]
fn limits_hold_at_every_level_of_the_hierarchy() {
    fixture::run(async {
        let bed = Bed::new("levels").await;
        let cohort = |name: &str| queues::Cohort::new(&bed.part(name));
        let below =
            |name: &str| cohort(name).parent(&bed.part("root")).group(&bed.name, &[("cpu", "0")]);
        let queue = |name: &str, cpus: &str, cohort: &str| {
            let queue =
                queues::ClusterQueue::new(&bed.part(name)).group(&bed.name, &[("cpu", cpus)]);
            queue.cohort(&bed.part(cohort)).build()
        };
        // The root has two CPUs for all, `left` lends one of its four, `right` borrows two at most and lends nothing.
        let objects = [
            cohort("root").group(&bed.name, &[("cpu", "2")]).build(),
            below("left").limits("cpu", None, Some("1")).build(),
            below("right").limits("cpu", Some("2"), Some("0")).build(),
            queue("l", "4", "left"),
            queue("r", "1", "right"),
        ];
        bed.set_up(objects, &["l", "r"]).await;

        let mut right = bed.fill("r", 4).await;
        let admitted = bed.admitted(&right, 3).await;
        let waits = right.iter().find(|job| !admitted.contains(job)).unwrap().clone();
        bed.expect(&waits, "QuotaReserved", "False", "WaitingForQuota", "").await;
        // Once one has been tried, its equals are not, and have no reason.
        bed.job_in("r", "r-4").create(bed.admin()).await.unwrap();
        right.push("r-4".to_owned());
        bed.shows("r", Shown::cpus(3, 2, 2)).await;
        // Three of its own are kept from the root, and one of the root's three is left.
        let left = bed.fill("l", 7).await;
        bed.admitted(&left, 4).await;
        bed.shows("l", Shown::cpus(4, 0, 3)).await;
        let message = format!(
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor {}, 1 more needed",
            bed.name
        );
        bed.expect(&waits, "QuotaReserved", "False", "WaitingForQuota", &message).await;
        // More than the limits ever let in.
        bed.job_in("r", "big").cpu("4").create(bed.admin()).await.unwrap();
        let message = format!(
            "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor {}, previously considered podsets requests (0) + current podset request (4) > maximum capacity (3)",
            bed.name
        );
        bed.expect("big", "QuotaReserved", "False", "ExceedsMaxQuota", &message).await;

        for job in &right {
            bed.delete_job(job).await;
        }
        // All that the root has, and the own four.
        bed.admitted(&left, 6).await;
        bed.shows("l", Shown::cpus(6, 2, 1)).await;
        // The one CPU that `right` does not lend is still there.
        let again = bed.fill("r", 2).await;
        let again: Vec<String> = again.into_iter().collect();
        bed.admitted(&again, 1).await;
        bed.shows("r", Shown::cpus(1, 0, 2)).await;
    });
}

#[test]
fn a_cohort_that_is_edited_judges_new_jobs_and_no_running_ones() {
    fixture::run(async {
        auditor::expect(
            &[FindingKind::ChargedAboveQuota],
            "the quota of a cohort is lowered while jobs run by it",
        );
        let bed = Bed::new("edit").await;
        let cohort =
            queues::Cohort::new(&bed.part("all")).group(&bed.name, &[("cpu", "4")]).build();
        bed.set_up([cohort, bed.member("q", "0").build()], &["q"]).await;
        let jobs = bed.fill("q", 4).await;
        bed.admitted(&jobs, 4).await;
        bed.shows("q", Shown::cpus(4, 4, 0)).await;
        for job in &jobs {
            bed.running(job).await;
        }

        let quota = |cpus: &str| {
            let flavor =
                json!({"name": bed.name, "resources": [{"name": "cpu", "nominalQuota": cpus}]});
            json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]})
        };
        bed.patch_cohort("all", quota("2")).await;
        bed.job_in("q", "late").create(bed.admin()).await.unwrap();
        bed.expect("late", "QuotaReserved", "False", "WaitingForQuota", "").await;
        bed.job_in("q", "large").cpu("3").create(bed.admin()).await.unwrap();
        bed.expect("large", "QuotaReserved", "False", "ExceedsMaxQuota", "").await;
        bed.shows("q", Shown::cpus(4, 4, 2)).await;

        // Half of what runs has to end before one more comes in.
        for job in &jobs[..2] {
            bed.delete_job(job).await;
        }
        bed.shows("q", Shown::cpus(2, 2, 2)).await;
        bed.patch_cohort("all", quota("3")).await;
        bed.expect_true("late", "Admitted").await;

        // In another cohort, which has nothing for it, it keeps what it has.
        bed.cluster()
            .apply([bed.member("q", "0").cohort(&bed.part("other")).build()])
            .await
            .unwrap();
        bed.expect("large", "QuotaReserved", "False", "ExceedsMaxQuota", "").await;
        bed.shows("q", Shown::cpus(3, 3, 1)).await;
        for job in [&jobs[2], &jobs[3], &"late".to_owned()] {
            let workload = bed.workload_of(job).await;
            assert!(
                !workload
                    .status
                    .unwrap()
                    .conditions
                    .iter()
                    .any(|condition| condition.type_ == "Evicted"),
                "{job}"
            );
            bed.suspended(job, false).await;
        }
    });
}

#[test]
fn deleted_queues_and_flavors_in_use_stay_and_say_why() {
    fixture::run(async {
        let bed = Bed::new("inuse").await;
        bed.set_up(
            [bed.member("q", "2").build(), bed.member("other", "1").build()],
            &["q", "other"],
        )
        .await;
        let jobs = bed.fill("q", 2).await;
        bed.admitted(&jobs, 2).await;
        let workload = bed.workload_of(&jobs[1]).await.metadata.name.unwrap();

        for (kind, name) in [("ClusterQueue", &bed.part("q")), ("ResourceFlavor", &bed.name)] {
            bed.kept_in_use(kind, name).await;
            bed.delete(kind, name).await;
        }
        let waits = format!("its quota is held by 2 workloads: {}/", bed.namespace);
        bed.event(&bed.part("q"), "DeletionWaits", &waits).await;
        let waits =
            format!("it is in use by 2 ClusterQueues: {}, {}", bed.part("other"), bed.part("q"));
        bed.event(&bed.name, "DeletionWaits", &waits).await;
        bed.active_of(
            "q",
            "False",
            "Terminating",
            "Can't admit new workloads; clusterQueue is terminating",
        )
        .await;
        bed.job_in("q", "late").create(bed.admin()).await.unwrap();
        let message = format!("ClusterQueue {} is inactive", bed.part("q"));
        bed.expect("late", "QuotaReserved", "False", "Suspended", &message).await;
        // A neighbour goes on, though its flavor is to go.
        bed.job_in("other", "other").create(bed.admin()).await.unwrap();
        bed.expect_true("other", "Admitted").await;

        bed.delete_job(&jobs[0]).await;
        bed.shows("q", Shown { pending: 1, ..Shown::cpus(1, 0, 0) }).await;
        bed.suspended(&jobs[1], false).await;
        assert!(
            bed.finalizers("ClusterQueue", &bed.part("q"))
                .await
                .contains(&"kueue.x-k8s.io/resource-in-use".to_owned())
        );
        bed.event(&bed.part("q"), "DeletionWaits", &workload).await;
        bed.delete_job(&jobs[1]).await;
        bed.gone("ClusterQueue", &bed.part("q")).await;
        assert!(
            bed.finalizers("ResourceFlavor", &bed.name)
                .await
                .contains(&"kueue.x-k8s.io/resource-in-use".to_owned())
        );
        bed.delete("ClusterQueue", &bed.part("other")).await;
        bed.delete_job("other").await;
        bed.gone("ClusterQueue", &bed.part("other")).await;
        bed.gone("ResourceFlavor", &bed.name).await;
        let message = format!("ClusterQueue {} doesn't exist", bed.part("q"));
        bed.expect("late", "QuotaReserved", "False", "Misconfigured", &message).await;
    });
}

/// Creates an object as a user does, and gives what the API server has against it.
async fn refusal(bed: &Bed, kind: &str, object: Value) -> String {
    let api = bed.cluster().dynamic("kueue.x-k8s.io/v1beta2", kind, "").await.unwrap();
    let object = serde_json::from_value(object).unwrap();
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => "nothing".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn bad_objects_are_refused_as_kueue_refuses_them() {
    fixture::run(async {
        let bed = Bed::new("refused").await;
        let queue = |name: &str| queues::ClusterQueue::new(&bed.part(name));
        let plain = |name: &str| queue(name).group(&bed.name, &[("cpu", "1")]);
        let quota = |amount: &str| queue("q").group(&bed.name, &[("cpu", amount)]).build();
        let many = |flavors: usize, resources: usize| {
            let names: Vec<String> = (0..flavors).map(|number| format!("f{number}")).collect();
            let covered: Vec<String> =
                (0..resources).map(|number| format!("example.com/r{number}")).collect();
            let quota: Vec<(&str, &str)> =
                covered.iter().map(|name| (name.as_str(), "1")).collect();
            let flavors: Vec<(&str, &[(&str, &str)])> =
                names.iter().map(|name| (name.as_str(), &quota[..])).collect();
            queue("q").flavors(&flavors).build()
        };
        let cohort = queues::Cohort::new(&bed.part("c")).group(&bed.name, &[("cpu", "1")]);
        let cases = [
            ("ClusterQueue", "a nominal quota that is no quantity", quota("lots"), "nominalQuota"),
            (
                "ClusterQueue",
                "borrowing without a cohort",
                plain("q").limits("cpu", Some("1"), None).build(),
                "borrowingLimit must be nil when cohort is empty",
            ),
            (
                "ClusterQueue",
                "lending without a cohort",
                plain("q").limits("cpu", None, Some("1")).build(),
                "lendingLimit must be nil when cohort is empty",
            ),
            ("ClusterQueue", "too many flavors", many(65, 1), "64"),
            ("ClusterQueue", "too many resources", many(1, 65), "64"),
            ("ClusterQueue", "too many pairs", many(9, 60), "512"),
            (
                "ClusterQueue",
                "a weight below zero",
                plain("q").cohort("c").weight("-1").build(),
                "weight",
            ),
            (
                "ClusterQueue",
                "a weight that is no number",
                plain("q").cohort("c").weight("NaN").build(),
                "weight",
            ),
            (
                "Cohort",
                "a limit of a root",
                cohort.clone().limits("cpu", Some("1"), None).build(),
                "borrowingLimit must be nil when parent is empty",
            ),
        ];
        let mut wrong = Vec::new();
        for (kind, what, object, expected) in cases {
            let said = refusal(&bed, kind, object).await;
            if !said.contains(expected) {
                wrong.push(format!("{what}: {said}"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{}",
            wrong.join(
                "
"
            )
        );
        // Quantities beyond 64 bits are taken and count as unlimited, as Kueue has them.
        assert_eq!(refusal(&bed, "ClusterQueue", quota("9999999999999Ei")).await, "nothing");
    });
}

#[test]
fn what_is_wrong_with_one_queue_holds_no_other_up() {
    fixture::run(async {
        let bed = Bed::new("wrong").await;
        let cohort = |name: &str, parent: &str| {
            queues::Cohort::new(&bed.part(name)).parent(&bed.part(parent)).build()
        };
        let queue = |name: &str, flavor: &str| {
            queues::ClusterQueue::new(&bed.part(name)).group(flavor, &[("cpu", "2")])
        };
        let objects = [
            // A cycle of three, and one that is its own parent.
            cohort("a", "b"),
            cohort("b", "c"),
            cohort("c", "a"),
            cohort("self", "self"),
            queue("cycle", &bed.name).cohort(&bed.part("a")).build(),
            queue("own-parent", &bed.name).cohort(&bed.part("self")).build(),
            queue("absent", "no-such-flavor").build(),
            queue("weightless", &bed.name).cohort(&bed.part("fine")).weight("0").build(),
            queue("good", &bed.name).cohort(&bed.part("fine")).build(),
        ];
        bed.set_up(objects, &["weightless", "good"]).await;
        let door = |name: &str| queues::local_queue(&bed.namespace, name, &bed.part(name));
        bed.cluster().apply(["cycle", "own-parent", "absent"].map(door)).await.unwrap();
        for name in ["cycle", "own-parent", "absent"] {
            bed.job_in(name, name).create(bed.admin()).await.unwrap();
        }
        let cyclic = "Can't admit new workloads: the cohorts above form a cycle.";
        bed.active_of("cycle", "False", "CohortCycleDetected", cyclic).await;
        bed.active_of("own-parent", "False", "CohortCycleDetected", cyclic).await;
        let missing =
            "Can't admit new workloads: references missing ResourceFlavor(s): no-such-flavor.";
        bed.active_of("absent", "False", "FlavorNotFound", missing).await;
        for name in ["cycle", "own-parent", "absent"] {
            let message = format!("ClusterQueue {} is inactive", bed.part(name));
            bed.expect(name, "QuotaReserved", "False", "Suspended", &message).await;
        }
        for name in ["good", "weightless"] {
            bed.job_in(name, name)
                .run_for(std::time::Duration::from_millis(100))
                .create(bed.admin())
                .await
                .unwrap();
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
        }
        // The cycle is cut, and what waited below it comes in.
        bed.cluster().apply([queues::Cohort::new(&bed.part("c")).build()]).await.unwrap();
        bed.expect_true("cycle", "Admitted").await;
        bed.cluster().apply([queues::Cohort::new(&bed.part("self")).build()]).await.unwrap();
        bed.expect_true("own-parent", "Admitted").await;
        let flavor = queues::ResourceFlavor::new(&bed.part("late")).build();
        bed.cluster().apply([flavor, queue("absent", &bed.part("late")).build()]).await.unwrap();
        bed.expect_true("absent", "Admitted").await;
        let quiet = async || {
            let told = bed.events(&bed.part("good")).await;
            anyhow::ensure!(told.is_empty(), "{told:?}");
            Ok(())
        };
        wait::eventually(WAIT, "no events about the good queue", quiet).await.unwrap();
    });
}
