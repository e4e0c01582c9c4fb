//! The service accounts as which the pods of an object would run, from the object to create.
//!
//! The pod sets of quota cannot serve here: they contain only resource requests. This module reads
//! every field, anywhere in the object, from which a controller or the API server could take an
//! account. Otherwise a field that one controller ignores could hide an account from this check. It
//! refuses kinds whose fields are not all known.

use std::collections::BTreeSet;

use serde_json::Value;

/// The service account of a pod that names none.
const DEFAULT: &str = "default";

/// The field of a pod's spec, and the deprecated one that the API server uses if the first is
/// unset.
const FIELDS: [&str; 2] = ["serviceAccountName", "serviceAccount"];

/// Why an object's accounts are unknown.
pub(super) type Unknown = String;

/// The accounts of an object's pods, in the object's namespace. Empty for an object without pods.
///
/// # Errors
/// The kind, or a field of this object, lets pods run as accounts that the object does not name.
pub(super) fn of(object: &Value) -> Result<BTreeSet<String>, Unknown> {
    let (group, kind) = (group(object), text(object, "kind"));
    match (group, kind) {
        ("workload.codeflare.dev", "AppWrapper") => of_wrapped(object),
        ("sparkoperator.k8s.io", "SparkApplication") => of_spark(object),
        ("ray.io", "RayCluster") => of_ray(object, "/spec"),
        ("ray.io", "RayService") => of_ray(object, "/spec/rayClusterConfig"),
        ("ray.io", "RayJob") => of_ray_job(object),
        _ if has_pod_templates(group, kind) => Ok(named_in(object.get("spec"))),
        _ if makes_no_pods(group, kind) => Ok(BTreeSet::new()),
        _ => Err(format!("of {kind} in {group:?} it is not known as which accounts its pods run")),
    }
}

/// Kinds that create pods only from the pod templates in their spec.
fn has_pod_templates(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(kind, "Pod" | "ReplicationController"),
        "apps" => matches!(kind, "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet"),
        "batch" => matches!(kind, "Job" | "CronJob"),
        "jobset.x-k8s.io" => kind == "JobSet",
        "leaderworkerset.x-k8s.io" => kind == "LeaderWorkerSet",
        "kubeflow.org" => {
            matches!(
                kind,
                "TFJob" | "PyTorchJob" | "PaddleJob" | "XGBoostJob" | "JAXJob" | "MPIJob"
            )
        }
        _ => false,
    }
}

/// Kinds beside jobs that an AppWrapper may contain.
fn makes_no_pods(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(kind, "Service" | "ConfigMap" | "Secret" | "PersistentVolumeClaim"),
        "networking.k8s.io" => matches!(kind, "Ingress" | "NetworkPolicy"),
        "policy" => kind == "PodDisruptionBudget",
        "scheduling.x-k8s.io" | "scheduling.sigs.k8s.io" | "scheduling.volcano.sh" => {
            kind == "PodGroup"
        }
        _ => false,
    }
}

fn of_wrapped(wrapper: &Value) -> Result<BTreeSet<String>, Unknown> {
    let own = wrapper.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    let mut all = BTreeSet::new();
    for (index, component) in list(wrapper, "/spec/components").iter().enumerate() {
        let at = |why: String| format!("spec.components[{index}]: {why}");
        let object = component.get("template").unwrap_or(&Value::Null);
        let namespace =
            object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        if !namespace.is_empty() && namespace != own {
            return Err(at(format!("it is in another namespace, {namespace:?}")));
        }
        all.extend(of(object).map_err(at)?);
    }
    Ok(all)
}

/// Spark configures pods partly by the operator's fields and partly by the user's.
fn of_spark(application: &Value) -> Result<BTreeSet<String>, Unknown> {
    let mut all = BTreeSet::new();
    let configuration = application.pointer("/spec/sparkConf").and_then(Value::as_object);
    let mut driver_is_named = false;
    for (key, value) in
        configuration.into_iter().flatten().filter(|(key, _)| key.starts_with("spark.kubernetes."))
    {
        if key.ends_with(".podTemplateFile")
            || key.ends_with("featureSteps")
            || key == "spark.kubernetes.namespace"
        {
            return Err(format!("spec.sparkConf[{key:?}] can give its pods any account"));
        }
        if key.to_ascii_lowercase().ends_with("serviceaccountname") {
            driver_is_named |= !key.contains(".executor.");
            all.extend(value.as_str().map(ToOwned::to_owned));
        }
    }
    for role in ["driver", "executor"] {
        let spec = application.pointer(&format!("/spec/{role}"));
        let mut accounts = BTreeSet::new();
        collect_named(spec, &mut accounts);
        // Executors without an account use the driver's.
        driver_is_named |= role == "driver" && !accounts.is_empty();
        all.extend(accounts);
    }
    if !driver_is_named {
        all.insert(DEFAULT.to_owned());
    }
    Ok(all)
}

