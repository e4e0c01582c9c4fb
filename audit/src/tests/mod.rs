#![expect(clippy::needless_pass_by_value, reason = "literals read better without references")]

mod build;
mod charges;
mod fleet;
mod hostile;
mod overrun;
mod quota;
mod rendered;
mod unadmitted;
mod usage;

use crate::{Cluster, Finding, FindingKind, audit};

/// The messages of one kind's findings.
fn messages(found: &[Finding], kind: FindingKind) -> Vec<&str> {
    found
        .iter()
        .filter(|finding| finding.kind == kind)
        .map(|finding| finding.message.as_str())
        .collect()
}

/// Audits each cluster and compares the messages of one kind.
fn check<'a>(
    kind: FindingKind,
    table: impl IntoIterator<Item = (&'a str, Cluster, &'a [&'a str])>,
) {
    for (sentence, cluster, expected) in table {
        assert_eq!(messages(&audit(&cluster), kind), expected, "{sentence}");
    }
}
