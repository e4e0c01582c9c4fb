//! No law breaks under any fault, and each law can break: it finds every mutation of the code.

use rstest::rstest;
use switchyard_simulation::plan::{Fault, FaultKind};
use switchyard_simulation::{EXCUSES, FAULTS, Law, Mutation, Plan, explain, search, search_for};

/// For every test run. `cargo xtask simulate --seeds N` plays more.
const SEEDS: u64 = 1_000;

/// How often each fault must have an effect in these seeds.
const FAULT_FLOOR: u64 = 3;

/// How often each excuse must be needed.
const EXCUSE_FLOOR: u64 = 1;

#[test]
fn thousand_seeds_break_no_law() {
    let found = search(0, SEEDS, None, true);
    if let Some((seed, violation)) = found.failures.first() {
        panic!("{}", explain(*seed, violation, None, false));
    }
    println!("{} seeds, {} steps\n{}", found.seeds, found.steps, found.reached);
    // Seeds that rarely reach a fault or need an excuse prove little about it.
    let floors = FAULTS
        .iter()
        .map(|what| (what, FAULT_FLOOR))
        .chain(EXCUSES.iter().map(|what| (what, EXCUSE_FLOOR)));
    let rare: Vec<&&str> = floors
        .filter(|(what, floor)| found.reached.of(what) < *floor)
        .map(|(what, _)| what)
        .collect();
    assert!(rare.is_empty(), "hardly reached in {SEEDS} seeds: {rare:?}\n{}", found.reached);
}

#[test]
fn same_seed_gives_the_same_trace() {
    let plan = Plan::of(7);
    let first = switchyard_simulation::guarded(&plan, None, true).trace;
    assert!(!first.is_empty());
    assert_eq!(first, switchyard_simulation::guarded(&plan, None, true).trace);
}

#[test]
fn panic_of_a_run_breaks_its_law() {
    let nowhere = FaultKind::AgentCrash { cluster: usize::MAX, fin: true };
    let fault = Fault { at: 1, until: 2, kind: nowhere };
    let plan = Plan { faults: vec![fault], ..Plan::of(7) };
    let violation = switchyard_simulation::guarded(&plan, None, false).violation;
    assert_eq!(violation.map(|it| it.law), Some(Law::Panic));
}

#[rstest]
#[case::run_before_written(Mutation::RunBeforeWritten, Law::WrittenFirst)]
#[case::ack_before_written(Mutation::AckBeforeWritten, Law::EndedOnce)]
#[case::forget_tombstones(Mutation::ForgetTombstones, Law::NoOrphans)]
#[case::ignore_epoch(Mutation::IgnoreEpoch, Law::Deposed)]
#[case::no_inventory(Mutation::NoInventory, Law::Quota)]
#[case::release_at_eviction(Mutation::ReleaseAtEviction, Law::Quota)]
#[case::forget_attempt(Mutation::ForgetAttempt, Law::Liveness)]
#[case::wait_for_all(Mutation::WaitForAll, Law::Isolation)]
#[case::no_finalizer(Mutation::NoFinalizer, Law::EndedOnce)]
#[case::delete_by_name(Mutation::DeleteByName, Law::Foreign)]
#[case::no_fence(Mutation::NoFence, Law::OneRuns)]
#[case::give_up_early(Mutation::GiveUpEarly, Law::OneRuns)]
#[case::give_up_held(Mutation::GiveUpHeld, Law::OneRuns)]
#[case::no_breaker(Mutation::NoBreaker, Law::Careful)]
#[case::forget_memory(Mutation::ForgetMemory, Law::OneRuns)]
#[case::forget_memory_and_sweep(Mutation::ForgetMemory, Law::Forgotten)]
#[case::count_silent(Mutation::CountSilent, Law::OneRuns)]
#[case::forget_unable(Mutation::ForgetUnable, Law::OneRuns)]
#[case::forget_word(Mutation::ForgetWord, Law::OneRuns)]
#[case::keep_priority(Mutation::KeepPriority, Law::InStep)]
#[case::open_all(Mutation::OpenAll, Law::OnePreempts)]
#[case::hide_why(Mutation::HideWhy, Law::InPlace)]
#[case::write_blind(Mutation::WriteBlind, Law::Quota)]
#[case::say_lost(Mutation::SayLost, Law::OneRuns)]
#[case::delete_first(Mutation::DeleteFirst, Law::OneRuns)]
#[case::forget_moves(Mutation::ForgetMoves, Law::Stuck)]
#[case::unready_for_ever(Mutation::UnreadyForEver, Law::Stuck)]
#[case::drop_pins(Mutation::DropPins, Law::Pinned)]
fn mutation_breaks_its_law(#[case] mutation: Mutation, #[case] law: Law) {
    let found = search_for(Some(law), 0, SEEDS, Some(mutation), true);
    let Some((seed, violation)) = found.failures.first() else {
        panic!("{} did not break {law:?} in {SEEDS} seeds", mutation.name());
    };
    println!(
        "{}: {} of {} seeds, seed {seed}: {violation}",
        mutation.name(),
        found.failures.len(),
        found.seeds
    );
}
