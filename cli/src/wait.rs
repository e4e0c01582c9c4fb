//! `switchyard wait JOB --for STATE`.

use std::pin::pin;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use futures::TryStreamExt as _;
use jiff::SignedDuration;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use switchyard_api::v1beta2::Workload;

use crate::ExitStatus;
use crate::find::is_meant;
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
    Duration::try_from(duration).ok().filter(|it| !it.is_zero()).ok_or_else(bad)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Wait,
    Reached,
    Failed,
    /// It is out of reach until a user changes the job.
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
    let mut last = None;
    match tokio::time::timeout(args.timeout, until(client, namespace, args, &mut last)).await {
        Ok(verdict) => verdict,
        Err(_) => match last {
            Some(row) => bail!("timed out after {:?}: {}", args.timeout, line(&row)),
            None => bail!(
                "timed out after {:?}: no workload or queued job \"{}\" in namespace {namespace}",
                args.timeout,
                args.job
            ),
        },
    }
}

async fn until(
    client: Client,
    namespace: &str,
    args: &Args,
    last: &mut Option<JobRow>,
) -> anyhow::Result<ExitStatus> {
    let api: Api<Workload> = Api::namespaced(client, namespace);
    let config = watcher::Config::default().page_size(500);
    let mut events = pin!(watcher(api, config).default_backoff().applied_objects());
    loop {
        let workload = match events.try_next().await {
            Ok(Some(workload)) => workload,
            Ok(None) => bail!("the watch ended"),
            // kube tries again, later and later; a refusal stays one.
            Err(watcher::Error::InitialListFailed(error)) if is_refusal(&error) => {
                return Err(crate::with_hint(&error, "listing workloads"));
            }
            Err(error) => {
                eprintln!("the watch was interrupted: {error}");
                continue;
            }
        };
        if !is_meant(&workload, &args.job) {
            continue;
        }
        let now = row(&workload);
        if !args.quiet && last.as_ref().is_none_or(|before| line(before) != line(&now)) {
            eprintln!("{}", line(&now));
        }
        match step(now.state, args.goal) {
            Step::Wait => {}
            Step::Reached => return Ok(ExitStatus::Clean),
            Step::Failed => return Ok(ExitStatus::Faulty),
            Step::Stuck => bail!("{}", line(&now)),
        }
        *last = Some(now);
    }
}

fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden() || status.is_not_found())
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
    fn timeouts_are_above_zero() {
        assert_eq!(timeout("10m"), Ok(Duration::from_secs(600)));
        for bad in ["0s", "-1m", "soon", ""] {
            assert!(timeout(bad).unwrap_err().contains("30s, 10m or 2h"), "{bad}");
        }
    }
}
