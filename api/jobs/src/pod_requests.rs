//! Requests of one pod of a pod set, as the API server would store them: the pod's charge.
//!
//! The steps are the API server's, in its order (Kubernetes v1.36: `pkg/apis/core/v1/defaults.go`,
//! the admission plugins LimitRanger and RuntimeClass, `component-helpers/resource`):
//!
//! 1. A missing request of a container is its limit.
//! 2. A missing request of the pod itself is the sum of the containers' requests, else its own
//!    limit.
//! 3. LimitRanges fill in what containers still lack.
//! 4. RuntimeClasses add their overhead, which the bounds of LimitRanges leave out.
//!
//! Amounts have at most three decimals. The API server rounds up finer ones, container by
//! container.
//!
//! The sum over containers is the most that runs at one time ([`peak`]). The pod's own requests
//! replace the sum where they are larger. The API server rejects smaller ones.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, LimitRange, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::limit_range::{LimitSummary, Violation};
use switchyard_api::pod_peak::{Usage, peak};
use switchyard_syntax::quantity::{Exact, ParseQuantityError};

type Quantities = BTreeMap<String, Quantity>;
type Amounts = BTreeMap<String, Exact>;

/// Amounts that the cluster adds to the requests in a pod's spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestDefaults {
    /// `overhead.podFixed` of the pod's RuntimeClass.
    pub overhead: Option<Quantities>,
    /// The namespace's LimitRanges for containers.
    pub containers: LimitSummary,
    /// The namespace's LimitRanges for pods.
    pub pods: LimitSummary,
}

impl RequestDefaults {
    /// From the LimitRanges of a namespace.
    #[must_use]
    pub fn of_limit_ranges<'a>(ranges: impl IntoIterator<Item = &'a LimitRange> + Clone) -> Self {
        let (containers, pods) =
            (LimitSummary::of(ranges.clone(), "Container"), LimitSummary::of(ranges, "Pod"));
        Self { overhead: None, containers, pods }
    }
}

/// Why the requests of a pod are unknown or impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestProblem {
    /// An invalid quantity.
    #[error("{field}: {source}")]
    Quantity {
        /// Path below the pod's spec.
        field: String,
        /// The parse error.
        source: ParseQuantityError,
    },
    /// A request exceeds its limit, so the API server would reject the pod.
    #[error("{field}: Invalid value: {resources:?}: requests must not exceed its limits")]
    ExceedsLimits {
        /// Path below the pod's spec.
        field: String,
        /// The resources.
        resources: Vec<String>,
    },
    /// The API server would reject the pod because of a LimitRange.
    #[error("{}", join_violations(violations))]
    LimitRange {
        /// All violations.
        violations: Vec<Violation>,
    },
}

/// One violation as it is, several in brackets.
fn join_violations(violations: &[Violation]) -> String {
    let texts: Vec<String> = violations.iter().map(Violation::to_string).collect();
    if let [only] = texts.as_slice() { only.clone() } else { format!("[{}]", texts.join(", ")) }
}

/// Requests of one pod in the unit of quota: thousandths for cpu, whole units for other resources,
/// rounded up.
///
/// # Errors
/// [`RequestProblem`], with paths below the pod's spec.
pub fn pod_requests(
    spec: &PodSpec,
    defaults: &RequestDefaults,
) -> Result<BTreeMap<String, i64>, RequestProblem> {
    let mut violations = Vec::new();
    // LimitRanges see only the containers' huge pages.
    let (huge_pages, own): (Amounts, Amounts) =
        whole_pod(spec)?.into_iter().partition(|(resource, _)| is_huge_page(resource));
    let mut total = containers(spec, &defaults.containers, &mut violations)?;
    total.raise(&own);
    violations.extend(defaults.pods.violations("", &total, &total));
    total.raise(&huge_pages);
    total.add(&overhead(spec, defaults)?);
    if !violations.is_empty() {
        return Err(RequestProblem::LimitRange { violations });
    }
    Ok(total
        .into_iter()
        .map(|(resource, amount)| (resource.clone(), amount.amount(&resource)))
        .collect())
}

