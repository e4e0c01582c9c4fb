//! `kueue.x-k8s.io/v1beta1`, as differences from [`crate::v1beta2`], which is the stored version.
//! Each kind has a file with its schema, as an edit of v1beta2's, and the conversion in both
//! directions.
//!
//! Conversions work on JSON, so they keep fields that no Rust type has.
//! - Fields that only v1beta2 has (`preemptionGates`, `onDisconnect`, `status.dispatch` and others)
//!   have the same name and place in v1beta1.
//! - Fields and values that only v1beta1 has (`retryDelayMinutes`, `Borrow` for `MayStopSearch`,
//!   the flat `admissionChecks` and others) are kept in the annotation [`crate::names::V1BETA1`] of
//!   the v1beta2 object. They are used only while they agree with the rest of the object, so a
//!   change in v1beta2 always takes effect. Above 64 KiB some are dropped; the annotation
//!   [`crate::names::V1BETA1_DROPPED`] records this in both versions until a user removes it.
//! - A `topologyAssignment` keeps its meaning and may be packed differently.
//!
//! Where both versions have a value, v1beta2's limits apply to both, because they are those of the
//! stored object.

mod admission_check;
mod cluster_queue;
mod cohort;
mod local_queue;
mod multi_kueue_cluster;
mod multi_kueue_config;
mod remainder;
mod schema;
mod topology_assignment;
mod workload;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;
use serde_json::Value;

use crate::{
    field::{FieldError, Path},
    v1beta2,
};

/// The version.
pub const VERSION: &str = "v1beta1";
/// Group and version as in `apiVersion`.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta1";

/// Differences of one kind.
struct KindDifferences {
    name: &'static str,
    plural: &'static str,
    /// Edits v1beta2's schema into v1beta1's.
    schema: fn(&mut Value),
    /// `None` if both versions have the same fields.
    conversion: Option<Conversion>,
}

/// The conversion of one kind. Neither direction touches `metadata`.
struct Conversion {
    to_v1beta2: fn(&mut Value) -> Result<(), FieldError>,
    to_v1beta1: fn(&mut Value) -> Result<(), FieldError>,
}

const KINDS: [KindDifferences; 11] = [
    KindDifferences {
        name: "AdmissionCheck",
        plural: "admissionchecks",
        schema: admission_check::schema,
        conversion: Some(Conversion {
            to_v1beta2: admission_check::to_v1beta2,
            to_v1beta1: admission_check::to_v1beta1,
        }),
    },
    KindDifferences {
        name: "ClusterQueue",
        plural: "clusterqueues",
        schema: cluster_queue::schema,
        conversion: Some(Conversion {
            to_v1beta2: cluster_queue::to_v1beta2,
            to_v1beta1: cluster_queue::to_v1beta1,
        }),
    },
    KindDifferences {
        name: "Cohort",
        plural: "cohorts",
        schema: cohort::schema,
        conversion: Some(Conversion {
            to_v1beta2: cohort::to_v1beta2,
            to_v1beta1: cohort::to_v1beta1,
        }),
    },
    KindDifferences {
        name: "LocalQueue",
        plural: "localqueues",
        schema: local_queue::schema,
        conversion: Some(Conversion {
            to_v1beta2: local_queue::to_v1beta2,
            to_v1beta1: local_queue::to_v1beta1,
        }),
    },
    KindDifferences {
        name: "MultiKueueCluster",
        plural: "multikueueclusters",
        schema: multi_kueue_cluster::schema,
        conversion: Some(Conversion {
            to_v1beta2: multi_kueue_cluster::to_v1beta2,
            to_v1beta1: multi_kueue_cluster::to_v1beta1,
        }),
    },
    KindDifferences {
        name: "MultiKueueConfig",
        plural: "multikueueconfigs",
        schema: multi_kueue_config::schema,
        conversion: None,
    },
    KindDifferences {
        name: "ProvisioningRequestConfig",
        plural: "provisioningrequestconfigs",
        schema: same,
        conversion: None,
    },
    KindDifferences {
        name: "ResourceFlavor",
        plural: "resourceflavors",
        schema: same,
        conversion: None,
    },
    KindDifferences { name: "Topology", plural: "topologies", schema: same, conversion: None },
    KindDifferences {
        name: "Workload",
        plural: "workloads",
        schema: workload::schema,
        conversion: Some(Conversion {
            to_v1beta2: workload::to_v1beta2,
            to_v1beta1: workload::to_v1beta1,
        }),
    },
    KindDifferences {
        name: "WorkloadPriorityClass",
        plural: "workloadpriorityclasses",
        schema: same,
        conversion: None,
    },
];

