//! A stock MultiKueue manager with two workers in full use moves to Switchyard and back, by the
//! commands of the guide. The pods of all programs come from their charts. Jobs run, wait on the
//! workers, and wait on the manager. No job restarts or runs twice, and waiting jobs go on.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use switchyard_api::conditions;
use switchyard_api::v1beta2::Workload;
use switchyard_e2e::fleet::{NAMESPACE, Tenant};
use switchyard_e2e::nodes::NodeImage;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, fixture, job, paths, queues, ready,
};

use super::Kubectl;
use super::reader::{WAIT, apply, commands_with_queue, shell};
use super::release::Release;
use crate::common::kueue_chart;
use crate::common::shell::Shell;

const PAGE: &str = "docs/migrate.md";
const MANAGER: &str = "## A MultiKueue manager";
const BACK: &str = "### Back with Helm";
const WORKERS: [&str; 2] = ["west", "east"];
/// The account of a kubeconfig, from `deploy/rbac`.
const ACCOUNT: &str = "switchyard-remote-hub";

/// The running pods of each job, as `cluster/pod`.
type Places = BTreeMap<String, Vec<String>>;

#[test]
fn commands_of_the_guide_move_a_manager_and_back() {
    fixture::run_on_real_nodes(async {
        let release = tokio::task::spawn_blocking(Release::find).await.unwrap();
        let hub = [release.image("switchyard-hub"), NodeImage::Kueue];
        let mut clusters =
            Environment::builder("from-mk").cluster(ClusterSpec::new("hub").real_node(hub));
        for name in WORKERS {
            let images = [NodeImage::Kueue, NodeImage::Busybox];
            clusters = clusters.cluster(ClusterSpec::new(name).real_node(images));
        }
        let environment = clusters.start().await.unwrap();
        let site = Site::make(&environment, &release).await;
        let with_kueue = site.fill().await;
        site.preflight().await;

        // Aborted in the gap, before the hub starts, and after the last command.
        site.stop_manager();
        site.copy_kubeconfigs().await;
        site.abort();
        kept(&with_kueue, &site.run(4, &["a", "b", "c", "d"]).await);
        site.stop_manager();
        site.install_without_images().await;
        site.back().await;
        kept(&with_kueue, &site.run(4, &["a", "b", "c", "d"]).await);
        site.stop_manager();
        site.install().await;
        site.back().await;
        kept(&with_kueue, &site.run(4, &["a", "b", "c", "d"]).await);

        site.stop_manager();
        site.end("d", &with_kueue);
        site.install().await;
        site.goes_on_with_switchyard(&with_kueue).await;
        let with_switchyard = site.places().await.unwrap();

        site.back().await;
        site.delete("b").await;
        let back = site.run(4, &["c", "e", "f", "g"]).await;
        kept(&with_switchyard, &back);
        site.are_gone(&["a", "b", "d"]).await;
    });
}

/// Jobs that ran before and run on have kept their pods.
fn kept(before: &Places, after: &Places) {
    for (job, pods) in before.iter().filter(|(job, _)| after.contains_key(*job)) {
        assert_eq!(after[job], *pods, "{job} was restarted");
    }
}

/// The commands under a heading of the guide.
fn commands(heading: &str) -> Vec<String> {
    commands_with_queue(PAGE, heading, "all")
}

fn commands_of_manager() -> [String; 8] {
    commands(MANAGER).try_into().expect("the preflight and seven commands")
}

/// A hub with two workers, all of which run stock Kueue at first.
struct Site<'a> {
    environment: &'a Environment,
    shell: Shell,
    namespace: String,
}

impl<'a> Site<'a> {
    /// Installs Kueue, and quota for two jobs on each worker and for five on the hub.
    async fn make(environment: &'a Environment, release: &Release) -> Self {
        let shell = shell(environment, &["hub", WORKERS[0], WORKERS[1]], release).await;
        let jobs_alone = kueue_chart::jobs_alone(&shell);
        for name in ["hub", WORKERS[0], WORKERS[1]] {
            kueue_chart::install(&shell, &format!("--kube-context {name} {jobs_alone}"));
        }
        let namespace = environment.cluster("hub").namespace("both").await.unwrap();
        let site = Self { environment, shell, namespace };
        site.objects().await;
        site
    }

