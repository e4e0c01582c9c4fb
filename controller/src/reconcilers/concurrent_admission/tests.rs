//! Decisions about the workload `ns/job`. Its variants are named by their flavors, `reserved`
//! before `spot`.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;
use serde_json::json;
use switchyard_api::{
    conditions, names,
    v1beta2::{
        AdmissionCheck, ClusterQueue, PreemptionGatePosition, PreemptionGateState, ReclaimablePod,
        RequeueState, StopPolicy, Workload,
    },
    variants::{self, PREEMPTION_GATE},
};
use switchyard_platform::{store::Key, work_queue::Queue};

use crate::{
    engine::convert::variant_policy::VariantPolicy,
    reconcilers::concurrent_admission::{
        plan::{VariantPlan, VariantWrite, plan},
        subscribe,
    },
    stores::Stores,
};
use crate::{
    fixtures::{self, WorkloadExt, at},
    workload::ReasonDetail,
};

const NOW: i64 = 1000;

fn parent() -> Workload {
    fixtures::workload("job").edit(|it| {
        it.metadata.labels =
            Some(BTreeMap::from([(names::CONCURRENT_ADMISSION_PARENT.into(), "true".into())]));
    })
}

fn variant(flavor: &str) -> Workload {
    let mut variant = variants::make(&parent(), flavor);
    variant.metadata.name = Some(flavor.into());
    variant.metadata.uid = Some(format!("uid-{flavor}"));
    variant
}

/// Admitted on its flavor.
fn runs(variant: Workload) -> Workload {
    let flavor = variants::flavor_of(&variant).unwrap_or_default().to_owned();
    runs_on(variant, &flavor)
}

fn runs_on(workload: Workload, flavor: &str) -> Workload {
    workload.reserved("cq").admitted().status(|status| {
        let assignments = &mut status.admission.as_mut().unwrap().pod_set_assignments;
        assignments[0].flavors.insert("cpu".into(), flavor.into());
    })
}

fn evicted(workload: Workload, reason: &str) -> Workload {
    workload.condition_at(20, "Evicted", true, reason, "why")
}

fn policy() -> VariantPolicy {
    VariantPolicy { flavors: vec!["reserved".into(), "spot".into()], retains: false, last: None }
}

fn flavors(flavors: &[&str]) -> VariantPolicy {
    VariantPolicy {
        flavors: flavors.iter().map(|flavor| (*flavor).to_owned()).collect(),
        ..policy()
    }
}

fn planned(
    parent: Option<Workload>,
    variants: Vec<Workload>,
    policy: Option<&VariantPolicy>,
) -> VariantPlan {
    let parent = parent.map(Arc::new);
    plan(
        parent.as_ref(),
        variants.into_iter().map(Arc::new).collect(),
        policy,
        (ReasonDetail::Full, true),
        at(NOW),
    )
}

/// The writes as text; of a status only the conditions that changed.
fn words(plan: &VariantPlan) -> Vec<String> {
    let name = |of: &Workload| of.metadata.name.clone().unwrap_or_default();
    let word = |write: &VariantWrite| match write {
        VariantWrite::Create(variant) => {
            format!("create {}", variants::flavor_of(variant).unwrap_or_default())
        }
        VariantWrite::Delete(variant) => format!("delete {}", name(variant)),
        VariantWrite::Patch { of, patch, event } => {
            let event = event
                .as_ref()
                .map(|(reason, note)| format!(" ({reason}: {note})"))
                .unwrap_or_default();
            format!("{}: {patch}{event}", name(of))
        }
        VariantWrite::Status { of, status, .. } => {
            let before = of.status.clone().unwrap_or_default().conditions;
            let news = status
                .conditions
                .iter()
                .filter(|new| conditions::find(&before, &new.type_) != Some(*new));
            let news: Vec<_> =
                news.map(|it| format!("{}={} {}", it.type_, it.status, it.reason)).collect();
            format!("{}: {}", name(of), news.join(", "))
        }
    };
    plan.writes.iter().map(word).collect()
}

