//! Waiting for conditions.

use std::fmt::Display;
use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

/// The shortest and the longest time between two checks of a condition.
const PERIOD: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(200));

/// Time until the next check: an eighth of the wait so far. So a short wait ends soon after its condition is true, and a long
/// wait takes little CPU time from the programs under test.
fn period(waited: Duration) -> Duration {
    (waited / 8).clamp(PERIOD.0, PERIOD.1)
}

/// How many looks of [`always`] in a row may get no answer from the API server.
const SKIPPED: u32 = 10;

/// The error of a condition that can no longer become true; see [`never`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Never(String);

/// Marks an error of a condition as final, so that [`eventually`] fails at once.
pub fn never(error: impl Display) -> anyhow::Error {
    anyhow::Error::new(Never(error.to_string()))
}

/// Waits until `check` succeeds, and returns its value. Every error of `check` is retried, also that of an unreachable API
/// server; the error should describe the present state.
///
/// # Errors
/// After the deadline, or when `check` fails with [`never()`]. The message has the awaited condition and the last error.
///
/// ```no_run
/// # async fn test(jobs: kube::Api<k8s_openapi::api::batch::v1::Job>) -> anyhow::Result<()> {
/// use std::time::Duration;
/// use switchyard_e2e::wait::eventually;
/// let job = eventually(Duration::from_secs(5), "the job to be unsuspended", async || {
///     let job = jobs.get("sample").await?;
///     let suspended = job.spec.as_ref().and_then(|spec| spec.suspend);
///     anyhow::ensure!(suspended == Some(false), "suspend is {suspended:?}");
///     Ok(job)
/// });
/// # job.await?; Ok(()) }
/// ```
pub async fn eventually<T>(
    within: Duration,
    what: impl Display,
    mut check: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    let deadline = start + within;
    let mut seen = "nothing yet: the first look did not end".to_owned();
    loop {
        match tokio::time::timeout_at(deadline, check()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) if error.is::<Never>() => bail!("waited for {what}: {error:#}"),
            Ok(Err(error)) => seen = format!("{error:#}"),
            Err(_) => bail!("waited {within:?} for {what}; last seen: {seen}"),
        }
        let period = period(start.elapsed());
        if start.elapsed() + period >= within {
            bail!("waited {within:?} for {what}; last seen: {seen}");
        }
        tokio::time::sleep(period).await;
    }
}

/// Checks that `check` succeeds for the whole time, for conditions such as "stays suspended". A look that gets no answer from
/// a busy API server is repeated, a few times in a row at most.
///
/// # Errors
/// The first failure of `check`, and when it came.
pub async fn always(
    during: Duration,
    what: impl Display,
    mut check: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut skipped = 0;
    while start.elapsed() < during || skipped > 0 {
        match check().await {
            Ok(()) => skipped = 0,
            Err(error) if skipped < SKIPPED && is_unanswered(&error) => skipped += 1,
            Err(error) => bail!("{what}: no longer after {:?}: {error:#}", start.elapsed()),
        }
        tokio::time::sleep(if skipped > 0 { PERIOD.1 } else { PERIOD.0 }).await;
    }
    Ok(())
}

/// Whether the API server was too busy to answer, or the connection broke.
fn is_unanswered(error: &anyhow::Error) -> bool {
    error.chain().any(|error| match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Service(_) | kube::Error::HyperError(_)) => true,
        Some(kube::Error::Api(status)) => matches!(status.code, 429 | 502..=504),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timeout_tells_what_was_seen_last() {
        let mut count = 0;
        let error = eventually(Duration::from_millis(100), "the count", async || {
            count += 1;
            anyhow::ensure!(count > 1_000_000, "count is small");
            Ok(())
        });
        let error = error.await.unwrap_err().to_string();
        assert_eq!(error, "waited 100ms for the count; last seen: count is small");
    }

    #[test]
    fn long_waits_look_less_often() {
        let waits =
            [0, 400, 1_000, 60_000].map(|waited| period(Duration::from_millis(waited)).as_millis());
        assert_eq!(waits, [25, 50, 125, 200]);
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_cut_off() {
        let hang = eventually(Duration::from_millis(100), "an answer", async || {
            futures::future::pending::<()>().await;
            Ok(())
        });
        assert!(hang.await.unwrap_err().to_string().contains("the first look did not end"));
    }

    #[tokio::test]
    async fn always_repeats_a_few_unanswered_looks() {
        let looks = async |unanswered: std::ops::Range<u32>, code: u16| {
            let mut count = 0;
            always(Duration::from_millis(100), "calm", async || {
                count += 1;
                if unanswered.contains(&count) {
                    let busy = kube::core::Status::failure("busy", "Busy").with_code(code);
                    return Err(anyhow::Error::new(kube::Error::Api(busy.boxed())).context("list"));
                }
                Ok(())
            })
            .await
        };
        let (few, many, other) =
            tokio::join!(looks(1..1 + SKIPPED, 429), looks(1..2 + SKIPPED, 429), looks(1..2, 404));
        assert!(few.is_ok() && many.is_err() && other.is_err(), "{few:?} {many:?} {other:?}");
    }

    #[tokio::test]
    async fn a_final_error_ends_the_waiting() {
        let start = Instant::now();
        let end = eventually::<()>(Duration::from_secs(60), "a dead process", async || {
            Err(never("it ended"))
        })
        .await;
        assert_eq!(end.unwrap_err().to_string(), "waited for a dead process: it ended");
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
