//! Takes session events in rounds, one event of each cluster, so that no cluster delays another.
//!
//! # Bounds
//! Observations and capacity reports hold a part of their session's budget
//! (`server::BudgetPermit`). Other events are rate-limited for each cluster.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::mpsc;

use crate::server::SessionEvent;

/// Waiting events of each cluster.
pub(super) struct FairQueue {
    events: mpsc::Receiver<SessionEvent>,
    /// Contains no empty queue.
    waiting: BTreeMap<String, VecDeque<SessionEvent>>,
}

impl FairQueue {
    pub(super) fn new(events: mpsc::Receiver<SessionEvent>) -> Self {
        Self { events, waiting: BTreeMap::new() }
    }

    /// Waits for an event. Returns false when all senders are gone. Cancellation loses no event.
    pub(super) async fn ready(&mut self) -> bool {
        if self.waiting.is_empty() {
            let Some(event) = self.events.recv().await else { return false };
            self.push(event);
        }
        true
    }

    /// The oldest event of each cluster.
    pub(super) fn round(&mut self) -> Vec<SessionEvent> {
        while let Ok(event) = self.events.try_recv() {
            self.push(event);
        }
        let round = self.waiting.values_mut().filter_map(VecDeque::pop_front).collect();
        self.waiting.retain(|_, events| !events.is_empty());
        round
    }

    fn push(&mut self, event: SessionEvent) {
        match self.waiting.get_mut(event.cluster()) {
            Some(events) => events.push_back(event),
            None => {
                self.waiting.insert(event.cluster().to_owned(), VecDeque::from([event]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able(cluster: &str, session_id: u64) -> SessionEvent {
        SessionEvent::Able { cluster: cluster.to_owned(), session_id, able: true }
    }

    fn told(events: &[SessionEvent]) -> Vec<(&str, u64)> {
        let one = |event: &SessionEvent| match event {
            SessionEvent::Able { session_id, .. } => *session_id,
            _ => 0,
        };
        events.iter().map(|event| (event.cluster(), one(event))).collect()
    }

    #[tokio::test]
    async fn fair_queue_takes_one_event_of_each_cluster() {
        let (sender, events) = mpsc::channel(1024);
        let mut queue = FairQueue::new(events);
        for number in 0..500 {
            sender.try_send(able("flood", number)).unwrap();
        }
        assert!(queue.ready().await);
        assert_eq!(told(&queue.round()), [("flood", 0)]);
        sender.try_send(able("west", 1)).unwrap();
        sender.try_send(able("west", 2)).unwrap();
        assert_eq!(told(&queue.round()), [("flood", 1), ("west", 1)]);
        assert_eq!(told(&queue.round()), [("flood", 2), ("west", 2)]);
        for number in 3..500 {
            assert_eq!(told(&queue.round()), [("flood", number)], "in their order");
        }
        drop(sender);
        assert!(!queue.ready().await);
    }
}
