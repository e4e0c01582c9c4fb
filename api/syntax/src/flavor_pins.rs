//! Flavors that a hub charged for a workload, and that its worker cluster must use.
//!
//! A hub's agent writes them into the annotation [`names::FLAVOR_PINS`](crate::names::FLAVOR_PINS) of
//! the copy, as JSON: pod set, resource, flavor.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::labels::is_subdomain;

/// The most pins of one workload.
pub const MAX_PINS: usize = 512;

/// The longest text of all pins of one workload, in bytes.
pub const MAX_TEXT: usize = 64 * 1024;

/// The longest name of a resource or pod set.
const MAX_NAME: usize = 317;

/// The name of a hub's flavor on a worker cluster. Each row of a mapping has a cluster (None: all),
/// the flavor on the hub, and its name there. The first row that matches counts, after those for
/// one cluster. Without any, the name is the same.
pub fn worker_flavor<'a>(
    mut rows: impl Iterator<Item = (Option<&'a str>, &'a str, &'a str)> + Clone,
    cluster: &str,
    flavor: &'a str,
) -> &'a str {
    let of_all = rows.clone().find(|row| row.0.is_none() && row.1 == flavor);
    let of_one = rows.find(|row| row.0 == Some(cluster) && row.1 == flavor);
    of_one.or(of_all).map_or(flavor, |row| row.2)
}

/// Flavor by pod set and resource. Empty: the cluster chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlavorPins(BTreeMap<String, BTreeMap<String, String>>);

/// Why pins cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FlavorPinsError {
    /// More than [`MAX_PINS`].
    #[error("{0} flavors are pinned, more than {MAX_PINS}")]
    TooMany(usize),
    /// More than [`MAX_TEXT`].
    #[error("the pinned flavors take {0} bytes, more than {MAX_TEXT}")]
    TooLong(usize),
    /// No JSON of the right form.
    #[error("not a JSON object of pod sets, resources and flavors: {0}")]
    Syntax(String),
    /// A flavor's name is no name of an object.
    #[error("the flavor pinned for {resource} of pod set {pod_set} is no name of a ResourceFlavor")]
    Flavor {
        /// The pod set, shortened.
        pod_set: String,
        /// The resource, shortened.
        resource: String,
    },
    /// A pod set or resource has no name, or too long a one.
    #[error(
        "the pod set or resource of a pinned flavor has an empty name, or one of more than {MAX_NAME} bytes"
    )]
    Name,
}

