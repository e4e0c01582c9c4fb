//! What the rest of Switchyard builds on and what needs no Kubernetes client: names of labels and annotations ([`names`]),
//! the syntax of names and labels ([`labels`]), Go durations ([`GoDuration`]), quantities ([`quantity`]), paths of fields
//! ([`field`]), conditions ([`conditions`]), and rules about worker clusters ([`affinity`]).

#![warn(missing_docs)]

pub mod affinity;
pub mod conditions;
pub mod duration;
pub mod equality;
pub mod field;
pub mod labels;
pub mod names;
pub mod quantity;

pub use duration::{GoDuration, ParseDurationError};
