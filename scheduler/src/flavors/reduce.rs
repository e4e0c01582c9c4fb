//! Partial admission: the most pods that fit, between the requested count and `minCount`. Kueue
//! KEP-420, `podset_reducer.go`.

use crate::PodSet;

/// Binary search for the smallest reduction that `fits` accepts. Pod sets share a reduction in
/// proportion to their spare pods. `fits` must accept every larger reduction too. `None` if no pod
/// set can shrink, or if nothing fits.
pub(crate) fn largest_that_fits<T>(
    pod_sets: &[PodSet],
    mut fits: impl FnMut(&[i32]) -> Option<T>,
) -> Option<T> {
    let spare: Vec<i64> = (pod_sets.iter())
        .map(|pod_set| {
            let least = pod_set.min_count.unwrap_or(pod_set.count).clamp(0, pod_set.count.max(0));
            i64::from(pod_set.count) - i64::from(least)
        })
        .map(|spare| spare.max(0))
        .collect();
    let total: i64 = spare.iter().sum();
    if total == 0 {
        return None;
    }
    let reduced_by = |reduction: i64| -> Vec<i32> {
        (pod_sets.iter().zip(&spare))
            .map(|(pod_set, spare)| {
                let share = i128::from(*spare) * i128::from(reduction) / i128::from(total);
                pod_set.count.saturating_sub(i32::try_from(share).unwrap_or(i32::MAX))
            })
            .collect()
    };
    let (mut low, mut high) = (0, total + 1);
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match fits(&reduced_by(middle)) {
            Some(found) => {
                best = Some((middle, found));
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    best.filter(|(at, _)| *at == low).map(|(_, found)| found)
}
