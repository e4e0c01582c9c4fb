//! `switchyard wait JOB --for STATE`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use jiff::SignedDuration;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use switchyard_api::conditions;
use switchyard_api::v1beta2::Workload;

use crate::ExitStatus;
use crate::find::{find, is_meant};
use crate::follow::{Change, follow};
use crate::job_row::{JobRow, JobState, row};

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// It may start; on a hub, a cluster has it.
    Admitted,
    /// Its pods are ready.
    Running,
    /// It has succeeded or failed.
    Finished,
}

/// Arguments of `switchyard wait`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The job (`NAME`, `KIND/NAME`), or its Workload. It may be created later.
    pub job: String,
    /// The state.
    #[arg(long = "for", value_enum, value_name = "STATE", default_value = "finished")]
    pub goal: Goal,
    /// Timeout, such as 30s, 10m or 2h.
    #[arg(long, default_value = "1h", value_parser = timeout)]
    pub timeout: Duration,
    /// Namespace. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Print no progress.
    #[arg(short, long)]
    pub quiet: bool,
}

/// A duration above zero, as `--timeout` takes it.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    let bad = || format!("\"{text}\" is no duration; write it as 30s, 10m or 2h");
    let duration: SignedDuration = text.parse().map_err(|_| bad())?;
    let timeout = Duration::try_from(duration).ok().filter(|it| !it.is_zero()).ok_or_else(bad)?;
    if timeout > LONGEST { Err("must be at most 8760h".to_owned()) } else { Ok(timeout) }
}

/// Seconds up to an hour, as a duration or as a bare number, which earlier versions took.
pub(crate) fn up_to_an_hour(text: &str) -> Result<u64, String> {
    let seconds = match text.parse() {
        Ok(seconds) => seconds,
        Err(_) => timeout(text)?.as_secs(),
    };
    if seconds <= 3600 { Ok(seconds) } else { Err("must be at most 1h".to_owned()) }
}

/// As [`up_to_an_hour`], and above zero.
pub(crate) fn seconds_up_to_an_hour(text: &str) -> Result<u64, String> {
    up_to_an_hour(text).and_then(|seconds| match seconds {
        0 => Err("must be at least 1s".to_owned()),
        seconds => Ok(seconds),
    })
}

/// A timeout as users write it.
pub(crate) fn shown(timeout: Duration) -> String {
    SignedDuration::try_from(timeout)
        .map_or_else(|_| format!("{timeout:?}"), |it| format!("{it:#}"))
}

/// A year. Deadlines of longer waits could not be represented.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Interval of [`poll`].
const LOOK: Duration = Duration::from_secs(1);

/// Calls `look` each second until it breaks. Prints each new state on stderr.
///
/// # Errors
/// Errors of `look`, and after the timeout, with the last state.
pub(crate) async fn poll<T>(
    timeout: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<ControlFlow<T, String>>,
) -> anyhow::Result<T> {
    let end = tokio::time::Instant::now() + timeout;
    let mut before = None;
    loop {
        let state = match look().await? {
            ControlFlow::Break(reached) => return Ok(reached),
            ControlFlow::Continue(state) => state,
        };
        if before.as_ref() != Some(&state) {
            eprintln!("{state}");
        }
        if tokio::time::Instant::now() >= end {
            bail!("after {}: {state}", shown(timeout));
        }
        before = Some(state);
        tokio::time::sleep(LOOK).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Wait,
    Reached,
    Failed,
    /// The job cannot reach the state until a user changes it.
    Stuck,
}

fn step(state: JobState, goal: Goal) -> Step {
    match (state, goal) {
        (JobState::Failed, _) => Step::Failed,
        (JobState::Succeeded, _)
        | (JobState::Running, Goal::Running | Goal::Admitted)
        | (JobState::Admitted, Goal::Admitted) => Step::Reached,
        (JobState::Deactivated, _) => Step::Stuck,
        _ => Step::Wait,
    }
}

/// Waits, with progress on stderr.
///
/// # Errors
/// After the timeout, for a deactivated job, and when the API server refuses.
pub async fn run(client: Client, namespace: &str, args: &Args) -> anyhow::Result<ExitStatus> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let mut seen = Seen::default();
    match tokio::time::timeout(args.timeout, until(client, namespace, args, &mut seen)).await {
        Ok(status) => status,
        Err(_) => bail!("timed out after {}: {}", shown(args.timeout), seen.text(namespace, args)),
    }
}

/// The state of the job as far as it was read.
#[derive(Default)]
struct Seen {
    /// The Workloads of the job, by uid.
    workloads: BTreeMap<String, Workload>,
    row: Option<JobRow>,
    /// The error that the last request ended with.
    error: Option<String>,
}

impl Seen {
    fn text(&self, namespace: &str, args: &Args) -> String {
        match (&self.row, &self.error) {
            (Some(row), _) => line(row),
            (None, Some(error)) => error.clone(),
            (None, None) => {
                format!("no workload or queued job \"{}\" in namespace {namespace}", args.job)
            }
        }
    }
}

