//! Events that name what blocks an object's deletion: when it begins, then at an interval while it
//! changes.

use std::{collections::BTreeMap, time::Duration};

use kube::Resource;
use parking_lot::Mutex;
use switchyard_api::conditions::reasons::events;
use tokio::time::Instant;

use crate::context::Context;
use switchyard_platform::store::Key;

/// Minimum interval between two events about one object.
const EVERY: Duration = Duration::from_secs(5);
/// Maximum of named objects.
const NAMED: usize = 3;

/// Last event about each object.
#[derive(Debug, Default)]
pub(super) struct DeletionEvents(Mutex<BTreeMap<Key, (Instant, String)>>);

impl DeletionEvents {
    /// Publishes what blocks the deletion of `object`, unless the last event said the same. Returns
    /// the delay until the next reconcile.
    pub(super) fn publish<K: Resource<DynamicType = ()>>(
        &self,
        ctx: &Context,
        object: &K,
        what: &str,
        kind: &str,
        names: &[String],
    ) -> Option<Duration> {
        let note = note(what, kind, names);
        match self.due(Key::of(object), &note, Instant::now()) {
            Ok(true) => ctx.events.normal(object, events::DELETION_WAITS, note),
            Ok(false) => (),
            Err(left) => return Some(left),
        }
        None
    }

    /// Whether the note is new and may be published now, or else how long it must wait.
    fn due(&self, key: Key, note: &str, now: Instant) -> Result<bool, Duration> {
        let mut told = self.0.lock();
        if let Some((at, last)) = told.get(&key) {
            if last == note {
                return Ok(false);
            }
            let left = (*at + EVERY).saturating_duration_since(now);
            if !left.is_zero() {
                return Err(left);
            }
        }
        told.insert(key, (now, note.to_owned()));
        Ok(true)
    }

    /// Removes a deleted object.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

fn note(what: &str, kind: &str, names: &[String]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    let mut named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > NAMED {
        named = format!("{named} and {} more", names.len() - NAMED);
    }
    format!("Deletion waits: {what} {} {kind}{plural}: {named}", names.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_names_some_and_counts_all() {
        let names: Vec<String> = ["ns/a", "ns/b", "ns/c", "ns/d"].map(str::to_owned).into();
        let said = |count: usize| note("its quota is held by", "workload", &names[..count]);
        assert_eq!(said(1), "Deletion waits: its quota is held by 1 workload: ns/a");
        assert_eq!(
            said(4),
            "Deletion waits: its quota is held by 4 workloads: ns/a, ns/b, ns/c and 1 more"
        );
    }

    #[test]
    fn changed_note_is_published_at_an_interval() {
        let (waits, key, start) = (DeletionEvents::default(), Key::new("", "cq"), Instant::now());
        assert_eq!(waits.due(key.clone(), "two", start), Ok(true));
        assert_eq!(waits.due(key.clone(), "two", start), Ok(false));
        assert_eq!(waits.due(key.clone(), "one", start), Err(EVERY));
        assert_eq!(waits.due(key.clone(), "one", start + EVERY), Ok(true));
        waits.forget(&key);
        assert_eq!(waits.due(key, "one", start + EVERY), Ok(true));
    }
}
