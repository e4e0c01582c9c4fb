//! Errors about one field, rendered as the API server renders its own.

use std::fmt;

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path such as `metadata.labels[kueue.x-k8s.io/queue-name]`.
    pub path: String,
    /// Kind of error with its value.
    pub kind: FieldErrorKind,
    /// What is wrong, and the mend where it is not plain.
    pub detail: String,
}

/// Kind of a field error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The value, rendered as JSON, is not valid.
    Invalid(String),
    /// The field must not be set or changed.
    Forbidden,
    /// The field must be set.
    Required,
}

/// Message of a field that must not change.
pub(super) const IMMUTABLE: &str = "field is immutable";

impl FieldError {
    /// An invalid value.
    pub fn invalid(path: impl Into<String>, value: impl Into<serde_json::Value>, detail: impl Into<String>) -> Self {
        let value = value.into().to_string();
        Self { path: path.into(), kind: FieldErrorKind::Invalid(value), detail: detail.into() }
    }

    /// A forbidden change.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { path: path.into(), kind: FieldErrorKind::Forbidden, detail: detail.into() }
    }

    /// Path of a label.
    #[must_use]
    pub fn label_path(key: &str) -> String {
        format!("metadata.labels[{key}]")
    }

    /// Path of an annotation.
    #[must_use]
    pub fn annotation_path(key: &str) -> String {
        format!("metadata.annotations[{key}]")
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            FieldErrorKind::Invalid(value) => write!(f, "{}: Invalid value: {value}: {}", self.path, self.detail),
            FieldErrorKind::Forbidden => write!(f, "{}: Forbidden: {}", self.path, self.detail),
            FieldErrorKind::Required => write!(f, "{}: Required value: {}", self.path, self.detail),
        }
    }
}
