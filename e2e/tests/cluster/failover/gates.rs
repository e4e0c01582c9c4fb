//! The networks between a hub and its agents.

use std::collections::BTreeMap;

use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::gate::Gate;

/// The gates of the agents of a fleet, by cluster.
pub(crate) struct Gates(BTreeMap<String, Gate>);

impl Gates {
    /// Enrols and starts these agents, each behind a gate of its own, and waits until all are connected.
    pub(crate) async fn connect(fleet: &Fleet, names: &[&str]) -> anyhow::Result<Self> {
        let mut gates = BTreeMap::new();
        for name in names {
            let gate = Gate::open(fleet.address()).await?;
            let mut token = fleet.join_token(name).await?;
            token.hub_address = gate.address();
            fleet.start_agent(name, &token).await?;
            fleet.connected(name).await?;
            gates.insert((*name).to_owned(), gate);
        }
        Ok(Self(gates))
    }

    /// As [`Gate::shut`].
    pub(crate) fn shut(&self, name: &str) {
        self.0[name].shut();
    }

    /// As [`Gate::unshut`].
    pub(crate) fn unshut(&self, name: &str) {
        self.0[name].unshut();
    }
}