fn family(parent: Workload, variants: Vec<Workload>, policy: &VariantPolicy) -> Vec<String> {
    words(&planned(Some(parent), variants, Some(policy)))
}

/// Variants of a workload that goes to another cluster would wait here for ever.
#[tokio::test]
async fn check_that_dispatches_queues_the_family() {
    let (stores, queue) = (Stores::default(), Queue::default());
    stores.local_queues.insert(fixtures::local_queue(StopPolicy::None));
    stores.cluster_queues.insert(fixtures::cluster_queue_with_policy(&["send"]));
    stores.workloads.insert(parent());
    subscribe(&stores, &queue, &Arc::default());
    fixtures::drain(&queue).await;
    let mut check = AdmissionCheck::default();
    check.metadata.name = Some("send".into());
    check.spec.controller_name = names::MULTIKUEUE_CONTROLLER.into();
    stores.admission_checks.insert(check);
    assert_eq!(fixtures::drain(&queue).await, [Key::new("ns", "job")]);
}

const ON: &str = r#"{"spec":{"active":true}}"#;
const OFF: &str = r#"{"spec":{"active":false}}"#;

#[rstest]
#[case::parent_is_labelled_first(
    fixtures::workload("job"), vec![],
    &[r#"job: {"metadata":{"labels":{"kueue.x-k8s.io/concurrent-admission-parent":"true"}}}"#]
)]
#[case::variant_for_each_flavor(parent(), vec![], &["create reserved", "create spot"])]
#[case::missing_variant_is_created(parent(), vec![variant("spot")], &["create reserved"])]
#[case::variant_of_a_removed_flavor_is_deleted(
    parent(), vec![variant("gone"), variant("spot"), variant("reserved")], &["delete gone"]
)]
#[case::variant_of_a_replaced_workload_is_deleted(
    parent().edit(|it| it.metadata.uid = Some("other".into())), vec![variant("spot")], &["delete spot"]
)]
#[case::all_variants_active(parent(), vec![variant("spot"), variant("reserved")], &[])]
#[case::parent_being_deleted(parent().deleting(), vec![], &[])]
#[case::variant_has_no_variants(variant("spot"), vec![], &[])]
#[case::finished_parent_finishes_variants(
    parent().condition("Finished", true, "Succeeded", "done"),
    vec![runs(variant("spot")), variant("reserved").condition("Finished", true, "Succeeded", "done")],
    &["spot: Finished=True Succeeded"]
)]
fn variants_follow_flavors_and_parent(
    #[case] parent: Workload,
    #[case] variants: Vec<Workload>,
    #[case] expected: &[&str],
) {
    assert_eq!(family(parent, variants, &policy()), expected);
}

#[test]
fn variants_of_a_deleted_workload_are_deleted() {
    assert_eq!(words(&planned(None, vec![variant("spot")], None)), ["delete spot"]);
}

#[test]
fn without_policy_parent_is_freed_before_variants_go() {
    let unlabelled =
        [r#"job: {"metadata":{"labels":{"kueue.x-k8s.io/concurrent-admission-parent":null}}}"#];
    assert_eq!(words(&planned(Some(parent()), vec![variant("spot")], None)), unlabelled);
    let alone = fixtures::workload("job");
    assert_eq!(words(&planned(Some(alone.clone()), vec![variant("spot")], None)), ["delete spot"]);
    assert_eq!(words(&planned(Some(alone), vec![], None)), [""; 0]);
}

#[rstest]
#[case::queue(|it: &mut Workload| it.spec.queue_name = Some("other".into()), r#"{"spec":{"queueName":"other"}}"#, true)]
#[case::priority(|it: &mut Workload| it.spec.priority = Some(7), r#"{"spec":{"priority":7,"priorityClassRef":null}}"#, false)]
#[case::admission_gates(
    |it: &mut Workload| {
        it.metadata.annotations.get_or_insert_default().insert(names::ADMISSION_GATED_BY.into(), "a/b".into());
    },
    r#"{"metadata":{"annotations":{"kueue.x-k8s.io/admission-gated-by":"a/b"}}}"#,
    false
)]
fn parent_changes_reach_its_variants(
    #[case] change: impl FnOnce(&mut Workload),
    #[case] patch: &str,
    #[case] only_without_quota: bool,
) {
    let parent = parent().edit(change);
    let only = flavors(&["spot"]);
    assert_eq!(family(parent.clone(), vec![variant("spot")], &only), [format!("spot: {patch}")]);
    let holding = family(parent, vec![variant("spot").reserved("cq")], &only);
    assert_eq!(holding.is_empty(), only_without_quota, "{holding:?}");
}

