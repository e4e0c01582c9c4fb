//! The status of a Cohort. It is empty without fair sharing.

use kube::Api;
use switchyard_api::{
    names,
    v1beta2::{CohortStatus, FairSharingStatus},
};
use switchyard_scheduler::CohortView;

use super::{
    pace::FigurePace,
    publish::{Change, publish},
};
use crate::{context::Context, engine::views::Views};
use switchyard_platform::{store::Key, work_queue::Outcome, write::Target};

pub(super) async fn reconcile(
    ctx: &Context,
    views: &Views,
    pace: &FigurePace,
    key: Key,
) -> Outcome {
    let Some(cohort) = ctx.stores.cohorts.by_key(&key) else {
        pace.forget(&key);
        if views.cohort(&key.name).is_none() {
            ctx.metrics.forget_cohort(&key.name);
        }
        return Outcome::Done;
    };
    if !ctx.leading() {
        return Outcome::Done;
    }
    let Some(view) = views.cohort(&key.name) else { return Outcome::Done };
    let before = cohort.status.clone().unwrap_or_default();
    let after = status(&before, &view, ctx.config.fair_sharing.is_some());
    let target = Target {
        api: Api::all(ctx.client.clone()),
        store: &ctx.stores.cohorts,
        object: &*cohort,
        manager: names::FIELD_MANAGER,
        what: "cohort",
    };
    // Without fair sharing an absent status stays absent.
    let change = Change { before: Some(&before), after: &after, urgent: false };
    publish(ctx, pace, key, &target, change).await
}

/// The desired status. Pure.
fn status(before: &CohortStatus, view: &CohortView, fair: bool) -> CohortStatus {
    let fair_sharing = fair.then_some(FairSharingStatus { weighted_share: view.weighted_share });
    CohortStatus { fair_sharing, ..before.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighted_share_is_set_with_fair_sharing() {
        let view = CohortView {
            name: "team".into(),
            parent: None,
            root: None,
            weighted_share: 250,
            precise_share: 249.5,
            subtree: Vec::new(),
            admitted: 0,
        };
        let before = CohortStatus::default();
        let rendered = |fair| serde_json::to_string(&status(&before, &view, fair)).unwrap();
        assert_eq!(rendered(true), r#"{"fairSharing":{"weightedShare":250}}"#);
        assert_eq!(rendered(false), "{}");
        let quotas = Some(serde_json::json!({"resourceGroups": []}));
        let orchestrated = CohortStatus { effective_quotas: quotas.clone(), ..before };
        assert_eq!(
            status(&orchestrated, &view, true).effective_quotas,
            quotas,
            "another release's field stays"
        );
    }
}
