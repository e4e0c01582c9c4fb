//! The charge for one pod's devices.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Container, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{DeviceClass, DeviceRequest, DeviceRules, ResourceClaimTemplate, class_for};
use crate::{
    field::{FieldError, Path},
    pod_peak::{ContainerField, containers_of, peak},
    quantity::{CPU, Exact},
};

const NANO: i128 = 1_000_000_000;

const GATE_OFF: &str =
    "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled";
const CLAIMS: &str = "KueueDRAIntegration feature does not support use of resource claims";

/// The charge for the devices of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Amounts by resource, in addition to the pod's other requests.
    pub amounts: BTreeMap<String, i64>,
    /// Requests of containers for extended resources that `amounts` replaces. Overhead of the same
    /// name is not replaced.
    pub replaced: BTreeMap<String, i64>,
}

impl Charge {
    fn add(&mut self, resource: &str, devices: i64) {
        let unit = if resource == CPU { 1000 } else { 1 };
        let amount = self.amounts.entry(resource.to_owned()).or_default();
        *amount = amount.saturating_add(devices.saturating_mul(unit));
    }
}

/// Finds a ResourceClaimTemplate by its name.
pub type FindTemplate<'a> = dyn Fn(&str) -> Option<Arc<ResourceClaimTemplate>> + 'a;
/// Lists all DeviceClasses.
pub type ListClasses<'a> = dyn Fn() -> Vec<Arc<DeviceClass>> + 'a;

/// The device objects of a cluster, as seen from one namespace.
pub struct Devices<'a> {
    /// Rules from the configuration.
    pub rules: DeviceRules<'a>,
    /// The namespace's ResourceClaimTemplates by name.
    pub template: Box<FindTemplate<'a>>,
    /// All DeviceClasses.
    pub classes: Box<ListClasses<'a>>,
}

impl Devices<'_> {
    /// The charge for one pod of a pod set. `defaults` are the requests that LimitRanges give
    /// containers. `path` is the path of the pod's spec in its Workload.
    ///
    /// # Errors
    /// In Kueue's words, why the charge is unknown. The Workload has to wait.
    pub fn charge(
        &self,
        pod: &PodSpec,
        defaults: &BTreeMap<String, Quantity>,
        pod_set: &str,
        path: &Path,
    ) -> Result<Charge, String> {
        let mut charge = Charge::default();
        let claims = pod.resource_claims.as_deref().unwrap_or_default();
        let templates = || claims.iter().map(|claim| claim.resource_claim_template_name.as_deref());
        let single = claims.iter().any(|claim| claim.resource_claim_name.is_some());
        if !self.rules.charged {
            let refused = self.rules.refused_if_uncharged
                && (single || templates().any(|name| name.is_some()));
            return if refused { Err(GATE_OFF.to_owned()) } else { Ok(charge) };
        }
        if single {
            return Err(CLAIMS.to_owned());
        }
        let words = |error: FieldError| error.to_string();
        for (index, template) in
            templates().enumerate().filter_map(|(index, name)| Some((index, name?)))
        {
            self.claim(template, pod_set, &path.child("resourceClaims").index(index), &mut charge)
                .map_err(words)?;
        }
        if self.rules.extended_resources {
            self.extended(pod, defaults, path, &mut charge).map_err(words)?;
        }
        Ok(charge)
    }

    fn claim(
        &self,
        template: &str,
        pod_set: &str,
        path: &Path,
        charge: &mut Charge,
    ) -> Result<(), FieldError> {
        let Some(found) = (self.template)(template) else {
            let what = format!(
                "failed to get claim spec for ResourceClaimTemplate {template} in podset {pod_set}"
            );
            let why = format!("ResourceClaimTemplate.resource.k8s.io {template:?} not found");
            return Err(FieldError::new(path, format!("Internal error: {what}: {why}")));
        };
        for (index, request) in found.spec.spec.devices.requests.iter().enumerate() {
            let (class, count) =
                counted(request, template, &path.child("devices").child("requests").index(index))?;
            let Some(resource) = self.rules.resource(class) else {
                let what = format!(
                    "DeviceClass {class} is not mapped in DRA configuration for podset {pod_set}"
                );
                return Err(FieldError::not_found(&path.child("resourceClaimTemplateName"), what));
            };
            charge.add(resource, count);
        }
        Ok(())
    }

    /// The charge for extended resources that a DeviceClass replaces with devices.
    fn extended(
        &self,
        pod: &PodSpec,
        defaults: &BTreeMap<String, Quantity>,
        path: &Path,
        charge: &mut Charge,
    ) -> Result<(), FieldError> {
        let requests_of = |container, field| asked(container, field, defaults, path);
        let names: BTreeSet<&str> = containers_of(pod)
            .flat_map(|(field, container)| requests_of(container, field))
            .map(|asked| asked.resource)
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let classes = (self.classes)();
        for resource in names {
            let Some(class) = class_for(&classes, resource) else { continue };
            let devices = peak(pod, |container, field| {
                let mut asked = requests_of(container, field);
                asked.find(|asked| asked.resource == resource).map_or(Ok(0), |it| it.devices())
            })?;
            let name = class.metadata.name.as_deref().unwrap_or_default();
            charge.add(self.rules.resource(name).unwrap_or(resource), devices);
            charge.replaced.insert(resource.to_owned(), devices);
        }
        Ok(())
    }
}

