//! Preemption by priority: what the victim, the API and the metrics tell of it, and priorities that change.

use std::time::Duration;

use crate::bed::{Bed, WAIT, metrics, several::Shown};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use switchyard_api::v1beta2::WorkloadPriorityClass;
use switchyard_e2e::{fixture, job, queues, wait};

/// A bed with a ClusterQueue of this many CPUs that preempts lower priorities, and these priority classes.
async fn bed(stem: &str, cpus: &str, classes: &[(&str, i32)]) -> Bed {
    let bed = Bed::new(stem).await;
    let classes: Vec<_> = classes
        .iter()
        .map(|(name, value)| queues::priority_class(&bed.part(name), *value))
        .collect();
    let queue = queues::ClusterQueue::new(&bed.part("q")).group(&bed.name, &[("cpu", cpus)]);
    bed.set_up(
        classes.into_iter().chain([queue.preemption("LowerPriority", "Never").build()]),
        &["q"],
    )
    .await;
    bed
}

async fn revalue(bed: &Bed, class: &str, value: i32) {
    let api: Api<WorkloadPriorityClass> = Api::all(bed.admin().clone());
    let patch = Patch::Merge(json!({"value": value}));
    api.patch(&bed.part(class), &PatchParams::default(), &patch).await.unwrap();
}

async fn priority(bed: &Bed, job: &str, expected: i32) {
    let check = async || {
        let priority = bed.workload_of(job).await.spec.priority;
        anyhow::ensure!(priority == Some(expected), "its priority is {priority:?}");
        Ok(())
    };
    wait::eventually(WAIT, format!("priority {expected} of {job}"), check).await.unwrap();
}

#[test]
fn a_victim_is_told_why_queued_again_and_finishes_later() {
    fixture::run(async {
        let bed = bed("victim", "2", &[("high", 1000)]).await;
        let victims = bed.fill("q", 2).await;
        bed.admitted(&victims, 2).await;
        for victim in &victims {
            bed.running(victim).await;
        }
        let high = bed
            .job_in("q", "high")
            .priority_class(&bed.part("high"))
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect_true("high", "Admitted").await;
        let stays = bed.admitted(&victims, 1).await;
        let victim = victims.iter().find(|job| !stays.contains(job)).unwrap();
        let message = format!(
            "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to prioritization in the ClusterQueue; \
             preemptor path: /{2}; preemptee path: /{2}",
            bed.workload_of("high").await.metadata.uid.unwrap(),
            high.metadata.uid.unwrap(),
            bed.part("q"),
        );
        bed.expect(victim, "Evicted", "True", "Preempted", &message).await;
        bed.expect(victim, "Preempted", "True", "InClusterQueue", &message).await;
        bed.expect(victim, "Requeued", "True", "Preempted", &message).await;
        bed.expect(victim, "Admitted", "False", "NoReservation", "The workload has no reservation")
            .await;
        bed.expect(victim, "QuotaReserved", "False", "WaitingForQuota", "").await;
        bed.suspended(victim, true).await;
        bed.shows("q", Shown::cpus(2, 0, 1)).await;
        let workload = bed.workload_of(victim).await;
        let status = workload.status.unwrap();
        assert!(status.admission.is_none() && status.requeue_state.is_none(), "{status:?}");
        let evictions = status.scheduling_stats.unwrap().evictions;
        assert_eq!(
            serde_json::to_value(&evictions).unwrap(),
            json!([{"reason": "Preempted", "underlyingCause": "", "count": 1}])
        );
        let name = workload.metadata.name.unwrap();
        bed.event(&name, "EvictedDueToPreempted", &message).await;
        let priorities = "; preemptor effective priority: 1000 (base: 1000, boost: 0); preemptee effective priority: 0 (base: 0, boost: 0)";
        bed.event(&name, "Preempted", &format!("{message}{priorities}")).await;
        let uid = workload.metadata.uid.unwrap();
        let told = format!(
            "Preempted workload {}/{name} (UID: {uid}) in ClusterQueue {}{priorities}",
            bed.namespace,
            bed.part("q")
        );
        let preemptor = bed.workload_of("high").await.metadata.name.unwrap();
        bed.event(&preemptor, "PreemptedWorkload", &told).await;
        let page = metrics();
        for expected in [
            format!(
                "kueue_evicted_workloads_total{{cluster_queue=\"{}\",reason=\"Preempted\",underlying_cause=\"\",priority_class=\"\",replica_role=\"standalone\"}} 1",
                bed.part("q")
            ),
            format!(
                "kueue_preempted_workloads_total{{preempting_cluster_queue=\"{}\",reason=\"InClusterQueue\",replica_role=\"standalone\"}} 1",
                bed.part("q")
            ),
        ] {
            assert!(page.contains(&expected), "no {expected} in\n{page}");
        }

        // The one that preempted it ends; it comes back, and its pods run a second time.
        bed.delete_job("high").await;
        bed.running(victim).await;
        bed.expect(victim, "Evicted", "False", "QuotaReserved", &format!("Previously: {message}"))
            .await;
        bed.expect(
            victim,
            "Preempted",
            "False",
            "QuotaReserved",
            &format!("Previously: {message}"),
        )
        .await;
        let status = bed.workload_of(victim).await.status.unwrap();
        assert!(status.accumulated_past_execution_time_seconds.is_some(), "{status:?}");
        for job in &victims {
            bed.delete_job(job).await;
        }
        bed.no_workloads().await;
    });
}

