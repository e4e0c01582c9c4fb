//! Performs what was decided about a workload.

use std::{fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::{NamespaceResourceScope, api::core::v1::PodTemplate};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ApiResource, DeleteParams, PostParams, Preconditions},
    core::PartialObjectMeta,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use switchyard_api::{
    autoscaling::ProvisioningRequest,
    conditions::{reasons::events, truncated_message},
    names,
    v1beta2::Workload,
};

use super::{
    decide::{ProvisioningPlan, decide},
    facts::ProvisioningFacts,
    objects::NewRequest,
    request_index::{RequestIndex, workload_of},
};
use crate::context::{Context, patch_status};
use switchyard_platform::write::WriteError;
use switchyard_platform::{
    api_call::with_deadline, object::Object, store::Key, work_queue::Outcome, write::Target,
};

/// By then the watch has delivered an object that was just created.
const WATCH_DELAY: Duration = Duration::from_secs(1);

/// Reconciles one workload.
pub(super) async fn reconcile(ctx: &Context, index: &RequestIndex, key: Key) -> Outcome {
    // The API server does not serve ProvisioningRequests.
    if !ctx.leading() || !*ctx.stores.provisioning_requests.served().borrow() {
        return Outcome::Done;
    }
    let Some(subject) = ctx.stores.workloads.by_key(&key) else { return Outcome::Done };
    let plan = decide(&subject, &ProvisioningFacts::gather(ctx, index, &subject), ctx.clock.now());
    if plan == ProvisioningPlan::default() {
        return Outcome::Done;
    }
    match perform(ctx, &subject, plan).await {
        Ok(outcome) => outcome,
        // The change that made this stale triggers another reconcile.
        Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
        Err(WriteError::Conflict) => Outcome::Failed,
        Err(error) => {
            tracing::warn!(workload = %key, %error, "provisioning requests not brought in line");
            Outcome::Failed
        }
    }
}

#[tracing::instrument(name = "provisioning", skip_all, fields(workload = %Key::of(subject)))]
async fn perform(
    ctx: &Context,
    subject: &Workload,
    plan: ProvisioningPlan,
) -> Result<Outcome, WriteError> {
    let mut current = subject.clone();
    if let Some(status) = &plan.status
        && let Some(written) = patch_status(ctx, subject, status, "provisioning").await?
    {
        current = written;
        for note in plan.events {
            ctx.events.normal(&current, events::ADMISSION_CHECK_UPDATED, note);
        }
    }
    for request in &plan.delete {
        delete(
            ctx,
            &**request,
            Api::namespaced(ctx.client.clone(), &request.namespace().unwrap_or_default()),
        )
        .await?;
    }
    for (key, owner) in plan.hand_over {
        let Some(template) = ctx.stores.pod_templates.by_key(&key) else { continue };
        let target = Target {
            api: Api::<PartialObjectMeta<PodTemplate>>::namespaced(
                ctx.client.clone(),
                &key.namespace,
            ),
            store: &ctx.stores.pod_templates,
            object: &*template,
            manager: names::PROVISIONING_REQUEST_CONTROLLER,
            what: "podtemplate",
        };
        target.patch(ctx, json!({"metadata": {"ownerReferences": [owner]}})).await?;
    }
    let mut outcome = Outcome::Done;
    for (check, message) in plan.refused {
        current = report_failure(ctx, current, &check, message).await?;
        outcome = Outcome::Failed;
    }
    for creation in plan.create {
        match create(ctx, &creation).await {
            Ok(()) => {
                let note =
                    format!("Created ProvisioningRequest: {:?}", creation.request.name_any());
                ctx.events.normal(&current, events::PROVISIONING_REQUEST_CREATED, note);
            }
            Err(Failure::NotYetWatched) => outcome = outcome.at_latest(Some(WATCH_DELAY)),
            Err(Failure::Write(error)) => return Err(error),
            Err(Failure::Refused(message)) => {
                current = report_failure(ctx, current, &creation.check, message).await?;
                outcome = Outcome::Failed;
            }
        }
    }
    Ok(outcome)
}

enum Failure {
    /// The object was created already, and the watch has not delivered it yet.
    NotYetWatched,
    /// The API server's message for the user.
    Refused(String),
    /// An error that the user cannot fix.
    Write(WriteError),
}

