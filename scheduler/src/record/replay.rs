//! Replay of recordings.

use std::fmt;
use std::io::BufRead;

use serde_json::Value;

use super::{Header, Line, VERSION};
use crate::{Engine, Time};

/// The contents of a recording that replayed without a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub events: u64,
    pub cycles: u64,
    /// Decided reservations.
    pub admissions: u64,
    /// Issued preemptions.
    pub preemptions: u64,
    /// The header's time.
    pub begin: Time,
    /// The last line's time.
    pub end: Time,
    /// The last line was incomplete, because the recording program stopped. It was skipped.
    pub truncated: bool,
}

/// The first cycle with other decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// From 1.
    pub line: u64,
    pub cycle: u64,
    pub at: Time,
    /// The recorded decisions from the first difference on, one JSON line each.
    pub recorded: Vec<String>,
    /// The new decisions from the first difference on, one JSON line each.
    pub decided: Vec<String>,
}

#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    Read(std::io::Error),
    /// There is not even a header.
    Empty,
    /// A line is neither a header nor a step.
    Line {
        /// From 1.
        line: u64,
        error: serde_json::Error,
    },
    Version(u64),
    /// A cycle decided otherwise.
    Different(Box<Difference>),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot be read: {error}"),
            Self::Empty => f.write_str("is empty; name a file that --record wrote"),
            Self::Line { line: 1, error } => {
                write!(f, "line 1 is not the header of a recording: {error}")
            }
            Self::Line { line, error } => write!(f, "line {line} is not a recorded step: {error}"),
            Self::Version(version) => {
                write!(
                    f,
                    "has version {version} of the format; this program replays version {VERSION}"
                )
            }
            Self::Different(difference) => difference.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "line {}: cycle {} decides otherwise", self.line, self.cycle)?;
        let mut list = |title: &str, lines: &[String]| {
            writeln!(f, "  {title}")?;
            match lines {
                [] => writeln!(f, "    nothing more"),
                lines => lines.iter().try_for_each(|line| writeln!(f, "    {line}")),
            }
        };
        list("recorded:", &self.recorded)?;
        list("now:", &self.decided)
    }
}

/// Replays a recording and compares the decisions of each cycle.
///
/// # Errors
/// [`ReplayError`]. The first difference ends the replay.
pub fn replay(recording: impl BufRead) -> Result<Summary, ReplayError> {
    restore(recording).map(|(_, summary)| summary)
}

/// As [`replay`], and returns the engine in its final state.
///
/// # Errors
/// As [`replay`].
pub fn restore(mut recording: impl BufRead) -> Result<(Engine, Summary), ReplayError> {
    let mut text = Vec::new();
    if recording.read_until(b'\n', &mut text).map_err(ReplayError::Read)? == 0 {
        return Err(ReplayError::Empty);
    }
    let (mut engine, mut summary) = begin(&text)?;
    for number in 2.. {
        text.clear();
        if recording.read_until(b'\n', &mut text).map_err(ReplayError::Read)? == 0 {
            break;
        }
        let line = match serde_json::from_slice(&text) {
            Ok(line) => line,
            Err(_) if text.last() != Some(&b'\n') => {
                summary.truncated = true;
                break;
            }
            Err(error) => return Err(ReplayError::Line { line: number, error }),
        };
        step(&mut engine, line, number, &mut summary)?;
    }
    Ok((engine, summary))
}

fn begin(text: &[u8]) -> Result<(Engine, Summary), ReplayError> {
    let wrong = |error| ReplayError::Line { line: 1, error };
    match serde_json::from_slice::<Header>(text) {
        Ok(mut header) if header.recording == VERSION => {
            header.engine.restore_derived_state();
            Ok((header.engine, Summary { begin: header.at, end: header.at, ..Summary::default() }))
        }
        Ok(header) => Err(ReplayError::Version(header.recording.into())),
        // The state of another version may not parse, but its version number does.
        Err(error) => match serde_json::from_slice::<Value>(text)
            .ok()
            .and_then(|value| value["recording"].as_u64())
        {
            Some(version) if version != u64::from(VERSION) => Err(ReplayError::Version(version)),
            _ => Err(wrong(error)),
        },
    }
}

fn step(
    engine: &mut Engine,
    line: Line,
    number: u64,
    summary: &mut Summary,
) -> Result<(), ReplayError> {
    match line {
        Line::Event { at, what } => {
            engine.apply(what, at);
            summary.events += 1;
            summary.end = at;
        }
        Line::Flush { at } => {
            engine.flush_inadmissible(at);
            summary.end = at;
        }
        Line::Cycle { at, number: cycle, idle, decisions } => {
            let now = engine.cycle(at);
            let values =
                now.decisions.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
            let decided = values.map_err(|error| ReplayError::Line { line: number, error })?;
            if decided != decisions || (now.number, now.idle) != (cycle, idle) {
                let same =
                    decided.iter().zip(&decisions).take_while(|(one, other)| one == other).count();
                let rest = |all: &[Value], idle: bool, number: u64| {
                    let rest = all.iter().skip(same).map(Value::to_string);
                    rest.chain([format!("cycle {number}, idle: {idle}")]).collect()
                };
                let (recorded, decided) =
                    (rest(&decisions, idle, cycle), rest(&decided, now.idle, now.number));
                let difference = Difference { line: number, cycle, at, recorded, decided };
                return Err(ReplayError::Different(Box::new(difference)));
            }
            let count = |kind: &str| {
                decisions.iter().filter(|decision| decision.get(kind).is_some()).count() as u64
            };
            summary.cycles += 1;
            summary.admissions += count("Reserve");
            summary.preemptions += count("Preempt");
            summary.end = at;
        }
    }
    Ok(())
}
