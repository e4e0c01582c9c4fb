//! Which DeviceClasses count as which resource (`resources.deviceClassMappings` of Kueue's
//! configuration file).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// DeviceClasses that count as one resource.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceClassMapping {
    /// The resource.
    pub name: String,
    /// The DeviceClasses.
    pub device_class_names: Vec<String>,
    /// Sources of the amounts. If empty, the amount is the number of devices.
    #[serde(default)]
    pub sources: Vec<DeviceClassSource>,
}

/// The source of a device's amount: exactly one of the fields.
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
    /// Name of the driver.
    pub driver: String,
    /// The devices of the driver.
    pub device_selector: DeviceSelector,
}

/// Selects devices.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeviceSelector {
    /// Selects by a CEL expression.
    pub cel: Option<CelDeviceSelector>,
}

/// Selects devices by a CEL expression.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CelDeviceSelector {
    /// The CEL expression.
    pub expression: String,
}
