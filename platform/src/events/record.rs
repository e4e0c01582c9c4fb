//! Events as objects: the first of a series is created, repeated ones raise its count.
//!
//! kube's own recorder scans all events of the last six minutes for each new event, which takes too
//! long in a busy cluster. It also makes names that are too long for objects with long names.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    runtime::events::EventType,
};
use parking_lot::Mutex;
use serde_json::json;

use super::Conventions;
use crate::api_call::with_deadline;

/// Reporting controller of all events.
const CONTROLLER: &str = "switchyard";
/// An equal event within this time is counted on the earlier one.
const SERIES: Duration = Duration::from_secs(360);
/// Minimum interval between writes of a series' count.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// Bound of remembered series. An event of a forgotten series starts a new one.
const REMEMBERED: usize = 65_536;
/// Maximum length of an object's name.
const NAME_LIMIT: usize = 253;

#[derive(Debug, Clone)]
pub(super) struct Event {
    /// When it happened. It is written later.
    pub(super) at: Timestamp,
    pub(super) regarding: ObjectReference,
    pub(super) type_: EventType,
    pub(super) reason: String,
    pub(super) note: String,
}

/// The write that an event needs.
#[derive(Debug, PartialEq, Eq)]
enum EventWrite {
    /// The first event of a series.
    Create { name: String },
    /// A repeated event whose count is due.
    Count { name: String, count: i32 },
    /// A repeated event whose count is not due.
    Nothing,
}

#[derive(Debug)]
struct Series {
    name: String,
    count: i32,
    begun: Instant,
    written: Instant,
}

/// The series that may still continue. Pure.
#[derive(Debug, Default)]
struct SeriesMemory {
    series: HashMap<u64, Series>,
    // Ordered by their first event.
    begun: VecDeque<(Instant, u64)>,
}

impl SeriesMemory {
    fn step(&mut self, key: u64, name: impl FnOnce() -> String, now: Instant) -> EventWrite {
        while let Some((begun, old)) = self.begun.front().copied() {
            if now.saturating_duration_since(begun) < SERIES && self.begun.len() <= REMEMBERED {
                break;
            }
            self.begun.pop_front();
            // Another series may have begun after `forget`.
            if self.series.get(&old).is_some_and(|series| series.begun == begun) {
                self.series.remove(&old);
            }
        }
        let Some(series) = self.series.get_mut(&key) else {
            let name = name();
            self.series
                .insert(key, Series { name: name.clone(), count: 1, begun: now, written: now });
            self.begun.push_back((now, key));
            return EventWrite::Create { name };
        };
        series.count = series.count.saturating_add(1);
        if now.saturating_duration_since(series.written) < COUNT_EVERY {
            return EventWrite::Nothing;
        }
        series.written = now;
        EventWrite::Count { name: series.name.clone(), count: series.count }
    }

    /// Removes a series whose first event was not written.
    fn forget(&mut self, key: u64) {
        self.series.remove(&key);
    }
}

pub(super) struct Recorder {
    client: Client,
    instance: String,
    action: fn(&str) -> &str,
    memory: Mutex<SeriesMemory>,
}

impl Recorder {
    pub(super) fn new(client: Client, instance: &str, conventions: Conventions) -> Self {
        let action = conventions.action;
        Self { client, instance: instance.into(), action, memory: Mutex::default() }
    }

    pub(super) async fn write(&self, event: &Event) -> kube::Result<()> {
        let name = || object_name(event.regarding.name.as_deref().unwrap_or(CONTROLLER), event.at);
        let step = self.memory.lock().step(key(event), name, Instant::now());
        let namespace = event.regarding.namespace.as_deref().unwrap_or("default");
        let api: Api<v1::Event> = Api::namespaced(self.client.clone(), namespace);
        match step {
            EventWrite::Nothing => Ok(()),
            EventWrite::Create { name } => {
                let created =
                    with_deadline(api.create(&PostParams::default(), &self.object(event, name)))
                        .await;
                if created.is_err() {
                    self.memory.lock().forget(key(event));
                }
                created.map(drop)
            }
            EventWrite::Count { name, count } => {
                let series =
                    json!({"series": {"count": count, "lastObservedTime": MicroTime(event.at)}});
                with_deadline(api.patch(&name, &PatchParams::default(), &Patch::Merge(series)))
                    .await
                    .map(drop)
            }
        }
    }

    fn object(&self, event: &Event, name: String) -> v1::Event {
        let type_ = match event.type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        v1::Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: event.regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            action: Some((self.action)(&event.reason).to_owned()),
            reason: Some(event.reason.clone()),
            note: Some(event.note.clone()),
            type_: Some(type_.to_owned()),
            event_time: Some(MicroTime(event.at)),
            regarding: Some(event.regarding.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..v1::Event::default()
        }
    }
}

/// A hash of everything that makes events equal. Colliding events are counted together.
fn key(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    let regarding = &event.regarding;
    (&regarding.kind, &regarding.namespace, &regarding.name, &regarding.uid).hash(&mut hasher);
    (&event.reason, &event.note).hash(&mut hasher);
    hasher.finish()
}

fn object_name(object: &str, now: Timestamp) -> String {
    let suffix = format!(".{:x}", now.as_nanosecond());
    let end = object.floor_char_boundary_at(NAME_LIMIT - suffix.len());
    format!("{}{suffix}", object[..end].trim_end_matches(['.', '-']))
}

/// `str::floor_char_boundary`, which the minimum supported Rust version lacks.
trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, at: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, at: usize) -> usize {
        if at >= self.len() {
            return self.len();
        }
        (0..=at).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_events_are_counted_with_few_writes() {
        let (mut memory, start) = (SeriesMemory::default(), Instant::now());
        let mut at = |second: u64, key: u64| {
            let name = || format!("event-{key}-{second}");
            match memory.step(key, name, start + Duration::from_secs(second)) {
                EventWrite::Create { name } => format!("create {name}"),
                EventWrite::Count { name, count } => format!("{name} x{count}"),
                EventWrite::Nothing => String::new(),
            }
        };
        let told = [(0, 1), (1, 1), (2, 2), (9, 1), (10, 1), (15, 1), (21, 1), (360, 1)]
            .map(|(second, key)| at(second, key));
        let expected = [
            "create event-1-0",
            "",
            "create event-2-2",
            "",
            "event-1-0 x4",
            "",
            "event-1-0 x6",
            "create event-1-360",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn failed_creation_is_repeated_with_the_next_event() {
        let (mut memory, now) = (SeriesMemory::default(), Instant::now());
        let create = EventWrite::Create { name: "event".into() };
        assert_eq!(memory.step(1, || "event".into(), now), create);
        assert_eq!(memory.step(1, || "event".into(), now), EventWrite::Nothing);
        memory.forget(1);
        assert_eq!(memory.step(1, || "event".into(), now), create);
    }

    #[test]
    fn series_are_bounded() {
        let (mut memory, now) = (SeriesMemory::default(), Instant::now());
        for key in 0..2 * REMEMBERED as u64 {
            memory.step(key, String::new, now);
        }
        assert!(memory.series.len() <= REMEMBERED + 1 && memory.begun.len() == memory.series.len());
    }

    #[test]
    fn event_name_of_long_object_name_fits() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        assert_eq!(object_name("job", now), "job.18ea0717bd2c4000");
        let long = object_name(&"x".repeat(253), now);
        assert_eq!(long.len(), NAME_LIMIT);
        let cut = object_name(&format!("{}-{}", "x".repeat(235), "y".repeat(17)), now);
        assert!(!cut.contains("-."), "{cut}");
    }
}
