//! Requests of a workload's pods, by the rules of the cluster and of the configuration.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{LimitRange, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};
use switchyard_api::{
    devices::{Charge, Devices},
    field::Path,
    quantity::{CPU, Exact, parse},
};
use switchyard_config::{Configuration, ResourceTransformation, Resources, TransformationStrategy};
use switchyard_jobs::{
    limit_range::Violation,
    pod_requests::{RequestDefaults, RequestProblem, pod_requests},
};
use switchyard_scheduler::{Amount, Name};

use crate::stores::Stores;

const NANO: i128 = 1_000_000_000;

/// Everything besides the pod template that changes requests in one namespace.
pub(crate) struct RequestRules<'a> {
    resources: &'a Resources,
    devices: Devices<'a>,
    defaults: RequestDefaults,
    /// Overhead by the name of the RuntimeClass.
    overhead: Box<Overhead<'a>>,
}

/// Requests of one pod.
#[derive(Debug, Default)]
pub(super) struct PodRequests {
    /// The charge against quota.
    pub(super) charged: BTreeMap<Name, Amount>,
    /// The use of a node, if it differs from the charge.
    pub(super) of_pod: Option<BTreeMap<Name, Amount>>,
    /// Why the pod cannot be admitted as it is.
    pub(super) problem: Option<String>,
}

fn named(amounts: BTreeMap<String, i64>) -> BTreeMap<Name, Amount> {
    amounts
        .into_iter()
        .map(|(resource, amount)| (Name::from(resource), Amount::new(amount)))
        .collect()
}

type Overhead<'a> = dyn Fn(&str) -> Option<BTreeMap<String, Quantity>> + 'a;

impl<'a> RequestRules<'a> {
    /// The rules of a namespace.
    pub(crate) fn of(stores: &'a Stores, config: &'a Configuration, namespace: &'a str) -> Self {
        let ranges: Vec<Arc<LimitRange>> = stores.limit_ranges.in_namespace(namespace);
        let defaults = RequestDefaults::of_limit_ranges(ranges.iter().map(AsRef::as_ref));
        let overhead = |class: &str| {
            stores.runtime_classes.get("", class)?.overhead.as_ref()?.pod_fixed.clone()
        };
        let devices = Devices {
            rules: config.device_rules(),
            template: Box::new(|name| stores.claim_templates.get(namespace, name)),
            classes: Box::new(|| stores.device_classes.all()),
        };
        Self { resources: &config.resources, devices, defaults, overhead: Box::new(overhead) }
    }

