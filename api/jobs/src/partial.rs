//! Workloads that may run with fewer pods than they request (Kueue's `PartialAdmission`).

use switchyard_api::v1beta2::{Admission, PodSet, Workload};

/// The pod sets with their admitted counts and without minimum counts. `None` if no pod set has a
/// minimum count. Without a minimum, a worker cluster admits all of these pods or none.
#[must_use]
pub fn sized_pod_sets(workload: &Workload, admission: &Admission) -> Option<Vec<PodSet>> {
    let mut pod_sets = workload.spec.pod_sets.clone();
    let mut may_shrink = false;
    for pod_set in pod_sets.iter_mut().filter(|pod_set| pod_set.min_count.is_some()) {
        let mut assignments = admission.pod_set_assignments.iter();
        let assignment = assignments.find(|assignment| assignment.name == pod_set.name)?;
        pod_set.count = assignment.count.unwrap_or(pod_set.count);
        pod_set.min_count = None;
        may_shrink = true;
    }
    may_shrink.then_some(pod_sets)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::all_that_it_asks_for(json!({"minCount": 1}), Some(6), Some(6))]
    #[case::fewer(json!({"minCount": 1}), Some(2), Some(2))]
    #[case::an_assignment_without_a_count(json!({"minCount": 1}), None, Some(6))]
    #[case::not_to_shrink(json!({}), Some(2), None)]
    fn pods_for_which_there_is_quota(
        #[case] min: Value,
        #[case] count: Option<i32>,
        #[case] want: Option<i32>,
    ) {
        let mut pod_set = json!({"name": "main", "count": 6, "template": {}});
        crate::apply_merge(&mut pod_set, &min);
        let workload: Workload =
            serde_json::from_value(json!({"metadata": {}, "spec": {"podSets": [pod_set]}}))
                .unwrap();
        let assignment = json!({"name": "main", "count": count});
        let admission: Admission = serde_json::from_value(
            json!({"clusterQueue": "cq", "podSetAssignments": [assignment]}),
        )
        .unwrap();
        let sized = sized_pod_sets(&workload, &admission);
        assert!(sized.iter().flatten().all(|pod_set| pod_set.min_count.is_none()));
        assert_eq!(sized.map(|pod_sets| pod_sets[0].count), want);
    }

    #[test]
    fn admission_of_other_pod_sets_is_ignored() {
        let pod_set = json!({"name": "main", "count": 6, "minCount": 1, "template": {}});
        let workload: Workload =
            serde_json::from_value(json!({"metadata": {}, "spec": {"podSets": [pod_set]}}))
                .unwrap();
        let admission: Admission =
            serde_json::from_value(json!({"clusterQueue": "cq", "podSetAssignments": []})).unwrap();
        assert_eq!(sized_pod_sets(&workload, &admission), None);
    }
}
