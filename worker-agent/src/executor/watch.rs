//! Watches the objects that carry the hub's id.

use std::collections::BTreeSet;

use futures::StreamExt;
use kube::api::{Api, DynamicObject, ObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource as _};
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_jobs::is_serving_part;
use switchyard_jobs::meta::controller_of;
use switchyard_ledger::{Target, WatchEvent};
use switchyard_platform::optional_crd::{CrdBackoff, is_unknown_kind};
use switchyard_platform::readable::Readable;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::access::{Access, value};
use super::group::{Groups, is_member};
use super::handled_access;
use super::serving_pods::ServingPods;
use crate::foreign::Foreign;
use crate::proof::Seal;
use crate::trouble::TroubleWatch;

/// The most events that wait for the ledger.
const BUFFER: usize = 1024;

/// Watches Workloads and all kinds of jobs. The tasks end with the returned set.
pub(crate) fn watch(
    client: &Client,
    seal: &Seal,
    foreign: &Foreign,
    frameworks: &[String],
) -> (mpsc::Receiver<WatchEvent>, JoinSet<()>) {
    let (sender, receiver) = mpsc::channel(BUFFER);
    let mut tasks = JoinSet::new();
    let mut synced = Vec::new();
    let troubles = TroubleWatch::default();
    tasks.spawn(troubles.clone().run(client.clone(), seal.hub_id().to_owned(), sender.clone()));
    for (access, wanted) in handled_access(frameworks) {
        let (done, listed) = tokio::sync::oneshot::channel();
        synced.push(listed);
        let watch = KindWatch::new(access, seal.clone(), foreign.clone(), troubles.clone());
        tasks.spawn(one_kind(client.clone(), watch, wanted, sender.clone(), done));
    }
    tasks.spawn(async move {
        for listed in synced {
            // A watch that ends without its list ends the executor too.
            if listed.await.is_err() {
                return;
            }
        }
        let _ = sender.send(WatchEvent::Synced).await;
    });
    (receiver, tasks)
}

/// Watches one kind. If the cluster does not know the kind, the watch waits for it if it is
/// `wanted`. An unwanted kind that is unknown or forbidden has no objects.
async fn one_kind(
    client: Client,
    mut watch: KindWatch,
    wanted: bool,
    sender: mpsc::Sender<WatchEvent>,
    done: tokio::sync::oneshot::Sender<()>,
) {
    let access = watch.access.clone();
    let api: Api<Readable<DynamicObject>> = Api::all_with(client, &access.resource);
    let config =
        watcher::Config::default().labels(&format!("{}={}", names::HUB_ID, watch.seal.hub_id()));
    let mut events = watcher(api, config).backoff(CrdBackoff::default()).boxed();
    let kind = access.kind();
    let mut first = Some(done);
    let mut listing = BTreeSet::new();
    let mut ended = false;
    while !ended && let Some(event) = events.next().await {
        let event = match event {
            Ok(watcher::Event::Init) => {
                listing.clear();
                watch.pods.begin_list();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                // An unreadable copy is not gone.
                listing.extend(object.meta().uid.clone());
                object.or_warn(&access.gvk).and_then(|object| watch.applied(&object))
            }
            Ok(watcher::Event::InitDone) => {
                let mut uids = std::mem::take(&mut listing);
                watch.copies.retain(|uid| uids.contains(uid));
                watch.troubles.listed(&access.gvk, &uids);
                for event in watch.pods.end_list(&mut uids) {
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
                Some(WatchEvent::Listed { kind, gvk: access.gvk.clone(), uids })
            }
            Ok(watcher::Event::Apply(object)) => {
                object.or_warn(&access.gvk).and_then(|object| watch.applied(&object))
            }
            Ok(watcher::Event::Delete(Readable::Object(object))) => watch.deleted(&object),
            Ok(watcher::Event::Delete(Readable::Unreadable(object))) => {
                let metadata = object.metadata;
                watch.deleted(&DynamicObject { types: None, metadata, data: json!({}) })
            }
            // A kind that was disabled may have left jobs, but only if the agent could see them:
            // the roles in `deploy/` cover all kinds, enabled or not. An administrator who removes
            // those rights also takes over the jobs.
            Err(error) if !wanted && (is_unknown_kind(&error) || is_out_of_reach(&error)) => {
                ended = true;
                Some(WatchEvent::Listed { kind, gvk: access.gvk.clone(), uids: BTreeSet::new() })
            }
            // While the cluster does not know the kind, there are no objects.
            Err(error) if access.job_kind.is_some() && is_unknown_kind(&error) => {
                first.is_some().then(|| WatchEvent::Listed {
                    kind,
                    gvk: access.gvk.clone(),
                    uids: BTreeSet::new(),
                })
            }
            Err(error) => {
                tracing::warn!(kind = &*access.gvk, %error, "watch failed, trying again");
                None
            }
        };
        let listed = matches!(event, Some(WatchEvent::Listed { .. }));
        if let Some(event) = event
            && sender.send(event).await.is_err()
        {
            return;
        }
        if listed && let Some(done) = first.take() {
            let _ = done.send(());
        }
    }
}

/// Pods that are reported together: those of one group, or of one serving job.
struct CombinedPods {
    groups: Groups,
    serving: ServingPods,
}

impl CombinedPods {
    fn new(access: Access, seal: Seal) -> Self {
        let serving = ServingPods::new(access.gvk.clone(), seal.clone());
        Self { groups: Groups::new(access, seal), serving }
    }

    fn begin_list(&mut self) {
        self.groups.begin_list();
        self.serving.begin_list();
    }

    fn end_list(&mut self, uids: &mut BTreeSet<String>) -> Vec<WatchEvent> {
        let mut events = self.groups.end_list(uids);
        events.extend(self.serving.end_list());
        events
    }
}

/// Whether a list was forbidden.
pub(crate) fn is_out_of_reach(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 403)
}

