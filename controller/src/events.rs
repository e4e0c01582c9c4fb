//! Kubernetes Events, published in the background.
//!
//! Publishing never delays a reconciler: when the queue is full the event is dropped and counted.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, Recorder, Reporter},
};
pub use kube::runtime::events::EventType;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

/// Events waiting to be written. A burst of 1,000 jobs makes about 4,000.
const QUEUE: usize = 8192;
/// Writes in flight.
const WRITERS: usize = 8;
/// What the API accepts for a note, in bytes.
const NOTE_LIMIT: usize = 1024;

/// A cheap handle that publishes events.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::Sender<(ObjectReference, Event)>,
    dropped: Counter,
}

impl Events {
    /// A handle and the task that must run for its events to be written.
    #[must_use]
    pub fn new(client: Client, identity: &str) -> (Self, Writer) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let reporter = Reporter { controller: "switchyard".into(), instance: Some(identity.into()) };
        let writer = Writer { recorder: Recorder::new(client, reporter), receiver: Mutex::new(receiver) };
        (Self { sender, dropped: Counter::default() }, writer)
    }

    /// Publishes an event about an object. Reason and note are Kueue's; the action equals the reason, as there.
    pub fn publish(&self, regarding: ObjectReference, type_: EventType, reason: &str, note: impl Into<String>) {
        let event =
            Event { type_, reason: reason.into(), note: Some(cut(note.into())), action: reason.into(), secondary: None };
        if self.sender.try_send((regarding, event)).is_err() {
            self.dropped.inc();
        }
    }

    /// Publishes a Normal event.
    pub fn normal<K: Resource<DynamicType = ()>>(&self, object: &K, reason: &str, note: impl Into<String>) {
        self.publish(object.object_ref(&()), EventType::Normal, reason, note);
    }

    /// Publishes a Warning event.
    pub fn warning<K: Resource<DynamicType = ()>>(&self, object: &K, reason: &str, note: impl Into<String>) {
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
    receiver: Mutex<mpsc::Receiver<(ObjectReference, Event)>>,
}

impl Writer {
    /// Runs until `shutdown`, then writes what is still queued; the caller bounds that by a deadline.
    pub async fn run(self, shutdown: CancellationToken) {
        let closing = async {
            shutdown.cancelled().await;
            // Long enough for a writer that holds the lock to be handed the closed channel: it polls on every event.
            self.receiver.lock().await.close();
        };
        let writers = futures::future::join_all((0..WRITERS).map(|_| self.write(&shutdown)));
        tokio::join!(closing, writers);
    }

    async fn write(&self, shutdown: &CancellationToken) {
        loop {
            let next = async { self.receiver.lock().await.recv().await };
            let (regarding, event) = tokio::select! {
                biased;
                next = next => match next { Some(next) => next, None => return },
                () = shutdown.cancelled() => match self.receiver.lock().await.try_recv() { Ok(next) => next, Err(_) => return },
            };
            if let Err(error) = self.recorder.publish(&event, &regarding).await {
                tracing::debug!(%error, reason = event.reason, object = regarding.name, "event not written");
            }
        }
    }
}

fn cut(mut note: String) -> String {
    if note.len() > NOTE_LIMIT {
        let end = (0..=NOTE_LIMIT - 3).rev().find(|at| note.is_char_boundary(*at)).unwrap_or(0);
        note.truncate(end);
        note.push_str("...");
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_cut_between_characters() {
        assert_eq!(cut("short".into()), "short");
        let long = cut("é".repeat(600));
        assert!(long.len() <= NOTE_LIMIT && long.ends_with("é..."));
    }
}
