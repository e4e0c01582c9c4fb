use switchyard_jobs::Grouped as _;

use super::*;

#[test]
fn payload_has_the_spec_and_no_fields_of_the_hub() {
    let workload: Workload = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": "job-a-12345", "namespace": "ns", "uid": "u", "resourceVersion": "1", "finalizers": ["x/y"],
            "labels": {"kueue.x-k8s.io/job-uid": "j", "team": "t"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": true}],
        },
        "spec": {"queueName": "lq", "podSets": [], "preemptionGates": [{"name": "example.com/gate"}]},
        "status": {"clusterName": "east"},
    }))
    .unwrap();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "a", "namespace": "ns", "uid": "j", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "template": {}},
        "status": {"active": 1},
    });
    let owned = sent_owner(&workload).unwrap();
    assert_eq!(owned.name, "a");
    let content = encode_payload(&workload, None, owned.kind, &job, "multikueue").unwrap();
    let copy: Value = serde_json::from_slice(&content.workload).unwrap();
    assert_eq!(
        copy["metadata"],
        json!({"name": "job-a-12345", "namespace": "ns", "labels": {"team": "t"}, "annotations": {}})
    );
    assert_eq!(copy["spec"]["queueName"], "lq");
    assert_eq!(copy["spec"].get("preemptionGates"), None, "they are this cluster's");
    assert!(copy.get("status").is_none());
    let job: Value = serde_json::from_slice(&content.job).unwrap();
    assert_eq!(job.pointer("/spec/managedBy"), None);
    assert_eq!(
        job.pointer("/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name"),
        Some(&json!("job-a-12345"))
    );
}

#[test]
fn job_is_sent_with_its_reserved_pod_count() {
    let pod_set = json!({"name": "main", "count": 6, "minCount": 1, "template": {"spec": {"containers": []}}});
    let assignment = json!({"name": "main", "count": 2});
    let workload: Workload = serde_json::from_value(json!({
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"podSets": [pod_set]},
        "status": {
            "conditions": [{
                "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "2026-11-21T10:00:00Z",
            }],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        },
    }))
    .unwrap();
    let annotations = json!({names::JOB_MIN_PARALLELISM: "1"});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "a", "namespace": "ns", "annotations": annotations},
        "spec": {"parallelism": 6, "completions": 12, "template": {"spec": {"containers": []}}},
    });
    let kind = switchyard_jobs::kind_for("batch", "Job").unwrap();
    let sized = crate::dispatcher_task::gather::sized(&workload, None);
    let content = encode_payload(&workload, sized.as_ref(), kind, &job, "multikueue").unwrap();
    let (copy, job): (Value, Value) = (
        serde_json::from_slice(&content.workload).unwrap(),
        serde_json::from_slice(&content.job).unwrap(),
    );
    assert_eq!(
        (&copy["spec"]["podSets"][0]["count"], &copy["spec"]["podSets"][0]["minCount"]),
        (&json!(2), &json!(null))
    );
    let asked = pod_sets_hash(&serde_json::to_value(&workload.spec.pod_sets).unwrap());
    assert_eq!(
        copy["metadata"]["annotations"][names::POD_SETS_HASH],
        BASE64_STANDARD.encode(asked)
    );
    assert_eq!((&job["spec"]["parallelism"], &job["spec"]["completions"]), (&json!(2), &json!(12)));
    assert_eq!(job["metadata"]["annotations"].get(names::JOB_MIN_PARALLELISM), None);
    // The copied Workload must equal the one that the worker makes of the copied job.
    assert_eq!(kind.pod_sets(&job).unwrap()[0].count, 2);
    assert_eq!(kind.pod_sets(&job).unwrap()[0].min_count, None);
}

