//! The modes in which Switchyard is installed.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Single,
    Hub,
    Agent,
}

impl Mode {
    pub(super) const ALL: [Self; 3] = [Self::Hub, Self::Agent, Self::Single];

    /// Name of the Deployment and the service account.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Single => "switchyard",
            Self::Hub => "switchyard-hub",
            Self::Agent => "switchyard-agent",
        }
    }

    /// Name of the release manifest.
    pub(super) fn manifest(self) -> &'static str {
        match self {
            Self::Single => "single.yaml",
            Self::Hub => "hub.yaml",
            Self::Agent => "worker.yaml",
        }
    }

    /// Name in a report.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Single => "one cluster",
            Self::Hub => "hub",
            Self::Agent => "worker with an agent",
        }
    }

    /// Roles of every mode's service account, without bindings.
    pub(super) const CONTROLLER_ROLES: &str = include_str!("../../../deploy/rbac/controller.yaml");

    /// Roles of the service account, as in `deploy/rbac`.
    pub(super) fn roles(self) -> [&'static str; 2] {
        let own = match self {
            Self::Single => include_str!("../../../deploy/rbac/single.yaml"),
            Self::Hub => include_str!("../../../deploy/rbac/hub.yaml"),
            Self::Agent => include_str!("../../../deploy/rbac/agent.yaml"),
        };
        [Self::CONTROLLER_ROLES, own]
    }
}
