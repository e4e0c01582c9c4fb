//! The `switchyard` binary.

use std::io::IsTerminal as _;

use clap::FromArgMatches as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    // kube and this program must use the same TLS provider. A second installation is no error.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let parsed = switchyard::help::command()
        .try_get_matches()
        .and_then(|matches| switchyard::Args::from_arg_matches(&matches));
    let mut args = match parsed {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    args.color = args.color.resolved(std::io::stdout().is_terminal());
    match switchyard::run(args, &mut std::io::stdout().lock()).await {
        Ok(exit_status) => exit_status.into(),
        Err(error) => {
            eprintln!("error: {}", switchyard::message(&error));
            std::process::ExitCode::FAILURE
        }
    }
}

/// Prints help or a usage error. clap would exit with 2, which here means a fault.
fn usage(error: &clap::Error) -> std::process::ExitCode {
    // Nothing can be reported if the terminal is gone.
    let _ = error.print();
    if error.use_stderr() {
        std::process::ExitCode::FAILURE
    } else {
        std::process::ExitCode::SUCCESS
    }
}
