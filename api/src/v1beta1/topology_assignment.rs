//! Topology assignments: v1beta1 lists each domain with its values, and v1beta2 packs them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema as edit;
use crate::{
    field::{FieldError, Path},
    v1beta2::{
        MAX_DOMAINS, TopologyAssignment, TopologyAssignmentSlice,
        TopologyAssignmentSliceLevelIndividualValues, TopologyAssignmentSliceLevelValues,
        TopologyAssignmentSlicePodCounts,
    },
};

/// v1beta1's form.
#[derive(Serialize, Deserialize)]
struct Domains {
    levels: Vec<String>,
    #[serde(default)]
    domains: Vec<Domain>,
}

#[derive(Serialize, Deserialize)]
struct Domain {
    values: Vec<String>,
    count: i32,
}

pub(super) fn schema(assignment: &mut Value) {
    edit::remove(assignment, "slices");
    super::remove(Some(&mut *assignment), "x-kubernetes-validations");
    let domains = json!({
        "type": "array",
        "description": "The domains, each with its pods.",
        "maxItems": MAX_DOMAINS,
        "items": {
            "type": "object",
            "required": ["count", "values"],
            "properties": {
                "count": {"type": "integer", "format": "int32", "minimum": 1, "description": "How many pods."},
                "values": {
                    "type": "array",
                    "description": "The domain's values, one a level.",
                    "minItems": 1,
                    "maxItems": 16,
                    "x-kubernetes-list-type": "atomic",
                    "items": {"type": "string", "maxLength": 63},
                },
            },
        },
    });
    edit::set(assignment, "domains", domains);
    if let Some(required) = assignment["required"].as_array_mut() {
        required.insert(0, "domains".into());
    }
}

pub(super) fn to_v1beta2(assignment: &Value, path: &Path) -> Result<Value, FieldError> {
    let Domains { levels, domains } = read(assignment, path)?;
    for (index, domain) in domains.iter().enumerate() {
        if domain.values.len() != levels.len() {
            let path = path.child("domains").index(index).child("values");
            let detail = format!("must have as many items as levels, {}", levels.len());
            return Err(FieldError::invalid(&path, domain.values.len(), detail));
        }
    }
    let slices = domains.chunks(MAX_DOMAINS).map(|domains| slice(levels.len(), domains)).collect();
    write(&TopologyAssignment { levels, slices }, path)
}

fn slice(levels: usize, domains: &[Domain]) -> TopologyAssignmentSlice {
    let first = domains.first().map(|domain| domain.count);
    let same = domains.iter().all(|domain| Some(domain.count) == first);
    let individual =
        if same { Vec::new() } else { domains.iter().map(|domain| domain.count).collect() };
    let values = |level: usize| -> Vec<&str> {
        domains.iter().map(|domain| domain.values[level].as_str()).collect()
    };
    TopologyAssignmentSlice {
        // A chunk is never longer than MAX_DOMAINS.
        domain_count: i32::try_from(domains.len()).unwrap_or(i32::MAX),
        values_per_level: (0..levels).map(|level| packed(&values(level))).collect(),
        pod_counts: TopologyAssignmentSlicePodCounts {
            universal: first.filter(|_| same),
            individual,
        },
    }
}

/// One value if all are equal. Otherwise the common prefix and suffix, and what differs between
/// them.
fn packed(values: &[&str]) -> TopologyAssignmentSliceLevelValues {
    let first = values.first().copied().unwrap_or_default();
    if values.iter().all(|value| *value == first) {
        return TopologyAssignmentSliceLevelValues {
            universal: Some(first.to_owned()),
            individual: None,
        };
    }
    let prefix =
        values.iter().fold(first, |prefix, value| &prefix[..common(prefix.chars(), value.chars())]);
    // The suffix comes from the rest after the prefix, so that they never overlap.
    let mut suffix = &first[prefix.len()..];
    for value in values {
        suffix = &suffix
            [suffix.len() - common(suffix.chars().rev(), value[prefix.len()..].chars().rev())..];
    }
    let roots = values
        .iter()
        .map(|value| value[prefix.len()..value.len() - suffix.len()].to_owned())
        .collect();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let individual = TopologyAssignmentSliceLevelIndividualValues {
        prefix: some(prefix),
        suffix: some(suffix),
        roots,
    };
    TopologyAssignmentSliceLevelValues { universal: None, individual: Some(individual) }
}

