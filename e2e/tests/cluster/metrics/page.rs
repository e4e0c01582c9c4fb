//! A page of metrics, as text of OpenMetrics.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use switchyard_e2e::paths;
use switchyard_pages::metrics::Type;

/// A family as it is shown.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// `counter`, `gauge`, `histogram` and so on.
    pub(crate) kind: String,
    /// Its help text, without a full stop.
    pub(crate) help: String,
    /// The labels of its first series, without `le`.
    pub(crate) labels: BTreeSet<String>,
    /// The bounds of that series' buckets, `+Inf` among them.
    pub(crate) buckets: Vec<f64>,
    /// All its lines.
    pub(crate) lines: Vec<String>,
}

/// The meanings in `docs/metric-families.md`, by the name that queries use.
pub(crate) fn meanings() -> anyhow::Result<BTreeMap<String, String>> {
    let path = paths::root().join("docs/metric-families.md");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
        let name = cells.first()?.strip_suffix('`')?;
        Some((name.to_owned(), (*cells.last()?).to_owned()))
    };
    let meanings: BTreeMap<String, String> = text.lines().filter_map(row).collect();
    ensure!(!meanings.is_empty(), "{} has no table of families", path.display());
    Ok(meanings)
}

/// The families that have series, by the name that queries use.
pub(crate) fn families(page: &str) -> BTreeMap<String, Shown> {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helps: BTreeMap<&str, &str> = BTreeMap::new();
    let mut families: BTreeMap<String, Shown> = BTreeMap::new();
    for line in page.lines() {
        if let Some(told) = line.strip_prefix("# TYPE ") {
            kinds.extend(told.split_once(' '));
            continue;
        }
        if let Some(help) = line.strip_prefix("# HELP ") {
            // The registry ends the texts of its own families with a full stop.
            helps.extend(help.strip_suffix('.').unwrap_or(help).split_once(' '));
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let sample = line.split(['{', ' ']).next().unwrap_or_default();
        let known =
            |suffix: &str| sample.strip_suffix(suffix).filter(|name| kinds.contains_key(name));
        let (name, base) = match ["_bucket", "_sum", "_count"].into_iter().find_map(known) {
            Some(base) => (base, base),
            None => (sample, known("_total").unwrap_or(sample)),
        };
        let family = families.entry(name.to_owned()).or_default();
        family.kind = kinds.get(base).copied().unwrap_or("untyped").to_owned();
        family.help = helps.get(base).copied().unwrap_or_default().to_owned();
        family.add(line);
    }
    families
}

impl Shown {
    /// The sum of the series of this name (the family's, or that with `_count`) with these values of labels.
    pub(crate) fn sum(&self, name: &str, wanted: &[(&str, &str)]) -> f64 {
        let right = |line: &&String| {
            let labels = labels(line);
            line.split('{').next() == Some(name)
                && wanted
                    .iter()
                    .all(|(label, value)| labels.get(*label).is_some_and(|it| it == value))
        };
        let value = |line: &String| {
            line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN)
        };
        self.lines.iter().filter(right).map(value).sum()
    }

    fn add(&mut self, line: &str) {
        let labels: BTreeMap<String, String> = labels(line);
        let others: BTreeSet<String> =
            labels.keys().filter(|name| *name != "le").cloned().collect();
        if self.lines.is_empty() {
            self.labels = others;
        }
        if let Some(bound) =
            labels.get("le").filter(|_| self.buckets.last() != Some(&f64::INFINITY))
        {
            self.buckets.push(if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() });
        }
        self.lines.push(line.to_owned());
    }

    /// The error in its type or its buckets, if any.
    pub(crate) fn differs(&self, expected: Type) -> Option<String> {
        let kind = expected.as_str();
        if self.kind != kind {
            return Some(format!("it is a {}, not a {kind}", self.kind));
        }
        let expected_buckets = buckets(expected);
        let same = match expected {
            Type::Finer => expected_buckets.iter().all(|bound| self.buckets.contains(bound)),
            _ => self.buckets == expected_buckets,
        };
        (!same).then(|| format!("its buckets are {:?}, not {expected_buckets:?}", self.buckets))
    }
}

/// The labels of a line. Values of tests have neither commas nor quotes.
fn labels(line: &str) -> BTreeMap<String, String> {
    let Some((_, rest)) = line.split_once('{') else { return BTreeMap::new() };
    let Some((inside, _)) = rest.rsplit_once('}') else { return BTreeMap::new() };
    let pairs = inside.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

/// Bounds of buckets, the last of which is infinite; none of what has no buckets.
fn buckets(kind: Type) -> Vec<f64> {
    let doubling =
        |first: f64, count: u32| (0..count).map(move |step| first * 2_f64.powi(step.cast_signed()));
    let finite: Vec<f64> = match kind {
        Type::Counter | Type::Gauge => return Vec::new(),
        Type::Waits(count) => std::iter::once(1.0).chain(doubling(2.5, count - 1)).collect(),
        Type::Creation => doubling(0.01, 11).collect(),
        Type::Default | Type::Finer => {
            vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
        }
    };
    finite.into_iter().chain([f64::INFINITY]).collect()
}
