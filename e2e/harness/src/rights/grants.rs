//! The rights that roles grant, and the rights that requests use. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// One verb on one resource, under at most one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Grant {
    pub(super) role: String,
    /// The namespace where it holds. `None`: everywhere.
    pub(super) namespace: Option<String>,
    /// `RESOURCE` or `RESOURCE/SUBRESOURCE`.
    pub(super) resource: String,
    pub(super) group: String,
    pub(super) verb: String,
    /// The object's name. `None`: all objects.
    pub(super) name: Option<String>,
    /// The users that have it.
    pub(super) accounts: BTreeSet<String>,
}

/// A request that was allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    user: String,
    namespace: String,
    resource: String,
    group: String,
    verb: String,
    name: String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Use {
    /// The request in an audit event, if it was allowed and is about an object.
    pub(super) fn of(event: &Value) -> Option<Self> {
        if event["annotations"]["authorization.k8s.io/decision"] != "allow" {
            return None;
        }
        let object = &event["objectRef"];
        let resource = object["resource"].as_str()?;
        let resource = match object["subresource"].as_str() {
            Some(part) => format!("{resource}/{part}"),
            None => resource.to_owned(),
        };
        let (user, namespace) = (text(&event["user"]["username"]), text(&object["namespace"]));
        let (group, verb, name) =
            (text(&object["apiGroup"]), text(&event["verb"]), text(&object["name"]));
        Some(Self { user, namespace, resource, group, verb, name })
    }
}

impl Grant {
    /// Whether the right allows this request.
    pub(super) fn covers(&self, used: &Use) -> bool {
        self.accounts.contains(&used.user)
            && self.resource == used.resource
            && self.group == used.group
            && self.verb == used.verb
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == used.namespace)
            && self.name.as_ref().is_none_or(|name| *name == used.name)
    }
}

/// Kind, namespace and name of a role.
type RoleKey = (String, String, String);
/// A role's binding: its namespace (`None` for all), and its accounts.
type Binding = (Option<String>, BTreeSet<String>);

/// The rights of service accounts by the roles and bindings among these objects.
pub(super) fn of(objects: &[Value]) -> Vec<Grant> {
    let mut bound: BTreeMap<RoleKey, Vec<Binding>> = BTreeMap::new();
    for binding in objects {
        let here = binding["metadata"]["namespace"].as_str().map(str::to_owned);
        let namespace = match binding["kind"].as_str() {
            Some("ClusterRoleBinding") => None,
            Some("RoleBinding") => here.clone(),
            _ => continue,
        };
        let kind = text(&binding["roleRef"]["kind"]);
        let of = if kind == "Role" { here.unwrap_or_default() } else { String::new() };
        let accounts = items(&binding["subjects"])
            .filter(|subject| subject["kind"] == "ServiceAccount")
            .map(|subject| {
                format!(
                    "system:serviceaccount:{}:{}",
                    text(&subject["namespace"]),
                    text(&subject["name"])
                )
            });
        let key = (kind, of, text(&binding["roleRef"]["name"]));
        bound.entry(key).or_default().push((namespace, accounts.collect()));
    }
    let mut grants = BTreeMap::new();
    for role in objects {
        let (kind, name) = (text(&role["kind"]), text(&role["metadata"]["name"]));
        let key = (kind, text(&role["metadata"]["namespace"]), name.clone());
        for (namespace, accounts) in bound.get(&key).into_iter().flatten() {
            for (group, resource, verb, of) in items(&role["rules"]).flat_map(atoms) {
                let grant = Grant {
                    role: name.clone(),
                    namespace: namespace.clone(),
                    resource,
                    group,
                    verb,
                    name: of,
                    accounts: BTreeSet::new(),
                };
                // A right that is bound several times has several accounts.
                grants.entry(grant).or_insert_with(BTreeSet::new).extend(accounts.iter().cloned());
            }
        }
    }
    grants.into_iter().map(|(grant, accounts)| Grant { accounts, ..grant }).collect()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The single rights of a rule: group, resource, verb and name.
fn atoms(rule: &Value) -> Vec<(String, String, String, Option<String>)> {
    let mut names: Vec<Option<String>> =
        items(&rule["resourceNames"]).map(|name| Some(text(name))).collect();
    if names.is_empty() {
        names.push(None);
    }
    let mut atoms = Vec::new();
    for group in items(&rule["apiGroups"]) {
        for resource in items(&rule["resources"]) {
            for verb in items(&rule["verbs"]) {
                atoms.extend(
                    names
                        .iter()
                        .map(|name| (text(group), text(resource), text(verb), name.clone())),
                );
            }
        }
    }
    atoms
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) role: String,
    pub(super) namespace: String,
    pub(super) resource: String,
    pub(super) verbs: String,
    pub(super) names: String,
    pub(super) remark: &'static str,
}

