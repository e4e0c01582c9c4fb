//! Performs one action on the API server.

use std::time::Duration;

use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_api::v1beta2::PriorityClassRef;
use switchyard_jobs::{JobKind, PodSetInfo};
use switchyard_ledger::{Action, ObjectKind, Outcome, Rejection, Target, Verb};
use switchyard_proto::v1::Payload;

use super::Executor;
use super::access::{Access, value};
use super::group::is_member;
use super::stamp::{BadPayload, Stamp, fence_text, job_kind, job_to_create, workload_to_create};

/// How often, and at what interval, the agent looks for an admission before it creates the job
/// suspended.
const ADMISSION_LOOKS: u32 = 20;
const ADMISSION_LOOK: Duration = Duration::from_millis(10);

/// The objects of a payload.
enum PayloadObjects {
    One(Box<DynamicObject>),
    /// The members of a pod group.
    Group(Vec<Value>),
}

impl Executor {
    pub(super) async fn act(&self, action: &Action) -> Outcome {
        match &action.verb {
            Verb::Create { namespace, name, attempt, payload, fence_after, gated, pins } => {
                if let Some(trouble) = self.refusal(payload, namespace) {
                    return Outcome::Rejected(trouble);
                }
                let stamp = self.stamp(&action.workload_uid, *attempt, namespace, name);
                let stamp = Stamp { fence_after: *fence_after, gated: *gated, pins, ..stamp };
                match self.make(action.kind, payload, stamp) {
                    Ok((PayloadObjects::One(object), access)) => {
                        self.create(&self.as_started(*object, &access, stamp).await, &access, stamp)
                            .await
                    }
                    Ok((PayloadObjects::Group(pods), access)) => {
                        self.create_group(pods, &access, stamp).await
                    }
                    Err(bad) => Outcome::Rejected(bad_payload(&bad)),
                }
            }
            Verb::Find { namespace, name, attempt, payload } => {
                let stamp = self.stamp(&action.workload_uid, *attempt, namespace, name);
                match self.make(action.kind, payload, stamp) {
                    Ok((PayloadObjects::One(object), access)) => {
                        self.find(&object, &access, stamp).await
                    }
                    Ok((PayloadObjects::Group(_), access)) => self.find_group(&access, stamp).await,
                    // An invalid payload was never created.
                    Err(_) => Outcome::Gone,
                }
            }
            Verb::Delete { target, foreground } => match Access::of(target, &self.kinds) {
                Some(access) => self.delete(&access, target, *foreground).await,
                None => unknown_kind(target),
            },
            Verb::RemoveFinalizer { target, index } => match Access::of(target, &self.kinds) {
                Some(access) => self.remove_finalizer(&access, target, *index).await,
                None => unknown_kind(target),
            },
            Verb::SetActive { target, active } => {
                let mark = if *active { Value::Null } else { json!("true") };
                let patch = json!({"metadata": {"annotations": {names::SUSPENDED: mark}}, "spec": {"active": active}});
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
                if let Outcome::Rejected(why) = &outcome {
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
            pins: &[],
        }
    }

    /// The job as its admission would start it, if the admission is known.
    ///
    /// Creating it started saves two writes of the agent and two of the job's controller. If a
    /// webhook suspends it, the job is started as usual.
    async fn as_started(
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
            // The controller reports the error on the Workload.
            Err(_) => object,
        }
    }

    /// The admission of the job. The agent's watch may be a moment ahead of the controller's.
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

    /// Why the agent refuses a payload. It checks the job before it creates the Workload, so that
    /// the hub learns of a refusal before it commits to this cluster.
    pub(super) fn refusal(&self, payload: &Payload, namespace: &str) -> Option<Rejection> {
        let enabled = |kind: &dyn JobKind| {
            self.kinds.iter().any(|it| it.enabled && it.kind.id() == kind.id())
        };
        let disabled = job_kind(&payload.job).filter(|kind| !enabled(*kind));
        let disabled = disabled.map(|kind| bad_payload(&BadPayload::Disabled(kind.id().framework)));
        self.allowed.rejection(&payload.job, namespace).or(disabled)
    }

    /// The payload's objects of this kind, and how to reach them.
    fn make(
        &self,
        kind: ObjectKind,
        payload: &Payload,
        stamp: Stamp<'_>,
    ) -> Result<(PayloadObjects, Access), BadPayload> {
        let (mut objects, access) = match kind {
            ObjectKind::Workload => (vec![workload_to_create(payload, stamp)?], Access::workload()),
            ObjectKind::Job => {
                let (mut objects, kind) = job_to_create(&payload.job, stamp)?;
                if let Some(admissions) = &self.admissions {
                    objects.iter_mut().for_each(|object| admissions.fill_in(kind, object));
                }
                (objects, Access::job(kind))
            }
        };
        objects.iter_mut().for_each(|object| self.seal.sign(object, &access.gvk));
        if objects.iter().any(|object| is_member(&access, object)) {
            return Ok((PayloadObjects::Group(objects), access));
        }
        let object = serde_json::from_value(objects.pop().unwrap_or_default())?;
        Ok((PayloadObjects::One(Box::new(object)), access))
    }

    pub(super) fn api(&self, access: &Access, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &access.resource)
    }

    pub(super) fn object(&self, access: &Access, object: &DynamicObject) -> Outcome {
        match access.read(&value(object), &self.seal) {
            Some(object) => Outcome::Object(Box::new(object)),
            // Another client removed the marks: the object is no copy any more.
            None => Outcome::Gone,
        }
    }
}

fn bad_payload(bad: &BadPayload) -> Rejection {
    match bad {
        BadPayload::Disabled(_) => Rejection::unfit("KindDisabled", bad.to_string()),
        bad => Rejection::refused("BadPayload", bad.to_string()),
    }
}

fn unknown_kind(target: &Target) -> Outcome {
    Outcome::Rejected(Rejection::refused(
        "UnknownKind",
        format!("this agent knows no kind {}", target.gvk),
    ))
}
