//! Pods of a job that will not run again and whose quota can be released.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;
use switchyard_api::v1beta2::{PodSet, ReclaimablePod, Workload};
use switchyard_jobs::sized_pod_sets;

use super::{action::Action, case::Case, edit};

impl Case<'_> {
    /// The pods that will not run again in this attempt. For a job that was dispatched before, the
    /// counters include all attempts, and each attempt starts with all pods.
    pub(super) fn reclaimable(&self, workload: &Workload) -> Vec<ReclaimablePod> {
        let status = workload.status.as_ref();
        let first = || {
            let attempt = status
                .and_then(|status| status.dispatch.as_ref())
                .map_or(0, |dispatch| dispatch.attempt);
            attempt <= 1 && status.is_some_and(|status| status.cluster_name.is_some())
        };
        if self.runs_elsewhere(workload) && !first() {
            return Vec::new();
        }
        let job = self.as_it_runs(workload);
        let mut reclaimable = self.kind.reclaimable(&job);
        if workload.spec.pod_sets.iter().any(|it| it.min_count.is_some()) && !self.is_elastic() {
            let sizes = self.kind.pod_sets(&job).unwrap_or_default();
            relative_to_requested(workload, &sizes, &mut reclaimable);
        }
        reclaimable
    }

    /// The job with the number of pods that it runs with. A dispatched job with partial admission
    /// does not show that here.
    fn as_it_runs(&self, workload: &Workload) -> Cow<'_, Value> {
        let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
        let sized =
            admission.filter(|_| self.is_handed_over()).and_then(|it| sized_pod_sets(workload, it));
        let Some(pod_sets) = sized else { return Cow::Borrowed(self.job) };
        let mut job = self.job.clone();
        self.kind.shrink(&mut job, &pod_sets);
        Cow::Owned(job)
    }

    /// Records reclaimable pods if the configuration allows.
    pub(super) fn reclaim(
        &self,
        workload: &Arc<Workload>,
        pods: Vec<ReclaimablePod>,
    ) -> Option<Action> {
        edit::reclaimable_pods(workload, pods, self.now).filter(|_| self.inputs.reclaims)
    }
}

/// For partial admission, counts are relative to the requested count: pods that were not admitted
/// need no quota either.
fn relative_to_requested(
    workload: &Workload,
    sizes: &[PodSet],
    reclaimable: &mut [ReclaimablePod],
) {
    let count_in = |sets: &[PodSet], name: &str| {
        sets.iter().find(|it| it.name == name).map_or(0, |it| it.count)
    };
    for pods in reclaimable.iter_mut().filter(|pods| pods.count > 0) {
        let asked = count_in(&workload.spec.pod_sets, &pods.name);
        let missing = asked.saturating_sub(count_in(sizes, &pods.name)).max(0);
        pods.count = pods.count.saturating_add(missing).min(asked);
    }
}
