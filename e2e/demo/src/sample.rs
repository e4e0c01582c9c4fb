//! The demo's fleet and its jobs.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_e2e::nodes::NodeImage;
use switchyard_e2e::queues::{self, ClusterQueue, ResourceFlavor};
use switchyard_e2e::{Cluster, ClusterSpec, JobBuilder, NodeSpec};

/// Where the sample jobs are created.
pub const NAMESPACE: &str = "team";
/// The label by which a job asks for a kind of GPU.
const GPU_LABEL: &str = "example.com/gpu";
/// The AdmissionCheck, and the MultiKueueConfig behind it.
const FLEET: &str = "fleet";

/// A worker cluster of the demo.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    pub name: &'static str,
    /// The name of its GPU flavor.
    pub gpu: &'static str,
}

/// The worker clusters: each has its own kind of GPU.
pub const WORKERS: [Worker; 2] =
    [Worker { name: "west", gpu: "a100" }, Worker { name: "east", gpu: "h100" }];

/// Quota of a GPU flavor on one worker.
const GPU_QUOTA: [(&str, &str); 3] = [("cpu", "32"), ("memory", "128Gi"), ("nvidia.com/gpu", "8")];

impl Worker {
    /// The cluster: one node with 8 GPUs.
    pub fn cluster(&self) -> ClusterSpec {
        let node = NodeSpec::new(format!("{}-gpu", self.name)).cpu(64).gpu(8).memory("256Gi");
        ClusterSpec::new(self.name).node(node.label(GPU_LABEL, self.gpu))
    }

    /// The cluster with a real node.
    pub fn real_cluster(&self) -> ClusterSpec {
        ClusterSpec::new(self.name).real_node([NodeImage::Busybox])
    }

    /// Gives the real node what the jobs ask for: its kind of GPU, and 8 of them, which only the scheduler counts.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn equip(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let node = cluster.real_node_name().context("the cluster has no real node")?;
        let nodes: Api<Node> = Api::all(cluster.admin.clone());
        let labels = json!({"metadata": {"labels": {GPU_LABEL: self.gpu}}});
        nodes.patch(&node, &PatchParams::default(), &Patch::Merge(labels)).await?;
        let gpus = json!({"nvidia.com/gpu": "8"});
        let status = json!({"status": {"capacity": gpus, "allocatable": gpus}});
        nodes.patch_status(&node, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Its queues: the flavor of its GPUs, and the LocalQueues that jobs of the hub arrive in.
    pub fn objects(&self) -> Vec<Value> {
        let mut objects =
            vec![self.flavor(), ClusterQueue::new("hub-jobs").group(self.gpu, &GPU_QUOTA).build()];
        objects.extend(
            ["research", "product"].map(|queue| queues::local_queue(NAMESPACE, queue, "hub-jobs")),
        );
        objects
    }

    fn flavor(&self) -> Value {
        ResourceFlavor::new(self.gpu).node_label(GPU_LABEL, self.gpu).build()
    }
}

/// The hub's objects: the workers, two queues that share what the workers have, and priorities.
pub fn hub_objects() -> Vec<Value> {
    let names = WORKERS.map(|worker| worker.name);
    let mut objects: Vec<Value> = WORKERS.iter().map(Worker::flavor).collect();
    objects.extend(names.map(queues::agent_cluster));
    objects.extend(queues::multikueue(FLEET, &names));
    let flavors = WORKERS.map(|worker| (worker.gpu, &HALF_QUOTA[..]));
    for queue in ["research", "product"] {
        objects.push(ClusterQueue::new(queue).flavors(&flavors).admission_check(FLEET).build());
        objects.push(queues::local_queue(NAMESPACE, queue, queue));
    }
    objects.extend([queues::priority_class("urgent", 1000), queues::priority_class("batch", -10)]);
    objects
}

/// Each of the two queues on the hub gets half of what the workers have.
const HALF_QUOTA: [(&str, &str); 3] = [("cpu", "16"), ("memory", "64Gi"), ("nvidia.com/gpu", "4")];

/// How a sample job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It completes.
    Succeeds,
    /// It fails, on purpose.
    Fails,
    /// It asks for more than there is, and stays queued.
    FitsNowhere,
}

/// A sample job, and how it ends.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    /// How it ends.
    pub expect: Expect,
    /// The job.
    pub job: JobBuilder,
}

impl Sample {
    /// The same job in a container that says its name, takes its time and ends with its exit code. A real node has as many
    /// processors as this machine, so each pod asks for a hundredth of one.
    #[must_use]
    pub fn in_containers(self) -> Self {
        let (seconds, code) =
            (self.job.runs_for().as_secs(), i32::from(self.expect == Expect::Fails));
        let script = format!("echo {} runs; sleep {seconds}; exit {code}", self.name);
        Self { job: self.job.cpu("10m").script(&script), ..self }
    }
}

/// Twenty jobs of different shapes and priorities.
pub fn jobs() -> Vec<Sample> {
    let mut jobs = Vec::new();
    for i in 1..=5 {
        jobs.push(sample(&format!("prepare-{i}"), "research", |job| {
            job.cpu("2").run_for(seconds(1 + i % 3))
        }));
    }
    for i in 1..=4 {
        jobs.push(sample(&format!("tune-{i}"), "research", |job| {
            job.gpu(1).node_selector(GPU_LABEL, "a100").run_for(seconds(2))
        }));
    }
    for i in 1..=3 {
        jobs.push(sample(&format!("train-{i}"), "product", |job| {
            job.gpu(2)
                .parallelism(2)
                .completions(2)
                .node_selector(GPU_LABEL, "h100")
                .run_for(seconds(2))
        }));
    }
    for i in 1..=2 {
        jobs.push(sample(&format!("hotfix-{i}"), "product", |job| {
            job.gpu(4).priority_class("urgent").run_for(seconds(1))
        }));
    }
    for i in 1..=3 {
        jobs.push(sample(&format!("nightly-{i}"), "product", |job| {
            job.gpu(1).priority_class("batch").run_for(seconds(1))
        }));
    }
    jobs.push(sample("shards", "research", |job| {
        job.cpu("500m")
            .parallelism(2)
            .completions(4)
            .field("completionMode", "Indexed".into())
            .run_for(seconds(1))
    }));
    jobs.push(Sample {
        expect: Expect::Fails,
        ..sample("broken", "research", |job| job.fails().run_for(seconds(1)))
    });
    jobs.push(Sample {
        expect: Expect::FitsNowhere,
        ..sample("too-big", "research", |job| job.gpu(64))
    });
    jobs
}

fn sample(name: &str, queue: &str, shape: impl FnOnce(JobBuilder) -> JobBuilder) -> Sample {
    let job = shape(JobBuilder::new(NAMESPACE, name).queue(queue));
    Sample { name: name.to_owned(), expect: Expect::Succeeds, job }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_twenty_jobs_with_names_of_their_own() {
        let mut names: Vec<String> = jobs().into_iter().map(|sample| sample.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 20);
    }
}
