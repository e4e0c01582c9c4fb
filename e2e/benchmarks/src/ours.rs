//! Hub and agents, as their users run them.

use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::{Environment, Process, queues};
use switchyard_flags::bench::burst::Form;

use super::setup::{CPUS, HUB, WORKERS, worker};

/// A fleet with a tenant.
pub(super) struct Ours {
    fleet: Fleet,
    namespace: String,
}

impl Ours {
    pub(super) async fn start(form: Form) -> anyhow::Result<Self> {
        let builder = WORKERS
            .iter()
            .fold(Fleet::builder("bench-ours"), |fleet, name| fleet.agent(worker(name, form)));
        let fleet = builder.start().await?;
        fleet.hub().apply(WORKERS.iter().map(|name| queues::agent_cluster(name))).await?;
        fleet.connect().await?;
        let quota = [("cpu", CPUS)];
        let tenant = WORKERS
            .iter()
            .fold(fleet.tenant("burst").hub(&quota), |tenant, name| tenant.worker(name, &quota));
        let namespace = tenant.make().await?.name().to_owned();
        Ok(Self { fleet, namespace })
    }

    pub(super) fn environment(&self) -> &Environment {
        self.fleet.environment()
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn controllers<T>(
        &self,
        act: &mut impl FnMut(&Process) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<(String, T)>> {
        [HUB]
            .iter()
            .chain(&WORKERS)
            .map(|name| Ok(((*name).to_owned(), self.fleet.with(name, &mut *act)??)))
            .collect()
    }
}
