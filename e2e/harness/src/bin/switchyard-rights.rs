//! Prints the report of `cargo xtask rights`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;

#[derive(clap::Parser)]
#[command(about = "The rights of deploy/rbac that no audit log of a directory shows")]
struct Command {
    /// The directory.
    logs: PathBuf,
}

fn main() -> ExitCode {
    match switchyard_e2e::rights::report(&Command::parse().logs) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
