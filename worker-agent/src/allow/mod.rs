//! The allow-lists of the cluster's administrator: kinds of jobs and service accounts.
//! ([`AllowedNamespaces`](crate::AllowedNamespaces) is the third.) Another team may run the hub.
//! The agent refuses what the hub may not do, and the job's author learns why.

mod service_accounts;

use std::collections::BTreeSet;

use serde_json::Value;
use switchyard_jobs::{JobKind, kind_of_owner, kinds, sent_objects};
use thiserror::Error;

use switchyard_ledger::Rejection;

/// The kinds and service accounts that the hub may use. The default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// By their names in Kueue's `integrations.frameworks`, such as `batch/job`; none: every known
    /// kind.
    pub kinds: Option<BTreeSet<String>>,
    /// `NAME` in any namespace, or `NAMESPACE/NAME`; none: every account.
    pub service_accounts: Option<BTreeSet<String>>,
}

/// The flag names an unknown kind.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("--allow-kinds: {unknown:?} is no kind that this agent runs; it runs {known}")]
pub struct UnknownKind {
    unknown: String,
    known: String,
}

impl Allowed {
    /// The allow-lists of the flags; an empty list allows all.
    ///
    /// # Errors
    /// An unknown kind, which would silently allow nothing.
    pub fn parse(kinds: &[String], service_accounts: &[String]) -> Result<Self, UnknownKind> {
        let allowed = Self { kinds: list(kinds), service_accounts: list(service_accounts) };
        let known: Vec<&str> = self::kinds().iter().map(|kind| kind.id().framework).collect();
        match allowed.kinds.iter().flatten().find(|kind| !known.contains(&kind.as_str())) {
            None => Ok(allowed),
            Some(unknown) => Err(UnknownKind { unknown: unknown.clone(), known: known.join(", ") }),
        }
    }

    /// Whether the hub may run jobs of this kind.
    pub fn kind(&self, kind: &dyn JobKind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind.id().framework))
    }

    /// Why a job may not be created in a namespace. Objects that are no jobs are not checked here.
    pub(crate) fn rejection(&self, job: &[u8], namespace: &str) -> Option<Rejection> {
        if *self == Self::default() {
            return None;
        }
        let job: Value = serde_json::from_slice(job).ok()?;
        sent_objects(job).iter().find_map(|object| self.rejection_of(object, namespace))
    }

    fn rejection_of(&self, job: &Value, namespace: &str) -> Option<Rejection> {
        let text = |field: &str| job.get(field).and_then(Value::as_str).unwrap_or_default();
        let kind = kind_of_owner(text("apiVersion"), text("kind"))?;
        if !self.kind(kind) {
            let text = format!(
                "this cluster's agent does not let the hub run jobs of kind {}; its administrator can add it to --allow-kinds",
                kind.id().framework
            );
            return Some(Rejection::refused("KindNotAllowed", text));
        }
        self.account(job, namespace)
    }

    fn account(&self, job: &Value, namespace: &str) -> Option<Rejection> {
        let allowed = self.service_accounts.as_ref()?;
        let refused = |text: String| Some(Rejection::refused("ServiceAccountNotAllowed", text));
        let accounts = match service_accounts::of(job) {
            Ok(accounts) => accounts,
            Err(unknown) => {
                return refused(format!(
                    "this cluster's agent lets the hub run pods as some service accounts only (--allow-service-accounts), and those of this job cannot be told: {unknown}"
                ));
            }
        };
        let may = |name: &String| {
            allowed.contains(name) || allowed.contains(&format!("{namespace}/{name}"))
        };
        let name = accounts.iter().find(|name| !may(name))?;
        refused(format!(
            "this cluster's agent does not let the hub run pods as service account {namespace}/{name}; its administrator can add it to --allow-service-accounts"
        ))
    }
}

fn list(names: &[String]) -> Option<BTreeSet<String>> {
    let names: BTreeSet<String> =
        names.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn job(fields: &Value) -> Vec<u8> {
        let mut spec = fields.clone();
        spec["containers"] = json!([{"name": "main"}]);
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "ns"},
            "spec": {"template": {"spec": spec}},
        })
        .to_string()
        .into_bytes()
    }

    #[rstest]
    #[case::it_names_none(json!({}), &["default"], None)]
    #[case::it_names_none_and_default_is_not_allowed(json!({}), &["batch"], Some("ns/default"))]
    #[case::allowed_in_every_namespace(json!({"serviceAccountName": "batch"}), &["batch"], None)]
    #[case::allowed_in_this_namespace(json!({"serviceAccountName": "batch"}), &["ns/batch"], None)]
    #[case::allowed_in_another_namespace(json!({"serviceAccountName": "batch"}), &["other/batch"], Some("ns/batch"))]
    #[case::another(json!({"serviceAccountName": "admin"}), &["default", "batch"], Some("ns/admin"))]
    #[case::by_the_older_field(json!({"serviceAccount": "admin"}), &["default"], Some("ns/admin"))]
    #[case::behind_an_allowed_one(
        json!({"serviceAccountName": "batch", "serviceAccount": "admin"}), &["batch"], Some("ns/admin")
    )]
    fn service_accounts(
        #[case] spec: Value,
        #[case] allowed: &[&str],
        #[case] refused: Option<&str>,
    ) {
        let allowed = Allowed::parse(&[], &names(allowed)).unwrap();
        let rejection = allowed.rejection(&job(&spec), "ns");
        assert_eq!(rejection.is_some(), refused.is_some(), "{rejection:?}");
        if let (Some(rejection), Some(account)) = (rejection, refused) {
            assert_eq!(rejection.code, "ServiceAccountNotAllowed");
            assert!(
                rejection.message.contains(&format!("as service account {account};")),
                "{}",
                rejection.message
            );
        }
    }

    #[test]
    fn unlisted_kind_is_refused_by_name() {
        let none = Allowed { kinds: Some(BTreeSet::new()), ..Allowed::default() };
        let rejection = none.rejection(&job(&json!({})), "ns").unwrap();
        assert_eq!(rejection.code, "KindNotAllowed");
        assert!(rejection.message.contains("jobs of kind batch/job;"), "{}", rejection.message);
        assert_eq!(
            Allowed::parse(&names(&["batch/job"]), &[]).unwrap().rejection(&job(&json!({})), "ns"),
            None
        );
        assert_eq!(Allowed::parse(&names(&[""]), &names(&[" "])), Ok(Allowed::default()), "all");
        let error = Allowed::parse(&names(&["Job"]), &[]).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "--allow-kinds: \"Job\" is no kind that this agent runs; it runs batch/job"
            ),
            "{error}"
        );
    }
}
