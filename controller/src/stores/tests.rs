use kube::Client;
use serde_json::json;
use switchyard_api::names;
use switchyard_jobs::kind_for;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;

#[test]
fn job_is_read_with_the_objects_its_pods_depend_on() {
    let mut config = Configuration::default();
    config.integrations.frameworks = vec!["trainer.kubeflow.org/trainjob".to_owned()];
    let stores = Stores::new(&config);
    let kinds: Vec<&str> = stores.dependencies.iter().map(|it| it.resource.kind.as_str()).collect();
    assert_eq!(kinds, ["ClusterTrainingRuntime", "TrainingRuntime"]);

    let kind = kind_for("trainer.kubeflow.org", "TrainJob").unwrap();
    let job = Arc::new(
        Object::new(json!({
            "metadata": {"name": "a", "namespace": "ns"},
            "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}},
        }))
        .unwrap(),
    );
    assert!(kind.pod_sets(&stores.attached(kind, job.clone()).value()).is_err());
    let template = json!({"spec": {"containers": []}});
    let node = json!({"name": "node", "template": {"spec": {"template": template}}});
    let runtime = json!({
        "metadata": {"name": "torch", "namespace": "ns"},
        "spec": {"template": {"spec": {"replicatedJobs": [node]}}},
    });
    stores.dependencies[1].store.insert(Object::new(runtime).unwrap());
    assert_eq!(kind.pod_sets(&stores.attached(kind, job.clone()).value()).unwrap().len(), 1);
    assert!(kind.pod_sets(&job.value()).is_err(), "what is stored stays as it is");
}

#[test]
fn shared_dependency_is_watched_once() {
    let stores = |frameworks: &[&str]| {
        let mut config = Configuration::default();
        config.integrations.frameworks = frameworks.iter().map(|it| (*it).to_owned()).collect();
        Stores::new(&config)
    };
    let kind = kind_for("ray.io", "RayJob").unwrap();
    let cluster = |replicas: i32| {
        let group = json!({"groupName": "g", "replicas": replicas, "template": {"spec": {"containers": []}}});
        json!({"enableInTreeAutoscaling": true, "headGroupSpec": {"template": {"spec": {"containers": []}}}, "workerGroupSpecs": [group]})
    };
    let job = json!({
        "metadata": {"name": "a", "namespace": "ns", "annotations": {names::ELASTIC_JOB: "true"}},
        "spec": {"submissionMode": "HTTPMode", "rayClusterSpec": cluster(1)}, "status": {"rayClusterName": "made"},
    });
    let made = json!({"metadata": {"name": "made", "namespace": "ns"}, "spec": cluster(4)});
    for (frameworks, dependencies) in [
        (&["ray.io/rayjob", "ray.io/rayservice"][..], 1),
        (&["ray.io/rayjob", "ray.io/rayservice", "ray.io/raycluster"], 0),
    ] {
        let stores = stores(frameworks);
        assert_eq!(stores.dependencies.len(), dependencies);
        let watched = stores.watched("ray.io", "RayCluster").unwrap();
        watched.store.insert(Object::new(made.clone()).unwrap());
        let attached = stores.attached(kind, Arc::new(Object::new(job.clone()).unwrap()));
        assert_eq!(kind.pod_sets(&attached.value()).unwrap()[1].count, 4);
    }
}

#[tokio::test]
async fn devices_that_are_not_charged_are_not_watched() {
    for (sentence, off, ready) in [
        ("all are charged", &[][..], [false, false]),
        (
            "those of extended resources are not",
            &["KueueDRAIntegrationExtendedResource"],
            [false, true],
        ),
        ("none is", &["KueueDRAIntegration"], [true, true]),
    ] {
        let mut config = Configuration::default();
        config.feature_gates = off.iter().map(|gate| ((*gate).to_owned(), false)).collect();
        let silent = tower::service_fn(|_: axum::http::Request<kube::client::Body>| {
            std::future::pending::<
                Result<axum::http::Response<kube::client::Body>, std::convert::Infallible>,
            >()
        });
        let (stores, shutdown, mut tasks) =
            (Stores::new(&config), CancellationToken::new(), JoinSet::new());
        stores.watch_devices(&Client::new(silent, "default"), &config, &mut tasks, &shutdown);
        assert_eq!(
            [stores.claim_templates.is_ready(), stores.device_classes.is_ready()],
            ready,
            "{sentence}"
        );
        assert_eq!(tasks.len(), ready.iter().filter(|ready| !**ready).count(), "{sentence}");
        shutdown.cancel();
    }
}

#[test]
fn external_frameworks_are_watched() {
    let mut config = Configuration::default();
    config.integrations.external_frameworks = vec!["Flock.v1.birds.example.com".to_owned()];
    let stores = Stores::new(&config);
    let resource = &stores.job("birds.example.com", "Flock").unwrap().resource;
    assert_eq!((resource.version.as_str(), resource.plural.as_str()), ("v1", "flocks"));
}
