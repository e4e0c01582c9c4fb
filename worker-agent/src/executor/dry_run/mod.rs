//! Checks with a server-side dry run whether the cluster accepts a job's pods, before the agent
//! accepts the job.
//!
//! Namespace, ServiceAccount, classes, LimitRange, ResourceQuota, Pod Security, policies and
//! webhooks take part, and nothing is written. The agent uses its own account, because it cannot
//! use those of the cluster's controllers. Equal jobs share one dry run, whose answer is cached for
//! minutes.

mod answer;
mod answer_cache;
mod pods;
mod references;

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use switchyard_api::names;
use switchyard_ledger::Rejection;

use answer::Answer;
use answer_cache::{AnswerCache, CachedAnswer};
use pods::{TrialPod, trial_pods};
use references::Reference;

use crate::clock::Clock;
use crate::dry_run_counts::DryRunCounts;

/// The deadline of one dry run.
const DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of all dry runs of a job. After it, the agent accepts the job untried.
const ALL: Duration = Duration::from_secs(10);

/// Runs dry runs.
pub(super) struct DryRuns {
    client: Client,
    clock: Clock,
    counts: DryRunCounts,
    answers: AnswerCache,
}

impl DryRuns {
    pub(super) fn new(client: Client, clock: Clock, counts: DryRunCounts) -> Self {
        Self { client, clock, counts, answers: AnswerCache::default() }
    }

    /// Why the cluster would refuse the job's pods; none if that is unknown.
    pub(super) async fn rejection(&self, job: &[u8], namespace: &str) -> Option<Rejection> {
        let all = async {
            for trial in trial_pods(job, namespace) {
                if let Answer::Refused { trouble, .. } = self.answer(&trial).await {
                    return Some(trouble);
                }
            }
            None
        };
        tokio::time::timeout(ALL, all).await.unwrap_or_default()
    }

    async fn answer(&self, trial: &TrialPod) -> Answer {
        let slot = self.answers.slot(trial, self.clock.now());
        let mut remembered = slot.lock().await;
        if let Some(answer) =
            remembered.as_ref().and_then(|it| it.answer_for(trial, self.clock.now()))
        {
            return answer.clone();
        }
        let mut answer = self.run(trial).await;
        if answer == Answer::Accepted
            && let Some(trouble) = self.missing(trial).await
        {
            answer = Answer::Refused { trouble, own: false };
        }
        self.counts.count(answer.result());
        if let Answer::Unknown(why) = &answer {
            tracing::info!(
                namespace = trial.namespace,
                why,
                "a dry run of a job's pod shows nothing: the job is taken untried"
            );
        }
        *remembered = Some(CachedAnswer::new(trial, answer.clone(), self.clock.now()));
        answer
    }

    async fn run(&self, trial: &TrialPod) -> Answer {
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

    /// The first object that a pod refers to, that the account may read, and that does not exist.
    async fn missing(&self, trial: &TrialPod) -> Option<Rejection> {
        for reference in &trial.references {
            if self.is_missing(&trial.namespace, reference).await {
                let Reference { kind, name, .. } = reference;
                let message =
                    format!("this cluster would not start its pods: {kind} \"{name}\" not found");
                return Some(Rejection::refused(&format!("{kind}NotFound"), message));
            }
        }
        None
    }

    /// A forbidden read of a Secret may raise an alarm, so the agent asks for the right first.
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

    /// Whether the account has this right; none if unknown.
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

    /// Logs if the account may not create pods everywhere, because some jobs are then accepted
    /// untried.
    pub(super) async fn log_missing_rights(&self) {
        if self.may(attributes("create", "pods", None)).await == Some(false) {
            tracing::info!(
                "this account may not create pods in every namespace: where it may not, jobs are taken without a dry run of \
                 their pods"
            );
        }
    }
}

/// A right to one object of the core group, or to a whole resource.
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
