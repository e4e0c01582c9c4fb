//! `cargo xtask operators`.

/// Flags of the operators.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which operators. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub only: Vec<String>,
}
