//! A real API server accepts the manifests of `deploy/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser as _;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, Environment, JobBuilder, Part, Parts, fixture, paths, queues};

/// Longer than an API server takes to know of a policy.
const SOON: std::time::Duration = std::time::Duration::from_secs(60);

#[test]
fn crds_and_roles_install_and_queues_can_be_made() {
    fixture::run(async {
        let environment =
            Environment::builder("deploy").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let start = Instant::now();
        cluster.install().await.unwrap();
        cluster.install_user_roles().await.unwrap();
        println!("installed in {:.1?}", start.elapsed());
        // Applied again, as an upgrade does.
        cluster.install().await.unwrap();
        cluster.install_user_roles().await.unwrap();
        cluster
            .apply(queues::simple("default", "all", &[("cpu", "4"), ("nvidia.com/gpu", "2")]))
            .await
            .unwrap();
        let mut rest = queues::multikueue("mk", &["worker"]);
        rest.push(queues::agent_cluster("worker"));
        rest.push(queues::kubeconfig_cluster("other", "secret"));
        rest.push(queues::priority_class("high", 100));
        rest.push(
            queues::ResourceFlavor::new("a")
                .node_label("a", "b")
                .node_taint("c", "d")
                .toleration("e", "f")
                .build(),
        );
        let cq = queues::ClusterQueue::new("cq")
            .group("a", &[("cpu", "1")])
            .admission_check("mk")
            .strict_fifo();
        rest.push(cq.cohort("all").stop_policy("Hold").build());
        cluster.apply(rest).await.unwrap();
    });
}

#[test]
fn the_viewers_role_is_enough_to_see_clusters_and_jobs() {
    fixture::run(async {
        let environment =
            Environment::builder("viewer").cluster(ClusterSpec::new("one")).start().await.unwrap();
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
        assert!(
            refused.contains("the role switchyard-viewer of deploy/rbac allows it"),
            "{refused}"
        );

        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "viewers"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "switchyard-viewer"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        });
        cluster.apply([binding, queues::agent_cluster("worker")]).await.unwrap();
        // The API server takes a moment to know a binding.
        let clusters =
            eventually(SOON, "the role to be known", async || switchyard(&["clusters"]).await);
        assert!(clusters.await.unwrap().contains("worker    agent   no"));
        assert!(switchyard(&["status", "-A"]).await.unwrap().contains("No queued jobs."));
        let refused = switchyard(&["cluster", "join-token", "worker"]).await.unwrap_err();
        assert!(
            format!("{refused:#}").contains("secrets \"switchyard-hub-ca\" is forbidden"),
            "{refused:#}"
        );
    });
}

/// The ClusterRoles of some files, by name, with what their labels and rules say.
fn cluster_roles(files: impl IntoIterator<Item = PathBuf>) -> BTreeMap<String, Value> {
    let objects = files.into_iter().flat_map(|file| {
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&fs::read_to_string(file).unwrap()).unwrap();
        objects.into_iter().filter(|object| object["kind"] == "ClusterRole")
    });
    let said = |role: &Value| {
        let mut rules = role["rules"].as_array().cloned().unwrap_or_default();
        rules.sort_by_key(Value::to_string);
        json!({"labels": role["metadata"]["labels"], "rules": rules, "aggregated": role["aggregationRule"]})
    };
    objects
        .map(|role| (role["metadata"]["name"].as_str().unwrap().to_owned(), said(&role)))
        .collect()
}

#[test]
fn people_have_kueues_roles() {
    let kueue =
        Parts::new().unwrap().own_source_dir(Part::Kueue).unwrap().join("config/components/rbac");
    let ours = ["people", "people-jobs"]
        .map(|stem| paths::root().join(format!("deploy/rbac/{stem}.yaml")));
    let ours = cluster_roles(ours);
    let theirs = cluster_roles(
        fs::read_dir(kueue)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml")),
    );
    // Its manager's own.
    let people = theirs
        .iter()
        .filter(|(name, _)| !name.starts_with("manager-") && *name != "metrics-auth-role");
    let mut compared = 0;
    for (name, role) in people {
        assert_eq!(ours.get(&format!("kueue-{name}")), Some(role), "{name}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn marks_of_copies_are_written_by_the_agent_alone() {
    fixture::run(async {
        let environment =
            Environment::builder("marks").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        cluster.install().await.unwrap();
        let policy = fs::read_to_string(paths::root().join("deploy/policy/agent.yaml")).unwrap();
        cluster.apply_yaml(&policy).await.unwrap();
        let agent =
            cluster.service_account("switchyard-system", "switchyard-agent").await.unwrap().0;
        let job = |name: &str, labels: Value, annotations: Value| -> Job {
            let built = JobBuilder::new("default", name).cpu("1").suspended().build();
            let mut job: Job = serde_json::from_value(built).unwrap();
            job.metadata.labels = serde_json::from_value(labels).unwrap();
            job.metadata.annotations = serde_json::from_value(annotations).unwrap();
            job
        };
        let create = async |client: &Client, job: &Job| {
            let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
            jobs.create(&PostParams::default(), job).await.map_err(|error| error.to_string())
        };
        let none = || json!({});
        let hub_id = || json!({"switchyard.dev/hub-id": "a"});
        let refused = "are written by Switchyard's agent alone; leave";
        // The API server takes a moment to know a policy.
        eventually(SOON, "the policy to be in force", async || {
            match create(&cluster.admin, &job("early", hub_id(), none())).await {
                Err(error) if error.contains("hub-id is written by Switchyard's agent alone") => {
                    Ok(())
                }
                answer => {
                    Api::<Job>::namespaced(cluster.admin.clone(), "default")
                        .delete("early", &Default::default())
                        .await?;
                    anyhow::bail!("{answer:?}")
                }
            }
        })
        .await
        .unwrap();
        for mark in [
            "workload-uid",
            "attempt",
            "proof",
            "follows",
            "fence-after",
            "pod-sets-hash",
            "suspended",
        ] {
            let marked = job("marked", none(), json!({format!("switchyard.dev/{mark}"): "1"}));
            let error = create(&cluster.admin, &marked).await.unwrap_err();
            assert!(error.contains(refused), "{mark}: {error}");
        }
        create(&cluster.admin, &job("ordinary", json!({"team": "a"}), none())).await.unwrap();
        create(
            &cluster.admin,
            &job("held", none(), json!({"switchyard.dev/on-disconnect": "Hold"})),
        )
        .await
        .unwrap();
        create(&agent, &job("copy", hub_id(), json!({"switchyard.dev/attempt": "1"})))
            .await
            .unwrap();
        // Others may change the objects of the agent, except its marks.
        let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), "default");
        let patch = async |patch: Value| {
            jobs.patch("copy", &PatchParams::default(), &Patch::Merge(patch)).await
        };
        patch(json!({"metadata": {"labels": {"team": "a"}}})).await.unwrap();
        let error = patch(json!({"metadata": {"annotations": {"switchyard.dev/attempt": "2"}}}))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(refused), "{error}");
        // A controller's pods have the marks of their template.
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "copy", "uid": "u", "controller": true}]);
        let mut owned = job("owned", hub_id(), none());
        owned.metadata.owner_references = serde_json::from_value(owner).unwrap();
        create(&cluster.admin, &owned).await.unwrap();
    });
}
