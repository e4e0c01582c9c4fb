//! Findings as JSON.

use super::build::{cluster, pod_set, workload};
use crate::{FindingKind, audit};

#[test]
fn finding_has_its_objects_and_amounts_in_json() {
    let above = cluster()
        .job("j")
        .workload(workload("w-j").admitted(&[pod_set(1, "12")]))
        .pods("j", 1, "13");
    insta::assert_snapshot!(serde_json::to_string_pretty(&audit(&above)).unwrap());
}

#[test]
fn kind_is_named_as_in_json() {
    for kind in FindingKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
}