/// The rights as lines, one for each resource of a role, with its verbs and names.
pub(super) fn rows(grants: &[Grant]) -> Vec<Row> {
    let mut rows: BTreeMap<_, (BTreeSet<&str>, BTreeSet<&str>)> = BTreeMap::new();
    for grant in grants {
        let resource = if grant.group.is_empty() {
            grant.resource.clone()
        } else {
            format!("{}.{}", grant.resource, grant.group)
        };
        let key = (
            &grant.role,
            grant.namespace.clone().unwrap_or_default(),
            resource,
            grant.name.is_some(),
        );
        let (verbs, names) = rows.entry(key).or_default();
        verbs.insert(&grant.verb);
        names.extend(grant.name.as_deref());
    }
    let joined = |all: BTreeSet<&str>| all.into_iter().collect::<Vec<_>>().join(",");
    let row =
        |((role, namespace, resource, _), (verbs, names)): ((&String, String, String, bool), _)| {
            let remark = if resource.contains("/finalizers") {
                "admission asks for it, and logs no request"
            } else {
                ""
            };
            Row {
                role: role.clone(),
                namespace,
                resource,
                verbs: joined(verbs),
                names: joined(names),
                remark,
            }
        };
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects() -> Vec<Value> {
        let account =
            |name: &str| json!([{"kind": "ServiceAccount", "name": name, "namespace": "sys"}]);
        vec![
            json!({"kind": "ClusterRole", "metadata": {"name": "controller"}, "rules": [
                {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["get", "patch"]},
                {"apiGroups": ["batch"], "resources": ["jobs/finalizers"], "verbs": ["update"]},
            ]}),
            json!({"kind": "Role", "metadata": {"name": "controller", "namespace": "sys"}, "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]},
            ]}),
            json!({"kind": "ClusterRole", "metadata": {"name": "viewer"}, "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            ]}),
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "one"},
                "roleRef": {"kind": "ClusterRole", "name": "controller"}, "subjects": account("one")}),
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "two"},
                "roleRef": {"kind": "ClusterRole", "name": "controller"}, "subjects": account("two")}),
            json!({"kind": "RoleBinding", "metadata": {"name": "one", "namespace": "sys"},
                "roleRef": {"kind": "Role", "name": "controller"}, "subjects": account("one")}),
        ]
    }

    fn event(user: &str, verb: &str, object: &Value) -> Value {
        json!({
            "user": {"username": format!("system:serviceaccount:sys:{user}")}, "verb": verb, "objectRef": object,
            "annotations": {"authorization.k8s.io/decision": "allow"},
        })
    }

    /// The rights above that a request leaves unused.
    fn after(request: &Value) -> Vec<String> {
        let used = Use::of(request);
        let left = of(&objects())
            .into_iter()
            .filter(|grant| used.as_ref().is_none_or(|used| !grant.covers(used)));
        rows(&left.collect::<Vec<_>>())
            .into_iter()
            .map(|row| format!("{} {} {}", row.resource, row.verbs, row.names))
            .collect()
    }

    #[test]
    fn right_is_used_by_a_request_that_needed_it() {
        let (status, jobs) = ("jobs/status.batch get,patch ", "jobs.batch get,patch ");
        let (finalizers, secrets) = ("jobs/finalizers.batch update ", "secrets get a,b");
        let all = [jobs, finalizers, status, secrets];
        let job =
            json!({"apiGroup": "batch", "resource": "jobs", "namespace": "team", "name": "j"});
        let shown = json!({"apiGroup": "batch", "resource": "jobs", "subresource": "status", "namespace": "team"});
        let secret =
            |namespace: &str| json!({"resource": "secrets", "namespace": namespace, "name": "a"});
        let mut denied = event("one", "get", &job);
        denied["annotations"]["authorization.k8s.io/decision"] = "forbid".into();
        for (case, request, expected) in [
            (
                "a verb",
                event("one", "get", &job),
                ["jobs.batch patch ", finalizers, status, secrets],
            ),
            (
                "another account of the role",
                event("two", "get", &job),
                ["jobs.batch patch ", finalizers, status, secrets],
            ),
            ("an account that has no right", event("three", "get", &job), all),
            (
                "a part of an object",
                event("one", "patch", &shown),
                [jobs, finalizers, "jobs/status.batch get ", secrets],
            ),
            (
                "a name",
                event("one", "get", &secret("sys")),
                [jobs, finalizers, status, "secrets get b"],
            ),
            ("the name elsewhere", event("one", "get", &secret("team")), all),
            ("a role that the account lacks", event("two", "get", &secret("sys")), all),
            ("a request that was denied", denied, all),
            (
                "no object",
                json!({"verb": "get", "annotations": {"authorization.k8s.io/decision": "allow"}}),
                all,
            ),
        ] {
            let (mut found, mut expected) = (after(&request), expected.to_vec());
            found.sort();
            expected.sort_unstable();
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn roles_of_people_are_left_out() {
        assert!(
            of(&objects()).iter().all(|grant| grant.role != "viewer" && !grant.accounts.is_empty())
        );
    }

    #[test]
    fn rights_that_admission_asks_for_are_marked() {
        let marked: Vec<String> = rows(&of(&objects()))
            .into_iter()
            .filter(|row| !row.remark.is_empty())
            .map(|row| row.resource)
            .collect();
        assert_eq!(marked, ["jobs/finalizers.batch"]);
    }
}
