//! `cargo xtask demo`.

/// Flags of the demo.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Args {
    /// Keep everything running, and print how to reach it with kubectl.
    #[arg(long)]
    pub stay: bool,
}
