//! Recordings of the engine's events and decisions in a file: optional and bounded.
//!
//! # Guarantees
//!
//! - The file and its predecessor (`FILE.1`) together take about `max_bytes` at most. Each begins
//!   with the engine's whole state, so each replays alone.
//! - The engine never waits for the disk. Lines go to a thread over a bounded channel. When the
//!   channel is full or a write fails, recording ends with a warning and the engine goes on.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

use switchyard_scheduler::{ChangedQueues, Cycle, Engine, Event, Time, record};

/// Capacity of the channel in lines.
const QUEUE: usize = 8192;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingOptions {
    /// The file. Its predecessor is kept as `FILE.1`.
    pub file: PathBuf,
    /// Bound of both files together.
    pub max_bytes: u64,
}

/// An engine, with its recording if there is one.
pub(crate) struct RecordedEngine {
    engine: Engine,
    recording: Option<Recording>,
}

impl RecordedEngine {
    /// Starts to record at once if `options` are given.
    pub(crate) fn new(engine: Engine, options: Option<&RecordingOptions>, now: Time) -> Self {
        let mut recorded = Self { engine, recording: options.and_then(Recording::open) };
        recorded.begin(now);
        recorded
    }

    /// As [`Engine::apply`].
    pub(crate) fn apply(&mut self, event: Event, now: Time) {
        self.begin_anew_if_full(now);
        self.write(|| record::event(&event, now));
        self.engine.apply(event, now);
    }

    /// As [`Engine::flush_inadmissible`].
    pub(crate) fn flush_inadmissible(&mut self, now: Time) {
        self.begin_anew_if_full(now);
        self.write(|| record::flush(now));
        self.engine.flush_inadmissible(now);
    }

    /// As [`Engine::cycle`].
    pub(crate) fn cycle(&mut self, now: Time) -> Cycle {
        self.begin_anew_if_full(now);
        let cycle = self.engine.cycle(now);
        self.write(|| record::cycle(&cycle, now));
        cycle
    }

    /// As [`Engine::changed`]. Not recorded, because no decision depends on it.
    pub(crate) fn changed(&mut self) -> ChangedQueues {
        self.engine.changed()
    }

    fn begin_anew_if_full(&mut self, now: Time) {
        if self.recording.as_ref().is_some_and(Recording::is_full) {
            self.begin(now);
        }
    }

    fn begin(&mut self, now: Time) {
        if self.recording.is_some() {
            let header = record::header(&self.engine, now);
            self.send(header, Piece::Begin);
        }
    }

    fn write(&mut self, line: impl FnOnce() -> serde_json::Result<String>) {
        if self.recording.is_some() {
            self.send(line(), Piece::Line);
        }
    }

    fn send(&mut self, text: serde_json::Result<String>, piece: fn(String) -> Piece) {
        let Some(recording) = &mut self.recording else { return };
        let result =
            text.map_err(|error| error.to_string()).and_then(|text| recording.send(piece(text)));
        if let Err(error) = result {
            tracing::warn!(file = %recording.file.display(), error, "recording ends; admission goes on");
            self.recording = None;
        }
    }
}

impl std::ops::Deref for RecordedEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

enum Piece {
    /// The first line of a new file.
    Begin(String),
    Line(String),
}

struct Recording {
    file: PathBuf,
    /// Bound of one file in bytes.
    each: u64,
    written: u64,
    pieces: SyncSender<Piece>,
}

impl Recording {
    fn open(options: &RecordingOptions) -> Option<Self> {
        let (pieces, received) = sync_channel(QUEUE);
        let file = options.file.clone();
        let writer = std::thread::Builder::new().name("recording".to_owned());
        if let Err(error) = writer.spawn(move || write_all(&file, &received)) {
            tracing::warn!(%error, "nothing is recorded: no thread for it");
            return None;
        }
        Some(Self { file: options.file.clone(), each: options.max_bytes / 2, written: 0, pieces })
    }

    fn is_full(&self) -> bool {
        self.written >= self.each
    }

    fn send(&mut self, piece: Piece) -> Result<(), String> {
        match &piece {
            Piece::Begin(header) if header.len() as u64 > self.each => {
                let (size, each) = (header.len(), self.each);
                return Err(format!(
                    "the state alone takes {size} bytes of the {each} that a file may; allow more"
                ));
            }
            Piece::Begin(header) => self.written = header.len() as u64,
            Piece::Line(line) => self.written += line.len() as u64,
        }
        self.pieces.try_send(piece).map_err(|error| match error {
            TrySendError::Full(_) => "the disk does not keep up".to_owned(),
            TrySendError::Disconnected(_) => "writing failed".to_owned(),
        })
    }
}

/// Body of the writer thread. Returns when the sender is gone or a write fails.
fn write_all(file: &Path, pieces: &Receiver<Piece>) {
    if let Err(error) = try_write_all(file, pieces) {
        tracing::warn!(file = %file.display(), %error, "the recording cannot be written");
    }
}

