//! Recordings: what an engine was told and what it decided, so that the decisions can be made again.
//!
//! A recording is a text of JSON lines. The first one is a header with the version of the format and the whole state of
//! the engine then, settings included; so a recording may begin at any moment. Each of the others is an event, a cycle
//! with its decisions, or the passing of time that moved parked workloads, with its time. An engine that [`replay`]
//! makes from the header takes the same steps; each cycle must decide what is recorded.
//!
//! Nothing here reads or writes files: the caller has the lines of [`header`], [`event`], [`flush`] and [`cycle`] to keep,
//! in the order in which the engine did these things.

mod replay;

use serde::{Deserialize, Serialize};

pub use replay::{Difference, ReplayError, Summary, replay, restore};

use crate::{Cycle, Decision, Engine, Event, Time};

/// The format's version. Another one is refused, as its state cannot be understood.
pub const VERSION: u32 = 1;

/// The first line, as it is read.
#[derive(Deserialize)]
struct Header {
    recording: u32,
    at: Time,
    engine: Engine,
}

/// The first line, as it is written.
#[derive(Serialize)]
struct HeaderOf<'a> {
    recording: u32,
    at: Time,
    engine: &'a Engine,
}

/// A step, as it is read.
#[derive(Deserialize)]
enum Line {
    #[serde(rename = "event")]
    Event { at: Time, what: Event },
    #[serde(rename = "flush")]
    Flush { at: Time },
    #[serde(rename = "cycle")]
    Cycle { at: Time, number: u64, idle: bool, decisions: Vec<serde_json::Value> },
}

/// A step, as it is written.
#[derive(Serialize)]
enum LineOf<'a> {
    #[serde(rename = "event")]
    Event { at: Time, what: &'a Event },
    #[serde(rename = "flush")]
    Flush { at: Time },
    #[serde(rename = "cycle")]
    Cycle { at: Time, number: u64, idle: bool, decisions: &'a [Decision] },
}

/// The first line of a recording that begins now. As long as the state is large.
///
/// # Errors
/// None that a state can bring about; the encoder's.
pub fn header(engine: &Engine, now: Time) -> serde_json::Result<String> {
    line(&HeaderOf { recording: VERSION, at: now, engine })
}

/// The line of an event that the engine is told.
///
/// # Errors
/// None that an event can bring about; the encoder's.
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

/// The line of a cycle and its decisions.
///
/// # Errors
/// None that a decision can bring about; the encoder's.
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
