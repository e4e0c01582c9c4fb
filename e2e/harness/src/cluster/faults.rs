//! Ending, hanging and restarting the parts of a cluster.

use anyhow::Context;

use super::{Cluster, start};
use crate::process::Process;
use switchyard_parts::Part;

impl Cluster {
    /// Kills a part (SIGKILL) and waits for its end.
    pub fn kill(&self, part: Part) -> anyhow::Result<()> {
        self.with(part, |process| {
            process.kill();
            Ok(())
        })
    }

    /// Pauses a part, and waits until each of its threads has stopped. Its connections stay open.
    pub fn pause(&self, part: Part) -> anyhow::Result<()> {
        self.with(part, Process::pause)
    }

    /// True while each thread of a part is stopped.
    pub fn is_paused(&self, part: Part) -> anyhow::Result<bool> {
        self.with(part, Process::is_paused)
    }

    /// Continues a paused part.
    pub fn resume(&self, part: Part) -> anyhow::Result<()> {
        self.with(part, Process::resume)
    }

    /// Starts a part again with the same flags and port, and kills it first if it still runs. Waits until an API server is
    /// ready.
    pub async fn restart(&self, part: Part) -> anyhow::Result<()> {
        let program = self.with(part, |process| {
            process.kill();
            Ok(process.program().clone())
        })?;
        let process = program.start()?;
        if part == Part::ApiServer {
            start::await_ready(&process, &self.admin).await?;
        }
        self.processes.lock().insert(part, process);
        Ok(())
    }

    /// Deletes all data of the cluster's own etcd. A new, empty cluster starts at the same address.
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

    /// Stops the API server. The cluster's state stays in etcd.
    pub fn stop_api_server(&self) -> anyhow::Result<()> {
        self.kill(Part::ApiServer)
    }

    /// Starts the API server again and waits until it is ready.
    pub async fn start_api_server(&self) -> anyhow::Result<()> {
        self.restart(Part::ApiServer).await
    }
}
