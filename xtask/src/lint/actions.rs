//! Checks the workflows in `.github` with actionlint.

use std::path::Path;
use std::process::Command;

use crate::run;

pub(super) fn check(actionlint: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(actionlint);
    // Off, so that findings do not depend on the programs of the machine.
    command.args(["-shellcheck", "", "-pyflakes", "", "-no-color"]).current_dir(run::root());
    run::step("actionlint", command)
}
