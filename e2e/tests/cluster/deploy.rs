//! What `deploy/` ships is accepted by a real API server.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser as _;
use serde_json::{Value, json};
use switchyard_e2e::{ClusterSpec, Environment, Part, Parts, fixture, paths, queues};

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
            switchyard::run(args, &mut out).await.map(|_| String::from_utf8(out).unwrap())
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

/// The ClusterRoles of some files, by name, with what their labels and rules say.
fn cluster_roles(files: impl IntoIterator<Item = PathBuf>) -> BTreeMap<String, Value> {
    let objects = files.into_iter().flat_map(|file| {
        let objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(file).unwrap()).unwrap();
        objects.into_iter().filter(|object| object["kind"] == "ClusterRole")
    });
    let said = |role: &Value| {
        let mut rules = role["rules"].as_array().cloned().unwrap_or_default();
        rules.sort_by_key(Value::to_string);
        json!({"labels": role["metadata"]["labels"], "rules": rules, "aggregated": role["aggregationRule"]})
    };
    objects.map(|role| (role["metadata"]["name"].as_str().unwrap().to_owned(), said(&role))).collect()
}

#[test]
fn people_have_kueues_roles() {
    let kueue = Parts::new().unwrap().own_source_dir(Part::Kueue).unwrap().join("config/components/rbac");
    let ours = ["people", "people-jobs"].map(|stem| paths::root().join(format!("deploy/rbac/{stem}.yaml")));
    let ours = cluster_roles(ours);
    let theirs = cluster_roles(
        fs::read_dir(kueue)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml")),
    );
    // Its manager's own.
    let people = theirs.iter().filter(|(name, _)| !name.starts_with("manager-") && *name != "metrics-auth-role");
    let mut compared = 0;
    for (name, role) in people {
        assert_eq!(ours.get(&format!("kueue-{name}")), Some(role), "{name}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}
