//! What the API server asks to learn what there is.

use serde_json::{Value, json};

use super::{GROUP, PENDING, VERSIONS};

/// All groups that are served here.
pub(super) fn groups() -> Value {
    let mut group = group();
    if let Some(group) = group.as_object_mut() {
        group.remove("kind");
        group.remove("apiVersion");
    }
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})
}

/// The group and its versions.
pub(super) fn group() -> Value {
    let versions = VERSIONS.map(|version| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version}));
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "preferredVersion": versions[0].clone(), "versions": versions,
    })
}

/// A version's resources. The queues themselves are here in name only, as in Kueue.
pub(super) fn resources(version: &str) -> Value {
    let resource = |name: &str, singular: &str, namespaced: bool, verbs: &[&str]| {
        json!({
            "name": name, "singularName": singular, "namespaced": namespaced, "kind": "PendingWorkloadsSummary",
            "verbs": verbs,
        })
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"),
        "resources": [
            resource("clusterqueues", "clusterqueue", false, &[]),
            resource(&format!("clusterqueues/{PENDING}"), "", false, &["get"]),
            resource("localqueues", "localqueue", true, &[]),
            resource(&format!("localqueues/{PENDING}"), "", true, &["get"]),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_told_alike_everywhere() {
        assert_eq!(group()["preferredVersion"]["groupVersion"], "visibility.kueue.x-k8s.io/v1beta2");
        assert_eq!(groups()["groups"][0]["versions"], group()["versions"]);
        let resources = resources("v1beta1");
        assert_eq!(resources["groupVersion"], "visibility.kueue.x-k8s.io/v1beta1");
        assert_eq!(resources["resources"][3]["name"], "localqueues/pendingworkloads");
    }
}
