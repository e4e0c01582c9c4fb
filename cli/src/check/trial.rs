//! Objects that are created by dry run: the API server calls the webhooks for them, and stores nothing.

use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use switchyard_api::names;
use switchyard_api::v1beta2::{LocalQueue, ResourceFlavor};

/// The name of what is created.
const NAME: &str = "switchyard-check";

/// Why the API server refused.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    /// Of a ResourceFlavor; none if it was accepted.
    pub(super) flavor: Option<Refusal>,
    /// Of a Job with a queue: whether it came back suspended.
    pub(super) job: Option<Result<bool, Refusal>>,
}

/// Why an object was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The API server could not call a webhook.
    Webhook(String),
    /// The caller may not create it.
    Forbidden,
    /// Anything else.
    Other(String),
}

/// Creates a ResourceFlavor, and a Job for the first of the queues, by dry run.
pub(super) async fn run(client: &Client, queues: &[LocalQueue]) -> Trial {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let flavors: Api<ResourceFlavor> = Api::all(client.clone());
    let flavor = flavors.create(&params, &ResourceFlavor::new(NAME, Default::default())).await;
    let queue = queues
        .iter()
        .find_map(|it| it.metadata.namespace.as_deref().zip(it.metadata.name.as_deref()));
    let job = match queue {
        Some((namespace, queue)) => {
            let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
            let created = jobs.create(&params, &job(queue)).await;
            Some(
                created
                    .map(|job| job.spec.and_then(|spec| spec.suspend) == Some(true))
                    .map_err(|it| refusal(&it)),
            )
        }
        None => None,
    };
    Trial { flavor: flavor.err().map(|error| refusal(&error)), job }
}

fn job(queue: &str) -> Job {
    let object = json!({
        "metadata": {"generateName": format!("{NAME}-"), "labels": {names::QUEUE_NAME: queue}},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "check", "image": "none", "resources": {"requests": {"cpu": "1m"}}}],
        }}},
    });
    serde_json::from_value(object).unwrap_or_default()
}

fn refusal(error: &kube::Error) -> Refusal {
    match error {
        // Admission answers 403 as well: only RBAC says "cannot".
        kube::Error::Api(status) if status.is_forbidden() && status.message.contains("cannot ") => {
            Refusal::Forbidden
        }
        kube::Error::Api(status) if status.message.contains("failed calling webhook") => {
            Refusal::Webhook(status.message.clone())
        }
        error => Refusal::Other(crate::cause(error)),
    }
}
