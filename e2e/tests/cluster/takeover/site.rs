//! A cluster in full use: ClusterQueues that borrow in a tree of cohorts, jobs that run, and jobs that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::conditions::{ACTIVE, ADMITTED, FINISHED, PODS_READY, QUOTA_RESERVED, is_true};
use switchyard_api::names::QUEUE_NAME;
use switchyard_api::v1beta2::{ClusterQueue, LocalQueue, Workload};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, JobBuilder, job, queues};

use super::figures::{expected, shown};

/// Longer than anything here takes on a busy machine.
pub(crate) const WAIT: Duration = Duration::from_secs(120);
/// The ClusterQueues whose cohorts are full: each has jobs that run and jobs that wait.
pub(crate) const FULL: [&str; 4] = ["a", "b", "c", "d"];
/// The queues with strict order. In the other a job may be overtaken at the moment when quota becomes free.
pub(crate) const STRICT: [&str; 3] = ["a", "b", "d"];
/// How many jobs run in each of [`FULL`], one CPU each, and use all that their cohorts have.
const RUNNING: [usize; 4] = [13, 12, 12, 13];
/// How many jobs wait in each of [`FULL`].
const WAITING: usize = 25;
/// The LocalQueue that is stopped.
const HELD: &str = "held";
/// How many requests are in flight.
const AT_ONCE: usize = 8;

/// The queues and jobs of one namespace.
pub(crate) struct Site<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) namespace: String,
}

impl<'a> Site<'a> {
    /// Makes the queues, then the jobs that run, then those that wait and those that are beside the point.
    pub(crate) async fn make(cluster: &'a Cluster) -> anyhow::Result<Self> {
        let site = Self { namespace: cluster.namespace("team").await?, cluster };
        cluster.apply(site.queues()).await?;
        let running = FULL.iter().zip(RUNNING).flat_map(|(queue, count)| {
            (0..count).map(move |number| (format!("run-{queue}-{number}"), (*queue).to_owned()))
        });
        let running: Vec<_> = running.collect();
        site.create(
            running.iter().map(|(name, queue)| site.job(name, queue).priority_class("high")),
        )
        .await?;
        site.create([
            site.job("partial", "alone")
                .parallelism(5)
                .annotation("kueue.x-k8s.io/job-min-parallelism", "2"),
            site.job("ended", "roomy").run_for(Duration::from_millis(1)),
        ])
        .await?;
        site.await_running(running.len() + 1).await?;
        job::complete(&cluster.admin, &site.namespace, "ended", WAIT).await?;
        // In each queue jobs of three priorities, those of the highest last.
        let waiting =
            FULL.iter().flat_map(|queue| (0..WAITING).map(move |number| (*queue, number)));
        site.create(waiting.map(|(queue, number)| {
            let job = site.job(&format!("wait-{queue}-{number}"), queue);
            match number % 3 {
                0 => job,
                1 => job.priority_class("low"),
                _ => job.priority_class("high"),
            }
        }))
        .await?;
        let held = (0..3).map(|number| site.job(&format!("held-{number}"), HELD));
        let foreign = JobBuilder::new(&site.namespace, "foreign").suspended();
        site.create(held.chain([foreign, site.job("off", "roomy")])).await?;
        site.set_active("off", false).await?;
        site.known().await?;
        site.settled().await?;
        site.active(true).await?;
        Ok(site)
    }

