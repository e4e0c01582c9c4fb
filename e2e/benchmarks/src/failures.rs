//! Failed measurements. A failure costs a benchmark of an hour only its own column.

use std::time::Duration;

use anyhow::{anyhow, bail};

/// Time beside a measurement's own limit: building control planes on a new machine, and a clean end.
const SETUP: Duration = Duration::from_secs(1800);

/// Failures so far.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<String>);

impl Failures {
    /// The outcome of a measurement that cuts itself at a limit, or none and a note of the reason. A hanging one is
    /// ended half an hour later.
    pub(super) async fn measure<T>(
        &mut self,
        title: &str,
        limit: Duration,
        run: impl Future<Output = anyhow::Result<T>>,
    ) -> Option<T> {
        self.within(title, limit + SETUP, run).await
    }

    async fn within<T>(
        &mut self,
        title: &str,
        time: Duration,
        run: impl Future<Output = anyhow::Result<T>>,
    ) -> Option<T> {
        let outcome = tokio::time::timeout(time, run).await;
        self.note(
            title,
            outcome.unwrap_or_else(|_| Err(anyhow!("it hung, and was ended after {time:?}"))),
        )
    }

    fn note<T>(&mut self, title: &str, outcome: anyhow::Result<T>) -> Option<T> {
        match outcome {
            Ok(outcome) => Some(outcome),
            Err(error) => {
                eprintln!("    {title}: failed, and is left out: {error:#}");
                self.0.push(title.to_owned());
                None
            }
        }
    }

    /// At the end of a run.
    ///
    /// # Errors
    /// When anything failed: what.
    pub(super) fn end(self) -> anyhow::Result<()> {
        match self.0.as_slice() {
            [] => Ok(()),
            failed => bail!("left out, because it failed: {}", failed.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_hangs_is_ended() {
        let mut failures = Failures::default();
        let never = std::future::pending::<anyhow::Result<u8>>();
        assert_eq!(failures.within("stock", Duration::from_millis(1), never).await, None);
        assert!(failures.end().unwrap_err().to_string().contains("stock"));
    }

    #[test]
    fn what_failed_is_left_out_and_told_at_the_end() {
        let mut failures = Failures::default();
        assert_eq!(failures.note("floor", Ok(1)), Some(1));
        assert_eq!(failures.note::<u8>("stock", Err(anyhow::anyhow!("no port"))), None);
        assert_eq!(failures.end().unwrap_err().to_string(), "left out, because it failed: stock");
        Failures::default().end().unwrap();
    }
}