async fn until(
    client: Client,
    namespace: &str,
    args: &Args,
    seen: &mut Seen,
) -> anyhow::Result<ExitStatus> {
    let api: Api<Workload> = Api::namespaced(client, namespace);
    let error = RefCell::new(None);
    let interrupted = |it: &watcher::Error| {
        if !args.quiet {
            eprintln!("the watch was interrupted: {it}");
        }
        *error.borrow_mut() = Some(it.to_string());
    };
    follow(&api, None, interrupted, async |event: Change<Workload>| {
        seen.error = error.borrow_mut().take();
        let (workload, is_deleted) = match event {
            Change::Applied(workload) => (workload, false),
            Change::Deleted(workload) => (workload, true),
            Change::Began | Change::Complete => return Ok(ControlFlow::Continue(())),
        };
        if !is_meant(&workload, &args.job) {
            return Ok(ControlFlow::Continue(()));
        }
        let uid = workload.uid().unwrap_or_default();
        if is_deleted {
            seen.workloads.remove(&uid);
            if seen.workloads.is_empty() && seen.row.is_some() {
                bail!("{} was deleted", args.job);
            }
        } else {
            seen.workloads.insert(uid, workload);
        }
        let all: Vec<&Workload> = seen.workloads.values().collect();
        let Ok(chosen) = find(&all, namespace, &args.job) else {
            return Ok(ControlFlow::Continue(()));
        };
        let now = row(chosen);
        if !args.quiet && seen.row.as_ref().is_none_or(|before| line(before) != line(&now)) {
            eprintln!("{}", line(&now));
        }
        let step = if is_superseded(chosen) { Step::Wait } else { step(now.state, args.goal) };
        let text = line(&now);
        seen.row = Some(now);
        match step {
            Step::Wait => Ok(ControlFlow::Continue(())),
            Step::Reached => Ok(ControlFlow::Break(ExitStatus::Clean)),
            Step::Failed => Ok(ControlFlow::Break(ExitStatus::Faulty)),
            Step::Stuck => bail!("{text}"),
        }
    })
    .await
}

/// Whether the Workload ended while its job goes on: another one takes its place.
fn is_superseded(workload: &Workload) -> bool {
    const REASONS: [&str; 3] = ["WorkloadSliceReplaced", "OutOfSync", "OwnerNotFound"];
    let status = workload.status.as_ref();
    let finished =
        status.and_then(|status| conditions::find(&status.conditions, conditions::FINISHED));
    finished.is_some_and(|finished| REASONS.contains(&&*finished.reason))
}

/// A row as a line of progress.
fn line(row: &JobRow) -> String {
    let at = row.cluster.as_ref().map(|cluster| format!(" on {cluster}")).unwrap_or_default();
    let why = if row.reason.is_empty() { String::new() } else { format!(": {}", row.reason) };
    format!("{}: {}{at}{why}", row.job, row.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_goal_is_reached_by_its_states() {
        for (state, admitted, running, finished) in [
            (JobState::Pending, Step::Wait, Step::Wait, Step::Wait),
            (JobState::QuotaReserved, Step::Wait, Step::Wait, Step::Wait),
            (JobState::Admitted, Step::Reached, Step::Wait, Step::Wait),
            (JobState::Running, Step::Reached, Step::Reached, Step::Wait),
            (JobState::Evicted, Step::Wait, Step::Wait, Step::Wait),
            (JobState::Deactivated, Step::Stuck, Step::Stuck, Step::Stuck),
            (JobState::Succeeded, Step::Reached, Step::Reached, Step::Reached),
            (JobState::Failed, Step::Failed, Step::Failed, Step::Failed),
        ] {
            let of = |goal| step(state, goal);
            assert_eq!(
                (of(Goal::Admitted), of(Goal::Running), of(Goal::Finished)),
                (admitted, running, finished),
                "{state}"
            );
        }
    }

    #[test]
    fn bare_seconds_and_durations_are_timeouts() {
        assert_eq!(seconds_up_to_an_hour("120"), Ok(120));
        assert_eq!(seconds_up_to_an_hour("10m"), Ok(600));
        assert_eq!(up_to_an_hour("0"), Ok(0));
        for bad in ["0", "3601", "2h", "0s", "soon", "-1"] {
            assert!(seconds_up_to_an_hour(bad).is_err(), "{bad}");
        }
        assert_eq!(shown(Duration::from_secs(5400)), "1h 30m");
        assert_eq!(shown(Duration::from_secs(2)), "2s");
    }

    #[tokio::test(start_paused = true)]
    async fn poll_ends_with_the_state_or_the_timeout() {
        let mut left = 3;
        let reached = poll(Duration::from_secs(60), async || {
            left -= 1;
            Ok(if left == 0 {
                ControlFlow::Break("done")
            } else {
                ControlFlow::Continue(format!("{left} left"))
            })
        });
        assert_eq!(reached.await.unwrap(), "done");
        let never = poll::<()>(Duration::from_secs(60), async || {
            Ok(ControlFlow::Continue("1 left".to_owned()))
        });
        assert_eq!(never.await.unwrap_err().to_string(), "after 1m: 1 left");
    }

    #[test]
    fn timeouts_are_above_zero() {
        assert_eq!(timeout("10m"), Ok(Duration::from_secs(600)));
        for bad in ["0s", "-1m", "soon", ""] {
            assert!(timeout(bad).unwrap_err().contains("30s, 10m or 2h"), "{bad}");
        }
    }
}
