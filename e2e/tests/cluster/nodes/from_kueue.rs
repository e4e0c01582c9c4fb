//! One cluster in use moves from stock Kueue to Switchyard and back, by the commands of the guide. The
//! pods of both come from their charts.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use switchyard_e2e::nodes::NodeImage;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, JobBuilder, fixture, job, queues};

use super::reader::{WAIT, apply, commands_with_queue, shell};
use super::release::Release;
use crate::common::kueue_chart;
use crate::common::shell::{self, Shell};

const PAGE: &str = "docs/migrate.md";
const TAKEOVER: &str = "## With Helm";
const BACK: &str = "### Back with Helm";
const START_KUEUE: &str =
    "kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=1";

/// The list of pending Workloads, which the pods of the chart serve behind their Service.
const PENDING: &str =
    "kubectl get --raw /apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/main/pendingworkloads";
const COMMANDS: &str = "docs/command-line.md";

/// The commands under a heading of the guide.
fn commands(heading: &str) -> Vec<String> {
    commands_with_queue(PAGE, heading, "main")
}

#[test]
fn commands_of_the_guide_move_a_cluster_from_kueue_and_back() {
    fixture::run_on_real_nodes(async {
        let release = tokio::task::spawn_blocking(Release::find).await.unwrap();
        let images = [release.image("switchyard-hub"), NodeImage::Kueue, NodeImage::Busybox];
        let spec = ClusterSpec::new("one").real_node(images);
        let environment = Environment::builder("from-kueue").cluster(spec).start().await.unwrap();
        let cluster = environment.cluster("one");
        let shell = shell(&environment, &["one"], &release).await;
        kueue_chart::install(&shell, "--wait");
        let namespace = cluster.namespace("team").await.unwrap();
        apply(cluster, queues::simple(&namespace, "main", &[("cpu", "100m")])).await;
        let site = Site { cluster, shell, namespace };
        site.create("first").await;
        let first = site.runs("first").await;
        site.create("second").await;
        site.waits("second").await;

        for command in commands("## Preflight") {
            site.shell.run(&command);
        }
        site.takeover().await;
        assert_eq!(site.runs("first").await, first, "it was restarted");
        let second = site.next_starts("first", "second").await;

        site.create("third").await;
        site.back().await;
        assert_eq!(site.runs("second").await, second, "it was restarted");
        site.next_starts("second", "third").await;
    });
}

/// The cluster with its jobs, of which one fits.
struct Site<'a> {
    cluster: &'a Cluster,
    shell: Shell,
    namespace: String,
}

impl Site<'_> {
    async fn create(&self, name: &str) {
        let job = JobBuilder::new(&self.namespace, name).queue("queue").cpu("100m");
        let script = "trap exit TERM; while :; do sleep 1; done";
        job.script(script).create(&self.cluster.admin).await.unwrap();
    }

    async fn waits(&self, job: &str) {
        job::suspended(&self.cluster.admin, &self.namespace, job, WAIT, true).await.unwrap();
    }

    /// The uid of a job's only pod, once its container runs.
    async fn runs(&self, job: &str) -> Option<String> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let pod = eventually(WAIT, format!("the pod of {job} to run"), async || {
            let pods = pods.list(&job::pods_of(job)).await?.items;
            let [pod] = &pods[..] else { anyhow::bail!("{} pods", pods.len()) };
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            anyhow::ensure!(phase == Some("Running"), "{phase:?}");
            Ok(pod.uid())
        });
        pod.await.unwrap()
    }

    /// The next job waits until the running one is deleted. Returns its pod.
    async fn next_starts(&self, running: &str, next: &str) -> Option<String> {
        self.waits(next).await;
        let jobs: Api<Job> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        jobs.delete(running, &DeleteParams::background()).await.unwrap();
        self.runs(next).await
    }

    /// The namespaces with ready pods of one of both, each with their number.
    async fn ready(&self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        for namespace in [kueue_chart::NAMESPACE, "switchyard-system"] {
            let pods: Api<Pod> = Api::namespaced(self.cluster.admin.clone(), namespace);
            let pods = pods.list(&ListParams::default()).await.unwrap().items;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            if ready > 0 {
                found.push((namespace.to_owned(), ready));
            }
        }
        found
    }

    /// The number of objects with this word in their name.
    fn count(&self, kind: &str, word: &str) -> usize {
        let all = self.shell.run(&format!("kubectl get {kind} -o name"));
        all.lines().filter(|line| line.contains(word)).count()
    }

    /// Before the installation, each command is the last one once.
    async fn takeover(&self) {
        let shell = &self.shell;
        let commands = commands(TAKEOVER);
        let [config, stop, unhook, install, see] = &commands[..] else {
            panic!("five commands: {commands:#?}")
        };
        shell.run(config);
        shell.run(stop);
        assert_eq!(self.ready().await, []);
        shell.run(shell::in_text(PAGE, START_KUEUE));
        kueue_chart::becomes_ready(shell, "");

        let stopped = || {
            shell.run(stop);
            let deleted = shell.run(unhook);
            assert_eq!(deleted.lines().count(), 4, "configurations and APIServices");
        };
        stopped();
        shell.run(&self::commands(BACK)[5]);
        kueue_chart::becomes_ready(shell, "");
        assert_eq!(self.count("validatingwebhookconfiguration", "kueue"), 1);
        self.waits("second").await;

        stopped();
        shell.run(install);
        assert_eq!(self.ready().await, [("switchyard-system".to_owned(), 2)]);
        let config = "kubectl -n switchyard-system get configmap switchyard-config -o yaml";
        assert!(shell.run(config).contains("batch/job"), "the file of Kueue");
        assert_eq!(self.count("apiservice", "visibility.kueue"), 2);
        shell.until(shell::in_text(COMMANDS, PENDING), &["second"], WAIT).await;
        for job in ["first", "second"] {
            shell.until(see, &[job], WAIT).await;
        }
    }

    async fn back(&self) {
        let shell = &self.shell;
        let commands = commands(BACK);
        let [stop, uninstall, convert, hand_back, hold, start, held, open] = &commands[..] else {
            panic!("eight commands: {commands:#?}")
        };
        shell.run(stop);
        assert_eq!(self.ready().await, []);
        shell.run(uninstall);
        assert_eq!(self.count("mutatingwebhookconfiguration", ""), 0);
        assert_eq!(self.count("apiservice", "visibility.kueue"), 0);
        assert_eq!(self.count("crd", "kueue.x-k8s.io"), 11, "Helm keeps them");
        for command in [convert, hand_back, hold, start, held, open] {
            shell.run(command);
        }
        assert_eq!(self.ready().await, [("kueue-system".to_owned(), 1)]);
        let owner = "{.metadata.annotations.meta\\.helm\\.sh/release-name}";
        let crd = "kubectl get crd workloads.kueue.x-k8s.io";
        assert_eq!(shell.run(&format!("{crd} -o jsonpath='{owner}'")), "kueue");
        let fields = shell.run(&format!("{crd} -o yaml | grep -c 'Not part of Kueue' || true"));
        assert_eq!(fields.trim(), "0", "the fields of Switchyard are gone");
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
}
