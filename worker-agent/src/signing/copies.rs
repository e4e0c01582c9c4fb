//! Finds the marked objects of a cluster without a proof, and signs them.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_jobs::is_serving_part;

use super::MarkedObjects;
use crate::executor::{Access, handled_access, is_others};
use crate::proof::{Keys, Seal, text};

/// Objects per list request.
const PAGE: u32 = 500;
/// The most concurrent writes.
const AT_ONCE: usize = 16;
/// The deadline of a request.
const DEADLINE: Duration = Duration::from_secs(30);
/// The most objects that a message names.
const EXAMPLES: usize = 5;

/// The copies of one hub on a cluster.
pub struct Copies {
    client: Client,
    seal: Seal,
    frameworks: Vec<String>,
}

/// Objects with marks and without a proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unproved {
    pub count: usize,
    /// Some of them, as KIND NAMESPACE/NAME.
    pub examples: Vec<String>,
}

impl Unproved {
    fn note(&mut self, access: &Access, object: &Value) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            let (namespace, name) =
                (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
            self.examples.push(format!("{} {namespace}/{name}", access.resource.kind));
        }
    }
}

impl fmt::Display for Unproved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects have this hub's marks and no proof", self.count)?;
        if !self.examples.is_empty() {
            write!(f, ": {}", self.examples.join(", "))?;
        }
        match self.count.checked_sub(EXAMPLES) {
            Some(more) if more > 0 && !self.examples.is_empty() => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}

impl Copies {
    /// The copies of this hub, of Workloads and of the kinds of these frameworks.
    pub fn new(client: Client, hub_id: &str, keys: Keys, frameworks: &[String]) -> Self {
        Self { client, seal: Seal::new(hub_id, keys), frameworks: frameworks.to_vec() }
    }

    /// Visits the unproved objects of all kinds, and signs them if `signing`.
    async fn walk(&self, signing: bool) -> Result<Unproved, String> {
        let mut all = Unproved::default();
        for (access, wanted) in handled_access(&self.frameworks) {
            self.walk_kind(&access, wanted, signing, &mut all).await?;
        }
        Ok(all)
    }

