//! Jobs without quota, their reasons, and jobs that need none.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use switchyard_e2e::{JobBuilder, fixture, job, queues};

use crate::bed::{Bed, WAIT};

#[test]
fn plain_job_without_webhook_is_suspended_by_reconciler() {
    fixture::run(async {
        let bed = Bed::new("plain").await;
        bed.simple(&[("cpu", "1")]).await;
        bed.plain_job("a").cpu("2").run_forever().create(bed.admin()).await.unwrap();
        bed.suspended("a", true).await;
        bed.plain_job("b")
            .cpu("1")
            .run_for(Duration::from_millis(200))
            .create(bed.admin())
            .await
            .unwrap();
        job::complete(bed.admin(), &bed.namespace, "b", WAIT).await.unwrap();
    });
}

#[test]
fn a_job_without_a_queue_is_none_of_ours() {
    fixture::run(async {
        let bed = Bed::new("foreign").await;
        bed.simple(&[("cpu", "1")]).await;
        let foreign =
            JobBuilder::new(&bed.namespace, "a").cpu("4").run_for(Duration::from_millis(200));
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
        let message =
            "couldn't assign flavors to pod set main: resource memory unavailable in ClusterQueue";
        bed.expect("odd", "QuotaReserved", "False", "NoMatchingFlavor", message).await;
    });
}

/// The request of a workload is written to its status, where it has to be a valid quantity.
#[test]
fn huge_quantities_wait_and_negative_ones_are_refused() {
    fixture::run(async {
        let bed = Bed::new("absurd").await;
        bed.simple(&[("cpu", "2")]).await;
        bed.job("huge").cpu("9e30").create(bed.admin()).await.unwrap();
        let many =
            bed.job("many").cpu("9223372036854775807").parallelism(100_000).completions(100_000);
        many.create(bed.admin()).await.unwrap();
        let message = format!(
            "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor {}, previously considered podsets requests (0) + current podset request (9223372036854775807m) > maximum capacity (2)",
            bed.name
        );
        for name in ["huge", "many"] {
            bed.expect(name, "QuotaReserved", "False", "ExceedsMaxQuota", &message).await;
        }
        let error = bed.job("less").cpu("-1").create(bed.admin()).await.unwrap_err();
        assert!(format!("{error:#}").contains("must be greater than or equal to 0"), "{error:#}");

        // A quota beyond all numbers has room for one such job; what is used of it is written as a quantity, too.
        let jobs: Api<Job> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        jobs.delete("many", &DeleteParams::background()).await.unwrap();
        bed.simple(&[("cpu", "9e30")]).await;
        bed.expect_true("huge", "Admitted").await;
    });
}

#[test]
fn queues_that_are_missing_or_closed_are_named() {
    fixture::run(async {
        let bed = Bed::new("missing").await;
        bed.job("nowhere").queue("nosuch").cpu("1").create(bed.admin()).await.unwrap();
        bed.expect(
            "nowhere",
            "QuotaReserved",
            "False",
            "Misconfigured",
            "LocalQueue nosuch doesn't exist",
        )
        .await;
        bed.cluster()
            .apply([queues::local_queue(&bed.namespace, "queue", "nosuch")])
            .await
            .unwrap();
        bed.job("dangling")
            .cpu("1")
            .run_for(Duration::from_millis(100))
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect(
            "dangling",
            "QuotaReserved",
            "False",
            "Misconfigured",
            "ClusterQueue nosuch doesn't exist",
        )
        .await;
        bed.local_queue_condition(
            "queue",
            "False",
            "ClusterQueueDoesNotExist",
            "Can't submit new workloads to clusterQueue",
        )
        .await;

        // The queue that was missing comes.
        bed.cluster()
            .apply([queues::local_queue(&bed.namespace, "nosuch", &bed.name)])
            .await
            .unwrap();
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
        bed.local_queue_condition(
            "nosuch",
            "True",
            "Ready",
            "Can submit new workloads to localQueue",
        )
        .await;
        bed.expect_true("nowhere", "Admitted").await;
    });
}

#[test]
fn job_of_excluded_namespace_waits_until_selected() {
    fixture::run(async {
        let bed = Bed::new("selector").await;
        let selector = json!({"matchLabels": {"team": bed.name}});
        let queue = queues::ClusterQueue::new(&bed.name)
            .group(&bed.name, &[("cpu", "1")])
            .field("namespaceSelector", selector);
        bed.apply(queue.build()).await;
        bed.job("a")
            .cpu("1")
            .run_for(Duration::from_millis(100))
            .create(bed.admin())
            .await
            .unwrap();
        let message = "workload namespace doesn't match ClusterQueue selector";
        bed.expect("a", "QuotaReserved", "False", "Misconfigured", message).await;
        bed.label_namespace("team", &bed.name).await;
        job::complete(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
    });
}
