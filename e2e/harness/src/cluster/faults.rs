//! Ending, hanging and restarting the parts of a cluster.

use anyhow::Context;

use super::{Cluster, start};
use crate::process::Process;
use switchyard_parts::Part;

impl Cluster {
    /// Kills a part (SIGKILL) and waits until it is gone.
    pub fn kill(&self, part: Part) -> anyhow::Result<()> {
        self.with(part, |process| {
            process.kill();
            Ok(())
        })
    }

    /// Stops a part from running, its connections left open.
    pub fn pause(&self, part: Part) -> anyhow::Result<()> {
        self.with(part, Process::pause)
    }

    /// Lets a paused part run on.
    pub fn resume(&self, part: Part) -> anyhow::Result<()> {
        self.with(part, Process::resume)
    }

    /// Starts a part again as it was, on the same port; what still runs of it is killed first. An API server is
    /// waited for until it is ready.
    pub async fn restart(&self, part: Part) -> anyhow::Result<()> {
        let program = self.with(part, |process| {
            process.kill();
            Ok(process.program().clone())
        })?;
        let process = program.start()?;
        if part == Part::ApiServer {
            start::await_ready(&process, &self.admin).await?;
        }
        self.processes().insert(part, process);
        Ok(())
    }

    /// Loses all that the cluster's etcd holds, which must be its own: what comes up again is a new cluster at the same place.
    pub async fn lose_store(&self) -> anyhow::Result<()> {
        for part in [Part::ControllerManager, Part::ApiServer, Part::Etcd] {
            self.kill(part)?;
        }
        let data = self.state_dir().join("etcd");
        std::fs::remove_dir_all(&data)
            .with_context(|| format!("cannot delete {}", data.display()))?;
        for part in [Part::Etcd, Part::ApiServer, Part::ControllerManager] {
            self.restart(part).await?;
        }
        self.await_service_account("default", "default").await
    }

    /// Takes the API server away. Nothing of the cluster's state is lost: etcd has it.
    pub fn stop_api_server(&self) -> anyhow::Result<()> {
        self.kill(Part::ApiServer)
    }

    /// Brings the API server back and waits until it is ready.
    pub async fn start_api_server(&self) -> anyhow::Result<()> {
        self.restart(Part::ApiServer).await
    }
}
