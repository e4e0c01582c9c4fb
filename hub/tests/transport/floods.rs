//! Floods from one enrolled agent, and how much of them reaches the dispatcher.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use switchyard_hub::server::{ServerSettings, SessionEvent};
use switchyard_proto::v1::{Capacity, Observed, QueueCapacity, agent_message, hub_message};
use tokio::time::Instant;

use crate::raw::{RawSession, hello, running, shown};
use crate::test_server::{Loopback, SOON};

const FLOOD: u32 = 900;

fn calm() -> ServerSettings {
    ServerSettings { ping_interval: SOON * 10, ..ServerSettings::default() }
}

/// The number of events that a rate limit allows by now: the first one passes at once.
fn at_most(began: Instant, every: Duration) -> u128 {
    began.elapsed().as_millis() / every.as_millis() + 1
}

#[tokio::test]
async fn capacity_and_inventory_floods_reach_the_dispatcher_coalesced() {
    let mut hub = Loopback::open(calm()).await;
    let east = hub.enrolled("east").await;
    let mut session = RawSession::open(&hub, shown(&east)).await.unwrap();
    let began = Instant::now();
    let flood = tokio::spawn(async move {
        for number in 1..=FLOOD {
            let queue = QueueCapacity { pending: number, ..QueueCapacity::default() };
            session
                .say(agent_message::Kind::Capacity(Capacity {
                    queues: vec![queue],
                    ..Capacity::default()
                }))
                .await;
            session.sequence += 1;
            let observations = vec![running(&format!("w{number}"), 1)];
            let observed =
                Observed { sequence: session.sequence, inventory: true, observations, more: false };
            session.say(agent_message::Kind::Observed(observed)).await;
        }
        session
    });
    let (mut reports, mut inventories, mut observed, mut newest) = (0_u32, 0_u32, 0, 0);
    let mut last = 0;
    while newest < FLOOD || observed < FLOOD || last == 0 {
        match hub.event().await {
            SessionEvent::Capacity { capacity, .. } => {
                reports += 1;
                assert!(capacity.queues[0].pending > newest, "the newest wins");
                newest = capacity.queues[0].pending;
            }
            SessionEvent::Observed { observations, inventory, .. } => {
                observed += u32::try_from(observations.len()).unwrap();
                inventories += u32::from(inventory.is_some());
                let named = |uids: &switchyard_dispatcher::Uids| {
                    uids.contains(format!("w{FLOOD}").as_str())
                };
                last += u32::from(inventory.as_ref().is_some_and(named));
            }
            _ => {}
        }
    }
    assert!(u128::from(reports) <= at_most(began, Duration::from_millis(100)), "{reports} reports");
    assert!(
        u128::from(inventories) <= at_most(began, Duration::from_secs(1)),
        "{inventories} inventories"
    );
    assert_eq!(
        (observed, last),
        (FLOOD, 1),
        "no observation is lost, and the last inventory comes"
    );
    drop(flood.await.unwrap());
}

#[tokio::test]
async fn session_flood_is_paced_and_the_last_session_stays() {
    let settings =
        ServerSettings { session_burst: 3, session_every: Duration::from_secs(60), ..calm() };
    let mut hub = Loopback::open(settings).await;
    let (east, west) = (hub.enrolled("east").await, hub.enrolled("west").await);
    let mut begun = Vec::new();
    for _ in 0..3 {
        begun.push(RawSession::open(&hub, shown(&east)).await.unwrap());
    }
    for _ in 0..20 {
        let (_, answer) = RawSession::open_with(&hub, shown(&east), hello()).await.unwrap();
        let Some(hub_message::Kind::Goodbye(goodbye)) = answer else { panic!("{answer:?}") };
        assert_eq!(goodbye.reason, "the cluster begins sessions too often");
        assert!((1..=60).contains(&goodbye.retry_after.unwrap().seconds));
    }
    // The last session goes on, and so does the other cluster's.
    let mut last = begun.pop().unwrap();
    assert!(last.observe(vec![running("own", 1)]).await);
    let _west = RawSession::open(&hub, shown(&west)).await.unwrap();
    let (mut ups, mut downs) = (0, 0);
    loop {
        match hub.event().await {
            SessionEvent::Up(info) if info.cluster == "west" => break,
            SessionEvent::Up(_) => ups += 1,
            SessionEvent::Down { .. } => downs += 1,
            _ => {}
        }
    }
    assert_eq!((ups, downs), (3, 2));
}

/// Counts this thread's warnings whose message starts with a text.
struct Warnings {
    message: &'static str,
    count: Arc<AtomicUsize>,
}

impl tracing::field::Visit for Warnings {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" && format!("{value:?}").starts_with(self.message) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Self { message: self.message, count: self.count.clone() });
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn dropped_observations_are_counted_with_few_log_lines() {
    const DROPPED: usize = 2_000;
    let count = Arc::new(AtomicUsize::new(0));
    let _log = tracing::subscriber::set_default(Warnings {
        message: "observations dropped",
        count: count.clone(),
    });
    let mut hub = Loopback::open(calm()).await;
    let east = hub.enrolled("east").await;
    let mut session = RawSession::open(&hub, shown(&east)).await.unwrap();
    let began = Instant::now();
    let flood = tokio::spawn(async move {
        for _ in 0..DROPPED {
            session.observe(vec![running("", 1)]).await;
        }
        session.observe(vec![running("last", 1)]).await;
        session
    });
    let last = |event: &SessionEvent| matches!(event, SessionEvent::Observed { observations, .. } if !observations.is_empty());
    hub.until("the honest one", last).await;
    drop(flood.await.unwrap());
    let lines = u128::try_from(count.load(Ordering::Relaxed)).unwrap();
    assert!(
        (1..=10 * at_most(began, Duration::from_secs(10))).contains(&lines),
        "{lines} lines of {DROPPED}"
    );
    let mut page = prometheus_client::registry::Registry::default();
    hub.server.registry.show(&mut page);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &page).unwrap();
    let counted = format!("switchyard_observations_dropped_total{{cluster=\"east\"}} {DROPPED}");
    assert!(text.contains(&counted), "{text}");
}
