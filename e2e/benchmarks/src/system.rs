//! The systems that are measured, each up and ready for Jobs.

use std::time::Duration;

use serde_json::json;
use switchyard_e2e::{Cluster, Environment, Process};
use switchyard_flags::bench::burst::Form;
use switchyard_flags::bench::system::Kind;

use super::floor::Floor;
use super::measure::Measured;
use super::ours::Ours;
use super::setup::{HUB, WORKERS, job};
use super::stock::Stock;

/// One of them, running. Dropping it ends everything.
pub(super) enum System {
    Floor(Floor),
    Ours(Box<Ours>),
    Stock(Stock),
}

impl System {
    pub(super) async fn start(kind: Kind, form: Form) -> anyhow::Result<Self> {
        Ok(match kind {
            Kind::Floor => Self::Floor(Floor::start(form).await?),
            Kind::Ours => Self::Ours(Box::new(Ours::start(form).await?)),
            Kind::StockRaised => Self::Stock(Stock::start(form, true).await?),
            Kind::Stock => Self::Stock(Stock::start(form, false).await?),
        })
    }

    /// The namespace of the Jobs, in all clusters.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Floor(_) => super::floor::NAMESPACE,
            Self::Ours(ours) => ours.namespace(),
            Self::Stock(_) => super::stock::NAMESPACE,
        }
    }

    pub(super) fn hub(&self) -> &Cluster {
        self.environment().cluster(HUB)
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &Cluster> {
        WORKERS.iter().map(|name| self.environment().cluster(name))
    }

    /// Whether users see the end of Jobs on the workers, because no dispatcher shows it on the hub.
    pub(super) fn ends_on_workers(&self) -> bool {
        matches!(self, Self::Floor(_))
    }

    /// Creates one Job as a user does. Without a dispatcher, makes the unavoidable writes. `time`: how long its pod runs.
    pub(super) async fn submit(&self, index: usize, time: Duration) -> anyhow::Result<()> {
        match self {
            Self::Floor(floor) => floor.submit(index, time).await,
            Self::Ours(_) | Self::Stock(_) => {
                // Both get the same object: stock Kueue's webhooks, which would fill this in, are not registered.
                let job = job(self.namespace(), index, time).suspended();
                let job = job.field("managedBy", json!("kueue.x-k8s.io/multikueue"));
                job.create(&self.hub().admin).await.map(drop)
            }
        }
    }
}

impl Measured for System {
    fn environment(&self) -> &Environment {
        match self {
            Self::Floor(floor) => floor.environment(),
            Self::Ours(ours) => ours.environment(),
            Self::Stock(stock) => stock.environment(),
        }
    }

    fn controllers<T>(
        &self,
        mut act: impl FnMut(&Process) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<(String, T)>> {
        match self {
            Self::Floor(_) => Ok(Vec::new()),
            Self::Ours(ours) => ours.controllers(&mut act),
            Self::Stock(stock) => stock.controllers(&mut act),
        }
    }
}
