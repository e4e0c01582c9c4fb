//! `waitForPodsReady.blockAdmission`: one workload is admitted at a time, once the pods of all admitted ones are ready.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod bed;

use std::time::Duration;

use bed::{Bed, WAIT};
use switchyard_e2e::{fixture, job};

#[test]
fn the_next_is_admitted_when_the_pods_of_all_are_ready() {
    fixture::run(async {
        let bed = Bed::configured("block", "waitForPodsReady: {blockAdmission: true}").await;
        bed.set_up([bed.member("q", "4").build()], &["q"]).await;
        let slow = |name| bed.job_in("q", name).pod_annotation(job::START_AFTER, "3s");
        slow("first").create(bed.admin()).await.unwrap();
        bed.expect_true("first", "QuotaReserved").await;
        bed.job_in("q", "second").create(bed.admin()).await.unwrap();
        bed.job_in("q", "third").run_for(Duration::from_millis(100)).create(bed.admin()).await.unwrap();
        bed.expect_true("first", "PodsReady").await;
        for name in ["second", "third"] {
            bed.expect_true(name, "QuotaReserved").await;
        }
        let ready = bed.time("first", "PodsReady").await;
        for name in ["second", "third"] {
            let reserved = bed.time(name, "QuotaReserved").await;
            assert!(reserved >= ready, "{name} got quota at {reserved}, the first was ready at {ready}");
        }
        job::complete(bed.admin(), &bed.namespace, "third", WAIT).await.unwrap();

        // One whose pods never start keeps the others out, and they say so.
        bed.job_in("q", "stuck").pod_annotation(job::START_AFTER, "1h").create(bed.admin()).await.unwrap();
        bed.expect_true("stuck", "Admitted").await;
        bed.job_in("q", "waits").create(bed.admin()).await.unwrap();
        let message = "waiting for all admitted workloads to be in PodsReady condition";
        bed.expect("waits", "QuotaReserved", "False", "WaitingForPodsReady", message).await;
        bed.delete_job("stuck").await;
        bed.expect_true("waits", "Admitted").await;
    });
}