#[rstest]
#[case::parent_is_admitted_and_worse_variants_stop(
    parent(), vec![runs(variant("reserved")), variant("spot")], policy(),
    vec![
        format!("spot: {OFF} (DeactivatedVariant: Variant Workload deactivated due to being lower priority than admitted Variant \"ns/reserved\")"),
        "job: QuotaReserved=True QuotaReserved, Admitted=True Admitted".into(),
    ]
)]
#[case::better_variants_stay_active(
    runs_on(parent(), "spot"), vec![variant("reserved"), runs(variant("spot"))], policy(), vec![]
)]
#[case::better_variants_are_reactivated(
    runs_on(parent(), "spot"), vec![variant("reserved").inactive(), runs(variant("spot"))], policy(),
    vec![format!("reserved: {ON} (ActivatedVariant: Variant Workload activated due to being higher priority than admitted Variant \"ns/spot\")")]
)]
#[case::unacceptable_variants_stop(
    runs_on(parent(), "spot"),
    vec![variant("reserved"), variant("on-demand"), runs(variant("spot"))],
    VariantPolicy { last: Some("reserved".into()), ..flavors(&["reserved", "on-demand", "spot"]) },
    vec![format!("on-demand: {OFF} (DeactivatedVariant: Variant Workload deactivated due to being below lastAcceptableFlavor: \"reserved\" and another Variant admitted \"ns/spot\")")]
)]
#[case::retain_first_admission_stops_others(
    runs_on(parent(), "spot"), vec![variant("reserved"), runs(variant("spot"))], VariantPolicy { retains: true, ..policy() },
    vec![format!("reserved: {OFF} (DeactivatedVariant: Variant Workload deactivated due to RetainFirstAdmission: another Variant \"ns/spot\" is admitted)")]
)]
#[case::none_admitted_reactivates_all(
    parent(), vec![variant("reserved").inactive(), variant("spot")], VariantPolicy { retains: true, ..policy() },
    vec![format!("reserved: {ON} (ActivatedVariant: Variant Workload activated due to no other Variant being admitted)")]
)]
#[case::inactive_parent_stops_all(
    parent().inactive(), vec![variant("reserved").inactive(), variant("spot")], policy(),
    vec![format!("spot: {OFF} (DeactivatedVariant: Variant Workload deactivated due to Parent Workload \"ns/job\" not active)")]
)]
#[case::quota_alone_does_not_admit(
    parent(), vec![variant("reserved").reserved("cq"), variant("spot")], policy(), vec![]
)]
fn active_variants_and_admission_of_the_parent(
    #[case] parent: Workload,
    #[case] variants: Vec<Workload>,
    #[case] policy: VariantPolicy,
    #[case] expected: Vec<String>,
) {
    assert_eq!(family(parent, variants, &policy), expected);
}

