//! Properties of the engine, over random worlds and random orders of events.
//!
//! Each property prints the seed of its run. `LAWS_SEED=<seed>` repeats the run,
//! `PROPTEST_CASES=<n>` runs more cases.
//!
//! # Power of the properties
//!
//! A property that no error of the engine can break is worthless. `cargo xtask break-engine` puts
//! errors into a copy of the engine, one after the other, and runs the property that must find
//! each. By hand, each of these errors failed "a recording replays alike" within one run: the
//! recording leaves out `preemption_issued` or `scan` (`workloads.rs`), triggers (`engine/mod.rs`),
//! or `consumed` (`afs/mod.rs`). For "repeated events change nothing", no such error is known.

mod helpful;
mod hostile;
mod minimal;
mod oracle;
mod preconditions;
mod replay;
mod script;
mod world;

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use script::{Script, any_script};
use switchyard_scheduler::{Amount, EngineGates};
use world::{Victim, World};

#[expect(clippy::panic, reason = "this is how a law fails")]
fn broken(name: &str, seed: u64, error: &dyn std::fmt::Display) -> ! {
    panic!("{name}, LAWS_SEED={seed}: {error}")
}

/// The number in an environment variable.
#[expect(clippy::panic, reason = "a seed that is not understood must not be another")]
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// The seed of a run: of `LAWS_SEED`, else random.
fn seed() -> u64 {
    number("LAWS_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

/// Checks a property over random scripts.
fn law(name: &str, check: impl Fn(&Script) -> Result<(), TestCaseError>) {
    let seed = seed();
    println!("{name}: LAWS_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    if let Err(error) = runner.run(&any_script(), |script| check(&script)) {
        broken(name, seed, &error);
    }
}

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(TestCaseError::fail(format!($($message)+)));
        }
    };
}