/// Length in bytes of the common start of two texts, in whole characters.
fn common(a: impl Iterator<Item = char>, b: impl Iterator<Item = char>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

pub(super) fn to_v1beta1(assignment: &Value, path: &Path) -> Result<Value, FieldError> {
    let TopologyAssignment { levels, slices } = read(assignment, path)?;
    let mut domains = Vec::new();
    for (index, slice) in slices.iter().enumerate() {
        let path = path.child("slices").index(index);
        let count = usize::try_from(slice.domain_count).unwrap_or_default();
        if count > MAX_DOMAINS - domains.len() {
            return Err(FieldError::too_many(
                &path.child("domainCount"),
                domains.len() + count,
                MAX_DOMAINS,
            ));
        }
        if slice.values_per_level.len() != levels.len() {
            let detail = format!("must have as many items as levels, {}", levels.len());
            return Err(FieldError::invalid(
                &path.child("valuesPerLevel"),
                slice.values_per_level.len(),
                detail,
            ));
        }
        for at in 0..count {
            domains.push(domain(slice, at, &path)?);
        }
    }
    write(&Domains { levels, domains }, path)
}

fn domain(slice: &TopologyAssignmentSlice, at: usize, path: &Path) -> Result<Domain, FieldError> {
    let counts = &slice.pod_counts;
    let count = counts.universal.or_else(|| counts.individual.get(at).copied());
    let count = count
        .ok_or_else(|| FieldError::required(&path.child("podCounts"), "one for each domain"))?;
    let values = slice.values_per_level.iter().enumerate().map(|(level, values)| {
        let path = path.child("valuesPerLevel").index(level);
        value(values, at).ok_or_else(|| FieldError::required(&path, "one for each domain"))
    });
    Ok(Domain { values: values.collect::<Result<_, _>>()?, count })
}

fn value(values: &TopologyAssignmentSliceLevelValues, at: usize) -> Option<String> {
    if let Some(universal) = &values.universal {
        return Some(universal.clone());
    }
    let individual = values.individual.as_ref()?;
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    Some(part(&individual.prefix) + individual.roots.get(at)? + &part(&individual.suffix))
}

fn read<T: for<'a> Deserialize<'a>>(assignment: &Value, path: &Path) -> Result<T, FieldError> {
    T::deserialize(assignment).map_err(|error| FieldError::new(path, error.to_string()))
}

fn write<T: Serialize>(assignment: &T, path: &Path) -> Result<Value, FieldError> {
    serde_json::to_value(assignment).map_err(|error| FieldError::new(path, error.to_string()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one(&["a"], json!({"universal": "a"}))]
    #[case::equal(&["a", "a"], json!({"universal": "a"}))]
    #[case::a_prefix(&["node-1", "node-2"], json!({"individual": {"prefix": "node-", "roots": ["1", "2"]}}))]
    #[case::a_suffix(&["1.zone", "2.zone"], json!({"individual": {"suffix": ".zone", "roots": ["1", "2"]}}))]
    #[case::nothing_in_common(&["a", "b"], json!({"individual": {"roots": ["a", "b"]}}))]
    #[case::they_would_overlap(&["ababa", "aba"], json!({"individual": {"prefix": "aba", "roots": ["ba", ""]}}))]
    #[case::one_is_empty(&["", "a"], json!({"individual": {"roots": ["", "a"]}}))]
    #[case::within_a_character(&["ä", "ö"], json!({"individual": {"roots": ["ä", "ö"]}}))]
    fn values_are_packed(#[case] values: &[&str], #[case] expected: Value) {
        assert_eq!(serde_json::to_value(packed(values)).unwrap(), expected);
    }

    #[rstest]
    #[case::too_few_values(
        json!({"levels": ["zone", "host"], "domains": [{"values": ["a"], "count": 1}]}),
        "at.domains[0].values: Invalid value: 1: must have as many items as levels, 2"
    )]
    #[case::another_shape(json!({"levels": "zone"}), "at: invalid type: string \"zone\", expected a sequence")]
    fn v1beta1_rules_reject_bad_objects(#[case] assignment: Value, #[case] message: &str) {
        assert_eq!(to_v1beta2(&assignment, &Path::new("at")).unwrap_err().to_string(), message);
    }

    #[rstest]
    #[case::too_many_domains(
        json!({"domainCount": i32::MAX, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}),
        "at.slices[0].domainCount: Too many: 2147483647: must have at most 100000 items"
    )]
    #[case::too_few_values(
        json!({"domainCount": 1, "valuesPerLevel": [], "podCounts": {"universal": 1}}),
        "at.slices[0].valuesPerLevel: Invalid value: 0: must have as many items as levels, 1"
    )]
    #[case::too_few_roots(
        json!({"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a"]}}], "podCounts": {"universal": 1}}),
        "at.slices[0].valuesPerLevel[0]: Required value: one for each domain"
    )]
    #[case::too_few_counts(
        json!({"domainCount": 2, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"individual": [1]}}),
        "at.slices[0].podCounts: Required value: one for each domain"
    )]
    fn v1beta2_rules_reject_bad_objects(#[case] slice: Value, #[case] message: &str) {
        let assignment = json!({"levels": ["zone"], "slices": [slice]});
        assert_eq!(to_v1beta1(&assignment, &Path::new("at")).unwrap_err().to_string(), message);
    }
}