    fn hub(&self) -> &'a Cluster {
        self.environment.cluster("hub")
    }

    async fn objects(&self) {
        let namespace = &self.namespace;
        let mut objects = vec![queues::ResourceFlavor::new("all").build()];
        for name in WORKERS {
            let worker = self.environment.cluster(name);
            worker.apply_dir(paths::root().join("deploy/rbac")).await.unwrap();
            let same =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            worker.apply([same]).await.unwrap();
            self.kueue_becomes_ready(name);
            apply(worker, queues::simple(namespace, "all", &[("cpu", "200m")])).await;
            let kubeconfig = self.kubeconfig(name).await;
            objects.push(queues::kubeconfig_secret(kueue_chart::NAMESPACE, name, &kubeconfig));
            objects.push(queues::kubeconfig_cluster(name, name));
        }
        objects.extend(queues::multikueue("mk", &WORKERS));
        let quota = [("cpu", "500m")];
        let queue = queues::ClusterQueue::new("all").group("all", &quota).admission_check("mk");
        objects.extend([queue.build(), queues::local_queue(namespace, "queue", "all")]);
        self.kueue_becomes_ready("hub");
        apply(self.hub(), objects).await;
        for name in WORKERS {
            ready::worker_cluster(self.hub(), name, WAIT).await.unwrap();
        }
        ready::managed_by_webhook(self.hub(), (namespace, "queue"), WAIT).await.unwrap();
    }

    fn kueue_becomes_ready(&self, cluster: &str) {
        kueue_chart::becomes_ready(&self.shell, &format!("--context {cluster}"));
    }

    /// A kubeconfig of a worker by its address for pods of other clusters.
    async fn kubeconfig(&self, worker: &str) -> String {
        let get = format!("kubectl --context {worker} get service kubernetes -o jsonpath=");
        let address = self.shell.run(&format!("{get}'{{.spec.clusterIP}}'"));
        let cluster = self.environment.cluster(worker);
        let (_, kubeconfig) = cluster.service_account(NAMESPACE, ACCOUNT).await.unwrap();
        let mut kubeconfig: Value = serde_saphyr::from_str(&kubeconfig).unwrap();
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{address}:443"));
        kubeconfig.to_string()
    }

    async fn create(&self, name: &str) {
        let job = JobBuilder::new(&self.namespace, name).queue("queue").cpu("100m");
        let script = "trap exit TERM; until [ -e /dev/shm/end ]; do sleep 0.2; done";
        job.script(script).create(&self.hub().admin).await.unwrap();
    }

    /// Four jobs run. One waits on the workers, two on the manager.
    async fn fill(&self) -> Places {
        for name in ["a", "b", "c", "d"] {
            self.create(name).await;
        }
        let places = self.run(4, &["a", "b", "c", "d"]).await;
        self.create("e").await;
        self.one_waits_on_a_worker().await;
        for name in ["f", "g"] {
            self.create(name).await;
        }
        for job in ["a", "b", "c", "d"] {
            self.is_admitted(job).await;
        }
        places
    }

    async fn places(&self) -> anyhow::Result<Places> {
        let mut places = Places::new();
        for worker in WORKERS {
            let cluster = self.environment.cluster(worker);
            let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), &self.namespace);
            for pod in pods.list(&ListParams::default()).await?.items {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                if phase == Some("Running") {
                    let job = pod.labels().get("job-name").cloned().unwrap_or_default();
                    places.entry(job).or_default().push(format!("{worker}/{}", pod.name_any()));
                }
            }
        }
        Ok(places)
    }

    /// Waits until so many jobs run, these among them. Each has one pod.
    async fn run(&self, number: usize, jobs: &[&str]) -> Places {
        eventually(WAIT, format!("{number} jobs to run, {jobs:?} among them"), async || {
            let places = self.places().await?;
            let are_there = jobs.iter().all(|job| places.contains_key(*job));
            ensure!(are_there && places.len() == number, "{places:?}");
            ensure!(places.values().all(|pods| pods.len() == 1), "one runs twice: {places:?}");
            Ok(places)
        })
        .await
        .unwrap()
    }

    /// Waits until a job that waits has a copy on a worker.
    async fn one_waits_on_a_worker(&self) {
        eventually(WAIT, "a copy that waits", async || {
            for worker in WORKERS {
                let cluster = self.environment.cluster(worker);
                let copies: Api<Workload> = Api::namespaced(cluster.admin.clone(), &self.namespace);
                for copy in copies.list(&ListParams::default()).await?.items {
                    let conditions = copy.status.unwrap_or_default().conditions;
                    if !conditions::is_true(&conditions, conditions::QUOTA_RESERVED) {
                        return Ok(());
                    }
                }
            }
            anyhow::bail!("there is none")
        })
        .await
        .unwrap();
    }

    /// The Workload of a job on the hub, if there is one.
    async fn workload(&self, job: &str) -> anyhow::Result<Option<Workload>> {
        let workloads: Api<Workload> = Api::namespaced(self.hub().admin.clone(), &self.namespace);
        let prefix = format!("job-{job}-");
        let all = workloads.list(&ListParams::default()).await?.items;
        Ok(all.into_iter().find(|workload| workload.name_any().starts_with(&prefix)))
    }

    /// Waits until the manager has recorded where a job runs.
    async fn is_admitted(&self, job: &str) {
        eventually(WAIT, format!("{job} to be admitted"), async || {
            let found = self.workload(job).await?.and_then(|workload| workload.status);
            let conditions = found.map(|status| status.conditions).unwrap_or_default();
            ensure!(conditions::is_true(&conditions, conditions::ADMITTED), "{conditions:?}");
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn delete(&self, job: &str) {
        let jobs: Api<Job> = Api::namespaced(self.hub().admin.clone(), &self.namespace);
        jobs.delete(job, &DeleteParams::background()).await.unwrap();
    }

    /// Waits until no worker has these jobs.
    async fn are_gone(&self, names: &[&str]) {
        eventually(WAIT, format!("no copy of {names:?} to be left"), async || {
            for worker in WORKERS {
                let cluster = self.environment.cluster(worker);
                let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), &self.namespace);
                for name in names {
                    ensure!(jobs.get_opt(name).await?.is_none(), "{name} is on {worker}");
                }
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    /// The container of a job ends.
    fn end(&self, job: &str, places: &Places) {
        let (worker, pod) = places[job][0].split_once('/').unwrap();
        let kubectl = Kubectl::new(self.environment.cluster(worker));
        let end = ["/bin/sh", "-c", "true > /dev/shm/end"];
        let words = [&["exec", "-n", &self.namespace, pod, "--"][..], &end].concat();
        kubectl.run(&words).unwrap();
    }

    /// With the manager's own kubeconfigs of the workers.
    async fn preflight(&self) {
        let command = commands("## Preflight").remove(0);
        let report = eventually(WAIT, "two jobs to wait on the manager", async || {
            let report = self.shell.run(&format!("{command} -o json"));
            let report: Value = serde_json::from_str(&report)?;
            ensure!(report["waiting"] == 2, "{} wait", report["waiting"]);
            Ok(report)
        });
        let report = report.await.unwrap();
        assert_eq!(report["mode"], "hub", "{report:#}");
        let findings = report["findings"].as_array().unwrap();
        let mut read = Vec::new();
        for finding in findings.iter().filter(|it| it["subject"] == "worker") {
            let message = finding["message"].as_str().unwrap();
            assert!(message.starts_with("it keeps its Kueue"), "{report:#}");
            read.extend(finding["objects"].as_array().unwrap().iter().filter_map(Value::as_str));
        }
        read.sort_unstable();
        assert_eq!(read, ["east", "west"], "{report:#}");
        let steps = report["steps"].as_array().unwrap();
        let copies = "Copy 2 kubeconfig Secrets to switchyard-system";
        assert!(steps.iter().any(|step| step["name"] == copies), "{steps:?}");
    }

    /// The commands up to the gap.
    fn stop_manager(&self) {
        let [preflight, configuration, stop, unhook, ..] = commands_of_manager();
        assert!(preflight.starts_with("switchyard migrate preflight"), "{preflight}");
        for command in [configuration, stop, unhook] {
            self.shell.run(&command);
        }
    }

    /// The way back from the gap.
    fn abort(&self) {
        self.shell.run(&commands(BACK)[5]);
        self.kueue_becomes_ready("hub");
        self.delete_kubeconfigs();
    }

    /// The commands of the second step.
    async fn copy_kubeconfigs(&self) {
        let [.., namespace, secret, _, _] = commands_of_manager();
        // It stays when the copies are deleted, and when Switchyard is removed.
        self.shell.run(&format!("{namespace} || true"));
        for worker in WORKERS {
            self.shell.run(&secret.replace("NAME", worker));
            let of = async |namespace| {
                let secrets: Api<Secret> = Api::namespaced(self.hub().admin.clone(), namespace);
                secrets.get(worker).await.unwrap().data
            };
            assert_eq!(of(NAMESPACE).await, of(kueue_chart::NAMESPACE).await, "{worker}");
        }
    }

    /// The commands from the gap on, which end it.
    async fn install(&self) {
        self.copy_kubeconfigs().await;
        let [.., install, change] = commands_of_manager();
        self.shell.run(&install);
        self.shell.run(&change);
        let kind =
            "kubectl -n switchyard-system get service switchyard-hub -o jsonpath={.spec.type}";
        assert_eq!(self.shell.run(kind), "LoadBalancer");
    }

    /// The third step alone: CRDs, roles and webhooks are there, and the hub's pods cannot start.
    async fn install_without_images(&self) {
        self.copy_kubeconfigs().await;
        let [.., install, _] = commands_of_manager();
        assert!(install.contains(" --wait"), "{install}");
        let install = install.replace(" --wait", " --set global.imageRegistry=127.0.0.1:1/wrong");
        self.shell.run(&install);
        let pods: Api<Pod> = Api::namespaced(self.hub().admin.clone(), NAMESPACE);
        eventually(WAIT, "pods without an image", async || {
            let pods = pods.list(&ListParams::default()).await?.items;
            ensure!(!pods.is_empty(), "there is none");
            let phases = pods.into_iter().filter_map(|pod| pod.status?.phase);
            assert!(phases.into_iter().all(|phase| phase == "Pending"), "the hub runs");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Running jobs run on, those that end are seen, and those that wait start.
    async fn goes_on_with_switchyard(&self, with_kueue: &Places) {
        for name in WORKERS {
            ready::worker_cluster(self.hub(), name, WAIT).await.unwrap();
        }
        job::complete(&self.hub().admin, &self.namespace, "d", WAIT).await.unwrap();
        let started = self.run(4, &["a", "b", "c"]).await;
        kept(with_kueue, &started);
        self.delete("a").await;
        self.are_gone(&["a"]).await;
        kept(&started, &self.run(4, &["b", "c"]).await);
        for job in ["b", "c"] {
            eventually(WAIT, format!("{job} as its first attempt"), async || {
                let workload = self.workload(job).await?.context("no Workload")?;
                let status = workload.status.clone().unwrap_or_default();
                let evicted = conditions::find(&status.conditions, "Evicted");
                assert!(evicted.is_none(), "{job}: {}", Tenant::told(&workload));
                let attempt = status.dispatch.map(|dispatch| dispatch.attempt);
                ensure!(attempt == Some(1), "attempt {attempt:?}");
                Ok(())
            })
            .await
            .unwrap();
        }
        self.one_waits_on_a_worker().await;
    }

    /// The way back to the manager.
    async fn back(&self) {
        let commands = commands(BACK);
        let (stop, start) = commands.split_at(4);
        for command in stop {
            self.shell.run(command);
        }
        for worker in WORKERS {
            let release = "switchyard migrate hand-back --copies --yes --context";
            self.shell.run(&format!("{release} {worker}"));
        }
        for command in start {
            self.shell.run(command);
        }
        self.delete_kubeconfigs();
    }

    /// Deletes the copies of the second step.
    fn delete_kubeconfigs(&self) {
        for worker in WORKERS {
            self.shell.run(&format!("kubectl -n {NAMESPACE} delete secret {worker}"));
        }
    }
}