impl FlavorPins {
    /// Pins from rows of pod set, resource and flavor.
    ///
    /// # Errors
    /// If there are too many, or a name cannot be one.
    pub fn from_rows<'a>(
        rows: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
    ) -> Result<Self, FlavorPinsError> {
        let (mut pins, mut count, mut bytes) = (Self::default(), 0, 0);
        for (pod_set, resource, flavor) in rows {
            count += 1;
            bytes += pod_set.len() + resource.len() + flavor.len();
            if count > MAX_PINS {
                return Err(FlavorPinsError::TooMany(count));
            }
            if bytes > MAX_TEXT {
                return Err(FlavorPinsError::TooLong(bytes));
            }
            let is_name = |text: &str| (1..=MAX_NAME).contains(&text.len());
            if !is_name(pod_set) || !is_name(resource) {
                return Err(FlavorPinsError::Name);
            }
            if !is_subdomain(flavor) {
                let (pod_set, resource) = (pod_set.to_owned(), resource.to_owned());
                return Err(FlavorPinsError::Flavor { pod_set, resource });
            }
            pins.insert(pod_set, resource, flavor);
        }
        Ok(pins)
    }

    /// Reads the annotation.
    ///
    /// # Errors
    /// As [`Self::from_rows`], and if the text has another form.
    pub fn parse(text: &str) -> Result<Self, FlavorPinsError> {
        // JSON adds less than the length of its contents.
        if text.len() > 2 * MAX_TEXT {
            return Err(FlavorPinsError::TooLong(text.len()));
        }
        let all: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(text)
            .map_err(|error| FlavorPinsError::Syntax(error.to_string()))?;
        Self::from_rows(Self(all).rows())
    }

    /// The annotation.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// Adds a pin.
    pub fn insert(&mut self, pod_set: &str, resource: &str, flavor: &str) {
        let of = self.0.entry(pod_set.to_owned()).or_default();
        of.insert(resource.to_owned(), flavor.to_owned());
    }

    /// The flavor by resource of a pod set.
    #[must_use]
    pub fn of(&self, pod_set: &str) -> Option<&BTreeMap<String, String>> {
        self.0.get(pod_set)
    }

    /// The flavor for a resource of a pod set.
    #[must_use]
    pub fn get(&self, pod_set: &str, resource: &str) -> Option<&str> {
        self.0.get(pod_set)?.get(resource).map(String::as_str)
    }

    /// Rows of pod set, resource and flavor.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.0.iter().flat_map(|(pod_set, of)| {
            of.iter()
                .map(|(resource, flavor)| (pod_set.as_str(), resource.as_str(), flavor.as_str()))
        })
    }

    /// True if nothing is pinned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pins(rows: &[(&str, &str, &str)]) -> FlavorPins {
        FlavorPins::from_rows(rows.iter().copied()).unwrap()
    }

    #[test]
    fn annotation_lists_flavors_by_pod_set_and_resource() {
        let pins = pins(&[("main", "cpu", "spot"), ("main", "nvidia.com/gpu", "a100")]);
        let text = r#"{"main":{"cpu":"spot","nvidia.com/gpu":"a100"}}"#;
        assert_eq!(pins.to_text(), text);
        assert_eq!(FlavorPins::parse(text), Ok(pins.clone()));
        assert_eq!(pins.get("main", "cpu"), Some("spot"));
        assert_eq!(pins.get("other", "cpu"), None);
    }

    #[rstest::rstest]
    #[case::no_json(
        "spot",
        "not a JSON object of pod sets, resources and flavors: expected value at line 1 column 1"
    )]
    #[case::no_flavor(
        r#"{"main":{"cpu":""}}"#,
        "the flavor pinned for cpu of pod set main is no name of a ResourceFlavor"
    )]
    #[case::no_name(
        r#"{"main":{"cpu":"a b"}}"#,
        "the flavor pinned for cpu of pod set main is no name of a ResourceFlavor"
    )]
    #[case::no_pod_set(
        r#"{"":{"cpu":"a"}}"#,
        "the pod set or resource of a pinned flavor has an empty name, or one of more than 317 bytes"
    )]
    fn bad_annotation_says_what_is_wrong(#[case] text: &str, #[case] message: &str) {
        assert_eq!(FlavorPins::parse(text).unwrap_err().to_string(), message);
    }

    #[test]
    fn ten_thousand_pins_are_refused() {
        let resources: Vec<String> = (0..10_000).map(|it| format!("r{it}")).collect();
        let rows = || resources.iter().map(|resource| ("main", resource.as_str(), "spot"));
        assert_eq!(FlavorPins::from_rows(rows()), Err(FlavorPinsError::TooMany(MAX_PINS + 1)));
        let text = serde_json::json!({"main": resources.iter().map(|it| (it.clone(), "spot")).collect::<BTreeMap<_, _>>()});
        assert!(FlavorPins::parse(&text.to_string()).is_err());
        let long = "x".repeat(200);
        let rows =
            resources.iter().take(400).map(|resource| (resource.as_str(), "cpu", long.as_str()));
        assert!(matches!(FlavorPins::from_rows(rows), Err(FlavorPinsError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn parsed_annotation_equals_its_source(
            rows in proptest::collection::vec(("[a-z]{1,4}", "[a-z./]{1,8}", "[a-z0-9]{1,6}"), 0..20)
        ) {
            let rows = rows.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str()));
            let pins = FlavorPins::from_rows(rows).unwrap();
            prop_assert_eq!(FlavorPins::parse(&pins.to_text()), Ok(pins));
        }

        #[test]
        fn any_text_parses_or_is_refused(text in ".{0,200}") {
            let _ = FlavorPins::parse(&text);
        }
    }
}
