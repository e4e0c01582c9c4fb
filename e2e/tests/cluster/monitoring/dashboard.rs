//! The dashboard's panels and their queries.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{shipped, text};

/// A query of a panel.
pub(crate) struct Query {
    pub(crate) panel: String,
    /// As Prometheus gets it.
    pub(crate) expression: String,
}

fn file() -> Value {
    serde_json::from_str(&std::fs::read_to_string(shipped("dashboard.json")).unwrap()).unwrap()
}

/// All queries, with all jobs and all queues chosen.
pub(crate) fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for panel in file()["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = text(target, "expr").replace("$__rate_interval", "10m");
            let expression = expression.replace("$job", ".*").replace("$cluster_queue", ".*");
            assert!(
                !expression.contains('$'),
                "a variable that the dashboard does not have: {expression}"
            );
            queries.push(Query { panel: text(panel, "title").to_owned(), expression });
        }
    }
    queries
}

#[test]
fn panels_have_numbers_of_their_own_and_do_not_overlap() {
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in file()["panels"].as_array().unwrap() {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_i64().unwrap()), "{title}: its number is another's");
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|field| panel["gridPos"][field].as_i64().unwrap());
        assert!(x + w <= 24, "{title} is out of sight");
        for cell in (x..x + w).flat_map(|column| (y..y + h).map(move |line| (column, line))) {
            assert!(cells.insert(cell), "{title} lies on another panel");
        }
        let targets = panel["targets"].as_array().map_or(0, Vec::len);
        assert_eq!(targets == 0, text(panel, "type") == "row", "{title} has {targets} queries");
    }
}

#[test]
fn every_chooser_is_used_and_known() {
    let file = file();
    let choosers = file["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chooser| text(chooser, "name").to_owned());
    let panels = file["panels"].to_string();
    for chooser in choosers {
        assert!(
            panels.contains(&format!("${chooser}")) || panels.contains(&format!("${{{chooser}}}")),
            "{chooser}"
        );
    }
}
