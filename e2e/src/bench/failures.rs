//! What did not run. It costs a benchmark of an hour no more than its own column.

use anyhow::bail;

/// What failed so far.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<String>);

impl Failures {
    /// The outcome, or none and a note of why.
    pub(super) fn note<T>(&mut self, title: &str, outcome: anyhow::Result<T>) -> Option<T> {
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

    #[test]
    fn what_failed_is_left_out_and_told_at_the_end() {
        let mut failures = Failures::default();
        assert_eq!(failures.note("floor", Ok(1)), Some(1));
        assert_eq!(failures.note::<u8>("stock", Err(anyhow::anyhow!("no port"))), None);
        assert_eq!(failures.end().unwrap_err().to_string(), "left out, because it failed: stock");
        Failures::default().end().unwrap();
    }
}