/// The pod's own requests, for the resources that may have them. They come before LimitRanges,
/// because the API server defaults them when it decodes the pod.
fn whole_pod(spec: &PodSpec) -> Result<Amounts, RequestProblem> {
    let Some(resources) = &spec.resources else { return Ok(Amounts::new()) };
    let RequestsAndLimits { mut requests, mut limits } = asked(resources, "resources")?;
    if requests.is_empty() && limits.is_empty() {
        return Ok(Amounts::new());
    }
    let none = LimitSummary::default();
    let sum = |of: fn(RequestsAndLimits) -> Amounts| {
        peak(spec, |container, field| Ok(of(with_defaults(container, &field.to_string(), &none)?)))
    };
    for (resource, amount) in sum(|asked| asked.limits)? {
        if is_huge_page(&resource) && !requests.contains_key(&resource) {
            limits.entry(resource).or_insert(amount);
        }
    }
    if !limits.is_empty() {
        for (resource, amount) in sum(|asked| asked.requests)? {
            if is_of_whole_pod(&resource) && !is_huge_page(&resource) {
                requests.entry(resource).or_insert(amount);
            }
        }
        for (resource, limit) in &limits {
            requests.entry(resource.clone()).or_insert(*limit);
        }
    }
    within(&requests, &limits, "resources")?;
    requests.retain(|resource, _| is_of_whole_pod(resource));
    Ok(requests)
}

/// Resources that a pod's own requests may contain. The API server rejects others.
fn is_of_whole_pod(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || is_huge_page(resource)
}

fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// The overhead of the pod's RuntimeClass. An existing pod keeps the overhead of its creation. The
/// overhead in a template must equal the RuntimeClass's, or its pods are rejected. If both are
/// known, the larger amounts count.
fn overhead(spec: &PodSpec, defaults: &RequestDefaults) -> Result<Amounts, RequestProblem> {
    let mut overhead = Amounts::new();
    if let Some(of_class) = &defaults.overhead {
        overhead = parse(of_class, "runtimeClassName")?;
    }
    if let Some(own) = &spec.overhead {
        overhead.raise(&parse(own, "overhead")?);
    }
    Ok(overhead)
}

/// Most requests of containers and init containers at one time.
fn containers(
    spec: &PodSpec,
    defaults: &LimitSummary,
    violations: &mut Vec<Violation>,
) -> Result<Amounts, RequestProblem> {
    peak(spec, |container, field| {
        let field = &field.to_string();
        let RequestsAndLimits { requests, limits } = with_defaults(container, field, defaults)?;
        within(&requests, &limits, field)?;
        let mut highest = limits.clone();
        highest.raise(&requests);
        let mut lowest = limits;
        lower(&mut lowest, &requests);
        violations.extend(defaults.violations(field, &lowest, &highest));
        Ok(requests)
    })
}

/// Requests and limits of a container or pod.
struct RequestsAndLimits {
    requests: Amounts,
    limits: Amounts,
}

fn asked(
    resources: &ResourceRequirements,
    field: &str,
) -> Result<RequestsAndLimits, RequestProblem> {
    let amounts = |quantities: &Option<Quantities>| {
        quantities.as_ref().map_or(Ok(Amounts::new()), |it| parse(it, field))
    };
    Ok(RequestsAndLimits {
        requests: amounts(&resources.requests)?,
        limits: amounts(&resources.limits)?,
    })
}

/// Requests and limits of a container after defaulting: limits replace missing requests, then
/// LimitRanges fill in both.
fn with_defaults(
    container: &Container,
    field: &str,
    defaults: &LimitSummary,
) -> Result<RequestsAndLimits, RequestProblem> {
    let none = ResourceRequirements::default();
    let RequestsAndLimits { mut requests, mut limits } =
        asked(container.resources.as_ref().unwrap_or(&none), field)?;
    fill(&mut requests, limits.clone());
    fill(&mut limits, parse(&defaults.limits, field)?);
    fill(&mut requests, parse(&defaults.requests, field)?);
    Ok(RequestsAndLimits { requests, limits })
}

/// # Errors
/// If a request exceeds its limit.
fn within(requests: &Amounts, limits: &Amounts, field: &str) -> Result<(), RequestProblem> {
    let exceeds = |(resource, amount): &(&String, &Exact)| {
        limits.get(*resource).is_some_and(|limit| amount.nanos() > limit.nanos())
    };
    let resources: Vec<String> =
        requests.iter().filter(exceeds).map(|(resource, _)| resource.clone()).collect();
    if resources.is_empty() {
        return Ok(());
    }
    Err(RequestProblem::ExceedsLimits { field: field.to_owned(), resources })
}

/// Adds the missing amounts.
fn fill(amounts: &mut Amounts, defaults: Amounts) {
    for (resource, amount) in defaults {
        amounts.entry(resource).or_insert(amount);
    }
}