/// Class and number of devices of one request.
fn counted<'a>(
    request: &'a DeviceRequest,
    template: &str,
    path: &Path,
) -> Result<(&'a str, i64), FieldError> {
    let invalid = |path: &Path, value: &str, detail: &str| {
        FieldError::new(
            path,
            format!("Invalid value: {value}: ResourceClaimTemplate {template}: {detail}"),
        )
    };
    if request.first_available.is_some() {
        return Err(invalid(path, "null", "FirstAvailable device selection is not supported"));
    }
    let Some(exactly) = &request.exactly else {
        return Err(invalid(path, "null", "Exactly must be set if FirstAvailable is nil"));
    };
    let path = path.child("exactly");
    if exactly.admin_access == Some(true) {
        return Err(invalid(&path.child("adminAccess"), "null", "AdminAccess is not supported"));
    }
    match exactly.allocation_mode.as_str() {
        "ExactCount" => Ok((&exactly.device_class_name, exactly.count)),
        "All" => Err(invalid(
            &path.child("allocationMode"),
            "\"All\"",
            "AllocationMode 'All' is not supported",
        )),
        other => {
            let detail = format!("unsupported allocation mode: {other}");
            Err(invalid(&path.child("allocationMode"), &format!("{other:?}"), &detail))
        }
    }
}

/// A container's request for an extended resource.
struct ExtendedRequest<'a> {
    resource: &'a str,
    quantity: Exact,
    path: Path,
}

impl ExtendedRequest<'_> {
    fn devices(&self) -> Result<i64, FieldError> {
        let devices = self.quantity.value();
        if i128::from(devices) * NANO == self.quantity.nanos() {
            return Ok(devices);
        }
        Err(FieldError::invalid(
            &self.path,
            self.quantity.to_string(),
            "extended resource quantity must be an integer",
        ))
    }
}

/// A container's requests for extended resources. Without a request, the limit is the request,
/// then the LimitRange's default.
fn asked<'a>(
    container: &'a Container,
    field: ContainerField,
    defaults: &'a BTreeMap<String, Quantity>,
    pod: &Path,
) -> impl Iterator<Item = ExtendedRequest<'a>> {
    let path = pod.child(field.list).index(field.index).child("resources").child("requests");
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let lacks = |amounts: Option<&BTreeMap<String, Quantity>>, resource: &String| {
        amounts.is_none_or(|amounts| !amounts.contains_key(resource))
    };
    let own_limits =
        limits.into_iter().flatten().filter(move |(resource, _)| lacks(requests, resource));
    let filled_in =
        move |(resource, _): &(&String, _)| lacks(requests, resource) && lacks(limits, resource);
    let all =
        requests.into_iter().flatten().chain(own_limits).chain(defaults.iter().filter(filled_in));
    all.filter(|(resource, _)| is_extended(resource)).filter_map(move |(resource, quantity)| {
        // The code that adds up requests reports invalid quantities.
        let quantity = Exact::try_from(quantity).ok().filter(|quantity| quantity.sign() > 0)?;
        Some(ExtendedRequest { resource, quantity, path: path.child(resource) })
    })
}

