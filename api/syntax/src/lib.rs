//! The leaf of the API crates. It needs no Kubernetes client.
//!
//! - [`names`]: labels, annotations, finalizers and other well-known names.
//! - [`labels`]: the syntax of names, labels and label selectors.
//! - [`duration`], [`quantity`]: Go durations and Kubernetes quantities.
//! - [`field`]: field paths and errors.
//! - [`equality`]: semantic equality of JSON values.
//! - [`conditions`]: types, reasons and lists of status conditions.
//! - [`affinity`]: rules about the worker clusters of a job.
//! - [`flavor_pins`]: the flavors that a worker cluster must use.

#![warn(missing_docs)]

pub mod affinity;
pub mod conditions;
pub mod duration;
pub mod equality;
pub mod field;
pub mod flavor_pins;
pub mod labels;
pub mod merge_patch;
pub mod names;
pub mod quantity;

pub use duration::{GoDuration, ParseDurationError};
