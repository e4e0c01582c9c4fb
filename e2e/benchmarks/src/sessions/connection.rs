//! The connection of a played agent.

use std::sync::Arc;

use arc_swap::ArcSwap;
use switchyard::join_token::JoinToken;
use switchyard_agent::HubAddress;
use switchyard_agent::Link;
use switchyard_agent::enrol::{self, Join};
use switchyard_agent::route::Route;
use switchyard_agent::session::{Dialler, SessionState};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A connection that is opened again whenever it ends. Dropping it ends it.
pub(crate) struct Connection {
    tasks: JoinSet<()>,
    _state: watch::Receiver<SessionState>,
}

impl Connection {
    /// Enrols and connects; the sessions come one after the other. `random` stands for the chance in pauses between two tries,
    /// from 0 to 1.
    ///
    /// # Errors
    /// When the hub does not let it in.
    pub(crate) async fn open(
        token: &JoinToken,
        random: f64,
    ) -> anyhow::Result<(Self, mpsc::Receiver<Link>)> {
        let hub: HubAddress = token.hub_address.parse()?;
        let route = Route::from(hub);
        let identity =
            enrol::enrol(&route, &Join::new(token.token.clone(), token.hub_ca_sha256.parse()?))
                .await?;
        let (links, incoming) = mpsc::channel(1);
        let (state, watched) = watch::channel(SessionState::initial());
        let identity = Arc::new(ArcSwap::from_pointee(identity));
        let random = Box::new(move || random);
        let dialler = Dialler { hub: route, identity, links, state, leadership: None, random };
        let mut tasks = JoinSet::new();
        tasks.spawn(dialler.run(CancellationToken::new()));
        Ok((Self { tasks, _state: watched }, incoming))
    }

    /// Runs what the agent does, as long as the connection is held.
    pub(crate) fn play(&mut self, agent: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(agent);
    }
}
