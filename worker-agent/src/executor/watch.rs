//! What happens to the objects that carry the hub's id, as the ledger is told.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use switchyard_api::names;
use switchyard_jobs::meta::controller_of;
use switchyard_jobs::serving::is_part;
use switchyard_platform::optional_crd::{CrdBackoff, is_unknown_kind};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::act::{Access, value};
use super::group::{Groups, is_member};
use super::parts::Parts;
use super::reached;
use crate::foreign::Foreign;
use crate::proof::Seal;
use crate::trouble::TroubleWatch;
use switchyard_ledger::{Seen, Target};

/// Observations that may wait for the ledger.
const BUFFER: usize = 1024;

pub(super) fn workload_resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "Workload");
    ApiResource::from_gvk_with_plural(&gvk, "workloads")
}

pub(super) fn workload_gvk() -> Arc<str> {
    "kueue.x-k8s.io/v1beta2, Kind=Workload".into()
}

/// Watches Workloads and all kinds of jobs. The tasks end with the returned set.
pub(crate) fn watch(
    client: &Client,
    seal: &Seal,
    foreign: &Foreign,
    frameworks: &[String],
) -> (mpsc::Receiver<Seen>, JoinSet<()>) {
    let (sender, receiver) = mpsc::channel(BUFFER);
    let mut tasks = JoinSet::new();
    let mut synced = Vec::new();
    let troubles = TroubleWatch::default();
    tasks.spawn(troubles.clone().run(client.clone(), seal.hub_id().to_owned(), sender.clone()));
    for (access, wanted) in reached(frameworks) {
        let (done, listed) = tokio::sync::oneshot::channel();
        synced.push(listed);
        let of_kind = OfKind::new(access, seal.clone(), foreign.clone(), troubles.clone());
        tasks.spawn(one_kind(client.clone(), of_kind, wanted, sender.clone(), done));
    }
    tasks.spawn(async move {
        for listed in synced {
            // A watch that ends without its list ends the executor, too.
            if listed.await.is_err() {
                return;
            }
        }
        let _ = sender.send(Seen::Synced).await;
    });
    (receiver, tasks)
}

/// Watches one kind. One that the cluster does not know is waited for if it is `wanted`; if it is not, that it is unknown
/// or out of our reach shows that there are none.
async fn one_kind(
    client: Client,
    mut of_kind: OfKind,
    wanted: bool,
    sender: mpsc::Sender<Seen>,
    done: tokio::sync::oneshot::Sender<()>,
) {
    let access = of_kind.access.clone();
    let api: Api<DynamicObject> = Api::all_with(client, &access.resource);
    let config =
        watcher::Config::default().labels(&format!("{}={}", names::HUB_ID, of_kind.seal.hub_id()));
    let mut events = watcher(api, config).backoff(CrdBackoff::default()).boxed();
    let kind = access.kind();
    let mut first = Some(done);
    let mut listing = BTreeSet::new();
    let mut ended = false;
    while !ended && let Some(event) = events.next().await {
        let seen = match event {
            Ok(watcher::Event::Init) => {
                listing.clear();
                of_kind.pods.begin_list();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                listing.extend(object.metadata.uid.clone());
                of_kind.applied(&object)
            }
            Ok(watcher::Event::InitDone) => {
                let mut uids = std::mem::take(&mut listing);
                of_kind.copies.retain(|uid| uids.contains(uid));
                of_kind.troubles.listed(&access.gvk, &uids);
                for seen in of_kind.pods.end_list(&mut uids) {
                    if sender.send(seen).await.is_err() {
                        return;
                    }
                }
                Some(Seen::Listed { kind, gvk: access.gvk.clone(), uids })
            }
            Ok(watcher::Event::Apply(object)) => of_kind.applied(&object),
            Ok(watcher::Event::Delete(object)) => of_kind.deleted(&object),
            // A kind that was taken out of the configuration may have left jobs here, but only where they were ours to see:
            // the rights that `deploy/` gives are for all kinds, on or off. Whoever takes those away as well takes the jobs
            // out of our hands.
            Err(error) if !wanted && (is_unknown_kind(&error) || is_out_of_reach(&error)) => {
                ended = true;
                Some(Seen::Listed { kind, gvk: access.gvk.clone(), uids: BTreeSet::new() })
            }
            // There are none as long as the cluster does not know the kind.
            Err(error) if access.job_kind.is_some() && is_unknown_kind(&error) => first
                .is_some()
                .then(|| Seen::Listed { kind, gvk: access.gvk.clone(), uids: BTreeSet::new() }),
            Err(error) => {
                tracing::warn!(kind = &*access.gvk, %error, "watch failed, trying again");
                None
            }
        };
        let listed = matches!(seen, Some(Seen::Listed { .. }));
        if let Some(seen) = seen
            && sender.send(seen).await.is_err()
        {
            return;
        }
        if listed && let Some(done) = first.take() {
            let _ = done.send(());
        }
    }
}

