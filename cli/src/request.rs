//! Errors of requests to an API server: their messages, and whether a wait repeats the request.

use std::error::Error;
use std::fmt;

use kube::client::AuthError;
use kube::runtime::watcher;

const EXPIRED: u16 = 410;

/// A failed request, as a message for a person.
#[derive(Debug)]
struct RequestError {
    text: String,
    /// Whether a repetition may succeed.
    is_transient: bool,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for RequestError {}

/// An error with the most likely remedy.
pub(crate) fn with_hint(error: &kube::Error, doing: &str) -> anyhow::Error {
    let hint = match error {
        kube::Error::Api(status) if status.code == 403 => {
            "; the role switchyard-viewer of deploy/rbac allows it"
        }
        error => remedy(error),
    };
    named(error, format!("{doing}: {}{hint}", cause(error)))
}

/// As [`with_hint`], for a change, with the right that it needs.
pub(crate) fn with_required_right(error: &kube::Error, doing: &str, right: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            named(error, format!("{doing}: {}; it takes the right to {right}", status.message))
        }
        _ => with_hint(error, doing),
    }
}

fn named(error: &kube::Error, text: String) -> anyhow::Error {
    RequestError { text, is_transient: may_pass(error) }.into()
}

/// The most likely remedy, as the end of a message. A missing right is left to the caller.
fn remedy(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            "; the API server refuses the credential of the kubeconfig: log in again, or name another with --kubeconfig or --context"
        }
        // The 404 for an unknown API group has no reason, which `is_not_found` asks for.
        kube::Error::Api(status) if status.code == 404 => {
            "; is this the hub, and are its CRDs installed (kubectl apply -f deploy/crds)?"
        }
        kube::Error::Api(_) => "",
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
            "; does an API server answer at the server of the kubeconfig, or a proxy?"
        }
        error if is_no_credential(error) => "; does kubectl work with this kubeconfig?",
        _ => "; can the cluster be reached with kubectl?",
    }
}

/// The API server's message, or the last cause of an error, such as "Connection refused".
pub(crate) fn cause(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return match status.message.trim() {
            "" => format!("it answered {}", status.code),
            message => message.to_owned(),
        };
    }
    let mut last: &dyn Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    match error {
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
            format!("the answer cannot be read: {last}")
        }
        _ => last.to_string(),
    }
}

/// The text of an error that ends the command. kube's own texts repeat themselves, and show whole
/// answers.
#[must_use]
pub fn message(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in error.chain() {
        if let Some(error) = part.downcast_ref::<kube::Error>() {
            parts.push(format!("{}{}", cause(error), remedy(error)));
            break;
        }
        parts.push(part.to_string());
    }
    parts.join(": ")
}

/// Whether a wait goes on after an error. A lost connection, an overload and a failure of the API
/// server pass; a refusal stays.
pub(crate) fn is_transient(error: &anyhow::Error) -> bool {
    error.chain().any(|part| {
        part.downcast_ref::<RequestError>().is_some_and(|error| error.is_transient)
            || part.downcast_ref::<kube::Error>().is_some_and(may_pass)
    })
}

fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, EXPIRED | 429 | 500..=599),
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
            !is_distrust(error) && !is_no_credential(error)
        }
        _ => false,
    }
}

/// Whether the server's certificate was rejected.
fn is_distrust(error: &kube::Error) -> bool {
    causes(error)
        .any(|cause| matches!(cause.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))))
}

/// Whether the user of the kubeconfig has no credential, for example because its program failed. kube
/// refreshes credentials within requests, and reports a failure there as `Error::Service`.
fn is_no_credential(error: &kube::Error) -> bool {
    causes(error).any(|cause| cause.is::<AuthError>())
}

