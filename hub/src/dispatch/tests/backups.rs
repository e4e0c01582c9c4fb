//! A store that was restored from a backup: what it has forgotten of attempts and ends.

use super::copies::{Copy, again};
use super::*;

#[test]
fn a_job_that_waited_for_a_copy_without_a_job_is_sent_once_that_is_gone() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![Copy::of("old", "train").state(State::Waiting).with(|it| it.has_job = false)]);
    bench.applied();
    assert_eq!(bench.take(), ["orphan old/3 on a", "Absent old/3 on a"]);
    bench.later(1_000);
    bench.written(Outcome::Done, Facts { reserved: true, ..again() });
    bench.later(60_000);
    bench.take();
    bench.observe("a", "old", 3, State::Gone);
    assert_eq!(bench.take()[..2], ["forget old/3 on a", "Reserve new/1 on a"]);
}
