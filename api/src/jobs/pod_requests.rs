//! What one pod of a pod set takes from quota (inventory 2.4).
//!
//! In this order: defaults of LimitRanges (and what they allow at all), limits where there are no requests, the largest of what runs at one time
//! (init containers run one after the other, sidecars go on running), requests of the pod as a whole in place of the
//! sum, and the overhead of the RuntimeClass.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, LimitRange, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::limit_range::{LimitSummary, Violation};
use crate::quantity::{Exact, ParseQuantityError};

type Quantities = BTreeMap<String, Quantity>;
type Amounts = BTreeMap<String, Exact>;

/// What the cluster adds to what a pod says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestDefaults {
    /// `overhead.podFixed` of the pod's RuntimeClass; not used when the pod states its overhead itself.
    pub overhead: Option<Quantities>,
    /// The namespace's LimitRanges for containers.
    pub containers: LimitSummary,
    /// The namespace's LimitRanges for pods.
    pub pods: LimitSummary,
}

impl RequestDefaults {
    /// What the LimitRanges of a namespace say. Where several name one resource, the first default counts, so give them in
    /// an order that does not change.
    #[must_use]
    pub fn of_limit_ranges<'a>(ranges: impl IntoIterator<Item = &'a LimitRange> + Clone) -> Self {
        let (containers, pods) = (LimitSummary::of(ranges.clone(), "Container"), LimitSummary::of(ranges, "Pod"));
        Self { overhead: None, containers, pods }
    }
}

/// Why the requests of a pod are not known or cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestProblem {
    /// A quantity that is none.
    #[error("{field}: {source}")]
    Quantity {
        /// Path below the pod's spec.
        field: String,
        /// What is wrong.
        source: ParseQuantityError,
    },
    /// The API server would refuse the pod.
    #[error("{field}: Invalid value: {resources:?}: requests must not exceed its limits")]
    ExceedsLimits {
        /// Path below the pod's spec.
        field: String,
        /// The resources.
        resources: Vec<String>,
    },
    /// The API server would refuse the pod for a LimitRange.
    #[error("{}", said(violations))]
    LimitRange {
        /// All that is outside.
        violations: Vec<Violation>,
    },
}

/// One as it is, several in brackets.
fn said(violations: &[Violation]) -> String {
    let texts: Vec<String> = violations.iter().map(Violation::to_string).collect();
    if let [only] = texts.as_slice() { only.clone() } else { format!("[{}]", texts.join(", ")) }
}

/// What one pod requests, in the amounts that quota is reckoned in: thousandths for cpu, whole units for the rest,
/// rounded up.
///
/// # Errors
/// [`RequestProblem`], with paths below the pod's spec.
pub fn pod_requests(spec: &PodSpec, defaults: &RequestDefaults) -> Result<BTreeMap<String, i64>, RequestProblem> {
    let mut violations = Vec::new();
    let mut total = containers(spec, defaults, &mut violations)?;
    if let Some(resources) = &spec.resources {
        // The pod's own requests take the place of the sum, for the resources that it may name.
        total.extend(requests(resources, "resources", &defaults.pods)?.requests);
    }
    let overhead = spec.overhead.as_ref().or(defaults.overhead.as_ref());
    if let Some(overhead) = overhead {
        add(&mut total, &parse(overhead, "overhead")?);
    }
    violations.extend(defaults.pods.violations("", &total, &total));
    if !violations.is_empty() {
        return Err(RequestProblem::LimitRange { violations });
    }
    Ok(total.into_iter().map(|(resource, amount)| (resource.clone(), amount.amount(&resource))).collect())
}

/// The most that containers and init containers take at one time.
fn containers(
    spec: &PodSpec,
    defaults: &RequestDefaults,
    violations: &mut Vec<Violation>,
) -> Result<Amounts, RequestProblem> {
    let mut of = |container: &Container, list: &str, at: usize| -> Result<Amounts, RequestProblem> {
        let (none, field) = (ResourceRequirements::default(), format!("{list}[{at}]"));
        let resources = container.resources.as_ref().unwrap_or(&none);
        let Asked { requests, limits } = requests(resources, &field, &defaults.containers)?;
        let mut highest = limits.clone();
        raise(&mut highest, &requests);
        let mut lowest = limits;
        lower(&mut lowest, &requests);
        violations.extend(defaults.containers.violations(&field, &lowest, &highest));
        Ok(requests)
    };
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    let mut beside = Amounts::new();
    for (at, container) in spec.init_containers.iter().flatten().enumerate() {
        let takes = of(container, "initContainers", at)?;
        let mut at_once = sidecars.clone();
        add(&mut at_once, &takes);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut beside, &takes);
            sidecars.clone_from(&at_once);
        }
        raise(&mut starting, &at_once);
    }
    let mut running = beside;
    for (at, container) in spec.containers.iter().enumerate() {
        add(&mut running, &of(container, "containers", at)?);
    }
    raise(&mut running, &starting);
    Ok(running)
}