/// Whether another controller created the object, so that its marks are only a copy of what a user
/// wrote into a template.
///
/// The agent's own objects have no controller. Pods of serving jobs have one, which copies the
/// template that the agent marked.
pub(crate) fn is_others(access: &Access, object: &Value) -> bool {
    access.job_kind.is_some() && is_serving_part(object) != controller_of(object).is_some()
}

/// The state of one kind's watch.
struct KindWatch {
    access: Access,
    seal: Seal,
    pods: CombinedPods,
    /// The uids of reported copies.
    copies: BTreeSet<String>,
    foreign: Foreign,
    troubles: TroubleWatch,
}

impl KindWatch {
    fn new(access: Access, seal: Seal, foreign: Foreign, troubles: TroubleWatch) -> Self {
        let pods = CombinedPods::new(access.clone(), seal.clone());
        Self { access, seal, pods, copies: BTreeSet::new(), foreign, troubles }
    }

    fn applied(&mut self, object: &DynamicObject) -> Option<WatchEvent> {
        let (now, uid) = (value(object), object.metadata.uid.clone().unwrap_or_default());
        if is_others(&self.access, &now) {
            return None;
        }
        if is_serving_part(&now) {
            return self.pods.serving.apply(&now);
        }
        if let Some(read) = self.access.read(&now, &self.seal) {
            self.copies.insert(uid);
            if let Some(kind) = self.access.job_kind {
                self.troubles.applied(kind, read.meta(), &now);
            }
            if is_member(&self.access, &now) {
                return self.pods.groups.apply(now);
            }
            return Some(WatchEvent::Applied(Box::new(read)));
        }
        let ObjectMeta { name, namespace, .. } = object.metadata.clone();
        let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
        self.foreign.note(&self.access.gvk, &namespace, &name);
        // The ledger knows only copies that this watch has reported.
        let target = Target { gvk: self.access.gvk.clone(), namespace, name, uid };
        if !self.copies.remove(&target.uid) {
            return None;
        }
        let kind = self.access.kind();
        let group = self.pods.groups.disown(&target.uid);
        Some(group.unwrap_or(WatchEvent::Disowned { kind, target }))
    }

