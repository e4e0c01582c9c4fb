//! Checks that names of tests have at most 60 characters. Details belong in the test's comment.

use std::collections::BTreeMap;

use super::exceptions::Exceptions;
use super::files::Sources;
use super::tokens;

const LONGEST: usize = 60;

const KNOWN: Exceptions = Exceptions {
    file: "test-names.txt",
    purpose: "Names of tests that are longer than 60 characters.",
};

pub(super) fn check(sources: &Sources, update: bool) -> anyhow::Result<()> {
    let mut found = BTreeMap::new();
    for source in &sources.rust {
        for name in tokens::tests(source.tokens.clone()) {
            let length = name.chars().count();
            if length > LONGEST {
                let path = source.path.display();
                let report = format!("{path}: {name} has {length} characters, above {LONGEST}");
                found.insert(name, report);
            }
        }
    }
    KNOWN.check(&found, update)
}