    fn queues(&self) -> Vec<Value> {
        let queue = |name: &str, flavors: &[(&str, &str, Value)], rest: Value| {
            let mut spec = json!({"namespaceSelector": {}, "resourceGroups": group(flavors)});
            extend(&mut spec, rest);
            object("ClusterQueue", name, &spec)
        };
        let strict = |cohort: &str| json!({"cohortName": cohort, "queueingStrategy": "StrictFIFO"});
        let spot = queues::ResourceFlavor::new("spot")
            .node_label("pool", "spot")
            .node_taint("spot", "true");
        let right =
            json!({"parentName": "org", "resourceGroups": group(&[("reserved", "5", json!({}))])});
        let mut objects = vec![
            queues::ResourceFlavor::new("reserved").node_label("pool", "reserved").build(),
            spot.toleration("spot", "true").build(),
            queues::priority_class("low", 10),
            queues::priority_class("high", 100),
            object("Cohort", "org", &json!({})),
            object("Cohort", "left", &json!({"parentName": "org"})),
            object("Cohort", "right", &right),
            queue("a", &[("reserved", "8", json!({}))], strict("left")),
            queue("b", &[("reserved", "17", json!({"lendingLimit": "5"}))], strict("left")),
            queue(
                "c",
                &[("reserved", "6", json!({})), ("spot", "4", json!({}))],
                json!({
                    "cohortName": "right",
                    "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"},
                }),
            ),
            queue("d", &[("reserved", "10", json!({"borrowingLimit": "5"}))], strict("right")),
            queue(
                "roomy",
                &[("reserved", "20", json!({"lendingLimit": "0"}))],
                json!({"cohortName": "left"}),
            ),
            queue("alone", &[("reserved", "3", json!({}))], json!({})),
        ];
        for name in FULL.iter().chain(&["roomy", "alone"]) {
            objects.push(queues::local_queue(&self.namespace, name, name));
        }
        let mut held = queues::local_queue(&self.namespace, HELD, "roomy");
        held["spec"]["stopPolicy"] = "Hold".into();
        objects.push(held);
        objects
    }

    /// A job of one pod that runs until [`Site::finish`] ends it.
    pub(crate) fn job(&self, name: &str, queue: &str) -> JobBuilder {
        JobBuilder::new(&self.namespace, name)
            .queue(queue)
            .cpu("1")
            .request("memory", "1Gi")
            .run_forever()
    }

    /// Creates jobs, a few at a time.
    pub(crate) async fn create(
        &self,
        jobs: impl IntoIterator<Item = JobBuilder>,
    ) -> anyhow::Result<()> {
        let created =
            stream::iter(jobs).map(|job| job.create(&self.cluster.admin)).buffered(AT_ONCE);
        created.try_for_each(async |_| Ok(())).await
    }

    pub(crate) async fn workloads(&self) -> anyhow::Result<Vec<Workload>> {
        let api: Api<Workload> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// The workload of a job.
    pub(crate) async fn workload(&self, job: &str) -> anyhow::Result<Workload> {
        let workloads = self.workloads().await?;
        workloads.into_iter().find(|workload| job_of(workload) == job).context("no workload")
    }

    /// Waits until every job with a queue has a Workload.
    async fn known(&self) -> anyhow::Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        eventually(WAIT, "the Workloads of all jobs", async || {
            let workloads = self.workloads().await?;
            for job in jobs.list(&ListParams::default()).await? {
                let (name, queued) = (job.name_any(), job.labels().contains_key(QUEUE_NAME));
                let known = workloads.iter().any(|workload| job_of(workload) == name);
                ensure!(known || !queued, "{name} has none");
            }
            Ok(())
        })
        .await
    }

    async fn await_running(&self, count: usize) -> anyhow::Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        eventually(WAIT, format!("{count} jobs to run"), async || {
            let jobs = jobs.list(&ListParams::default()).await?.items;
            let ready = jobs
                .iter()
                .filter(|job| job.status.as_ref().is_some_and(|status| status.ready > Some(0)));
            let ready = ready.count();
            ensure!(ready == count, "{ready} do");
            Ok(())
        })
        .await
    }

    /// Waits until one job runs.
    pub(crate) async fn runs(&self, name: &str) -> anyhow::Result<()> {
        job::ready(&self.cluster.admin, &self.namespace, name, WAIT).await
    }

    /// Waits until the workload of a job waits for quota.
    pub(crate) async fn waits(&self, name: &str) -> anyhow::Result<()> {
        eventually(WAIT, format!("job {name} to wait"), async || {
            ensure!(is_waiting(&self.workload(name).await?), "it does not");
            Ok(())
        })
        .await
    }

    /// Waits until all is settled: jobs with quota run and their workloads show it, others are without pods, and ended ones
    /// are finished.
    pub(crate) async fn steady(&self) -> anyhow::Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let pods: Api<Pod> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        eventually(WAIT, "nothing to be on its way", async || {
            let workloads = self.workloads().await?;
            for job in jobs.list(&ListParams::default()).await?.items {
                let (name, status) = (job.name_any(), job.status.clone().unwrap_or_default());
                if job::has_condition(&job, "Complete") {
                    continue;
                }
                if job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true) {
                    ensure!(
                        job::has_condition(&job, "Suspended") && status.active.unwrap_or(0) == 0,
                        "{name}: {status:?}"
                    );
                    continue;
                }
                ensure!(
                    status.active > Some(0) && status.ready == status.active,
                    "{name}: {status:?}"
                );
                let told = workloads
                    .iter()
                    .any(|workload| job_of(workload) == name && has(workload, PODS_READY));
                ensure!(told, "the workload of {name} does not know that its pods are ready");
            }
            for pod in pods.list(&ListParams::default()).await?.items {
                let ended = pod
                    .status
                    .as_ref()
                    .is_some_and(|status| status.phase.as_deref() == Some("Succeeded"));
                let deleted = pod.metadata.deletion_timestamp.is_some();
                let at_rest = !deleted && (!ended || pod.metadata.finalizers.is_none());
                ensure!(at_rest, "pod {} is not done with", pod.name_any());
            }
            Ok(())
        })
        .await
    }

    /// Deletes a job, and waits until its workload and its pods are gone.
    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let pods: Api<Pod> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        jobs.delete(name, &DeleteParams::background()).await?;
        eventually(WAIT, format!("what is left of {name} to be gone"), async || {
            ensure!(
                self.workloads().await?.iter().all(|workload| job_of(workload) != name),
                "its workload is there"
            );
            let labels = job::pods_of(name);
            ensure!(pods.list(&labels).await?.items.is_empty(), "a pod is there");
            Ok(())
        })
        .await
    }

    /// Lets the pods of these jobs succeed, and waits until the jobs' workloads are finished.
    pub(crate) async fn finish(&self, names: &BTreeSet<String>) -> anyhow::Result<()> {
        for name in names {
            self.runs(name).await?;
            job::pods_succeed(&self.cluster.admin, &self.namespace, name).await?;
        }
        eventually(WAIT, format!("the workloads of {names:?} to be finished"), async || {
            for workload in self.workloads().await? {
                if names.contains(job_of(&workload)) {
                    ensure!(has(&workload, FINISHED), "{} is not", workload.name_any());
                }
            }
            Ok(())
        })
        .await
    }

    /// Sets `spec.active` of the workload of a job, once it has one.
    pub(crate) async fn set_active(&self, job: &str, active: bool) -> anyhow::Result<()> {
        let api: Api<Workload> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let patch = Patch::Merge(json!({"spec": {"active": active}}));
        eventually(WAIT, format!("the workload of {job}"), async || {
            api.patch(&self.workload(job).await?.name_any(), &PatchParams::default(), &patch)
                .await?;
            Ok(())
        })
        .await
    }

    /// Sets `spec.stopPolicy` of every ClusterQueue.
    pub(crate) async fn stop_policy(&self, policy: &str) -> anyhow::Result<()> {
        let api: Api<ClusterQueue> = Api::all(self.cluster.admin.clone());
        let patch = Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
        for queue in api.list_metadata(&ListParams::default()).await? {
            api.patch(&queue.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    /// Waits until every ClusterQueue and LocalQueue says whether it is active. [`HELD`] never is.
    pub(crate) async fn active(&self, active: bool) -> anyhow::Result<()> {
        let clusters: Api<ClusterQueue> = Api::all(self.cluster.admin.clone());
        let locals: Api<LocalQueue> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        eventually(WAIT, format!("the queues to say Active={active}"), async || {
            for queue in clusters.list(&ListParams::default()).await? {
                let name = queue.name_any();
                let conditions = queue.status.unwrap_or_default().conditions;
                ensure!(is_true(&conditions, ACTIVE) == active, "{name}: {conditions:?}");
            }
            for queue in locals.list(&ListParams::default()).await? {
                let name = queue.name_any();
                let conditions = queue.status.unwrap_or_default().conditions;
                let expected = active && name != HELD;
                ensure!(
                    is_true(&conditions, ACTIVE) == expected,
                    "LocalQueue {name}: {conditions:?}"
                );
            }
            Ok(())
        })
        .await
    }

    /// The jobs of each ClusterQueue that hold quota.
    pub(crate) async fn holders(&self) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
        let mut holders = BTreeMap::<_, BTreeSet<String>>::new();
        for workload in self.workloads().await? {
            let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
            if let Some(admission) =
                admission.filter(|_| has(&workload, ADMITTED) && !has(&workload, FINISHED))
            {
                holders
                    .entry(admission.cluster_queue.clone())
                    .or_default()
                    .insert(job_of(&workload).to_owned());
            }
        }
        Ok(holders)
    }

    /// The jobs that wait in each of [`FULL`], in the order in which they are to be admitted: by priority, then by age.
    pub(crate) async fn order(&self) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut waiting = self.workloads().await?;
        waiting.retain(|workload| is_waiting(workload) && FULL.contains(&queue_of(workload)));
        waiting.sort_by_key(|workload| {
            let metadata = &workload.metadata;
            let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
            (-workload.spec.priority.unwrap_or(0), created, metadata.uid.clone())
        });
        let mut order = BTreeMap::<String, Vec<String>>::new();
        for workload in waiting {
            order
                .entry(queue_of(&workload).to_owned())
                .or_default()
                .push(job_of(&workload).to_owned());
        }
        Ok(order)
    }

    /// Waits until the status of every queue says what its workloads say: how many wait, how many hold quota, and how much
    /// of it.
    pub(crate) async fn settled(&self) -> anyhow::Result<()> {
        let clusters: Api<ClusterQueue> = Api::all(self.cluster.admin.clone());
        let locals: Api<LocalQueue> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        eventually(WAIT, "the status of the queues to agree with their workloads", async || {
            let workloads = self.workloads().await?;
            for queue in clusters.list(&ListParams::default()).await? {
                let (name, shown) = (queue.name_any(), shown(&serde_json::to_value(queue.status)?));
                let expected = expected(&workloads, &name, &name);
                ensure!(shown == expected, "ClusterQueue {name} says {shown:?}, not {expected:?}");
            }
            for queue in locals.list(&ListParams::default()).await? {
                let (name, mut shown) =
                    (queue.name_any(), shown(&serde_json::to_value(queue.status)?));
                let expected = expected(
                    &workloads,
                    &name,
                    queue.spec.cluster_queue.as_deref().unwrap_or_default(),
                );
                // Kueue leaves out the one that it is just trying, and may leave it at that.
                shown.0 = expected.0;
                ensure!(shown == expected, "LocalQueue {name} says {shown:?}, not {expected:?}");
            }
            Ok(())
        })
        .await
    }
}

