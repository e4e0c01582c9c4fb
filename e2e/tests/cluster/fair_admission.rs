//! Admission fair sharing on a real cluster: two LocalQueues of one ClusterQueue take turns by what they used, and what
//! they used outlives the controller.

use crate::bed::{Bed, WAIT, configured_controller};
use anyhow::{Context as _, ensure};
use kube::Api;
use serde_json::json;
use switchyard_api::{quantity, v1beta2::LocalQueue};
use switchyard_config as config;
use switchyard_controller::Handle;
use switchyard_e2e::{ClusterSpec, Environment, NodeSpec, fixture, queues, wait};

/// Half of what a job asks for is its penalty; nothing decays much while a test runs.
const SECTIONS: &str = "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1h}";

async fn controller(bed: &Bed, identity: &str) -> Handle {
    let file =
        format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{SECTIONS}\n");
    configured_controller(bed.cluster(), identity, config::load(&file).unwrap()).await
}

async fn stop(handle: Handle) {
    handle.shutdown();
    handle.ended().await.unwrap();
}

/// The past usage in the status of a LocalQueue, in nanocores, once `enough` holds.
async fn used(bed: &Bed, queue: &str, what: &str, enough: impl Fn(i128) -> bool) -> i128 {
    let api: Api<LocalQueue> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let look = async || {
        let status = api.get(queue).await?.status.context("no status")?;
        let sharing = status.fair_sharing.and_then(|sharing| sharing.admission_fair_sharing_status);
        let sharing = sharing.context("no past use")?;
        let cores =
            sharing.consumed_resources.get("cpu").map_or("0", |quantity| quantity.0.as_str());
        let nanos = quantity::parse(cores)?.nanos();
        ensure!(enough(nanos), "{nanos} nanocores");
        Ok(nanos)
    };
    wait::eventually(WAIT, format!("past use of {queue} to be {what}"), look).await.unwrap()
}

#[test]
fn two_local_queues_take_turns_by_what_they_used() {
    fixture::run(async {
        let environment = Environment::builder("sharing")
            .cluster(ClusterSpec::new("one").node(NodeSpec::new("node").cpu(8)))
            .start()
            .await
            .unwrap();
        let environment: &'static Environment = Box::leak(Box::new(environment));
        environment.cluster("one").install().await.unwrap();
        let bed = Bed::on(environment, "turns").await;
        let handle = controller(&bed, "first").await;
        let scope = json!({"admissionMode": "UsageBasedAdmissionFairSharing"});
        let queue = queues::ClusterQueue::new(&bed.name).group(&bed.name, &[("cpu", "1")]);
        bed.apply(queue.field("admissionScope", scope).build()).await;
        let light = queues::local_queue(&bed.namespace, "light", &bed.name);
        let high = format!("{}-high", bed.name);
        bed.cluster().apply([light, queues::priority_class(&high, 100)]).await.unwrap();

        // `queue` uses all there is, and is charged for it at once: half of a core.
        bed.job("first").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.expect_true("first", "Admitted").await;
        let heavy = used(&bed, "queue", "half a core", |nanos| nanos >= 500_000_000).await;
        assert!(heavy < 1_000_000_000, "{heavy}");

        // Its next job is older and more important; the other queue's goes first nevertheless.
        bed.job("mine")
            .priority_class(&high)
            .cpu("1")
            .run_forever()
            .create(bed.admin())
            .await
            .unwrap();
        bed.workload_of("mine").await;
        bed.next_second().await;
        bed.job("theirs").queue("light").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.expect("theirs", "QuotaReserved", "False", "WaitingForQuota", "").await;
        bed.delete_job("first").await;
        bed.expect_true("theirs", "Admitted").await;
        assert!(!bed.is_true("mine", "Admitted").await);
        used(&bed, "light", "half a core", |nanos| nanos >= 500_000_000).await;

        // Another controller takes the figures over: `queue` used a little more, as it ran for longer. A third queue is
        // new and goes before both.
        stop(handle).await;
        let handle = controller(&bed, "second").await;
        let third = queues::local_queue(&bed.namespace, "third", &bed.name);
        bed.cluster().apply([third]).await.unwrap();
        bed.local_queue_condition(
            "third",
            "True",
            "Ready",
            "Can submit new workloads to localQueue",
        )
        .await;
        bed.job("new").queue("third").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.expect("new", "QuotaReserved", "False", "WaitingForQuota", "").await;
        bed.delete_job("theirs").await;
        bed.expect_true("new", "Admitted").await;
        assert!(!bed.is_true("mine", "Admitted").await);
        let after = used(&bed, "queue", "still half a core", |nanos| nanos >= 400_000_000).await;
        assert!(after < 1_000_000_000, "{after}");
        bed.delete_job("new").await;
        bed.expect_true("mine", "Admitted").await;
        stop(handle).await;
    });
}
