//! Parses paths of the visibility API.

use switchyard_api::visibility::{GROUP, PENDING, VERSIONS};

use switchyard_platform::delegated_auth::AccessTarget;

/// The document or list that a request reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResourcePath {
    OpenApi2,
    /// The index of OpenAPI v3 documents.
    OpenApi3,
    /// The OpenAPI v3 document of a version.
    OpenApi3Of(&'static str),
    Groups,
    Group,
    /// Resources of a version.
    Version(&'static str),
    /// Pending workloads of a ClusterQueue.
    ClusterQueue {
        version: &'static str,
        name: String,
    },
    /// Pending workloads of a LocalQueue.
    LocalQueue {
        version: &'static str,
        namespace: String,
        name: String,
    },
}

impl ResourcePath {
    pub(super) fn parse(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = match segments.as_slice() {
            ["openapi", "v2"] => return Some(Self::OpenApi2),
            ["openapi", "v3"] => return Some(Self::OpenApi3),
            ["openapi", "v3", "apis", group, version] if *group == GROUP => {
                return VERSIONS.into_iter().find(|known| known == version).map(Self::OpenApi3Of);
            }
            ["apis", rest @ ..] => rest,
            _ => return None,
        };
        let [group, rest @ ..] = rest else { return Some(Self::Groups) };
        if *group != GROUP {
            return None;
        }
        let [version, rest @ ..] = rest else { return Some(Self::Group) };
        let version = VERSIONS.into_iter().find(|known| known == version)?;
        match rest {
            [] => Some(Self::Version(version)),
            ["clusterqueues", name, PENDING] => {
                Some(Self::ClusterQueue { version, name: (*name).to_owned() })
            }
            ["namespaces", namespace, "localqueues", name, PENDING] => Some(Self::LocalQueue {
                version,
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
            }),
            _ => None,
        }
    }

    /// The resource or path that the caller must be allowed to read.
    pub(super) fn wanted(&self, path: &str) -> AccessTarget {
        let (version, resource, namespace, name) = match self {
            Self::OpenApi2
            | Self::OpenApi3
            | Self::OpenApi3Of(_)
            | Self::Groups
            | Self::Group
            | Self::Version(_) => {
                return unknown(path);
            }
            Self::ClusterQueue { version, name } => (version, "clusterqueues", "", name),
            Self::LocalQueue { version, namespace, name } => {
                (version, "localqueues", namespace.as_str(), name)
            }
        };
        AccessTarget::Subresource {
            group: GROUP,
            version: (*version).to_owned(),
            resource,
            subresource: PENDING,
            namespace: namespace.to_owned(),
            name: name.clone(),
        }
    }
}

/// A path that names no object is authorized as a non-resource URL.
pub(super) fn unknown(path: &str) -> AccessTarget {
    AccessTarget::Path(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_discovery_and_queues() {
        let version = "v1beta1";
        for (path, target) in [
            ("/apis", Some(ResourcePath::Groups)),
            ("/apis/visibility.kueue.x-k8s.io", Some(ResourcePath::Group)),
            ("/apis/visibility.kueue.x-k8s.io/v1beta2", Some(ResourcePath::Version("v1beta2"))),
            (
                "/apis/visibility.kueue.x-k8s.io/v1beta1/clusterqueues/cq/pendingworkloads",
                Some(ResourcePath::ClusterQueue { version, name: "cq".to_owned() }),
            ),
            (
                "/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/ns/localqueues/lq/pendingworkloads",
                Some(ResourcePath::LocalQueue {
                    version,
                    namespace: "ns".to_owned(),
                    name: "lq".to_owned(),
                }),
            ),
            ("/openapi/v2", Some(ResourcePath::OpenApi2)),
            ("/openapi/v3", Some(ResourcePath::OpenApi3)),
            (
                "/openapi/v3/apis/visibility.kueue.x-k8s.io/v1beta1",
                Some(ResourcePath::OpenApi3Of(version)),
            ),
            ("/openapi/v3/apis/visibility.kueue.x-k8s.io/v1", None),
            ("/openapi/v3/apis/other.example.org/v1beta1", None),
            ("/apis/visibility.kueue.x-k8s.io/v1", None),
            ("/apis/visibility.kueue.x-k8s.io/v1beta1/clusterqueues/cq", None),
            ("/apis/other.example.org", None),
            ("/metrics", None),
            ("/", None),
        ] {
            assert_eq!(ResourcePath::parse(path), target, "{path}");
        }
    }

    #[test]
    fn lists_are_authorized_by_object_others_by_path() {
        let path = "/apis/visibility.kueue.x-k8s.io/v1beta2";
        assert_eq!(
            ResourcePath::parse(path).unwrap().wanted(path),
            AccessTarget::Path(path.to_owned())
        );
        let list = format!("{path}/namespaces/ns/localqueues/lq/pendingworkloads");
        let AccessTarget::Subresource { resource, namespace, .. } =
            ResourcePath::parse(&list).unwrap().wanted(&list)
        else {
            panic!("a list is an object's")
        };
        assert_eq!((resource, namespace.as_str()), ("localqueues", "ns"));
    }
}