/// The job that a workload is of.
pub(crate) fn job_of(workload: &Workload) -> &str {
    workload
        .metadata
        .owner_references
        .iter()
        .flatten()
        .map(|owner| owner.name.as_str())
        .next()
        .unwrap_or_default()
}

pub(crate) fn queue_of(workload: &Workload) -> &str {
    workload.spec.queue_name.as_deref().unwrap_or_default()
}

pub(crate) fn is_waiting(workload: &Workload) -> bool {
    let active = workload.spec.active.unwrap_or(true);
    active && !has(workload, QUOTA_RESERVED) && !has(workload, FINISHED)
}

pub(crate) fn has(workload: &Workload, condition: &str) -> bool {
    workload.status.as_ref().is_some_and(|status| is_true(&status.conditions, condition))
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A resource group: flavors with their CPUs and limits, and more memory than is needed.
fn group(flavors: &[(&str, &str, Value)]) -> Value {
    let flavor = |(name, cpus, limits): &(&str, &str, Value)| {
        let mut cpu = json!({"name": "cpu", "nominalQuota": cpus});
        extend(&mut cpu, limits.clone());
        json!({"name": name, "resources": [cpu, {"name": "memory", "nominalQuota": "100Gi"}]})
    };
    json!([{"coveredResources": ["cpu", "memory"], "flavors": flavors.iter().map(flavor).collect::<Vec<_>>()}])
}

fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}
