//! Figures computed by hand, and the laws of decay.

use proptest::prelude::*;

use super::*;
use crate::{LocalQueueKey, workloads::LocalQueues};

fn queue() -> LqId {
    LocalQueues::default().intern(&LocalQueueKey::new("ns", "a"))
}

fn ledger(half_life: u64, interval: u64) -> Ledger {
    Ledger::new(AdmissionFairSharing {
        half_life: Duration::from_secs(half_life),
        sampling_interval: Duration::from_secs(interval),
        resource_weights: BTreeMap::new(),
    })
}

fn cores(millis: i64) -> BTreeMap<Name, Amount> {
    BTreeMap::from([("cpu".into(), Amount::new(millis))])
}

fn consumed(ledger: &Ledger) -> Vec<(String, i128)> {
    let entry = ledger.get(queue()).expect("it was sampled");
    entry.consumed.iter().map(|(name, nanos)| (name.to_string(), *nanos)).collect()
}

fn cpu(nanos: i128) -> Vec<(String, i128)> {
    vec![("cpu".to_owned(), nanos)]
}

#[test]
fn the_first_sample_starts_the_clock_and_counts_nothing() {
    let mut ledger = ledger(60, 60);
    ledger.sample(queue(), &cores(4000), Time::from_secs(100));
    assert_eq!(consumed(&ledger), []);
    assert_eq!(ledger.due(queue()), Some(Time::from_secs(160)));
}

#[test]
fn after_a_half_life_half_is_old_and_half_is_new() {
    let mut ledger = ledger(60, 60);
    ledger.sample(queue(), &cores(0), Time::from_secs(0));
    // 0 / 2 + 4 / 2, then 2 / 2 + 4 / 2, then 3 / 4 of nothing new after two half-lives.
    ledger.sample(queue(), &cores(4000), Time::from_secs(60));
    assert_eq!(consumed(&ledger), cpu(2_000_000_000));
    ledger.sample(queue(), &cores(4000), Time::from_secs(120));
    assert_eq!(consumed(&ledger), cpu(3_000_000_000));
    ledger.sample(queue(), &cores(0), Time::from_secs(240));
    assert_eq!(consumed(&ledger), cpu(750_000_000));
}

#[test]
fn the_penalty_is_what_the_next_interval_will_bring() {
    // Half of what is asked, as interval and half-life are equal; a quarter of a half-life: 1 - 0.5^0.25 of 4 cores.
    let mut half = ledger(60, 60);
    half.penalise(queue(), queue_workload(), &cores(4000), Time::from_secs(0));
    assert_eq!(half.get(queue()).unwrap().total()["cpu"], 2_000_000_000);
    let mut quarter = ledger(240, 60);
    quarter.penalise(queue(), queue_workload(), &cores(4000), Time::from_secs(0));
    assert_eq!(quarter.get(queue()).unwrap().total()["cpu"], 636_414_338);
}

fn queue_workload() -> WlId {
    use crate::fixtures::wl;
    let mut stage = crate::fixtures::Stage::new();
    stage.submit(wl("a"));
    stage.engine.workload_id(&crate::WorkloadKey::new("ns", "a"))
}

#[test]
fn an_admission_turns_the_penalty_into_past_use_and_a_refusal_takes_it_back() {
    let mut ledger = ledger(60, 60);
    let id = queue_workload();
    ledger.sample(queue(), &cores(0), Time::from_secs(0));
    ledger.penalise(queue(), id, &cores(4000), Time::from_secs(0));
    // Pushed again: instead of the first.
    ledger.penalise(queue(), id, &cores(4000), Time::from_secs(0));
    ledger.settle(queue(), id, &cores(4000), Time::from_secs(0));
    assert_eq!(consumed(&ledger), cpu(2_000_000_000));
    assert_eq!(ledger.get(queue()).unwrap().total()["cpu"], 2_000_000_000, "nothing is pending");
    // A second settlement finds no penalty.
    ledger.settle(queue(), id, &cores(4000), Time::from_secs(0));
    assert_eq!(consumed(&ledger), cpu(2_000_000_000));
    ledger.penalise(queue(), id, &cores(4000), Time::from_secs(0));
    assert!(ledger.absolve(queue(), id) && !ledger.absolve(queue(), id));
    assert_eq!(ledger.get(queue()).unwrap().total()["cpu"], 2_000_000_000);
}

#[test]
fn a_status_is_taken_over_once() {
    let mut ledger = ledger(60, 60);
    let status = BTreeMap::from([("cpu".into(), 5_000_000_000)]);
    ledger.restore(queue(), &status, Time::from_secs(10));
    ledger.restore(queue(), &status, Time::from_secs(10));
    ledger.sample(queue(), &cores(0), Time::from_secs(10));
    assert_eq!(consumed(&ledger), cpu(5_000_000_000), "no time has passed since");
    ledger.sample(queue(), &cores(0), Time::from_secs(70));
    ledger.restore(queue(), &status, Time::from_secs(70));
    assert_eq!(consumed(&ledger), cpu(2_500_000_000));
}

#[test]
fn without_a_half_life_nothing_is_remembered() {
    let mut ledger = ledger(0, 60);
    ledger.sample(queue(), &cores(4000), Time::from_secs(0));
    ledger.penalise(queue(), queue_workload(), &cores(4000), Time::from_secs(0));
    assert_eq!(ledger.get(queue()).unwrap().total()["cpu"], 0);
    ledger.sample(queue(), &cores(4000), Time::from_secs(600));
    assert_eq!(consumed(&ledger), []);
}

#[test]
fn a_clock_that_goes_back_changes_nothing() {
    let mut ledger = ledger(60, 60);
    ledger.sample(queue(), &cores(0), Time::from_secs(100));
    ledger.sample(queue(), &cores(4000), Time::from_secs(160));
    ledger.sample(queue(), &cores(9000), Time::from_secs(40));
    assert_eq!(consumed(&ledger), cpu(2_000_000_000));
    assert_eq!(ledger.get(queue()).unwrap().last_update, Time::from_secs(160));
}

#[test]
fn use_is_weighted_by_resource_and_by_queue() {
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
    /// Past use without present use halves in a half-life, in however many steps.
    #[test]
    fn decay_halves_in_a_half_life(start in 1_000_000_i128..1_000_000_000_000_000, steps in 1_u64..50) {
        let half_life = 3600;
        let mut ledger = ledger(half_life, 60);
        ledger.restore(queue(), &BTreeMap::from([("memory".into(), start * UNIT)]), Time(0));
        for step in 1..=steps {
            let at = Time(i64::try_from(half_life * 1_000_000_000 / steps * step).unwrap());
            ledger.sample(queue(), &BTreeMap::new(), at);
        }
        let left = ledger.get(queue()).unwrap().consumed["memory"];
        let half = start * UNIT / 2;
        prop_assert!((left - half).abs() <= half / 1_000_000, "{left} of {start}");
    }

    /// Past use moves towards what is in use and never beyond it.
    #[test]
    fn past_use_stays_between_what_it_was_and_what_is(old in 0_i64..1_000_000, new in 0_i64..1_000_000, secs in 0_i64..100_000) {
        let mut ledger = ledger(600, 60);
        ledger.restore(queue(), &nanos(&cores(old)), Time(0));
        ledger.sample(queue(), &cores(new), Time::from_secs(secs));
        let got = ledger.get(queue()).unwrap().consumed["cpu"];
        let (low, high) = (i128::from(old.min(new)) * 1_000_000, i128::from(old.max(new)) * 1_000_000);
        prop_assert!(got >= low - 2 && got <= high + 2, "{got} of {old} and {new}");
    }
}
