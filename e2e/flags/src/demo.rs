//! `cargo xtask demo`.

/// Flags of the demo.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Args {
    /// Keep everything running, and print how to reach it with kubectl.
    #[arg(long)]
    pub stay: bool,
    /// Run the jobs in containers, on a real kubelet for each worker. Needs root, and apt-get for containerd and runc.
    #[arg(long)]
    pub real_nodes: bool,
}
