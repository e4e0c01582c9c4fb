//! Which DeviceClasses count as which resource: `resources.deviceClassMappings` of Kueue's configuration file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Devices that count as a resource.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceClassMapping {
    /// The resource.
    pub name: String,
    /// The DeviceClasses.
    pub device_class_names: Vec<String>,
    /// Where the amounts come from; the number of devices when empty.
    #[serde(default)]
    pub sources: Vec<DeviceClassSource>,
}

/// Where the amount of a device comes from: exactly one of the fields.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeviceClassSource {
    /// A counter that the device consumes.
    pub counter: Option<DeviceSource>,
    /// A capacity that the device has.
    pub capacity: Option<DeviceSource>,
}

/// A counter or capacity of a driver's devices.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceSource {
    /// The counter's or capacity's name.
    pub name: String,
    /// The driver.
    pub driver: String,
    /// Which of its devices.
    pub device_selector: DeviceSelector,
}

/// Which devices.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeviceSelector {
    /// By a CEL expression.
    pub cel: Option<CelDeviceSelector>,
}

/// Which devices, by a CEL expression.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CelDeviceSelector {
    /// The expression.
    pub expression: String,
}
