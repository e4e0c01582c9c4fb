//! Fields of the file without effect.

use std::fmt;

use switchyard_syntax::field::Path;

/// A field that the file sets and that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredField {
    /// Path of the field.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl IgnoredField {
    pub(super) fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.to_string(), reason: reason.into() }
    }
}

impl fmt::Display for IgnoredField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}
