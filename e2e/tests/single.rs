//! One cluster on its own: the controller in this process, with the rights that `deploy/` ships, on a real API server.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod bed;

use std::time::Duration;

use bed::{Bed, WAIT};
use serde_json::json;
use switchyard_e2e::{JobBuilder, fixture, job, queues, wait};

#[test]
fn jobs_run_in_order_as_quota_allows() {
    fixture::run(async {
        let bed = Bed::new("order").await;
        bed.simple(&[("cpu", "2")]).await;
        for name in ["a", "b", "c", "d"] {
            bed.job(name).cpu("1").run_for(Duration::from_secs(6)).create(bed.admin()).await.unwrap();
            bed.workload_of(name).await;
            bed.next_second().await;
        }
        // Two fit; the third is looked at and told what is missing, word for word as Kueue says it.
        let message = format!(
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor {}, 1 more needed",
            bed.name
        );
        bed.expect("c", "QuotaReserved", "False", "WaitingForQuota", &message).await;
        bed.expect("c", "Admitted", "False", "NoReservation", "The workload has no reservation").await;
        bed.expect(
            "a",
            "QuotaReserved",
            "True",
            "QuotaReserved",
            &format!("Quota reserved in ClusterQueue {}", bed.name),
        )
        .await;
        bed.expect("a", "Admitted", "True", "Admitted", "The workload is admitted").await;
        for name in ["a", "b", "c", "d"] {
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
            bed.expect_true(name, "Finished").await;
        }
        let mut admitted = Vec::new();
        for name in ["a", "b", "c", "d"] {
            admitted.push((bed.time(name, "Admitted").await, name));
        }
        assert!(admitted.is_sorted(), "{admitted:?}");
        bed.queue_status(0, 0, 0).await;
    });
}

#[test]
fn a_plain_job_is_suspended_by_the_reconciler_when_no_webhook_did() {
    fixture::run(async {
        let bed = Bed::new("plain").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.plain_job("a").cpu("2").create(bed.admin()).await.unwrap();
        bed.suspended("a", true).await;
        bed.plain_job("b").cpu("1").run_for(Duration::from_millis(200)).create(bed.admin()).await.unwrap();
        job::complete(bed.admin(), &bed.namespace, "b", WAIT).await.unwrap();
    });
}

