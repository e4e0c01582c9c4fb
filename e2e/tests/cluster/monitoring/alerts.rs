//! A case of an alert: series over time, and what fires then. Rendered as promtool's own test file.

use serde_json::{Map, Value, json};
use switchyard_e2e::prometheus::Programs;

use super::table::cases;
use super::{rules, shipped, text};

/// The effect of a series of values on one alert.
pub(crate) struct Case {
    sentence: &'static str,
    alert: &'static str,
    series: Vec<Value>,
    minutes: u32,
    fires: Vec<(Labels, String)>,
}

/// Names and values.
pub(crate) type Labels = &'static [(&'static str, &'static str)];

impl Case {
    /// An alert that fires only after [`Self::fires`].
    pub(crate) fn new(alert: &'static str, sentence: &'static str) -> Self {
        Self { sentence, alert, series: Vec::new(), minutes: 0, fires: Vec::new() }
    }

    /// A series, with a value a minute as promtool writes them: `0+10x30` grows by 10 thirty times.
    pub(crate) fn series(mut self, series: &str, values: &str) -> Self {
        self.series.push(json!({"series": series, "values": values}));
        self
    }

    /// The minute of the evaluation.
    pub(crate) fn after(mut self, minutes: u32) -> Self {
        self.minutes = minutes;
        self
    }

    /// Then it fires with these labels, besides its severity, and this summary.
    pub(crate) fn fires(mut self, labels: Labels, summary: &str) -> Self {
        self.fires.push((labels, summary.to_owned()));
        self
    }

    fn render(&self, rule: &Value) -> Value {
        let expected = self.fires.iter().map(|(labels, summary)| {
            let mut all = rule["labels"].as_object().cloned().unwrap_or_default();
            all.extend(labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())));
            let written = |name: &str| text(&rule["annotations"], name);
            let (description, runbook) = (written("description"), written("runbook_url"));
            let annotations =
                json!({"summary": summary, "description": description, "runbook_url": runbook});
            json!({"exp_labels": all, "exp_annotations": annotations})
        });
        let expected: Vec<Value> = expected.collect();
        let at = format!("{}m", self.minutes);
        json!({
            "name": self.sentence, "interval": "1m", "input_series": self.series,
            "alert_rule_test": [{"eval_time": at, "alertname": self.alert, "exp_alerts": expected}],
        })
    }
}

#[test]
fn every_alert_fires_when_it_should_and_not_otherwise() {
    let programs = Programs::get().unwrap();
    let file = shipped("rules.yaml").display().to_string();
    let told = programs.promtool(&["check", "rules", &file]).unwrap();
    let rules = rules();
    assert!(told.contains(&format!("SUCCESS: {} rules found", rules.len())), "{told}");

    let cases = cases();
    let mut tests = Vec::new();
    for rule in &rules {
        let alert = text(rule, "alert");
        let own: Vec<&Case> = cases.iter().filter(|case| case.alert == alert).collect();
        assert!(own.iter().any(|case| !case.fires.is_empty()), "no case in which {alert} fires");
        assert!(
            own.iter().any(|case| case.fires.is_empty()),
            "no case in which {alert} does not fire"
        );
        tests.extend(own.iter().map(|case| case.render(rule)));
    }
    assert_eq!(tests.len(), cases.len(), "a case names an alert that does not exist");

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("alerts.yaml");
    let test = json!({"rule_files": [file], "evaluation_interval": "1m", "tests": tests});
    std::fs::write(&path, serde_json::to_string_pretty(&test).unwrap()).unwrap();
    programs.promtool(&["test", "rules", path.to_str().unwrap()]).unwrap();
}

#[test]
fn every_alert_says_what_is_amiss_and_how_bad_it_is() {
    let mut names = Vec::new();
    for rule in rules() {
        let annotations: &Map<String, Value> = rule["annotations"].as_object().unwrap();
        assert_eq!(
            annotations.keys().collect::<Vec<_>>(),
            ["description", "runbook_url", "summary"],
            "{rule}"
        );
        // Variable parts are in the summary, so a description is the same for all alerts of a kind.
        assert!(!text(&rule["annotations"], "description").contains("{{"), "{rule}");
        assert!(
            ["info", "warning", "critical"].contains(&text(&rule["labels"], "severity")),
            "{rule}"
        );
        names.push(text(&rule, "alert").to_owned());
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "two alerts of one name");
}
