//! The corpus: scenarios in `corpus/` with Kueue's decisions. The engine must decide the same.
//!
//! `cargo xtask fuzz-decisions` finds new ones, which go into `corpus/` unchanged; files may be
//! compressed.

// Shared with the example, which shows the differences of any file.
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
#[path = "../../examples/conformance/topology.rs"]
mod topology;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

/// Scenarios that the engine decides otherwise than Kueue, and why. The test fails for any other
/// difference, and for an entry without a difference.
const DIFFERENT: &[(&str, &str)] = &[
    ("tas-groups-0006", NO_REQUESTS),
    ("tas-groups-0014", NO_REQUESTS),
    ("tas-groups-0016", NO_REQUESTS),
    ("tas-groups-0019", NO_REQUESTS),
    (
        "tas-plain-0042",
        "Kueue looks at resources in the order of a hash of their names, and names another",
    ),
];

const NO_REQUESTS: &str =
    "Kueue places pods that ask for nothing, and then finds in each cycle that they do not fit";

/// The scenarios of a file, and the differences.
struct File {
    name: String,
    count: usize,
    different: Vec<(String, String)>,
}

type Played = Result<File, Box<dyn Error + Send + Sync>>;

fn text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let mut file = std::fs::File::open(path)?;
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
    let mut different = Vec::new();
    for line in &lines {
        let (name, difference) =
            check::line(line).map_err(|error| format!("{}: {error}", path.display()))?;
        different.extend(difference.map(|difference| (name, difference)));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(File { name, count: lines.len(), different })
}

#[test]
fn engine_decides_the_corpus_as_kueue() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> =
        std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().contains(".jsonl"));
    files.sort();
    let played = std::thread::scope(|scope| {
        let players: Vec<_> = files.iter().map(|path| scope.spawn(|| play_file(path))).collect();
        players.into_iter().map(|player| player.join().unwrap().unwrap()).collect::<Vec<_>>()
    });
    for File { name, count, different } in &played {
        println!("{name}: {} of {count} as Kueue", count - different.len());
    }
    let count: usize = played.iter().map(|file| file.count).sum();
    let mut known: BTreeMap<&str, &str> = DIFFERENT.iter().copied().collect();
    let mut unknown = Vec::new();
    for (file, (name, difference)) in
        played.iter().flat_map(|file| file.different.iter().map(move |d| (&file.name, d)))
    {
        match known.remove(&**name) {
            Some(reason) => println!("{name} differs: {reason}"),
            None => unknown.push(format!("{file}: {name}\n{difference}")),
        }
    }
    assert!(
        unknown.is_empty(),
        "{} of {count} scenarios differ:\n{}",
        unknown.len(),
        unknown.join("\n")
    );
    assert!(known.is_empty(), "these are decided as by Kueue now: {known:?}");
    assert!(count >= 1082, "only {count} scenarios in {} files", files.len());
    println!("{count} scenarios in {} files", files.len());
}
