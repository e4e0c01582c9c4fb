//! Hand-computed values, and properties of the decay.

use proptest::prelude::*;

use super::*;
use crate::{LocalQueueKey, workloads::LocalQueues};

fn queue() -> LocalQueueId {
    LocalQueues::default().intern(&LocalQueueKey::new("ns", "a"))
}

fn tracker(half_life: u64, interval: u64) -> UsageTracker {
    UsageTracker::new(AdmissionFairSharing {
        half_life: Duration::from_secs(half_life),
        sampling_interval: Duration::from_secs(interval),
        resource_weights: BTreeMap::new(),
    })
}

fn cores(millis: i64) -> BTreeMap<Name, Amount> {
    BTreeMap::from([("cpu".into(), Amount::new(millis))])
}

fn consumed(tracker: &UsageTracker) -> Vec<(String, i128)> {
    let entry = tracker.get(queue()).expect("it was sampled");
    entry.consumed.iter().map(|(name, nanos)| (name.to_string(), *nanos)).collect()
}

fn cpu(nanos: i128) -> Vec<(String, i128)> {
    vec![("cpu".to_owned(), nanos)]
}

#[test]
fn first_sample_only_sets_the_time() {
    let mut tracker = tracker(60, 60);
    tracker.sample(queue(), &cores(4000), Time::from_secs(100));
    assert_eq!(consumed(&tracker), []);
    assert_eq!(tracker.due(queue()), Some(Time::from_secs(160)));
}

#[test]
fn past_usage_is_half_old_half_new_after_a_half_life() {
    let mut tracker = tracker(60, 60);
    tracker.sample(queue(), &cores(0), Time::from_secs(0));
    // 0 / 2 + 4 / 2, then 2 / 2 + 4 / 2, then 3 / 4 after two half-lives without usage.
    tracker.sample(queue(), &cores(4000), Time::from_secs(60));
    assert_eq!(consumed(&tracker), cpu(2_000_000_000));
    tracker.sample(queue(), &cores(4000), Time::from_secs(120));
    assert_eq!(consumed(&tracker), cpu(3_000_000_000));
    tracker.sample(queue(), &cores(0), Time::from_secs(240));
    assert_eq!(consumed(&tracker), cpu(750_000_000));
}

#[test]
fn penalty_is_the_usage_of_the_next_interval() {
    // Interval and half-life are equal: half of the request. A quarter of a half-life: 1 - 0.5^0.25
    // of 4 cores.
    let mut half = tracker(60, 60);
    half.add_penalty(queue(), queue_workload(), &cores(4000), Time::from_secs(0));
    assert_eq!(half.get(queue()).unwrap().total()["cpu"], 2_000_000_000);
    let mut quarter = tracker(240, 60);
    quarter.add_penalty(queue(), queue_workload(), &cores(4000), Time::from_secs(0));
    assert_eq!(quarter.get(queue()).unwrap().total()["cpu"], 636_414_338);
}

fn queue_workload() -> WorkloadId {
    use crate::fixtures::wl;
    let mut stage = crate::fixtures::Stage::new();
    stage.submit(wl("a"));
    stage.engine.workload_id(&crate::WorkloadKey::new("ns", "a"))
}

#[test]
fn admission_settles_and_refusal_removes_the_penalty() {
    let mut tracker = tracker(60, 60);
    let id = queue_workload();
    tracker.sample(queue(), &cores(0), Time::from_secs(0));
    tracker.add_penalty(queue(), id, &cores(4000), Time::from_secs(0));
    // A second penalty replaces the first.
    tracker.add_penalty(queue(), id, &cores(4000), Time::from_secs(0));
    tracker.settle(queue(), id, &cores(4000), Time::from_secs(0));
    assert_eq!(consumed(&tracker), cpu(2_000_000_000));
    assert_eq!(tracker.get(queue()).unwrap().total()["cpu"], 2_000_000_000, "nothing is pending");
    // A second settlement finds no penalty.
    tracker.settle(queue(), id, &cores(4000), Time::from_secs(0));
    assert_eq!(consumed(&tracker), cpu(2_000_000_000));
    tracker.add_penalty(queue(), id, &cores(4000), Time::from_secs(0));
    assert!(tracker.remove_penalty(queue(), id) && !tracker.remove_penalty(queue(), id));
    assert_eq!(tracker.get(queue()).unwrap().total()["cpu"], 2_000_000_000);
}

