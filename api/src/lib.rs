//! The Kueue API (`kueue.x-k8s.io`) as Rust types: the versions ([`v1beta2`], [`v1beta1`]), their
//! schemas ([`crds`]), the rules that schemas cannot express ([`validate`]), and the visibility API
//! ([`visibility`]). The modules of [`switchyard_syntax`] are re-exported: names of labels and
//! annotations ([`names`]), conditions ([`conditions`]), amounts ([`quantity`]). [`build`] has the
//! version of the build.
//!
//! No client and no runtime: this crate has only data and pure functions.

#![warn(missing_docs)]

pub mod autoscaling;
pub mod build;
pub mod devices;
pub mod pod_peak;
pub mod reclaimable;
pub mod slices;
pub mod v1beta1;
pub mod v1beta2;
pub mod validate;
pub mod variants;
pub mod visibility;
pub mod workload_names;

mod crd;
mod schema;
mod small_map;

pub use crd::{crd_files, crds};
pub use switchyard_syntax::{affinity, conditions, equality, field, flavor_pins, names, quantity};

pub use small_map::{Iter as SmallMapIter, SmallMap};
