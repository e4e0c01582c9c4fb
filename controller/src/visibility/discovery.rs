//! Discovery and OpenAPI documents of the visibility API.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use switchyard_api::visibility::{GROUP, PENDING, SUMMARY, VERSIONS, openapi};

pub(super) fn groups() -> Value {
    let mut group = group();
    if let Some(group) = group.as_object_mut() {
        group.remove("kind");
        group.remove("apiVersion");
    }
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})
}

pub(super) fn group() -> Value {
    let versions = VERSIONS
        .map(|version| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version}));
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "preferredVersion": versions[0].clone(), "versions": versions,
    })
}

/// Resources of a version. As in Kueue, the queues themselves cannot be read.
pub(super) fn resources(version: &str) -> Value {
    let resource = |name: &str, singular: &str, namespaced: bool, verbs: &[&str]| {
        json!({
            "name": name, "singularName": singular, "namespaced": namespaced, "kind": SUMMARY,
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

/// Paths of the OpenAPI v3 documents. Clients cache a document by its hash.
pub(super) fn documents() -> Value {
    let paths = VERSIONS.map(|version| {
        let path = format!("apis/{GROUP}/{version}");
        let digest = Sha256::digest(openapi::v3(version).to_string());
        let hash: String = digest.iter().take(16).map(|byte| format!("{byte:02X}")).collect();
        let url = format!("/openapi/v3/{path}?hash={hash}");
        (path, json!({"serverRelativeURL": url}))
    });
    json!({"paths": Map::from_iter(paths)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_a_document() {
        let paths = &documents()["paths"];
        for version in VERSIONS {
            let url =
                paths[format!("apis/{GROUP}/{version}")]["serverRelativeURL"].as_str().unwrap();
            assert!(url.starts_with(&format!("/openapi/v3/apis/{GROUP}/{version}?hash=")), "{url}");
        }
        assert_eq!(paths.as_object().unwrap().len(), VERSIONS.len());
    }

    #[test]
    fn discovery_documents_agree_on_the_group() {
        assert_eq!(
            group()["preferredVersion"]["groupVersion"],
            "visibility.kueue.x-k8s.io/v1beta2"
        );
        assert_eq!(groups()["groups"][0]["versions"], group()["versions"]);
        let resources = resources("v1beta1");
        assert_eq!(resources["groupVersion"], "visibility.kueue.x-k8s.io/v1beta1");
        assert_eq!(resources["resources"][3]["name"], "localqueues/pendingworkloads");
    }
}
