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
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let subresource = self.subresource.as_ref().map(|it| format!("/{it}")).unwrap_or_default();
        let name = self.name.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
        let namespace = self.namespace.as_ref().map(|it| format!(" in {it}")).unwrap_or_default();
        format!("{} {}{group}{subresource}{name}{namespace}", self.verb, self.resource)
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

/// Rights to install that the caller lacks.
pub(super) async fn missing_to_install(
    client: &Client,
    namespace: &str,
) -> ReadResult<Vec<String>> {
    let cluster = [
        ("", "namespaces"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ];
    let own = [
        ("", "secrets"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("", "configmaps"),
        ("apps", "deployments"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("networking.k8s.io", "networkpolicies"),
        ("policy", "poddisruptionbudgets"),
    ];
    let right = |(group, resource): (&str, &str), namespace: Option<&str>| Right {
        verb: "create".to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.map(str::to_owned),
        ..Right::default()
    };
    let rights = cluster
        .map(|it| right(it, None))
        .into_iter()
        .chain(own.map(|it| right(it, Some(namespace))));
    Ok(texts(&denied_to_caller(client, rights).await?))
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
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    let mut rights = Vec::new();
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let within = match object["kind"].as_str().unwrap_or_default() {
            kind if NARROWED.contains(&(kind, name)) => continue,
            "ClusterRole" => None,
            "Role" => Some(namespace),
            _ => continue,
        };
        let rules: Vec<PolicyRule> =
            serde_json::from_value(object["rules"].clone()).map_err(|error| error.to_string())?;
        rights.extend(rules.iter().flat_map(|rule| rule_rights(rule, within)));
    }
    Ok(rights)
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
}