fn same(_: &mut Value) {}

fn kind(name: &str) -> Option<&'static KindDifferences> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Whether the versions of this kind differ in more than `apiVersion`. Then API servers need the
/// conversion webhook.
#[must_use]
pub fn differs(kind: &str) -> bool {
    KINDS.iter().any(|known| known.name == kind && known.conversion.is_some())
}

/// Names of the CustomResourceDefinitions whose kinds [differ](differs), such as
/// `workloads.kueue.x-k8s.io`.
pub fn differing_definitions() -> impl Iterator<Item = String> {
    KINDS
        .iter()
        .filter(|kind| kind.conversion.is_some())
        .map(|kind| format!("{}.{}", kind.plural, v1beta2::GROUP))
}

/// v1beta1 of a kind, derived from its v1beta2. It is served by default only if it needs no
/// webhook.
pub(crate) fn version(
    kind_name: &str,
    v1beta2: &CustomResourceDefinitionVersion,
) -> CustomResourceDefinitionVersion {
    let mut version = CustomResourceDefinitionVersion {
        name: VERSION.into(),
        served: !differs(kind_name),
        storage: false,
        deprecated: Some(true),
        deprecation_warning: Some("This version is deprecated. Use v1beta2 instead.".into()),
        // As in Kueue. API servers reject equal selectable fields beside different schemas.
        selectable_fields: None,
        ..v1beta2.clone()
    };
    let root = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
    if let (Some(kind), Some(root)) = (kind(kind_name), root)
        && let Ok(mut edited) = serde_json::to_value(&*root)
    {
        (kind.schema)(&mut edited);
        *root = serde_json::from_value(edited).unwrap_or_default();
    }
    for column in version.additional_printer_columns.iter_mut().flatten() {
        if column.json_path == ".spec.cohortName" {
            column.json_path = ".spec.cohort".into();
        }
    }
    version
}

/// Why an object cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object} cannot be converted to {desired}: {field}")]
pub struct ConversionError {
    /// Kind, namespace and name.
    object: String,
    desired: String,
    field: FieldError,
}

/// Converts an object to another `apiVersion`.
///
/// # Errors
/// If the kind or version is unknown, or a field has a value without a meaning in the other
/// version. The schemas reject nearly all such objects.
pub fn convert(mut object: Value, desired: &str) -> Result<Value, ConversionError> {
    match convert_in_place(&mut object, desired) {
        Ok(()) => Ok(object),
        Err(field) => {
            Err(ConversionError { object: named(&object), desired: desired.to_owned(), field })
        }
    }
}

fn convert_in_place(object: &mut Value, desired: &str) -> Result<(), FieldError> {
    const VERSIONS: [&str; 2] = [API_VERSION, v1beta2::API_VERSION];
    let present = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    for version in [&*present, desired] {
        if !VERSIONS.contains(&version) {
            return Err(FieldError::not_supported(&Path::new("apiVersion"), version, &VERSIONS));
        }
    }
    let name = object["kind"].as_str().unwrap_or_default();
    let Some(kind) = kind(name) else {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        return Err(FieldError::not_supported(&Path::new("kind"), name, &known));
    };
    if present == desired {
        return Ok(());
    }
    if let Some(conversion) = &kind.conversion {
        if desired == API_VERSION {
            remainder::to_v1beta1(object, conversion)?;
        } else {
            remainder::to_v1beta2(object, conversion)?;
        }
    }
    object["apiVersion"] = desired.into();
    Ok(())
}

fn named(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = if text("/kind").is_empty() { "the object" } else { text("/kind") };
    match (text("/metadata/namespace"), text("/metadata/name")) {
        (_, "") => kind.to_owned(),
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

/// Renames a field.
fn rename(parent: Option<&mut Value>, from: &str, to: &str) {
    let Some(parent) = parent.and_then(Value::as_object_mut) else { return };
    if let Some(value) = parent.remove(from) {
        parent.insert(to.to_owned(), value);
    }
}

/// Removes a field.
fn remove(parent: Option<&mut Value>, field: &str) -> Option<Value> {
    parent?.as_object_mut()?.remove(field)
}
