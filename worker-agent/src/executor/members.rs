//! Actions on a pod group: on each member, a few at a time.

use futures::{StreamExt as _, stream};
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;
use switchyard_api::names;
use switchyard_jobs::meta::LABEL_VALUE_MAX;
use switchyard_ledger::{Meta, Object, Outcome, Target};

use super::Executor;
use super::access::{Access, value};
use super::api_error::outcome_of_error;
use super::group::read_group;
use super::read::read_meta;
use super::stamp::Stamp;

/// The most concurrent requests for one group.
const AT_ONCE: usize = 8;

/// If one member was not created, others may have been, and must be searched.
fn unknown_if_not_applied(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::NotApplied(why) => Outcome::Unknown(why),
        other => other,
    }
}

/// Whether these are as many pods as the group has.
fn is_whole(members: &[(Value, Meta)]) -> bool {
    let count = members.first().and_then(|(pod, _)| {
        pod["metadata"]["annotations"][names::POD_GROUP_TOTAL_COUNT].as_str()?.parse().ok()
    });
    count.is_some_and(|count: usize| members.len() >= count)
}

impl Executor {
    /// Creates the missing members. Returns the group only once all exist.
    pub(super) async fn create_group(
        &self,
        pods: Vec<Value>,
        access: &Access,
        stamp: Stamp<'_>,
    ) -> Outcome {
        let pods = self.started_group(pods, access, stamp).await;
        let made = stream::iter(pods).map(|pod| async move {
            let pod: DynamicObject = serde_json::from_value(pod)
                .map_err(|error| Outcome::Unknown(format!("not an object: {error}")))?;
            let there =
                value(&self.create_one(&pod, access, stamp).await.map_err(unknown_if_not_applied)?);
            match read_meta(&there, &access.gvk, &self.seal) {
                Some(meta) if meta.attempt == stamp.attempt => Ok(there),
                _ => Err(Outcome::Unknown(
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

    /// The members as their admission would start them, if that is known.
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
            // The controller reports the error on the Workload.
            Err(_) => pods,
        }
    }

    /// The members that an unanswered creation of a group created.
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
            Ok((members, _)) => self.group(members.into_iter().map(|(it, _)| it).collect(), access),
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
            Ok((members, _)) if members.is_empty() => return Outcome::Gone,
            Ok((members, _)) => members,
            Err(outcome) => return outcome,
        };
        let stay = members.into_iter().map(|(_, meta)| meta).filter(|meta| !meta.deleting);
        let delete =
            |meta: Meta| async move { self.delete_one(access, &meta.target, foreground).await };
        Self::each(stay, delete).await.unwrap_or(Outcome::Accepted)
    }

    pub(super) async fn remove_group_finalizers(
        &self,
        access: &Access,
        target: &Target,
        group: (&str, u64),
    ) -> Outcome {
        let named = (&*target.namespace, &*target.name);
        let (members, are_labelled) = match self.members(access, named, group).await {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        let release = |(pod, meta): (Value, Meta)| async move {
            let kueues = self.kueues_finalizer(&pod, &meta);
            if let Some(index) = kueues
                && let Some(outcome) =
                    self.remove_kueues_finalizer(access, &meta.target, index).await
            {
                return outcome;
            }
            let is_before = |own: usize| kueues.is_some_and(|index| index < own);
            match meta.finalizer_index {
                Some(own) if is_before(own) => {
                    self.remove_finalizer_of(access, &meta.target, own - 1).await
                }
                Some(own) => self.remove_finalizer_of(access, &meta.target, own).await,
                None => Outcome::Accepted,
            }
        };
        if let Some(outcome) = Self::each(members.into_iter(), release).await {
            return outcome;
        }
        match self.listed(access, named, group, are_labelled).await {
            Ok(left) => self.group(left.into_iter().map(|(it, _)| it).collect(), access),
            Err(outcome) => outcome,
        }
    }

    /// The place of the finalizer of another admission on a deleted member. Kueue v0.19.2 keeps it
    /// for ever once the Workload is gone (`ErrPrebuiltWorkloadNotFound` in its `reconciler.go`). An
    /// admission in this process removes it by itself.
    fn kueues_finalizer(&self, pod: &Value, meta: &Meta) -> Option<usize> {
        if self.admissions.is_some() || !meta.deleting {
            return None;
        }
        let finalizers = pod["metadata"]["finalizers"].as_array()?;
        finalizers.iter().position(|finalizer| finalizer == names::MANAGED)
    }

    /// Performs an action on each member. Returns the first failure, if any.
    async fn each<Member, Acting>(
        members: impl Iterator<Item = Member>,
        act: impl Fn(Member) -> Acting,
    ) -> Option<Outcome>
    where
        Acting: Future<Output = Outcome>,
    {
        let outcomes: Vec<Outcome> =
            stream::iter(members.map(act)).buffer_unordered(AT_ONCE).collect().await;
        let went_wrong = |it: &Outcome| {
            matches!(it, Outcome::Unknown(_) | Outcome::NotApplied(_) | Outcome::Rejected(_))
        };
        outcomes.into_iter().find(went_wrong)
    }

    /// The members of one attempt's group at the API server, and whether the label of their group
    /// finds all of them. Pods without that label count: an empty list ends the group for the hub,
    /// which may then run it elsewhere.
    async fn members(
        &self,
        access: &Access,
        named: (&str, &str),
        group: (&str, u64),
    ) -> Result<(Vec<(Value, Meta)>, bool), Outcome> {
        let members = self.listed(access, named, group, true).await?;
        if is_whole(&members) {
            return Ok((members, true));
        }
        Ok((self.listed(access, named, group, false).await?, false))
    }

    /// Lists the members, by the label of their group if `by_label`. Otherwise it reads all pods of
    /// the hub in the namespace.
    async fn listed(
        &self,
        access: &Access,
        (namespace, name): (&str, &str),
        (workload_uid, attempt): (&str, u64),
        by_label: bool,
    ) -> Result<Vec<(Value, Meta)>, Outcome> {
        let mut selector = format!("{}={}", names::HUB_ID, self.seal.hub_id());
        if by_label && name.len() <= LABEL_VALUE_MAX {
            selector = format!("{selector},{}={name}", names::PREBUILT_WORKLOAD_NAME);
        }
        let listed =
            self.api(access, namespace).list(&ListParams::default().labels(&selector)).await;
        let listed = listed.map_err(|error| outcome_of_error(error, access, name))?;
        let of_group = |object: &DynamicObject| {
            let object = value(object);
            let meta = read_meta(&object, &access.gvk, &self.seal)?;
            (meta.workload_uid == workload_uid && meta.attempt == attempt).then_some((object, meta))
        };
        Ok(listed.items.iter().filter_map(of_group).collect())
    }

    /// The job of these members, with the version before their last change. The watch then reports
    /// that change, and perhaps changes of other members, as newer.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;
    use switchyard_jobs::pod::Pod;

    use super::*;
    use crate::clock::Clock;
    use crate::proof::{Keys, Seal};
    use crate::testing::settings;

    const KUEUES: &str = "kueue.x-k8s.io/managed";

    /// A namespace with pods. A deleted one stays, as during its grace period.
    #[derive(Clone, Default)]
    struct Pods(Arc<Mutex<Vec<Value>>>);

    impl Pods {
        /// The members of group `g`, some of them without the label of their group.
        fn new(have_label: &[bool]) -> Self {
            let pod = |(number, has_label): (usize, &bool)| {
                let mut labels = json!({names::HUB_ID: "hub", names::POD_GROUP_NAME: "g"});
                if *has_label {
                    labels[names::PREBUILT_WORKLOAD_NAME] = "g".into();
                }
                json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {
                        "namespace": "ns", "name": format!("p{number}"), "uid": format!("uid-{number}"),
                        "resourceVersion": "5", "labels": labels,
                        "annotations": {
                            names::WORKLOAD_UID: "w", names::ATTEMPT: "1",
                            names::PREBUILT_WORKLOAD_NAME: "g",
                            names::POD_GROUP_TOTAL_COUNT: have_label.len().to_string(),
                        },
                        "finalizers": [KUEUES, names::TERMINAL_STATE],
                    },
                    "status": {"phase": "Running"},
                })
            };
            Self(Arc::new(Mutex::new(have_label.iter().enumerate().map(pod).collect())))
        }

        fn answer(&self, method: &Method, uri: &http::Uri, body: &[u8]) -> Value {
            let mut pods = self.0.lock();
            let name = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
            let found = pods.iter_mut().find(|pod| pod["metadata"]["name"] == *name);
            let Some(pod) = found else {
                let is_narrow = uri.query().unwrap_or_default().contains("prebuilt");
                let has_label = |pod: &&Value| {
                    !is_narrow
                        || !pod["metadata"]["labels"][names::PREBUILT_WORKLOAD_NAME].is_null()
                };
                let items: Vec<&Value> = pods.iter().filter(has_label).collect();
                return json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
            };
            if *method == Method::DELETE {
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            } else {
                let patch: Value = serde_json::from_slice(body).unwrap();
                let index = patch[2]["path"].as_str().unwrap().rsplit('/').next().unwrap();
                let index: usize = index.parse().unwrap();
                let finalizers = pod["metadata"]["finalizers"].as_array_mut().unwrap();
                assert_eq!(finalizers.remove(index), patch[1]["value"], "the right place");
            }
            pod.clone()
        }

        fn executor(&self) -> Executor {
            let pods = self.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let pods = pods.clone();
                async move {
                    let (method, uri) = (request.method().clone(), request.uri().clone());
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let text = pods.answer(&method, &uri, &body).to_string();
                    anyhow::Ok(Response::new(Body::from(text.into_bytes())))
                }
            });
            let settings = settings("hub", "pod");
            let client = kube::Client::new(service, "ns");
            Executor::new(client, &settings, Seal::new("hub", Keys::none()), None, Clock::new())
        }

