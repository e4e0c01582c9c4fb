//! Writes the CustomResourceDefinitions: `cargo run -p switchyard-api --example crdgen --
//! deploy/crds`.

use std::{fs, path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: crdgen DIRECTORY");
        return ExitCode::from(2);
    };
    match write(&directory) {
        Ok(count) => {
            eprintln!("wrote {count} files to {}", directory.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cannot write to {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

fn write(directory: &std::path::Path) -> std::io::Result<usize> {
    fs::create_dir_all(directory)?;
    let files = switchyard_api::crd_files();
    for (name, text) in &files {
        fs::write(directory.join(name), text)?;
    }
    Ok(files.len())
}
