//! Decisions about a workload with ProvisioningRequest checks, as tables of text.

use std::{fmt::Write as _, sync::Arc};

use k8s_openapi::{api::core::v1::PodTemplate, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{ResourceExt as _, core::PartialObjectMeta};
use rstest::rstest;
use serde_json::{Value, json};
use switchyard_api::{
    autoscaling::{ProvisioningRequest, ProvisioningRequestStatus},
    conditions,
    v1beta2::{
        AdmissionCheckState, CheckState, PodSet, PodSetAssignment, ProvisioningRequestConfig,
        ResourceFlavor, Workload,
    },
};

use super::{
    decide::{ProvisioningPlan, decide},
    facts::ProvisioningFacts,
    objects,
    perform::same_owner,
};
use crate::fixtures::{WorkloadExt, at, workload};
use switchyard_platform::object::Object;

/// A configuration of class `class` with parameter `p=v`, one retry after 60 s and a node selector
/// from the class detail `Group`.
fn config(spec: &Value) -> Arc<ProvisioningRequestConfig> {
    let mut whole = json!({
        "provisioningClassName": "class",
        "parameters": {"p": "v"},
        "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
        "podSetUpdates": {"nodeSelector": [{"key": "group", "valueFromProvisioningClassDetail": "Group"}]},
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    Arc::new(ProvisioningRequestConfig::new("config", serde_json::from_value(whole).unwrap()))
}

/// The active check `prov`.
fn facts() -> ProvisioningFacts {
    let flavor = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"},
        "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
    });
    let flavor: ResourceFlavor = serde_json::from_value(flavor).unwrap();
    ProvisioningFacts {
        checks: [("prov".to_owned(), Some(config(&json!({}))))].into(),
        flavors: [("default".to_owned(), Arc::new(flavor))].into(),
        cleanup_on_eviction: true,
        ..ProvisioningFacts::default()
    }
}

trait FactsExt: Sized {
    /// Adds the next attempt of `prov`, with these conditions from the autoscaler.
    fn with_request(
        self,
        subject: &Workload,
        attempt: i32,
        conditions: &[(&str, bool, &str)],
    ) -> Self;
    fn config(self, spec: Value) -> Self;
}

impl FactsExt for ProvisioningFacts {
    fn with_request(
        mut self,
        subject: &Workload,
        attempt: i32,
        conditions: &[(&str, bool, &str)],
    ) -> Self {
        let config = self.checks["prov"].clone().unwrap();
        let asked = objects::requested_pod_sets(subject, &config.spec).unwrap();
        let creation =
            objects::compose(subject, "prov", attempt, &config.spec, &asked, &self.flavors)
                .unwrap();
        let mut status = ProvisioningRequestStatus::default();
        for (type_, holds, message) in conditions {
            let condition = conditions::new(type_, *holds, "Reason", *message, None);
            conditions::set(&mut status.conditions, condition, at(50));
        }
        status.provisioning_class_details.insert("Group".to_owned(), "g7".to_owned());
        let mut request = creation.request;
        request.metadata.uid = Some(format!("uid-{}", request.name_any()));
        request.status = Some(status);
        self.requests.push(Arc::new(request));
        self
    }

    fn config(mut self, spec: Value) -> Self {
        self.checks.insert("prov".to_owned(), Some(config(&spec)));
        self
    }
}

fn reserved(state: CheckState) -> Workload {
    workload("wl").reserved("cq").check("prov", state, "")
}

fn state(workload: &mut Workload) -> &mut AdmissionCheckState {
    &mut workload.status.as_mut().unwrap().admission_checks[0]
}

fn retried(times: i32) -> Workload {
    reserved(CheckState::Pending).edit(|workload| state(workload).retry_count = Some(times))
}

/// The decision at second 100, one step a line.
fn steps(subject: &Workload, facts: &ProvisioningFacts) -> String {
    let plan = decide(subject, facts, at(100));
    let mut text = String::new();
    let mut settled = subject.clone();
    if let Some(status) = &plan.status {
        for check in &status.admission_checks {
            let since = check.last_transition_time.0.as_second();
            writeln!(
                text,
                "{} is {} since {since}s: {:?}",
                check.name,
                check.state.as_str(),
                check.message
            )
            .unwrap();
            if let Some(seconds) = check.requeue_after_seconds {
                writeln!(text, "  requeue after {seconds}s").unwrap();
            }
            for update in &check.pod_set_updates {
                writeln!(
                    text,
                    "  {} gets {:?} {:?}",
                    update.name, update.annotations, update.node_selector
                )
                .unwrap();
            }
        }
        settled.status = Some(status.clone());
    }
    plan.events.iter().for_each(|note| writeln!(text, "event: {note}").unwrap());
    plan.delete.iter().for_each(|request| writeln!(text, "delete {}", request.name_any()).unwrap());
    plan.hand_over
        .iter()
        .for_each(|(it, owner)| writeln!(text, "{} to {}", it.name, owner.name).unwrap());
    plan.refused
        .iter()
        .for_each(|(check, why)| writeln!(text, "{check} cannot ask: {why}").unwrap());
    for creation in &plan.create {
        let sets = creation.request.spec.pod_sets.iter();
        let sets: Vec<String> =
            sets.map(|it| format!("{} x {}", it.count, it.pod_template_ref.name)).collect();
        writeln!(text, "ask {} for {}", creation.request.name_any(), sets.join(", ")).unwrap();
    }
    // The written status is stable.
    assert_eq!(decide(&settled, facts, at(200)).status, None, "{text}");
    if text.is_empty() { "nothing".to_owned() } else { text.trim_end().to_owned() }
}

#[rstest]
#[case::no_quota(workload("wl").check("prov", CheckState::Pending, ""), facts(), "nothing")]
#[case::with_quota(
    reserved(CheckState::Pending),
    facts(),
    "ask wl-prov-1 for 3 x ppt-wl-prov-1-main"
)]
#[case::other_controllers_check(
    reserved(CheckState::Pending),
    ProvisioningFacts::default(),
    "nothing"
)]
#[case::next_attempt_after_deletion(
    retried(2),
    facts(),
    "ask wl-prov-3 for 3 x ppt-wl-prov-3-main"
)]
#[case::retry_under_way(reserved(CheckState::Retry), facts(), "nothing")]
#[case::ready_and_request_deleted(reserved(CheckState::Ready).admitted(), facts(), "nothing")]
#[case::missing_flavor(
    reserved(CheckState::Pending),
    ProvisioningFacts { flavors: Default::default(), ..facts() },
    "prov cannot ask: Error creating PodTemplate \"ppt-wl-prov-1-main\": ResourceFlavor \"default\" not found; \
     create it again, or let the workload be evicted"
)]
#[case::no_managed_resource(
    reserved(CheckState::Pending),
    facts().config(json!({"managedResources": ["nvidia.com/gpu"]})),
    "prov is Ready since 100s: \"the provisioning request is not needed\"\n\
     event: Admission check prov updated state from Pending to Ready with message: the provisioning request is not needed"
)]
#[case::managed_resource(
    reserved(CheckState::Pending),
    facts().config(json!({"managedResources": ["nvidia.com/gpu", "cpu"]})),
    "ask wl-prov-1 for 3 x ppt-wl-prov-1-main"
)]
#[case::no_pod_admitted(
    reserved(CheckState::Pending).status(|status| {
        status.admission.as_mut().unwrap().pod_set_assignments[0].count = Some(0);
    }),
    facts(),
    "prov is Ready since 100s: \"the provisioning request is not needed\"\n\
     event: Admission check prov updated state from Pending to Ready with message: the provisioning request is not needed"
)]
#[case::quota_for_other_pod_sets(
    reserved(CheckState::Pending).status(|status| {
        status.admission.as_mut().unwrap().pod_set_assignments[0].name = "other".to_owned();
    }),
    facts(),
    "nothing"
)]
#[case::no_configuration(
    reserved(CheckState::Pending),
    ProvisioningFacts { checks: [("prov".to_owned(), None)].into(), ..facts() },
    "prov is Pending since 15s: \"the check is not active\""
)]
fn request_is_created_when_capacity_is_needed(
    #[case] subject: Workload,
    #[case] facts: ProvisioningFacts,
    #[case] expected: &str,
) {
    assert_eq!(steps(&subject, &facts), expected);
}

