//! Actions on a group of pods: on each of its members, a few at a time.

use futures::{StreamExt as _, stream};
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;
use switchyard_api::names;
use switchyard_jobs::meta::LABEL_VALUE_MAX;

use super::Executor;
use super::act::{Access, failed, value};
use super::group::read_group;
use super::read::read_meta;
use super::stamp::Stamp;
use switchyard_ledger::{Meta, Object, Outcome, Target};

/// Members that are written to at once.
const AT_ONCE: usize = 8;

/// Of a group, others may have been made where one was not, and are to be looked for.
fn of_several(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Rejected(why) => Outcome::Failed(why),
        other => other,
    }
}

impl Executor {
    /// Creates the members that are not there. That all are there is said only if it is so.
    pub(super) async fn create_group(
        &self,
        pods: Vec<Value>,
        access: &Access,
        stamp: Stamp<'_>,
    ) -> Outcome {
        let pods = self.started_group(pods, access, stamp).await;
        let made = stream::iter(pods).map(|pod| async move {
            let pod: DynamicObject = serde_json::from_value(pod)
                .map_err(|error| Outcome::Failed(format!("not an object: {error}")))?;
            let there = value(&self.create_one(&pod, access, stamp).await.map_err(of_several)?);
            match read_meta(&there, &access.gvk, &self.seal) {
                Some(meta) if meta.attempt == stamp.attempt => Ok(there),
                _ => Err(Outcome::Failed(
                    "a pod of an earlier attempt is in the way, and is being removed".to_owned(),
                )),
            }
        });
        let made: Vec<Result<Value, Outcome>> = made.buffer_unordered(AT_ONCE).collect().await;
        match made.into_iter().collect::<Result<Vec<Value>, Outcome>>() {
            Ok(members) => self.group(members, access),
            Err(outcome) => outcome,
        }
    }

    /// As admission would start them, where that is known.
    async fn started_group(
        &self,
        pods: Vec<Value>,
        access: &Access,
        stamp: Stamp<'_>,
    ) -> Vec<Value> {
        let (Some(kind), Some(infos)) = (access.job_kind, self.admission(access, stamp).await)
        else {
            return pods;
        };
        let mut group = kind.compose(pods.clone());
        match kind.run(&mut group, &infos) {
            Ok(()) => kind.members(&group).to_vec(),
            // The controller will say so on the Workload.
            Err(_) => pods,
        }
    }

    /// What an unanswered creation has made of a group.
    pub(super) async fn find_group(&self, access: &Access, stamp: Stamp<'_>) -> Outcome {
        self.read(access, (stamp.namespace, stamp.name), (stamp.workload_uid, stamp.attempt)).await
    }

    pub(super) async fn reread_group(
        &self,
        access: &Access,
        target: &Target,
        group: (&str, u64),
    ) -> Outcome {
        self.read(access, (&target.namespace, &target.name), group).await
    }

    async fn read(&self, access: &Access, named: (&str, &str), group: (&str, u64)) -> Outcome {
        match self.members(access, named, group).await {
            Ok(members) => self.group(members.into_iter().map(|(it, _)| it).collect(), access),
            Err(outcome) => outcome,
        }
    }

    pub(super) async fn delete_group(
        &self,
        access: &Access,
        target: &Target,
        group: (&str, u64),
        foreground: bool,
    ) -> Outcome {
        let members = match self.members(access, (&target.namespace, &target.name), group).await {
            Ok(members) if members.is_empty() => return Outcome::Gone,
            Ok(members) => members,
            Err(outcome) => return outcome,
        };
        let stay = members.into_iter().map(|(_, meta)| meta).filter(|meta| !meta.deleting);
        let delete =
            |meta: Meta| async move { self.delete_one(access, &meta.target, foreground).await };
        Self::each(stay, delete).await.unwrap_or(Outcome::Accepted)
    }

    pub(super) async fn release_group(
        &self,
        access: &Access,
        target: &Target,
        group: (&str, u64),
    ) -> Outcome {
        let members = match self.members(access, (&target.namespace, &target.name), group).await {
            Ok(members) => members,
            Err(outcome) => return outcome,
        };
        let held = members.into_iter().map(|(_, meta)| meta).filter(|meta| meta.held.is_some());
        let release = |meta: Meta| async move {
            match meta.held {
                Some(index) => self.release_one(access, &meta.target, index).await,
                None => Outcome::Gone,
            }
        };
        match Self::each(held, release).await {
            Some(outcome) => outcome,
            None => self.reread_group(access, target, group).await,
        }
    }

    /// Acts on each; what did not go through, if anything did not.
    async fn each<Acting>(
        members: impl Iterator<Item = Meta>,
        act: impl Fn(Meta) -> Acting,
    ) -> Option<Outcome>
    where
        Acting: Future<Output = Outcome>,
    {
        let outcomes: Vec<Outcome> =
            stream::iter(members.map(act)).buffer_unordered(AT_ONCE).collect().await;
        let went_wrong = |it: &Outcome| {
            matches!(it, Outcome::Failed(_) | Outcome::Rejected(_) | Outcome::Refused(_))
        };
        outcomes.into_iter().find(went_wrong)
    }

    /// The members of one attempt's group, as the API server has them.
    async fn members(
        &self,
        access: &Access,
        (namespace, name): (&str, &str),
        (workload_uid, attempt): (&str, u64),
    ) -> Result<Vec<(Value, Meta)>, Outcome> {
        let mut selector = format!("{}={}", names::HUB_ID, self.seal.hub_id());
        if name.len() <= LABEL_VALUE_MAX {
            selector = format!("{selector},{}={name}", names::PREBUILT_WORKLOAD_NAME);
        }
        let listed =
            self.api(access, namespace).list(&ListParams::default().labels(&selector)).await;
        let listed = listed.map_err(|error| failed(error, access, name))?;
        let of_group = |object: &DynamicObject| {
            let object = value(object);
            let meta = read_meta(&object, &access.gvk, &self.seal)?;
            (meta.workload_uid == workload_uid && meta.attempt == attempt).then_some((object, meta))
        };
        Ok(listed.items.iter().filter_map(of_group).collect())
    }

    /// The job that members are together, as it was before the last of their changes: what the watch tells of that one is
    /// not older, and it may know of others.
    fn group(&self, members: Vec<Value>, access: &Access) -> Outcome {
        match read_group(members, access, &self.seal, false) {
            Some(mut job) => {
                job.meta.version = job.meta.version.saturating_sub(1).max(1);
                Outcome::Object(Box::new(Object::Job(job)))
            }
            None => Outcome::Gone,
        }
    }
}
