//! The quota engine of one cluster, its inputs and its outputs.
//!
//! - [`convert`] turns API objects into the engine's events.
//! - [`inbox`] collects the keys of changed objects. [`task`] owns the engine: it applies events
//!   and runs cycles.
//! - [`admission`] writes decisions. [`placement`] passes reservations of dispatched workloads to
//!   the hub.
//! - [`views`] and [`capacity`] are published for readers.
//! - [`settings`] builds an engine from the configuration, [`load`] fills one from lists,
//!   [`recording`] records one.

pub mod admission;
pub mod capacity;
pub mod convert;
mod device_claims;
pub mod handle;
pub(crate) mod inbox;
pub mod load;
pub mod placement;
pub mod recording;
pub(crate) mod settings;
pub(crate) mod task;
pub mod views;

pub use handle::EngineHandle;
