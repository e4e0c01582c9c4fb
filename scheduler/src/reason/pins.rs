//! Messages about a flavor that a hub charged and that its worker cluster must use. A worker writes
//! them about its own ClusterQueue, and the hub about the ClusterQueue of a worker.

/// The ClusterQueue that a message is about.
#[derive(Debug, Clone, Copy)]
pub enum PinQueue<'a> {
    /// The workload's, on this cluster.
    Own,
    /// One of a worker cluster, by its name.
    OfWorker(&'a str),
}

impl PinQueue<'_> {
    fn name(self) -> String {
        match self {
            Self::Own => "the ClusterQueue".to_owned(),
            Self::OfWorker(name) => format!("ClusterQueue {name}"),
        }
    }

    /// The object that maps flavors.
    fn config(self) -> &'static str {
        match self {
            Self::Own => "the hub's MultiKueueConfig",
            Self::OfWorker(_) => "the MultiKueueConfig",
        }
    }

    /// The queue does not list the flavor `pin`.
    pub fn not_listed(self, pin: &str, resource: &str) -> String {
        format!(
            "flavor {pin}, which the hub charged for {resource}, is not in {}: add it there, or map it in spec.flavorPins of {}",
            self.name(),
            self.config(),
        )
    }

    /// The queue lists the flavor `pin` without the resource.
    pub fn lacks_resource(self, pin: &str, resource: &str) -> String {
        format!(
            "flavor {pin} has no {resource} in {}, and the hub charged {resource} to it: add {resource} there, or map the flavor in spec.flavorPins of {}",
            self.name(),
            self.config(),
        )
    }
}

/// The flavor is not the one that the hub charged.
pub fn not_the_pinned_flavor(flavor: &str, pin: &str, resource: &str) -> String {
    format!("flavor {flavor} is not {pin}, which the hub charged for {resource}")
}
