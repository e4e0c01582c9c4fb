//! Flavors that a cluster must use: those that the hub charged, under the cluster's names.
//!
//! Input: the hub's charge and the rules of the MultiKueueConfig. Output: the pins of one cluster.

use switchyard_syntax::flavor_pins::{self, FlavorPins};

use super::Name;

/// `spec.flavorPins` of a MultiKueueConfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinRules {
    /// Each cluster chooses flavors by itself.
    pub is_off: bool,
    /// As in [`flavor_pins::worker_flavor`].
    pub mapping: Vec<FlavorName>,
}

/// The name of a flavor on clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlavorName {
    /// None: on all clusters.
    pub cluster: Option<Name>,
    /// On the hub.
    pub flavor: Name,
    /// On the cluster.
    pub worker_flavor: Name,
}

impl PinRules {
    /// The name of the hub's flavor on a cluster.
    fn worker_flavor<'a>(&'a self, cluster: &str, flavor: &'a str) -> &'a str {
        let rows = self.mapping.iter();
        let rows = rows.map(|it| (it.cluster.as_deref(), &*it.flavor, &*it.worker_flavor));
        flavor_pins::worker_flavor(rows, cluster, flavor)
    }
}

/// A flavor in use that differs from its pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlavorMismatch {
    pub pod_set: String,
    pub resource: String,
    /// The flavor that the cluster must use, under its own name.
    pub pin: String,
    /// The flavor that it uses.
    pub used: String,
}

/// The flavors that one cluster must use for one workload.
#[derive(Debug, Clone, Copy)]
pub struct ClusterPins<'a> {
    charged: &'a FlavorPins,
    /// None: it may use any.
    rules: Option<&'a PinRules>,
    cluster: &'a str,
}

impl<'a> ClusterPins<'a> {
    /// `rules`: those of the workload's MultiKueueConfig. None: the cluster may use any flavor.
    pub fn new(charged: &'a FlavorPins, rules: Option<&'a PinRules>, cluster: &'a str) -> Self {
        Self { charged, rules: rules.filter(|rules| !rules.is_off), cluster }
    }

    /// The flavor for a resource of a pod set.
    pub fn get(&self, pod_set: &str, resource: &str) -> Option<&'a str> {
        let rules = self.rules?;
        Some(rules.worker_flavor(self.cluster, self.charged.get(pod_set, resource)?))
    }

    /// The flavors in use that differ from their pins.
    pub fn mismatches(self, used: &'a FlavorPins) -> impl Iterator<Item = FlavorMismatch> + 'a {
        self.charged.rows().filter_map(move |(pod_set, resource, _)| {
            let pin = self.get(pod_set, resource)?;
            let used = used.get(pod_set, resource).filter(|used| *used != pin)?;
            let [pod_set, resource, pin, used] =
                [pod_set, resource, pin, used].map(ToOwned::to_owned);
            Some(FlavorMismatch { pod_set, resource, pin, used })
        })
    }

    /// The pins under the cluster's names.
    pub fn to_pins(self) -> FlavorPins {
        let mut pins = FlavorPins::default();
        let Some(rules) = self.rules else { return pins };
        for (pod_set, resource, flavor) in self.charged.rows() {
            pins.insert(pod_set, resource, rules.worker_flavor(self.cluster, flavor));
        }
        pins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_for_the_cluster_precedes_one_for_all() {
        let entry = |cluster: Option<&str>, flavor: &str, worker_flavor: &str| FlavorName {
            cluster: cluster.map(Name::from),
            flavor: flavor.into(),
            worker_flavor: worker_flavor.into(),
        };
        let mapping = vec![
            entry(None, "spot", "cheap"),
            entry(Some("west"), "spot", "preemptible"),
            entry(Some("west"), "spot", "never"),
        ];
        let rules = PinRules { is_off: false, mapping };
        let rows = [("main", "cpu", "spot"), ("main", "memory", "other")];
        let charged = FlavorPins::from_rows(rows).unwrap();
        let at = |cluster| ClusterPins::new(&charged, Some(&rules), cluster);
        assert_eq!(at("west").get("main", "cpu"), Some("preemptible"));
        assert_eq!(at("east").get("main", "cpu"), Some("cheap"));
        assert_eq!(at("east").get("main", "memory"), Some("other"));
        assert_eq!(at("east").get("main", "gpu"), None);
        assert_eq!(
            at("west").to_pins().to_text(),
            r#"{"main":{"cpu":"preemptible","memory":"other"}}"#
        );
        let off = PinRules { is_off: true, ..rules };
        assert!(ClusterPins::new(&charged, Some(&off), "west").to_pins().is_empty());
        assert_eq!(ClusterPins::new(&charged, Some(&off), "west").get("main", "cpu"), None);
    }
}
