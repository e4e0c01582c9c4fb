//! The commands of `docs/first-cluster.md` as they stand there. Switchyard itself runs as a process,
//! since nodes run no images here; the Deployment of the chart is played.

use std::time::Duration;

use switchyard_e2e::single::Single;
use switchyard_e2e::{ClusterSpec, Environment, NodeSpec, fixture};

use crate::common::shell::{self, Shell};

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(120);
const PAGE: &str = "docs/first-cluster.md";
/// The package of a release, and the folder that it is made from.
const PACKAGE: &str = "dist/switchyard-0.1.0.tgz";
const CHART: &str = "deploy/charts/switchyard";

#[test]
fn commands_of_the_one_cluster_tutorial_work_as_written() {
    fixture::run(async {
        // Helm waits for the pods of the Deployment.
        let controllers =
            ["deployment-controller", "replicaset-controller", "endpointslice-controller"];
        let spec = ClusterSpec::new("one").node(NodeSpec::new("node").cpu(8));
        let spec = controllers.into_iter().fold(spec, ClusterSpec::controller);
        let environment = Environment::builder("tutorial").cluster(spec).start().await.unwrap();
        let cluster = environment.cluster("one");
        let shell = Shell::new(cluster).await;
        let mut single = None;
        let mut seen = Vec::new();
        for line in shell::commands_of_page(PAGE) {
            let line = line.replace(PACKAGE, CHART);
            seen.push(line.split(' ').take(2).collect::<Vec<_>>().join(" "));
            match seen.last().map(String::as_str) {
                Some("helm install") => {
                    shell.run(&line);
                    single = Some(Single::start(cluster).await.unwrap());
                }
                Some("switchyard get") => {
                    shell.until(&line, &["Running", "Succeeded"], WAIT).await;
                }
                Some("switchyard why") => {
                    shell.until(&line, &["third"], WAIT).await;
                }
                // A program that runs beside the Deployment, and a Lease that is a moment old.
                Some("switchyard check") if single.is_some() => {
                    shell.until(&line, &["0 failures", "No failures", "All checks"], WAIT).await;
                }
                _ => {
                    shell.run(&line);
                }
            }
        }
        for command in ["switchyard check", "kubectl apply", "switchyard why", "helm uninstall"] {
            assert!(seen.iter().any(|it| it == command), "{command}: {seen:?}");
        }
        if let Some(single) = single {
            single.stop().await;
        }
        // Nothing is left in the way of a job with the label.
        let job =
            "sed 's/name: job$/name: afterwards/' examples/jobs/job.yaml | kubectl create -f -";
        assert!(shell.run(job).contains("job.batch/afterwards created"));
    });
}
