//! Creates objects by dry run: the API server calls the webhooks and stores nothing.

use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use switchyard_api::names;
use switchyard_api::v1beta2::{LocalQueue, ResourceFlavor};

/// Name of the objects.
const NAME: &str = "switchyard-check";

#[derive(Clone, Debug, Default)]
pub(super) struct DryRun {
    /// Why a ResourceFlavor was denied; `None` if it was accepted.
    pub(super) flavor: Option<Denial>,
    /// Whether a Job with a queue came back suspended; `None` without a queue to try.
    pub(super) job: Option<Result<bool, Denial>>,
}

/// Why an object was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// The API server could not call a webhook.
    Webhook(String),
    /// The caller may not create it.
    Forbidden,
    Other(String),
}

/// Creates a ResourceFlavor, and a Job for the first of the queues, by dry run.
pub(super) async fn run(client: &Client, queues: &[LocalQueue]) -> DryRun {
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
                    .map_err(|it| denial(&it)),
            )
        }
        None => None,
    };
    DryRun { flavor: flavor.err().map(|error| denial(&error)), job }
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

fn denial(error: &kube::Error) -> Denial {
    match error {
        // Webhooks answer 403 too; only RBAC's message contains "cannot".
        kube::Error::Api(status) if status.code == 403 && status.message.contains("cannot ") => {
            Denial::Forbidden
        }
        kube::Error::Api(status) if status.message.contains("failed calling webhook") => {
            Denial::Webhook(status.message.clone())
        }
        error => Denial::Other(crate::cause(error)),
    }
}
