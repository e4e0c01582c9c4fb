//! Kubernetes Events, published in the background.
//!
//! Publishing never delays a reconciler: when the queue is full the event is dropped and counted. Writing gives way to all
//! else: the slower a busy API server answers, the longer the pauses.

mod record;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
pub use kube::runtime::events::EventType;
use kube::{Client, Resource};
use prometheus_client::metrics::counter::Counter;
use record::{Event, Recorder};
use switchyard_api::conditions::truncated_event;
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Events waiting to be written. A burst of 1,000 jobs makes about 5,000.
const QUEUE: usize = 16_384;
/// Writes in flight.
const WRITERS: usize = 16;
/// An API server that takes longer for a write is busy.
const BUSY: Duration = Duration::from_millis(20);
/// Then a writer rests so many times as long as its last write took: what tells of the work must not be what holds it up.
const REST: u32 = 4;
/// But not longer than this.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// A cheap handle that publishes events.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::Sender<Event>,
    dropped: Counter,
}

impl Events {
    /// A handle and the task that must run for its events to be written.
    #[must_use]
    pub fn new(client: Client, identity: &str) -> (Self, Writer) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let writer =
            Writer { recorder: Recorder::new(client, identity), receiver: Mutex::new(receiver) };
        (Self { sender, dropped: Counter::default() }, writer)
    }

    /// Publishes an event about an object. Reason and note are Kueue's.
    pub fn publish(
        &self,
        regarding: ObjectReference,
        type_: EventType,
        reason: &str,
        note: impl Into<String>,
    ) {
        let (at, reason, note) = (Timestamp::now(), reason.into(), truncated_event(note.into()));
        let event = Event { at, regarding, type_, reason, note };
        if self.sender.try_send(event).is_err() {
            self.dropped.inc();
        }
    }

    /// Publishes a Normal event.
    pub fn normal<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: impl Into<String>,
    ) {
        self.publish(object.object_ref(&()), EventType::Normal, reason, note);
    }

    /// Publishes a Warning event.
    pub fn warning<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: impl Into<String>,
    ) {
        self.publish(object.object_ref(&()), EventType::Warning, reason, note);
    }

    /// How many were dropped because too many waited.
    #[must_use]
    pub fn dropped(&self) -> Counter {
        self.dropped.clone()
    }
}

/// Writes the queued events.
pub struct Writer {
    recorder: Recorder,
    receiver: Mutex<mpsc::Receiver<Event>>,
}

impl Writer {
    /// Runs until `shutdown`, then writes what is still queued; the caller bounds that by a deadline.
    pub async fn run(self, shutdown: CancellationToken) {
        futures::future::join_all((0..WRITERS).map(|_| self.write(&shutdown))).await;
    }

    async fn write(&self, shutdown: &CancellationToken) {
        loop {
            let next = async { self.receiver.lock().await.recv().await };
            let event = tokio::select! {
                biased;
                next = next => next,
                // A writer that waits for the next event holds the lock until it, too, is woken by the shutdown.
                () = shutdown.cancelled() => self.receiver.lock().await.try_recv().ok(),
            };
            let Some(event) = event else { return };
            let began = Instant::now();
            if let Err(error) = self.recorder.write(&event).await {
                tracing::debug!(%error, reason = event.reason, object = event.regarding.name, "event not written");
            }
            tokio::select! {
                () = tokio::time::sleep(rest(began.elapsed())) => (),
                // What is left has a deadline.
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
    #[case::a_server_at_rest(5, 0)]
    #[case::a_busy_one(200, 800)]
    #[case::one_that_hardly_answers(30_000, 2_000)]
    fn events_are_the_rarer_the_slower_the_server_is(#[case] took: u64, #[case] expected: u64) {
        assert_eq!(rest(Duration::from_millis(took)), Duration::from_millis(expected));
    }
}