/// Whether the name is that of an extended resource, which drivers add to nodes.
fn is_extended(resource: &str) -> bool {
    resource.contains('/')
        && !resource.starts_with("kubernetes.io/")
        && !resource.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::devices::{DeviceClassMapping, ResourceClaimTemplateSpec};

    const RULES: DeviceRules<'static> = DeviceRules {
        charged: true,
        extended_resources: true,
        refused_if_uncharged: true,
        mappings: &[],
    };

    /// Charges a pod in a cluster with the template `t` of these requests and these DeviceClasses
    /// of extended resources, created in this order.
    fn charged(
        rules: DeviceRules<'_>,
        requests: &Value,
        classes: &[(&str, &str, i64)],
        pod: &Value,
    ) -> String {
        let spec = json!({"spec": {"devices": {"requests": requests}}});
        let spec: ResourceClaimTemplateSpec = serde_json::from_value(spec).unwrap();
        let template = Arc::new(ResourceClaimTemplate::new("t", spec));
        let class = |(name, resource, second): &(&str, &str, i64)| {
            let created = jiff::Timestamp::from_second(*second).unwrap().to_string();
            Arc::new(
                serde_json::from_value(json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
                    "metadata": {"name": name, "creationTimestamp": created},
                    "spec": {"extendedResourceName": resource},
                }))
                .unwrap(),
            )
        };
        let classes: Vec<_> = classes.iter().map(class).collect();
        let found = |name: &str| (name == "t").then(|| template.clone());
        let devices = Devices {
            rules,
            template: Box::new(found),
            classes: Box::new(move || classes.clone()),
        };
        let path = Path::new("spec.podSets[0].template.spec");
        let defaults = BTreeMap::from([("c.com/gpu".to_owned(), Quantity("2".to_owned()))]);
        match devices.charge(
            &serde_json::from_value(pod.clone()).unwrap(),
            &defaults,
            "main",
            &path,
        ) {
            Err(problem) => problem,
            Ok(Charge { amounts, replaced }) => {
                let amounts =
                    amounts.into_iter().map(|(resource, amount)| format!("{resource}={amount}"));
                amounts
                    .chain(replaced.into_keys().map(|resource| format!("-{resource}")))
                    .collect::<Vec<_>>()
                    .join(" ")
            }
        }
    }

    fn mappings() -> Vec<DeviceClassMapping> {
        let mapping = |name: &str, classes: &[&str]| DeviceClassMapping {
            name: name.into(),
            device_class_names: classes.iter().map(|class| (*class).into()).collect(),
            sources: Vec::new(),
        };
        vec![mapping("gpus", &["small", "large"]), mapping("cpu", &["cores"])]
    }

    fn claims(names: &[&str]) -> Value {
        let claim = |(index, name): (usize, &&str)| json!({"name": format!("c{index}"), "resourceClaimTemplateName": name});
        json!({"containers": [], "resourceClaims": names.iter().enumerate().map(claim).collect::<Vec<_>>()})
    }

    fn exactly(class: &str, count: i64) -> Value {
        json!({"name": class, "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": count}})
    }

    fn edited(mut request: Value, field: &str, value: Value) -> Value {
        request["exactly"][field] = value;
        request
    }

    #[rstest]
    #[case::no_claims(&[], json!([]), "")]
    #[case::some_of_one_class(&["t"], json!([exactly("small", 2)]), "gpus=2")]
    #[case::of_two_classes_and_claims(&["t", "t"], json!([exactly("small", 2), exactly("large", 1)]), "gpus=6")]
    #[case::in_the_unit_of_the_resource(&["t"], json!([exactly("cores", 2)]), "cpu=2000")]
    #[case::more_than_there_can_be(&["t", "t"], json!([exactly("small", i64::MAX)]), "gpus=9223372036854775807")]
    #[case::a_template_that_is_not_there(&["x"], json!([]), "spec.podSets[0].template.spec.resourceClaims[0]: Internal error: failed to get claim spec for ResourceClaimTemplate x in podset main: ResourceClaimTemplate.resource.k8s.io \"x\" not found")]
    #[case::a_class_without_a_resource(&["t"], json!([exactly("other", 1)]), "spec.podSets[0].template.spec.resourceClaims[0].resourceClaimTemplateName: Not found: \"DeviceClass other is not mapped in DRA configuration for podset main\"")]
    #[case::a_list_to_choose_from(&["t"], json!([{"name": "a", "firstAvailable": []}]), "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Invalid value: null: ResourceClaimTemplate t: FirstAvailable device selection is not supported")]
    #[case::nothing(&["t"], json!([{"name": "a"}]), "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Invalid value: null: ResourceClaimTemplate t: Exactly must be set if FirstAvailable is nil")]
    #[case::for_an_administrator(&["t"], json!([exactly("small", 1), edited(exactly("small", 1), "adminAccess", json!(true))]), "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[1].exactly.adminAccess: Invalid value: null: ResourceClaimTemplate t: AdminAccess is not supported")]
    #[case::all_there_are(&["t"], json!([edited(exactly("small", 0), "allocationMode", json!("All"))]), "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0].exactly.allocationMode: Invalid value: \"All\": ResourceClaimTemplate t: AllocationMode 'All' is not supported")]
    #[case::another_mode(&["t"], json!([edited(exactly("small", 0), "allocationMode", json!("Some"))]), "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0].exactly.allocationMode: Invalid value: \"Some\": ResourceClaimTemplate t: unsupported allocation mode: Some")]
    fn claimed_devices(#[case] names: &[&str], #[case] requests: Value, #[case] expected: &str) {
        let mappings = mappings();
        let rules = DeviceRules { mappings: &mappings, ..RULES };
        assert_eq!(charged(rules, &requests, &[], &claims(names)), expected);
    }

    #[rstest]
    #[case::a_claim_that_pods_share(RULES, json!({"name": "c", "resourceClaimName": "shared"}), CLAIMS)]
    #[case::gate_off(DeviceRules { charged: false, ..RULES }, json!({"name": "c", "resourceClaimTemplateName": "t"}), GATE_OFF)]
    #[case::gate_off_and_a_shared_claim(DeviceRules { charged: false, ..RULES }, json!({"name": "c", "resourceClaimName": "t"}), GATE_OFF)]
    #[case::both_gates_off(DeviceRules { charged: false, refused_if_uncharged: false, ..RULES }, json!({"name": "c", "resourceClaimTemplateName": "x"}), "")]
    fn gates_and_what_is_not_charged(
        #[case] rules: DeviceRules<'_>,
        #[case] claim: Value,
        #[case] expected: &str,
    ) {
        assert_eq!(
            charged(rules, &json!([]), &[], &json!({"containers": [], "resourceClaims": [claim]})),
            expected
        );
    }

    fn pod(init: &[&str], containers: &[&str]) -> Value {
        let container = |quantity: &&str| json!({"name": "c", "resources": {"requests": {"a.com/gpu": quantity, "cpu": "1"}}});
        let of = |list: &[&str]| list.iter().map(container).collect::<Vec<_>>();
        json!({"initContainers": of(init), "containers": of(containers)})
    }

    /// Adds a sidecar before the init containers.
    fn sidecar(quantity: &str, mut pod: Value) -> Value {
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"a.com/gpu": quantity}}});
        pod["initContainers"].as_array_mut().unwrap().insert(0, sidecar);
        pod
    }

    #[rstest]
    #[case::no_class(&[], pod(&[], &["1"]), "")]
    #[case::another_resource(&[("small", "b.com/gpu", 0)], pod(&[], &["1"]), "")]
    #[case::a_class_with_a_resource_of_its_own(&[("small", "a.com/gpu", 0)], pod(&[], &["1", "2"]), "gpus=3 -a.com/gpu")]
    #[case::a_class_without(&[("other", "a.com/gpu", 0)], pod(&[], &["1", "2"]), "a.com/gpu=3 -a.com/gpu")]
    #[case::the_newest_class(&[("small", "a.com/gpu", 0), ("other", "a.com/gpu", 1)], pod(&[], &["1"]), "a.com/gpu=1 -a.com/gpu")]
    #[case::of_equally_old_ones_the_first(&[("small", "a.com/gpu", 0), ("large", "a.com/gpu", 0), ("other", "a.com/gpu", 0)], pod(&[], &["1"]), "gpus=1 -a.com/gpu")]
    #[case::init_containers_one_by_one(&[("small", "a.com/gpu", 0)], pod(&["4", "5"], &["1", "2"]), "gpus=5 -a.com/gpu")]
    #[case::sidecars_go_on_running(&[("small", "a.com/gpu", 0)], sidecar("2", pod(&[], &["1", "2"])), "gpus=5 -a.com/gpu")]
    #[case::init_containers_run_beside_sidecars(&[("small", "a.com/gpu", 0)], sidecar("2", pod(&["4"], &["1"])), "gpus=6 -a.com/gpu")]
    #[case::a_limit_is_the_request_where_there_is_none(&[("small", "a.com/gpu", 0)], json!({"containers": [{"name": "c", "resources": {"limits": {"a.com/gpu": "3"}}}]}), "gpus=3 -a.com/gpu")]
    #[case::a_limit_ranges_default_comes_last(&[("small", "c.com/gpu", 0)], json!({"containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"c.com/gpu": "1"}}}]}), "gpus=3 -c.com/gpu")]
    #[case::nothing_asked_for(&[("small", "a.com/gpu", 0)], pod(&[], &["0"]), "")]
    #[case::parts_of_a_device(&[("small", "a.com/gpu", 0)], pod(&[], &["500m", "500m"]), "spec.podSets[0].template.spec.containers[0].resources.requests.a.com/gpu: Invalid value: \"500m\": extended resource quantity must be an integer")]
    fn extended_resources(
        #[case] classes: &[(&str, &str, i64)],
        #[case] pod: Value,
        #[case] expected: &str,
    ) {
        let mappings = mappings();
        let rules = DeviceRules { mappings: &mappings, ..RULES };
        assert_eq!(charged(rules, &json!([]), classes, &pod), expected);
        assert_eq!(
            charged(DeviceRules { extended_resources: false, ..rules }, &json!([]), classes, &pod),
            ""
        );
    }
}
