//! Recordings replay with equal decisions.

use std::cell::Cell;
use std::io::Read as _;

use flate2::read::GzDecoder;
use proptest::test_runner::TestCaseError;
use switchyard_scheduler::record::{self, ReplayError, Summary, replay, restore};

use crate::law;
use crate::script::EngineKind;
use crate::world::World;

/// Replays a recording. Fails on a different decision or a different final state.
fn replayed(recording: &str, world: &World) -> Result<Summary, TestCaseError> {
    let failed = |error: &dyn std::fmt::Display| TestCaseError::fail(error.to_string());
    let (engine, summary) = restore(recording.as_bytes()).map_err(|error| failed(&error))?;
    let state = |engine| record::header(engine, world.now).map_err(|error| failed(&error));
    if state(&engine)? != state(&world.engine)? {
        return Err(failed(&format!(
            "another state at the end:\n{engine:#?}\n{:#?}",
            world.engine
        )));
    }
    Ok(summary)
}

#[test]
fn recording_from_any_time_replays_equally() {
    let (cycles, admissions, preemptions) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let by_usage = Cell::new(0);
    law("a recording replays alike", |script| {
        let mut world = World::new(script.kind);
        let every = (script.steps.len() / 5).max(1);
        for (number, step) in script.steps.iter().enumerate() {
            if number % every == 0 {
                world.begin_recording();
            }
            world.step(step);
            if number % 7 == 0 {
                world.flush();
            }
        }
        for recording in &world.recordings {
            let summary = replayed(recording, &world)?;
            cycles.set(cycles.get() + summary.cycles);
            admissions.set(admissions.get() + summary.admissions);
            preemptions.set(preemptions.get() + summary.preemptions);
            by_usage.set(
                by_usage.get()
                    + if matches!(script.kind, EngineKind::Sharing) {
                        summary.admissions
                    } else {
                        0
                    },
            );
        }
        Ok(())
    });
    println!(
        "{} cycles, {} admissions, {} preemptions",
        cycles.get(),
        admissions.get(),
        preemptions.get()
    );
    let some = cycles.get() == 0 || (admissions.get() > 0 && by_usage.get() > 0);
    assert!(some, "nothing is decided, so the law says nothing");
}

#[expect(clippy::expect_used, reason = "the test is about such a world")]
/// A recording of a world with admissions.
fn recording() -> String {
    let found: Cell<Option<String>> = Cell::new(None);
    law("something is admitted", |script| {
        let mut world = World::new(script.kind);
        world.begin_recording();
        let admitted = script.steps.iter().filter(|step| !world.step(step).is_empty()).count();
        if admitted > 2 {
            found.set(world.recordings.pop());
        }
        Ok(())
    });
    found.into_inner().expect("some world admits")
}

#[test]
fn replay_finds_changed_decisions_and_skips_a_cut_line() {
    let recording = recording();
    let whole = replay(recording.as_bytes()).expect("it replays");
    assert!(!whole.truncated);

    let (cut, _) = recording.trim_end().rsplit_once('\n').expect("lines");
    let cut = format!("{cut}\n{{\"cycle\":{{\"at\":1");
    assert!(replay(cut.as_bytes()).expect("the last line is left out").truncated);

    let other = recording.replacen(
        "\"Reserve\":{\"key\":{\"namespace\":\"n",
        "\"Reserve\":{\"key\":{\"namespace\":\"m",
        1,
    );
    assert_ne!(other, recording);
    match replay(other.as_bytes()) {
        Err(ReplayError::Different(difference)) => {
            assert!(difference.recorded[0].contains("\"m"), "{difference}");
            assert!(difference.decided[0].contains("\"n"), "{difference}");
        }
        other => panic!("{other:?}"),
    }

    let other = recording.replacen("{\"recording\":1,", "{\"recording\":2,", 1);
    assert!(matches!(replay(other.as_bytes()), Err(ReplayError::Version(2))));
    assert!(matches!(replay("no recording\n".as_bytes()), Err(ReplayError::Line { line: 1, .. })));
    assert!(matches!(replay("".as_bytes()), Err(ReplayError::Empty)));
}

/// Recordings of an earlier release. A renamed field or variant must keep its recorded name.
#[test]
fn recordings_of_an_earlier_release_replay() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/laws/recordings");
    for file in ["classical", "fair-sharing", "admission-fair-sharing"] {
        let file = std::fs::File::open(format!("{directory}/{file}.jsonl.gz")).expect("it exists");
        let mut text = String::new();
        GzDecoder::new(file).read_to_string(&mut text).expect("it is text");
        let summary = replay(text.as_bytes()).expect("it replays");
        assert!(summary.cycles > 0);

        let header = text.lines().next().unwrap_or_default();
        let (engine, summary) = restore(header.as_bytes()).expect("its header is read");
        let written = record::header(&engine, summary.begin).expect("its header is written");
        assert_eq!(written.trim_end(), header);
    }
}