fn parse(quantities: &Quantities, field: &str) -> Result<Amounts, RequestProblem> {
    let one = |(resource, quantity): (&String, &Quantity)| match Exact::try_from(quantity) {
        Ok(amount) => Ok((resource.clone(), amount.rounded_to_milli())),
        Err(source) => {
            Err(RequestProblem::Quantity { field: format!("{field}[{resource}]"), source })
        }
    };
    quantities.iter().map(one).collect()
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

    fn amounts(
        spec: Value,
        defaults: &RequestDefaults,
    ) -> Result<BTreeMap<String, i64>, RequestProblem> {
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
    #[case::a_pod_limit_stands_for_no_request_of_containers(json!({"containers": [cpu("1")], "resources": {"limits": {"cpu": "3"}}}), 1000)]
    #[case::a_pod_limit_is_the_request_where_no_container_asks(json!({"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "3"}}}), 3000)]
    #[case::a_pod_request_below_the_sum_counts_as_the_sum(json!({"containers": [cpu("2"), cpu("1")], "resources": {"requests": {"cpu": "2"}}}), 3000)]
    #[case::container_limits_count_into_the_pods_missing_request(json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}], "resources": {"limits": {"cpu": "12"}}}), 2000)]
    #[case::overhead_comes_on_top(json!({"containers": [cpu("1")], "overhead": {"cpu": "250m"}}), 1250)]
    #[case::a_limit_stands_for_a_missing_request(json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}), 2000)]
    #[case::small_parts_are_rounded_before_they_add_up(json!({"containers": [cpu("100u"), cpu("1500u")]}), 3)]
    #[case::small_parts_of_overhead_are_rounded(json!({"containers": [cpu("1m")], "overhead": {"cpu": "1500u"}}), 3)]
    fn effective_cpu(#[case] spec: Value, #[case] want: i64) {
        assert_eq!(
            amounts(spec, &RequestDefaults::default()).unwrap(),
            BTreeMap::from([("cpu".to_owned(), want)])
        );
    }

    #[test]
    fn limit_ranges_and_runtime_classes_fill_in_what_is_missing() {
        let range = json!({"spec": {"limits": [
            {"type": "Pod", "default": {"cpu": "9"}},
            // As the API server stores it: the default request defaults to the default limit.
            {"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}, "defaultRequest": {"cpu": "1", "memory": "1Gi"}},
        ]}});
        let mut defaults =
            RequestDefaults::of_limit_ranges([&serde_json::from_value(range).unwrap()]);
        defaults.overhead = Some(BTreeMap::from([("memory".to_owned(), Quantity("1Mi".into()))]));
        let spec = json!({"containers": [{"name": "a"}, cpu("500m")]});
        let want = [("cpu", 1500), ("memory", 2 * (1 << 30) + (1 << 20))]
            .map(|(name, amount)| (name.to_owned(), amount));
        assert_eq!(amounts(spec, &defaults).unwrap(), BTreeMap::from(want));
    }

    /// The effect of a LimitRange for containers on a pod, in the API server's order.
    #[rstest]
    #[case::own_limits_are_requests_first(json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "4"}}}]}), 4000)]
    #[case::the_default_request_fills_in(json!({"containers": [{"name": "c"}]}), 1000)]
    #[case::the_pods_limit_is_its_request_before(json!({"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "6"}}}), 6000)]
    #[case::the_pods_own_request_stays_above(json!({"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "3"}}}), 3000)]
    fn defaults_come_after_own_limits(#[case] spec: Value, #[case] want: i64) {
        let range =
            json!({"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}});
        let defaults = RequestDefaults::of_limit_ranges([&serde_json::from_value(range).unwrap()]);
        assert_eq!(amounts(spec, &defaults).unwrap()["cpu"], want);
    }

    #[test]
    fn pod_huge_pages_default_to_its_containers_limits() {
        let page = "hugepages-2Mi";
        let container = json!({"name": "c", "resources": {"limits": {"cpu": "1", page: "8Mi"}, "requests": {"cpu": "1", page: "8Mi"}}});
        let spec = json!({"containers": [container], "resources": {"limits": {"cpu": "2"}}});
        let want = [("cpu", 1000), (page, 8 << 20)].map(|(name, amount)| (name.to_owned(), amount));
        assert_eq!(amounts(spec, &RequestDefaults::default()).unwrap(), BTreeMap::from(want));
    }

    #[rstest]
    #[case::of_the_class(json!({"containers": [cpu("1")]}), 1500)]
    #[case::claimed_less(json!({"containers": [cpu("1")], "overhead": {"cpu": "1m"}}), 1500)]
    #[case::kept_from_the_pods_creation(json!({"containers": [cpu("1")], "overhead": {"cpu": "2"}}), 3000)]
    fn overhead_is_the_larger_of_class_and_pod(#[case] spec: Value, #[case] want: i64) {
        let overhead = Some(BTreeMap::from([("cpu".to_owned(), Quantity("500m".into()))]));
        let defaults = RequestDefaults { overhead, ..RequestDefaults::default() };
        assert_eq!(amounts(spec, &defaults).unwrap()["cpu"], want);
    }

    #[rstest]
    #[case::within(json!({"containers": [cpu("2")]}), "cpu=2000")]
    #[case::above_the_narrowest_of_two(json!({"containers": [cpu("500m"), cpu("4")]}), r#"containers[1]: Invalid value: ["cpu"]: requests must not be above the limitRange max"#)]
    #[case::a_limit_counts_too(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}}]}), r#"containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max"#)]
    #[case::below_the_least(json!({"initContainers": [cpu("100m")], "containers": [cpu("2")]}), r#"initContainers[0]: Invalid value: ["cpu"]: requests must not be below the limitRange min"#)]
    #[case::the_pod_as_a_whole(json!({"containers": [cpu("3"), cpu("3")]}), r#": Invalid value: ["cpu"]: requests must not be above the limitRange max"#)]
    #[case::several(json!({"containers": [cpu("4"), cpu("100m")]}), r#"[containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max, containers[1]: Invalid value: ["cpu"]: requests must not be below the limitRange min]"#)]
    fn limit_ranges_bound_what_may_be_asked_for(#[case] spec: Value, #[case] want: &str) {
        let range = |limits: Value| {
            serde_json::from_value::<LimitRange>(json!({"spec": {"limits": limits}})).unwrap()
        };
        let ranges = [
            range(
                json!([{"type": "Container", "max": {"cpu": "8"}, "min": {"cpu": "200m", "memory": "1Gi"}}]),
            ),
            range(
                json!([{"type": "Container", "max": {"cpu": "3"}}, {"type": "Pod", "max": {"cpu": "5"}}]),
            ),
        ];
        let got = amounts(spec, &RequestDefaults::of_limit_ranges(&ranges));
        let said = |amounts: BTreeMap<String, i64>| {
            amounts
                .iter()
                .map(|(name, amount)| format!("{name}={amount}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(got.map_or_else(|problem| problem.to_string(), said), want);
    }

    /// The API server checks pods without their overhead, and with their containers' huge pages.
    #[rstest]
    #[case::overhead(json!({"containers": [cpu("5")]}), "cpu", 6000)]
    #[case::huge_pages_of_the_pod(json!({
        "containers": [cpu("1")], "resources": {"requests": {"hugepages-2Mi": "8Mi"}, "limits": {"hugepages-2Mi": "8Mi"}},
    }), "hugepages-2Mi", 8 << 20)]
    fn bounds_of_pods_leave_out(#[case] spec: Value, #[case] resource: &str, #[case] want: i64) {
        let range = json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "5", "hugepages-2Mi": "2Mi"}}]}});
        let mut defaults =
            RequestDefaults::of_limit_ranges([&serde_json::from_value(range).unwrap()]);
        defaults.overhead = Some(BTreeMap::from([("cpu".to_owned(), Quantity("1".into()))]));
        assert_eq!(amounts(spec, &defaults).unwrap()[resource], want);
    }

    /// In any order of the API server.
    #[rstest]
    #[case::the_larger_request(json!({"defaultRequest": {"cpu": "1"}}), json!({"defaultRequest": {"cpu": "2"}}), 2000)]
    #[case::within_the_narrower_bound(json!({"default": {"cpu": "8"}, "max": {"cpu": "8"}, "defaultRequest": {"cpu": "8"}}), json!({"default": {"cpu": "2"}, "max": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}}), 2000)]
    #[case::a_request_above_the_others_limit(json!({"defaultRequest": {"cpu": "4"}}), json!({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}}), 4000)]
    fn largest_default_of_several_limit_ranges(
        #[case] one: Value,
        #[case] other: Value,
        #[case] want: i64,
    ) {
        let range = |mut item: Value| {
            item["type"] = "Container".into();
            serde_json::from_value::<LimitRange>(json!({"spec": {"limits": [item]}})).unwrap()
        };
        let (one, other) = (range(one), range(other));
        let spec = json!({"containers": [{"name": "c"}]});
        for ranges in [[&one, &other], [&other, &one]] {
            assert_eq!(
                amounts(spec.clone(), &RequestDefaults::of_limit_ranges(ranges)).unwrap()["cpu"],
                want
            );
        }
    }

    #[test]
    fn bad_amounts_are_reported_with_their_path() {
        let spec = json!({"containers": [cpu("1"), {"name": "b", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]});
        let error = amounts(spec, &RequestDefaults::default()).unwrap_err().to_string();
        insta::assert_snapshot!(error, @r#"containers[1]: Invalid value: ["cpu"]: requests must not exceed its limits"#);
        let spec = json!({"initContainers": [cpu("much")], "containers": [cpu("1")]});
        let error = amounts(spec, &RequestDefaults::default()).unwrap_err().to_string();
        assert!(error.starts_with("initContainers[0][cpu]: "), "{error}");
    }
}