    fn deleted(&mut self, object: &DynamicObject) -> Option<WatchEvent> {
        self.copies.remove(object.metadata.uid.as_deref().unwrap_or_default());
        // The last state may lack the marks, because another client or an adopting controller
        // removed them.
        let mut last = value(object);
        if let Some(labels) =
            last.pointer_mut("/metadata/labels").and_then(|labels| labels.as_object_mut())
        {
            labels.insert(names::HUB_ID.to_owned(), self.seal.hub_id().into());
        }
        if is_serving_part(&last) {
            return self.pods.serving.remove(&last);
        }
        let object = self.access.read(&last, &self.seal)?;
        if let Some(kind) = self.access.job_kind {
            self.troubles.deleted(kind, object.meta());
        }
        if is_member(&self.access, &last) {
            return self.pods.groups.remove(&last);
        }
        let meta = object.meta();
        Some(WatchEvent::Deleted {
            kind: object.kind(),
            workload_uid: meta.workload_uid.clone(),
            target: meta.target.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::tests::{seal, signed};

    fn object(json: &Value) -> DynamicObject {
        serde_json::from_value(json.clone()).unwrap()
    }

    /// A pod with valid marks and this controller.
    fn pod(controller: Option<(&str, &str)>, annotations: &Value) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "ns", "name": "p", "uid": "p1", "resourceVersion": "1",
                "labels": {"switchyard.dev/hub-id": "hub"},
                "annotations": {"switchyard.dev/workload-uid": "w", "switchyard.dev/attempt": "3"},
            },
            "status": {"phase": "Running"},
        });
        if let Some((version, kind)) = controller {
            let owner = json!({"apiVersion": version, "kind": kind, "name": "m", "uid": "m1", "controller": true});
            pod["metadata"]["ownerReferences"] = json!([owner]);
        }
        for (key, value) in annotations.as_object().into_iter().flatten() {
            pod["metadata"]["annotations"][key] = value.clone();
        }
        pod
    }

    #[test]
    fn pods_of_other_controllers_are_ignored() {
        let kind = switchyard_jobs::kind_for("", "Pod").unwrap();
        let access = Access::job(kind);
        let serves = json!({"kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
        for (case, controller, annotations, event) in [
            ("a pod that the agent made", None, json!({}), "Applied"),
            ("a pod of a Job", Some(("batch/v1", "Job")), json!({}), "nothing"),
            ("a pod of a ReplicaSet", Some(("apps/v1", "ReplicaSet")), json!({}), "nothing"),
            (
                "a pod of a StatefulSet that serves",
                Some(("apps/v1", "StatefulSet")),
                serves.clone(),
                "PodStatuses",
            ),
            (
                "a pod of a ReplicaSet that says it serves",
                Some(("apps/v1", "ReplicaSet")),
                serves,
                "nothing",
            ),
        ] {
            let mut watch =
                KindWatch::new(access.clone(), seal(), Foreign::default(), TroubleWatch::default());
            let reported =
                match watch.applied(&object(&signed(pod(controller, &annotations), &access.gvk))) {
                    None => "nothing",
                    Some(WatchEvent::Applied(_)) => "Applied",
                    Some(WatchEvent::PodStatuses { .. }) => "PodStatuses",
                    Some(_) => "something else",
                };
            assert_eq!(reported, event, "{case}");
        }
    }

    #[test]
    fn objects_without_proof_are_counted_and_ignored() {
        let access = Access::job(switchyard_jobs::kind_for("", "Pod").unwrap());
        let mut watch =
            KindWatch::new(access.clone(), seal(), Foreign::default(), TroubleWatch::default());
        let ours = signed(pod(None, &json!({})), &access.gvk);
        let mut forged = ours.clone();
        forged["metadata"]["uid"] = json!("p2");
        forged["metadata"]["namespace"] = json!("another");
        let mut stripped = ours.clone();
        stripped["metadata"]["annotations"].as_object_mut().unwrap().remove(names::PROOF);
        for (case, pod, event, counted) in [
            ("a copy replayed in another namespace", &forged, "nothing", 1),
            ("a copy", &ours, "Applied", 1),
            ("a copy whose proof was taken off", &stripped, "Disowned", 2),
            ("the same, once more", &stripped, "nothing", 3),
        ] {
            let reported = match watch.applied(&object(pod)) {
                None => "nothing",
                Some(WatchEvent::Applied(_)) => "Applied",
                Some(WatchEvent::Disowned { .. }) => "Disowned",
                Some(_) => "something else",
            };
            assert_eq!((reported, watch.foreign.counted()), (event, counted), "{case}");
        }
        assert!(watch.deleted(&object(&forged)).is_none(), "it was never there");
    }
}
