//! MultiKueueConfig: in v1beta1 the clusters are a set, which several appliers can share.

use serde_json::Value;

use super::schema as edit;

pub(super) fn schema(root: &mut Value) {
    let clusters = edit::at(root, "spec.clusters");
    super::remove(Some(&mut *clusters), "x-kubernetes-validations");
    clusters["x-kubernetes-list-type"] = "set".into();
}
