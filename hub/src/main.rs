//! The hub's binary.

use std::process::ExitCode;

use clap::Parser;
use switchyard_hub::{Args, run};
use switchyard_platform::program;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let (log, format) = (args.log.clone(), args.log_format);
    program::run("switchyard-hub", &log, format, async |shutdown| {
        run(args.options().await?, shutdown).await
    })
    .await
}
