//! Devices of Dynamic Resource Allocation (`resource.k8s.io/v1`, in Kubernetes from 1.34), and the
//! charge for them (Kueue's KEP-2941). The types have only those fields of Kubernetes' objects that
//! decide a charge.

mod charge;
mod mapping;

use std::sync::Arc;

pub use charge::{Charge, Devices, FindTemplate, ListClasses};
use kube::CustomResource;
pub use mapping::{
    CelDeviceSelector, DeviceClassMapping, DeviceClassSource, DeviceSelector, DeviceSource,
};
use serde::{Deserialize, Serialize};

/// A template from which each pod gets a ResourceClaim.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "resource.k8s.io",
    version = "v1",
    kind = "ResourceClaimTemplate",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
pub struct ResourceClaimTemplateSpec {
    /// The claim.
    #[serde(default)]
    pub spec: ResourceClaimSpec,
}

/// A claim.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ResourceClaimSpec {
    /// The devices.
    #[serde(default)]
    pub devices: DeviceClaim,
}

/// Devices that are claimed together.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct DeviceClaim {
    /// One entry for each group of equal devices.
    #[serde(default)]
    pub requests: Vec<DeviceRequest>,
}

/// A number of equal devices, or a list to choose from.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRequest {
    /// A fixed request.
    pub exactly: Option<ExactDeviceRequest>,
    /// Alternatives, of which the first available is used.
    pub first_available: Option<serde_json::Value>,
}

/// A number of devices of one class.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExactDeviceRequest {
    /// The DeviceClass.
    #[serde(default)]
    pub device_class_name: String,
    /// `ExactCount` or `All`; the API server fills it in.
    #[serde(default)]
    pub allocation_mode: String,
    /// The number of devices for `ExactCount`.
    #[serde(default)]
    pub count: i64,
    /// Whether the devices may be in use by other claims.
    #[serde(default)]
    pub admin_access: Option<bool>,
}

/// Devices by their capabilities.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "resource.k8s.io",
    version = "v1",
    kind = "DeviceClass",
    plural = "deviceclasses",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct DeviceClassSpec {
    /// The extended resource that these devices replace in requests of containers.
    pub extended_resource_name: Option<String>,
}

/// Rules from the configuration about devices.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRules<'a> {
    /// Whether claims are charged (`KueueDRAIntegration`).
    pub charged: bool,
    /// Whether extended resources are charged as the devices that come in their place
    /// (`KueueDRAIntegrationExtendedResource`).
    pub extended_resources: bool,
    /// Whether Workloads with claims wait while claims are not charged
    /// (`KueueDRARejectWorkloadsWhenDRADisabled`).
    pub refused_if_uncharged: bool,
    /// Which DeviceClasses count as which resource.
    pub mappings: &'a [DeviceClassMapping],
}

impl<'a> DeviceRules<'a> {
    /// The resource that is charged for a device of a class.
    fn resource(&self, class: &str) -> Option<&'a str> {
        let is_it = |mapping: &&DeviceClassMapping| {
            mapping.device_class_names.iter().any(|name| name == class)
        };
        self.mappings.iter().find(is_it).map(|mapping| mapping.name.as_str())
    }
}

/// The DeviceClass that Kubernetes uses for an extended resource: the newest. Among equally old
/// classes, the first by name.
#[must_use]
pub fn class_for(classes: &[Arc<DeviceClass>], resource: &str) -> Option<Arc<DeviceClass>> {
    let created =
        |class: &DeviceClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let for_it = classes
        .iter()
        .filter(|class| class.spec.extended_resource_name.as_deref() == Some(resource));
    let chosen = for_it.max_by(|a, b| {
        created(a).cmp(&created(b)).then_with(|| b.metadata.name.cmp(&a.metadata.name))
    });
    chosen.cloned()
}
