//! The order of admission, and the chosen flavor.

use std::time::Duration;

use serde_json::json;
use switchyard_e2e::{fixture, job, queues, wait};

use crate::bed::{Bed, WAIT};

#[test]
fn jobs_run_in_order_as_quota_allows() {
    fixture::run(async {
        let bed = Bed::new("order").await;
        bed.simple(&[("cpu", "2")]).await;
        // Two fit; the third gets the missing quota as its reason, in Kueue's words.
        let message = format!(
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor {}, 1 more needed",
            bed.name
        );
        for name in ["a", "b"] {
            bed.job(name).cpu("1").run_forever().create(bed.admin()).await.unwrap();
            bed.expect_true(name, "Admitted").await;
            bed.next_second().await;
        }
        for name in ["c", "d"] {
            bed.job(name)
                .cpu("1")
                .run_for(Duration::from_secs(1))
                .create(bed.admin())
                .await
                .unwrap();
            bed.workload_of(name).await;
            if name == "c" {
                // While the first two run.
                let none = "The workload has no reservation";
                bed.expect("c", "QuotaReserved", "False", "WaitingForQuota", &message).await;
                bed.expect("c", "Admitted", "False", "NoReservation", none).await;
            }
            bed.next_second().await;
        }
        bed.expect(
            "a",
            "QuotaReserved",
            "True",
            "QuotaReserved",
            &format!("Quota reserved in ClusterQueue {}", bed.name),
        )
        .await;
        bed.expect("a", "Admitted", "True", "Admitted", "The workload is admitted").await;
        bed.pods_succeed("a").await;
        bed.expect_true("c", "Admitted").await;
        bed.pods_succeed("b").await;
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
            bed.job(name).cpu("1").run_forever().create(bed.admin()).await.unwrap();
            bed.expect_true(name, "Admitted").await;
        }
        let (first, second) = (bed.running("first").await, bed.running("second").await);
        let pod = |job: &k8s_openapi::api::batch::v1::Job| {
            job.spec.clone().unwrap().template.spec.unwrap()
        };
        assert_eq!(pod(&first).node_selector.unwrap()["pool"], "spot");
        assert_eq!(pod(&first).tolerations.unwrap()[0].key.as_deref(), Some("spot"));
        assert_eq!(pod(&second).node_selector.unwrap()["pool"], "gpu");
        let taken = bed.workload_of("second").await.status.unwrap().admission.unwrap();
        assert_eq!(taken.pod_set_assignments[0].flavors.get("cpu"), Some(&gpu));
        // A job that asks for a pool gets its flavor, though another is first.
        bed.job("picky")
            .cpu("1")
            .node_selector("pool", "gpu")
            .run_for(Duration::from_millis(100))
            .create(bed.admin())
            .await
            .unwrap();
        job::complete(bed.admin(), &bed.namespace, "picky", WAIT).await.unwrap();
        for name in ["first", "second"] {
            bed.pods_succeed(name).await;
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
        }
    });
}

#[test]
fn strict_fifo_waits_where_best_effort_goes_on() {
    fixture::run(async {
        let (strict, effort) = (Bed::new("strict").await, Bed::new("effort").await);
        strict
            .apply(
                queues::ClusterQueue::new(&strict.name)
                    .group(&strict.name, &[("cpu", "2")])
                    .strict_fifo()
                    .build(),
            )
            .await;
        effort.simple(&[("cpu", "2")]).await;
        for bed in [&strict, &effort] {
            bed.job("holder").cpu("1").run_forever().create(bed.admin()).await.unwrap();
            bed.expect_true("holder", "Admitted").await;
            bed.job("big")
                .cpu("2")
                .run_for(Duration::from_millis(100))
                .create(bed.admin())
                .await
                .unwrap();
            bed.expect("big", "QuotaReserved", "False", "WaitingForQuota", "").await;
            bed.next_second().await;
            bed.job("small")
                .cpu("1")
                .run_for(Duration::from_millis(100))
                .create(bed.admin())
                .await
                .unwrap();
        }
        job::complete(effort.admin(), &effort.namespace, "small", WAIT).await.unwrap();
        wait::always(
            Duration::from_secs(1),
            "the small job waits behind the big one",
            async || {
                anyhow::ensure!(!strict.is_true("small", "QuotaReserved").await);
                Ok(())
            },
        )
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
        bed.job("high")
            .cpu("1")
            .priority_class(&high)
            .run_for(Duration::from_secs(1))
            .create(bed.admin())
            .await
            .unwrap();
        // Both are queued before the quota is free.
        bed.queue_status(2, 1, 1).await;
        bed.delete_job("holder").await;
        for name in ["high", "low"] {
            job::complete(bed.admin(), &bed.namespace, name, WAIT).await.unwrap();
        }
        assert!(bed.time("high", "Admitted").await < bed.time("low", "Admitted").await);
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
        bed.job("low").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("low").await;
        bed.job("high")
            .cpu("1")
            .priority_class(&high)
            .run_forever()
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect("low", "Preempted", "True", "InClusterQueue", "").await;
        bed.expect("low", "Requeued", "True", "Preempted", "").await;
        bed.running("high").await;
        bed.suspended("low", true).await;
        for name in ["high", "low"] {
            bed.pods_succeed(name).await;
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
