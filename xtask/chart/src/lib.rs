//! The Helm chart as a package, and one manifest for each mode made of it.

mod manifests;
mod package;

pub use manifests::{Manifest, manifests};
pub use package::{ReleasedImages, package};
