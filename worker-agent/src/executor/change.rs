//! Changes, deletes and rereads existing objects.

use jiff::Timestamp;
use kube::Resource;
use kube::api::{
    DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use kube::core::Status;
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_api::v1beta2::PreemptionGatePosition;
use switchyard_ledger::{Outcome, Target};

use super::Executor;
use super::access::Access;
use super::api_error::outcome_of_error;
use super::group::group_of;

impl Executor {
    pub(super) async fn delete(
        &self,
        access: &Access,
        target: &Target,
        foreground: bool,
    ) -> Outcome {
        match group_of(target) {
            Some(group) => self.delete_group(access, target, group, foreground).await,
            None => self.delete_one(access, target, foreground).await,
        }
    }

    pub(super) async fn delete_one(
        &self,
        access: &Access,
        target: &Target,
        foreground: bool,
    ) -> Outcome {
        let policy =
            if foreground { PropagationPolicy::Foreground } else { PropagationPolicy::Background };
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions {
                uid: Some(target.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.api(access, &target.namespace).delete(&target.name, &params).await {
            Ok(_) => Outcome::Accepted,
            Err(kube::Error::Api(status)) if status.is_not_found() => Outcome::Gone,
            // Another object has the name, so the target is deleted.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                self.reread(access, target).await
            }
            Err(error) => outcome_of_error(error, access, &target.name),
        }
    }

    /// Removes the agent's finalizer, by its position and only if it is there.
    pub(super) async fn remove_finalizer(
        &self,
        access: &Access,
        target: &Target,
        index: usize,
    ) -> Outcome {
        match group_of(target) {
            Some(group) => self.remove_group_finalizers(access, target, group).await,
            None => self.remove_finalizer_of(access, target, index).await,
        }
    }

    pub(super) async fn remove_finalizer_of(
        &self,
        access: &Access,
        target: &Target,
        mut index: usize,
    ) -> Outcome {
        for _ in 0..3 {
            let patch = removal(target, index, names::TERMINAL_STATE);
            match self.json_patch(access, target, &patch).await {
                Ok(object) => return self.object(access, &object),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Outcome::Gone,
                Err(kube::Error::Api(status)) if test_failed(&status) => {
                    match self.reread(access, target).await {
                        Outcome::Object(object) => match object.meta().finalizer_index {
                            Some(now_at) => index = now_at,
                            None => return Outcome::Object(object),
                        },
                        other => return other,
                    }
                }
                Err(error) => return outcome_of_error(error, access, &target.name),
            }
        }
        Outcome::Unknown(format!("the finalizers of {} kept changing", target.name))
    }

    /// Removes the finalizer that Kueue puts on pods. Returns a failure, if any.
    pub(super) async fn remove_kueues_finalizer(
        &self,
        access: &Access,
        target: &Target,
        index: usize,
    ) -> Option<Outcome> {
        let patch = removal(target, index, names::MANAGED);
        match self.json_patch(access, target, &patch).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) if status.is_not_found() => None,
            Err(kube::Error::Api(status)) if test_failed(&status) => {
                Some(Outcome::Unknown(format!("the finalizers of {} changed", target.name)))
            }
            Err(error) => Some(outcome_of_error(error, access, &target.name)),
        }
    }

    async fn json_patch(
        &self,
        access: &Access,
        target: &Target,
        patch: &Value,
    ) -> Result<DynamicObject, kube::Error> {
        let path = DynamicObject::url_path(&access.resource, Some(&target.namespace));
        let request = http::Request::patch(format!(
            "{path}/{}?fieldManager={}",
            target.name,
            names::FIELD_MANAGER
        ))
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(patch.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    pub(super) async fn patch_workload(&self, target: &Target, mut patch: Value) -> Outcome {
        let access = Access::workload();
        patch["metadata"]["uid"] = target.uid.as_str().into();
        match self
            .api(&access, &target.namespace)
            .patch(&target.name, &params(), &Patch::Merge(patch))
            .await
        {
            Ok(object) => self.object(&access, &object),
            Err(kube::Error::Api(status)) if status.is_not_found() => Outcome::Gone,
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                self.reread(&access, target).await
            }
            Err(error) => outcome_of_error(error, &access, &target.name),
        }
    }

    /// Opens the hub's preemption gate. The agent's Workloads have no other gate.
    pub(super) async fn open_gate(&self, target: &Target, at: i64) -> Outcome {
        let access = Access::workload();
        let since = Timestamp::from_second(at).unwrap_or_default().to_string();
        let gate = json!({
            "name": names::MULTIKUEUE_PREEMPTION_GATE,
            "position": PreemptionGatePosition::Open,
            "lastTransitionTime": since,
        });
        let patch = json!({"metadata": {"uid": target.uid}, "status": {"preemptionGates": [gate]}});
        let patch = Patch::Merge(patch);
        match self
            .api(&access, &target.namespace)
            .patch_status(&target.name, &params(), &patch)
            .await
        {
            Ok(object) => self.object(&access, &object),
            Err(kube::Error::Api(status)) if status.is_not_found() => Outcome::Gone,
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                self.reread(&access, target).await
            }
            Err(error) => {
                let outcome = outcome_of_error(error, &access, &target.name);
                if let Outcome::Rejected(why) = &outcome {
                    let (workload, why) = (&target.name, &why.message);
                    tracing::warn!(
                        workload,
                        why,
                        "this cluster does not let the hub open a preemption gate"
                    );
                }
                outcome
            }
        }
    }

    pub(super) async fn reread(&self, access: &Access, target: &Target) -> Outcome {
        if let Some(group) = group_of(target) {
            return self.reread_group(access, target, group).await;
        }
        match self.api(access, &target.namespace).get_opt(&target.name).await {
            Ok(Some(object)) if object.metadata.uid.as_deref() == Some(&target.uid) => {
                self.object(access, &object)
            }
            Ok(_) => Outcome::Gone,
            Err(error) => outcome_of_error(error, access, &target.name),
        }
    }
}

pub(super) fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The JSON patch that removes a finalizer if it is at this place.
fn removal(target: &Target, index: usize, finalizer: &str) -> Value {
    let path = format!("/metadata/finalizers/{index}");
    json!([
        {"op": "test", "path": "/metadata/uid", "value": target.uid},
        {"op": "test", "path": path, "value": finalizer},
        {"op": "remove", "path": path},
    ])
}

/// Whether a JSON patch failed because of its `test`, or because its path does not exist.
fn test_failed(status: &Status) -> bool {
    status.code == 422 || status.is_conflict()
}