/// What a container or a pod asks for, with what LimitRanges add.
struct Asked {
    requests: Amounts,
    limits: Amounts,
}

fn requests(resources: &ResourceRequirements, field: &str, defaults: &LimitSummary) -> Result<Asked, RequestProblem> {
    let mut limits = resources.limits.clone().unwrap_or_default();
    let mut requests = resources.requests.clone().unwrap_or_default();
    fill(&mut limits, Some(&defaults.limits));
    fill(&mut requests, Some(&defaults.requests));
    fill(&mut requests, Some(&limits));
    let (requests, limits) = (parse(&requests, field)?, parse(&limits, field)?);
    let exceeding: Vec<String> = requests
        .iter()
        .filter(|(resource, amount)| {
            limits.get(*resource).is_some_and(|limit| amount.amount(resource) > limit.amount(resource))
        })
        .map(|(resource, _)| resource.clone())
        .collect();
    if exceeding.is_empty() {
        Ok(Asked { requests, limits })
    } else {
        Err(RequestProblem::ExceedsLimits { field: field.to_owned(), resources: exceeding })
    }
}

/// Adds what is missing.
fn fill(quantities: &mut Quantities, defaults: Option<&Quantities>) {
    for (resource, quantity) in defaults.into_iter().flatten() {
        quantities.entry(resource.clone()).or_insert_with(|| quantity.clone());
    }
}

fn parse(quantities: &Quantities, field: &str) -> Result<Amounts, RequestProblem> {
    let one = |(resource, quantity): (&String, &Quantity)| match Exact::try_from(quantity) {
        Ok(amount) => Ok((resource.clone(), amount)),
        Err(source) => Err(RequestProblem::Quantity { field: format!("{field}[{resource}]"), source }),
    };
    quantities.iter().map(one).collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = total.entry(resource.clone()).or_insert(Exact::ZERO);
        *sum = sum.plus(*amount);
    }
}

fn raise(total: &mut Amounts, least: &Amounts) {
    for (resource, amount) in least {
        let most = total.entry(resource.clone()).or_insert(*amount);
        *most = (*most).max(*amount);
    }
}

