//! Whether the cluster's API server would take a job's pods: one is created by a server-side dry run, before the agent says
//! that it can run the job.
//!
//! Namespace, ServiceAccount, classes, LimitRange, ResourceQuota, Pod Security, policies and webhooks answer there, and
//! nothing is written. The account is the agent's own: those of the cluster's controllers cannot be had. Equal jobs share
//! one dry run, and its answer is remembered for minutes.

mod answer;
mod known;
mod pods;
mod references;

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use switchyard_api::names;

use answer::Answer;
use known::{Known, Remembered};
use pods::{Trial, trials};
use references::Reference;

use crate::clock::Clock;
use switchyard_ledger::Trouble;

/// One dry run.
const DEADLINE: Duration = Duration::from_secs(5);
/// All of one job. A job whose cluster takes longer than that is taken untried.
const ALL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// Dry runs by what came of them: `accepted`, `refused` or `unknown`.
#[derive(Clone, Debug, Default)]
pub struct DryRunCounts(Family<Result, Counter>);

impl DryRunCounts {
    /// Has them shown.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "dry_runs",
            "Dry runs of pods before a job was taken, by result",
            self.0.clone(),
        );
    }

    fn count(&self, answer: &Answer) {
        let result = match answer {
            Answer::Accepted => "accepted",
            Answer::Refused { .. } => "refused",
            Answer::Unknown(_) | Answer::MayNot => "unknown",
        };
        self.0.get_or_create(&Result { result }).inc();
    }
}

/// Tries pods.
pub(super) struct DryRuns {
    client: Client,
    clock: Clock,
    counts: DryRunCounts,
    known: Known,
}

impl DryRuns {
    pub(super) fn new(client: Client, clock: Clock, counts: DryRunCounts) -> Self {
        Self { client, clock, counts, known: Known::default() }
    }

    /// Why this cluster would not run the pods of a job; none also where it cannot be told.
    pub(super) async fn trouble(&self, job: &[u8], namespace: &str) -> Option<Trouble> {
        let all = async {
            for trial in trials(job, namespace) {
                if let Answer::Refused { trouble, .. } = self.of(&trial).await {
                    return Some(trouble);
                }
            }
            None
        };
        tokio::time::timeout(ALL, all).await.unwrap_or_default()
    }

    async fn of(&self, trial: &Trial) -> Answer {
        let slot = self.known.slot(trial, self.clock.now());
        let mut remembered = slot.lock().await;
        if let Some(answer) = remembered.as_ref().and_then(|it| it.of(trial, self.clock.now())) {
            return answer.clone();
        }
        let mut answer = self.run(trial).await;
        if answer == Answer::Accepted
            && let Some(trouble) = self.missing(trial).await
        {
            answer = Answer::Refused { trouble, own: false };
        }
        self.counts.count(&answer);
        if let Answer::Unknown(why) = &answer {
            tracing::info!(
                namespace = trial.namespace,
                why,
                "a dry run of a job's pod shows nothing: the job is taken untried"
            );
        }
        *remembered = Some(Remembered::new(trial, answer.clone(), self.clock.now()));
        answer
    }

    async fn run(&self, trial: &Trial) -> Answer {
        let pods = ApiResource::erase::<Pod>(&());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &trial.namespace, &pods);
        let params =
            PostParams { dry_run: true, field_manager: Some(names::FIELD_MANAGER.to_owned()) };
        let pod: DynamicObject = match serde_json::from_value(trial.pod.clone()) {
            Ok(pod) => pod,
            Err(error) => return Answer::Unknown(error.to_string()),
        };
        match tokio::time::timeout(DEADLINE, api.create(&params, &pod)).await {
            Ok(Ok(_)) => Answer::Accepted,
            Ok(Err(kube::Error::Api(status))) => answer::read(&status, trial.fidelity),
            Ok(Err(error)) => Answer::Unknown(error.to_string()),
            Err(_) => Answer::Unknown(format!("no answer within {DEADLINE:?}")),
        }
    }

    /// The first reference of a pod that this account may read and that is not there.
    async fn missing(&self, trial: &Trial) -> Option<Trouble> {
        for reference in &trial.references {
            if self.is_missing(&trial.namespace, reference).await {
                let Reference { kind, name, .. } = reference;
                let message =
                    format!("this cluster would not start its pods: {kind} \"{name}\" not found");
                return Some(Trouble::refused(&format!("{kind}NotFound"), message));
            }
        }
        None
    }

    /// A read that is forbidden would be an alarm to whoever watches over Secrets: the right is asked for first.
    async fn is_missing(&self, namespace: &str, reference: &Reference) -> bool {
        let get = attributes("get", reference.plural, Some((namespace, &reference.name)));
        if self.may(get).await != Some(true) {
            return false;
        }
        let resource = ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: reference.kind.to_owned(),
            plural: reference.plural.to_owned(),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let found = tokio::time::timeout(DEADLINE, api.get_metadata_opt(&reference.name)).await;
        matches!(found, Ok(Ok(None)))
    }

    /// Whether this account may do that; none if it is not known.
    async fn may(&self, attributes: ResourceAttributes) -> Option<bool> {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..Default::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer =
            tokio::time::timeout(DEADLINE, reviews.create(&PostParams::default(), &review))
                .await
                .ok()?;
        match answer {
            Ok(review) => Some(review.status?.allowed),
            Err(error) => {
                tracing::info!(%error, "it is not known what this account may do");
                None
            }
        }
    }

    /// Says in the log if this account may not create pods everywhere, and jobs are thus taken untried.
    pub(super) async fn say_rights(&self) {
        if self.may(attributes("create", "pods", None)).await == Some(false) {
            tracing::info!(
                "this account may not create pods in every namespace: where it may not, jobs are taken without a dry run of \
                 their pods"
            );
        }
    }
}

/// A right to one object of the core group, or to all of a resource.
fn attributes(verb: &str, resource: &str, object: Option<(&str, &str)>) -> ResourceAttributes {
    let (namespace, name) = object.unzip();
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        ..ResourceAttributes::default()
    }
}