#[test]
fn a_job_without_a_queue_is_none_of_ours() {
    fixture::run(async {
        let bed = Bed::new("foreign").await;
        bed.simple(&[("cpu", "1")]).await;
        let foreign = JobBuilder::new(&bed.namespace, "a").cpu("4").run_for(Duration::from_millis(200));
        foreign.create(bed.admin()).await.unwrap();
        job::complete(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
        assert!(bed.workloads().await.is_empty());
    });
}

#[test]
fn what_can_never_fit_says_so() {
    fixture::run(async {
        let bed = Bed::new("never").await;
        bed.simple(&[("cpu", "2")]).await;
        bed.job("big").cpu("3").create(bed.admin()).await.unwrap();
        let message = format!(
            "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor {}, previously considered podsets requests (0) + current podset request (3) > maximum capacity (2)",
            bed.name
        );
        bed.expect("big", "QuotaReserved", "False", "ExceedsMaxQuota", &message).await;
        bed.job("odd").cpu("1").request("memory", "1Gi").create(bed.admin()).await.unwrap();
        let message = "couldn't assign flavors to pod set main: resource memory unavailable in ClusterQueue";
        bed.expect("odd", "QuotaReserved", "False", "NoMatchingFlavor", message).await;
    });
}

#[test]
fn queues_that_are_missing_or_closed_are_named() {
    fixture::run(async {
        let bed = Bed::new("missing").await;
        bed.job("nowhere").queue("nosuch").cpu("1").create(bed.admin()).await.unwrap();
        bed.expect("nowhere", "QuotaReserved", "False", "Misconfigured", "LocalQueue nosuch doesn't exist").await;
        bed.cluster().apply([queues::local_queue(&bed.namespace, "queue", "nosuch")]).await.unwrap();
        bed.job("dangling").cpu("1").run_for(Duration::from_millis(100)).create(bed.admin()).await.unwrap();
        bed.expect("dangling", "QuotaReserved", "False", "Misconfigured", "ClusterQueue nosuch doesn't exist").await;
        bed.local_queue_condition(
            "queue",
            "False",
            "ClusterQueueDoesNotExist",
            "Can't submit new workloads to clusterQueue",
        )
        .await;

        // The queue that was missing comes.
        bed.cluster().apply([queues::local_queue(&bed.namespace, "nosuch", &bed.name)]).await.unwrap();
        let flavor = queues::ResourceFlavor::new(&bed.name).build();
        let queue = queues::ClusterQueue::new(&bed.name).group("absent", &[("cpu", "4")]).build();
        bed.cluster().apply([queue]).await.unwrap();
        bed.cluster_queue_condition(
            "False",
            "FlavorNotFound",
            "Can't admit new workloads: references missing ResourceFlavor(s): absent.",
        )
        .await;
        let message = format!("ClusterQueue {} is inactive", bed.name);
        bed.expect("nowhere", "QuotaReserved", "False", "Suspended", &message).await;
        bed.local_queue_condition(
            "nosuch",
            "False",
            "ClusterQueueIsInactive",
            "Can't submit new workloads to clusterQueue",
        )
        .await;
        let queue = queues::ClusterQueue::new(&bed.name).group(&bed.name, &[("cpu", "4")]).build();
        bed.cluster().apply([flavor, queue]).await.unwrap();
        bed.cluster_queue_condition("True", "Ready", "Can admit new workloads").await;
        bed.local_queue_condition("nosuch", "True", "Ready", "Can submit new workloads to localQueue").await;
        bed.expect_true("nowhere", "Admitted").await;
    });
}

#[test]
fn a_namespace_that_the_selector_excludes_waits_until_it_is_let_in() {
    fixture::run(async {
        let bed = Bed::new("selector").await;
        let selector = json!({"matchLabels": {"team": bed.name}});
        let queue =
            queues::ClusterQueue::new(&bed.name).group(&bed.name, &[("cpu", "1")]).field("namespaceSelector", selector);
        bed.apply(queue.build()).await;
        bed.job("a").cpu("1").run_for(Duration::from_millis(100)).create(bed.admin()).await.unwrap();
        let message = "workload namespace doesn't match ClusterQueue selector";
        bed.expect("a", "QuotaReserved", "False", "Misconfigured", message).await;
        bed.label_namespace("team", &bed.name).await;
        job::complete(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
    });
}

#[test]
fn flavors_are_tried_in_order_and_select_nodes() {
    fixture::run(async {
        let bed = Bed::new("flavors").await;
        let (spot, gpu) = (format!("{}-spot", bed.name), format!("{}-gpu", bed.name));
        bed.cluster()
            .apply([
                queues::ResourceFlavor::new(&spot)
                    .node_label("pool", "spot")
                    .node_taint("spot", "true")
                    .toleration("spot", "true")
                    .build(),
                queues::ResourceFlavor::new(&gpu).node_label("pool", "gpu").build(),
                queues::ClusterQueue::new(&bed.name)
                    .flavors(&[(&spot, &[("cpu", "1")]), (&gpu, &[("cpu", "2")])])
                    .build(),
                queues::local_queue(&bed.namespace, "queue", &bed.name),
            ])
            .await
            .unwrap();
        for name in ["first", "second"] {
            bed.job(name).cpu("1").run_for(Duration::from_secs(2)).create(bed.admin()).await.unwrap();
            bed.expect_true(name, "Admitted").await;
        }
        let (first, second) = (bed.running("first").await, bed.running("second").await);
        let pod = |job: &k8s_openapi::api::batch::v1::Job| job.spec.clone().unwrap().template.spec.unwrap();
        assert_eq!(pod(&first).node_selector.unwrap()["pool"], "spot");
        assert_eq!(pod(&first).tolerations.unwrap()[0].key.as_deref(), Some("spot"));
        assert_eq!(pod(&second).node_selector.unwrap()["pool"], "gpu");
        let taken = bed.workload_of("second").await.status.unwrap().admission.unwrap();
        assert_eq!(taken.pod_set_assignments[0].flavors["cpu"], gpu);
        // A job that asks for a pool gets its flavor, though another is first.
        bed.job("picky")
            .cpu("1")
            .node_selector("pool", "gpu")
            .run_for(Duration::from_millis(100))
            .create(bed.admin())
            .await
            .unwrap();
        job::complete(bed.admin(), &bed.namespace, "picky", WAIT).await.unwrap();
        job::complete(bed.admin(), &bed.namespace, "first", WAIT).await.unwrap();
    });
}

#[test]
fn strict_fifo_waits_where_best_effort_goes_on() {
    fixture::run(async {
        let (strict, effort) = (Bed::new("strict").await, Bed::new("effort").await);
        strict
            .apply(queues::ClusterQueue::new(&strict.name).group(&strict.name, &[("cpu", "2")]).strict_fifo().build())
            .await;
        effort.simple(&[("cpu", "2")]).await;
        for bed in [&strict, &effort] {
            bed.job("holder").cpu("1").run_forever().create(bed.admin()).await.unwrap();
            bed.expect_true("holder", "Admitted").await;
            bed.job("big").cpu("2").run_for(Duration::from_millis(100)).create(bed.admin()).await.unwrap();
            bed.expect("big", "QuotaReserved", "False", "WaitingForQuota", "").await;
            bed.next_second().await;
            bed.job("small").cpu("1").run_for(Duration::from_millis(100)).create(bed.admin()).await.unwrap();
        }
        job::complete(effort.admin(), &effort.namespace, "small", WAIT).await.unwrap();
        wait::always(Duration::from_secs(1), "the small job waits behind the big one", async || {
            anyhow::ensure!(!strict.is_true("small", "QuotaReserved").await);
            Ok(())
        })
        .await
        .unwrap();
        strict.delete_job("holder").await;
        for name in ["big", "small"] {
            job::complete(strict.admin(), &strict.namespace, name, WAIT).await.unwrap();
        }
    });
}

#[test]
fn higher_priority_goes_first() {
    fixture::run(async {
        let bed = Bed::new("priority").await;
        let high = format!("{}-high", bed.name);
        bed.cluster().apply([queues::priority_class(&high, 1000)]).await.unwrap();
        bed.simple(&[("cpu", "1")]).await;
        bed.job("holder").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.expect_true("holder", "Admitted").await;
        bed.job("low").cpu("1").run_for(Duration::from_secs(1)).create(bed.admin()).await.unwrap();
        bed.workload_of("low").await;
        bed.job("high")
            .cpu("1")
            .priority_class(&high)
            .run_for(Duration::from_secs(1))
            .create(bed.admin())
            .await
            .unwrap();
        bed.workload_of("high").await;
        bed.delete_job("holder").await;
        for name in ["high", "low"] {
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
        }
        assert!(bed.time("high", "Admitted").await < bed.time("low", "Admitted").await);
    });
}

#[test]
fn stop_policies_of_both_queues() {
    fixture::run(async {
        let bed = Bed::new("stop").await;
        bed.simple(&[("cpu", "4")]).await;
        bed.job("runs").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("runs").await;

        // Hold: what runs goes on, what comes waits.
        bed.stop_cluster_queue("Hold").await;
        bed.cluster_queue_condition("False", "Stopped", "Can't admit new workloads: is stopped.").await;
        bed.job("waits").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.expect("waits", "QuotaReserved", "False", "Suspended", &format!("ClusterQueue {} is inactive", bed.name))
            .await;
        bed.suspended("runs", false).await;

        // HoldAndDrain: what runs is evicted.
        bed.stop_cluster_queue("HoldAndDrain").await;
        bed.expect("runs", "Evicted", "True", "ClusterQueueStopped", "The ClusterQueue is stopped").await;
        bed.suspended("runs", true).await;
        bed.expect("runs", "Requeued", "False", "ClusterQueueStopped", "The ClusterQueue is stopped").await;
        bed.queue_status(2, 0, 0).await;

        // And taken back.
        bed.stop_cluster_queue("None").await;
        let message = "The ClusterQueue was restarted after being stopped";
        bed.expect("runs", "Requeued", "True", "ClusterQueueRestarted", message).await;
        for name in ["runs", "waits"] {
            bed.running(name).await;
        }
        bed.expect("runs", "Evicted", "False", "QuotaReserved", "Previously: The ClusterQueue is stopped").await;

        bed.stop_local_queue("HoldAndDrain").await;
        bed.local_queue_condition("queue", "False", "Stopped", "LocalQueue is stopped").await;
        for name in ["runs", "waits"] {
            bed.expect(name, "Evicted", "True", "LocalQueueStopped", "The LocalQueue is stopped").await;
            bed.suspended(name, true).await;
            bed.expect(name, "QuotaReserved", "False", "Suspended", "LocalQueue queue is inactive").await;
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
        bed.job("b").cpu("1").run_for(Duration::from_millis(200)).create(bed.admin()).await.unwrap();
        bed.set_active("a", false).await;
        bed.expect("a", "Evicted", "True", "Deactivated", "The workload is deactivated").await;
        bed.suspended("a", true).await;
        job::complete(bed.admin(), &bed.namespace, "b", WAIT).await.unwrap();
        bed.expect("a", "QuotaReserved", "False", "Deactivated", "The workload is deactivated").await;
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
            .label("kueue.x-k8s.io/max-exec-time-seconds", "2")
            .run_forever()
            .create(bed.admin())
            .await
            .unwrap();
        bed.running("a").await;
        let message = "The workload is deactivated due to exceeding the maximum execution time";
        bed.expect("a", "Evicted", "True", "DeactivatedDueToMaximumExecutionTimeExceeded", message).await;
        bed.suspended("a", true).await;
        assert_eq!(bed.workload_of("a").await.spec.active, Some(false));
    });
}

#[test]
fn deleted_jobs_leave_nothing_and_free_their_quota() {
    fixture::run(async {
        let bed = Bed::new("delete").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.job("runs").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("runs").await;
        for name in ["queued", "next"] {
            bed.job(name).cpu("1").run_for(Duration::from_millis(100)).create(bed.admin()).await.unwrap();
            bed.workload_of(name).await;
            bed.next_second().await;
        }
        bed.delete_job("queued").await;
        bed.delete_job("runs").await;
        job::complete(bed.admin(), &bed.namespace, "next", WAIT).await.unwrap();
        bed.delete_job("next").await;
        bed.no_workloads().await;
        bed.queue_status(0, 0, 0).await;
    });
}

#[test]
fn a_job_that_is_changed_while_it_waits_is_counted_anew() {
    fixture::run(async {
        let bed = Bed::new("change").await;
        bed.simple(&[("cpu", "2")]).await;
        bed.job("a")
            .cpu("1")
            .parallelism(3)
            .completions(3)
            .run_for(Duration::from_millis(100))
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect("a", "QuotaReserved", "False", "ExceedsMaxQuota", "").await;
        let requests = bed.workload_of("a").await.status.unwrap().resource_requests;
        assert_eq!(requests[0].resources["cpu"].0, "3");
        bed.patch_job("a", json!({"spec": {"parallelism": 2}})).await;
        job::complete(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
    });
}

#[test]
fn a_job_moves_to_another_queue_while_it_waits() {
    fixture::run(async {
        let bed = Bed::new("move").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.job("a").queue("nosuch").cpu("1").run_for(Duration::from_millis(100)).create(bed.admin()).await.unwrap();
        bed.expect("a", "QuotaReserved", "False", "Misconfigured", "LocalQueue nosuch doesn't exist").await;
        bed.patch_job("a", json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "queue"}}})).await;
        job::complete(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
    });
}

#[test]
fn a_queue_in_use_outlives_its_deletion() {
    fixture::run(async {
        let bed = Bed::new("inuse").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.job("a").cpu("1").run_for(Duration::from_secs(3)).create(bed.admin()).await.unwrap();
        bed.running("a").await;
        bed.delete("ClusterQueue", &bed.name).await;
        bed.delete("ResourceFlavor", &bed.name).await;
        bed.cluster_queue_condition("False", "Terminating", "Can't admit new workloads; clusterQueue is terminating")
            .await;
        bed.job("late").cpu("1").create(bed.admin()).await.unwrap();
        bed.expect("late", "QuotaReserved", "False", "Suspended", &format!("ClusterQueue {} is inactive", bed.name))
            .await;
        job::complete(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
        bed.gone("ClusterQueue", &bed.name).await;
        bed.gone("ResourceFlavor", &bed.name).await;
        bed.expect(
            "late",
            "QuotaReserved",
            "False",
            "Misconfigured",
            &format!("ClusterQueue {} doesn't exist", bed.name),
        )
        .await;
    });
}

#[test]
fn an_admission_check_decides_after_the_quota() {
    fixture::run(async {
        let bed = Bed::new("check").await;
        let check = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": bed.name},
            "spec": {"controllerName": "example.com/check"}
        });
        bed.cluster().apply([check]).await.unwrap();
        bed.apply(
            queues::ClusterQueue::new(&bed.name).group(&bed.name, &[("cpu", "2")]).admission_check(&bed.name).build(),
        )
        .await;
        bed.cluster_queue_condition(
            "False",
            "AdmissionCheckInactive",
            &format!("Can't admit new workloads: references inactive AdmissionCheck(s): {}.", bed.name),
        )
        .await;
        bed.activate_check().await;
        for name in ["ready", "retry", "reject"] {
            bed.job(name).cpu("1").run_for(Duration::from_millis(200)).create(bed.admin()).await.unwrap();
        }
        for (name, state) in [("ready", "Ready"), ("retry", "Retry"), ("reject", "Rejected")] {
            if name != "ready" {
                bed.expect_true(name, "QuotaReserved").await;
            }
            bed.expect("ready", "QuotaReserved", "True", "QuotaReserved", "").await;
            bed.answer_check(name, state).await;
            match name {
                "ready" => drop(job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap()),
                "retry" => {
                    let message =
                        format!("Evicted due to AdmissionCheck in Retry state: \"{}\" (said Retry)", bed.name);
                    bed.expect(name, "Requeued", "True", "BackoffFinished", "The workload backoff was finished").await;
                    bed.expect(name, "Evicted", "False", "QuotaReserved", &format!("Previously: {message}")).await;
                }
                _ => {
                    let message = format!("AdmissionCheck in Rejected state: \"{}\" (said Rejected)", bed.name);
                    let message = format!("The workload is deactivated due to {message}");
                    bed.expect(name, "Evicted", "True", "DeactivatedDueToAdmissionCheck", &message).await;
                }
            }
        }
    });
}