fn of_ray(object: &Value, cluster: &str) -> Result<BTreeSet<String>, Unknown> {
    let at = |field: &str| object.pointer(&format!("{cluster}/{field}"));
    let mut head = BTreeSet::new();
    collect_named(at("headGroupSpec/template/spec"), &mut head);
    if head.is_empty() && at("enableInTreeAutoscaling").and_then(Value::as_bool).unwrap_or_default()
    {
        return Err("with enableInTreeAutoscaling KubeRay runs a head that names no account as one of the cluster's \
                    name; name one in headGroupSpec.template.spec.serviceAccountName"
            .to_owned());
    }
    Ok(named_in(object.get("spec")))
}

fn of_ray_job(job: &Value) -> Result<BTreeSet<String>, Unknown> {
    let mut all = of_ray(job, "/spec/rayClusterSpec")?;
    if job.pointer("/spec/submitterPodTemplate/spec").is_none() {
        // KubeRay's own template names none.
        all.insert(DEFAULT.to_owned());
    }
    Ok(all)
}

/// All accounts named below a value, and the default account if a pod there names none.
fn named_in(value: Option<&Value>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    collect_named(value, &mut all);
    if value.is_some_and(has_pod_without_account) {
        all.insert(DEFAULT.to_owned());
    }
    all
}

fn collect_named(value: Option<&Value>, into: &mut BTreeSet<String>) {
    let Some(value) = value else { return };
    into.extend(
        FIELDS
            .iter()
            .filter_map(|field| value.get(field)?.as_str())
            .filter(|name| !name.is_empty())
            .map(ToOwned::to_owned),
    );
    children(value).for_each(|child| collect_named(Some(child), into));
}

/// Whether a value looks like a pod spec without an account.
fn has_pod_without_account(value: &Value) -> bool {
    let is_named = FIELDS.iter().any(|field| !text(value, field).is_empty());
    value.get("containers").is_some() && !is_named || children(value).any(has_pod_without_account)
}

/// The values inside a value, without `metadata`, whose keys, such as labels, have no meaning here.
fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().into_iter().flatten();
    let fields = value.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata");
    items.chain(fields.map(|(_, field)| field))
}

