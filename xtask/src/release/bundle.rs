//! The inputs from which all files of a release are made.

use std::fs;

use anyhow::Context as _;
use switchyard_images::packed::{self, Entry};

use super::source::Source;
use crate::run;

/// The source and its programs.
pub(crate) struct Bundle {
    pub(crate) source: Source,
    /// The registry with its path; may be empty.
    pub(crate) registry: String,
    pub(crate) programs: Vec<Program>,
}

/// A program for one architecture.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// By its Go name.
    pub(crate) architecture: String,
    pub(crate) bytes: Vec<u8>,
}

/// An archive with the command line, for download.
pub(crate) struct CommandLineArchive {
    pub(crate) architecture: String,
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Bundle {
    pub(crate) fn add(&mut self, architecture: &str, name: &'static str, bytes: Vec<u8>) {
        self.programs.push(Program { name, architecture: architecture.to_owned(), bytes });
    }

    /// A program, once for each architecture.
    pub(crate) fn all_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Program> {
        self.programs.iter().filter(move |program| program.name == name)
    }

    /// The command line, packed with the README and the license, once for each architecture.
    pub(crate) fn command_line_archives(&self) -> anyhow::Result<Vec<CommandLineArchive>> {
        let read = |name: &str| {
            let bytes = fs::read(run::root().join(name));
            bytes.with_context(|| format!("cannot read {name}"))
        };
        let (readme, license) = (read("README.md")?, read("LICENSE")?);
        let pack = |program: &Program| {
            let entries = [
                Entry::program("switchyard", program.bytes.clone()),
                Entry::file("README.md", readme.clone()),
                Entry::file("LICENSE", license.clone()),
            ];
            let architecture = program.architecture.clone();
            let name = format!("switchyard-{}-linux-{architecture}.tar.gz", self.source.version);
            let bytes = packed::gzip(&packed::tar(&entries, self.source.date)?)?;
            Ok(CommandLineArchive { architecture, name, bytes })
        };
        self.all_of("switchyard").map(pack).collect()
    }
}
