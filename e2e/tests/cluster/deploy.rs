//! What `deploy/` ships is accepted by a real API server.

use std::time::Instant;

use clap::Parser as _;
use serde_json::json;
use switchyard_e2e::{ClusterSpec, Environment, fixture, queues};

#[test]
fn crds_and_roles_install_and_queues_can_be_made() {
    fixture::run(async {
        let environment = Environment::builder("deploy").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let start = Instant::now();
        cluster.install().await.unwrap();
        println!("installed in {:.1?}", start.elapsed());
        // Applied again, as an upgrade does.
        cluster.install().await.unwrap();
        cluster.apply(queues::simple("default", "all", &[("cpu", "4"), ("nvidia.com/gpu", "2")])).await.unwrap();
        let mut rest = queues::multikueue("mk", &["worker"]);
        rest.push(queues::agent_cluster("worker"));
        rest.push(queues::kubeconfig_cluster("other", "secret"));
        rest.push(queues::priority_class("high", 100));
        rest.push(
            queues::ResourceFlavor::new("a").node_label("a", "b").node_taint("c", "d").toleration("e", "f").build(),
        );
        let cq = queues::ClusterQueue::new("cq").group("a", &[("cpu", "1")]).admission_check("mk").strict_fifo();
        rest.push(cq.cohort("all").stop_policy("Hold").build());
        cluster.apply(rest).await.unwrap();
    });
}

#[test]
fn the_viewers_role_is_enough_to_see_clusters_and_jobs() {
    fixture::run(async {
        let environment = Environment::builder("viewer").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        cluster.install().await.unwrap();
        let (_, kubeconfig) = cluster.service_account("default", "default").await.unwrap();
        let path = cluster.state_dir().join("viewer.kubeconfig");
        std::fs::write(&path, kubeconfig).unwrap();
        let switchyard = async |words: &[&str]| {
            let command = ["switchyard", "--kubeconfig", path.to_str().unwrap()];
            let mut out = Vec::new();
            let args = switchyard::Args::try_parse_from(command.iter().chain(words)).unwrap();
            switchyard::run(args, &mut out).await.map(|()| String::from_utf8(out).unwrap())
        };
        let refused = switchyard(&["clusters"]).await.unwrap_err().to_string();
        assert!(refused.contains("the role switchyard-viewer of deploy/rbac allows it"), "{refused}");

        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "viewers"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "switchyard-viewer"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        });
        cluster.apply([binding, queues::agent_cluster("worker")]).await.unwrap();
        assert!(switchyard(&["clusters"]).await.unwrap().contains("worker    agent   no"));
        assert!(switchyard(&["status", "-A"]).await.unwrap().contains("No queued jobs."));
        let refused = switchyard(&["cluster", "join-token", "worker"]).await.unwrap_err();
        assert!(format!("{refused:#}").contains("secrets \"switchyard-hub-ca\" is forbidden"), "{refused:#}");
    });
}