fn group(object: &Value) -> &str {
    text(object, "apiVersion").split_once('/').map_or("", |(group, _)| group)
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;
    use switchyard_jobs::{JobKind, kinds};

    use super::*;

    fn pod(fields: &Value) -> Value {
        let mut spec = json!({"containers": [{"name": "main"}]});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        spec
    }

    fn object(api_version: &str, kind: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": api_version, "kind": kind, "spec": spec,
            "metadata": {"name": "a", "namespace": "ns", "labels": {"serviceAccountName": "a-label"}},
        })
    }

    fn as_robot() -> Value {
        json!({"serviceAccountName": "robot"})
    }

    fn job(fields: &Value) -> Value {
        object("batch/v1", "Job", &json!({"template": {"spec": pod(fields)}}))
    }

    fn wrapper(components: &[Value]) -> Value {
        let components: Vec<Value> = components.iter().map(|it| json!({"template": it})).collect();
        object("workload.codeflare.dev/v1beta2", "AppWrapper", &json!({"components": components}))
    }

    fn spark(fields: &Value) -> Value {
        object("sparkoperator.k8s.io/v1beta2", "SparkApplication", fields)
    }

    fn ray_job(fields: &Value) -> Value {
        let mut job = object(
            "ray.io/v1",
            "RayJob",
            &json!({"rayClusterSpec": {"headGroupSpec": {"template": {"spec": pod(&as_robot())}}}}),
        );
        job["spec"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        job
    }

    #[rstest]
    #[case::a_pod_that_names_none(object("v1", "Pod", &pod(&json!({}))), &["default"])]
    #[case::a_pod_template(job(&as_robot()), &["robot"])]
    #[case::the_older_field(job(&json!({"serviceAccount": "robot"})), &["robot"])]
    #[case::both_fields(job(&json!({"serviceAccount": "robot", "serviceAccountName": "batch"})), &["batch", "robot"])]
    #[case::an_empty_name(job(&json!({"serviceAccountName": ""})), &["default"])]
    #[case::containers_where_none_belong(
        object("batch/v1", "Job", &json!({"containers": [], "template": {"spec": pod(&as_robot())}})),
        &["default", "robot"]
    )]
    #[case::every_template_of_a_job_set(
        object("jobset.x-k8s.io/v1alpha2", "JobSet", &json!({"replicatedJobs": [
            {"template": {"spec": {"template": {"spec": pod(&json!({}))}}}},
            {"template": {"spec": {"template": {"spec": pod(&as_robot())}}}},
        ]})),
        &["default", "robot"]
    )]
    #[case::a_leader(
        object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", &json!({"leaderWorkerTemplate": {
            "leaderTemplate": {"spec": pod(&as_robot())}, "workerTemplate": {"spec": pod(&json!({}))},
        }})),
        &["default", "robot"]
    )]
    #[case::what_an_app_wrapper_holds(wrapper(&[object("v1", "Pod", &pod(&as_robot()))]), &["robot"])]
    #[case::a_component_with_no_pod_set_declared(
        wrapper(&[job(&json!({})), object("apps/v1", "DaemonSet", &json!({"template": {"spec": pod(&as_robot())}}))]),
        &["default", "robot"]
    )]
    #[case::an_app_wrapper_in_another(wrapper(&[wrapper(&[job(&as_robot())])]), &["robot"])]
    #[case::a_service_beside_a_pod(
        wrapper(&[object("v1", "Service", &json!({})), object("v1", "Pod", &pod(&as_robot()))]), &["robot"]
    )]
    #[case::spark_names_none(spark(&json!({"driver": {}, "executor": {}})), &["default"])]
    #[case::a_spark_driver(spark(&json!({"driver": {"serviceAccount": "robot"}, "executor": {}})), &["robot"])]
    #[case::a_spark_executor(
        spark(&json!({"driver": {}, "executor": {"serviceAccount": "robot"}})), &["default", "robot"]
    )]
    #[case::a_spark_template(
        spark(&json!({"driver": {"template": {"spec": pod(&as_robot())}}, "executor": {}})), &["robot"]
    )]
    #[case::spark_configuration(
        spark(&json!({
            "driver": {"serviceAccount": "batch"}, "executor": {},
            "sparkConf": {"spark.kubernetes.authenticate.executor.serviceAccountName": "robot"},
        })),
        &["batch", "robot"]
    )]
    #[case::spark_configuration_of_the_driver(
        spark(&json!({
            "driver": {}, "executor": {},
            "sparkConf": {"spark.kubernetes.authenticate.driver.serviceAccountName": "robot"},
        })),
        &["robot"]
    )]
    #[case::a_ray_job_whose_submitter_kuberay_makes_up(ray_job(&json!({})), &["default", "robot"])]
    #[case::a_ray_job_with_a_submitter(
        ray_job(&json!({"submitterPodTemplate": {"spec": pod(&as_robot())}})), &["robot"]
    )]
    fn service_accounts_are_found_in_all_templates(
        #[case] object: Value,
        #[case] accounts: &[&str],
    ) {
        let expected: BTreeSet<String> = accounts.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(of(&object), Ok(expected));
    }

    #[rstest]
    #[case::a_kind_that_is_not_known(object("argoproj.io/v1alpha1", "Workflow", &json!({})), "of Workflow in")]
    #[case::a_known_name_in_another_group(object("example.com/v1", "Job", &json!({})), "of Job in \"example.com\"")]
    #[case::a_runtime_makes_its_pods(
        object("trainer.kubeflow.org/v1alpha1", "TrainJob", &json!({})), "of TrainJob in"
    )]
    #[case::a_role_in_an_app_wrapper(
        wrapper(&[object("rbac.authorization.k8s.io/v1", "RoleBinding", &json!({}))]), "spec.components[0]: of RoleBinding"
    )]
    #[case::an_empty_component(wrapper(&[Value::Null]), "spec.components[0]")]
    #[case::a_component_in_another_namespace(
        wrapper(&[json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "kube-system"}})]),
        "another namespace, \"kube-system\""
    )]
    #[case::a_template_file_of_spark(
        spark(&json!({"sparkConf": {"spark.kubernetes.driver.podTemplateFile": "https://example.com/a.yaml"}})),
        "podTemplateFile"
    )]
    #[case::steps_of_spark(
        spark(&json!({"sparkConf": {"spark.kubernetes.driver.pod.featureSteps": "A"}})), "featureSteps"
    )]
    #[case::an_account_that_kuberay_makes(
        object("ray.io/v1", "RayCluster", &json!({
            "enableInTreeAutoscaling": true, "headGroupSpec": {"template": {"spec": pod(&json!({}))}},
        })),
        "enableInTreeAutoscaling"
    )]
    fn unknown_service_account_is_refused(#[case] object: Value, #[case] why: &str) {
        let unknown = of(&object).unwrap_err();
        assert!(unknown.contains(why), "{unknown}");
    }

    #[test]
    fn sent_kind_is_judged_unless_known_not_to_be_sendable() {
        let judged = |kind: &dyn JobKind| {
            let id = kind.id();
            let version = if id.group.is_empty() {
                id.version.to_owned()
            } else {
                format!("{}/{}", id.group, id.version)
            };
            of(&object(&version, id.kind, &json!({}))).is_ok()
        };
        let not: Vec<&str> =
            kinds().iter().filter(|kind| !judged(**kind)).map(|kind| kind.id().framework).collect();
        assert_eq!(
            not,
            ["trainer.kubeflow.org/trainjob"],
            "its pods are made of a runtime, which is another object"
        );
    }
}