const ACCEPTED: (&str, bool, &str) = ("Accepted", true, "accepted");
const PROVISIONED: (&str, bool, &str) = ("Provisioned", true, "3 nodes are there");
const FAILED: (&str, bool, &str) = ("Failed", true, "no machines");
const EXPIRED: (&str, bool, &str) = ("BookingExpired", true, "10 min are over");
const REVOKED: (&str, bool, &str) = ("CapacityRevoked", true, "the nodes are gone");

#[rstest]
#[case::no_condition(reserved(CheckState::Pending), 1, &[], "nothing")]
#[case::no_condition_after_failed_creation(
    workload("wl").reserved("cq").check("prov", CheckState::Pending, "Error creating ProvisioningRequest"), 1, &[],
    "prov is Pending since 15s: \"\""
)]
#[case::accepted(reserved(CheckState::Pending), 1, &[ACCEPTED], "nothing")]
#[case::accepted_with_a_time(
    reserved(CheckState::Pending), 1, &[ACCEPTED, ("Provisioned", false, "ETA: 2026-11-21T10:36:40Z")],
    "prov is Pending since 15s: \"ETA: 2026-11-21T10:36:40Z\""
)]
#[case::provisioned(
    reserved(CheckState::Pending), 1, &[ACCEPTED, PROVISIONED],
    "prov is Ready since 100s: \"3 nodes are there\"\n  \
       main gets {\"autoscaling.x-k8s.io/consume-provisioning-request\": \"wl-prov-1\", \
                  \"autoscaling.x-k8s.io/provisioning-class-name\": \"class\"} {\"group\": \"g7\"}\n\
     event: Admission check prov updated state from Pending to Ready with message: 3 nodes are there"
)]
#[case::failed_with_retries_left(
    reserved(CheckState::Pending), 1, &[ACCEPTED, FAILED],
    "prov is Retry since 100s: \"Retrying after failure: no machines\"\n  requeue after 60s\n\
     event: Admission check prov updated state from Pending to Retry with message: Retrying after failure: no machines"
)]
#[case::failed_without_retries_left(
    retried(1), 2, &[FAILED],
    "prov is Rejected since 100s: \"no machines\"\n\
     event: Admission check prov updated state from Pending to Rejected with message: no machines"
)]
#[case::failed_and_retried_already(
    retried(1), 1, &[FAILED],
    "prov is Pending since 15s: \"Retrying after failure: no machines\"\nask wl-prov-2 for 3 x ppt-wl-prov-2-main"
)]
#[case::booking_expired_before_admission(
    reserved(CheckState::Ready), 1, &[PROVISIONED, EXPIRED],
    "prov is Retry since 100s: \"Retrying after booking expired: 10 min are over\"\n  requeue after 60s\n\
     event: Admission check prov updated state from Ready to Retry with message: Retrying after booking expired: 10 min are over"
)]
#[case::booking_expired_without_retries_left(
    retried(1), 2, &[PROVISIONED, EXPIRED],
    "prov is Rejected since 100s: \"10 min are over\"\n\
     event: Admission check prov updated state from Pending to Rejected with message: 10 min are over"
)]
#[case::booking_expired_when_running(reserved(CheckState::Ready).admitted(), 1, &[PROVISIONED, EXPIRED], "nothing")]
#[case::capacity_revoked_when_running(
    reserved(CheckState::Ready).admitted(), 1, &[PROVISIONED, REVOKED],
    "prov is Rejected since 100s: \"the nodes are gone\"\n\
     event: Admission check prov updated state from Ready to Rejected with message: the nodes are gone"
)]
#[case::capacity_revoked_when_deactivated(
    reserved(CheckState::Ready).admitted().inactive(), 1, &[PROVISIONED, REVOKED], "nothing"
)]
#[case::evicted(
    reserved(CheckState::Pending).condition("Evicted", true, "Preempted", ""), 1, &[ACCEPTED], "delete wl-prov-1"
)]
#[case::finished(
    reserved(CheckState::Ready).admitted().condition("Finished", true, "Succeeded", ""), 1, &[PROVISIONED],
    "delete wl-prov-1"
)]
fn check_state_follows_the_request(
    #[case] subject: Workload,
    #[case] attempt: i32,
    #[case] conditions: &[(&str, bool, &str)],
    #[case] expected: &str,
) {
    assert_eq!(steps(&subject, &facts().with_request(&subject, attempt, conditions)), expected);
}