/// Objects that are told of together with others: pods of groups, and of what serves.
struct Pods {
    groups: Groups,
    parts: Parts,
}

impl Pods {
    fn new(access: Access, seal: Seal) -> Self {
        let parts = Parts::new(access.gvk.clone(), seal.clone());
        Self { groups: Groups::new(access, seal), parts }
    }

    fn begin_list(&mut self) {
        self.groups.begin_list();
        self.parts.begin_list();
    }

    fn end_list(&mut self, uids: &mut BTreeSet<String>) -> Vec<Seen> {
        let mut seen = self.groups.end_list(uids);
        seen.extend(self.parts.end_list());
        seen
    }
}

/// Whether a list was refused for want of rights.
pub(crate) fn is_out_of_reach(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 403)
}

/// Whether an object was made by a controller, of something that is no job of the hub's: its marks are a copy of what a user
/// wrote into a template. What an agent makes has no controller; what serves has pods that a controller makes of the template
/// that the agent marked.
pub(crate) fn is_others(access: &Access, object: &Value) -> bool {
    access.job_kind.is_some() && is_part(object) != controller_of(object).is_some()
}

/// The state of one kind's watch.
struct OfKind {
    access: Access,
    seal: Seal,
    pods: Pods,
    /// Uids of the copies that were told of.
    copies: BTreeSet<String>,
    foreign: Foreign,
    troubles: TroubleWatch,
}

impl OfKind {
    fn new(access: Access, seal: Seal, foreign: Foreign, troubles: TroubleWatch) -> Self {
        let pods = Pods::new(access.clone(), seal.clone());
        Self { access, seal, pods, copies: BTreeSet::new(), foreign, troubles }
    }

    fn applied(&mut self, object: &DynamicObject) -> Option<Seen> {
        let (now, uid) = (value(object), object.metadata.uid.clone().unwrap_or_default());
        if is_others(&self.access, &now) {
            return None;
        }
        if is_part(&now) {
            return self.pods.parts.apply(&now);
        }
        if let Some(read) = self.access.read(&now, &self.seal) {
            self.copies.insert(uid);
            if let Some(kind) = self.access.job_kind {
                self.troubles.applied(kind, read.meta(), &now);
            }
            if is_member(&self.access, &now) {
                return self.pods.groups.apply(now);
            }
            return Some(Seen::Applied(Box::new(read)));
        }
        let ObjectMeta { name, namespace, .. } = object.metadata.clone();
        let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
        self.foreign.note(&self.access.gvk, &namespace, &name);
        // The ledger knows only copies that this watch has reported.
        let target = Target { gvk: self.access.gvk.clone(), namespace, name, uid };
        self.copies
            .remove(&target.uid)
            .then_some(Seen::Disowned { kind: self.access.kind(), target })
    }

