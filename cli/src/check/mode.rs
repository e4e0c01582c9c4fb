//! The modes in which Switchyard is installed.

/// A mode of the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Single,
    Hub,
    Agent,
}

impl Mode {
    pub(super) const ALL: [Self; 3] = [Self::Hub, Self::Agent, Self::Single];

    /// The name of its Deployment and of its account.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Single => "switchyard",
            Self::Hub => "switchyard-hub",
            Self::Agent => "switchyard-agent",
        }
    }

    /// The manifest that installs it.
    pub(super) fn manifest(self) -> &'static str {
        match self {
            Self::Single => "single.yaml",
            Self::Hub => "hub.yaml",
            Self::Agent => "worker.yaml",
        }
    }

    /// Its name in a report.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Single => "one cluster",
            Self::Hub => "hub",
            Self::Agent => "worker with an agent",
        }
    }

    /// The roles of its account, as they are in `deploy/rbac`.
    pub(super) fn roles(self) -> [&'static str; 2] {
        let own = match self {
            Self::Single => include_str!("../../../deploy/rbac/single.yaml"),
            Self::Hub => include_str!("../../../deploy/rbac/hub.yaml"),
            Self::Agent => include_str!("../../../deploy/rbac/agent.yaml"),
        };
        [include_str!("../../../deploy/rbac/controller.yaml"), own]
    }
}
