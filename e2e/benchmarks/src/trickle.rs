//! Jobs that come one at a time, then at a steady rate, on a hub with three workers; and what it costs when none come.

mod report;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use switchyard_e2e::Progress;
use switchyard_flags::bench::burst::Form;
use switchyard_flags::bench::system::Kind;
use switchyard_flags::bench::trickle::Args;

use self::report::Report;
use super::document::Document;
use super::failures::Failures;
use super::measure::{Gauge, Usage};
use super::system::System;
use super::timeline::{Step, Timeline, Watches};

/// How long the pods of Jobs that come one at a time run: the Job's time is then all overhead.
const BRIEF: Duration = Duration::from_millis(10);
/// The shortest pod of those that come at a rate.
const SHORTEST: Duration = Duration::from_millis(100);
/// How often the end of a Job is checked. The times come from watches.
const LOOK: Duration = Duration::from_millis(2);
/// Creations under way at once, at most: they come at their rate as long as the API server keeps up.
const CREATORS: usize = 256;
/// Late work of a system, such as deleting finished jobs, is counted for this long.
const TAIL: Duration = Duration::from_secs(2);

/// One phase of one system's run.
struct Phase {
    jobs: Range<usize>,
    cut: bool,
    took: Duration,
    usage: Usage,
}

/// How one system did.
struct Outcome {
    kind: Kind,
    timeline: Timeline,
    idle: Phase,
    alone: Phase,
    steady: Phase,
}

/// Runs everything and prints a table for each phase.
///
/// # Errors
/// When a system did not come up, or a Job failed; the others were measured and written all the same.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let settings = json!({
        "jobs": args.jobs, "ratePerSecond": args.rate, "seconds": args.seconds, "longestPodSeconds": args.longest_pod,
        "seed": args.seed, "idleSeconds": args.idle, "limitSeconds": args.limit,
    });
    let mut document = Document::new("trickle", &settings)?;
    let mut failures = Failures::default();
    let mut outcomes = Vec::new();
    for kind in &args.systems {
        let limit = Duration::from_secs(args.idle) + args.limit_duration() * 2;
        outcomes.extend(failures.measure(kind.name(), limit, Run::start(*kind, args)).await);
    }
    let report = Report::new(args, &outcomes);
    println!("\n{report}");
    document.add(report.json(), args.json.as_deref())?;
    failures.end()
}

/// One system under measurement.
struct Run<'a> {
    args: &'a Args,
    title: &'static str,
    system: System,
    timeline: Arc<Mutex<Timeline>>,
    watches: Watches,
}

impl Run<'_> {
    async fn start(kind: Kind, args: &Args) -> anyhow::Result<Outcome> {
        let title = kind.name();
        eprintln!("==> trickle, {title}: control planes");
        let system = System::start(kind, Form::Finish).await?;
        let timeline = Arc::new(Mutex::new(Timeline::new(args.steady().end)));
        let watches = Watches::start(&system, Form::Finish, &timeline).await?;
        let run = Run { args, title, system, timeline, watches };
        run.timeline.lock().begin();
        let idle = run.idle().await?;
        let alone = run.alone().await.context("one at a time")?;
        let steady = run.steady().await.context("at a rate")?;
        let timeline = run.timeline.lock().clone();
        Ok(Outcome { kind, timeline, idle, alone, steady })
    }

    /// How many of some Jobs are finished.
    fn finished(&self, jobs: &Range<usize>) -> anyhow::Result<usize> {
        self.watches.check()?;
        let times = self.timeline.lock();
        times.progress()?;
        Ok(times.waits_of(Step::Finished, jobs.clone()).len())
    }

    async fn idle(&self) -> anyhow::Result<Phase> {
        eprintln!("==> trickle, {}: {} s of nothing", self.title, self.args.idle);
        let (gauge, start) = (Gauge::start(&self.system).await?, Instant::now());
        tokio::time::sleep(Duration::from_secs(self.args.idle)).await;
        let took = start.elapsed();
        Ok(Phase { jobs: 0..0, cut: false, took, usage: gauge.stop(&self.system).await? })
    }

    async fn alone(&self) -> anyhow::Result<Phase> {
        let jobs = 0..self.args.jobs;
        eprintln!("==> trickle, {}: {} jobs, one at a time", self.title, jobs.len());
        let mut progress = Progress::new("jobs, one at a time", jobs.len());
        let (gauge, start) = (Gauge::start(&self.system).await?, Instant::now());
        let mut cut = false;
        'jobs: for index in jobs.clone() {
            progress.at(index);
            self.submit(index, BRIEF).await?;
            while self.finished(&(index..index + 1))? == 0 {
                if start.elapsed() >= self.args.limit_duration() {
                    cut = true;
                    break 'jobs;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        let took = start.elapsed();
        tokio::time::sleep(TAIL).await;
        Ok(Phase { jobs, cut, took, usage: gauge.stop(&self.system).await? })
    }

    async fn steady(&self) -> anyhow::Result<Phase> {
        let jobs = self.args.steady();
        eprintln!(
            "==> trickle, {}: {} jobs a second for {} s",
            self.title, self.args.rate, self.args.seconds
        );
        let mut progress = Progress::new("jobs finished", jobs.len());
        let mut random = StdRng::seed_from_u64(self.args.seed);
        let longest = Duration::from_secs(self.args.longest_pod);
        let lengths: Vec<Duration> =
            jobs.clone().map(|_| random.random_range(SHORTEST..=longest)).collect();
        let (gauge, start) = (Gauge::start(&self.system).await?, tokio::time::Instant::now());
        let period = Duration::from_secs(1) / self.args.rate;
        let creating = futures::stream::iter(jobs.clone().zip(lengths).zip(0u32..))
            .then(async |((index, length), turn)| {
                tokio::time::sleep_until(start + period * turn).await;
                (index, length)
            })
            .map(async |(index, length)| self.submit(index, length).await)
            .buffer_unordered(CREATORS);
        tokio::pin!(creating);
        let (mut created, mut look) = (false, tokio::time::interval(LOOK * 10));
        let cut = loop {
            tokio::select! {
                one = creating.next(), if !created => match one {
                    Some(one) => one?,
                    None => created = true,
                },
                _ = look.tick() => {}
            }
            let finished = self.finished(&jobs)?;
            progress.at(finished);
            if finished == jobs.len() {
                break false;
            }
            if start.elapsed() >= self.args.limit_duration() {
                break true;
            }
        };
        let took = start.elapsed();
        tokio::time::sleep(TAIL).await;
        Ok(Phase { jobs, cut, took, usage: gauge.stop(&self.system).await? })
    }

    async fn submit(&self, index: usize, time: Duration) -> anyhow::Result<()> {
        self.timeline.lock().created(index, Instant::now());
        self.system.submit(index, time).await.with_context(|| format!("job {index}"))
    }
}
