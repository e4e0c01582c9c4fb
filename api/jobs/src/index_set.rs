//! Counts the indexes of an Indexed Job in Kubernetes' format, `1,3-5,7`.

/// The number of indexes below `completions` in either list.
///
/// Overlapping indexes count once, because older API servers accept them. Indexes at or above
/// `completions` are left over from a larger job and do not count. Unreadable intervals are
/// ignored: reclaiming less quota is the safe side.
#[must_use]
pub(crate) fn count_terminal(completed: &str, failed: &str, completions: i32) -> i32 {
    let Some(last) = completions.checked_sub(1).filter(|last| *last >= 0) else { return 0 };
    let mut intervals: Vec<(i32, i32)> = completed
        .split(',')
        .chain(failed.split(','))
        .filter_map(interval)
        .map(|(from, to)| (from, to.min(last)))
        .filter(|(from, to)| from <= to)
        .collect();
    intervals.sort_unstable();
    let (mut count, mut next) = (0, 0);
    for (from, to) in intervals {
        let from = from.max(next);
        if from <= to {
            count += to - from + 1;
            next = to.saturating_add(1);
        }
    }
    count
}

fn interval(text: &str) -> Option<(i32, i32)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (0 <= from && from <= to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_done("", "", 5, 0)]
    #[case::single_indexes_and_ranges("0,2-3", "", 5, 3)]
    #[case::failed_indexes_are_done_too("0", "4", 5, 2)]
    #[case::overlaps_count_once("0-2", "2-3", 5, 4)]
    #[case::indexes_beyond_completions_do_not_count("0,3-9", "", 5, 3)]
    #[case::unreadable_intervals_are_ignored("x,5-3,-1,1", "", 8, 1)]
    #[case::no_completions("0-3", "", 0, 0)]
    #[case::the_largest_range("0-2147483646", "", i32::MAX, i32::MAX)]
    fn counts(
        #[case] completed: &str,
        #[case] failed: &str,
        #[case] completions: i32,
        #[case] want: i32,
    ) {
        assert_eq!(count_terminal(completed, failed, completions), want);
    }

    proptest! {
        #[test]
        fn equals_the_size_of_the_set(ranges in prop::collection::vec((0..20i32, 0..6i32), 0..6), completions in 0..24i32) {
            let text = ranges.iter().map(|(from, len)| format!("{from}-{}", from + len)).collect::<Vec<_>>().join(",");
            let set: BTreeSet<i32> = ranges.iter().flat_map(|(from, len)| *from..=from + len).filter(|i| *i < completions).collect();
            prop_assert_eq!(count_terminal(&text, "", completions), i32::try_from(set.len()).unwrap());
        }
    }
}