#[test]
fn evicted_workload_keeps_requests_without_gate() {
    let subject = reserved(CheckState::Pending).condition("Evicted", true, "Preempted", "");
    let facts =
        ProvisioningFacts { cleanup_on_eviction: false, ..facts().with_request(&subject, 1, &[]) };
    assert_eq!(steps(&subject, &facts), "nothing");
}

#[test]
fn retry_backoff_doubles_up_to_the_maximum() {
    for (retries, expected) in [(0, 60), (1, 120), (2, 240), (9, 1800)] {
        let subject = retried(retries);
        let facts = facts().config(json!({"retryStrategy": {"backoffLimitCount": 20}}));
        let plan = decide(&subject, &facts.with_request(&subject, retries + 1, &[FAILED]), at(100));
        assert_eq!(
            plan.status.unwrap().admission_checks[0].requeue_after_seconds,
            Some(expected),
            "{retries}"
        );
    }
}

#[test]
fn only_the_latest_matching_attempt_is_kept() {
    let subject = retried(1);
    let both = facts().with_request(&subject, 1, &[FAILED]).with_request(&subject, 2, &[ACCEPTED]);
    assert_eq!(steps(&subject, &both), "delete wl-prov-1");
    for changed in [json!({"provisioningClassName": "other"}), json!({"parameters": {"p": "w"}})] {
        let subject = reserved(CheckState::Pending);
        let changed = facts().with_request(&subject, 1, &[ACCEPTED]).config(changed);
        assert_eq!(
            steps(&subject, &changed),
            "delete wl-prov-1\nask wl-prov-1 for 3 x ppt-wl-prov-1-main"
        );
    }
    let subject = reserved(CheckState::Pending);
    let inactive = ProvisioningFacts {
        checks: [("prov".to_owned(), None)].into(),
        ..facts().with_request(&subject, 1, &[ACCEPTED])
    };
    assert_eq!(
        steps(&subject, &inactive),
        "prov is Pending since 15s: \"the check is not active\"\ndelete wl-prov-1"
    );
}