async fn create(ctx: &Context, creation: &NewRequest) -> Result<(), Failure> {
    let namespace = creation.request.namespace().unwrap_or_default();
    let resource = ApiResource::erase::<PodTemplate>(&());
    let templates: Api<Object> = Api::namespaced_with(ctx.client.clone(), &namespace, &resource);
    for template in &creation.templates {
        match ctx.stores.pod_templates.get(&namespace, &template.name_any()) {
            // It was created before the request, by this controller or by a user who forged its
            // owner.
            Some(known) if same_owner(&*known, &creation.request) => {
                enforce_content(ctx, &templates, &known, template).await.map_err(Failure::Write)?;
                continue;
            }
            // A leftover of an earlier request with this name may be for another flavor.
            Some(stale) if was_handed_over(&*stale) => {
                let api = Api::<PartialObjectMeta<PodTemplate>>::namespaced(
                    ctx.client.clone(),
                    &namespace,
                );
                delete(ctx, &*stale, api).await.map_err(Failure::Write)?;
            }
            // Another object has the name; the API server's message will tell the user.
            Some(_) | None => (),
        }
        post(ctx, &templates, template, creation, "PodTemplate").await?;
    }
    let requests = Api::namespaced(ctx.client.clone(), &namespace);
    post(ctx, &requests, &creation.request, creation, "ProvisioningRequest").await
}

/// Overwrites a PodTemplate with the content that quota was reserved for, regardless of its author.
async fn enforce_content(
    ctx: &Context,
    templates: &Api<Object>,
    known: &PartialObjectMeta<PodTemplate>,
    template: &Object,
) -> Result<(), WriteError> {
    if !ctx.leading() {
        return Err(WriteError::NotLeading);
    }
    let mut derived = Arc::unwrap_or_clone(template.value());
    derived["metadata"]["resourceVersion"] = json!(known.metadata.resource_version);
    let derived = Object::new(derived).map_err(kube::Error::SerdeError)?;
    let written = with_deadline(templates.replace(&known.name_any(), &params(), &derived)).await;
    ctx.metrics.wrote("provisioning", written.is_ok());
    Ok(written.map(drop)?)
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(names::PROVISIONING_REQUEST_CONTROLLER.into()),
        ..PostParams::default()
    }
}

async fn post<K>(
    ctx: &Context,
    api: &Api<K>,
    object: &K,
    of: &NewRequest,
    kind: &'static str,
) -> Result<(), Failure>
where
    K: Resource + Clone + Serialize + DeserializeOwned + Debug,
{
    if !ctx.leading() {
        return Err(Failure::Write(WriteError::NotLeading));
    }
    let made = with_deadline(api.create(&params(), object)).await;
    ctx.metrics.wrote("provisioning", made.is_ok());
    let status = match made {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) => status,
        Err(error) => return Err(Failure::Write(error.into())),
    };
    if status.is_already_exists() {
        let found = with_deadline(api.get_metadata_opt(&object.name_any())).await;
        if found
            .map_err(|error| Failure::Write(error.into()))?
            .is_none_or(|found| same_owner(&found, &of.request))
        {
            return Err(Failure::NotYetWatched);
        }
    }
    Err(Failure::Refused(format!(
        "Error creating {kind} {:?}: {}",
        object.name_any(),
        status.message
    )))
}

/// Whether a ProvisioningRequest owns the template.
fn was_handed_over(template: &impl Resource) -> bool {
    template.owner_references().iter().any(|owner| owner.kind == "ProvisioningRequest")
}

/// Whether an object belongs to the workload of `request`.
pub(super) fn same_owner(found: &impl Resource, request: &ProvisioningRequest) -> bool {
    workload_of(found)
        .is_some_and(|owner| workload_of(request).is_some_and(|other| owner.uid == other.uid))
}

/// Reports on the check and in an event why its request was not created.
async fn report_failure(
    ctx: &Context,
    current: Workload,
    check: &str,
    message: String,
) -> Result<Workload, WriteError> {
    ctx.events.warning(&current, events::FAILED_CREATE, message.clone());
    let mut status = current.status.clone().unwrap_or_default();
    if let Some(state) = status.admission_checks.iter_mut().find(|state| state.name == check) {
        state.message = truncated_message(message);
    }
    let written = patch_status(ctx, &current, &status, "provisioning").await?;
    Ok(written.unwrap_or(current))
}

/// Deletes an object by uid; one that is gone or replaced is fine.
async fn delete<K>(ctx: &Context, object: &K, api: Api<K>) -> Result<(), WriteError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    if !ctx.leading() {
        return Err(WriteError::NotLeading);
    }
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    let params = DeleteParams::background().preconditions(preconditions);
    let deleted = with_deadline(api.delete(&object.name_any(), &params)).await;
    ctx.metrics.wrote("provisioning", deleted.is_ok());
    match deleted.map_err(WriteError::from) {
        Ok(_) | Err(WriteError::Gone | WriteError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}
