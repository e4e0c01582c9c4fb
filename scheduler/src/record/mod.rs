//! Recordings of an engine's events and decisions, for replays.
//!
//! A recording is a text of JSON lines. The first line is a header: the version of the format and
//! the engine's whole state, settings included. So a recording may start at any time. Each later
//! line is an event, a cycle with its decisions, or a flush of due triggers, with its time.
//! [`replay`] restores the engine from the header and repeats the steps. Each cycle must decide
//! what is recorded.
//!
//! This module reads and writes no files. The caller stores the lines of [`header`], [`event`],
//! [`flush`] and [`cycle`] in the order of the engine's steps.

mod replay;

use serde::{Deserialize, Serialize};

pub use replay::{Difference, ReplayError, Summary, replay, restore};

use crate::{Cycle, Decision, Engine, Event, Time};

/// Other versions are refused, because their state is unknown.
pub const VERSION: u32 = 1;

/// The first line, for reading.
#[derive(Deserialize)]
struct Header {
    recording: u32,
    at: Time,
    engine: Engine,
}

/// The first line, for writing.
#[derive(Serialize)]
struct HeaderOf<'a> {
    recording: u32,
    at: Time,
    engine: &'a Engine,
}

/// A step, for reading.
#[derive(Deserialize)]
enum Line {
    #[serde(rename = "event")]
    Event { at: Time, what: Event },
    #[serde(rename = "flush")]
    Flush { at: Time },
    #[serde(rename = "cycle")]
    Cycle { at: Time, number: u64, idle: bool, decisions: Vec<serde_json::Value> },
}

/// A step, for writing.
#[derive(Serialize)]
enum LineOf<'a> {
    #[serde(rename = "event")]
    Event { at: Time, what: &'a Event },
    #[serde(rename = "flush")]
    Flush { at: Time },
    #[serde(rename = "cycle")]
    Cycle { at: Time, number: u64, idle: bool, decisions: &'a [Decision] },
}

/// The first line of a recording. Its size is that of the engine's state.
///
/// # Errors
/// The encoder's. No state causes one.
pub fn header(engine: &Engine, now: Time) -> serde_json::Result<String> {
    line(&HeaderOf { recording: VERSION, at: now, engine })
}

/// The line of an event.
///
/// # Errors
/// The encoder's. No event causes one.
pub fn event(event: &Event, now: Time) -> serde_json::Result<String> {
    line(&LineOf::Event { at: now, what: event })
}

/// The line of a call of [`Engine::flush_inadmissible`].
///
/// # Errors
/// The encoder's.
pub fn flush(now: Time) -> serde_json::Result<String> {
    line(&LineOf::Flush { at: now })
}

/// The line of a cycle with its decisions.
///
/// # Errors
/// The encoder's. No decision causes one.
pub fn cycle(cycle: &Cycle, now: Time) -> serde_json::Result<String> {
    line(&LineOf::Cycle {
        at: now,
        number: cycle.number,
        idle: cycle.idle,
        decisions: &cycle.decisions,
    })
}

fn line(of: &impl Serialize) -> serde_json::Result<String> {
    let mut text = serde_json::to_string(of)?;
    text.push('\n');
    Ok(text)
}
