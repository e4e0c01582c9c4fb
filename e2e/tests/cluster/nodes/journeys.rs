//! The ways of a new user, with the commands as the pages have them: the images of a release run as
//! pods, and the jobs in containers.

use switchyard_e2e::nodes::NodeImage;
use switchyard_e2e::{ClusterSpec, Environment, fixture};

use super::reader::{Reader, WAIT, shell};
use super::release::Release;
use crate::common::shell::{self, Shell};

const README: &str = "README.md";
const ONE_CLUSTER: &str = "docs/first-cluster.md";
const FLEET: &str = "docs/first-fleet.md";
const UPGRADE: &str = "docs/upgrade.md";

#[test]
fn one_cluster_is_installed_used_and_left_as_the_pages_say() {
    fixture::run_on_real_nodes(async {
        let release = tokio::task::spawn_blocking(Release::find).await.unwrap();
        let images = [release.image("switchyard-hub"), NodeImage::Busybox];
        let spec = ClusterSpec::new("one").real_node(images);
        let environment = Environment::builder("journey-one").cluster(spec).start().await.unwrap();
        let shell = shell(&environment, &["one"], &release).await;
        let promises = [
            ("switchyard check --pre", "All checks passed."),
            ("switchyard check", "All checks passed."),
            ("switchyard get jobs", "Running"),
            ("switchyard why third", "cpu"),
        ];
        let reader = Reader::new(&shell, &promises);

        // A reader who stops after the README has a working installation.
        reader.follows(shell::commands(README, "### One cluster")).await;
        names_a_wrong_registry(&shell).await;
        shell.run("kubectl -n team-a delete job job");
        shell.run("helm uninstall switchyard --namespace switchyard-system");

        reader.follows(shell::commands_of_page(ONE_CLUSTER)).await;
        reader.is_done();
        // Nothing is left in the way of what has the label.
        for file in
            ["sed 's/name: job$/name: after/' examples/jobs/job.yaml", "cat examples/jobs/pod.yaml"]
        {
            // The API server may still call the webhooks that were just deleted.
            shell.until(&format!("{file} | kubectl apply -f -"), &["/"], WAIT).await;
        }
        for pod in ["-l batch.kubernetes.io/job-name=after", "pod"] {
            let get = format!("kubectl -n team-a get pod {pod} -o jsonpath='{{..phase}}'");
            shell.until(&get, &["Running"], WAIT).await;
        }
    });
}

/// The kubelet cannot pull the image, and `check` says what to do.
async fn names_a_wrong_registry(shell: &Shell) {
    shell.run(
        "helm upgrade switchyard dist/switchyard-0.1.0.tgz --namespace switchyard-system --reset-then-reuse-values \
         --set global.imageRegistry=127.0.0.1:1/wrong",
    );
    let mend = "name the registry with global.imageRegistry";
    shell.until("switchyard check || true", &[mend], WAIT).await;
}

#[test]
fn fleet_is_built_used_and_removed_as_the_pages_say() {
    fixture::run_on_real_nodes(async {
        let release = tokio::task::spawn_blocking(Release::find).await.unwrap();
        let hub = ClusterSpec::new("hub").real_node([release.image("switchyard-hub")]);
        let worker = |name: &str| {
            let images = [release.image("switchyard-agent"), NodeImage::Busybox];
            ClusterSpec::new(name).real_node(images)
        };
        let clusters = Environment::builder("journey-fleet").cluster(hub);
        let clusters = clusters.cluster(worker("east")).cluster(worker("west"));
        let environment = clusters.start().await.unwrap();
        let shell = shell(&environment, &["hub", "east", "west"], &release).await;
        let promises = [
            ("switchyard cluster add east", "east is connected."),
            ("switchyard cluster add west", "west is connected."),
            ("switchyard get jobs", "Running"),
            ("switchyard get clusters", "not connected"),
            ("switchyard why hello", "onDisconnect is Hold"),
            ("kubectl --context east -n team-a get pods", "Running"),
            ("kubectl --context west -n team-a get pods", "Running"),
            ("switchyard cluster drain west", "is drained"),
        ];
        let tutorial = shell::commands_of_page(FLEET);
        for line in shell::commands(README, "### A hub and two workers") {
            assert!(tutorial.contains(&line), "the tutorial lacks {line}");
        }
        let reader = Reader::new(&shell, &promises);
        let is_sent = |line: &String| line.contains("examples/hub/job.yaml");
        let (install, use_it) = tutorial.split_at(tutorial.iter().position(is_sent).unwrap());
        reader.follows(install.to_vec()).await;
        // Both are empty, and `east` is the first one by name.
        for name in ["east", "west"] {
            let capacity = format!("switchyard get clusters {name} --capacity --context hub");
            shell.until(&capacity, &["team-a"], WAIT).await;
        }
        reader.follows(use_it.to_vec()).await;
        reader.is_done();
        // A later manifest, applied by kubectl, does not conflict with `cluster add`.
        shell.run(
            "sed 's/replicas: 2$/replicas: 1/' dist/worker.yaml | kubectl --context east apply --server-side -f -",
        );
        reader.follows(shell::commands(UPGRADE, "### With kubectl")).await;
    });
}
