//! Encodes a `topologyAssignment` for a Workload's status, byte for byte as Kueue does:
//! `pkg/util/tas/tas_assignment.go`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{AssignedDomain, HOSTNAME_LABEL, TopologyAssignment};

/// Limits of the API: domains per slice, and slices.
const MAX_DOMAINS: usize = 100_000;
const MAX_SLICES: usize = 1_000;

/// The `slices` of a `topologyAssignment`.
pub type EncodedSlices = Vec<EncodedSlice>;

/// Consecutive domains of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedSlice {
    pub domain_count: usize,
    pub values_per_level: Vec<LevelValues>,
    pub pod_counts: PodCounts,
}

/// The values of one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LevelValues {
    /// All equal.
    Universal(String),
    /// Different values between a common prefix and suffix, both possibly empty.
    Individual {
        prefix: String,
        suffix: String,
        /// The parts between prefix and suffix.
        roots: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCounts {
    /// All equal.
    Universal(i32),
    /// By domain.
    Individual(Vec<i32>),
}

/// Keeps the order of domains. `by_prefix`: Kueue's gate `TASAssignmentsEncodingByHostnamePrefix`.
pub fn encode(assignment: &TopologyAssignment, by_prefix: bool) -> EncodedSlices {
    let domains = &assignment.domains;
    let levels = assignment.levels.len();
    if domains.is_empty() {
        return Vec::new();
    }
    let by_host = assignment.levels.last().is_some_and(|level| &**level == HOSTNAME_LABEL);
    let whole = || vec![slice(domains, levels)];
    if !(by_prefix && by_host && domains.len() > 1) {
        return if domains.len() > MAX_DOMAINS { chunked(&[domains], levels) } else { whole() };
    }
    let split = chunked(&runs(domains), levels);
    if split.len() <= 1 || domains.len() > MAX_DOMAINS {
        return split;
    }
    let single = whole();
    if json_length(&single) < json_length(&split) { single } else { split }
}

fn chunked(runs: &[&[AssignedDomain]], levels: usize) -> EncodedSlices {
    runs.iter().flat_map(|run| run.chunks(MAX_DOMAINS)).map(|chunk| slice(chunk, levels)).collect()
}

/// Splits domains where the hostname prefix changes, with the longest prefixes that stay within the
/// limit of slices.
fn runs(domains: &[AssignedDomain]) -> Vec<&[AssignedDomain]> {
    let hosts: Vec<&str> =
        domains.iter().map(|domain| domain.values.last().map_or("", |host| &**host)).collect();
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for prefix in hosts.iter().flat_map(|host| prefixes(host)) {
        *users.entry(prefix).or_default() += 1;
    }
    let shared: BTreeSet<&str> =
        users.into_iter().filter(|(_, users)| *users > 1).map(|(prefix, _)| prefix).collect();
    let deepest = hosts.iter().map(|host| prefixes(host).count()).max().unwrap_or(0);
    for depth in (1..=deepest).rev() {
        let key = |host: &&str| {
            prefixes(host).take(depth).filter(|p| shared.contains(p)).last().map(str::to_owned)
        };
        let keys: Vec<_> = hosts.iter().map(key).collect();
        let runs = split(domains, &keys);
        let slices: usize = runs.iter().map(|run| run.len().div_ceil(MAX_DOMAINS)).sum();
        if slices <= MAX_SLICES {
            return runs;
        }
    }
    vec![domains]
}

/// A hostname up to each dash that is not its last character.
fn prefixes(host: &str) -> impl Iterator<Item = &str> {
    host.match_indices('-')
        .filter(|(at, _)| at + 1 < host.len())
        .filter_map(|(at, _)| host.get(..=at))
}

fn split<'a, K: PartialEq>(domains: &'a [AssignedDomain], keys: &[K]) -> Vec<&'a [AssignedDomain]> {
    let mut runs = Vec::new();
    let mut start = 0;
    for at in 1..=domains.len() {
        if at == domains.len() || keys.get(at) != keys.get(at - 1) {
            runs.extend(domains.get(start..at));
            start = at;
        }
    }
    runs
}

fn slice(domains: &[AssignedDomain], levels: usize) -> EncodedSlice {
    let at = |level: usize| {
        domains.iter().map(move |domain| domain.values.get(level).map_or("", |value| &**value))
    };
    let counts: Vec<i32> = domains.iter().map(|domain| domain.count).collect();
    EncodedSlice {
        domain_count: domains.len(),
        values_per_level: (0..levels).map(|level| values(&at(level).collect::<Vec<_>>())).collect(),
        pod_counts: match counts.first() {
            Some(first) if counts.iter().all(|count| count == first) => {
                PodCounts::Universal(*first)
            }
            _ => PodCounts::Individual(counts),
        },
    }
}

fn values(all: &[&str]) -> LevelValues {
    let first = all.first().copied().unwrap_or_default();
    if all.iter().all(|value| *value == first) {
        return LevelValues::Universal(first.to_owned());
    }
    let shortest = all.iter().map(|value| value.len()).min().unwrap_or(0);
    let mut suffix = all.iter().fold(first.len(), |length, value| {
        length.min(common(first.bytes().rev(), value.bytes().rev()))
    });
    while !first.is_char_boundary(first.len() - suffix) {
        suffix -= 1;
    }
    let mut prefix = all
        .iter()
        .fold(first.len(), |length, value| length.min(common(first.bytes(), value.bytes())));
    prefix = prefix.min(shortest.saturating_sub(suffix));
    while !first.is_char_boundary(prefix) {
        prefix -= 1;
    }
    let part =
        |range: std::ops::Range<usize>, of: &str| of.get(range).unwrap_or_default().to_owned();
    LevelValues::Individual {
        prefix: part(0..prefix, first),
        suffix: part(first.len() - suffix..first.len(), first),
        roots: all.iter().map(|value| part(prefix..value.len() - suffix, value)).collect(),
    }
}

fn common(one: impl Iterator<Item = u8>, other: impl Iterator<Item = u8>) -> usize {
    one.zip(other).take_while(|(a, b)| a == b).count()
}

/// The length of the slices as Go marshals them.
fn json_length(slices: &[EncodedSlice]) -> usize {
    let list = |lengths: &mut dyn Iterator<Item = usize>| {
        1 + lengths.map(|length| length + 1).sum::<usize>().max(1)
    };
    let value_lengths = |values: &LevelValues| match values {
        LevelValues::Universal(value) => r#"{"universal":}"#.len() + quoted(value),
        LevelValues::Individual { prefix, suffix, roots } => {
            let field = |name: &str, value: &str| {
                if value.is_empty() { 0 } else { name.len() + 4 + quoted(value) }
            };
            r#"{"individual":{"roots":}}"#.len()
                + field("prefix", prefix)
                + field("suffix", suffix)
                + list(&mut roots.iter().map(|root| quoted(root)))
        }
    };
    let one = |slice: &EncodedSlice| {
        r#"{"domainCount":,"valuesPerLevel":,"podCounts":}"#.len()
            + digits(&slice.domain_count)
            + list(&mut slice.values_per_level.iter().map(value_lengths))
            + match &slice.pod_counts {
                PodCounts::Universal(count) => r#"{"universal":}"#.len() + digits(count),
                PodCounts::Individual(counts) => {
                    r#"{"individual":}"#.len() + list(&mut counts.iter().map(digits))
                }
            }
    };
    list(&mut slices.iter().map(one))
}

fn digits(number: &impl ToString) -> usize {
    number.to_string().len()
}

fn quoted(text: &str) -> usize {
    // Label values contain no characters to escape.
    text.len() + 2
}
