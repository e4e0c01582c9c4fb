//! Real nodes: containers run, print and fail, and the images run as pods of the chart.
//!
//! `cargo xtask test --only nodes` runs them in a network of their own; see `switchyard_e2e::nodes`.

mod by_kubeconfig;
mod from_kueue;
mod from_multikueue;
mod installed;
mod journeys;
mod left;
mod reader;
mod release;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use switchyard::status::JobState;
use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::nodes::NodeImage;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Part, Parts, fixture, job};

/// The chart's `appVersion`, which its images have as their tag.
const TAG: &str = env!("CARGO_PKG_VERSION");

/// Longer than a container takes to start on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// `kubectl` of a cluster's administrator.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    fn new(cluster: &Cluster) -> Self {
        let program = Parts::new().unwrap().binary(Part::Kubectl).unwrap();
        Self { program, kubeconfig: cluster.kubeconfig().to_owned() }
    }

    /// The output of a command that must succeed.
    fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        let output = command.arg("--kubeconfig").arg(&self.kubeconfig).args(words).output()?;
        ensure!(
            output.status.success(),
            "kubectl {words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Waits until the only pod of a namespace runs.
async fn running_pod(cluster: &Cluster, namespace: &str) -> String {
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), namespace);
    eventually(SOON, "its container to run", async || {
        let pod = pods
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .next()
            .context("there is no pod")?;
        let status = pod.status.clone().unwrap_or_default();
        ensure!(status.phase.as_deref() == Some("Running"), "{status:?}");
        Ok(pod.name_any())
    })
    .await
    .unwrap()
}

#[test]
fn a_failed_container_fails_its_job_on_the_hub() {
    fixture::run_on_real_nodes(async {
        let worker = ClusterSpec::new("east").real_node([NodeImage::Busybox]);
        let fleet = Fleet::builder("nodes").agent(worker).start().await.unwrap();
        fleet.hub().apply([switchyard_e2e::queues::agent_cluster("east")]).await.unwrap();
        fleet.connect().await.unwrap();
        let tenant = fleet
            .tenant("fails")
            .hub(&[("cpu", "1")])
            .worker("east", &[("cpu", "1")])
            .make()
            .await
            .unwrap();
        // It waits for the test, so that nothing depends on how fast either is.
        let script =
            "echo printed by a container; until [ -e /dev/shm/end ]; do sleep 0.1; done; exit 1";
        tenant.submit(tenant.job("fails").cpu("100m").script(script)).await.unwrap();
        let worker = fleet.worker("east");
        let pod = running_pod(worker, tenant.name()).await;
        let kubectl = Kubectl::new(worker);
        let namespace = tenant.name();
        let log = async || {
            let log = kubectl.run(&["logs", "-n", namespace, &pod])?;
            ensure!(log == "printed by a container\n", "{log:?}");
            Ok(())
        };
        eventually(SOON, "the container's log", log).await.unwrap();
        tenant
            .await_status("fails", "running", SOON, |row| row.state == JobState::Running)
            .await
            .unwrap();
        kubectl
            .run(&["exec", "-n", namespace, &pod, "--", "/bin/sh", "-c", "true > /dev/shm/end"])
            .unwrap();
        tenant
            .await_status("fails", "failed", SOON, |row| row.state == JobState::Failed)
            .await
            .unwrap();
        let failed = tenant.hub_jobs().get("fails").await.unwrap();
        assert!(job::has_condition(&failed, "Failed"));
        assert_eq!(failed.status.unwrap().failed, Some(1));
        tenant.await_empty("east", SOON).await.unwrap();
    });
}
