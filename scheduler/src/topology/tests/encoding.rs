//! Examples of Kueue's `tas_assignment_test.go`.

use rstest::rstest;

use crate::{AssignedDomain, HOSTNAME_LABEL, LevelValues, PodCounts, TopologyAssignment, encode};

#[rstest]
#[case::one_host(&[("x1", 2)], "1 of x1: 2")]
#[case::a_common_prefix(&[("kind-worker", 1), ("kind-worker2", 1), ("kind-worker3", 1)], "3 of kind-worker[|2|3]: 1")]
#[case::one_slice_is_shorter(&[("a-pool-1", 1), ("a-pool-2", 1), ("b-1", 2)], "3 of [a-pool-1|a-pool-2|b-1]: 1,1,2")]
#[case::a_suffix_before_a_prefix(&[("ababa", 1), ("aba", 1)], "2 of [ab|]aba: 1")]
#[case::nothing(&[], "")]
fn assignment_encodes_as_kueue_does(#[case] domains: &[(&str, i32)], #[case] expected: &str) {
    let domain = |(host, count): &(&str, i32)| AssignedDomain {
        values: vec![(*host).into()],
        count: *count,
    };
    let domains = domains.iter().map(domain).collect();
    let assignment = TopologyAssignment { levels: vec![HOSTNAME_LABEL.into()], domains };
    let written: Vec<_> = (encode(&assignment, true).iter())
        .map(|slice| {
            let values = match &slice.values_per_level[0] {
                LevelValues::Universal(value) => value.clone(),
                LevelValues::Individual { prefix, suffix, roots } => {
                    format!("{prefix}[{}]{suffix}", roots.join("|"))
                }
            };
            let counts = match &slice.pod_counts {
                PodCounts::Universal(count) => count.to_string(),
                PodCounts::Individual(counts) => {
                    counts.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
                }
            };
            format!("{} of {values}: {counts}", slice.domain_count)
        })
        .collect();
    assert_eq!(written.join("; "), expected);
}

#[test]
fn hosts_with_long_prefixes_are_split() {
    let hosts = |pool: &str| {
        (10..60).map(|number| format!("gpu-pool-{pool}-node-{number}")).collect::<Vec<_>>()
    };
    let hosts = [hosts("europe-west-alpha"), hosts("us-east-beta-second")].concat();
    let domain = |host: &String| AssignedDomain { values: vec![host.as_str().into()], count: 1 };
    let assignment = TopologyAssignment {
        levels: vec![HOSTNAME_LABEL.into()],
        domains: hosts.iter().map(domain).collect(),
    };
    assert_eq!(encode(&assignment, true).len(), 2);
    assert_eq!(encode(&assignment, false).len(), 1);
}