#[test]
fn pod_group_is_sent_as_a_whole() {
    let workload = |annotations: Value| -> Workload {
        let owner =
            |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name});
        let owners = [owner("a"), owner("b")];
        let metadata = json!({"name": "g", "namespace": "ns", "annotations": annotations, "ownerReferences": owners});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap()
    };
    let names = |workload: &Workload| {
        let owned = sent_owner(workload).unwrap();
        (
            owned.name.to_owned(),
            owned.owners.iter().map(|owner| owner.name.clone()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(names(&workload(json!({}))), ("a".to_owned(), vec!["a".to_owned()]));
    let group = workload(json!({"kueue.x-k8s.io/is-group-workload": "true"}));
    assert_eq!(names(&group), ("g".to_owned(), vec!["a".to_owned(), "b".to_owned()]));
    let pod = |name: &str| {
        let labels = json!({"kueue.x-k8s.io/pod-group-name": "g"});
        let metadata = json!({"name": name, "namespace": "ns", "uid": name, "labels": labels});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}})
    };
    let job = Pod.compose(vec![pod("a"), pod("b")]);
    let content = encode_payload(&group, None, &Pod, &job, "multikueue").unwrap();
    let sent: Vec<Value> = sent_objects(serde_json::from_slice(&content.job).unwrap());
    let of = |pod: &Value| {
        let labels = &pod["metadata"]["labels"];
        (pod["metadata"]["name"].clone(), labels["kueue.x-k8s.io/prebuilt-workload-name"].clone())
    };
    assert_eq!(
        sent.iter().map(of).collect::<Vec<_>>(),
        [(json!("a"), json!("g")), (json!("b"), json!("g"))]
    );
    let with = |names: &[&str]| {
        let pods = names.iter().map(|name| pod(name)).collect();
        super::encode_payload(&group, None, &Pod, &Pod.compose(pods), "multikueue").unwrap().job
    };
    assert!(
        needs_update(&content.job, &with(&["a", "b", "c"]))
            && needs_update(&content.job, &with(&["b", "c"]))
    );
    assert!(
        !needs_update(&content.job, &with(&["a"])) && !needs_update(&content.job, &content.job)
    );
    let deleted = |name: &str| {
        let mut pod = pod(name);
        pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
        pod
    };
    let send = |pods| super::encode_payload(&group, None, &Pod, &Pod.compose(pods), "multikueue");
    assert!(send(vec![deleted("a"), pod("b")]).is_ok());
    let refused = send(vec![deleted("a"), deleted("b")]);
    assert!(
        matches!(refused, Err(PayloadError::NothingToRun)),
        "an agent takes no List without items"
    );
}

#[test]
fn pod_group_owner_is_sent_and_pods_show_the_status() {
    let workload = |version: &str, kind: &str| -> Workload {
        let owner = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "db", "uid": "u"});
        let metadata = json!({
            "name": "g", "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
            "ownerReferences": [owner("v1", "Pod"), owner(version, kind)],
        });
        serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap()
    };
    let set = workload("apps/v1", "StatefulSet");
    let (sent, shown) = (sent_owner(&set).unwrap(), status_owner(&set).unwrap());
    assert_eq!((sent.kind.id().kind, sent.name, sent.is_group), ("StatefulSet", "db", false));
    assert_eq!((shown.kind.id().kind, shown.is_group), ("Pod", true));
    let set = workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");
    assert_eq!(sent_owner(&set).map(|owned| owned.kind.id().kind), Some("LeaderWorkerSet"));
}

#[test]
fn ray_service_propagates_only_its_serve_config() {
    let service = |kind: &str, config: Value, image: &str| {
        let spec = json!({"serveConfigV2": config, "rayClusterConfig": {"image": image}});
        serde_json::to_vec(&json!({"apiVersion": "ray.io/v1", "kind": kind, "spec": spec})).unwrap()
    };
    let before = service("RayService", json!("a"), "x");
    assert!(needs_update(&before, &service("RayService", json!("b"), "x")));
    assert!(needs_update(&before, &service("RayService", Value::Null, "x")));
    assert!(!needs_update(&before, &service("RayService", json!("a"), "y")));
    assert!(!needs_update(
        &service("RayJob", json!("a"), "x"),
        &service("RayJob", json!("b"), "x")
    ));
}

