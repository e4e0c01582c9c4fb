//! Builds the two webhook configurations. Pure; [`super::registrar`] applies them.
//!
//! # Failure policies
//!
//! - Jobs on a single cluster: `Ignore`. A job that missed its webhook runs until the reconciler
//!   suspends it, a moment later or once Switchyard is back. So an outage keeps neither users from
//!   creating jobs nor operators and the garbage collector from changing them. With
//!   [`super::WebhookOptions::fail_closed`]: `Fail`, as in Kueue.
//! - Creation of jobs on a hub: `Fail`, as in Kueue. `managedBy` makes a job dispatchable and is
//!   immutable, so a job created without it would wait for ever.
//! - Pods, and kinds queued by their pods, if they have a queue or the managed label: `Fail`. A pod
//!   created without its gate cannot be held back.
//! - Kueue's own kinds: `Fail`. Administrators change them rarely, and a wrong quota costs more
//!   than a retry.
//!
//! # Exceptions
//!
//! The API server sends no review for:
//!
//! - Jobs in `kube-system` and in Switchyard's namespace: whatever Switchyard and the cluster need
//!   to run must be creatable without it.
//! - Jobs in namespaces that `managedJobsNamespaceSelector` excludes, as in Kueue.
//! - Jobs without a queue label, unless all jobs are managed or their namespace has a LocalQueue
//!   `default`.
//! - Switchyard's own writes, if it runs as a service account.

use std::collections::BTreeSet;

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations,
        ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use kube::api::ObjectMeta;
use switchyard_api::{names, v1beta2};
use switchyard_jobs::{JobKind, KindId, SuspendMode, kind_for};

use super::{Advertise, cluster_deletion, objects, operator_requests};
use crate::reconcilers::job::lookup::NAMESPACE_NAME;

/// How long the API server waits for an answer.
pub(super) const TIMEOUT_SECONDS: i32 = 10;
const KUBE_SYSTEM: &str = "kube-system";
/// With more namespaces, a condition that lists them costs more than the calls it saves.
const MAX_LISTED_NAMESPACES: usize = 200;

#[derive(Debug, Clone)]
pub(super) struct Inputs<'a> {
    /// Name of both configurations.
    pub(super) name: &'a str,
    pub(super) advertise: &'a Advertise,
    /// CA certificates for the API server to trust, as PEM.
    pub(super) ca_bundle: String,
    /// Switchyard's own namespace.
    pub(super) namespace: &'a str,
    /// `managedJobsNamespaceSelector`.
    pub(super) managed: LabelSelector,
    /// Switchyard's user name, if it is a service account.
    pub(super) service_account: Option<&'a str>,
    /// Job kinds that are enabled.
    pub(super) kinds: Vec<KindId>,
    /// Kueue's `manageJobsWithoutQueueName`.
    pub(super) without_queue_name: bool,
    /// Namespaces with a LocalQueue `default`.
    pub(super) default_queues: BTreeSet<String>,
    /// Deny jobs while no replica answers.
    pub(super) fail_closed: bool,
    /// Whether the annotation `kueue.x-k8s.io/queue-name` of a new job counts as its label.
    pub(super) queue_annotation: bool,
    /// Whether this is a hub.
    pub(super) dispatches: bool,
}

