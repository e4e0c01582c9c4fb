//! The Kueue API (`kueue.x-k8s.io`) as Rust types, with what belongs to it: schemas ([`crds`]), rules that schemas cannot
//! say ([`validate`]), names of labels and annotations ([`names`]), conditions and reasons ([`conditions`]), amounts
//! ([`quantity`]), and the visibility API ([`visibility`]). [`build`] says which build this is.
//!
//! No client and no runtime: everything here is data and pure functions.

#![warn(missing_docs)]

pub mod autoscaling;
pub mod build;
pub mod devices;
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
pub use switchyard_syntax::{affinity, conditions, equality, field, names, quantity};

pub use small_map::{Iter as SmallMapIter, SmallMap};
