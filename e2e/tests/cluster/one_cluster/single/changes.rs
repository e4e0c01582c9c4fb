//! Jobs and queues that are changed or deleted by their owners.

use std::time::Duration;

use serde_json::json;
use switchyard_e2e::{fixture, job};

use crate::bed::{Bed, WAIT};

#[test]
fn deleted_jobs_leave_nothing_and_free_their_quota() {
    fixture::run(async {
        let bed = Bed::new("delete").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.job("runs").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("runs").await;
        for name in ["queued", "next"] {
            bed.job(name)
                .cpu("1")
                .run_for(Duration::from_millis(100))
                .create(bed.admin())
                .await
                .unwrap();
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
        assert_eq!(requests[0].resources.get("cpu").unwrap().0, "3");
        bed.patch_job("a", json!({"spec": {"parallelism": 2}})).await;
        job::complete(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
    });
}

#[test]
fn a_job_moves_to_another_queue_while_it_waits() {
    fixture::run(async {
        let bed = Bed::new("move").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.job("a")
            .queue("nosuch")
            .cpu("1")
            .run_for(Duration::from_millis(100))
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect(
            "a",
            "QuotaReserved",
            "False",
            "Misconfigured",
            "LocalQueue nosuch doesn't exist",
        )
        .await;
        bed.patch_job("a", json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "queue"}}}))
            .await;
        job::complete(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
    });
}

#[test]
fn a_queue_in_use_outlives_its_deletion() {
    fixture::run(async {
        let bed = Bed::new("inuse").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.job("a").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("a").await;
        for kind in ["ClusterQueue", "ResourceFlavor"] {
            bed.kept_in_use(kind, &bed.name).await;
            bed.delete(kind, &bed.name).await;
        }
        bed.cluster_queue_condition(
            "False",
            "Terminating",
            "Can't admit new workloads; clusterQueue is terminating",
        )
        .await;
        bed.job("late").cpu("1").create(bed.admin()).await.unwrap();
        bed.expect(
            "late",
            "QuotaReserved",
            "False",
            "Suspended",
            &format!("ClusterQueue {} is inactive", bed.name),
        )
        .await;
        bed.delete_job("a").await;
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
