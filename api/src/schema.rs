//! Schema parts of several kinds: names, quantities, condition lists, and the core Kubernetes types
//! in CRDs. Each function is for `#[schemars(schema_with = "...")]`.

use schemars::{Schema, SchemaGenerator, json_schema};

pub(crate) use switchyard_syntax::labels::label_selector_schema as label_selector;

/// A DNS-1123 subdomain, as in object names.
pub(crate) const SUBDOMAIN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS-1123 label.
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A label key with its optional prefix.
pub(crate) const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// A Kubernetes quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Name of another object, at most 253 characters.
pub(crate) fn reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 253, "pattern": SUBDOMAIN})
}

/// A list of distinct ResourceFlavor names.
pub(crate) fn reference_set(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 64, "items": reference(generator), "x-kubernetes-list-type": "set",
    })
}

/// The name of an AdmissionCheck.
pub(crate) fn admission_check_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 316})
}

/// The name of a pod set.
pub(crate) fn pod_set_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 63, "pattern": LABEL})
}

/// The name of a pod set where it defaults to `main`.
pub(crate) fn pod_set_name_or_main(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 63, "pattern": LABEL, "default": "main"})
}

/// A quantity: a string such as `1500m` or `4Gi`, or a plain integer.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "pattern": QUANTITY})
}

/// Quota: a quantity that is not negative, which the webhook checks. API servers before 1.34 ignore
/// the length limit when they estimate the cost of a CEL rule. They refuse CRDs with a rule that
/// reads the quantities of these lists.
pub(crate) fn quota(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "pattern": QUANTITY, "maxLength": 64})
}

/// A weight for fair sharing: a quantity that defaults to one. The length limit bounds the cost of
/// the CEL rules.
pub(crate) fn weight(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": QUANTITY,
        "maxLength": 64,
        "default": 1,
        "x-kubernetes-validations": [
            {"rule": "!quantity(string(self)).isLessThan(quantity('0'))", "message": "must be greater than or equal to 0"},
            {
                "rule": "!quantity(string(self)).isGreaterThan(quantity('0')) || quantity(string(self)).isGreaterThan(quantity('1n'))",
                "message": "When not 0, weight must be > 10e-9",
            },
        ],
    })
}

/// Quantities by resource name.
pub(crate) fn resource_list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": quantity(generator)})
}

/// Flavor names by resource name.
pub(crate) fn flavors_by_resource(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": reference(generator)})
}

/// A map from strings to strings.
pub(crate) fn string_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": {"type": "string"}})
}

/// An object of a later release, preserved as it is.
pub(crate) fn kept(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Parameters of a provisioning class: up to 100 of 255 characters.
pub(crate) fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 100, "additionalProperties": {"type": "string", "maxLength": 255},
    })
}

/// Node labels of a flavor: at most eight. Server-side apply replaces them as a whole.
pub(crate) fn node_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 8, "additionalProperties": {"type": "string"},
        "x-kubernetes-map-type": "atomic",
    })
}

/// An RFC 3339 time.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// Status conditions with Kubernetes' limits. At most 16, one for each type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {"type": "string", "maxLength": 316, "pattern": concat!(
                    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
                    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                )},
            },
        },
    })
}

/// Node taints: at most eight, with a known effect.
pub(crate) fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["effect", "key"],
            "properties": {
                "effect": {"type": "string", "maxLength": 63},
                "key": {"type": "string", "maxLength": 317},
                "timeAdded": {"type": "string", "format": "date-time"},
                "value": {"type": "string"},
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "self.all(x, x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
                "message": "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
            },
            {
                "rule": "self.all(x, self.exists_one(y, y.key == x.key && y.effect == x.effect))",
                "message": "taints must be unique by key and effect pair",
            },
        ],
    })
}

/// Tolerations: at most eight, under the rules for pods.
pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "properties": {
                "effect": {"type": "string"},
                "key": {"type": "string"},
                "operator": {"type": "string"},
                "tolerationSeconds": {"type": "integer", "format": "int64"},
                "value": {"type": "string"},
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "self.all(x, !has(x.key) ? x.operator == 'Exists' : true)",
                "message": "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
            },
            {
                "rule": "self.all(x, has(x.tolerationSeconds) ? x.effect == 'NoExecute' : true)",
                "message": "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            },
            {
                "rule": "self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])",
                "message": "supported toleration values: 'Equal'(default), 'Exists'",
            },
            {
                "rule": "self.all(x, has(x.operator) && x.operator == 'Exists' ? !has(x.value) : true)",
                "message": "a value must be empty when 'operator' is 'Exists'",
            },
            {
                "rule": "self.all(x, !has(x.effect) || x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
                "message": "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
            },
        ],
    })
}