impl Inputs<'_> {
    /// The mutating configuration: jobs and Workloads.
    pub(super) fn mutating(&self) -> MutatingWebhookConfiguration {
        let webhook = |name: String, path: String, rule: RuleWithOperations| MutatingWebhook {
            name,
            admission_review_versions: vec!["v1".into()],
            client_config: self.client(&path),
            rules: Some(vec![rule]),
            side_effects: "None".into(),
            timeout_seconds: Some(TIMEOUT_SECONDS),
            failure_policy: Some("Fail".into()),
            match_conditions: self.conditions(None),
            reinvocation_policy: Some("Never".into()),
            ..MutatingWebhook::default()
        };
        let jobs = self.kinds.iter().map(|id| MutatingWebhook {
            failure_policy: Some(
                if self.dispatches { "Fail" } else { self.job_failure_policy(*id) }.into(),
            ),
            namespace_selector: Some(self.job_namespaces()),
            match_conditions: self.conditions(self.queue_condition(*id, false)),
            ..webhook(
                format!("m{}.kb.io", id.kind.to_lowercase()),
                super::job_path("mutate", *id),
                rule(id.group, id.version, &[id.plural], defaulting_operations(*id)),
            )
        });
        let workloads = webhook(
            "mworkload.kb.io".into(),
            objects::path("mutate", "workload"),
            rule(v1beta2::GROUP, v1beta2::VERSION, &["workloads"], &["CREATE"]),
        );
        MutatingWebhookConfiguration {
            metadata: self.metadata(),
            webhooks: Some(jobs.chain([workloads]).collect()),
        }
    }

    /// The validating configuration: jobs and Kueue's kinds.
    pub(super) fn validating(&self) -> ValidatingWebhookConfiguration {
        let webhook = |name: String, path: String, rule: RuleWithOperations| ValidatingWebhook {
            name,
            admission_review_versions: vec!["v1".into()],
            client_config: self.client(&path),
            rules: Some(vec![rule]),
            side_effects: "None".into(),
            timeout_seconds: Some(TIMEOUT_SECONDS),
            failure_policy: Some("Fail".into()),
            match_conditions: self.conditions(None),
            ..ValidatingWebhook::default()
        };
        let jobs = self.kinds.iter().map(|id| ValidatingWebhook {
            failure_policy: Some(self.job_failure_policy(*id).into()),
            namespace_selector: Some(self.job_namespaces()),
            match_conditions: self.conditions(self.queue_condition(*id, true)),
            ..webhook(
                format!("v{}.kb.io", id.kind.to_lowercase()),
                super::job_path("validate", *id),
                rule(id.group, id.version, &[id.plural], &["CREATE", "UPDATE"]),
            )
        });
        let objects = objects::KINDS.iter().map(|kind| {
            webhook(
                format!("v{}.kb.io", kind.singular),
                objects::path("validate", kind.singular),
                rule(v1beta2::GROUP, v1beta2::VERSION, kind.resources, &["CREATE", "UPDATE"]),
            )
        });
        let deletion = self.dispatches.then(|| ValidatingWebhook {
            // The webhook only warns.
            failure_policy: Some("Ignore".into()),
            ..webhook(
                format!("v{}.kb.io", cluster_deletion::SINGULAR),
                objects::path("validate", cluster_deletion::SINGULAR),
                rule(v1beta2::GROUP, v1beta2::VERSION, &["multikueueclusters"], &["DELETE"]),
            )
        });
        let requests = self.dispatches.then(|| ValidatingWebhook {
            // The webhook only writes the audit stream.
            failure_policy: Some("Ignore".into()),
            ..webhook(
                format!("a{}.kb.io", operator_requests::SINGULAR),
                objects::path("audit", operator_requests::SINGULAR),
                rule(
                    v1beta2::GROUP,
                    v1beta2::VERSION,
                    &["multikueueclusters"],
                    &["CREATE", "UPDATE"],
                ),
            )
        });
        let all = jobs.chain(objects).chain(deletion).chain(requests).collect();
        ValidatingWebhookConfiguration { metadata: self.metadata(), webhooks: Some(all) }
    }

    fn metadata(&self) -> ObjectMeta {
        // Labels belong to the installer: owning one too would make Helm's next upgrade a conflict.
        ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() }
    }

    fn job_failure_policy(&self, id: KindId) -> &'static str {
        // A pod created without its gate can never be held back.
        if self.fail_closed || suspend_mode(id) != SuspendMode::Field { "Fail" } else { "Ignore" }
    }

    fn client(&self, path: &str) -> WebhookClientConfig {
        let ca_bundle = Some(ByteString(self.ca_bundle.clone().into_bytes()));
        match self.advertise {
            Advertise::Url(url) => WebhookClientConfig {
                ca_bundle,
                url: Some(format!("{}{path}", url.trim_end_matches('/'))),
                service: None,
            },
            Advertise::Service { namespace, name, port } => WebhookClientConfig {
                ca_bundle,
                url: None,
                service: Some(ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(path.to_owned()),
                    port: Some(i32::from(*port)),
                }),
            },
        }
    }

    /// The managed namespaces, except those that must work without Switchyard.
    fn job_namespaces(&self) -> LabelSelector {
        let never = LabelSelectorRequirement {
            key: NAMESPACE_NAME.into(),
            operator: "NotIn".into(),
            values: Some(vec![KUBE_SYSTEM.into(), self.namespace.into()]),
        };
        let mut selector = self.managed.clone();
        let expressions = selector.match_expressions.get_or_insert_default();
        if !expressions.contains(&never) {
            expressions.push(never);
        }
        selector
    }

    fn conditions(&self, more: Option<MatchCondition>) -> Option<Vec<MatchCondition>> {
        let others = self.service_account.map(|name| MatchCondition {
            name: "not-ourselves".into(),
            expression: format!("request.userInfo.username != {}", cel_string(name)),
        });
        Some(others.into_iter().chain(more).collect::<Vec<_>>()).filter(|all| !all.is_empty())
    }

    /// The condition under which a job is reviewed; `None` if all are.
    fn queue_condition(&self, id: KindId, updates: bool) -> Option<MatchCondition> {
        if self.without_queue_name || self.default_queues.len() > MAX_LISTED_NAMESPACES {
            return None;
        }
        let has = |object: &str, map: &str, key: &str| {
            format!(
                "(has({object}.metadata.{map}) && {} in {object}.metadata.{map})",
                cel_string(key)
            )
        };
        let mut any = vec![has("object", "labels", names::QUEUE_NAME)];
        if suspend_mode(id) == SuspendMode::Gate {
            any.push(has("object", "labels", names::MANAGED));
            any.push(has("object", "annotations", names::POD_SUSPENDING_PARENT));
        }
        if self.queue_annotation && !updates {
            any.push(has("object", "annotations", names::QUEUE_NAME));
        }
        if updates {
            any.push(has("object", "labels", names::PREBUILT_WORKLOAD_NAME));
            any.push(has("object", "annotations", names::PREBUILT_WORKLOAD_NAME));
            any.push(format!(
                "(oldObject != null && {})",
                has("oldObject", "labels", names::QUEUE_NAME)
            ));
        }
        if !self.default_queues.is_empty() {
            let listed: Vec<String> =
                self.default_queues.iter().map(|name| cel_string(name)).collect();
            any.push(format!("request.namespace in [{}]", listed.join(", ")));
        }
        Some(MatchCondition { name: "concerns-a-queue".into(), expression: any.join(" || ") })
    }
}

