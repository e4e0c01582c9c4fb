//! `cargo xtask bench burst`.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;

use super::system::Kind;

/// How far each Job goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// The clock stops when each Job exists on a worker, unsuspended. Workers have no Job controller and no nodes.
    Dispatch,
    /// Pods of one second (kwok); the clock stops when each Job is Complete where it was created.
    Finish,
}

impl Form {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Finish => "finish",
        }
    }
}

/// Flags of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many Jobs; several numbers are measured one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 2000], value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub jobs: Vec<usize>,
    /// In which forms.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Form::Dispatch, Form::Finish])]
    pub forms: Vec<Form>,
    /// Which systems, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Floor, Kind::Ours, Kind::StockRaised, Kind::Stock])]
    pub systems: Vec<Kind>,
    /// Seconds after which a system is cut, and reported as cut.
    #[arg(long, default_value_t = 600)]
    pub limit: u64,
    /// Where to write what the tables say, and the requests in full, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