#[rstest]
#[case::job_is_stopped_first(runs_on(parent(), "spot"), runs(variant("spot")), "FlavorMigration", &["job: Evicted=True VariantEvicted"])]
#[case::job_is_stopping(
    evicted(runs_on(parent(), "spot"), "VariantEvicted"), runs(variant("spot")), "FlavorMigration", &[]
)]
#[case::stopped_job_releases_quota(
    evicted(parent(), "VariantEvicted"), runs(variant("spot")), "FlavorMigration",
    &["spot: QuotaReserved=False PendingEvaluation, Requeued=True FlavorMigration, Admitted=False NoReservation"]
)]
#[case::deactivated_variant_is_not_requeued(
    evicted(parent(), "VariantEvicted"), runs(variant("spot")), "Deactivated",
    &["spot: QuotaReserved=False PendingEvaluation, Requeued=False Deactivated, Admitted=False NoReservation"]
)]
#[case::variant_without_job_releases_at_once(
    runs_on(parent(), "reserved"), variant("spot").reserved("cq"), "Preempted",
    &["spot: QuotaReserved=False PendingEvaluation, Requeued=True Preempted, Admitted=False NoReservation"]
)]
fn evicted_variant_stops_the_job_first(
    #[case] parent: Workload,
    #[case] spot: Workload,
    #[case] reason: &str,
    #[case] expected: &[&str],
) {
    let reserved =
        if reason == "Preempted" { runs(variant("reserved")) } else { variant("reserved") };
    let mut steps = family(parent, vec![reserved, evicted(spot, reason)], &policy());
    steps.iter_mut().for_each(|steps| *steps = sorted(steps));
    assert_eq!(steps, expected.iter().map(|expected| sorted(expected)).collect::<Vec<_>>());
}

fn sorted(steps: &str) -> String {
    let (name, news) = steps.split_once(": ").unwrap();
    let mut news: Vec<_> = news.split(", ").collect();
    news.sort_unstable();
    format!("{name}: {}", news.join(", "))
}

#[test]
fn eviction_of_the_parent_evicts_its_variant() {
    let until = RequeueState { count: Some(1), requeue_at: Some(Time(at(2000))) };
    let parent = evicted(runs_on(parent(), "spot"), "PodsReadyTimeout");
    let parent = parent.status(|status| status.requeue_state = Some(until));
    let plan =
        planned(Some(parent), vec![variant("reserved"), runs(variant("spot"))], Some(&policy()));
    assert_eq!(words(&plan), ["spot: Evicted=True PodsReadyTimeout"]);
    let VariantWrite::Status { status, .. } = &plan.writes[0] else { panic!("{plan:?}") };
    let requeue_after = status.requeue_state.as_ref().unwrap();
    assert_eq!(
        (requeue_after.count, requeue_after.requeue_at.as_ref().unwrap().0),
        (None, at(2000))
    );
}

#[rstest]
#[case::variant_not_admitted(vec![variant("reserved"), variant("spot")])]
#[case::other_variant_admitted(vec![runs(variant("reserved")), variant("spot").inactive()])]
fn parent_without_a_running_variant_is_evicted(#[case] variants: Vec<Workload>) {
    let running = runs_on(parent(), "spot");
    assert_eq!(
        family(running.clone(), variants.clone(), &policy()),
        ["job: Evicted=True ConcurrentAdmission"]
    );
    assert_eq!(
        family(evicted(running, "ConcurrentAdmission"), variants, &policy()),
        [""; 0],
        "told once"
    );
}

#[test]
fn pod_state_is_copied_to_the_variant() {
    let pods = vec![ReclaimablePod { name: "main".into(), count: 1 }];
    let parent = runs_on(parent(), "reserved").condition("PodsReady", true, "Started", "all");
    let parent = parent.status(|status| status.reclaimable_pods.clone_from(&pods));
    let only = flavors(&["reserved"]);
    let plan = planned(Some(parent.clone()), vec![runs(variant("reserved"))], Some(&only));
    assert_eq!(words(&plan), ["reserved: PodsReady=True Started"]);
    let VariantWrite::Status { status, .. } = &plan.writes[0] else { panic!("{plan:?}") };
    assert_eq!(status.reclaimable_pods, pods);
    let event = runs(variant("reserved")).edit(|it| it.status = Some((**status).clone()));
    assert_eq!(family(parent, vec![event], &only), [""; 0]);
}

fn blocked(flavor: &str) -> Workload {
    let gated = "AdmissionGated";
    let waits = variant(flavor).condition("QuotaReserved", false, gated, "");
    waits.condition("BlockedOnPreemptionGates", true, "PreemptionGated", "")
}

