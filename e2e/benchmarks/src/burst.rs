//! So many Jobs created at once on a hub with three workers.

mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::json;
use switchyard_flags::bench::burst::{Args, Form};
use switchyard_flags::bench::system::Kind;

use self::report::Report;
use super::document::Document;
use super::failures::Failures;
use super::measure::{Gauge, Usage};
use super::system::System;
use super::timeline::{Timeline, Watches};

/// Creations under way at once.
const CREATORS: usize = 16;
/// How often progress is read.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is printed.
const TELL: Duration = Duration::from_secs(10);
/// How long each pod runs, where pods run.
const RUN_FOR: Duration = Duration::from_secs(1);
/// Late work of a system, such as writing events, is counted for this long.
const TAIL: Duration = Duration::from_secs(2);

/// How one system did.
pub(super) struct Outcome {
    pub(super) kind: Kind,
    pub(super) timeline: Timeline,
    /// Until the last Job was there, or the system was cut.
    pub(super) took: Duration,
    pub(super) cut: bool,
    pub(super) usage: Usage,
}

/// Runs everything, and prints a table for each form and number of Jobs. A system that does not run is reported and left out.
///
/// # Errors
/// When a system did not come up, or a Job failed; the others were measured and written all the same.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let settings =
        json!({"jobs": args.jobs, "limitSeconds": args.limit, "podSeconds": RUN_FOR.as_secs()});
    let mut document = Document::new("burst", &settings)?;
    let mut failures = Failures::default();
    for form in &args.forms {
        for jobs in &args.jobs {
            let mut outcomes = Vec::new();
            for kind in &args.systems {
                let title = format!("{} of {jobs}, {}", form.name(), kind.name());
                let limit = Duration::from_secs(args.limit);
                outcomes
                    .extend(failures.measure(&title, limit, one(*kind, *form, *jobs, args)).await);
            }
            let report = Report::new(*form, *jobs, &outcomes);
            println!("\n{report}");
            document.add(report.json(), args.json.as_deref())?;
        }
    }
    failures.end()
}

async fn one(kind: Kind, form: Form, jobs: usize, args: &Args) -> anyhow::Result<Outcome> {
    let title = format!("{}, {}", form.name(), kind.name());
    eprintln!("==> {title}: control planes");
    let system = System::start(kind, form).await?;
    let timeline = Arc::new(Mutex::new(Timeline::new(jobs)));
    let watches = Watches::start(&system, form, &timeline).await?;
    let gauge = Gauge::start(&system).await?;
    eprintln!("==> {title}: {jobs} jobs");
    let start = timeline.lock().begin();
    let limit = Duration::from_secs(args.limit);
    let creating = create(&system, jobs, &timeline);
    tokio::pin!(creating);
    let (mut created, mut told) = (false, Duration::ZERO);
    let (took, cut) = loop {
        tokio::select! {
            result = &mut creating, if !created => {
                result?;
                created = true;
            }
            () = tokio::time::sleep(LOOK) => {}
        }
        watches.check()?;
        let progress = timeline.lock().progress()?;
        let took = start.elapsed();
        if progress.is_done(form, jobs) {
            break (took, false);
        }
        if took >= limit {
            break (took, true);
        }
        if took >= told + TELL {
            told = took;
            eprintln!("    {:>4} s: {progress}", took.as_secs());
        }
    };
    if !cut {
        tokio::time::sleep(TAIL).await;
    }
    let usage = gauge.stop(&system).await?;
    drop(watches);
    let timeline = timeline.lock().clone();
    let what = if cut { "cut" } else { "done" };
    eprintln!("    {what} after {:.1} s: {}", took.as_secs_f64(), timeline.progress()?);
    Ok(Outcome { kind, timeline, took, cut, usage })
}

/// Creates all Jobs, some at a time.
async fn create(
    system: &System,
    jobs: usize,
    timeline: &Arc<Mutex<Timeline>>,
) -> anyhow::Result<()> {
    let mut creations = futures::stream::iter(0..jobs)
        .map(async |index| {
            let start = Instant::now();
            timeline.lock().created(index, start);
            system.submit(index, RUN_FOR).await.with_context(|| format!("job {index}"))
        })
        .buffer_unordered(CREATORS);
    while let Some(created) = creations.next().await {
        created?;
    }
    Ok(())
}
