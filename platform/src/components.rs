//! State of the program's parts, for readiness.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Parts that must run for the program to be ready, and whether they do. Watches are checked apart.
#[derive(Debug, Default)]
pub struct Components(Mutex<BTreeMap<&'static str, bool>>);

impl Components {
    pub fn set(&self, name: &'static str, ok: bool) {
        self.0.lock().insert(name, ok);
    }

    /// All parts, ordered by name.
    #[must_use]
    pub fn checks(&self) -> Vec<(&'static str, bool)> {
        self.0.lock().iter().map(|(name, ok)| (*name, *ok)).collect()
    }
}
