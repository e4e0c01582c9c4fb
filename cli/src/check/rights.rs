//! Asks the API server which rights the program's account and the caller lack.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::Value;

use super::facts::ReadResult;
use super::mode::Mode;

/// Requests in flight.
const AT_ONCE: usize = 16;

/// Roles that administrators narrow on purpose, so a missing right is no fault.
const NARROWED: [(&str, &str); 2] =
    [("ClusterRole", "switchyard-agent"), ("Role", "switchyard-hub-kubeconfigs")];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Right {
    pub(super) verb: String,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: Option<String>,
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
}

impl Right {
    /// As in messages: `patch workloads.kueue.x-k8s.io/status`.
    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.verb, self.target())
    }

    /// [`Self::text`] without the verb.
    fn target(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let subresource = self.subresource.as_ref().map(|it| format!("/{it}")).unwrap_or_default();
        let name = self.name.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
        let namespace = self.namespace.as_ref().map(|it| format!(" in {it}")).unwrap_or_default();
        format!("{}{group}{subresource}{name}{namespace}", self.resource)
    }

    /// The resource with its subresource, without its group.
    pub(crate) fn resource_path(&self) -> String {
        match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.clone(),
        }
    }

    fn attributes(&self) -> ResourceAttributes {
        ResourceAttributes {
            verb: Some(self.verb.clone()),
            group: Some(self.group.clone()),
            resource: Some(self.resource.clone()),
            subresource: self.subresource.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            ..ResourceAttributes::default()
        }
    }
}

