//! The requests that LimitRanges of a namespace add to pods, and the bounds that they set.
//!
//! Of several the narrowest bounds hold. Their defaults fill in what is missing, one LimitRange after the other, and the API
//! server takes them in a random order. So the largest default that the bounds allow counts: no pod asks for more.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1::LimitRange, apimachinery::pkg::api::resource::Quantity};

use switchyard_syntax::quantity::Exact;

type Quantities = BTreeMap<String, Quantity>;
type Amounts = BTreeMap<String, Exact>;

/// The summary of one type of limit: `Container` or `Pod`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitSummary {
    /// `default`: limits where there are none.
    pub limits: Quantities,
    /// `defaultRequest`: requests where there are none.
    pub requests: Quantities,
    min: Amounts,
    max: Amounts,
}

/// Requests outside of what a LimitRange allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path below the pod's spec; empty for the pod as a whole.
    pub field: String,
    /// The resources.
    pub resources: Vec<String>,
    /// What is wrong, in Kueue's words.
    pub message: &'static str,
}

const ABOVE: &str = "requests must not be above the limitRange max";
const BELOW: &str = "requests must not be below the limitRange min";

impl LimitSummary {
    /// The summary of the limits of one type, of LimitRanges as the API server stores them: it fills in default limits
    /// from `max`, and default requests from default limits and `min`. A bound that is no quantity bounds nothing.
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
        // A request of one LimitRange may meet a limit of another. With a smaller one the API server refuses the pod.
        for (resource, limit) in &mut summary.limits {
            if let Some(request) =
                summary.requests.get(resource).filter(|request| is_larger(request, limit))
            {
                limit.clone_from(request);
            }
        }
        summary
    }

    /// How `lowest` and `highest`, the smaller and the larger of requests and limits, leave what is allowed. Only
    /// resources that are named on both sides are compared.
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

/// In the amounts that quota is reckoned in.
fn exceeds(resource: &str, amount: Exact, most: Option<&Exact>) -> bool {
    most.is_some_and(|most| amount.amount(resource) > most.amount(resource))
}

/// The larger default of each resource, unless the bounds exclude it and not the other.
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
