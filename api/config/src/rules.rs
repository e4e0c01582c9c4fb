//! Conversions of the configuration into the rules of other crates.

use switchyard_api::{devices::DeviceRules, slices, validate, variants};
use switchyard_jobs::TopologyGates;

use crate::Configuration;

impl Configuration {
    /// Rules of validation that depend on feature gates.
    #[must_use]
    pub fn validation_gates(&self) -> validate::ValidationGates {
        validate::ValidationGates {
            priority_boost: self.enabled("PriorityBoost"),
            concurrent_admission: self.enabled(variants::FEATURE_GATE),
            reject_invalid_on_flavors: self.enabled("RejectUpdatesToCQWithInvalidOnFlavors"),
            elastic: self.enabled(slices::FEATURE_GATE),
            admission_gated_by: self.enabled("AdmissionGatedBy"),
            pod_set_metadata: self.enabled("WorkloadValidationForPodSetMetadata"),
            non_negative: self.enabled("WorkloadValidateResourcesAreNonNegative"),
            topology: self.enabled("TopologyAwareScheduling"),
            slice_size: self.enabled("TASValidateWorkloadSliceSize"),
        }
    }

    /// Rules of the charge for devices.
    #[must_use]
    pub fn device_rules(&self) -> DeviceRules<'_> {
        DeviceRules {
            charged: self.enabled("KueueDRAIntegration"),
            extended_resources: self.enabled("KueueDRAIntegrationExtendedResource"),
            refused_if_uncharged: self.enabled("KueueDRARejectWorkloadsWhenDRADisabled"),
            mappings: &self.resources.device_class_mappings,
        }
    }

    /// Feature gates of topology annotations.
    #[must_use]
    pub fn topology_gates(&self) -> TopologyGates {
        TopologyGates {
            aware: self.enabled("TopologyAwareScheduling"),
            multi_layer: self.enabled("TASMultiLayerTopology"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validation_gates_by_default_match_the_table_of_gates() {
        assert_eq!(
            Configuration::default().validation_gates(),
            validate::ValidationGates::default()
        );
    }
}
