//! Kubernetes Events, written in the background.
//!
//! Publishing never delays a reconciler: if the queue is full, the event is dropped and counted.
//! The writers yield to all other writes: the slower the API server answers, the longer they pause.

mod record;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
pub use kube::runtime::events::EventType;
use kube::{Client, Resource};
use prometheus_client::metrics::counter::Counter;
use record::{Event, Recorder};
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Capacity of the queue. A burst of 1,000 jobs makes about 5,000 events.
const QUEUE: usize = 16_384;
/// Concurrent writes.
const WRITERS: usize = 16;
/// A write that takes longer means a busy API server.
const BUSY: Duration = Duration::from_millis(20);
/// After such a write, the writer pauses this many times its duration.
const REST: u32 = 4;
/// Upper bound of the pause.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// The project's rules for the texts of events.
#[derive(Clone, Copy, Debug)]
pub struct Conventions {
    /// An event's action, from its reason.
    pub action: fn(&str) -> &str,
    /// Shortens a note to the API server's limit of 1,024 bytes.
    pub truncate: fn(String) -> String,
}

/// A cheap handle that publishes events.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::Sender<Event>,
    conventions: Conventions,
    dropped: Counter,
}

impl Events {
    /// A handle, and the task that writes its events.
    #[must_use]
    pub fn new(client: Client, identity: &str, conventions: Conventions) -> (Self, EventWriter) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let writer = EventWriter {
            recorder: Recorder::new(client, identity, conventions),
            receiver: Mutex::new(receiver),
        };
        (Self { sender, conventions, dropped: Counter::default() }, writer)
    }

    /// Publishes an event about an object. Reason and note are Kueue's.
    pub fn publish(
        &self,
        regarding: ObjectReference,
        type_: EventType,
        reason: &str,
        note: impl Into<String>,
    ) {
        let (at, reason, note) =
            (Timestamp::now(), reason.into(), (self.conventions.truncate)(note.into()));
        let event = Event { at, regarding, type_, reason, note };
        if self.sender.try_send(event).is_err() {
            self.dropped.inc();
        }
    }

    pub fn normal<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: impl Into<String>,
    ) {
        self.publish(object.object_ref(&()), EventType::Normal, reason, note);
    }

    pub fn warning<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: impl Into<String>,
    ) {
        self.publish(object.object_ref(&()), EventType::Warning, reason, note);
    }

    /// Counts events that were dropped because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> Counter {
        self.dropped.clone()
    }
}

/// Writes the queued events.
pub struct EventWriter {
    recorder: Recorder,
    receiver: Mutex<mpsc::Receiver<Event>>,
}

impl EventWriter {
    /// Runs until `shutdown`, then writes the rest of the queue. The caller sets the deadline.
    pub async fn run(self, shutdown: CancellationToken) {
        futures::future::join_all((0..WRITERS).map(|_| self.write(&shutdown))).await;
    }

    async fn write(&self, shutdown: &CancellationToken) {
        loop {
            let next = async { self.receiver.lock().await.recv().await };
            let event = tokio::select! {
                biased;
                next = next => next,
                // The writer that waits in `recv` holds the lock until the shutdown wakes it too.
                () = shutdown.cancelled() => self.receiver.lock().await.try_recv().ok(),
            };
            let Some(event) = event else { return };
            let began = Instant::now();
            if let Err(error) = self.recorder.write(&event).await {
                tracing::debug!(%error, reason = event.reason, object = event.regarding.name, "event not written");
            }
            tokio::select! {
                () = tokio::time::sleep(rest(began.elapsed())) => (),
                // At shutdown the rest is written without pauses, because it has a deadline.
                () = shutdown.cancelled() => (),
            }
        }
    }
}

fn rest(took: Duration) -> Duration {
    if took <= BUSY { Duration::ZERO } else { (took * REST).min(LONGEST_REST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::idle_server(5, 0)]
    #[case::busy_server(200, 800)]
    #[case::stalled_server(30_000, 2_000)]
    fn pause_grows_with_the_servers_latency(#[case] took: u64, #[case] expected: u64) {
        assert_eq!(rest(Duration::from_millis(took)), Duration::from_millis(expected));
    }
}
