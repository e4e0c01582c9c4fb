//! Devices of Dynamic Resource Allocation (`resource.k8s.io/v1`, in Kubernetes from 1.34), and what quota is charged for
//! them (Kueue's KEP 2941). The objects are Kubernetes'; here are the fields of them that decide a charge.

mod charge;
mod mapping;

use std::sync::Arc;

pub use charge::{Charge, Devices, FindTemplate, ListClasses};
use kube::CustomResource;
pub use mapping::{
    CelDeviceSelector, DeviceClassMapping, DeviceClassSource, DeviceSelector, DeviceSource,
};
use serde::{Deserialize, Serialize};

/// From what a ResourceClaim is made for each pod.
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

/// What is claimed.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ResourceClaimSpec {
    /// The devices.
    #[serde(default)]
    pub devices: DeviceClaim,
}

/// Devices that are claimed together.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct DeviceClaim {
    /// One entry for devices that are alike.
    #[serde(default)]
    pub requests: Vec<DeviceRequest>,
}

/// Devices that are alike, or a list to choose from.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRequest {
    /// These.
    pub exactly: Option<ExactDeviceRequest>,
    /// Or the first of these that can be had.
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
    /// With `ExactCount`, how many.
    #[serde(default)]
    pub count: i64,
    /// Whether the devices may be in use by others.
    #[serde(default)]
    pub admin_access: Option<bool>,
}

/// Devices by what they can do.
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
    /// The resource in whose place the devices come, where a container asks for that.
    pub extended_resource_name: Option<String>,
}

/// What the configuration says of devices.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRules<'a> {
    /// Whether claims are charged (`KueueDRAIntegration`).
    pub charged: bool,
    /// Whether extended resources are charged as the devices that come in their place
    /// (`KueueDRAIntegrationExtendedResource`).
    pub extended_resources: bool,
    /// Whether what claims devices waits while claims are not charged (`KueueDRARejectWorkloadsWhenDRADisabled`).
    pub refused_if_uncharged: bool,
    /// The resources that are charged for classes.
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

/// Of DeviceClasses for one extended resource the one that Kubernetes takes: the newest, and of several the first by name.
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
