//! What a benchmark measured, beside what is recorded in `docs/benchmarks/recorded.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::run;

/// Ratios by name: Switchyard's figure divided by another system's.
type Ratios = BTreeMap<String, f64>;

/// A line for each ratio that was measured; none when the benchmark wrote no ratio.
pub(super) fn beside(benchmark: &str, json: &Path) -> Option<String> {
    let measured = ratios(benchmark, &read(json)?);
    let recorded: Ratios =
        serde_json::from_value(read(&run::root().join("docs/benchmarks/recorded.json"))?).unwrap_or_default();
    (!measured.is_empty()).then(|| text(&measured, &recorded))
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

fn ratios(benchmark: &str, document: &Value) -> Ratios {
    let mut found = Ratios::new();
    for report in document["reports"].as_array().into_iter().flatten() {
        let part: Vec<String> = ["form", "generator", "jobs"].iter().filter_map(|key| word(&report[*key])).collect();
        for (other, ratio) in report["oursTo"].as_object().into_iter().flatten() {
            let name = format!("{benchmark} {}: to {other}", part.join(" "));
            found.extend(ratio.as_f64().map(|ratio| (name, ratio)));
        }
    }
    found
}

fn word(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned).or_else(|| value.as_u64().map(|number| number.to_string()))
}

fn text(measured: &Ratios, recorded: &Ratios) -> String {
    let line = |(name, ratio): (&String, &f64)| {
        let known = recorded.get(name).map_or_else(|| "not recorded".to_owned(), |it| format!("recorded {it:.2}"));
        format!("{name} {ratio:.2}, {known}")
    };
    measured.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ratios, text};

    #[test]
    fn ratios_stand_beside_the_recorded_ones() {
        let document = json!({"reports": [
            {"form": "dispatch", "jobs": 1000, "oursTo": {"floor": 0.66, "stock raised": 7.75}},
            {"form": "finish", "jobs": 1000},
        ]});
        let recorded = [("burst dispatch 1000: to floor".to_owned(), 0.684)].into();
        let expected = "burst dispatch 1000: to floor 0.66, recorded 0.68\n\
            burst dispatch 1000: to stock raised 7.75, not recorded";
        assert_eq!(text(&ratios("burst", &document), &recorded), expected);
    }
}