#[test]
fn job_annotations_override_configured_parameters() {
    let subject = reserved(CheckState::Pending)
        .annotation("provreq.kueue.x-k8s.io/ValidUntilSeconds", "0")
        .annotation("provreq.kueue.x-k8s.io/p", "mine")
        .annotation("example.com/p", "another");
    let asked = facts().with_request(&subject, 1, &[]);
    let parameters = &asked.requests[0].spec.parameters;
    assert_eq!(json!(parameters), json!({"ValidUntilSeconds": "0", "p": "mine"}));
    assert_eq!(steps(&subject, &asked), "nothing", "it is not made anew again and again");
}

#[test]
fn request_with_its_template() {
    let plan = decide(&reserved(CheckState::Pending), &facts(), at(100));
    let creation = &plan.create[0];
    insta::assert_snapshot!(serde_json::to_string_pretty(&creation.request).unwrap());
    insta::assert_snapshot!(serde_json::to_string_pretty(&creation.templates[0].value()).unwrap());
}

#[test]
fn limits_fill_missing_requests() {
    let subject = reserved(CheckState::Pending).edit(|workload| {
        let resources = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}});
        let container = json!({"name": "c", "resources": resources});
        let template =
            json!({"spec": {"initContainers": [{"name": "i"}], "containers": [container]}});
        workload.spec.pod_sets[0].template = template.into();
    });
    let plan = decide(&subject, &facts(), at(100));
    let spec = &plan.create[0].templates[0].value()["template"]["spec"];
    assert_eq!(
        spec["containers"][0]["resources"]["requests"],
        json!({"cpu": "1", "memory": "1Gi"})
    );
    assert_eq!(spec["initContainers"], json!([{"name": "i"}]));
}

