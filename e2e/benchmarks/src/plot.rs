//! Pictures of what was measured, from the JSON of a run.

mod bars;
mod figures;
mod lines;
mod picture;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;
use switchyard_flags::bench::plot::Args;

use self::picture::Picture;

/// Draws a picture of each file.
///
/// # Errors
/// When a file is not what a benchmark wrote, or a picture cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.into)
        .with_context(|| format!("cannot create {}", args.into.display()))?;
    let mut drawn = BTreeSet::new();
    for file in &args.json {
        let (benchmark, svg) = read(file).with_context(|| file.display().to_string())?;
        ensure!(
            drawn.insert(benchmark.clone()),
            "{}: a second run of {benchmark}; name one",
            file.display()
        );
        let path = args.into.join(format!("{benchmark}.svg"));
        std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<(String, String)> {
    let document: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let picture = Picture::of(&document)?;
    Ok((picture.benchmark.clone(), picture.svg()?))
}
