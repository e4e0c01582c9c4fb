//! `switchyard wait JOB --for STATE`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use jiff::SignedDuration;
use kube::{Api, Client, ResourceExt as _};
use switchyard_api::conditions;
use switchyard_api::v1beta2::Workload;
use tokio::time::{Instant, sleep_until};

use crate::ExitStatus;
use crate::deadline::{Deadline, shown};
use crate::find::{find, is_meant};
use crate::follow::{Change, follow};
use crate::job_row::{JobRow, JobState, row};
use crate::outage::Outage;
use crate::request;

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

/// A year. Deadlines of longer waits could not be represented.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Interval of [`poll`].
const LOOK: Duration = Duration::from_secs(1);

/// Calls `look` each second until it breaks or the deadline passes, and prints each new state on
/// stderr. `goal` follows "until".
///
/// # Errors
/// Errors of `look` that stay, and at the deadline, with the last state.
pub(crate) async fn poll<T>(
    deadline: Deadline,
    goal: &str,
    mut look: impl AsyncFnMut() -> anyhow::Result<ControlFlow<T, String>>,
) -> anyhow::Result<T> {
    let end = deadline.end_of_wait();
    let mut outage = Outage::default();
    let mut state: Option<String> = None;
    loop {
        match outage.pass_until(end, look()).await? {
            Some(ControlFlow::Break(reached)) => return Ok(reached),
            Some(ControlFlow::Continue(now)) => {
                if state.as_ref() != Some(&now) {
                    eprintln!("{now}");
                }
                state = Some(now);
            }
            None => {}
        }
        sleep_until(end.min(Instant::now() + LOOK)).await;
        if Instant::now() >= end {
            return Err(deadline.missed(goal, state.as_deref(), outage.into_error()));
        }
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
/// After the timeout, for a deactivated job, when the API server refuses, and if the first request
/// fails.
pub async fn run(client: Client, namespace: &str, args: &Args) -> anyhow::Result<ExitStatus> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let mut seen = Seen::default();
    let mut outage = Outage::after_first_answer(args.quiet);
    let reached = until(client, namespace, args, &mut seen, &mut outage);
    match tokio::time::timeout(args.timeout, reached).await {
        Ok(status) => status,
        Err(_) => Err(seen.missed(namespace, args, outage.into_error())),
    }
}

/// The state of the job as far as it was read.
#[derive(Default)]
struct Seen {
    /// The Workloads of the job, by uid.
    workloads: BTreeMap<String, Workload>,
    row: Option<JobRow>,
    /// Whether all that exist were read.
    is_complete: bool,
}

impl Seen {
    /// The error at the deadline, with that of the last request.
    fn missed(&self, namespace: &str, args: &Args, error: Option<anyhow::Error>) -> anyhow::Error {
        let late = format!("timed out after {}", shown(args.timeout));
        match (&self.row, error) {
            (Some(row), None) => anyhow!("{late}: {}", line(row)),
            (Some(row), Some(error)) => error.context(format!("{late} ({})", line(row))),
            (None, Some(error)) => error.context(late),
            (None, None) if !self.is_complete => request::no_answer().context(late),
            (None, None) => {
                anyhow!(
                    "{late}: no workload or queued job \"{}\" in namespace {namespace}",
                    args.job
                )
            }
        }
    }
}

async fn until(
    client: Client,
    namespace: &str,
    args: &Args,
    seen: &mut Seen,
    outage: &mut Outage,
) -> anyhow::Result<ExitStatus> {
    let api: Api<Workload> = Api::namespaced(client, namespace);
    follow(&api, None, outage, async |event: Change<Workload>| {
        let (workload, is_deleted) = match event {
            Change::Applied(workload) => (workload, false),
            Change::Deleted(workload) => (workload, true),
            Change::Began => {
                seen.workloads.clear();
                return Ok(ControlFlow::Continue(()));
            }
            Change::Complete => {
                seen.is_complete = true;
                // It was deleted while the connection was lost.
                if seen.workloads.is_empty() && seen.row.is_some() {
                    bail!("{} was deleted", args.job);
                }
                return Ok(ControlFlow::Continue(()));
            }
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
    use crate::follow::samples::{client, event, failure, objects, status};
    use crate::request::samples::{answer, reset};

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

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn poll_ends_with_the_state_or_the_timeout() {
        let mut left = 3;
        let reached = poll(Deadline::after(MINUTE), "it is done", async || {
            left -= 1;
            Ok(if left == 0 {
                ControlFlow::Break("done")
            } else {
                ControlFlow::Continue(format!("{left} left"))
            })
        });
        assert_eq!(reached.await.unwrap(), "done");
        let never = poll::<()>(Deadline::after(MINUTE), "it is done", async || {
            Ok(ControlFlow::Continue("1 left".to_owned()))
        });
        assert_eq!(never.await.unwrap_err().to_string(), "after 1m: 1 left");
    }

    #[tokio::test(start_paused = true)]
    async fn poll_outlives_an_outage_and_ends_with_a_refusal() {
        let began = Instant::now();
        let down = Duration::from_secs(20);
        let reached =
            poll(Deadline::after(MINUTE), "it is done", async || match began.elapsed() < down {
                true => Err(crate::with_hint(&reset(), "reading")),
                false => Ok(ControlFlow::Break("done")),
            });
        assert_eq!(reached.await.unwrap(), "done");
        assert_eq!(began.elapsed(), down);
        let began = Instant::now();
        let refused = poll::<()>(Deadline::after(MINUTE), "it is done", async || {
            Err(crate::with_hint(&answer(403), "reading"))
        });
        assert!(refused.await.unwrap_err().to_string().starts_with("reading: no"));
        assert_eq!(began.elapsed(), Duration::ZERO);
        let lost = poll::<()>(Deadline::after(MINUTE), "it is done", async || {
            Err(crate::with_hint(&answer(503), "reading"))
        });
        assert_eq!(
            format!("{:#}", lost.await.unwrap_err()),
            "after 1m of waiting until it is done: reading: no"
        );
        assert_eq!(began.elapsed(), MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn poll_gives_up_a_request_without_an_answer() {
        let began = Instant::now();
        let silent = poll::<()>(Deadline::after(MINUTE), "it is done", async || {
            std::future::pending().await
        });
        let error = format!("{:#}", silent.await.unwrap_err());
        assert!(
            error.starts_with(
                "after 1m of waiting until it is done: the API server has not answered"
            ),
            "{error}"
        );
        assert_eq!(began.elapsed(), MINUTE);
    }

    fn for_a_minute() -> Args {
        Args {
            job: "train".into(),
            goal: Goal::Finished,
            timeout: MINUTE,
            namespace: None,
            quiet: true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn job_that_was_deleted_during_an_outage_ends_the_wait() {
        let job = serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "train", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
            "spec": {"podSets": []},
        });
        let there = || objects(std::slice::from_ref(&job));
        let expired = event("ERROR", &status(410));
        let answers = vec![there(), None, there(), expired, objects(&[])];
        let args = for_a_minute();
        let error = run(client(answers), "ns", &args).await.unwrap_err();
        assert_eq!(error.to_string(), "train was deleted");
        let lost = run(client(vec![there(), None, None]), "ns", &args).await.unwrap_err();
        let lost = format!("{lost:#}");
        assert!(
            lost.starts_with(
                "timed out after 1m (train: Pending: not looked at yet): watching: connection reset"
            ),
            "{lost}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn unreachable_server_ends_the_wait_at_once() {
        let args = for_a_minute();
        for (first, said) in [(None, "connection reset"), (failure(503), "no")] {
            let began = Instant::now();
            let error = run(client(vec![first]), "ns", &args).await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("watching: {said}")), "{error}");
            assert_eq!(began.elapsed(), Duration::ZERO);
        }
    }

    #[test]
    fn timeouts_are_above_zero() {
        assert_eq!(timeout("10m"), Ok(Duration::from_secs(600)));
        for bad in ["0s", "-1m", "soon", ""] {
            assert!(timeout(bad).unwrap_err().contains("30s, 10m or 2h"), "{bad}");
        }
    }
}
