//! Which of our parts run, for readiness.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Parts that must run for this process to be ready, each with whether it does. The watches answer for themselves.
#[derive(Debug, Default)]
pub struct Components(Mutex<BTreeMap<&'static str, bool>>);

impl Components {
    /// Names a part and whether it runs.
    pub fn set(&self, name: &'static str, ok: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, ok);
    }

    /// All parts by name.
    #[must_use]
    pub fn checks(&self) -> Vec<(&'static str, bool)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(name, ok)| (*name, *ok))
            .collect()
    }
}
