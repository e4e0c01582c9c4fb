//! Comparison of flavors, and partial admission.

use rstest::rstest;

use super::fungibility::{GranularMode, PreemptionMode};
use super::largest_that_fits;
use crate::{FlavorFungibility, FungibilityPolicy, FungibilityPreference, PodSet};

use FungibilityPreference::{BorrowingOverPreemption, PreemptionOverBorrowing};
use PreemptionMode::{Fit, NoCandidates, NoFit, Preempt, Reclaim};

#[rstest]
#[case::nothing_beats_a_fit_without_borrowing((Fit, 0), (Fit, 0), BorrowingOverPreemption, false)]
#[case::anything_beats_what_does_not_fit((NoCandidates, 9), (NoFit, 0), BorrowingOverPreemption, true)]
#[case::what_does_not_fit_beats_nothing((NoFit, 0), (NoFit, 9), BorrowingOverPreemption, false)]
#[case::victims_beat_no_candidates_whatever_is_borrowed((Preempt, 9), (NoCandidates, 0), PreemptionOverBorrowing, true)]
#[case::borrowing_rather_than_preempting((Fit, 2), (Reclaim, 0), BorrowingOverPreemption, true)]
#[case::reclaiming_rather_than_preempting_the_own((Reclaim, 1), (Preempt, 0), BorrowingOverPreemption, true)]
#[case::less_borrowing_of_two_fits((Fit, 1), (Fit, 2), BorrowingOverPreemption, true)]
#[case::preempting_rather_than_borrowing((Preempt, 0), (Fit, 1), PreemptionOverBorrowing, true)]
#[case::the_easier_of_two_that_borrow_alike((Fit, 1), (Preempt, 1), PreemptionOverBorrowing, true)]
fn grade_beats_another_by_preference(
    #[case] (mode, borrow): (PreemptionMode, usize),
    #[case] (other, other_borrow): (PreemptionMode, usize),
    #[case] preference: FungibilityPreference,
    #[case] beats: bool,
) {
    let fungibility = FlavorFungibility { preference, ..FlavorFungibility::default() };
    let other = GranularMode { mode: other, borrow: other_borrow };
    assert_eq!(GranularMode { mode, borrow }.beats(other, fungibility), beats);
}

#[rstest]
#[case::a_fit_ends_the_search(Fit, 0, false, false, false)]
#[case::a_fit_that_borrows_ends_it_if_it_may(Fit, 1, false, true, false)]
#[case::a_fit_that_borrows_does_not_if_the_next_is_to_be_tried(Fit, 1, true, false, true)]
#[case::victims_end_it_if_they_may(Preempt, 0, true, false, false)]
#[case::victims_do_not_if_the_next_is_to_be_tried(Reclaim, 0, false, true, true)]
#[case::victims_and_borrowing_need_both_to_end_it(Preempt, 1, true, false, true)]
#[case::no_candidates_never_end_it(NoCandidates, 0, false, false, true)]
#[case::no_fit_never_ends_it(NoFit, 0, false, false, true)]
fn search_continues_by_fungibility(
    #[case] mode: PreemptionMode,
    #[case] borrow: usize,
    #[case] next_when_borrowing: bool,
    #[case] next_when_preempting: bool,
    #[case] goes_on: bool,
) {
    let policy = |next| {
        if next { FungibilityPolicy::TryNextFlavor } else { FungibilityPolicy::MayStopSearch }
    };
    let fungibility = FlavorFungibility {
        when_can_borrow: policy(next_when_borrowing),
        when_can_preempt: policy(next_when_preempting),
        ..FlavorFungibility::default()
    };
    assert_eq!(GranularMode { mode, borrow }.try_next(fungibility), goes_on);
}

fn pods(count: i32, least: i32) -> PodSet {
    PodSet { min_count: Some(least), ..PodSet::new("main", count) }
}

#[rstest]
#[case::as_many_as_fit(&[pods(10, 2)], 7, &[7])]
#[case::all_of_them(&[pods(10, 2)], 10, &[10])]
#[case::no_more_than_is_enough(&[pods(10, 2)], 2, &[2])]
#[case::fewer_than_enough(&[pods(10, 2)], 1, &[])]
#[case::nothing_to_reduce(&[pods(10, 10)], 5, &[])]
#[case::shared_in_proportion(&[pods(10, 0), pods(20, 0)], 15, &[5, 10])]
#[case::one_of_two_cannot_shrink(&[pods(10, 10), pods(20, 0)], 15, &[10, 5])]
#[case::more_than_all_is_enough(&[pods(10, 99), pods(4, 1)], 12, &[10, 2])]
fn partial_admission_finds_the_most_pods(
    #[case] pod_sets: &[PodSet],
    #[case] room: i32,
    #[case] expected: &[i32],
) {
    let fits = |counts: &[i32]| (counts.iter().sum::<i32>() <= room).then(|| counts.to_vec());
    assert_eq!(largest_that_fits(pod_sets, fits).unwrap_or_default(), expected);
}

#[test]
fn partial_admission_handles_the_largest_counts() {
    let pod_sets = [pods(i32::MAX, 0), pods(i32::MAX, 0), pods(i32::MAX, i32::MIN)];
    let fits = |counts: &[i32]| (counts.iter().all(|count| *count <= 5)).then(|| counts.to_vec());
    assert_eq!(largest_that_fits(&pod_sets, fits), Some(vec![5, 5, 5]));
}