#[test]
fn replica_count_propagates_for_kinds_with_a_group_each() {
    let asks = |version: &str, kind: &str, replicas: u32, image: &str| {
        let object = json!({"apiVersion": version, "kind": kind, "spec": {"replicas": replicas, "image": image}});
        object.to_string().into_bytes()
    };
    for (version, kind, follows) in [
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", true),
        ("apps/v1", "StatefulSet", false),
    ] {
        let before = asks(version, kind, 2, "a");
        for replicas in [1, 3] {
            assert_eq!(
                needs_update(&before, &asks(version, kind, replicas, "a")),
                follows,
                "{kind} {replicas}"
            );
        }
        assert!(!needs_update(&before, &asks(version, kind, 2, "b")), "{kind}: something else");
    }
}

#[test]
fn elastic_job_is_sent_with_its_reserved_size() {
    let job = |parallelism: u32| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "ns", "annotations": {names::ELASTIC_JOB: "true"}},
            "spec": {"parallelism": parallelism, "template": {"spec": {"containers": []}}},
        })
    };
    let workload = |slice: bool, count: u32| -> Workload {
        let annotations = if slice { json!({names::ELASTIC_JOB: "true"}) } else { json!({}) };
        let metadata = json!({"name": "w", "namespace": "ns", "annotations": annotations});
        let template = json!({"spec": {"containers": []}});
        let pod_sets = json!([{"name": "main", "count": count, "template": template}]);
        serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": pod_sets}}))
            .unwrap()
    };
    let kind = switchyard_jobs::kind_for("batch", "Job").unwrap();
    let sent = |slice: bool, count: u32| {
        encode_payload(&workload(slice, count), None, kind, &job(5), "multikueue").unwrap().job
    };
    let of = |job: &[u8]| {
        let job: Value = serde_json::from_slice(job).unwrap();
        (job.pointer("/spec/parallelism").cloned(), elastic::is_marked(&job))
    };
    assert_eq!(of(&sent(true, 2)), (Some(json!(2)), true), "it grows once its workload does");
    assert_eq!(of(&sent(false, 5)), (Some(json!(5)), false), "of one size there");
    assert!(
        needs_update(&sent(true, 2), &sent(true, 3))
            && needs_update(&sent(true, 3), &sent(true, 2))
    );
    assert!(
        !needs_update(&sent(true, 2), &sent(true, 2))
            && !needs_update(&sent(false, 2), &sent(false, 3))
    );
    assert!(
        has_workload_size(&workload(true, 2), &sent(true, 2))
            && has_workload_size(&workload(false, 5), b"{}")
    );
}

#[test]
fn multi_host_worker_group_keeps_size_until_quota() {
    let kind = switchyard_jobs::kind_for("ray.io", "RayCluster").unwrap();
    let template = json!({"spec": {"containers": [{"name": "c"}]}});
    let group = json!({"groupName": "g", "replicas": 3, "numOfHosts": 2, "template": template});
    let cluster = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": "a", "namespace": "ns", "annotations": {names::ELASTIC_JOB: "true"}},
        "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]},
    });
    let of_its_size = |count: u32| {
        let set =
            |name: &str, count: u32| json!({"name": name, "count": count, "template": template});
        let metadata = json!({"name": "w", "annotations": {names::ELASTIC_JOB: "true"}});
        let spec = json!({"podSets": [set("head", 1), set("g", count)]});
        let workload: Workload =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        has_workload_size(
            &workload,
            &encode_payload(&workload, None, kind, &cluster, "multikueue").unwrap().job,
        )
    };
    assert_eq!([6, 4, 3].map(of_its_size), [true, true, false]);
}

#[test]
fn external_job_managed_elsewhere_is_not_sent() {
    let kind = switchyard_jobs::external_kind("Flock.v1.example.com").unwrap();
    let managed = |by: Value| {
        require_managed_by_kueue(kind, &json!({"spec": {"managedBy": by}}))
            .map_err(|it| it.to_string())
    };
    assert_eq!(managed(json!("kueue.x-k8s.io/multikueue")), Ok(()));
    let said = managed(json!("example.com/flock")).unwrap_err();
    assert!(said.contains("\"kueue.x-k8s.io/multikueue\", not \"example.com/flock\""), "{said}");
    assert!(managed(Value::Null).is_err());
    let job = switchyard_jobs::kind_for("batch", "Job").unwrap();
    assert!(require_managed_by_kueue(job, &json!({})).is_ok());
}