#[test]
fn status_is_restored_once() {
    let mut tracker = tracker(60, 60);
    let status = BTreeMap::from([("cpu".into(), 5_000_000_000)]);
    tracker.restore(queue(), &status, Time::from_secs(10));
    tracker.restore(queue(), &status, Time::from_secs(10));
    tracker.sample(queue(), &cores(0), Time::from_secs(10));
    assert_eq!(consumed(&tracker), cpu(5_000_000_000), "no time has passed since");
    tracker.sample(queue(), &cores(0), Time::from_secs(70));
    tracker.restore(queue(), &status, Time::from_secs(70));
    assert_eq!(consumed(&tracker), cpu(2_500_000_000));
}

#[test]
fn zero_half_life_forgets_past_usage() {
    let mut tracker = tracker(0, 60);
    tracker.sample(queue(), &cores(4000), Time::from_secs(0));
    tracker.add_penalty(queue(), queue_workload(), &cores(4000), Time::from_secs(0));
    assert_eq!(tracker.get(queue()).unwrap().total()["cpu"], 0);
    tracker.sample(queue(), &cores(4000), Time::from_secs(600));
    assert_eq!(consumed(&tracker), []);
}

#[test]
fn clock_going_back_changes_no_usage() {
    let mut tracker = tracker(60, 60);
    tracker.sample(queue(), &cores(0), Time::from_secs(100));
    tracker.sample(queue(), &cores(4000), Time::from_secs(160));
    tracker.sample(queue(), &cores(9000), Time::from_secs(40));
    assert_eq!(consumed(&tracker), cpu(2_000_000_000));
    assert_eq!(tracker.get(queue()).unwrap().last_update, Time::from_secs(160));
}

#[test]
fn usage_is_weighted_by_resource_and_queue() {
    let used = BTreeMap::from([("cpu".into(), 2_000_000_000), ("gpu".into(), 1_000_000_000)]);
    let weights = BTreeMap::from([("gpu".into(), 10.0)]);
    assert!((weighted(&used, &weights, 1000).get() - 12.0).abs() < 1e-12);
    assert!((weighted(&used, &weights, 2000).get() - 6.0).abs() < 1e-12);
    assert_eq!(weighted(&used, &weights, 0).get(), f64::INFINITY);
    assert_eq!(
        weighted(&BTreeMap::new(), &weights, 0).get(),
        f64::INFINITY,
        "even if nothing was used"
    );
    assert_eq!(
        weighted(&used, &BTreeMap::from([("gpu".into(), f64::NAN)]), 1000).get(),
        f64::INFINITY
    );
}

proptest! {
    /// Past usage without present usage halves in a half-life, in any number of steps.
    #[test]
    fn past_usage_halves_in_a_half_life(start in 1_000_000_i128..1_000_000_000_000_000, steps in 1_u64..50) {
        let half_life = 3600;
        let mut tracker = tracker(half_life, 60);
        tracker.restore(queue(), &BTreeMap::from([("memory".into(), start * UNIT)]), Time(0));
        for step in 1..=steps {
            let at = Time(i64::try_from(half_life * 1_000_000_000 / steps * step).unwrap());
            tracker.sample(queue(), &BTreeMap::new(), at);
        }
        let left = tracker.get(queue()).unwrap().consumed["memory"];
        let half = start * UNIT / 2;
        prop_assert!((left - half).abs() <= half / 1_000_000, "{left} of {start}");
    }

    /// Past usage moves towards present usage and never beyond it.
    #[test]
    fn past_usage_stays_between_old_and_present_usage(old in 0_i64..1_000_000, new in 0_i64..1_000_000, secs in 0_i64..100_000) {
        let mut tracker = tracker(600, 60);
        tracker.restore(queue(), &nanos(&cores(old)), Time(0));
        tracker.sample(queue(), &cores(new), Time::from_secs(secs));
        let got = tracker.get(queue()).unwrap().consumed["cpu"];
        let (low, high) = (i128::from(old.min(new)) * 1_000_000, i128::from(old.max(new)) * 1_000_000);
        prop_assert!(got >= low - 2 && got <= high + 2, "{got} of {old} and {new}");
    }
}