/// Rights of `deploy/rbac` that the program's account lacks. An administrator decides where an
/// agent may create jobs, so those rights are not checked.
pub(super) async fn denied(
    client: &Client,
    mode: Mode,
    namespace: &str,
) -> ReadResult<Vec<String>> {
    let rights = role_rights(mode, namespace)?;
    let user = format!("system:serviceaccount:{namespace}:{}", mode.name());
    let groups =
        ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let denied = denied_of(rights, async |attributes| {
        let spec = SubjectAccessReviewSpec {
            user: Some(user.clone()),
            groups: Some(groups.to_vec()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        Ok(reviews.create(&PostParams::default(), &review).await?.status)
    });
    Ok(texts(&denied.await?))
}

/// A right that an installation takes. All rights of `instead` suffice too, if there are any.
struct Need {
    right: Right,
    instead: Vec<Right>,
}

/// Rights to install that the caller lacks.
#[derive(Default)]
pub(super) struct MissingToInstall {
    /// For every mode.
    pub(super) common: Vec<Right>,
    /// For one mode.
    pub(super) modes: Vec<(Mode, Vec<Right>)>,
    /// For the visibility API, which is off by default.
    pub(super) visibility: Vec<Right>,
}

/// Verbs of Helm, and of `kubectl apply --server-side`, for each object of the chart.
const APPLY: [&str; 3] = ["create", "get", "patch"];
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Rights to install that the caller lacks. `has_namespace`: the namespace exists.
pub(super) async fn missing_to_install(
    client: &Client,
    namespace: &str,
    has_namespace: bool,
) -> ReadResult<MissingToInstall> {
    let mut missing = MissingToInstall {
        common: lacking(client, common_needs(namespace, has_namespace)?).await?,
        ..MissingToInstall::default()
    };
    for mode in Mode::ALL {
        missing.modes.push((mode, lacking(client, mode_needs(mode, namespace)?).await?));
    }
    missing.visibility = lacking(client, visibility_needs()).await?;
    Ok(missing)
}

/// The rights of unmet needs, without repetitions.
async fn lacking(client: &Client, needs: Vec<Need>) -> ReadResult<Vec<Right>> {
    let denied = denied_to_caller(client, needs.iter().map(|need| need.right.clone())).await?;
    let unmet: Vec<Need> = needs.into_iter().filter(|need| denied.contains(&need.right)).collect();
    // Several bindings can lead to one role.
    let mut instead: Vec<Right> = Vec::new();
    for right in unmet.iter().flat_map(|need| &need.instead) {
        if !instead.contains(right) {
            instead.push(right.clone());
        }
    }
    let denied = denied_to_caller(client, instead).await?;
    let mut lacking: Vec<Right> = Vec::new();
    for need in unmet {
        let has_instead =
            !need.instead.is_empty() && !need.instead.iter().any(|it| denied.contains(it));
        if !has_instead && !lacking.contains(&need.right) {
            lacking.push(need.right);
        }
    }
    Ok(lacking)
}

fn common_needs(namespace: &str, has_namespace: bool) -> ReadResult<Vec<Need>> {
    let cluster = [
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        (RBAC, "clusterroles"),
        (RBAC, "clusterrolebindings"),
        (ADMISSION, "mutatingwebhookconfigurations"),
        (ADMISSION, "validatingwebhookconfigurations"),
    ];
    let own = [
        ("", "secrets"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("", "configmaps"),
        ("apps", "deployments"),
        (RBAC, "roles"),
        (RBAC, "rolebindings"),
        ("networking.k8s.io", "networkpolicies"),
        ("policy", "poddisruptionbudgets"),
    ];
    let mut needs = Vec::new();
    if !has_namespace {
        needs.push(need(&["create"], ("", "namespaces"), None));
    }
    // Aggregated roles for users: the API server wants all rights for these, or this one.
    needs.push(need(&["escalate"], (RBAC, "clusterroles"), None));
    // The chart looks up which roles Kueue has made.
    needs.push(need(&["list"], (RBAC, "clusterroles"), None));
    needs.extend(cluster.map(|it| need(&APPLY, it, None)));
    needs.extend(own.map(|it| need(&APPLY, it, Some(namespace))));
    // Helm's storage of releases.
    needs.push(need(&["list", "update", "delete"], ("", "secrets"), Some(namespace)));
    let mut needs: Vec<Need> = needs.into_iter().flatten().collect();
    needs.extend(role_needs(Mode::CONTROLLER_ROLES, "", namespace)?);
    Ok(needs)
}

/// The roles and bindings of a mode.
fn mode_needs(mode: Mode, namespace: &str) -> ReadResult<Vec<Need>> {
    let [controller, own] = mode.roles();
    let mut needs = role_needs(own, controller, namespace)?;
    if mode == Mode::Agent {
        for resource in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
            needs.extend(need(&APPLY, (ADMISSION, resource), None));
        }
    }
    Ok(needs)
}

/// The APIServices, and a binding in kube-system to a role of Kubernetes.
fn visibility_needs() -> Vec<Need> {
    let system = Some(KUBE_SYSTEM);
    let mut needs = need(&APPLY, ("apiregistration.k8s.io", "apiservices"), None);
    needs.extend(need(&APPLY, (RBAC, "rolebindings"), system));
    let reader = "extension-apiserver-authentication-reader";
    let instead = need(&["get", "list", "watch"], ("", "configmaps"), system);
    let named = |need: Need| {
        let name = Some("extension-apiserver-authentication".to_owned());
        Right { name, ..need.right }
    };
    needs.push(bind("roles", reader, system, instead.into_iter().map(named).collect()));
    needs
}

const KUBE_SYSTEM: &str = "kube-system";

fn need(verbs: &[&str], (group, resource): (&str, &str), namespace: Option<&str>) -> Vec<Need> {
    let right = |verb: &&str| Right {
        verb: (*verb).to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.map(str::to_owned),
        ..Right::default()
    };
    verbs.iter().map(|verb| Need { right: right(verb), instead: Vec::new() }).collect()
}

fn bind(resource: &str, role: &str, namespace: Option<&str>, instead: Vec<Right>) -> Need {
    let right = Right {
        verb: "bind".to_owned(),
        group: RBAC.to_owned(),
        resource: resource.to_owned(),
        name: Some(role.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..Right::default()
    };
    Need { right, instead }
}

/// Needs for the Roles and bindings of a manifest. The API server accepts a role from callers with
/// the verb `escalate` or all its rights, and a binding from callers with `bind` or all rights of
/// the role. Bound roles may be in `others`.
fn role_needs(manifest: &str, others: &str, namespace: &str) -> ReadResult<Vec<Need>> {
    let (objects, others) = (objects(manifest)?, objects(others)?);
    let rights_of = |kind: &str, name: &str| -> ReadResult<Vec<Right>> {
        let within = (kind == "Role").then_some(namespace);
        let mut all = objects.iter().chain(&others);
        match all.find(|it| it["kind"] == kind && it["metadata"]["name"] == name) {
            Some(role) => object_rights(role, within),
            // A role of Kubernetes.
            None if name == "system:auth-delegator" => Ok([
                need(&["create"], ("authentication.k8s.io", "tokenreviews"), None),
                need(&["create"], ("authorization.k8s.io", "subjectaccessreviews"), None),
            ]
            .into_iter()
            .flatten()
            .map(|need| need.right)
            .collect()),
            None => Ok(Vec::new()),
        }
    };
    let mut needs = Vec::new();
    for object in &objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        if object["metadata"]["namespace"] == KUBE_SYSTEM {
            continue;
        }
        if kind == "Role" {
            let instead = object_rights(object, Some(namespace))?;
            for need in need(&["escalate"], (RBAC, "roles"), Some(namespace)) {
                needs.push(Need { instead: instead.clone(), ..need });
            }
        }
        if let Some(role) = object["roleRef"]["name"].as_str() {
            let of = object["roleRef"]["kind"].as_str().unwrap_or_default();
            let resource = if of == "Role" { "roles" } else { "clusterroles" };
            let within = (kind == "RoleBinding").then_some(namespace);
            needs.push(bind(resource, role, within, rights_of(of, role)?));
        }
    }
    Ok(needs)
}

/// The rights as in messages, with the verbs of each resource together:
/// `create, patch workloads.kueue.x-k8s.io`.
pub(super) fn grouped(rights: &[Right]) -> String {
    let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
    for right in rights {
        let target = right.target();
        match groups.iter_mut().find(|(_, known)| *known == target) {
            Some((verbs, _)) if verbs.contains(&right.verb.as_str()) => {}
            Some((verbs, _)) => verbs.push(&right.verb),
            None => groups.push((vec![&right.verb], target)),
        }
    }
    let texts = groups.iter().map(|(verbs, target)| format!("{} {target}", verbs.join(", ")));
    texts.collect::<Vec<_>>().join("; ")
}

fn texts(rights: &[Right]) -> Vec<String> {
    rights.iter().map(Right::text).collect()
}

/// Rights of `deploy/rbac/kubeconfig-worker.yaml` that the caller lacks on a worker.
pub(crate) async fn missing_on_worker(client: &Client) -> ReadResult<Vec<Right>> {
    let manifest = include_str!("../../../deploy/rbac/kubeconfig-worker.yaml");
    denied_to_caller(client, manifest_rights(manifest, "")?).await
}

/// Rights that the caller lacks.
async fn denied_to_caller(
    client: &Client,
    rights: impl IntoIterator<Item = Right>,
) -> ReadResult<Vec<Right>> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    denied_of(rights, async |attributes| {
        let resource_attributes = Some(attributes);
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes,
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        Ok(reviews.create(&PostParams::default(), &review).await?.status)
    })
    .await
}

/// Rights that the API server denies. `ask` sends one review.
async fn denied_of(
    rights: impl IntoIterator<Item = Right>,
    ask: impl AsyncFn(ResourceAttributes) -> Result<Option<SubjectAccessReviewStatus>, kube::Error>,
) -> ReadResult<Vec<Right>> {
    let ask = &ask;
    let reviews = stream::iter(rights).map(|right| async move {
        let answer = ask(right.attributes()).await.map_err(|error| crate::cause(&error))?;
        Ok::<_, String>((!answer.is_some_and(|status| status.allowed)).then_some(right))
    });
    let answers: Vec<Option<Right>> = reviews.buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

/// All rights of a mode's roles.
fn role_rights(mode: Mode, namespace: &str) -> ReadResult<Vec<Right>> {
    let mut rights = Vec::new();
    for text in mode.roles() {
        rights.extend(manifest_rights(text, namespace)?);
    }
    Ok(rights)
}

/// All rights of a manifest's roles, except those that administrators narrow.
fn manifest_rights(text: &str, namespace: &str) -> ReadResult<Vec<Right>> {
    let mut rights = Vec::new();
    for object in objects(text)? {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let within = match object["kind"].as_str().unwrap_or_default() {
            kind if NARROWED.contains(&(kind, name)) => continue,
            "ClusterRole" => None,
            "Role" => Some(namespace),
            _ => continue,
        };
        rights.extend(object_rights(&object, within)?);
    }
    Ok(rights)
}

fn objects(manifest: &str) -> ReadResult<Vec<Value>> {
    serde_saphyr::from_multiple(manifest).map_err(|error| error.to_string())
}

/// All rights of a role.
fn object_rights(role: &Value, namespace: Option<&str>) -> ReadResult<Vec<Right>> {
    let rules: Vec<PolicyRule> =
        serde_json::from_value(role["rules"].clone()).map_err(|error| error.to_string())?;
    Ok(rules.iter().flat_map(|rule| rule_rights(rule, namespace)).collect())
}

/// One right per verb and resource of a rule, for the first of its resource names.
fn rule_rights(rule: &PolicyRule, namespace: Option<&str>) -> Vec<Right> {
    let name = rule.resource_names.iter().flatten().next();
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (resource.as_str(), None),
            };
            rights.extend(rule.verbs.iter().map(|verb| Right {
                verb: verb.clone(),
                group: group.clone(),
                resource: resource.to_owned(),
                subresource: subresource.clone(),
                name: name.cloned(),
                namespace: namespace.map(str::to_owned),
            }));
        }
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_of_each_mode_come_from_its_roles() {
        for mode in Mode::ALL {
            let rights = role_rights(mode, "ns").unwrap();
            let texts: Vec<String> = rights.iter().map(Right::text).collect();
            let has = |text: &str| texts.iter().any(|it| it == text);
            assert!(has("patch workloads.kueue.x-k8s.io/status"), "{mode:?}");
            assert!(has("get secrets switchyard-webhook-cert in ns"), "{mode:?}");
            assert!(
                has("patch mutatingwebhookconfigurations.admissionregistration.k8s.io switchyard"),
                "{mode:?}"
            );
            assert_eq!(has("get secrets switchyard-hub-ca in ns"), mode == Mode::Hub);
            assert_eq!(has("get secrets switchyard-agent-identity in ns"), mode == Mode::Agent);
            assert!(!has("create jobs.batch"), "the administrator of a worker narrows where");
        }
    }

    #[test]
    fn needs_to_install_name_roles_and_what_they_grant() {
        let of = |needs: Vec<Need>| -> Vec<(String, Vec<String>)> {
            needs.into_iter().map(|need| (need.right.text(), texts(&need.instead))).collect()
        };
        let common = of(common_needs("ns", false).unwrap());
        let plain = |text: &str| common.contains(&(text.to_owned(), Vec::new()));
        assert!(plain("create namespaces"));
        assert!(plain("escalate clusterroles.rbac.authorization.k8s.io"));
        assert!(plain("list clusterroles.rbac.authorization.k8s.io"));
        assert!(plain("patch deployments.apps in ns"));
        assert!(plain("update secrets in ns"));
        let escalate = "escalate roles.rbac.authorization.k8s.io in ns";
        let (_, instead) = common.iter().find(|(right, _)| right == escalate).unwrap();
        assert!(instead.iter().any(|it| it == "create leases.coordination.k8s.io in ns"));
        assert!(
            !of(common_needs("ns", true).unwrap()).iter().any(|(it, _)| it == "create namespaces")
        );
        for mode in Mode::ALL {
            let needs = of(mode_needs(mode, "ns").unwrap());
            let instead = |text: &str| {
                let found = needs.iter().find(|(right, _)| right == text);
                found.map(|(_, instead)| instead.clone()).unwrap_or_default()
            };
            let bound =
                instead("bind clusterroles.rbac.authorization.k8s.io switchyard-controller");
            assert!(bound.iter().any(|it| it == "patch workloads.kueue.x-k8s.io/status"));
            assert!(
                needs.iter().all(|(_, instead)| !instead.is_empty()) || mode == Mode::Agent,
                "{mode:?}"
            );
            let jobs = instead("bind clusterroles.rbac.authorization.k8s.io switchyard-agent");
            assert_eq!(jobs.iter().any(|it| it == "create jobs.batch"), mode == Mode::Agent);
            let policies = "patch validatingadmissionpolicies.admissionregistration.k8s.io";
            assert_eq!(needs.iter().any(|(it, _)| it == policies), mode == Mode::Agent);
        }
        let system = of(visibility_needs());
        assert!(system.iter().any(|(it, _)| it
            == "create rolebindings.rbac.authorization.k8s.io in kube-system"));
    }

    #[test]
    fn verbs_of_a_resource_are_grouped() {
        let rights: Vec<Right> = [
            need(&["create", "get"], ("apps", "deployments"), Some("ns")),
            need(&["list"], ("", "secrets"), None),
            need(&["get", "patch"], ("apps", "deployments"), Some("ns")),
        ]
        .into_iter()
        .flatten()
        .map(|need| need.right)
        .collect();
        assert_eq!(grouped(&rights), "create, get, patch deployments.apps in ns; list secrets");
    }
}
