//! Compares the results of a benchmark with those in `docs/benchmarks/recorded.json`.
//!
//! A figure's name is its path in the benchmark's document, such as `burst dispatch 1000 oursTo floor`. An element of a
//! list appears in the path by the values of the fields that identify it, such as `1000` by `jobs`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::run;

/// Figures by name.
type Figures = BTreeMap<String, f64>;

/// The keys whose values name an element of a list.
const NAMES: [&str; 5] = ["generator", "form", "jobs", "clusters", "system"];

/// Whether a key names an element. All reports of `scale` have the same number of jobs, so only their clusters distinguish them.
fn is_name(key: &str, element: &Value) -> bool {
    key != "jobs" || element.get("clusters").is_none()
}

/// A line for each recorded figure that was measured. `None` if there is none.
pub(super) fn beside(benchmark: &str, json: &Path) -> Option<String> {
    let recorded: Figures =
        serde_json::from_value(read(&run::root().join("docs/benchmarks/recorded.json"))?).ok()?;
    let text = text(&figures(benchmark, &read(json)?), &recorded);
    (!text.is_empty()).then_some(text)
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

fn figures(benchmark: &str, document: &Value) -> Figures {
    let mut found = Figures::new();
    collect(benchmark, &document["reports"], &mut found);
    found
}

fn collect(name: &str, value: &Value, found: &mut Figures) {
    match value {
        Value::Number(number) => {
            found.extend(number.as_f64().map(|number| (name.to_owned(), number)))
        }
        Value::Object(object) => {
            object.iter().for_each(|(key, value)| collect(&format!("{name} {key}"), value, found))
        }
        Value::Array(list) => {
            for element in list {
                let names = NAMES
                    .iter()
                    .filter(|key| is_name(key, element))
                    .filter_map(|key| word(&element[*key]));
                let name = names.fold(name.to_owned(), |name, word| format!("{name} {word}"));
                collect(&name, element, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn word(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned).or_else(|| value.as_u64().map(|number| number.to_string()))
}

fn text(measured: &Figures, recorded: &Figures) -> String {
    let line = |(name, known): (&String, &f64)| {
        measured
            .get(name)
            .map(|figure| format!("{name}: {}, recorded {}", short(*figure), short(*known)))
    };
    recorded.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// Two decimals below 10, none above.
fn short(figure: f64) -> String {
    if figure.abs() < 10.0 { format!("{figure:.2}") } else { format!("{figure:.0}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{figures, text};

    #[test]
    fn figures_stand_beside_the_recorded_ones() {
        let document = json!({"reports": [
            {"form": "dispatch", "jobs": 1000, "oursTo": {"floor": 0.66, "stock raised": null}},
            {"clusters": 300, "jobs": 15_000, "systems": [{"system": "ours", "peakBytes": {"hub": 358_000_000}}], "cut": false},
        ]});
        let recorded = [
            ("bench dispatch 1000 oursTo floor", 0.684),
            ("bench 300 systems ours peakBytes hub", 350e6),
            ("bench 3 nothing", 1.0),
        ];
        let recorded = recorded.map(|(name, figure)| (name.to_owned(), figure)).into();
        let expected = "bench 300 systems ours peakBytes hub: 358000000, recorded 350000000\n\
            bench dispatch 1000 oursTo floor: 0.66, recorded 0.68";
        assert_eq!(text(&figures("bench", &document), &recorded), expected);
    }
}