fn waits(flavor: &str) -> Workload {
    variant(flavor).condition("QuotaReserved", false, "WaitingForQuota", "")
}

fn unevaluated(reason: &str) -> Workload {
    let message = "Workload is pending evaluation in the scheduling queue";
    variant("reserved").condition("QuotaReserved", false, reason, message)
}

fn opened(second: i64, workload: Workload) -> Workload {
    workload.status(|status| {
        status.preemption_gates.push(PreemptionGateState {
            name: PREEMPTION_GATE.into(),
            position: PreemptionGatePosition::Open,
            last_transition_time: Time(at(second)),
        });
    })
}

#[rstest]
#[case::best_first(blocked("reserved"), blocked("spot"), Some("reserved"), Some(300))]
#[case::better_one_never_evaluated(variant("reserved"), blocked("spot"), None, None)]
#[case::better_one_requeued(unevaluated("PendingEvaluation"), blocked("spot"), None, None)]
#[case::better_one_with_plain_reason(unevaluated("Pending"), blocked("spot"), None, None)]
#[case::better_one_would_not_preempt(waits("reserved"), blocked("spot"), Some("spot"), Some(300))]
#[case::timeout_not_over(opened(900, blocked("reserved")), blocked("spot"), None, Some(200))]
#[case::timeout_over(opened(700, blocked("reserved")), blocked("spot"), Some("spot"), Some(300))]
#[case::none_blocked(waits("reserved"), waits("spot"), None, None)]
fn preemption_gates_open_one_by_one(
    #[case] reserved: Workload,
    #[case] spot: Workload,
    #[case] expected: Option<&str>,
    #[case] requeue_after: Option<u64>,
) {
    let plan = planned(Some(parent()), vec![reserved, spot], Some(&policy()));
    let opened = plan.writes.iter().map(|write| match write {
        VariantWrite::Status { of, status, event: Some(("PreemptionUngatedVariant", _)) } => {
            let gate = status.preemption_gates.last().unwrap();
            assert_eq!(
                (gate.position, gate.last_transition_time.0),
                (PreemptionGatePosition::Open, at(NOW))
            );
            of.metadata.name.as_deref().unwrap()
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(opened.collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
    assert_eq!(plan.requeue_after.map(|after| after.as_secs()), requeue_after);
}

#[test]
fn dispatching_queue_has_no_policy() {
    let queue = |checks: &[&str], migration: serde_json::Value| -> ClusterQueue {
        let mut queue = fixtures::cluster_queue(StopPolicy::None, checks);
        let policy = json!({"migration": migration});
        queue.spec.concurrent_admission_policy = Some(serde_json::from_value(policy).unwrap());
        queue
    };
    let constrained = json!({"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "default"}});
    let sends = |name: &str| name == "mk";
    let expected = VariantPolicy { last: Some("default".into()), ..flavors(&["default", "gpu"]) };
    assert_eq!(VariantPolicy::of(&queue(&["other"], constrained.clone()), sends), Some(expected));
    let retaining =
        VariantPolicy::of(&queue(&[], json!({"mode": "RetainFirstAdmission"})), sends).unwrap();
    assert!(retaining.retains && retaining.last.is_none());
    assert_eq!(VariantPolicy::of(&queue(&["other", "mk"], constrained), sends), None);
    assert_eq!(VariantPolicy::of(&fixtures::cluster_queue(StopPolicy::None, &[]), sends), None);
}

#[test]
fn admission_gated_variant_may_preempt_without_gate() {
    let annotate = |it: Workload| {
        Arc::new(it.annotation("kueue.x-k8s.io/admission-gated-by", "example.com/later"))
    };
    let annotated = |flavor: &str| annotate(blocked(flavor));
    let parent = annotate(parent());
    let writes = |gated| {
        let variants = vec![annotated("reserved"), annotated("spot")];
        plan(Some(&parent), variants, Some(&policy()), (ReasonDetail::Full, gated), at(NOW))
            .writes
            .len()
    };
    assert_eq!([writes(true), writes(false)], [0, 1]);
}
