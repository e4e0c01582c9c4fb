//! `switchyard`: see where jobs are, why they wait, and which clusters are connected; enrol clusters.

use clap::Parser as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    // kube and this process must agree on one TLS provider. It is installed once; a second time is no error.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = match switchyard::Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    match switchyard::run(args, &mut std::io::stdout().lock()).await {
        Ok(verdict) => verdict.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// Prints help, or what is wrong with the arguments. clap would exit with 2, which says here that a fault was found.
fn usage(error: &clap::Error) -> std::process::ExitCode {
    // Nobody reads a message that cannot be written.
    let _ = error.print();
    if error.use_stderr() {
        std::process::ExitCode::FAILURE
    } else {
        std::process::ExitCode::SUCCESS
    }
}
