//! What `deploy/` ships is accepted by a real API server.

use std::time::Instant;

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