        /// Whether each pod is deleted, and its finalizers.
        fn left(&self) -> Vec<(bool, Value)> {
            let left = |pod: &Value| {
                let metadata = &pod["metadata"];
                (!metadata["deletionTimestamp"].is_null(), metadata["finalizers"].clone())
            };
            self.0.lock().iter().map(left).collect()
        }
    }

    /// Kueue marks copies by an annotation, and users can remove labels.
    #[rstest::rstest]
    #[case::all_have_the_label([true, true])]
    #[case::one_lost_it([true, false])]
    #[case::none_has_it([false, false])]
    #[tokio::test]
    async fn group_is_not_gone_while_pods_end(#[case] have_label: [bool; 2]) {
        let pods = Pods::new(&have_label);
        let (executor, access) = (pods.executor(), Access::job(&Pod));
        let target = Target {
            gvk: access.gvk.clone(),
            namespace: "ns".into(),
            name: "g".into(),
            uid: "w/1".into(),
        };
        let outcome = executor.delete_group(&access, &target, ("w", 1), false).await;
        assert!(matches!(outcome, Outcome::Accepted), "{outcome:?}");
        let held = json!([KUEUES, names::TERMINAL_STATE]);
        assert_eq!(pods.left(), [(true, held.clone()), (true, held)]);
        let outcome = executor.remove_group_finalizers(&access, &target, ("w", 1)).await;
        assert!(matches!(outcome, Outcome::Object(_)), "{outcome:?}");
        assert_eq!(pods.left(), [(true, json!([])), (true, json!([]))]);
        pods.0.lock().clear();
        let outcome = executor.reread_group(&access, &target, ("w", 1)).await;
        assert!(matches!(outcome, Outcome::Gone), "{outcome:?}");
    }
}
