//! The Kueue API (`kueue.x-k8s.io`) as Rust types, with what belongs to it: schemas ([`crds`]), rules that schemas cannot
//! say ([`validate`]), names of labels and annotations ([`names`]), conditions and reasons ([`conditions`]), amounts
//! ([`quantity`]), the configuration file ([`config`]), what jobs and Workloads are to each other ([`jobs`]), and the
//! visibility API ([`visibility`]). [`build`] says which build this is.
//!
//! No client and no runtime: everything here is data and pure functions.

#![warn(missing_docs)]

pub mod affinity;
pub mod autoscaling;
pub mod build;
pub mod conditions;
pub mod config;
pub mod devices;
pub mod field;
pub mod jobs;
pub mod names;
pub mod quantity;
pub mod v1beta1;
pub mod v1beta2;
pub mod validate;
pub mod variants;
pub mod visibility;

mod crd;
mod schema;
mod small_map;

pub use crd::{crd_files, crds};
pub use small_map::{Iter as SmallMapIter, SmallMap};