    /// The requests of one pod. `pod_set` and `index` are its pod set's.
    pub(super) fn requests(&self, pod: &PodSpec, pod_set: &str, index: usize) -> PodRequests {
        let path = Path::new("spec").child("podSets").index(index).child("template").child("spec");
        let charge =
            match self.devices.charge(pod, &self.defaults.containers.requests, pod_set, &path) {
                Ok(charge) => charge,
                Err(problem) => {
                    return PodRequests { problem: Some(problem), ..PodRequests::default() };
                }
            };
        let (asked, problem) = self.asked(pod, index);
        let of_pod = self.changes(&charge).then(|| named(asked.clone()));
        let mut amounts = transformed(asked, &charge.replaced, &self.resources.transformations);
        // Excluded resources may still be inputs and multipliers of transformations.
        amounts.retain(|resource, _| {
            !self
                .resources
                .exclude_resource_prefixes
                .iter()
                .any(|prefix| resource.starts_with(prefix))
        });
        for (resource, amount) in charge.amounts {
            let sum = amounts.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
        let charged = named(amounts);
        PodRequests { of_pod: of_pod.filter(|of_pod| *of_pod != charged), charged, problem }
    }

    /// Whether the charge may differ from the pod's requests.
    fn changes(&self, charge: &Charge) -> bool {
        let Resources { transformations, exclude_resource_prefixes, .. } = self.resources;
        let by_configuration = !transformations.is_empty() || !exclude_resource_prefixes.is_empty();
        by_configuration || !charge.amounts.is_empty() || !charge.replaced.is_empty()
    }

    /// The pod's requests with the API server's defaults.
    fn asked(&self, pod: &PodSpec, index: usize) -> (BTreeMap<String, i64>, Option<String>) {
        let mut defaults = self.defaults.clone();
        defaults.overhead = pod.runtime_class_name.as_deref().and_then(&self.overhead);
        let field = |rest: &str| format!("spec.podSets[{index}].template.spec.{rest}");
        match pod_requests(pod, &defaults) {
            Ok(amounts) => (amounts, None),
            // The workload waits with this reason and charges nothing.
            Err(problem) => (BTreeMap::new(), Some(words(&problem, field))),
        }
    }
}

fn words(problem: &RequestProblem, field: impl Fn(&str) -> String) -> String {
    let place = match problem {
        RequestProblem::Quantity { field, .. } | RequestProblem::ExceedsLimits { field, .. } => {
            field
        }
        RequestProblem::LimitRange { violations } => {
            let at = |place: &str| field(place).trim_end_matches('.').to_owned();
            let placed = violations
                .iter()
                .map(|found| Violation { field: at(&found.field), ..found.clone() });
            let problem = RequestProblem::LimitRange { violations: placed.collect() };
            return format!("resources didn't satisfy LimitRange constraints: {problem}");
        }
    };
    let said = problem.to_string();
    let rest = said.strip_prefix(place.as_str()).unwrap_or(&said);
    format!("resources validation failed: {}{rest}", field(place))
}

/// Applies the transformations of the configuration. Inputs become outputs, and outputs of several
/// inputs add up. Negative results count as zero. Devices that replace a resource are inputs under
/// its name and disappear. Overhead and outputs of the same name stay.
fn transformed(
    amounts: BTreeMap<String, i64>,
    replaced: &BTreeMap<String, i64>,
    rules: &[ResourceTransformation],
) -> BTreeMap<String, i64> {
    let has_input = rules.iter().any(|rule| amounts.contains_key(&rule.input));
    if !has_input && replaced.is_empty() {
        return amounts;
    }
    let left = |(resource, amount): (&String, &i64)| match replaced.get(resource) {
        None => Some((resource.clone(), *amount)),
        Some(devices) if devices < amount => {
            Some((resource.clone(), amount.saturating_sub(*devices)))
        }
        Some(_) => None,
    };
    let mut kept: BTreeMap<String, i64> = amounts.iter().filter_map(left).collect();
    let mut generated: BTreeMap<String, i128> = BTreeMap::new();
    for rule in rules {
        let Some(input) = amounts.get(&rule.input) else { continue };
        let mut value = nanos(&rule.input, *input);
        if let Some(times) = amounts.get(&rule.multiply_by) {
            value = product(value, nanos(&rule.multiply_by, *times));
        }
        for (output, factor) in &rule.outputs {
            // Configuration loading has validated it.
            let factor = parse(&factor.0).map_or(0, Exact::nanos);
            let sum = generated.entry(output.clone()).or_default();
            *sum = sum.saturating_add(product(value, factor));
        }
        if rule.strategy == TransformationStrategy::Replace {
            kept.remove(&rule.input);
        }
    }
    for (output, value) in generated {
        let sum = kept.entry(output.clone()).or_default();
        *sum = sum.saturating_add(amount(&output, value.max(0)));
    }
    kept
}

/// Milli-units for cpu, base units for all others; see [`Amount`].
fn unit(resource: &str) -> i128 {
    if resource == CPU { NANO / 1000 } else { NANO }
}

fn nanos(resource: &str, amount: i64) -> i128 {
    i128::from(amount).saturating_mul(unit(resource))
}

fn amount(resource: &str, nanos: i128) -> i64 {
    let unit = unit(resource);
    i64::try_from(nanos / unit + i128::from(nanos % unit > 0)).unwrap_or(i64::MAX)
}

fn product(a: i128, b: i128) -> i128 {
    // Divides first if the product would overflow.
    a.checked_mul(b).map_or_else(|| (a / NANO).saturating_mul(b), |product| product / NANO)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchyard_api::devices::DeviceRules;

    use super::*;

    fn without_devices<'a>(
        resources: &'a Resources,
        defaults: RequestDefaults,
    ) -> RequestRules<'a> {
        let rules = DeviceRules {
            charged: true,
            extended_resources: true,
            refused_if_uncharged: true,
            mappings: &[],
        };
        let devices = Devices { rules, template: Box::new(|_| None), classes: Box::new(Vec::new) };
        RequestRules { resources, devices, defaults, overhead: Box::new(|_| None) }
    }

    fn rules(rules: serde_json::Value) -> Vec<ResourceTransformation> {
        serde_json::from_value(rules).unwrap()
    }

    #[rstest::rstest]
    #[case::without_rules(json!([]), "cpu=1500 gpu=2")]
    #[case::input_not_requested(json!([{"input": "other", "outputs": {"x": "1"}}]), "cpu=1500 gpu=2")]
    #[case::retained(json!([{"input": "gpu", "outputs": {"credits": "10"}}]), "cpu=1500 credits=20 gpu=2")]
    #[case::replaced(json!([{"input": "gpu", "strategy": "Replace", "outputs": {"credits": "0.3"}}]), "cpu=1500 credits=1")]
    #[case::into_cpu(json!([{"input": "gpu", "outputs": {"cpu": "250m"}}]), "cpu=2000 gpu=2")]
    #[case::multiplied(json!([{"input": "gpu", "multiplyBy": "cpu", "outputs": {"credits": "10"}}]), "cpu=1500 credits=30 gpu=2")]
    #[case::outputs_add_up(
        json!([{"input": "gpu", "outputs": {"credits": "10"}}, {"input": "cpu", "outputs": {"credits": "2"}}]),
        "cpu=1500 credits=23 gpu=2")]
    #[case::never_below_zero(json!([{"input": "gpu", "outputs": {"credits": "-3", "cpu": "-5"}}]), "cpu=1500 credits=0 gpu=2")]
    fn transformations(#[case] given: serde_json::Value, #[case] expected: &str) {
        let amounts = BTreeMap::from([("cpu".to_owned(), 1500), ("gpu".to_owned(), 2)]);
        let got = transformed(amounts, &BTreeMap::new(), &rules(given));
        let got: Vec<String> =
            got.iter().map(|(resource, amount)| format!("{resource}={amount}")).collect();
        assert_eq!(got.join(" "), expected);
    }

    #[rstest::rstest]
    #[case::whole_amount(json!([]), 2, "cpu=1500")]
    #[case::overhead_of_same_name_stays(json!([]), 1, "cpu=1500 gpu=1")]
    #[case::output_of_same_name_stays(json!([{"input": "cpu", "outputs": {"gpu": "2"}}]), 2, "cpu=1500 gpu=3")]
    #[case::devices_as_input(json!([{"input": "gpu", "outputs": {"credits": "10"}}]), 2, "cpu=1500 credits=20")]
    #[case::input_with_overhead(json!([{"input": "gpu", "strategy": "Replace", "outputs": {"credits": "10"}}]), 1, "cpu=1500 credits=20")]
    fn devices_replace_their_resource(
        #[case] given: serde_json::Value,
        #[case] devices: i64,
        #[case] expected: &str,
    ) {
        let amounts = BTreeMap::from([("cpu".to_owned(), 1500), ("gpu".to_owned(), 2)]);
        let got =
            transformed(amounts, &BTreeMap::from([("gpu".to_owned(), devices)]), &rules(given));
        let got: Vec<String> =
            got.iter().map(|(resource, amount)| format!("{resource}={amount}")).collect();
        assert_eq!(got.join(" "), expected);
    }

    #[test]
    fn requests_above_limits_name_their_field() {
        let resources = Resources::default();
        let rules = without_devices(&resources, RequestDefaults::default());
        let pod = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]});
        let PodRequests { charged: amounts, problem, .. } =
            rules.requests(&serde_json::from_value(pod).unwrap(), "main", 1);
        assert!(amounts.is_empty());
        insta::assert_snapshot!(problem.unwrap(), @r#"resources validation failed: spec.podSets[1].template.spec.containers[0]: Invalid value: ["cpu"]: requests must not exceed its limits"#);
    }

    #[test]
    fn limit_range_violation_names_its_field() {
        let resources = Resources::default();
        let range = json!({"spec": {"limits": [
            {"type": "Container", "max": {"cpu": "3"}}, {"type": "Pod", "max": {"cpu": "2"}},
        ]}});
        let range: LimitRange = serde_json::from_value(range).unwrap();
        let defaults = RequestDefaults::of_limit_ranges([&range]);
        let rules = without_devices(&resources, defaults);
        let said = |cpu: &str| {
            let pod =
                json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
            rules
                .requests(&serde_json::from_value(pod).unwrap(), "main", 0)
                .problem
                .unwrap_or_default()
        };
        assert_eq!(said("1"), "");
        insta::assert_snapshot!(said("3"), @r#"resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec: Invalid value: ["cpu"]: requests must not be above the limitRange max"#);
        insta::assert_snapshot!(said("4"), @r#"resources didn't satisfy LimitRange constraints: [spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max, spec.podSets[0].template.spec: Invalid value: ["cpu"]: requests must not be above the limitRange max]"#);
    }

    #[test]
    fn runtime_class_overhead_counts() {
        let resources = Resources {
            exclude_resource_prefixes: vec!["example.com/".into()],
            ..Resources::default()
        };
        let overhead = |class: &str| {
            (class == "kata").then(|| serde_json::from_value(json!({"cpu": "100m"})).unwrap())
        };
        let overhead = Box::new(overhead);
        let rules =
            RequestRules { overhead, ..without_devices(&resources, RequestDefaults::default()) };
        let pod = json!({"runtimeClassName": "kata", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "example.com/x": "1"}}}]});
        let PodRequests { charged: amounts, problem, .. } =
            rules.requests(&serde_json::from_value(pod).unwrap(), "main", 0);
        assert_eq!(problem, None);
        assert_eq!(
            amounts.into_iter().map(|(r, a)| format!("{r}={a}")).collect::<Vec<_>>(),
            ["cpu=2100"]
        );
    }

    #[rstest::rstest]
    #[case::excluded_input(json!([{"input": "x.com/gpu", "strategy": "Replace", "outputs": {"credits": "10"}}]), "cpu=2000 credits=20")]
    #[case::excluded_retained_input(json!([{"input": "x.com/gpu", "outputs": {"credits": "10"}}]), "cpu=2000 credits=20")]
    #[case::excluded_multiplier(json!([{"input": "cpu", "multiplyBy": "x.com/gpu", "outputs": {"credits": "1"}}]), "cpu=2000 credits=4")]
    #[case::excluded_output(json!([{"input": "cpu", "outputs": {"x.com/credits": "1"}}]), "cpu=2000")]
    fn prefixes_are_excluded_after_transformations(
        #[case] rules: serde_json::Value,
        #[case] expected: &str,
    ) {
        let resources = json!({"excludeResourcePrefixes": ["x.com/"], "transformations": rules});
        let resources: Resources = serde_json::from_value(resources).unwrap();
        let pod = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "x.com/gpu": "2"}}}]});
        let rules = without_devices(&resources, RequestDefaults::default());
        let PodRequests { charged: amounts, .. } =
            rules.requests(&serde_json::from_value(pod).unwrap(), "main", 0);
        let amounts: Vec<String> = amounts.into_iter().map(|(r, a)| format!("{r}={a}")).collect();
        assert_eq!(amounts.join(" "), expected);
    }

    #[test]
    fn devices_count_as_the_resource_of_their_class() {
        let config: Configuration = serde_json::from_value(json!({"resources": {
            "transformations": [{"input": "example.com/old", "outputs": {"credits": "10"}}],
            "deviceClassMappings": [{"name": "gpus", "deviceClassNames": ["gpu.example.com"]}],
        }}))
        .unwrap();
        let stores = Stores::default();
        let object = |metadata: serde_json::Value, spec: serde_json::Value| json!({"apiVersion": "resource.k8s.io/v1", "metadata": metadata, "spec": spec});
        let request = json!({"exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2}});
        let template = object(
            json!({"namespace": "ns", "name": "two"}),
            json!({"spec": {"devices": {"requests": [request]}}}),
        );
        let class = object(
            json!({"name": "gpu.example.com"}),
            json!({"extendedResourceName": "example.com/old"}),
        );
        stores.claim_templates.insert(serde_json::from_value(template).unwrap());
        stores.device_classes.insert(serde_json::from_value(class).unwrap());
        let asked = |namespace: &str| {
            let pod = json!({
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/old": "3"}}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "two"}],
            });
            RequestRules::of(&stores, &config, namespace).requests(
                &serde_json::from_value(pod).unwrap(),
                "main",
                0,
            )
        };
        let PodRequests { charged: amounts, problem, .. } = asked("ns");
        assert_eq!(problem, None);
        let amounts: Vec<String> = amounts.into_iter().map(|(r, a)| format!("{r}={a}")).collect();
        assert_eq!(amounts, ["cpu=1000", "credits=30", "gpus=5"]);
        let PodRequests { charged: amounts, problem, .. } = asked("other");
        assert!(amounts.is_empty());
        insta::assert_snapshot!(problem.unwrap(), @r#"spec.podSets[0].template.spec.resourceClaims[0]: Internal error: failed to get claim spec for ResourceClaimTemplate two in podset main: ResourceClaimTemplate.resource.k8s.io "two" not found"#);
    }
}
