//! Composes a workload's ProvisioningRequest and its PodTemplates. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::OwnerReference};
use kube::{Resource, ResourceExt as _, api::ObjectMeta};
use serde_json::{Value, json};
use switchyard_api::{
    autoscaling::{
        PodTemplateReference, ProvisioningRequest, ProvisioningRequestSpec, RequestedPods,
    },
    names,
    quantity::Exact,
    v1beta2::{
        PodSet, PodSetAssignment, PodSetMergePolicy, ProvisioningRequestConfigSpec, ResourceFlavor,
        Workload,
    },
};
use switchyard_jobs::{JobError, PodSetInfo, meta};

use super::request_name;
use switchyard_platform::object::Object;

/// Pods requested by one template: a pod set, and all pod sets merged into it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestedPodSet<'a> {
    pub(super) pod_set: &'a PodSet,
    assignment: &'a PodSetAssignment,
    pub(super) count: i32,
}

/// A request to create. The templates come first and belong to the workload until the request
/// exists.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NewRequest {
    pub(super) check: String,
    pub(super) templates: Vec<Object>,
    pub(super) request: ProvisioningRequest,
}

/// Pods that a workload with quota needs nodes for. Empty if none of its pods uses a managed
/// resource or none was admitted. `None` if the assignment does not match the pod sets.
pub(super) fn requested_pod_sets<'a>(
    subject: &'a Workload,
    config: &ProvisioningRequestConfigSpec,
) -> Option<Vec<RequestedPodSet<'a>>> {
    let assignments = &subject.status.as_ref()?.admission.as_ref()?.pod_set_assignments;
    let mut all: Vec<RequestedPodSet<'a>> = Vec::new();
    for pod_set in &subject.spec.pod_sets {
        if pod_set.count <= 0 || !uses(pod_set, &config.managed_resources) {
            continue;
        }
        let assignment = assignments.iter().find(|it| it.name == pod_set.name)?;
        let count = assignment.count.unwrap_or(pod_set.count);
        if count <= 0 {
            continue;
        }
        let same = |it: &&mut RequestedPodSet<'_>| {
            config.pod_set_merge_policy.is_some_and(|policy| are_alike(it.pod_set, pod_set, policy))
        };
        match all.iter_mut().find(same) {
            Some(known) => known.count = known.count.saturating_add(count),
            None => all.push(RequestedPodSet { pod_set, assignment, count }),
        }
    }
    Some(all)
}

/// Whether a request matches the configuration. Parameters from the job's annotations take
/// precedence.
pub(super) fn is_current(
    request: &ProvisioningRequest,
    subject: &Workload,
    config: &ProvisioningRequestConfigSpec,
) -> bool {
    let wanted = parameters(subject, config);
    let same = |name: &String| request.spec.parameters.get(name) == wanted.get(name);
    request.spec.provisioning_class_name == config.provisioning_class_name
        && config.parameters.keys().all(same)
}

fn parameters(
    subject: &Workload,
    config: &ProvisioningRequestConfigSpec,
) -> BTreeMap<String, String> {
    let mut parameters = config.parameters.clone();
    for (key, value) in subject.annotations() {
        if let Some(name) = key.strip_prefix(names::PROVISIONING_REQUEST_PREFIX) {
            parameters.insert(name.to_owned(), value.clone());
        }
    }
    parameters
}