fn suspend_mode(id: KindId) -> SuspendMode {
    kind_for(id.group, id.kind).map_or(SuspendMode::Field, JobKind::suspend_mode)
}

/// Operations on which a kind is defaulted. Kinds queued by their pods pass a new queue on to them.
fn defaulting_operations(id: KindId) -> &'static [&'static str] {
    if suspend_mode(id) == SuspendMode::Pods { &["CREATE", "UPDATE"] } else { &["CREATE"] }
}

fn rule(group: &str, version: &str, resources: &[&str], operations: &[&str]) -> RuleWithOperations {
    let list = |items: &[&str]| Some(items.iter().map(|item| (*item).to_owned()).collect());
    RuleWithOperations {
        api_groups: list(&[group]),
        api_versions: list(&[version]),
        resources: list(resources),
        operations: list(operations),
        scope: Some("*".into()),
    }
}

fn cel_string(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchyard_config::Configuration;
    use switchyard_jobs::KindProfile as _;

    use super::*;

    fn inputs(advertise: &Advertise) -> Inputs<'_> {
        Inputs {
            name: "switchyard",
            advertise,
            ca_bundle: "PEM".into(),
            namespace: "switchyard-system",
            managed: Configuration::default().managed_jobs_namespace_selector("switchyard-system"),
            service_account: Some("system:serviceaccount:switchyard-system:hub"),
            kinds: vec![switchyard_jobs::kinds()[0].id()],
            without_queue_name: false,
            default_queues: BTreeSet::new(),
            fail_closed: false,
            queue_annotation: false,
            dispatches: false,
        }
    }

    fn url() -> Advertise {
        Advertise::Url("https://127.0.0.1:9443/".into())
    }

    fn expressions(webhook: &MutatingWebhook) -> Vec<String> {
        webhook
            .match_conditions
            .iter()
            .flatten()
            .map(|condition| condition.expression.clone())
            .collect()
    }

    #[test]
    fn job_webhook_matches_labelled_jobs_and_may_fail() {
        let url = url();
        let webhooks = inputs(&url).mutating().webhooks.unwrap();
        let job = &webhooks[0];
        assert_eq!(
            (job.name.as_str(), job.failure_policy.as_deref()),
            ("mjob.kb.io", Some("Ignore"))
        );
        assert_eq!(
            job.client_config.url.as_deref(),
            Some("https://127.0.0.1:9443/mutate-batch-v1-job")
        );
        insta::assert_snapshot!(expressions(job).join("\n"), @r"
        request.userInfo.username != 'system:serviceaccount:switchyard-system:hub'
        (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels)
        ");
        let selector = job.namespace_selector.as_ref().unwrap().match_expressions.as_ref().unwrap();
        assert_eq!(
            selector[0].values.as_deref(),
            Some(&["kube-system".to_owned(), "switchyard-system".to_owned()][..])
        );
    }

    #[test]
    fn pod_webhook_matches_managed_pods_and_must_not_fail() {
        let url = url();
        let inputs = Inputs { kinds: vec![switchyard_jobs::pod::Pod.id()], ..inputs(&url) };
        let webhooks = inputs.mutating().webhooks.unwrap();
        let pod = &webhooks[0];
        assert_eq!(
            (pod.name.as_str(), pod.failure_policy.as_deref()),
            ("mpod.kb.io", Some("Fail"))
        );
        assert_eq!(pod.client_config.url.as_deref(), Some("https://127.0.0.1:9443/mutate--v1-pod"));
        insta::assert_snapshot!(expressions(pod)[1], @"(has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || (has(object.metadata.labels) && 'kueue.x-k8s.io/managed' in object.metadata.labels) || (has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations)");
    }

    #[test]
    fn hub_webhook_must_not_fail_for_new_jobs_only() {
        let url = url();
        let hub = Inputs { dispatches: true, ..inputs(&url) };
        assert_eq!(hub.mutating().webhooks.unwrap()[0].failure_policy.as_deref(), Some("Fail"));
        assert_eq!(hub.validating().webhooks.unwrap()[0].failure_policy.as_deref(), Some("Ignore"));
    }

    #[test]
    fn job_webhook_matches_queue_annotation_if_enabled() {
        let url = url();
        let annotated = Inputs { queue_annotation: true, ..inputs(&url) };
        let of =
            |inputs: &Inputs<'_>| expressions(&inputs.mutating().webhooks.unwrap()[0])[1].clone();
        let in_annotations = "'kueue.x-k8s.io/queue-name' in object.metadata.annotations";
        assert!(of(&annotated).contains(in_annotations), "{}", of(&annotated));
        assert!(!of(&inputs(&url)).contains(in_annotations));
    }

    #[test]
    fn cluster_webhooks_exist_on_hubs_and_may_fail() {
        let url = url();
        let of = |inputs: &Inputs<'_>, name: &str| {
            let webhooks = inputs.validating().webhooks.unwrap();
            webhooks.into_iter().find(|it| it.name == name).and_then(|it| it.failure_policy)
        };
        for name in ["vmultikueuecluster.kb.io", "amultikueuecluster.kb.io"] {
            let hub = Inputs { dispatches: true, ..inputs(&url) };
            assert_eq!(of(&hub, name).as_deref(), Some("Ignore"), "{name}");
            assert_eq!(of(&inputs(&url), name), None, "{name}");
        }
    }

    #[test]
    fn kinds_queued_by_pods_are_defaulted_on_update() {
        let url = url();
        let id = kind_for("apps", "Deployment").unwrap().id();
        let webhooks = Inputs { kinds: vec![id], ..inputs(&url) }.mutating().webhooks.unwrap();
        let operations = webhooks[0].rules.as_ref().unwrap()[0].operations.as_deref();
        assert_eq!(operations, Some(&["CREATE".to_owned(), "UPDATE".to_owned()][..]));
        assert_eq!(webhooks[0].failure_policy.as_deref(), Some("Fail"));
        assert_eq!(expressions(&webhooks[0])[1].matches("||").count(), 0, "only with a queue");
    }

    #[test]
    fn namespaces_with_a_default_queue_match() {
        let url = url();
        let inputs =
            Inputs { default_queues: ["a".to_owned(), "b".to_owned()].into(), ..inputs(&url) };
        let webhooks = inputs.mutating().webhooks.unwrap();
        assert!(expressions(&webhooks[0])[1].ends_with("|| request.namespace in ['a', 'b']"));
        let many =
            Inputs { default_queues: (0..201).map(|n| format!("ns-{n}")).collect(), ..inputs };
        assert_eq!(expressions(&many.mutating().webhooks.unwrap()[0]).len(), 1);
    }

    #[test]
    fn all_jobs_match_if_jobs_without_queue_are_managed() {
        let url = url();
        let inputs = Inputs {
            without_queue_name: true,
            service_account: None,
            fail_closed: true,
            ..inputs(&url)
        };
        let job = &inputs.validating().webhooks.unwrap()[0];
        assert_eq!(
            (job.match_conditions.as_ref(), job.failure_policy.as_deref()),
            (None, Some("Fail"))
        );
    }

    #[test]
    fn unmanaged_and_system_namespaces_never_match() {
        let url = url();
        let never = |own: &str| json!({"key": NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", own]});
        let own = never("switchyard-system");
        let managed = json!({"key": "batch", "operator": "Exists"});
        for (sentence, configured, expected) in [
            ("as configured", json!({}), json!({"matchExpressions": [own]})),
            (
                "by label",
                json!({"matchLabels": {"team": "a"}}),
                json!({"matchLabels": {"team": "a"}, "matchExpressions": [own]}),
            ),
            (
                "by expression",
                json!({"matchExpressions": [managed]}),
                json!({"matchExpressions": [managed, own]}),
            ),
            (
                "without one of them",
                json!({"matchExpressions": [never("other")]}),
                json!({"matchExpressions": [never("other"), own]}),
            ),
        ] {
            let managed = serde_json::from_value(configured).unwrap();
            let inputs =
                Inputs { managed, without_queue_name: true, fail_closed: true, ..inputs(&url) };
            let job = &inputs.mutating().webhooks.unwrap()[0];
            let selector = serde_json::to_value(&job.namespace_selector).unwrap();
            assert_eq!(selector, expected, "{sentence}");
        }
        assert_eq!(
            inputs(&url).job_namespaces().match_expressions.map(|all| all.len()),
            Some(1),
            "said once"
        );
    }

    #[test]
    fn updates_that_remove_the_queue_label_are_validated() {
        let url = url();
        let webhooks = inputs(&url).validating().webhooks.unwrap();
        let conditions = webhooks[0].match_conditions.as_ref().unwrap();
        assert!(
            conditions[1]
                .expression
                .contains("(oldObject != null && (has(oldObject.metadata.labels)")
        );
        assert!(
            webhooks[1..].iter().all(|webhook| webhook.failure_policy.as_deref() == Some("Fail"))
        );
    }

    #[test]
    fn service_reference_has_the_path() {
        let service = Advertise::Service { namespace: "ns".into(), name: "hook".into(), port: 443 };
        let webhooks = inputs(&service).mutating().webhooks.unwrap();
        let reference = webhooks[0].client_config.service.as_ref().unwrap();
        assert_eq!(
            (reference.name.as_str(), reference.path.as_deref()),
            ("hook", Some("/mutate-batch-v1-job"))
        );
    }

    #[test]
    fn cel_strings_are_quoted() {
        assert_eq!(cel_string(r"a'b\c"), r"'a\'b\\c'");
    }
}
