//! One action on the API server, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use kube::core::Status;
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_api::v1beta2::{PreemptionGatePosition, PriorityClassRef};
use switchyard_jobs::{JobKind, PodSetInfo, following, owner_gvk};

use super::group::{group_of, is_member};
use super::read::{read_job, read_workload};
use super::stamp::{BadPayload, Stamp, fence_text, job_kind, job_to_create, workload_to_create};
use super::watch::{workload_gvk, workload_resource};
use super::{Executor, Known, SUSPENDED};
use crate::proof::Seal;
use switchyard_ledger::{Action, Kind, Object, Outcome, Payload, Target, Trouble, Verb};

/// How often, and how far apart, the controller's view of an admission is looked at before its job is made without.
const ADMISSION_LOOKS: u32 = 20;
const ADMISSION_LOOK: Duration = Duration::from_millis(10);

/// How often it is tried to change an object that others change as well.
const CHANGES: u32 = 5;

/// What a payload is made into.
enum Made {
    One(Box<DynamicObject>),
    /// The members of a group.
    Group(Vec<Value>),
}

/// How an object of one kind is reached and read.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) resource: ApiResource,
    pub(crate) gvk: Arc<str>,
    /// None: a Workload.
    pub(crate) job_kind: Option<&'static dyn JobKind>,
}

impl Access {
    pub(crate) fn workload() -> Self {
        Self { resource: workload_resource(), gvk: workload_gvk(), job_kind: None }
    }

    pub(crate) fn job(kind: &'static dyn JobKind) -> Self {
        Self {
            resource: kind.id().api_resource(),
            gvk: owner_gvk(kind.id()).into(),
            job_kind: Some(kind),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        if self.job_kind.is_some() { Kind::Job } else { Kind::Workload }
    }

    /// How an object that was seen is reached, if it is of one of these kinds.
    fn of(target: &Target, kinds: &[Known]) -> Option<Self> {
        let jobs = kinds.iter().map(|known| Self::job(known.kind));
        std::iter::once(Self::workload()).chain(jobs).find(|access| access.gvk == target.gvk)
    }

    /// The object as the ledger knows it, if it is this hub's.
    pub(super) fn read(&self, object: &Value, seal: &Seal) -> Option<Object> {
        match self.job_kind {
            None => read_workload(object, &self.gvk, seal).map(Object::Workload),
            Some(kind) => read_job(object, kind, &self.gvk, seal).map(Object::Job),
        }
    }
}

impl Executor {
    pub(super) async fn act(&self, action: &Action) -> Outcome {
        match &action.verb {
            Verb::Create { namespace, name, attempt, payload, fence_after, gated } => {
                if let Some(trouble) = self.unwelcome(payload, namespace) {
                    return Outcome::Refused(trouble);
                }
                let stamp = self.stamp(&action.workload_uid, *attempt, namespace, name);
                let stamp = Stamp { fence_after: *fence_after, gated: *gated, ..stamp };
                match self.make(action.kind, payload, stamp) {
                    Ok((Made::One(object), access)) => {
                        self.create(&self.started(*object, &access, stamp).await, &access, stamp)
                            .await
                    }
                    Ok((Made::Group(pods), access)) => {
                        self.create_group(pods, &access, stamp).await
                    }
                    Err(bad) => Outcome::Refused(bad_payload(&bad)),
                }
            }
            Verb::Find { namespace, name, attempt, payload } => {
                let stamp = self.stamp(&action.workload_uid, *attempt, namespace, name);
                match self.make(action.kind, payload, stamp) {
                    Ok((Made::One(object), access)) => self.find(&object, &access, stamp).await,
                    Ok((Made::Group(_), access)) => self.find_group(&access, stamp).await,
                    // What cannot be made was not made.
                    Err(_) => Outcome::Gone,
                }
            }
            Verb::Delete { target, foreground } => match Access::of(target, &self.kinds) {
                Some(access) => self.delete(&access, target, *foreground).await,
                None => unknown_kind(target),
            },
            Verb::Release { target, index } => match Access::of(target, &self.kinds) {
                Some(access) => self.release(&access, target, *index).await,
                None => unknown_kind(target),
            },
            Verb::SetActive { target, active } => {
                let mark = if *active { Value::Null } else { json!("true") };
                let patch = json!({"metadata": {"annotations": {SUSPENDED: mark}}, "spec": {"active": active}});
                self.patch_workload(target, patch).await
            }
            Verb::SetFence { target, after } => {
                let patch = json!({"metadata": {"annotations": {names::FENCE_AFTER: after.map(fence_text)}}});
                self.patch_workload(target, patch).await
            }
            Verb::SetPriority { target, priority } => {
                let class = PriorityClassRef::workload(&priority.class);
                let patch =
                    json!({"spec": {"priorityClassRef": class, "priority": priority.value}});
                let outcome = self.patch_workload(target, patch).await;
                if let Outcome::Refused(why) = &outcome {
                    let (workload, priority) = (&target.name, priority.value);
                    tracing::warn!(
                        workload,
                        priority,
                        why = why.message,
                        "this cluster does not take the new priority"
                    );
                }
                outcome
            }
            Verb::OpenGate { target, at } => self.open_gate(target, *at).await,
            Verb::Reread { target } => match Access::of(target, &self.kinds) {
                Some(access) => self.reread(&access, target).await,
                None => unknown_kind(target),
            },
        }
    }

