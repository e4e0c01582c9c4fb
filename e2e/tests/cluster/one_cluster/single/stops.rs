//! Events that take quota from a job, and conditions for it.

use std::time::Duration;

use serde_json::json;
use switchyard_e2e::{fixture, job, queues};

use crate::bed::{Bed, WAIT};

#[test]
fn stop_policies_of_both_queues() {
    fixture::run(async {
        let bed = Bed::new("stop").await;
        bed.simple(&[("cpu", "4")]).await;
        bed.job("runs").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("runs").await;

        // Hold: what runs goes on, what comes waits.
        bed.stop_cluster_queue("Hold").await;
        bed.cluster_queue_condition("False", "Stopped", "Can't admit new workloads: is stopped.")
            .await;
        bed.job("waits").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.expect(
            "waits",
            "QuotaReserved",
            "False",
            "Suspended",
            &format!("ClusterQueue {} is inactive", bed.name),
        )
        .await;
        bed.suspended("runs", false).await;

        // HoldAndDrain: what runs is evicted.
        bed.stop_cluster_queue("HoldAndDrain").await;
        bed.expect("runs", "Evicted", "True", "ClusterQueueStopped", "The ClusterQueue is stopped")
            .await;
        bed.suspended("runs", true).await;
        bed.expect(
            "runs",
            "Requeued",
            "False",
            "ClusterQueueStopped",
            "The ClusterQueue is stopped",
        )
        .await;
        bed.queue_status(2, 0, 0).await;

        // And taken back.
        bed.stop_cluster_queue("None").await;
        let message = "The ClusterQueue was restarted after being stopped";
        bed.expect("runs", "Requeued", "True", "ClusterQueueRestarted", message).await;
        for name in ["runs", "waits"] {
            bed.running(name).await;
        }
        bed.expect(
            "runs",
            "Evicted",
            "False",
            "QuotaReserved",
            "Previously: The ClusterQueue is stopped",
        )
        .await;

        bed.stop_local_queue("HoldAndDrain").await;
        bed.local_queue_condition("queue", "False", "Stopped", "LocalQueue is stopped").await;
        for name in ["runs", "waits"] {
            bed.expect(name, "Evicted", "True", "LocalQueueStopped", "The LocalQueue is stopped")
                .await;
            bed.suspended(name, true).await;
            bed.expect(name, "QuotaReserved", "False", "Suspended", "LocalQueue queue is inactive")
                .await;
        }
        bed.stop_local_queue("None").await;
        for name in ["runs", "waits"] {
            bed.running(name).await;
        }
    });
}

#[test]
fn a_workload_is_deactivated_and_reactivated() {
    fixture::run(async {
        let bed = Bed::new("active").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.job("a").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("a").await;
        bed.job("b")
            .cpu("1")
            .run_for(Duration::from_millis(200))
            .create(bed.admin())
            .await
            .unwrap();
        bed.set_active("a", false).await;
        bed.expect("a", "Evicted", "True", "Deactivated", "The workload is deactivated").await;
        bed.suspended("a", true).await;
        job::complete(bed.admin(), &bed.namespace, "b", WAIT).await.unwrap();
        bed.expect("a", "QuotaReserved", "False", "Deactivated", "The workload is deactivated")
            .await;
        bed.set_active("a", true).await;
        bed.running("a").await;
    });
}

#[test]
fn the_maximum_execution_time_ends_a_job() {
    fixture::run(async {
        let bed = Bed::new("time").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.job("a")
            .cpu("1")
            .label("kueue.x-k8s.io/max-exec-time-seconds", "15")
            .run_forever()
            .create(bed.admin())
            .await
            .unwrap();
        let message = "The workload is deactivated due to exceeding the maximum execution time";
        bed.expect("a", "Evicted", "True", "DeactivatedDueToMaximumExecutionTimeExceeded", message)
            .await;
        bed.suspended("a", true).await;
        assert_eq!(bed.workload_of("a").await.spec.active, Some(false));
    });
}

