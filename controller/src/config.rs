//! Stands in for the configuration's type until it is there.

/// Kueue's configuration.
#[derive(Debug, Clone, Default)]
pub struct Configuration {}