/// The request of one attempt for a check, with its templates.
///
/// # Errors
/// If a template cannot be composed: the message for the user.
pub(super) fn compose(
    subject: &Workload,
    check: &str,
    attempt: i32,
    config: &ProvisioningRequestConfigSpec,
    asked: &[RequestedPodSet<'_>],
    flavors: &BTreeMap<String, Arc<ResourceFlavor>>,
) -> Result<NewRequest, String> {
    let name = request_name::request(&subject.name_any(), check, attempt);
    let mut pod_sets = Vec::with_capacity(asked.len());
    let mut templates = Vec::with_capacity(asked.len());
    for pods in asked {
        let template = request_name::template(&name, &pods.pod_set.name);
        let made = pod_template(subject, &template, pods, flavors);
        templates.push(
            made.map_err(|error| format!("Error creating PodTemplate {template:?}: {error}"))?,
        );
        pod_sets.push(RequestedPods {
            pod_template_ref: PodTemplateReference { name: template },
            count: pods.count,
        });
    }
    let provisioning_class_name = config.provisioning_class_name.clone();
    let spec = ProvisioningRequestSpec {
        pod_sets,
        provisioning_class_name,
        parameters: parameters(subject, config),
    };
    let request = ProvisioningRequest { metadata: metadata(subject, &name), spec, status: None };
    Ok(NewRequest { check: check.to_owned(), templates, request })
}

fn metadata(subject: &Workload, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: subject.namespace(),
        labels: Some(BTreeMap::from([(names::MANAGED.to_owned(), "true".to_owned())])),
        owner_references: controller(subject).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// An owner reference to `owner` as controller.
pub(super) fn controller<K: Resource<DynamicType = ()>>(owner: &K) -> Option<OwnerReference> {
    owner
        .controller_owner_ref(&())
        .map(|it| OwnerReference { block_owner_deletion: Some(true), ..it })
}

fn pod_template(
    subject: &Workload,
    name: &str,
    pods: &RequestedPodSet<'_>,
    flavors: &BTreeMap<String, Arc<ResourceFlavor>>,
) -> Result<Object, Box<dyn std::error::Error>> {
    let flavor = |name: &str| flavors.get(name).map(Arc::as_ref);
    let mut template = pods.pod_set.template.value().into_owned();
    let info = PodSetInfo::of_flavors(pods.assignment, Some(pods.pod_set), &flavor)?;
    info.merge_into(&mut template).map_err(|error: JobError| error)?;
    limits_as_missing_requests(&mut template);
    Ok(Object::new(json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata(subject, name), "template": template,
    }))?)
}

/// The autoscaler counts requests only.
fn limits_as_missing_requests(template: &mut Value) {
    let Some(spec) = template.get_mut("spec") else { return };
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(fill_requests);
    }
    fill_requests(spec);
}

fn fill_requests(of: &mut Value) {
    let Some(limits) = of.pointer("/resources/limits").and_then(Value::as_object).cloned() else {
        return;
    };
    let Some(requests) = meta::object_mut(of, &["resources", "requests"]) else { return };
    for (resource, limit) in limits {
        requests.entry(resource).or_insert(limit);
    }
}

/// Whether a container names one of the resources. True if `resources` is empty.
fn uses(pod_set: &PodSet, resources: &[String]) -> bool {
    let names = |container: &Value| {
        let named = ["requests", "limits"]
            .into_iter()
            .filter_map(|kind| container.get("resources")?.get(kind));
        let mut named = named.filter_map(Value::as_object).flatten();
        named.any(|(resource, _)| resources.contains(resource))
    };
    resources.is_empty()
        || containers(&pod_set.template.value()).any(|(_, container)| names(container))
}

/// Containers of a pod template, each with the name of its list.
fn containers(template: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    ["initContainers", "containers"].into_iter().flat_map(|list| {
        let containers =
            template.get("spec").and_then(|spec| spec.get(list)).and_then(Value::as_array);
        containers.into_iter().flatten().map(move |container| (list, container))
    })
}

fn are_alike(one: &PodSet, other: &PodSet, policy: PodSetMergePolicy) -> bool {
    match policy {
        PodSetMergePolicy::IdenticalPodTemplates => one.template == other.template,
        PodSetMergePolicy::IdenticalWorkloadSchedulingRequirements => {
            let fields = ["resources", "nodeSelector", "tolerations", "affinity", "resourceClaims"];
            let (one, other) = (one.template.value(), other.template.value());
            let same = |field: &str| {
                let [one, other] =
                    [&one, &other].map(|it| it.get("spec").and_then(|spec| spec.get(field)));
                one.filter(|value| !is_empty(value)) == other.filter(|value| !is_empty(value))
            };
            requests(&one) == requests(&other) && fields.into_iter().all(same)
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null()
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(|map| map.is_empty())
}

/// Requests of each container, init containers kept apart.
fn requests(template: &Value) -> Vec<(&'static str, Requests)> {
    let of = |container: &Value| -> Requests {
        let requests = container.pointer("/resources/requests").and_then(Value::as_object);
        requests
            .into_iter()
            .flatten()
            .map(|(resource, amount)| (resource.clone(), requested(amount)))
            .collect()
    };
    containers(template).map(|(list, container)| (list, of(container))).collect()
}

type Requests = BTreeMap<String, RequestedAmount>;

/// Compares by amount, so that `1` equals `1000m`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RequestedAmount {
    Amount(i128),
    Other(String),
}

fn requested(amount: &Value) -> RequestedAmount {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    Exact::try_from(&Quantity(text.clone()))
        .map_or(RequestedAmount::Other(text), |exact| RequestedAmount::Amount(exact.nanos()))
}
