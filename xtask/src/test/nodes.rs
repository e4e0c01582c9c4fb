//! Runs the tests on real nodes: one file of the cluster tests, in its own network.

use std::process::Command;

use switchyard_parts::containers::Containers;
use switchyard_parts::{Part, Parts};

use super::build::Program;
use super::cluster;
use crate::report::{Report, Tier};

/// The file of cluster tests that needs real nodes.
pub(super) const FILE: &str = "nodes";

/// The name of the tier's tests in reports.
pub(super) const TITLE: &str = "tests on real nodes";

/// How many tests run at once. They wait most of the time.
const AT_ONCE: &str = "3";

/// Why containers cannot run here. `None` if they can.
pub(crate) fn why_not() -> Option<String> {
    Parts::new()
        .and_then(|parts| Ok(parts.version(Part::Kubelet).map(drop)?))
        .and_then(|()| Containers::find())
        .and_then(|containers| containers.check())
        .err()
        .map(|reason| format!("{reason:#}"))
}

/// Whether containers can run here. If not, records the tests as skipped, with the reason.
pub(super) fn can_run(report: &Report) -> bool {
    let reason = why_not();
    if let Some(reason) = &reason {
        report.skip(Tier::Nodes, TITLE, reason);
    }
    reason.is_none()
}

/// Runs the tests whose names contain the filter.
pub(super) fn run(report: &Report, program: &Program, filter: Option<&str>) {
    let listed =
        report.part(Tier::Nodes, "list the tests on real nodes", || cluster::list(program, filter));
    let Some(file) = listed.into_iter().flatten().find(|file| file.name == FILE) else { return };
    // `switchyard_e2e::nodes` reads this variable.
    let mut command = Command::new("unshare");
    command.arg("--net").arg(&program.path).env("SWITCHYARD_OWN_NETWORK", "yes");
    command.env("RUST_TEST_THREADS", AT_ONCE);
    cluster::one(report, Tier::Nodes, TITLE, command, &file);
}