#[test]
fn a_higher_priority_preempts_where_the_queue_lets_it() {
    fixture::run(async {
        let bed = Bed::new("preempt").await;
        let high = format!("{}-high", bed.name);
        bed.cluster().apply([queues::priority_class(&high, 1000)]).await.unwrap();
        let preemption = json!({"withinClusterQueue": "LowerPriority"});
        bed.apply(
            queues::ClusterQueue::new(&bed.name)
                .group(&bed.name, &[("cpu", "1")])
                .field("preemption", preemption)
                .build(),
        )
        .await;
        bed.job("low").cpu("1").run_for(Duration::from_secs(2)).create(bed.admin()).await.unwrap();
        bed.running("low").await;
        bed.job("high")
            .cpu("1")
            .priority_class(&high)
            .run_for(Duration::from_secs(2))
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect("low", "Preempted", "True", "InClusterQueue", "").await;
        bed.expect("low", "Requeued", "True", "Preempted", "").await;
        bed.running("high").await;
        bed.suspended("low", true).await;
        for name in ["high", "low"] {
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
        }
        let preempted = bed.workload_of("high").await.metadata.uid.unwrap();
        let message = format!(
            "Previously: Preempted to accommodate a workload (UID: {preempted}, JobUID: {}) due to prioritization in the ClusterQueue; preemptor path: /{1}; preemptee path: /{1}",
            bed.job_uid("high").await,
            bed.name
        );
        bed.expect("low", "Preempted", "False", "QuotaReserved", &message).await;
    });
}