fn lower(total: &mut Amounts, most: &Amounts) {
    for (resource, amount) in most {
        let least = total.entry(resource.clone()).or_insert(*amount);
        *least = (*least).min(*amount);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn cpu(requests: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": requests}}})
    }

    fn sidecar(requests: &str) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": requests}}})
    }

    fn amounts(spec: Value, defaults: &RequestDefaults) -> Result<BTreeMap<String, i64>, RequestProblem> {
        pod_requests(&serde_json::from_value(spec).unwrap(), defaults)
    }

    #[rstest]
    #[case::containers_add_up(json!({"containers": [cpu("1"), cpu("500m")]}), 1500)]
    #[case::the_largest_init_container_counts_when_it_is_larger(json!({"initContainers": [cpu("3"), cpu("2")], "containers": [cpu("1")]}), 3000)]
    #[case::a_smaller_init_container_does_not_count(json!({"initContainers": [cpu("1")], "containers": [cpu("2")]}), 2000)]
    #[case::a_sidecar_runs_beside_the_containers(json!({"initContainers": [sidecar("1")], "containers": [cpu("2")]}), 3000)]
    #[case::init_containers_after_a_sidecar_run_beside_it(json!({"initContainers": [sidecar("1"), cpu("4")], "containers": [cpu("2")]}), 5000)]
    #[case::init_containers_before_a_sidecar_run_alone(json!({"initContainers": [cpu("4"), sidecar("1")], "containers": [cpu("2")]}), 4000)]
    #[case::two_sidecars_and_an_init_container(json!({"initContainers": [sidecar("1"), sidecar("2"), cpu("3")], "containers": [cpu("1")]}), 6000)]
    #[case::the_pods_own_request_takes_the_place_of_the_sum(json!({"containers": [cpu("1"), cpu("1")], "resources": {"requests": {"cpu": "5"}}}), 5000)]
    #[case::the_pods_own_limit_stands_for_its_request(json!({"containers": [cpu("1")], "resources": {"limits": {"cpu": "3"}}}), 3000)]
    #[case::overhead_comes_on_top(json!({"containers": [cpu("1")], "overhead": {"cpu": "250m"}}), 1250)]
    #[case::a_limit_stands_for_a_missing_request(json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}), 2000)]
    #[case::small_parts_are_added_before_rounding(json!({"containers": [cpu("100u"), cpu("100u")]}), 1)]
    fn effective_cpu(#[case] spec: Value, #[case] want: i64) {
        assert_eq!(amounts(spec, &RequestDefaults::default()).unwrap(), BTreeMap::from([("cpu".to_owned(), want)]));
    }

    #[test]
    fn limit_ranges_and_runtime_classes_fill_in_what_is_missing() {
        let range = json!({"spec": {"limits": [
            {"type": "Pod", "default": {"cpu": "9"}},
            {"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}, "defaultRequest": {"cpu": "1"}},
        ]}});
        let mut defaults = RequestDefaults::of_limit_ranges([&serde_json::from_value(range).unwrap()]);
        defaults.overhead = Some(BTreeMap::from([("memory".to_owned(), Quantity("1Mi".into()))]));
        let spec = json!({"containers": [{"name": "a"}, cpu("500m")]});
        let want =
            [("cpu", 1500), ("memory", 2 * (1 << 30) + (1 << 20))].map(|(name, amount)| (name.to_owned(), amount));
        assert_eq!(amounts(spec, &defaults).unwrap(), BTreeMap::from(want));
    }

    #[rstest]
    #[case::within(json!({"containers": [cpu("2")]}), "cpu=2000")]
    #[case::above_the_narrowest_of_two(json!({"containers": [cpu("500m"), cpu("4")]}), r#"containers[1]: Invalid value: ["cpu"]: requests must not be above the limitRange max"#)]
    #[case::a_limit_counts_too(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}}]}), r#"containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max"#)]
    #[case::below_the_least(json!({"initContainers": [cpu("100m")], "containers": [cpu("2")]}), r#"initContainers[0]: Invalid value: ["cpu"]: requests must not be below the limitRange min"#)]
    #[case::the_pod_as_a_whole(json!({"containers": [cpu("3"), cpu("3")]}), r#": Invalid value: ["cpu"]: requests must not be above the limitRange max"#)]
    #[case::several(json!({"containers": [cpu("4"), cpu("100m")]}), r#"[containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max, containers[1]: Invalid value: ["cpu"]: requests must not be below the limitRange min]"#)]
    fn limit_ranges_bound_what_may_be_asked_for(#[case] spec: Value, #[case] want: &str) {
        let range = |limits: Value| serde_json::from_value::<LimitRange>(json!({"spec": {"limits": limits}})).unwrap();
        let ranges = [
            range(json!([{"type": "Container", "max": {"cpu": "8"}, "min": {"cpu": "200m", "memory": "1Gi"}}])),
            range(json!([{"type": "Container", "max": {"cpu": "3"}}, {"type": "Pod", "max": {"cpu": "5"}}])),
        ];
        let got = amounts(spec, &RequestDefaults::of_limit_ranges(&ranges));
        let said = |amounts: BTreeMap<String, i64>| {
            amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(got.map_or_else(|problem| problem.to_string(), said), want);
    }

    #[test]
    fn what_cannot_be_is_said_with_its_place() {
        let spec = json!({"containers": [cpu("1"), {"name": "b", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]});
        let error = amounts(spec, &RequestDefaults::default()).unwrap_err().to_string();
        insta::assert_snapshot!(error, @r#"containers[1]: Invalid value: ["cpu"]: requests must not exceed its limits"#);
        let spec = json!({"initContainers": [cpu("much")], "containers": [cpu("1")]});
        let error = amounts(spec, &RequestDefaults::default()).unwrap_err().to_string();
        assert!(error.starts_with("initContainers[0][cpu]: "), "{error}");
    }
}
