//! Waits repeat transient errors until the deadline, and report them once. A refusal ends the command.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::request;

/// Least time between two messages about lost connections. An API server that fails and answers in
/// turns would fill the screen.
const SILENCE: Duration = Duration::from_secs(60);

/// The requests of a wait that failed since the last answer.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// Prints nothing.
    is_quiet: bool,
    /// An error before the first answer ends the command.
    needs_answer: bool,
    last: Option<anyhow::Error>,
    announced: Option<Instant>,
    is_on_screen: bool,
}

impl Outage {
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { is_quiet, ..Self::default() }
    }

    /// As [`Self::new`], but every error before the first answer stays.
    pub(crate) fn after_first_answer(is_quiet: bool) -> Self {
        Self { needs_answer: true, ..Self::new(is_quiet) }
    }

    /// The value of a request; none after an error that may pass.
    ///
    /// # Errors
    /// Errors that stay.
    pub(crate) fn pass<T>(&mut self, result: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
        match result {
            Ok(value) => {
                self.end();
                Ok(Some(value))
            }
            Err(error) if !self.needs_answer && request::is_transient(&error) => {
                self.begin(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// As [`Self::pass`], for a request that is given up at the deadline.
    pub(crate) async fn pass_until<T>(
        &mut self,
        end: Instant,
        request: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<Option<T>> {
        match timeout_at(end, request).await {
            Ok(result) => self.pass(result),
            Err(_) => {
                self.last.get_or_insert_with(request::no_answer);
                Ok(None)
            }
        }
    }

    fn begin(&mut self, error: anyhow::Error) {
        let is_news = self.announced.is_none_or(|at| at.elapsed() >= SILENCE);
        if self.last.is_none() && is_news && !self.is_quiet {
            eprintln!("lost the connection to the API server, retrying: {error:#}");
            self.announced = Some(Instant::now());
            self.is_on_screen = true;
        }
        self.last = Some(error);
    }

    /// The API server has answered.
    pub(crate) fn end(&mut self) {
        self.needs_answer = false;
        self.last = None;
        if std::mem::take(&mut self.is_on_screen) {
            eprintln!("the API server answers again");
        }
    }

    /// The error of the last request, if it failed.
    pub(crate) fn into_error(self) -> Option<anyhow::Error> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::samples::{answer, reset};
    use crate::with_hint;

    fn failed(error: &kube::Error) -> anyhow::Result<()> {
        Err(with_hint(error, "reading"))
    }

    #[tokio::test(start_paused = true)]
    async fn outage_is_announced_once_and_its_end_too() {
        let mut outage = Outage::default();
        assert!(outage.pass(failed(&reset())).unwrap().is_none());
        assert!(outage.is_on_screen);
        let at = outage.announced;
        assert!(outage.pass(failed(&answer(503))).unwrap().is_none());
        assert_eq!(outage.announced, at);
        assert_eq!(outage.pass(Ok(())).unwrap(), Some(()));
        assert!(!outage.is_on_screen);
        assert!(outage.pass(failed(&reset())).unwrap().is_none());
        assert!(!outage.is_on_screen, "the next one within a minute is not told");
        assert!(outage.pass(failed(&answer(403))).is_err());
        let last = outage.into_error().unwrap().to_string();
        assert!(last.starts_with("reading: connection reset"), "{last}");
        let mut quiet = Outage::new(true);
        assert!(quiet.pass(failed(&reset())).unwrap().is_none());
        assert!(!quiet.is_on_screen && quiet.into_error().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_an_answer_ends_at_the_deadline() {
        let mut outage = Outage::default();
        let end = Instant::now() + Duration::from_secs(2);
        let found = outage.pass_until(end, std::future::pending::<anyhow::Result<()>>()).await;
        assert!(found.unwrap().is_none());
        assert_eq!(Instant::now(), end);
        assert!(outage.into_error().unwrap().to_string().contains("has not answered"));
    }
}
