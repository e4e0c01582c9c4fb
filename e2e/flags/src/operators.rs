//! `cargo xtask operators`.

/// What to play.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which operators. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub only: Vec<String>,
}
