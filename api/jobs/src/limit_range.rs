//! Defaults and bounds that the LimitRanges of a namespace set for pods.
//!
//! The narrowest of several bounds applies. Defaults fill in missing values, one LimitRange after
//! the other, in a random order of the API server. So the largest default within the bounds counts:
//! no pod requests more.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1::LimitRange, apimachinery::pkg::api::resource::Quantity};

use switchyard_syntax::quantity::Exact;

type Quantities = BTreeMap<String, Quantity>;
type Amounts = BTreeMap<String, Exact>;

/// Summary of all limits of one type, `Container` or `Pod`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitSummary {
    /// `default`: limits for containers without any.
    pub limits: Quantities,
    /// `defaultRequest`: requests for containers without any.
    pub requests: Quantities,
    min: Amounts,
    max: Amounts,
}

/// Requests outside the bounds of a LimitRange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path below the pod's spec. Empty for the pod itself.
    pub field: String,
    /// The resources outside their bounds.
    pub resources: Vec<String>,
    /// The error, in Kueue's words.
    pub message: &'static str,
}

const ABOVE: &str = "requests must not be above the limitRange max";
const BELOW: &str = "requests must not be below the limitRange min";

impl LimitSummary {
    /// Summarizes the limits of one type, of LimitRanges as the API server stores them. The API
    /// server defaults the default limit to `max`, and the default request to the default limit or
    /// `min`. An invalid quantity is no bound.
    #[must_use]
    pub fn of<'a>(ranges: impl IntoIterator<Item = &'a LimitRange>, type_: &str) -> Self {
        let mut summary = Self::default();
        let specs = ranges.into_iter().filter_map(|range| range.spec.as_ref());
        let items: Vec<_> =
            specs.flat_map(|spec| &spec.limits).filter(|item| item.type_ == type_).collect();
        for item in &items {
            narrow(&mut summary.min, item.min.as_ref(), Exact::max);
            narrow(&mut summary.max, item.max.as_ref(), Exact::min);
        }
        for item in &items {
            raise(&mut summary.requests, item.default_request.as_ref(), &summary.max);
            raise(&mut summary.limits, item.default.as_ref(), &summary.max);
        }
        // A default request and a default limit may come from two LimitRanges. The API server
        // rejects a pod whose limit is below its request, so the limit is raised to the request.
        for (resource, limit) in &mut summary.limits {
            if let Some(request) =
                summary.requests.get(resource).filter(|request| is_larger(request, limit))
            {
                limit.clone_from(request);
            }
        }
        summary
    }

    /// How `lowest` and `highest`, the smaller and the larger of requests and limits, violate the
    /// bounds. Only resources on both sides are compared.
    pub(super) fn violations(
        &self,
        field: &str,
        lowest: &Amounts,
        highest: &Amounts,
    ) -> Vec<Violation> {
        let above = |(resource, amount): &(&String, &Exact)| {
            exceeds(resource, **amount, self.max.get(*resource))
        };
        let below = |(resource, least): &(&String, &Exact)| {
            lowest.get(*resource).is_some_and(|amount| exceeds(resource, **least, Some(amount)))
        };
        let names = |(resource, _): (&String, &Exact)| resource.clone();
        let found = [
            (highest.iter().filter(above).map(names).collect::<Vec<_>>(), ABOVE),
            (self.min.iter().filter(below).map(names).collect::<Vec<_>>(), BELOW),
        ];
        let violation = |(resources, message): (Vec<String>, _)| Violation {
            field: field.to_owned(),
            resources,
            message,
        };
        found.into_iter().filter(|(resources, _)| !resources.is_empty()).map(violation).collect()
    }
}

/// Compares in the unit of quota.
fn exceeds(resource: &str, amount: Exact, most: Option<&Exact>) -> bool {
    most.is_some_and(|most| amount.amount(resource) > most.amount(resource))
}

/// Takes the larger default of each resource, unless only that one violates the bounds.
fn raise(defaults: &mut Quantities, more: Option<&Quantities>, max: &Amounts) {
    for (resource, quantity) in more.into_iter().flatten() {
        let is_allowed = |quantity: &Quantity| {
            let amount = Exact::try_from(quantity);
            amount.is_ok_and(|amount| !exceeds(resource, amount, max.get(resource)))
        };
        let is_better = |known: &Quantity| match (is_allowed(known), is_allowed(quantity)) {
            (false, true) => true,
            (true, false) => false,
            _ => is_larger(quantity, known),
        };
        if defaults.get(resource).is_none_or(is_better) {
            defaults.insert(resource.clone(), quantity.clone());
        }
    }
}

fn is_larger(one: &Quantity, other: &Quantity) -> bool {
    let amounts = Exact::try_from(one).and_then(|one| Ok((one, Exact::try_from(other)?)));
    amounts.is_ok_and(|(one, other)| one.nanos() > other.nanos())
}

fn narrow(
    bounds: &mut Amounts,
    more: Option<&Quantities>,
    narrower: impl Fn(Exact, Exact) -> Exact,
) {
    for (resource, quantity) in more.into_iter().flatten() {
        let Ok(bound) = Exact::try_from(quantity) else { continue };
        let known = bounds.entry(resource.clone()).or_insert(bound);
        *known = narrower(*known, bound);
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: Invalid value: {:?}: {}", self.field, self.resources, self.message)
    }
}
