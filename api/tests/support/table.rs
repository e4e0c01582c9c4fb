//! The manifests beside this file: accepted ones, and refused ones with the expected message. The
//! tests of this crate read them without a server, and the tests in `e2e` with a real API server.
//!
//! A refused manifest begins with comments:
//! - a sentence with the rule,
//! - `# refused: ` with a part of the message,
//! - `# by: webhook` if the schema cannot express the rule,
//! - `# stricter: ` with the reason if stock Kueue's schema accepts the manifest.
//!
//! If there are two documents, the change from the first to the second is refused.

use std::{fs, path::Path};

use serde_json::Value;

/// A file of accepted manifests.
pub(crate) struct Accepted {
    /// The file's name.
    pub name: String,
    /// The objects, each to be created on its own.
    pub documents: Vec<Value>,
}

/// A file whose last manifest is refused.
pub(crate) struct Refused {
    /// The file's name without its ending.
    pub name: String,
    /// The rule.
    pub sentence: String,
    /// A part of the message.
    pub message: String,
    /// Whether the webhook refuses it, not the schema.
    pub by_webhook: bool,
    /// Whether stock Kueue's schema accepts it, because the rule is Switchyard's or only in Kueue's
    /// webhook.
    pub ours: bool,
    /// The object before the refused change, for updates.
    pub before: Option<Value>,
    /// The refused object.
    pub object: Value,
}

/// All files of `api/tests/manifests`, given the directory `api`.
pub(crate) fn accepted(api: &Path) -> Vec<Accepted> {
    files(&api.join("tests/manifests"))
        .into_iter()
        .map(|(name, text)| Accepted { documents: documents(&name, &text), name })
        .collect()
}

/// All files of `api/tests/manifests/refused`, given the directory `api`.
pub(crate) fn refused(api: &Path) -> Vec<Refused> {
    files(&api.join("tests/manifests/refused"))
        .into_iter()
        .map(|(name, text)| one_refused(name, &text))
        .collect()
}

fn one_refused(name: String, text: &str) -> Refused {
    let comments: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("# ")).collect();
    let value =
        |key: &str| comments.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let mut documents = documents(&name, text);
    let object = documents.pop().unwrap_or_else(|| panic!("{name}: no document"));
    assert!(documents.len() <= 1, "{name}: more than two documents");
    Refused {
        sentence: comments.first().unwrap_or_else(|| panic!("{name}: no sentence")).to_string(),
        message: value("refused")
            .unwrap_or_else(|| panic!("{name}: no `# refused: ` line"))
            .to_owned(),
        by_webhook: value("by") == Some("webhook"),
        ours: value("stricter").is_some(),
        before: documents.pop(),
        object,
        name,
    }
}

fn files(directory: &Path) -> Vec<(String, String)> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<(String, String)> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .map(|path| {
            (
                path.file_stem().unwrap().to_string_lossy().into_owned(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

fn documents(name: &str, text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}
