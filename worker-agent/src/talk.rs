//! What is heard and said in one session with the hub, whatever carries it. Pure: the ledger, messages and the time in;
//! actions and what to say next out.

use std::collections::VecDeque;
use std::time::Duration;

use switchyard_proto::v1::{self, HubMessage, agent_message, hub_message};

use crate::heartbeat::Heartbeat;
use switchyard_ledger::{Action, Ledger, SessionError, Time};

/// A session's hub has to say `Welcome` within this.
const WELCOME_DEADLINE: Duration = Duration::from_secs(15);
/// The least time between two capacity reports.
const CAPACITY_INTERVAL: Duration = Duration::from_millis(200);
/// Answers to pings that may wait to be sent; a hub that sends more without reading is not answered.
const MAX_PONGS: usize = 16;

/// What to say next.
#[derive(Debug, PartialEq)]
pub enum Say {
    /// Who we are; the first message.
    Hello,
    /// What the cluster could take, as it is now.
    Capacity,
    /// This.
    Message(agent_message::Kind),
}

/// What belongs to one session beside the ledger's part. The default is no session.
#[derive(Debug, Default)]
pub struct Talk {
    open: bool,
    hello: bool,
    welcome_by: Time,
    heartbeat: Option<Heartbeat>,
    pongs: VecDeque<u64>,
    /// When the next capacity report may be sent; none while there is nothing new.
    capacity_at: Option<Time>,
    capacity_sent: Option<Time>,
}

impl Talk {
    /// A connection stands. Whatever was under way in an older session is void.
    pub fn open(ledger: &mut Ledger, now: Time) -> Self {
        ledger.session_opened();
        Self { open: true, welcome_by: now + WELCOME_DEADLINE, ..Self::default() }
    }

    /// The session is over.
    pub fn close(&mut self, ledger: &mut Ledger) {
        *self = Self::default();
        ledger.session_closed();
    }

    /// Takes a message of the hub in. `capacity` says whether there is something to report already.
    ///
    /// # Errors
    /// The session must end.
    pub fn heard(
        &mut self,
        ledger: &mut Ledger,
        message: HubMessage,
        capacity: bool,
        now: Time,
    ) -> Result<Vec<Action>, SessionError> {
        let (small, session) = (Small::of(message.kind.as_ref()), message.session_id);
        let was = ledger.session_id();
        let mut actions = ledger.hub(message, now)?;
        match small {
            Small::Welcome(lease) => {
                tracing::info!(session, "session open");
                self.heartbeat = Some(Heartbeat::new(lease, now));
                self.capacity_at = capacity.then_some(now);
            }
            Small::Ping(nonce) if was == Some(session) && self.pongs.len() < MAX_PONGS => {
                self.pongs.push_back(nonce)
            }
            Small::Pong(nonce) if was == Some(session) => {
                if let Some(until) = self.heartbeat.as_mut().and_then(|it| it.pong(nonce)) {
                    actions.extend(ledger.lease_renewed(until, now));
                }
            }
            Small::Ping(_) | Small::Pong(_) | Small::Other => {}
        }
        Ok(actions)
    }

    /// There is something new about the capacity.
    pub fn capacity_changed(&mut self, ledger: &Ledger, now: Time) {
        if ledger.session_id().is_some() {
            let earliest = self.capacity_sent.map(|sent| sent + CAPACITY_INTERVAL);
            self.capacity_at = Some(earliest.unwrap_or_default().max(now));
        }
    }

    /// There is room for one message: the most urgent one.
    pub fn next(&mut self, ledger: &mut Ledger, now: Time) -> Option<Say> {
        if !self.open {
            return None;
        }
        if !self.hello {
            self.hello = true;
            return Some(Say::Hello);
        }
        ledger.session_id()?;
        if let Some(nonce) = self.pongs.pop_front() {
            return Some(Say::Message(agent_message::Kind::Pong(v1::Pong { nonce })));
        }
        if let Some(ping) = self.heartbeat.as_mut().and_then(|it| it.ping(now)) {
            return Some(Say::Message(agent_message::Kind::Ping(ping)));
        }
        if self.capacity_at.is_some_and(|at| at <= now) {
            self.capacity_at = None;
            self.capacity_sent = Some(now);
            return Some(Say::Capacity);
        }
        let message = ledger.outgoing(now)?;
        self.account(&message, now);
        Some(Say::Message(message))
    }

    /// The hub goes by a report of the capacity that comes after the news that a workload has taken some: only that one
    /// surely counts it.
    fn account(&mut self, message: &agent_message::Kind, now: Time) {
        let agent_message::Kind::Observed(observed) = message else { return };
        let takes = |state| matches!(state, v1::State::Reserved | v1::State::Running);
        if let Some(sent) = self.capacity_sent
            && observed.observations.iter().any(|observation| takes(observation.state()))
        {
            self.capacity_at.get_or_insert((sent + CAPACITY_INTERVAL).max(now));
        }
    }

    /// # Errors
    /// The hub has been silent for too long.
    pub fn check(&self, ledger: &Ledger, now: Time) -> Result<(), SessionError> {
        if self.open && ledger.session_id().is_none() && now >= self.welcome_by {
            return Err(SessionError::NoWelcome(WELCOME_DEADLINE));
        }
        self.heartbeat.as_ref().map_or(Ok(()), |heartbeat| heartbeat.check(now))
    }

    /// When the session ends if nothing comes.
    pub fn deadline(&self) -> Time {
        self.heartbeat.as_ref().map_or(self.welcome_by, Heartbeat::deadline)
    }

    /// When there is something to do or say, if nothing happens before; none without a session.
    pub fn wakeup(&self, ledger: &Ledger, now: Time) -> Option<Time> {
        if !self.open {
            return None;
        }
        let welcomed = ledger.session_id().is_some();
        if !self.hello || welcomed && !self.pongs.is_empty() {
            return Some(now);
        }
        let beat = self.heartbeat.as_ref().map(Heartbeat::wakeup);
        let welcome = (!welcomed).then_some(self.welcome_by);
        let times = [beat, welcome, self.capacity_at].into_iter().flatten();
        Some(times.min().unwrap_or(now + WELCOME_DEADLINE))
    }
}

/// The little of a message that is not the ledger's business.
enum Small {
    Welcome(Option<v1::Lease>),
    Ping(u64),
    Pong(u64),
    Other,
}

impl Small {
    fn of(kind: Option<&hub_message::Kind>) -> Self {
        match kind {
            Some(hub_message::Kind::Welcome(welcome)) => Self::Welcome(welcome.lease),
            Some(hub_message::Kind::Ping(ping)) => Self::Ping(ping.nonce),
            Some(hub_message::Kind::Pong(pong)) => Self::Pong(pong.nonce),
            _ => Self::Other,
        }
    }
}
