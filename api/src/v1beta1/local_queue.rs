//! LocalQueue: `flavorsUsage` is called `flavorUsage`, and the status could describe the flavors.

use serde_json::{Value, json};

use super::schema as edit;
use crate::field::FieldError;

pub(super) fn schema(root: &mut Value) {
    edit::rename(root, "status.flavorsUsage", "flavorUsage");
    let name = edit::at(root, "status.flavorUsage.[].name").clone();
    let flavors = json!({
        "type": "array",
        "description": "The ResourceFlavors of the ClusterQueue. Nothing writes it any more.",
        "maxItems": 64,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": name,
                "nodeLabels": {
                    "type": "object", "maxProperties": 8, "x-kubernetes-map-type": "atomic",
                    "additionalProperties": {"type": "string"},
                },
                "nodeTaints": {
                    "type": "array", "maxItems": 8, "x-kubernetes-list-type": "atomic",
                    "items": {
                        "type": "object",
                        "required": ["effect", "key"],
                        "properties": {
                            "effect": {"type": "string"},
                            "key": {"type": "string"},
                            "timeAdded": {"type": "string", "format": "date-time"},
                            "value": {"type": "string"},
                        },
                    },
                },
                "resources": {
                    "type": "array", "maxItems": 64, "x-kubernetes-list-type": "set", "items": {"type": "string"},
                },
                "topology": {
                    "type": "object",
                    "required": ["levels", "name"],
                    "properties": {
                        "levels": {
                            "type": "array", "minItems": 1, "maxItems": 16, "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string"},
                        },
                        "name": name,
                    },
                },
            },
        },
    });
    edit::set(root, "status.flavors", flavors);
}

pub(super) fn to_v1beta2(object: &mut Value) -> Result<(), FieldError> {
    super::rename(object.get_mut("status"), "flavorUsage", "flavorsUsage");
    super::remove(object.get_mut("status"), "flavors");
    Ok(())
}

pub(super) fn to_v1beta1(object: &mut Value) -> Result<(), FieldError> {
    super::rename(object.get_mut("status"), "flavorsUsage", "flavorUsage");
    Ok(())
}