fn try_write_all(file: &Path, pieces: &Receiver<Piece>) -> std::io::Result<()> {
    let mut out: Option<BufWriter<File>> = None;
    loop {
        let piece = match pieces.try_recv() {
            Ok(piece) => piece,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                // Readers of the file see everything that happened so far.
                out.as_mut().map_or(Ok(()), std::io::Write::flush)?;
                let Ok(piece) = pieces.recv() else { break };
                piece
            }
        };
        match piece {
            Piece::Begin(header) => {
                out.take().map_or(Ok(()), |mut done| done.flush())?;
                if file.exists() {
                    std::fs::rename(file, before(file))?;
                }
                let mut new = BufWriter::new(File::create(file)?);
                new.write_all(header.as_bytes())?;
                out = Some(new);
            }
            Piece::Line(line) => {
                out.as_mut().map_or(Ok(()), |out| out.write_all(line.as_bytes()))?
            }
        }
    }
    out.map_or(Ok(()), |mut out| out.flush())
}

/// Name of the predecessor.
fn before(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::time::{Duration, Instant};

    use super::*;
    use switchyard_scheduler::record::{Summary, replay};
    use switchyard_scheduler::{
        Amount, ClusterQueue, EngineSettings, FlavorQuotas, LocalQueue, LocalQueueKey, PodSet,
        Quota, ResourceFlavor, ResourceGroup, Workload, WorkloadKey,
    };

    const NOW: Time = Time::from_secs(1000);

    fn recorded(file: PathBuf, max_bytes: u64) -> RecordedEngine {
        let mut engine = RecordedEngine::new(
            Engine::new(EngineSettings::default()),
            Some(&RecordingOptions { file, max_bytes }),
            NOW,
        );
        let quota = Quota { nominal: Amount::new(2), ..Quota::default() };
        let flavors =
            vec![FlavorQuotas { name: "f".into(), resources: vec![("gpu".into(), quota)] }];
        let group = ResourceGroup { covered_resources: vec!["gpu".into()], flavors };
        for event in [
            Event::Namespace { name: "n".into(), labels: Default::default() },
            Event::ResourceFlavor(ResourceFlavor {
                name: "f".into(),
                node_labels: Default::default(),
                node_taints: Vec::new(),
                tolerations: Vec::new(),
                topology_name: None,
            }),
            Event::ClusterQueue(ClusterQueue {
                resource_groups: vec![group],
                ..ClusterQueue::new("q")
            }),
            Event::LocalQueue(LocalQueue::new(LocalQueueKey::new("n", "l"), "q")),
        ] {
            engine.apply(event, NOW);
        }
        engine
    }

    /// Creates jobs, of which two fit at a time, and finishes them.
    fn run(engine: &mut RecordedEngine, jobs: usize) {
        for number in 0..jobs {
            let key = WorkloadKey::new("n", format!("w{number}"));
            let pod_set = PodSet {
                requests: [("gpu".into(), Amount::new(1))].into(),
                ..PodSet::new("main", 1)
            };
            let workload = Workload {
                pod_sets: vec![pod_set],
                ..Workload::new(key.clone(), format!("u{number}"), "l", NOW)
            };
            engine.apply(Event::Workload(Box::new(workload)), NOW);
            engine.cycle(NOW);
            if number % 3 == 0 {
                engine.apply(Event::WorkloadDeleted { key }, NOW);
                engine.flush_inadmissible(NOW.plus(Duration::from_secs(2)));
            }
        }
    }

    /// Replays the file once everything is written.
    fn replayed(file: &Path, done: impl Fn(&Summary) -> bool) -> Summary {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let opened = File::open(file).map(BufReader::new);
            match opened.map(replay) {
                Ok(Ok(summary)) if done(&summary) => return summary,
                other => assert!(Instant::now() < end, "{other:?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn recording_replays_to_the_same_state() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("engine.jsonl");
        let mut engine = recorded(file.clone(), 10_000_000);
        run(&mut engine, 10);
        drop(engine);
        let summary = replayed(&file, |summary| summary.cycles == 10 && !summary.truncated);
        assert_eq!((summary.events, summary.cycles), (18, 10));
        assert!(summary.admissions > 2, "{summary:?}");
    }

    #[test]
    fn full_file_is_followed_by_one_that_replays_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("engine.jsonl");
        let mut engine = recorded(file.clone(), 300_000);
        run(&mut engine, 400);
        drop(engine);
        let newest = replayed(&file, |summary| summary.cycles > 0 && !summary.truncated);
        assert!(newest.cycles < 400, "{newest:?}");
        let old = replayed(&before(&file), |summary| summary.cycles > 0);
        assert!(!old.truncated);
        let mut names: Vec<_> =
            dir.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["engine.jsonl", "engine.jsonl.1"]);
    }

    #[test]
    fn failed_write_ends_only_the_recording() {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = recorded(dir.path().join("missing").join("engine.jsonl"), 1_000_000);
        let end = Instant::now() + Duration::from_secs(60);
        while engine.recording.is_some() && Instant::now() < end {
            engine.cycle(NOW);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(engine.recording.is_none());
        run(&mut engine, 5);
        assert_eq!(
            engine.cluster_queue("q").unwrap().pending_active
                + engine.cluster_queue("q").unwrap().pending_inadmissible,
            1
        );
    }

    #[test]
    fn state_larger_than_the_file_ends_the_recording() {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = recorded(dir.path().join("engine.jsonl"), 100);
        run(&mut engine, 5);
        assert!(engine.recording.is_none());
    }
}
