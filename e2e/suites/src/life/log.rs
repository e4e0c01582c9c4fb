//! The log of a run: a line an action, with the time of day and the time since the beginning.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use parking_lot::Mutex;

/// Writes to a file, and to standard output what everybody reads.
#[derive(Debug)]
pub(crate) struct Log {
    begun: Instant,
    path: PathBuf,
    file: Mutex<File>,
}

impl Log {
    pub(crate) fn create(path: PathBuf) -> anyhow::Result<Self> {
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { begun: Instant::now(), path, file: Mutex::new(file) })
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// A line of the file.
    pub(crate) fn line(&self, text: &str) {
        let line = self.timed(text);
        let mut file = self.file.lock();
        if let Err(error) = writeln!(file, "{line}") {
            eprintln!("cannot write {}: {error}\n{line}", self.path.display());
        }
    }

    /// A line of both.
    pub(crate) fn tell(&self, text: &str) {
        self.line(text);
        println!("{}", self.timed(text));
    }

    fn timed(&self, text: &str) -> String {
        let (since, now) = (self.begun.elapsed(), jiff::Timestamp::now().strftime("%H:%M:%S%.3f"));
        format!("{now} {:02}:{:04.1} {text}", since.as_secs() / 60, since.as_secs_f64() % 60.0)
    }
}
