//! Workflows of `.github` are valid by actionlint.

use std::path::Path;
use std::process::Command;

use crate::run;

pub(super) fn check(actionlint: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(actionlint);
    // Its findings do not depend on whether the machine has these.
    command.args(["-shellcheck", "", "-pyflakes", "", "-no-color"]).current_dir(run::root());
    run::step("actionlint", command)
}
