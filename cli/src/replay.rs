//! `switchyard debug replay FILE`: whether the engine repeats its recorded decisions.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::Context as _;
use jiff::Timestamp;
use switchyard_scheduler::Time;
use switchyard_scheduler::record::{ReplayError, Summary};

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The recording, as written by --record of a hub or an agent.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Replays a recording and summarizes it.
///
/// # Errors
/// The first difference, or why the file cannot be replayed.
pub fn run(args: &Args) -> anyhow::Result<String> {
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("{name}: cannot be read"))?;
    match switchyard_scheduler::record::replay(BufReader::new(file)) {
        Ok(summary) => Ok(render(&summary)),
        Err(ReplayError::Different(difference)) => {
            anyhow::bail!("{name} at {}, {difference}", time(difference.at))
        }
        Err(error) => anyhow::bail!("{name}: {error}"),
    }
}

fn render(summary: &Summary) -> String {
    let Summary { events, cycles, admissions, preemptions, begin, end, truncated } = summary;
    let mut text = String::from("identical: every cycle decides again what is recorded\n");
    let span = end.since(*begin);
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<12} {value}");
    };
    line("events", events.to_string());
    line("cycles", cycles.to_string());
    line("admissions", admissions.to_string());
    line("preemptions", preemptions.to_string());
    line("from", time(*begin));
    line("to", format!("{} ({:.1} s)", time(*end), span.as_secs_f64()));
    if *truncated {
        line("note", "the last line is not whole and was left out".to_owned());
    }
    text
}

fn time(at: Time) -> String {
    Timestamp::from_nanosecond(at.0.into()).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use switchyard_scheduler::{Engine, EngineSettings, Event, WorkloadKey, record};

    use super::*;

    fn recording() -> String {
        let mut engine = Engine::new(EngineSettings::default());
        let at = Time::from_secs(1_763_740_800);
        let later = at.plus(std::time::Duration::from_millis(1500));
        let mut text = record::header(&engine, at).unwrap();
        let event = Event::Retry { key: WorkloadKey::new("ns", "job") };
        text += &record::event(&event, at).unwrap();
        engine.apply(event, at);
        text += &record::cycle(&engine.cycle(later), later).unwrap();
        text
    }

    fn replayed(text: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("engine.jsonl");
        std::fs::write(&file, text).unwrap();
        let dir = format!("{}/", dir.path().display());
        run(&Args { file }).map_err(|error| format!("{error:#}").replace(&dir, ""))
    }

    #[test]
    fn identical_replay_is_summarized() {
        insta::assert_snapshot!(replayed(&recording()).unwrap(), @r"
        identical: every cycle decides again what is recorded
        events       1
        cycles       1
        admissions   0
        preemptions  0
        from         2025-11-21T16:00:00Z
        to           2025-11-21T16:00:01.5Z (1.5 s)
        ");
    }

    #[test]
    fn first_difference_is_shown() {
        let other = recording().replace(r#""number":0"#, r#""number":7"#);
        insta::assert_snapshot!(replayed(&other).unwrap_err(), @r"
        engine.jsonl at 2025-11-21T16:00:01.5Z, line 3: cycle 7 decides otherwise
          recorded:
            cycle 7, idle: true
          now:
            cycle 0, idle: true
        ");
    }

    #[test]
    fn incomplete_last_line_is_skipped_with_a_note() {
        let whole = recording();
        let cut = &whole[..whole.len() - 20];
        insta::assert_snapshot!(replayed(cut).unwrap(), @r"
        identical: every cycle decides again what is recorded
        events       1
        cycles       0
        admissions   0
        preemptions  0
        from         2025-11-21T16:00:00Z
        to           2025-11-21T16:00:00Z (0.0 s)
        note         the last line is not whole and was left out
        ");
    }

    #[test]
    fn invalid_recording_is_reported_with_its_line() {
        let recorded = recording();
        let message = |text: &str| replayed(text).unwrap_err();
        insta::assert_snapshot!(message(""), @"engine.jsonl: is empty; name a file that --record wrote");
        insta::assert_snapshot!(message("{}\n"), @"engine.jsonl: line 1 is not the header of a recording: missing field `recording` at line 1 column 2");
        insta::assert_snapshot!(message("apiVersion: v1\n"), @"engine.jsonl: line 1 is not the header of a recording: expected value at line 1 column 1");
        let header = &recorded[..recorded.find('\n').unwrap() / 2];
        assert!(message(header).starts_with(
            "engine.jsonl: line 1 is not the header of a recording: EOF while parsing"
        ));
        insta::assert_snapshot!(message(&recorded.replacen(r#"{"recording":1,"#, r#"{"recording":7,"#, 1)), @"engine.jsonl: has version 7 of the format; this program replays version 1");
        let garbage = recorded.replacen("\n", "\nno step\n", 1);
        insta::assert_snapshot!(message(&garbage), @"engine.jsonl: line 2 is not a recorded step: expected value at line 1 column 1");
    }

    #[test]
    fn unreadable_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Args { file: dir.path().join("missing.jsonl") };
        let message = format!("{:#}", run(&missing).unwrap_err());
        assert!(
            message
                .ends_with("missing.jsonl: cannot be read: No such file or directory (os error 2)"),
            "{message}"
        );
        let message = format!("{:#}", run(&Args { file: dir.path().into() }).unwrap_err());
        assert!(message.ends_with(": cannot be read: Is a directory (os error 21)"), "{message}");
    }
}
