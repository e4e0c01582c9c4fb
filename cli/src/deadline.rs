//! The deadline of a command: all its waits together have the time of `--timeout`.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

/// A wait that begins at the deadline still sends one request.
const ONE_LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    timeout: Duration,
    end: Instant,
}

impl Deadline {
    /// A deadline that begins now.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self { timeout, end: Instant::now() + timeout }
    }

    /// The earlier one of this deadline and another that begins now.
    pub(crate) fn at_most(self, timeout: Duration) -> Self {
        let other = Self::after(timeout);
        if other.end < self.end { other } else { self }
    }

    /// The end of a wait that begins now.
    pub(crate) fn end_of_wait(self) -> Instant {
        self.end.max(Instant::now() + ONE_LOOK)
    }

    /// The error of a wait: what it waited for, its last state, and the error of its last request.
    pub(crate) fn missed(
        self,
        goal: &str,
        state: Option<&str>,
        error: Option<anyhow::Error>,
    ) -> anyhow::Error {
        match (state, error) {
            (Some(state), None) => anyhow::anyhow!("after {self}: {state}"),
            (None, None) => anyhow::anyhow!("after {self} of waiting until {goal}"),
            (Some(state), Some(error)) => {
                error.context(format!("after {self} of waiting until {goal} (before: {state})"))
            }
            (None, Some(error)) => error.context(format!("after {self} of waiting until {goal}")),
        }
    }
}

/// The whole time, as users write it.
impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.timeout))
    }
}

/// A timeout as users write it.
pub(crate) fn shown(timeout: Duration) -> String {
    SignedDuration::try_from(timeout)
        .map_or_else(|_| format!("{timeout:?}"), |it| format!("{it:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_share_the_time() {
        let seconds = Duration::from_secs;
        let deadline = Deadline::after(seconds(120));
        let began = Instant::now();
        tokio::time::sleep(seconds(90)).await;
        assert_eq!(deadline.end_of_wait() - began, seconds(120));
        assert_eq!(deadline.at_most(seconds(20)).end_of_wait() - began, seconds(110));
        assert_eq!(deadline.at_most(seconds(40)).end_of_wait() - began, seconds(120));
        tokio::time::sleep(seconds(60)).await;
        assert_eq!(deadline.end_of_wait() - began, seconds(151), "it looks once");
        assert_eq!(deadline.to_string(), "2m");
    }

    #[test]
    fn missed_deadline_names_the_step() {
        let deadline = Deadline { timeout: Duration::from_secs(120), end: Instant::now() };
        let text = |state, error: Option<&'static str>| {
            format!("{:#}", deadline.missed("east is gone", state, error.map(anyhow::Error::msg)))
        };
        assert_eq!(text(Some("east is not gone yet"), None), "after 2m: east is not gone yet");
        assert_eq!(text(None, Some("refused")), "after 2m of waiting until east is gone: refused");
        assert_eq!(
            text(Some("it is not"), Some("refused")),
            "after 2m of waiting until east is gone (before: it is not): refused"
        );
    }
}
