//! `cargo xtask kueue-e2e`.

use std::path::PathBuf;

/// Flags of the suites.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Suites, such as mk-baseline. Default: those that need no operators of other projects.
    #[arg(value_name = "SUITE")]
    pub suites: Vec<String>,
    /// The folder of the harness: run.py, build.sh, stages.yaml and so on.
    #[arg(long, env = "SWITCHYARD_KUEUE_E2E", value_name = "DIRECTORY")]
    pub harness: Option<PathBuf>,
    /// Only tests whose name matches this regular expression; may be given again.
    #[arg(long, value_name = "REGEX")]
    pub focus: Vec<String>,
    /// Not the tests whose name matches this regular expression; may be given again.
    #[arg(long, value_name = "REGEX")]
    pub skip: Vec<String>,
    /// Run Kueue itself instead of Switchyard.
    #[arg(long)]
    pub stock: bool,
    /// Dispatcher of MultiKueue's manager, unless the suite's configuration names one. Default: Switchyard's. Kueue's is
    /// kueue.x-k8s.io/multikueue-dispatcher-all-at-once.
    #[arg(long, value_name = "NAME")]
    pub dispatcher: Option<String>,
    /// Seconds for one suite.
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    pub limit: u32,
    /// Where results and logs go, a folder for each suite. Default: kueue-e2e among the cluster tests' logs.
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,
    /// Write the results here, too, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
