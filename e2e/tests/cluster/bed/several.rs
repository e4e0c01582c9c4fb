//! Several ClusterQueues in one test, each with a LocalQueue of the same short name in the test's namespace.

use anyhow::ensure;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use switchyard_api::names;
use switchyard_api::v1beta2::{ClusterQueue, ClusterQueueStatus, Cohort, FlavorUsage, Workload};
use switchyard_e2e::{JobBuilder, queues, wait};

use super::{Bed, WAIT};
use crate::common::events;

impl Bed {
    /// The name of one of this test's cluster-wide objects.
    pub(crate) fn part(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// A ClusterQueue in cohort `all` of this test, with its quota on the test's flavor.
    pub(crate) fn member(&self, name: &str, cpus: &str) -> queues::ClusterQueue {
        let queue = queues::ClusterQueue::new(&self.part(name)).group(&self.name, &[("cpu", cpus)]);
        queue.cohort(&self.part("all"))
    }

    /// The test's flavor, these objects, and a LocalQueue for each of these ClusterQueues. Returns when the controller
    /// knows them all.
    pub(crate) async fn set_up(&self, objects: impl IntoIterator<Item = Value>, doors: &[&str]) {
        let flavor = queues::ResourceFlavor::new(&self.name).build();
        let doors_objects =
            doors.iter().map(|name| queues::local_queue(&self.namespace, name, &self.part(name)));
        self.cluster()
            .apply([flavor].into_iter().chain(objects).chain(doors_objects))
            .await
            .unwrap();
        for name in doors {
            self.local_queue_condition(
                name,
                "True",
                "Ready",
                "Can submit new workloads to localQueue",
            )
            .await;
        }
    }

    /// A suspended job of one CPU in one of the queues, which runs until it is deleted.
    pub(crate) fn job_in(&self, queue: &str, name: &str) -> JobBuilder {
        JobBuilder::new(&self.namespace, name).queue(queue).cpu("1").suspended().run_forever()
    }

    /// Creates `count` jobs of one CPU, `QUEUE-0` and so on, and waits for their workloads. Workloads created in the same second are
    /// ordered by their uid.
    pub(crate) async fn fill(&self, queue: &str, count: usize) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|number| format!("{queue}-{number}")).collect();
        for name in &names {
            self.job_in(queue, name).create(self.admin()).await.unwrap();
        }
        for name in &names {
            self.workload_of(name).await;
        }
        names
    }

    /// Waits until exactly so many of these jobs are admitted, and gives their names.
    pub(crate) async fn admitted(&self, jobs: &[String], count: usize) -> Vec<String> {
        let check = async || {
            let admitted = self.admitted_now(jobs).await;
            ensure!(admitted.len() == count, "admitted are {admitted:?}");
            Ok(admitted)
        };
        wait::eventually(WAIT, format!("{count} of {jobs:?} to be admitted"), check).await.unwrap()
    }

    /// The jobs that are admitted now and keep their quota.
    pub(crate) async fn admitted_now(&self, jobs: &[String]) -> Vec<String> {
        let holds =
            |workload: &Workload, type_| switchyard_controller::workload::holds(workload, type_);
        let workloads = self.workloads().await;
        let admitted = workloads
            .iter()
            .filter(|workload| holds(workload, "Admitted") && !holds(workload, "Evicted"));
        let owners =
            admitted.flat_map(|workload| workload.metadata.owner_references.iter().flatten());
        let owners: Vec<&str> = owners.map(|owner| owner.name.as_str()).collect();
        jobs.iter().filter(|job| owners.contains(&job.as_str())).cloned().collect()
    }

    /// The status of one of this test's ClusterQueues.
    pub(crate) async fn status_of(&self, name: &str) -> ClusterQueueStatus {
        let api: Api<ClusterQueue> = Api::all(self.admin().clone());
        api.get(&self.part(name)).await.unwrap().status.unwrap_or_default()
    }

    /// Waits until a ClusterQueue shows this: CPU reserved and borrowed, CPU used by admitted workloads, counts of
    /// pending, reserving and admitted ones.
    pub(crate) async fn shows(&self, name: &str, expected: Shown) {
        let check = async || {
            let shown = Shown::of(&self.status_of(name).await);
            ensure!(shown == expected, "{shown:?}");
            Ok(())
        };
        wait::eventually(WAIT, format!("ClusterQueue {name} to show {expected:?}"), check)
            .await
            .unwrap();
    }

    /// Waits for the `Active` condition of one of this test's ClusterQueues.
    pub(crate) async fn active_of(&self, name: &str, status: &str, reason: &str, message: &str) {
        let check =
            async || super::active(&self.status_of(name).await.conditions, status, reason, message);
        wait::eventually(WAIT, format!("ClusterQueue {name} Active={status} {reason}"), check)
            .await
            .unwrap();
    }

    /// The finalizers of a cluster-wide object.
    pub(crate) async fn finalizers(&self, kind: &str, name: &str) -> Vec<String> {
        let object = self.cluster_api(kind).await.get(name).await.unwrap();
        object.metadata.finalizers.unwrap_or_default()
    }

    /// Waits until a cluster-wide object has the finalizer that keeps it while it is in use.
    pub(crate) async fn kept_in_use(&self, kind: &str, name: &str) {
        let check = async || {
            let finalizers = self.finalizers(kind, name).await;
            ensure!(finalizers.iter().any(|it| it == names::RESOURCE_IN_USE), "{finalizers:?}");
            Ok(())
        };
        wait::eventually(WAIT, format!("the finalizer of {kind} {name}"), check).await.unwrap();
    }

    /// Changes a Cohort of this test.
    pub(crate) async fn patch_cohort(&self, name: &str, spec: Value) {
        let api: Api<Cohort> = Api::all(self.admin().clone());
        let patch = serde_json::json!({"spec": spec});
        api.patch(&self.part(name), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The reasons and notes of the events about an object, of whatever kind, sorted.
    pub(crate) async fn events(&self, object: &str) -> Vec<(String, String)> {
        let all = events::about(self.admin(), object).await.unwrap();
        let told =
            |event: Event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default());
        let mut told: Vec<_> = all.into_iter().map(told).collect();
        told.sort();
        told
    }

    /// Waits for an event about an object whose note contains this.
    pub(crate) async fn event(&self, object: &str, reason: &str, note: &str) {
        events::told(self.admin(), object, reason, note).await;
    }
}

