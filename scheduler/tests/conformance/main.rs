//! The corpus: scenarios with what Kueue decided on them, in `corpus/`. The engine decides the same.
//!
//! A new one is found by `cargo xtask fuzz-decisions` and is put there as it is; files may be compressed.

// The same player as the example's, which shows differences of any file.
#[path = "../../examples/conformance/check.rs"]
mod check;
#[path = "../../examples/conformance/compare.rs"]
mod compare;
#[path = "../../examples/conformance/edits.rs"]
mod edits;
#[path = "../../examples/conformance/objects.rs"]
mod objects;
#[path = "../../examples/conformance/play.rs"]
mod play;
#[path = "../../examples/conformance/quantity.rs"]
mod quantity;

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

/// How many scenarios a file has, and how those differ that do.
type Played = Result<(usize, Vec<String>), Box<dyn Error + Send + Sync>>;

fn text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let mut file = File::open(path)?;
    if path.extension().is_some_and(|ending| ending == "gz") {
        GzDecoder::new(file).read_to_string(&mut text)?;
    } else {
        file.read_to_string(&mut text)?;
    }
    Ok(text)
}

fn play_file(path: &Path) -> Played {
    let text = text(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut differences = Vec::new();
    for line in &lines {
        let (name, difference) = check::line(line).map_err(|error| format!("{}: {error}", path.display()))?;
        differences.extend(difference.map(|difference| format!("{}: {name}\n{difference}", path.display())));
    }
    Ok((lines.len(), differences))
}

#[test]
fn the_engine_decides_the_corpus_as_kueue_did() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().contains(".jsonl"));
    files.sort();
    let played = std::thread::scope(|scope| {
        let players: Vec<_> = files.iter().map(|path| scope.spawn(|| play_file(path))).collect();
        players.into_iter().map(|player| player.join().unwrap().unwrap()).collect::<Vec<_>>()
    });
    let count: usize = played.iter().map(|(count, _)| count).sum();
    let differences: Vec<_> = played.into_iter().flat_map(|(_, differences)| differences).collect();
    assert!(differences.is_empty(), "{} of {count} scenarios differ:\n{}", differences.len(), differences.join("\n"));
    assert!(count >= 675, "only {count} scenarios in {} files", files.len());
    println!("{count} scenarios in {} files", files.len());
}
