//! The meaning of the API server's errors.

use switchyard_ledger::{Outcome, Rejection};

use super::access::Access;

/// Maps an error to an outcome: rejected until something changes on the cluster, not applied, or
/// unknown.
pub(super) fn outcome_of_error(error: kube::Error, access: &Access, name: &str) -> Outcome {
    let kube::Error::Api(status) = error else { return Outcome::Unknown(error.to_string()) };
    let kind = &access.resource.kind;
    let text = format!("{kind} {name}: {}", status.message);
    match status.code {
        404 if status.message.contains("namespaces") => {
            Outcome::Rejected(Rejection::unfit("NamespaceNotFound", text))
        }
        404 => Outcome::Rejected(Rejection::unfit("KindNotFound", text)),
        // Also for a terminating namespace, a ResourceQuota or an admission policy.
        403 => Outcome::Rejected(Rejection::refused("Forbidden", text)),
        400 | 413 | 422 => Outcome::Rejected(Rejection::refused("Invalid", text)),
        // The server asks to try again. After 408 and most 5xx it may have applied the request.
        401..=499 if status.code != 408 => Outcome::NotApplied(text),
        // Admission precedes storage.
        500 if status.message.contains("failed calling webhook") => Outcome::NotApplied(text),
        _ => Outcome::Unknown(text),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn api_error_decides_whether_creation_may_apply() {
        let webhook = r#"Internal error occurred: failed calling webhook "w.example.com": context deadline exceeded"#;
        for (case, code, message, expected) in [
            ("it is busy", 429, "no", "not applied"),
            ("it does not know who asks", 401, "no", "not applied"),
            ("another has changed it", 409, "no", "not applied"),
            ("it may not be", 403, "no", "rejected"),
            ("it is malformed", 422, "no", "rejected"),
            ("it has given the request up", 408, "no", "unknown"),
            ("something went wrong within", 500, "no", "unknown"),
            ("a webhook was not there, before it was stored", 500, webhook, "not applied"),
            ("something between heard no answer", 504, webhook, "unknown"),
        ] {
            let error = kube::Error::Api(Box::new(Status { code, ..Status::failure(message, "") }));
            let came = match outcome_of_error(error, &Access::workload(), "w") {
                Outcome::NotApplied(_) => "not applied",
                Outcome::Rejected(_) => "rejected",
                Outcome::Unknown(_) => "unknown",
                other => panic!("{case}: {other:?}"),
            };
            assert_eq!(came, expected, "{case}");
        }
    }
}