    fn stamp<'a>(
        &'a self,
        workload_uid: &'a str,
        attempt: u64,
        namespace: &'a str,
        name: &'a str,
    ) -> Stamp<'a> {
        let (hub_id, origin) = (self.seal.hub_id(), &*self.origin);
        Stamp {
            hub_id,
            origin,
            workload_uid,
            attempt,
            namespace,
            name,
            fence_after: None,
            gated: false,
        }
    }

    /// The job as admission would start it, where that is known: it saves stopping and starting it by two writes of
    /// ours and two of its controller. A webhook that suspends it all the same does no harm, it is started as usual.
    async fn started(
        &self,
        object: DynamicObject,
        access: &Access,
        stamp: Stamp<'_>,
    ) -> DynamicObject {
        let (Some(kind), Some(infos)) = (access.job_kind, self.admission(access, stamp).await)
        else {
            return object;
        };
        let mut started = value(&object);
        match kind.run(&mut started, &infos) {
            Ok(()) => serde_json::from_value(started).unwrap_or(object),
            // The controller will say so on the Workload.
            Err(_) => object,
        }
    }

    /// What admission gave to the job. Our own watch may be a moment ahead of the controller's.
    pub(super) async fn admission(
        &self,
        access: &Access,
        stamp: Stamp<'_>,
    ) -> Option<Vec<PodSetInfo>> {
        let admissions = self.admissions.as_ref().filter(|_| access.job_kind.is_some())?;
        for _ in 0..ADMISSION_LOOKS {
            let found =
                admissions.of(stamp.namespace, stamp.name, stamp.workload_uid, stamp.attempt);
            if found.is_some() {
                return found;
            }
            tokio::time::sleep(ADMISSION_LOOK).await;
        }
        None
    }

    /// Why nothing is made of a payload, be it the Workload alone: the hub is to know before it settles on this cluster.
    pub(super) fn unwelcome(&self, payload: &Payload, namespace: &str) -> Option<Trouble> {
        let enabled = |kind: &dyn JobKind| {
            self.kinds.iter().any(|it| it.enabled && it.kind.id() == kind.id())
        };
        let disabled = job_kind(&payload.job).filter(|kind| !enabled(*kind));
        let disabled = disabled.map(|kind| bad_payload(&BadPayload::Disabled(kind.id().framework)));
        self.allowed.trouble(&payload.job, namespace).or(disabled)
    }

    /// What the payload holds of this kind, and how it is reached.
    fn make(
        &self,
        kind: Kind,
        payload: &Payload,
        stamp: Stamp<'_>,
    ) -> Result<(Made, Access), BadPayload> {
        let (mut objects, access) = match kind {
            Kind::Workload => (vec![workload_to_create(payload, stamp)?], Access::workload()),
            Kind::Job => {
                let (mut objects, kind) = job_to_create(&payload.job, stamp)?;
                if let Some(admissions) = &self.admissions {
                    objects.iter_mut().for_each(|object| admissions.fill_in(kind, object));
                }
                (objects, Access::job(kind))
            }
        };
        objects.iter_mut().for_each(|object| self.seal.sign(object, &access.gvk));
        if objects.iter().any(|object| is_member(&access, object)) {
            return Ok((Made::Group(objects), access));
        }
        let object = serde_json::from_value(objects.pop().unwrap_or_default())?;
        Ok((Made::One(Box::new(object)), access))
    }

    pub(super) fn api(&self, access: &Access, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &access.resource)
    }

    /// Creates the object. If the name is taken by what an earlier, unanswered try made, that is as good, once it has as many
    /// replicas and the fields that follow the hub's.
    async fn create(&self, object: &DynamicObject, access: &Access, stamp: Stamp<'_>) -> Outcome {
        let mut there = match self.create_one(object, access, stamp).await {
            Ok(there) => there,
            Err(outcome) => return outcome,
        };
        let (wanted, name) = (value(object), object.metadata.name.as_deref().unwrap_or_default());
        for _ in 0..CHANGES {
            let changed = access.job_kind.and_then(|kind| following(kind, &wanted, &value(&there)));
            let outcome = self.object(access, &there);
            let is_of_attempt =
                matches!(&outcome, Outcome::Object(it) if it.meta().attempt == stamp.attempt);
            let Some(patch) = changed.filter(|_| is_of_attempt) else { return outcome };
            match self.follow(access, &there, patch).await {
                Ok(changed) => return self.object(access, &changed),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Outcome::Gone,
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => return failed(error, access, name),
            }
            there = match self
                .in_the_way(access, &self.api(access, stamp.namespace), name, stamp)
                .await
            {
                Ok(there) => there,
                Err(outcome) => return outcome,
            };
        }
        Outcome::Rejected(format!("{} {name} kept changing", access.resource.kind))
    }

    /// Patches what was looked at, unless it has changed since: a list is replaced whole, with all that others have put into
    /// it.
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

    /// As [`Self::create`]; gives what is there then.
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
                self.in_the_way(access, &api, &name, stamp).await
            }
            Err(error) => match failed(error, access, &format!("{}/{name}", stamp.namespace)) {
                // A quota that an object fills by itself refuses another one like it before its name is looked at.
                refused @ Outcome::Refused(_) => {
                    self.in_the_way(access, &api, &name, stamp).await.or(Err(refused))
                }
                outcome => Err(outcome),
            },
        }
    }

    /// Whether a creation that was not answered happened.
    async fn find(&self, object: &DynamicObject, access: &Access, stamp: Stamp<'_>) -> Outcome {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        match self.api(access, stamp.namespace).get_opt(name).await {
            Ok(there) => match there.and_then(|there| access.read(&value(&there), &self.seal)) {
                Some(there) if there.meta().workload_uid == stamp.workload_uid => {
                    Outcome::Object(Box::new(there))
                }
                _ => Outcome::Gone,
            },
            Err(error) => failed(error, access, name),
        }
    }

    /// What has the name, if it was made for this workload.
    async fn in_the_way(
        &self,
        access: &Access,
        api: &Api<DynamicObject>,
        name: &str,
        stamp: Stamp<'_>,
    ) -> Result<DynamicObject, Outcome> {
        let there = match api.get_opt(name).await {
            Ok(Some(there)) => there,
            Ok(None) => {
                return Err(Outcome::Rejected(format!("{name} was in the way and is gone")));
            }
            Err(error) => return Err(failed(error, access, name)),
        };
        Err(match access.read(&value(&there), &self.seal) {
            Some(object) if object.meta().workload_uid == stamp.workload_uid => return Ok(there),
            Some(object) => Outcome::Occupied { by: object.meta().workload_uid.clone() },
            None => Outcome::Refused(Trouble::refused(
                "ObjectInTheWay",
                format!(
                    "{} {}/{name} exists on this cluster and was not made for this workload; rename or delete one of the two",
                    access.resource.kind, stamp.namespace
                ),
            )),
        })
    }

    async fn delete(&self, access: &Access, target: &Target, foreground: bool) -> Outcome {
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
            // Another object has the name: the one meant is gone.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                self.reread(access, target).await
            }
            Err(error) => failed(error, access, &target.name),
        }
    }

    /// Takes our finalizer off, by its place in the list and only if it is there.
    async fn release(&self, access: &Access, target: &Target, index: usize) -> Outcome {
        match group_of(target) {
            Some(group) => self.release_group(access, target, group).await,
            None => self.release_one(access, target, index).await,
        }
    }

    pub(super) async fn release_one(
        &self,
        access: &Access,
        target: &Target,
        mut index: usize,
    ) -> Outcome {
        for _ in 0..3 {
            let patch = json!([
                {"op": "test", "path": "/metadata/uid", "value": target.uid},
                {"op": "test", "path": format!("/metadata/finalizers/{index}"), "value": names::TERMINAL_STATE},
                {"op": "remove", "path": format!("/metadata/finalizers/{index}")},
            ]);
            match self.json_patch(access, target, &patch).await {
                Ok(object) => return self.object(access, &object),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Outcome::Gone,
                Err(kube::Error::Api(status)) if test_failed(&status) => {
                    match self.reread(access, target).await {
                        Outcome::Object(object) => match object.meta().held {
                            Some(now_at) => index = now_at,
                            None => return Outcome::Object(object),
                        },
                        other => return other,
                    }
                }
                Err(error) => return failed(error, access, &target.name),
            }
        }
        Outcome::Failed(format!("the finalizers of {} kept changing", target.name))
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

    async fn patch_workload(&self, target: &Target, mut patch: Value) -> Outcome {
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
            Err(error) => failed(error, &access, &target.name),
        }
    }

    /// Opens the hub's preemption gate. What we make has no other.
    async fn open_gate(&self, target: &Target, at: i64) -> Outcome {
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
                let outcome = failed(error, &access, &target.name);
                if let Outcome::Refused(why) = &outcome {
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

    async fn reread(&self, access: &Access, target: &Target) -> Outcome {
        if let Some(group) = group_of(target) {
            return self.reread_group(access, target, group).await;
        }
        match self.api(access, &target.namespace).get_opt(&target.name).await {
            Ok(Some(object)) if object.metadata.uid.as_deref() == Some(&target.uid) => {
                self.object(access, &object)
            }
            Ok(_) => Outcome::Gone,
            Err(error) => failed(error, access, &target.name),
        }
    }

    fn object(&self, access: &Access, object: &DynamicObject) -> Outcome {
        match access.read(&value(object), &self.seal) {
            Some(object) => Outcome::Object(Box::new(object)),
            // Somebody took our marks off: it is not ours any more.
            None => Outcome::Gone,
        }
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// A JSON patch whose `test` fails, or whose path is not there.
fn test_failed(status: &Status) -> bool {
    status.code == 422 || status.is_conflict()
}

pub(super) fn value(object: &DynamicObject) -> Value {
    // A DynamicObject always serializes.
    serde_json::to_value(object).unwrap_or_default()
}

fn bad_payload(bad: &BadPayload) -> Trouble {
    match bad {
        BadPayload::Disabled(_) => Trouble::unfit("KindDisabled", bad.to_string()),
        bad => Trouble::refused("BadPayload", bad.to_string()),
    }
}

fn unknown_kind(target: &Target) -> Outcome {
    Outcome::Refused(Trouble::refused(
        "UnknownKind",
        format!("this agent knows no kind {}", target.gvk),
    ))
}

/// What an error means: what a change on the cluster must mend, or what only needs another try.
pub(super) fn failed(error: kube::Error, access: &Access, name: &str) -> Outcome {
    let kube::Error::Api(status) = error else { return Outcome::Failed(error.to_string()) };
    let kind = &access.resource.kind;
    let text = format!("{kind} {name}: {}", status.message);
    match status.code {
        404 if status.message.contains("namespaces") => {
            Outcome::Refused(Trouble::unfit("NamespaceNotFound", text))
        }
        404 => Outcome::Refused(Trouble::unfit("KindNotFound", text)),
        // Also a terminating namespace, a ResourceQuota, a policy that denies it.
        403 => Outcome::Refused(Trouble::refused("Forbidden", text)),
        400 | 413 | 422 => Outcome::Refused(Trouble::refused("Invalid", text)),
        // It asks to come again; of a request that it gave up, or that went wrong within, it does not know.
        401..=499 if status.code != 408 => Outcome::Rejected(text),
        // Admission comes before anything is stored.
        500 if status.message.contains("failed calling webhook") => Outcome::Rejected(text),
        _ => Outcome::Failed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_api_server_answers_says_whether_a_creation_may_yet_come() {
        let webhook = r#"Internal error occurred: failed calling webhook "w.example.com": context deadline exceeded"#;
        for (case, code, message, expected) in [
            ("it is busy", 429, "no", "rejected"),
            ("it does not know who asks", 401, "no", "rejected"),
            ("another has changed it", 409, "no", "rejected"),
            ("it may not be", 403, "no", "refused"),
            ("it is malformed", 422, "no", "refused"),
            ("it has given the request up", 408, "no", "failed"),
            ("something went wrong within", 500, "no", "failed"),
            ("a webhook was not there, before it was stored", 500, webhook, "rejected"),
            ("something between heard no answer", 504, webhook, "failed"),
        ] {
            let error = kube::Error::Api(Box::new(Status { code, ..Status::failure(message, "") }));
            let came = match failed(error, &Access::workload(), "w") {
                Outcome::Rejected(_) => "rejected",
                Outcome::Refused(_) => "refused",
                Outcome::Failed(_) => "failed",
                other => panic!("{case}: {other:?}"),
            };
            assert_eq!(came, expected, "{case}");
        }
    }
}