#[test]
fn admissions_stay_within_the_quota_tree() {
    let (admissions, preemptions, cases, checked) =
        (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    let plays = |script: &Script, released_quota_only: bool| {
        let gates = EngineGates { released_quota_only, ..EngineGates::default() };
        let mut world = World::with_gates(script.kind, gates);
        cases.set(cases.get() + 1);
        for step in &script.steps {
            let debts = world.debts();
            let admitted = world.step(step);
            if admitted.is_empty() {
                continue;
            }
            admissions.set(admissions.get() + admitted.len());
            // As in Kueue, a cycle gives the quota of its victims away while they still hold it. Later
            // cycles may choose the same victims, so the law leaves out each step with victims.
            if !released_quota_only && !world.victims_at_decision.is_empty() {
                continue;
            }
            // Sums at the ends of the amounts' range are not exact; `hostile` covers those.
            let debts_now = world
                .debts()
                .into_iter()
                .filter(|(queue, pair, _)| world.left(queue, pair).is_some());
            for (queue, pair, debt) in debts_now {
                let before = debts
                    .iter()
                    .find(|(q, p, _)| (q, p) == (&queue, &pair))
                    .map_or(Amount::ZERO, |(.., d)| *d);
                ensure!(
                    debt >= before,
                    "{queue} {pair:?} went from {before} to {debt} by admitting {admitted:?}"
                );
            }
            for (queue, pair) in world.used_by(&admitted) {
                let Some(left) = world.left(&queue, &pair) else { continue };
                checked.set(checked.get() + 1);
                ensure!(
                    left >= 0,
                    "{queue} is {left} over in {pair:?} after admitting {admitted:?}"
                );
                let available = world.available(&queue, &pair);
                let same = i128::from(available.get()) == left;
                ensure!(
                    same,
                    "{queue} says {available} is left of {pair:?}, and it should be {left}"
                );
            }
        }
        preemptions.set(
            preemptions.get() + world.log.iter().filter(|line| line.starts_with("Preempt")).count(),
        );
        Ok(())
    };
    law("no admission exceeds what the tree allows", |script| {
        plays(script, false)?;
        plays(script, true)
    });
    let (admissions, preemptions, cases) = (admissions.get(), preemptions.get(), cases.get());
    println!("{admissions} admissions and {preemptions} preemptions in {cases} worlds");
    assert!(checked.get() > 0, "what is left was never worked out");
    let busy = admissions >= cases && (preemptions > 0 || cases < 200);
    assert!(busy, "hardly anything happens, so the laws say nothing");
}

#[test]
fn admitted_workloads_are_entitled() {
    law("who is admitted is entitled to what it gets", |script| {
        let mut world = World::new(script.kind);
        for step in &script.steps {
            for key in world.step(step) {
                let objection = world.objection(&key);
                ensure!(objection.is_none(), "{key} was admitted although {objection:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn preemptions_admit_their_preemptor() {
    let (preemptors, single) = (Cell::new(0), Cell::new(0));
    law("who is preempted for makes its way in", |script| {
        let mut world = World::new(script.kind);
        for step in &script.steps {
            world.step(step);
            for victim in &world.victims {
                let policy_violation = world.policy_violation(victim);
                let Victim { key, preemptor, .. } = victim;
                ensure!(
                    policy_violation.is_none(),
                    "{key} was told to go for {preemptor} although {policy_violation:?}"
                );
            }
            for victim in world.victims.iter().filter(|_| world.everything_is_written()) {
                let Victim { key, preemptor, .. } = victim;
                ensure!(
                    !world.was_needless(victim),
                    "{key} was told to go for {preemptor}, which fits without"
                );
            }
            // Flavors of several pod sets are chosen in sequence. With more free quota, the first
            // pod set may choose otherwise and leave too little for the next.
            preemptors.set(preemptors.get() + world.preemptors.len());
            let to_check =
                |preemptor: &&_| world.everything_is_written() && world.has_one_pod_set(preemptor);
            for preemptor in world.preemptors.iter().filter(to_check) {
                single.set(single.get() + 1);
                ensure!(
                    world.fits_alone(preemptor),
                    "others went for {preemptor}, which still does not fit"
                );
            }
        }
        Ok(())
    });
    println!("{} preemptions, {} of them checked", preemptors.get(), single.get());
}

#[test]
fn deleted_workloads_leave_no_trace() {
    law("what came and went leaves no trace", |script| {
        let mut world = World::new(script.kind);
        for step in &script.steps {
            world.step(step);
        }
        world.delete_all_workloads();
        for view in world.queues() {
            let used = view.quota.iter().any(|quota| quota.reserved != Amount::ZERO);
            ensure!(!used, "{} still uses {:?}", view.name, view.quota);
            let counts =
                (view.pending_active, view.pending_inadmissible, view.reserving, view.admitted);
            ensure!(counts == (0, 0, 0, 0), "{} still counts {counts:?}", view.name);
        }
        for view in world.local_queues() {
            let counts = (view.pending, view.reserving, view.admitted);
            ensure!(counts == (0, 0, 0), "{} still counts {counts:?}", view.key);
            ensure!(
                view.reservation.iter().all(|usage| usage.total == Amount::ZERO),
                "{} still uses",
                view.key
            );
        }
        Ok(())
    });
}

#[test]
fn equal_events_give_equal_decisions() {
    law("the same events give the same decisions", |script| {
        let (mut one, mut other) = (World::new(script.kind), World::new(script.kind));
        for step in &script.steps {
            one.step(step);
            other.step(step);
        }
        ensure!(one.log == other.log, "{:#?}\n{:#?}", one.log, other.log);
        Ok(())
    });
}

#[test]
fn repeated_events_change_no_decision() {
    law("repeated events change nothing", |script| {
        let (mut one, mut other) = (World::new(script.kind), World::new(script.kind));
        // Any event of a victim confirms or withdraws its eviction.
        (one.victims_leave_at_once, other.victims_leave_at_once) = (true, true);
        for step in &script.steps {
            one.step(step);
            other.step(step);
            other.repeat_event(step);
        }
        ensure!(one.log == other.log, "{:#?}\n{:#?}", one.log, other.log);
        Ok(())
    });
}

#[test]
fn order_of_the_initial_list_changes_no_decision() {
    law("the order of listing does not matter", |script| {
        let mut world = World::new(script.kind);
        for step in &script.steps {
            world.step(step);
        }
        let (mut one, mut other) = (world.restarted(false), world.restarted(true));
        for _ in 0..20 {
            one.cycle();
            other.cycle();
        }
        ensure!(one.log == other.log, "{:#?}\n{:#?}", one.log, other.log);
        Ok(())
    });
}

#[test]
fn restarted_engine_shows_the_same_views() {
    law("a restart shows the same", |script| {
        let mut world = World::new(script.kind);
        for step in &script.steps {
            world.step(step);
        }
        let fresh = world.restarted(false);
        for (old, new) in world.queues().zip(fresh.queues()) {
            ensure!(old.name == new.name && old.active == new.active, "{old:#?}\n{new:#?}");
            ensure!(old.quota == new.quota, "{:#?}\n{:#?}", old.quota, new.quota);
            ensure!(old.usage == new.usage, "{:#?}\n{:#?}", old.usage, new.usage);
            let counts = |view: &switchyard_scheduler::ClusterQueueView<'_>| {
                (view.pending_active + view.pending_inadmissible, view.reserving, view.admitted)
            };
            ensure!(counts(&old) == counts(&new), "{old:#?}\n{new:#?}");
        }
        for (old, new) in world.local_queues().zip(fresh.local_queues()) {
            let counts = |view: &switchyard_scheduler::LocalQueueView<'_>| {
                (view.pending, view.reserving, view.admitted)
            };
            ensure!(counts(&old) == counts(&new), "{old:#?}\n{new:#?}");
            ensure!(old.reservation == new.reservation, "{old:#?}\n{new:#?}");
        }
        Ok(())
    });
}

#[test]
fn strict_head_is_never_overtaken() {
    law("a strict head is never overtaken", |script| {
        let mut world = World::new(script.kind);
        for step in &script.steps {
            let heads = world.strict_heads();
            let parked_without_cause = world.parked_without_cause();
            ensure!(
                parked_without_cause.is_none(),
                "{parked_without_cause:?} is parked in a strict queue"
            );
            let admitted = world.step(step);
            for (queue, name) in world.admissions_of(&admitted) {
                let head = heads.get(&queue);
                ensure!(
                    head.is_none_or(|head| *head == name),
                    "{name} overtook {head:?} in {queue}"
                );
            }
        }
        Ok(())
    });
}

#[test]
fn every_pending_workload_has_a_reason() {
    law("every pending workload has a reason", |script| {
        let mut world = World::new(script.kind);
        for step in &script.steps {
            world.step(step);
        }
        for name in world.without_quota() {
            let why = world.engine.why(&name);
            ensure!(
                why.as_ref().is_some_and(|why| !why.condition_reason().is_empty()),
                "{name} has no reason"
            );
            ensure!(why.is_some_and(|why| !why.message().is_empty()), "{name} has no message");
        }
        Ok(())
    });
}
