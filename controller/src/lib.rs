//! One cluster's admission around the quota engine: watches become events, decisions become writes.

pub mod capacity;
pub mod clock;
pub mod components;
pub mod events;
pub mod lease;
pub mod object;
pub mod store;
pub mod telemetry;
pub mod work;

pub use lease::Leadership;