#[test]
fn an_admission_check_decides_after_the_quota() {
    fixture::run(async {
        let bed = Bed::new("check").await;
        bed.cluster().apply([queues::admission_check(&bed.name)]).await.unwrap();
        bed.apply(
            queues::ClusterQueue::new(&bed.name)
                .group(&bed.name, &[("cpu", "2")])
                .admission_check(&bed.name)
                .build(),
        )
        .await;
        bed.cluster_queue_condition(
            "False",
            "AdmissionCheckInactive",
            &format!(
                "Can't admit new workloads: references inactive AdmissionCheck(s): {}.",
                bed.name
            ),
        )
        .await;
        bed.activate_check().await;
        for name in ["ready", "retry", "reject"] {
            bed.job(name)
                .cpu("1")
                .run_for(Duration::from_millis(200))
                .create(bed.admin())
                .await
                .unwrap();
            if name == "ready" {
                // Jobs of one second are ordered by their uid, and two have quota at a time.
                bed.expect_true(name, "QuotaReserved").await;
            }
        }
        for (name, state) in [("ready", "Ready"), ("retry", "Retry"), ("reject", "Rejected")] {
            if name != "ready" {
                bed.expect_true(name, "QuotaReserved").await;
            }
            bed.expect("ready", "QuotaReserved", "True", "QuotaReserved", "").await;
            bed.answer_check(name, state).await;
            match name {
                "ready" => {
                    drop(job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap())
                }
                "retry" => {
                    let message = format!(
                        "Evicted due to AdmissionCheck in Retry state: \"{}\" (said Retry)",
                        bed.name
                    );
                    bed.expect(
                        name,
                        "Requeued",
                        "True",
                        "BackoffFinished",
                        "The workload backoff was finished",
                    )
                    .await;
                    bed.expect(
                        name,
                        "Evicted",
                        "False",
                        "QuotaReserved",
                        &format!("Previously: {message}"),
                    )
                    .await;
                }
                _ => {
                    let message = format!(
                        "AdmissionCheck in Rejected state: \"{}\" (said Rejected)",
                        bed.name
                    );
                    let message = format!("The workload is deactivated due to {message}");
                    bed.expect(name, "Evicted", "True", "DeactivatedDueToAdmissionCheck", &message)
                        .await;
                }
            }
        }
    });
}

#[test]
fn check_of_one_flavor_holds_workloads_of_that_flavor() {
    fixture::run(async {
        let bed = Bed::new("flavors").await;
        let (checked, free) = (bed.part("checked"), bed.part("free"));
        let cpu = [("cpu", "1")];
        let strategy = json!({"admissionChecks": [{"name": bed.name, "onFlavors": [checked]}]});
        let queue =
            queues::ClusterQueue::new(&bed.name).flavors(&[(&checked, &cpu), (&free, &cpu)]);
        let flavors = [&checked, &free].map(|name| queues::ResourceFlavor::new(name).build());
        bed.cluster()
            .apply(flavors.into_iter().chain([queues::admission_check(&bed.name)]))
            .await
            .unwrap();
        bed.activate_check().await;
        bed.apply(queue.field("admissionChecksStrategy", strategy).build()).await;

        let got = async |name: &str| {
            let status = bed.workload_of(name).await.status.unwrap();
            let flavor =
                status.admission.unwrap().pod_set_assignments[0].flavors.get("cpu").cloned();
            let checks: Vec<String> =
                status.admission_checks.into_iter().map(|check| check.name).collect();
            (flavor, checks)
        };
        let brief = |name: &str| bed.job(name).run_for(Duration::from_millis(200));
        brief("waits").create(bed.admin()).await.unwrap();
        let message = "The workload has not all checks ready";
        bed.expect("waits", "Admitted", "False", "UnsatisfiedAdmissionChecks", message).await;
        assert_eq!(got("waits").await, (Some(checked), vec![bed.name.clone()]));

        // The first flavor is taken, and the second is not considered.
        brief("goes").create(bed.admin()).await.unwrap();
        job::complete(bed.admin(), &bed.namespace, "goes", WAIT).await.unwrap();
        assert_eq!(got("goes").await, (Some(free), vec![]));
        bed.suspended("waits", true).await;
        assert!(!bed.is_true("waits", "Admitted").await);

        bed.answer_check("waits", "Ready").await;
        job::complete(bed.admin(), &bed.namespace, "waits", WAIT).await.unwrap();
    });
}