/// A workload with these pod sets; the n-th has n pods.
fn of_pod_sets(specs: &[Value]) -> Workload {
    let named = |at: usize| (format!("ps{at}"), i32::try_from(at).unwrap());
    reserved(CheckState::Pending).edit(|workload| {
        let pod_sets = specs.iter().zip(1..).map(|(spec, at)| {
            let (name, count) = named(at);
            PodSet { name, count, template: json!({"spec": spec}).into(), ..PodSet::default() }
        });
        workload.spec.pod_sets = pod_sets.collect();
        let assignments = (1..=specs.len())
            .map(|at| PodSetAssignment { name: named(at).0, ..Default::default() });
        workload.status.as_mut().unwrap().admission.as_mut().unwrap().pod_set_assignments =
            assignments.collect();
    })
}

#[rstest]
#[case::no_merge(json!(null), "1 x ppt-wl-prov-1-ps1, 2 x ppt-wl-prov-1-ps2, 3 x ppt-wl-prov-1-ps3, 4 x ppt-wl-prov-1-ps4")]
#[case::identical_templates(json!("IdenticalPodTemplates"), "4 x ppt-wl-prov-1-ps1, 2 x ppt-wl-prov-1-ps2, 4 x ppt-wl-prov-1-ps4")]
#[case::identical_scheduling_requirements(json!("IdenticalWorkloadSchedulingRequirements"), "6 x ppt-wl-prov-1-ps1, 4 x ppt-wl-prov-1-ps4")]
fn alike_pod_sets_are_merged_by_policy(#[case] policy: Value, #[case] expected: &str) {
    let of = |image: &str, cpu: &str| json!({"tolerations": [], "containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}]});
    let subject = of_pod_sets(&[of("a", "1"), of("b", "1000m"), of("a", "1"), of("a", "2")]);
    let facts = facts().config(json!({"podSetMergePolicy": policy}));
    assert_eq!(steps(&subject, &facts), format!("ask wl-prov-1 for {expected}"));
}

#[test]
fn template_is_handed_over_once_request_exists() {
    let subject = reserved(CheckState::Pending);
    let mut facts = facts().with_request(&subject, 1, &[]);
    let templates_of = |owner: OwnerReference| {
        let mut template = PartialObjectMeta::default();
        template.metadata.name = Some("ppt-wl-prov-1-main".to_owned());
        template.metadata.owner_references = Some(vec![owner]);
        [("ppt-wl-prov-1-main".to_owned(), Arc::new(template))].into()
    };
    facts.templates = templates_of(objects::controller(&subject).unwrap());
    let plan = decide(&subject, &facts, at(100));
    assert_eq!(steps(&subject, &facts), "ppt-wl-prov-1-main to wl-prov-1");
    let owner = plan.hand_over[0].1.clone();
    let request: &ProvisioningRequest = &facts.requests[0];
    assert_eq!(
        (Some(owner.uid.as_str()), owner.controller),
        (request.metadata.uid.as_deref(), Some(true))
    );
    facts.templates = templates_of(owner);
    assert_eq!(decide(&subject, &facts, at(100)), ProvisioningPlan::default());
}

#[test]
fn template_left_by_an_earlier_request_is_recognised() {
    let subject = reserved(CheckState::Pending);
    let creation = decide(&subject, &facts(), at(100)).create.remove(0);
    let as_stored = |template: &Object| {
        serde_json::from_value::<PartialObjectMeta<PodTemplate>>((*template.value()).clone())
            .unwrap()
    };
    assert!(same_owner(&as_stored(&creation.templates[0]), &creation.request));
    assert!(!same_owner(&PartialObjectMeta::<PodTemplate>::default(), &creation.request));
}
