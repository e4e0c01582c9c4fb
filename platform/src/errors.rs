//! Errors with their root cause, for logs and messages.

use std::error::Error;

/// The error's text, followed by the root cause unless the text contains it. "ServiceError: client
/// error (Connect)" alone does not tell a refused connection from a wrong certificate.
#[must_use]
pub fn with_root_cause(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    let mut root: &dyn Error = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    let root = root.to_string();
    if text.contains(&root) { text } else { format!("{text}: {root}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Quiet(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect: {0}")]
    struct Full(#[source] std::io::Error);

    #[test]
    fn root_cause_appears_once() {
        let refused = || std::io::Error::other("refused");
        assert_eq!(with_root_cause(&Quiet(refused())), "cannot connect: refused");
        assert_eq!(with_root_cause(&Full(refused())), "cannot connect: refused");
        assert_eq!(with_root_cause(&refused()), "refused");
    }
}