/// An error, and the errors that it wraps.
fn causes(error: &kube::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |&error| {
        // `source` of an io::Error leaves out the error that it wraps.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    })
}

/// The error of a watch; none for an expired one, which begins again as usual.
pub(crate) fn of_watch(error: watcher::Error) -> Option<anyhow::Error> {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    let error = match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => error,
        WatchError(status) => kube::Error::Api(status),
        NoResourceVersion => {
            return Some(anyhow::anyhow!("watching: a list has no resourceVersion"));
        }
    };
    let is_expired = matches!(&error, kube::Error::Api(status) if status.code == EXPIRED);
    (!is_expired).then(|| with_hint(&error, "watching"))
}

/// The error of a wait whose last request was not answered before the deadline.
pub(crate) fn no_answer() -> anyhow::Error {
    let text = "the API server has not answered; can the cluster be reached with kubectl?";
    RequestError { text: text.to_owned(), is_transient: true }.into()
}

#[cfg(test)]
pub(crate) mod samples {
    use kube::core::Status;

    /// An answer of the API server.
    pub(crate) fn answer(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "Sample").with_code(code).boxed())
    }

    pub(crate) fn reset() -> kube::Error {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        kube::Error::Service(reset.into())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::samples::{answer, reset};
    use super::*;

    #[test]
    fn transient_error_continues_wait_refusal_ends_it() {
        let certificate =
            rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let distrust = kube::Error::Service(std::io::Error::other(certificate).into());
        let garbage = serde_json::from_str::<u8>("<html>").unwrap_err();
        for (error, expected) in [
            (answer(400), false),
            (answer(401), false),
            (answer(403), false),
            (answer(404), false),
            (answer(410), true),
            (answer(429), true),
            (answer(500), true),
            (answer(503), true),
            (reset(), true),
            (distrust, false),
            (no_credential(), false),
            (kube::Error::Auth(AuthError::AuthExec("expired".to_owned())), false),
            (kube::Error::SerdeError(garbage), false),
        ] {
            let text = error.to_string();
            let found = is_transient(&with_hint(&error, "reading").context("on the worker"));
            assert_eq!(found, expected, "{text}");
            assert_eq!(is_transient(&anyhow::Error::new(error)), expected, "{text}, bare");
        }
        assert!(!is_transient(&anyhow::anyhow!("it was deleted")));
    }

    /// As kube reports a credential program that fails during a command.
    fn no_credential() -> kube::Error {
        kube::Error::Service(AuthError::AuthExec("expired".to_owned()).into())
    }

    #[test]
    fn failed_credential_program_is_no_network_error() {
        assert_eq!(
            message(&anyhow::Error::new(no_credential())),
            "failed exec auth: expired; does kubectl work with this kubeconfig?"
        );
    }

    #[test]
    fn expired_watch_is_no_error() {
        let status = |code| match answer(code) {
            kube::Error::Api(status) => status,
            other => panic!("{other}"),
        };
        assert!(of_watch(watcher::Error::WatchError(status(410))).is_none());
        let refused = of_watch(watcher::Error::WatchError(status(403))).unwrap();
        assert!(!is_transient(&refused));
        let lost = of_watch(watcher::Error::WatchStartFailed(reset())).unwrap();
        assert!(is_transient(&lost));
        assert!(lost.to_string().starts_with("watching: connection reset"), "{lost}");
    }

    #[test]
    fn messages_end_with_the_remedy() {
        let of = |code| with_hint(&answer(code), "listing workloads").to_string();
        assert!(of(401).contains("refuses the credential"), "{}", of(401));
        assert!(of(403).contains("switchyard-viewer"), "{}", of(403));
        assert!(of(404).contains("are its CRDs installed"), "{}", of(404));
        assert_eq!(of(500), "listing workloads: no");
        let right = with_required_right(&answer(403), "writing east", "patch secrets").to_string();
        assert_eq!(right, "writing east: no; it takes the right to patch secrets");
    }

    #[test]
    fn kubes_errors_are_shown_by_their_cause() {
        let error = Err::<(), _>(answer(500)).context("reading the CA Secret").unwrap_err();
        assert_eq!(
            message(&error.context("the authority")),
            "the authority: reading the CA Secret: no"
        );
        let lost = anyhow::Error::new(reset());
        assert_eq!(message(&lost), "connection reset; can the cluster be reached with kubectl?");
    }
}
