//! Packages the Helm chart, and renders one manifest for each mode from it.

mod manifests;
mod package;

pub use manifests::{Manifest, manifests};
pub use package::{ReleasedImages, package};