#[test]
fn a_victim_finishes_when_it_runs_again() {
    fixture::run(async {
        let bed = bed("again", "1", &[("high", 1000)]).await;
        // Long enough to be preempted, however slow the machine is: the pod starts only by an annotation.
        let low = bed
            .job_in("q", "low")
            .pod_annotation(job::START_AFTER, "2s")
            .run_for(Duration::from_millis(200));
        low.create(bed.admin()).await.unwrap();
        bed.expect_true("low", "Admitted").await;
        let high = bed
            .job_in("q", "high")
            .priority_class(&bed.part("high"))
            .run_for(Duration::from_millis(200));
        high.create(bed.admin()).await.unwrap();
        for name in ["high", "low"] {
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
            bed.expect_true(name, "Finished").await;
        }
        bed.shows("q", Shown::cpus(0, 0, 0)).await;
    });
}

#[test]
fn a_class_that_gets_another_value_reorders_what_waits() {
    fixture::run(async {
        let bed = bed("reorder", "1", &[("one", 10), ("two", 20), ("top", 1000)]).await;
        bed.job_in("q", "holder")
            .priority_class(&bed.part("top"))
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect_true("holder", "Admitted").await;
        for class in ["one", "two"] {
            bed.job_in("q", class)
                .priority_class(&bed.part(class))
                .create(bed.admin())
                .await
                .unwrap();
            bed.workload_of(class).await;
        }
        revalue(&bed, "one", 30).await;
        priority(&bed, "one", 30).await;
        bed.delete_job("holder").await;
        bed.expect_true("one", "Admitted").await;
        assert!(!bed.is_true("two", "QuotaReserved").await);
    });
}

#[test]
fn priority_class_with_new_value_makes_running_jobs_victims() {
    fixture::run(async {
        let bed = bed("lowered", "1", &[("one", 50), ("two", 20)]).await;
        bed.job_in("q", "one").priority_class(&bed.part("one")).create(bed.admin()).await.unwrap();
        bed.running("one").await;
        bed.job_in("q", "two").priority_class(&bed.part("two")).create(bed.admin()).await.unwrap();
        bed.expect("two", "QuotaReserved", "False", "WaitingForQuota", "").await;
        revalue(&bed, "one", 10).await;
        bed.expect("one", "Preempted", "True", "InClusterQueue", "").await;
        bed.expect_true("two", "Admitted").await;
        priority(&bed, "one", 10).await;
    });
}