    async fn walk_kind(
        &self,
        access: &Access,
        wanted: bool,
        signing: bool,
        all: &mut Unproved,
    ) -> Result<(), String> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &access.resource);
        let marked = format!("{}={}", names::HUB_ID, self.seal.hub_id());
        let mut page = ListParams::default().labels(&marked).limit(PAGE);
        loop {
            let list = match within(api.list_metadata(&page)).await {
                Ok(list) => list,
                // The cluster does not know the kind, or the agent never had access to it.
                Err(Refused::Api(404, _)) => return Ok(()),
                Err(Refused::Api(403, _)) if !wanted => return Ok(()),
                Err(refused) => return Err(format!("listing {}: {refused}", access.gvk)),
            };
            let objects = list.items.iter().filter_map(|it| serde_json::to_value(it).ok());
            let unproved: Vec<Value> =
                objects.filter(|object| self.is_unproved(access, object)).collect();
            unproved.iter().for_each(|object| all.note(access, object));
            if signing {
                let writes = stream::iter(unproved).map(|object| self.write(access, object));
                writes.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// Whether an object has marks and no proof. Pods that a controller created from a template
    /// need none.
    fn is_unproved(&self, access: &Access, object: &Value) -> bool {
        !is_others(access, object)
            && !is_serving_part(object)
            && self.seal.is_unproved(object, &access.gvk)
    }

    async fn write(&self, access: &Access, object: Value) -> Result<(), String> {
        let (namespace, name) =
            (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        let proof = self.seal.proof_of(&object, &access.gvk);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &access.resource);
        let patch = json!({"metadata": {"uid": object.pointer("/metadata/uid"), "annotations": {names::PROOF: proof}}});
        let params = PatchParams {
            field_manager: Some(names::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match within(api.patch_metadata(name, &params, &Patch::Merge(patch))).await {
            // The object was deleted meanwhile.
            Ok(_) | Err(Refused::Api(404, _)) => Ok(()),
            Err(refused) => {
                Err(format!("signing {} {namespace}/{name}: {refused}", access.resource.kind))
            }
        }
    }
}

impl MarkedObjects for Copies {
    fn scan(&self) -> BoxFuture<'_, Result<Unproved, String>> {
        self.walk(false).boxed()
    }

    fn sign(&self) -> BoxFuture<'_, Result<(), String>> {
        async {
            let signed = self.walk(true).await?;
            if signed.count > 0 {
                tracing::warn!(count = signed.count, examples = ?signed.examples, "signed as copies, since operators trust them");
            }
            Ok(())
        }
        .boxed()
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{1} ({0})")]
    Api(u16, String),
    #[error("{0}")]
    Other(kube::Error),
    #[error("no answer within {DEADLINE:?}")]
    Late,
}

async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Refused> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(Refused::Api(status.code, status.message.clone())),
        Ok(Err(error)) => Err(Refused::Other(error)),
        Err(_) => Err(Refused::Late),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;

    use super::*;
    use crate::proof::tests::key;

    /// An API server with these Jobs in namespace `ns`, and these status codes for patches and for
    /// lists of Workloads.
    fn cluster(jobs: &[Value], patching: u16, listing: u16) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let jobs = Arc::new(Mutex::new(jobs.to_vec()));
        let there = jobs.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let jobs = there.clone();
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let body = request.into_body().collect_bytes().await.unwrap_or_default();
                let (code, answer) = if method == Method::PATCH {
                    let patch: Value = serde_json::from_slice(&body).unwrap();
                    let mut jobs = jobs.lock().unwrap();
                    let job = jobs
                        .iter_mut()
                        .find(|job| job["metadata"]["uid"] == patch["metadata"]["uid"])
                        .unwrap();
                    if patching == 200 {
                        job["metadata"]["annotations"][names::PROOF] =
                            patch["metadata"]["annotations"][names::PROOF].clone();
                    }
                    (patching, job.clone())
                } else {
                    let items = if path.ends_with("/jobs") {
                        jobs.lock().unwrap().clone()
                    } else {
                        Vec::new()
                    };
                    let code = if path.ends_with("/workloads") { listing } else { 200 };
                    let kind = "PartialObjectMetadataList";
                    (
                        code,
                        json!({"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items}),
                    )
                };
                let answer = match code {
                    200 => answer,
                    code => {
                        json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "No", "code": code})
                    }
                };
                let body = Body::from(answer.to_string().into_bytes());
                let reply =
                    Response::builder().status(code).header("content-type", "application/json");
                Ok::<_, Infallible>(reply.body(body).unwrap())
            }
        });
        (Client::new(service, "default"), jobs)
    }

    fn job(name: &str) -> Value {
        json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {
                "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "labels": {"switchyard.dev/hub-id": "hub"},
                "annotations": {"switchyard.dev/workload-uid": "u", "switchyard.dev/attempt": "1"},
            },
        })
    }

    fn copies(client: Client) -> Copies {
        Copies::new(client, "hub", Keys::new(&key(), true), &["batch/job".to_owned()])
    }

    #[tokio::test]
    async fn signing_proves_all_or_names_obstacle() {
        let mut made_by_controller = job("of-a-controller");
        let owner = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c", "controller": true});
        made_by_controller["metadata"]["ownerReferences"] = json!([owner]);
        let jobs = [job("a"), job("b"), made_by_controller];
        let both = "2 objects have this hub's marks and no proof: Job ns/a, Job ns/b";
        for (case, patching, listing, look, sign, left) in [
            ("it may", 200, 200, Ok(both), Ok(()), 0),
            ("the jobs are gone", 404, 200, Ok(both), Ok(()), 2),
            ("the account may not", 403, 200, Ok(both), Err("signing Job ns/"), 2),
            ("the objects are refused", 422, 200, Ok(both), Err("signing Job ns/"), 2),
            ("others have the names now", 409, 200, Ok(both), Err("signing Job ns/"), 2),
            (
                "it may not look",
                200,
                403,
                Err("listing kueue.x-k8s.io/"),
                Err("listing kueue.x-k8s.io/"),
                2,
            ),
            (
                "no answer for now",
                200,
                503,
                Err("listing kueue.x-k8s.io/"),
                Err("listing kueue.x-k8s.io/"),
                2,
            ),
            ("the cluster has no Workloads", 200, 404, Ok(both), Ok(()), 0),
        ] {
            let (client, there) = cluster(&jobs, patching, listing);
            let copies = copies(client);
            match (copies.scan().await, look) {
                (Ok(found), Ok(text)) => assert_eq!(found.to_string(), text, "{case}"),
                (Err(error), Err(text)) => assert!(error.starts_with(text), "{case}: {error}"),
                (found, _) => panic!("{case}: {found:?}"),
            }
            match (copies.sign().await, sign) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(text)) => assert!(error.starts_with(text), "{case}: {error}"),
                (signed, _) => panic!("{case}: {signed:?}"),
            }
            let there = there.lock().unwrap();
            let unproved = |job: &&Value| copies.seal.is_unproved(job, "batch/v1, Kind=Job");
            // An object with a controller is foreign, whatever its marks.
            assert_eq!(there.iter().filter(unproved).count(), left + 1, "{case}");
        }
    }

    #[test]
    fn message_names_some_objects() {
        let examples: Vec<String> = (0..EXAMPLES).map(|index| format!("Job ns/{index}")).collect();
        let text = Unproved { count: 50, examples }.to_string();
        assert_eq!(
            text,
            "50 objects have this hub's marks and no proof: Job ns/0, Job ns/1, Job ns/2, Job ns/3, Job ns/4 and 45 more"
        );
    }
}