    fn deleted(&mut self, object: &DynamicObject) -> Option<Seen> {
        self.copies.remove(object.metadata.uid.as_deref().unwrap_or_default());
        // The last state may lack the marks by which it was ours: then whoever took them off took it from us. So did a
        // controller that adopted it.
        let mut last = value(object);
        if let Some(labels) =
            last.pointer_mut("/metadata/labels").and_then(|labels| labels.as_object_mut())
        {
            labels.insert(names::HUB_ID.to_owned(), self.seal.hub_id().into());
        }
        if is_part(&last) {
            return self.pods.parts.remove(&last);
        }
        let object = self.access.read(&last, &self.seal)?;
        if let Some(kind) = self.access.job_kind {
            self.troubles.deleted(kind, object.meta());
        }
        if is_member(&self.access, &last) {
            return self.pods.groups.remove(&last);
        }
        let meta = object.meta();
        Some(Seen::Deleted {
            kind: object.kind(),
            workload_uid: meta.workload_uid.clone(),
            target: meta.target.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proof::tests::{seal, signed};

    fn object(json: &Value) -> DynamicObject {
        serde_json::from_value(json.clone()).unwrap()
    }

    /// A pod with marks in range, and this controller.
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
    fn pods_of_other_controllers_are_not_the_hubs() {
        let kind = switchyard_jobs::kind_for("", "Pod").unwrap();
        let access = Access::job(kind);
        let serves = json!({"kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
        for (case, controller, annotations, seen) in [
            ("a pod that the agent made", None, json!({}), "Applied"),
            ("a pod of a Job", Some(("batch/v1", "Job")), json!({}), "nothing"),
            ("a pod of a ReplicaSet", Some(("apps/v1", "ReplicaSet")), json!({}), "nothing"),
            (
                "a pod of a StatefulSet that serves",
                Some(("apps/v1", "StatefulSet")),
                serves.clone(),
                "Parts",
            ),
            (
                "a pod of a ReplicaSet that says it serves",
                Some(("apps/v1", "ReplicaSet")),
                serves,
                "nothing",
            ),
        ] {
            let mut of_kind =
                OfKind::new(access.clone(), seal(), Foreign::default(), TroubleWatch::default());
            let told = match of_kind
                .applied(&object(&signed(pod(controller, &annotations), &access.gvk)))
            {
                None => "nothing",
                Some(Seen::Applied(_)) => "Applied",
                Some(Seen::Parts { .. }) => "Parts",
                Some(_) => "something else",
            };
            assert_eq!(told, seen, "{case}");
        }
    }

    #[test]
    fn objects_without_a_proof_are_counted_and_not_told_of() {
        let access = Access::job(switchyard_jobs::kind_for("", "Pod").unwrap());
        let mut of_kind =
            OfKind::new(access.clone(), seal(), Foreign::default(), TroubleWatch::default());
        let ours = signed(pod(None, &json!({})), &access.gvk);
        let mut forged = ours.clone();
        forged["metadata"]["uid"] = json!("p2");
        forged["metadata"]["namespace"] = json!("another");
        let mut stripped = ours.clone();
        stripped["metadata"]["annotations"].as_object_mut().unwrap().remove(names::PROOF);
        for (case, pod, seen, counted) in [
            ("a copy replayed in another namespace", &forged, "nothing", 1),
            ("a copy", &ours, "Applied", 1),
            ("a copy whose proof was taken off", &stripped, "Disowned", 2),
            ("the same, once more", &stripped, "nothing", 3),
        ] {
            let told = match of_kind.applied(&object(pod)) {
                None => "nothing",
                Some(Seen::Applied(_)) => "Applied",
                Some(Seen::Disowned { .. }) => "Disowned",
                Some(_) => "something else",
            };
            assert_eq!((told, of_kind.foreign.counted()), (seen, counted), "{case}");
        }
        assert!(of_kind.deleted(&object(&forged)).is_none(), "it was never there");
    }
}
