//! A network of its own for a process that starts real nodes.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Once;

use anyhow::{Context, bail, ensure};
use switchyard_parts::containers::Containers;
use switchyard_parts::{Part, Parts};

/// Environment variable of a process that has its own network.
const INSIDE: &str = "SWITCHYARD_OWN_NETWORK";

/// The parts of clusters. They are built before, because Go modules cannot be fetched inside.
const CLUSTER: [Part; 5] =
    [Part::Etcd, Part::ApiServer, Part::ControllerManager, Part::Scheduler, Part::Kubelet];
/// Programs that tests use besides them.
const TOOLS: [Part; 3] = [Part::Kubectl, Part::Helm, Part::Kueue];

/// Whether this process may start real nodes.
pub fn is_isolated() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// A prefix for commands in another terminal that must reach the servers of this process. It enters this process's network, and
/// is empty if that is the machine's.
pub fn inside() -> String {
    if is_isolated() {
        format!("nsenter --net --target {} ", std::process::id())
    } else {
        String::new()
    }
}

/// Starts this program again in a network of its own, with the same arguments. In the started program, returns at once.
///
/// # Errors
/// Why real nodes cannot run here.
pub fn enter() -> anyhow::Result<()> {
    if is_isolated() {
        return raise_loopback();
    }
    let mut command = outside(&CLUSTER)?;
    command.args(std::env::args_os().skip(1));
    Err(command.exec()).context("cannot start unshare")
}

/// A command that starts this program again in a network of its own for one test.
///
/// # Errors
/// Why real nodes cannot run here.
pub(crate) fn again_for(test: &str) -> anyhow::Result<Command> {
    let mut command = outside(&[&CLUSTER[..], &TOOLS].concat())?;
    command.args([test, "--exact", "--nocapture"]);
    Ok(command)
}

/// This program in a network of its own, without arguments.
fn outside(needed: &[Part]) -> anyhow::Result<Command> {
    let containers = Containers::find()?;
    containers.check()?;
    let parts = Parts::new()?;
    needed.iter().try_for_each(|part| parts.binary(*part).map(drop))?;
    let mut command = Command::new("unshare");
    command.arg("--net").arg(std::env::current_exe()?).env(INSIDE, "yes");
    Ok(command)
}

/// Starts the loopback device, which is down in a new network.
pub(crate) fn raise_loopback() -> anyhow::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| result = ip(&["link", "set", "lo", "up"]));
    result
}

/// Runs `ip` of BusyBox.
pub(super) fn ip(words: &[&str]) -> anyhow::Result<()> {
    ensure!(is_isolated(), "real nodes need a network of their own: nodes::enter comes first");
    let output = Command::new(Containers::find()?.busybox()?).arg("ip").args(words).output()?;
    if !output.status.success() {
        bail!("ip {words:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
