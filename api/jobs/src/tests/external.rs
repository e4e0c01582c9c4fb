//! External frameworks.

use super::*;

const PIPELINE: &str = "PipelineRun.v1.tekton.example.com";

fn pipeline() -> (&'static dyn JobKind, Value) {
    let job = json!({
        "apiVersion": "tekton.example.com/v1", "kind": "PipelineRun",
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", "ownerReferences": [{"uid": "o"}],
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {"managedBy": "kueue.x-k8s.io/multikueue", "params": [1]},
        "data": {"kept": true},
        "status": {"old": 1},
    });
    (external_kind(PIPELINE).unwrap(), job)
}

#[test]
fn external_kind_is_found_like_a_built_in_one() {
    let (kind, _) = pipeline();
    let id = kind.id();
    assert_eq!((id.group, id.version, id.kind), ("tekton.example.com", "v1", "PipelineRun"));
    assert_eq!((id.plural, id.framework), ("pipelineruns", PIPELINE));
    assert_eq!(external_kind(PIPELINE).unwrap().id(), id);
    assert_eq!(kind_of_owner("tekton.example.com/v1", "PipelineRun").unwrap().id(), id);
    assert!(kind_of_owner("other.example.com/v1", "PipelineRun").is_none());
    assert!(kinds().iter().all(|kind| kind.id() != id), "the table holds what is built in");
}

#[test]
fn built_in_or_malformed_name_is_no_external_kind() {
    for name in [
        "Job.v1.batch",
        "JobSet.v1alpha2.jobset.x-k8s.io",
        "Foo",
        "Foo.v1",
        "Foo..example.com",
        "foo.example.com/bar",
        "",
    ] {
        assert!(external_kind(name).is_none(), "{name}");
    }
}

#[test]
fn external_frameworks_are_enabled_with_built_in_ones() {
    let frameworks = ["batch/job", PIPELINE, "Job.v1.batch"].map(str::to_owned);
    let enabled: Vec<&str> = enabled_kinds(&frameworks).iter().map(|kind| kind.id().kind).collect();
    assert_eq!(enabled, ["Job", "PipelineRun"]);
}

#[test]
fn external_copy_is_the_object_without_local_fields() {
    let (kind, job) = pipeline();
    let copy =
        kind.remote().unwrap().remote_copy(&job, RemoteMeta { workload: "w", origin: "hub" });
    let want = json!({
        "apiVersion": "tekton.example.com/v1", "kind": "PipelineRun",
        "metadata": {
            "name": "p", "namespace": "ns",
            "labels": {
                "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/multikueue-origin": "hub",
                "kueue.x-k8s.io/prebuilt-workload-name": "w",
            },
        },
        "spec": {"params": [1]},
        "data": {"kept": true},
    });
    assert_eq!(copy, want);
}

#[test]
fn external_status_is_mirrored_and_reset() {
    let (kind, job) = pipeline();
    let remote = json!({"status": {"new": [1]}});
    assert_eq!(kind.mirror_status(&job, &remote), Some(json!({"new": [1]})));
    assert_eq!(kind.mirror_status(&job, &json!({"status": {"old": 1}})), None);
    assert_eq!(kind.mirror_status(&job, &json!({})), None);
    assert_eq!(kind.reset_status(&job, Timestamp::UNIX_EPOCH), Some(json!({})));
}

#[test]
fn nothing_in_it_is_ever_changed() {
    let (kind, job) = pipeline();
    let mut touched = job.clone();
    kind.suspend(&mut touched);
    kind.run(&mut touched, &[]).unwrap();
    assert!(!kind.restore(&mut touched, &[]));
    assert_eq!((touched, kind.stop(&job, Some(&[]))), (job.clone(), Stop::Done));
    assert!(
        !kind.can_default_managed_by(&job) && !kind.makes_workloads() && !kind.reports_completion()
    );
    assert!(kind.pod_sets(&job).unwrap_err().to_string().contains("external framework"));
}
