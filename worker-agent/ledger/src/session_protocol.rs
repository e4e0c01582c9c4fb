//! One session with the hub: handshake, pings, capacity reports, and the order of outgoing
//! messages.
//!
//! Pure, and independent of the transport.

use std::collections::VecDeque;
use std::time::Duration;

use switchyard_proto::v1::{self, HubMessage, agent_message, hub_message};

use crate::actions::Action;
use crate::heartbeat::Heartbeat;
use crate::ledger::Ledger;
use crate::objects::Time;
use crate::session_error::SessionError;

/// The time within which the hub must send `Welcome`.
const WELCOME_DEADLINE: Duration = Duration::from_secs(15);
/// The shortest time between two capacity reports.
const CAPACITY_INTERVAL: Duration = Duration::from_millis(200);
/// The most unsent answers to pings. The agent ignores further pings of a hub that does not read.
const MAX_PONGS: usize = 16;

/// The next message to send.
#[derive(Debug, PartialEq)]
pub enum Outgoing {
    /// The first message. The caller fills it in.
    Hello,
    /// The current capacity. The caller fills it in.
    Capacity,
    Message(agent_message::Kind),
}

/// The state of one session, beside the ledger's part. The default is no session.
#[derive(Debug, Default)]
pub struct SessionProtocol {
    is_open: bool,
    hello_sent: bool,
    welcome_by: Time,
    heartbeat: Option<Heartbeat>,
    pongs: VecDeque<u64>,
    /// When the next capacity report may be sent; none while there is nothing new.
    capacity_at: Option<Time>,
    capacity_sent: Option<Time>,
}

impl SessionProtocol {
    /// Starts a session on a new connection, and drops all state of an older session.
    pub fn open(ledger: &mut Ledger, now: Time) -> Self {
        ledger.session_opened();
        Self { is_open: true, welcome_by: now + WELCOME_DEADLINE, ..Self::default() }
    }

    pub fn close(&mut self, ledger: &mut Ledger) {
        *self = Self::default();
        ledger.session_closed();
    }

    /// Applies a message of the hub. `capacity` says whether a capacity is known already.
    ///
    /// # Errors
    /// The session must end.
    pub fn on_message(
        &mut self,
        ledger: &mut Ledger,
        message: HubMessage,
        capacity: bool,
        now: Time,
    ) -> Result<Vec<Action>, SessionError> {
        let (part, session) = (HeartbeatPart::of(message.kind.as_ref()), message.session_id);
        let was = ledger.session_id();
        let mut actions = ledger.on_hub_message(message, now)?;
        match part {
            HeartbeatPart::Welcome(lease) => {
                self.heartbeat = Some(Heartbeat::new(lease, now));
                self.capacity_at = capacity.then_some(now);
            }
            HeartbeatPart::Ping(nonce) if was == Some(session) && self.pongs.len() < MAX_PONGS => {
                self.pongs.push_back(nonce)
            }
            HeartbeatPart::Pong(nonce) if was == Some(session) => {
                if let Some(until) = self.heartbeat.as_mut().and_then(|it| it.pong(nonce)) {
                    actions.extend(ledger.lease_renewed(until, now));
                }
            }
            HeartbeatPart::Ping(_) | HeartbeatPart::Pong(_) | HeartbeatPart::Other => {}
        }
        Ok(actions)
    }

    /// Schedules a capacity report.
    pub fn capacity_changed(&mut self, ledger: &Ledger, now: Time) {
        if ledger.session_id().is_some() {
            let earliest = self.capacity_sent.map(|sent| sent + CAPACITY_INTERVAL);
            self.capacity_at = Some(earliest.unwrap_or_default().max(now));
        }
    }

    /// The most urgent message, if any may be sent now.
    pub fn next(&mut self, ledger: &mut Ledger, now: Time) -> Option<Outgoing> {
        if !self.is_open {
            return None;
        }
        if !self.hello_sent {
            self.hello_sent = true;
            return Some(Outgoing::Hello);
        }
        ledger.session_id()?;
        if let Some(nonce) = self.pongs.pop_front() {
            return Some(Outgoing::Message(agent_message::Kind::Pong(v1::Pong { nonce })));
        }
        if let Some(ping) = self.heartbeat.as_mut().and_then(|it| it.ping(now)) {
            return Some(Outgoing::Message(agent_message::Kind::Ping(ping)));
        }
        if self.capacity_at.is_some_and(|at| at <= now) {
            self.capacity_at = None;
            self.capacity_sent = Some(now);
            return Some(Outgoing::Capacity);
        }
        let message = ledger.next_message(now)?;
        self.plan_capacity_after(&message, now);
        Some(Outgoing::Message(message))
    }

    /// Schedules a capacity report after a report that a workload took capacity: to the hub, only a
    /// later one surely includes that workload.
    fn plan_capacity_after(&mut self, message: &agent_message::Kind, now: Time) {
        let agent_message::Kind::Observed(observed) = message else { return };
        let takes = |state| matches!(state, v1::State::Reserved | v1::State::Running);
        if let Some(sent) = self.capacity_sent
            && observed.observations.iter().any(|observation| takes(observation.state()))
        {
            self.capacity_at.get_or_insert((sent + CAPACITY_INTERVAL).max(now));
        }
    }

    /// Checks the deadlines.
    ///
    /// # Errors
    /// The hub has been silent for too long.
    pub fn check(&self, ledger: &Ledger, now: Time) -> Result<(), SessionError> {
        if self.is_open && ledger.session_id().is_none() && now >= self.welcome_by {
            return Err(SessionError::NoWelcome(WELCOME_DEADLINE));
        }
        self.heartbeat.as_ref().map_or(Ok(()), |heartbeat| heartbeat.check(now))
    }

    /// When the session ends unless the hub sends something.
    pub fn deadline(&self) -> Time {
        self.heartbeat.as_ref().map_or(self.welcome_by, Heartbeat::deadline)
    }

    /// When [`check`](Self::check) or [`next`](Self::next) has something to do, at the
    /// latest. None without a session.
    pub fn wakeup(&self, ledger: &Ledger, now: Time) -> Option<Time> {
        if !self.is_open {
            return None;
        }
        let welcomed = ledger.session_id().is_some();
        if !self.hello_sent || welcomed && !self.pongs.is_empty() {
            return Some(now);
        }
        let beat = self.heartbeat.as_ref().map(Heartbeat::wakeup);
        let welcome = (!welcomed).then_some(self.welcome_by);
        let times = [beat, welcome, self.capacity_at].into_iter().flatten();
        Some(times.min().unwrap_or(now + WELCOME_DEADLINE))
    }
}

/// The meaning of a message to the session itself.
enum HeartbeatPart {
    Welcome(Option<v1::Lease>),
    Ping(u64),
    Pong(u64),
    Other,
}

impl HeartbeatPart {
    fn of(kind: Option<&hub_message::Kind>) -> Self {
        match kind {
            Some(hub_message::Kind::Welcome(welcome)) => Self::Welcome(welcome.lease),
            Some(hub_message::Kind::Ping(ping)) => Self::Ping(ping.nonce),
            Some(hub_message::Kind::Pong(pong)) => Self::Pong(pong.nonce),
            _ => Self::Other,
        }
    }
}
