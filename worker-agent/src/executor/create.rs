//! Creates objects, and finds what unanswered creations created.

use kube::api::{Api, DynamicObject, Patch, PostParams};
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_jobs::propagated_changes;
use switchyard_ledger::{Outcome, Rejection};

use super::Executor;
use super::access::{Access, value};
use super::api_error::outcome_of_error;
use super::change::params;
use super::stamp::Stamp;

/// How often the agent tries to change an object that others change too.
const CHANGES: u32 = 5;

impl Executor {
    /// Creates the object. If it exists already for this workload and attempt, it gets the desired
    /// replicas and the propagated fields instead.
    pub(super) async fn create(
        &self,
        object: &DynamicObject,
        access: &Access,
        stamp: Stamp<'_>,
    ) -> Outcome {
        let mut there = match self.create_one(object, access, stamp).await {
            Ok(there) => there,
            Err(outcome) => return outcome,
        };
        let (wanted, name) = (value(object), object.metadata.name.as_deref().unwrap_or_default());
        for _ in 0..CHANGES {
            let changed =
                access.job_kind.and_then(|kind| propagated_changes(kind, &wanted, &value(&there)));
            let outcome = self.object(access, &there);
            let is_of_attempt =
                matches!(&outcome, Outcome::Object(it) if it.meta().attempt == stamp.attempt);
            let Some(patch) = changed.filter(|_| is_of_attempt) else { return outcome };
            match self.follow(access, &there, patch).await {
                Ok(changed) => return self.object(access, &changed),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Outcome::Gone,
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => return outcome_of_error(error, access, name),
            }
            there = match self
                .find_occupant(access, &self.api(access, stamp.namespace), name, stamp)
                .await
            {
                Ok(there) => there,
                Err(outcome) => return outcome,
            };
        }
        Outcome::NotApplied(format!("{} {name} kept changing", access.resource.kind))
    }

    /// Patches an object only if it has not changed since it was read. A merge patch replaces whole
    /// lists, so it would drop entries that others have added.
    async fn follow(
        &self,
        access: &Access,
        there: &DynamicObject,
        mut patch: Value,
    ) -> Result<DynamicObject, kube::Error> {
        let of = &there.metadata;
        (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) =
            (json!(of.uid), json!(of.resource_version));
        let (namespace, name) =
            (of.namespace.as_deref().unwrap_or_default(), of.name.as_deref().unwrap_or_default());
        self.api(access, namespace).patch(name, &params(), &Patch::Merge(patch)).await
    }

    /// As [`Self::create`], for one object. Returns what exists then.
    pub(super) async fn create_one(
        &self,
        object: &DynamicObject,
        access: &Access,
        stamp: Stamp<'_>,
    ) -> Result<DynamicObject, Outcome> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let api = self.api(access, stamp.namespace);
        let params = PostParams {
            field_manager: Some(names::FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match api.create(&params, object).await {
            Ok(created) => Ok(created),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.find_occupant(access, &api, &name, stamp).await
            }
            Err(error) => {
                match outcome_of_error(error, access, &format!("{}/{name}", stamp.namespace)) {
                    // A quota that the object itself fills refuses a second one before the name is
                    // checked.
                    refused @ Outcome::Rejected(_) => {
                        self.find_occupant(access, &api, &name, stamp).await.or(Err(refused))
                    }
                    outcome => Err(outcome),
                }
            }
        }
    }

    /// Whether an unanswered creation took effect.
    pub(super) async fn find(
        &self,
        object: &DynamicObject,
        access: &Access,
        stamp: Stamp<'_>,
    ) -> Outcome {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        match self.api(access, stamp.namespace).get_opt(name).await {
            Ok(there) => match there.and_then(|there| access.read(&value(&there), &self.seal)) {
                Some(there) if there.meta().workload_uid == stamp.workload_uid => {
                    Outcome::Object(Box::new(there))
                }
                _ => Outcome::Gone,
            },
            Err(error) => outcome_of_error(error, access, name),
        }
    }

    /// The object that has the name, if it was created for this workload.
    async fn find_occupant(
        &self,
        access: &Access,
        api: &Api<DynamicObject>,
        name: &str,
        stamp: Stamp<'_>,
    ) -> Result<DynamicObject, Outcome> {
        let there = match api.get_opt(name).await {
            Ok(Some(there)) => there,
            Ok(None) => {
                return Err(Outcome::NotApplied(format!("{name} was in the way and is gone")));
            }
            Err(error) => return Err(outcome_of_error(error, access, name)),
        };
        Err(match access.read(&value(&there), &self.seal) {
            Some(object) if object.meta().workload_uid == stamp.workload_uid => return Ok(there),
            Some(object) => Outcome::Occupied { by: object.meta().workload_uid.clone() },
            None => Outcome::Rejected(Rejection::refused(
                "ObjectInTheWay",
                format!(
                    "{} {}/{name} exists on this cluster and was not made for this workload; rename or delete one of the two",
                    access.resource.kind, stamp.namespace
                ),
            )),
        })
    }
}
