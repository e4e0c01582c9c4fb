//! Rules of quota in ClusterQueues and Cohorts.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{NOT_NEGATIVE, labels};
use crate::{
    field::{FieldError, Path},
    quantity::{Exact, parse},
    v1beta2::{Cohort, FairSharing, FlavorQuotas, ResourceGroup},
};

/// Where quota is declared, as far as rules depend on it.
#[derive(Clone, Copy)]
pub(super) struct QuotaScope {
    /// The field that limits depend on: `cohort` of a ClusterQueue, `parent` of a Cohort.
    pub above: &'static str,
    /// Whether that field is set.
    pub has_above: bool,
    /// Whether the lending limit is bounded by the nominal quota.
    pub lends_own_only: bool,
}

/// Errors of a Cohort.
#[must_use]
pub fn cohort(cohort: &Cohort) -> Vec<FieldError> {
    let (spec, path) = (&cohort.spec, Path::new("spec"));
    let mut errors = Vec::new();
    fair_sharing(spec.fair_sharing.as_ref(), &path.child("fairSharing"), &mut errors);
    let has_above = spec.parent_name.as_ref().is_some_and(|name| !name.is_empty());
    let place = QuotaScope { above: "parent", has_above, lends_own_only: false };
    resource_groups(&spec.resource_groups, place, &path.child("resourceGroups"), &mut errors);
    errors
}

pub(super) fn resource_groups(
    groups: &[ResourceGroup],
    place: QuotaScope,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
    for (index, group) in groups.iter().enumerate() {
        let path = path.index(index);
        for (index, name) in group.covered_resources.iter().enumerate() {
            let path = path.child("coveredResources").index(index);
            labels::key(name, &path, errors);
            if !resources.insert(name) {
                errors.push(FieldError::duplicate(&path, name));
            }
        }
        for (index, flavor) in group.flavors.iter().enumerate() {
            let path = path.child("flavors").index(index);
            quotas(flavor, &group.covered_resources, place, &path, errors);
            if !flavors.insert(&flavor.name) {
                errors.push(FieldError::duplicate(&path.child("name"), &flavor.name));
            }
        }
    }
}

/// Errors of the quotas of one flavor. The schema checks that the flavor has as many quotas as the
/// group has covered resources.
fn quotas(
    flavor: &FlavorQuotas,
    covered: &[String],
    place: QuotaScope,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    for (index, (quota, covered)) in flavor.resources.iter().zip(covered).enumerate() {
        let path = path.child("resources").index(index);
        if quota.name != *covered {
            let detail = "must match the name in coveredResources";
            errors.push(FieldError::invalid(&path.child("name"), &quota.name, detail));
        }
        let nominal = amount(&quota.nominal_quota, &path.child("nominalQuota"), errors);
        if let Some(limit) = &quota.borrowing_limit {
            let path = path.child("borrowingLimit");
            needs_above(limit, place, &path, errors);
            amount(limit, &path, errors);
        }
        if let Some(limit) = &quota.lending_limit {
            let path = path.child("lendingLimit");
            let lent = amount(limit, &path, errors);
            needs_above(limit, place, &path, errors);
            if place.lends_own_only && lent > nominal {
                let detail = "must be less than or equal to the nominalQuota";
                errors.push(FieldError::invalid(&path, canonical(limit), detail));
            }
        }
    }
}

/// Parses a quantity that must not be negative.
pub(super) fn amount(quantity: &Quantity, path: &Path, errors: &mut Vec<FieldError>) -> Exact {
    match parse(&quantity.0) {
        Ok(exact) => {
            if exact.sign() < 0 {
                errors.push(FieldError::invalid(path, exact.to_string(), NOT_NEGATIVE));
            }
            exact
        }
        Err(error) => {
            errors.push(FieldError::invalid(path, &quantity.0, error));
            Exact::ZERO
        }
    }
}

fn canonical(quantity: &Quantity) -> String {
    parse(&quantity.0).map_or_else(|_| quantity.0.clone(), |exact| exact.to_string())
}

fn needs_above(limit: &Quantity, place: QuotaScope, path: &Path, errors: &mut Vec<FieldError>) {
    if !place.has_above {
        errors.push(FieldError::invalid(
            path,
            canonical(limit),
            format!("must be nil when {} is empty", place.above),
        ));
    }
}

pub(super) fn fair_sharing(
    sharing: Option<&FairSharing>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let Some(weight) = sharing.and_then(|sharing| sharing.weight.as_ref()) else { return };
    let exact = amount(weight, path, errors);
    // The least positive quantity is one billionth.
    if exact.is_least() {
        errors.push(FieldError::invalid(
            path,
            exact.to_string(),
            "When not 0, weight must be > 10e-9",
        ));
    }
}