/// The CPU of a ClusterQueue's one flavor, and its counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) reserved: String,
    pub(crate) borrowed: String,
    pub(crate) used: String,
    pub(crate) pending: i32,
    pub(crate) reserving: i32,
    pub(crate) admitted: i32,
}

impl Shown {
    /// So much CPU reserved and used by as many admitted workloads of one CPU, so much of it borrowed, and so many that
    /// wait.
    pub(crate) fn cpus(count: i32, borrowed: i32, pending: i32) -> Self {
        let (reserved, used, borrowed) =
            (count.to_string(), count.to_string(), borrowed.to_string());
        Self { reserved, borrowed, used, pending, reserving: count, admitted: count }
    }

    fn of(status: &ClusterQueueStatus) -> Self {
        let first = |usage: &[FlavorUsage]| {
            let resource = usage.first().and_then(|flavor| flavor.resources.first());
            resource
                .map(|resource| (resource.total.0.clone(), resource.borrowed.0.clone()))
                .unwrap_or_default()
        };
        let (reserved, borrowed) = first(&status.flavors_reservation);
        Self {
            reserved,
            borrowed,
            used: first(&status.flavors_usage).0,
            pending: status.pending_workloads,
            reserving: status.reserving_workloads,
            admitted: status.admitted_workloads,
        }
    }
}
