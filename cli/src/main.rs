//! `switchyard`: see where jobs are, why they wait, and which clusters are connected; enrol clusters.

use clap::Parser as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    // kube and this process must agree on one TLS provider. It is installed once; a second time is no error.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = switchyard::Args::parse();
    match switchyard::run(args, &mut std::io::stdout().lock()).await {
        Ok(code) => std::process::ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
