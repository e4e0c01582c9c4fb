//! Shrinks a differing scenario.

use serde_json::Value;

use super::judge::Judgement;
use super::moves;

/// Candidates that one start of the oracle plays, because a start costs more than a scenario.
const AT_ONCE: usize = 24;

/// Shrinks a scenario as long as `judge` still finds a difference, until each further removal would end the difference. The
/// difference may change on the way.
pub(crate) fn smallest(
    mut scenario: Value,
    mut judgement: Judgement,
    judge: impl Fn(&[Value]) -> anyhow::Result<Vec<Judgement>>,
) -> anyhow::Result<(Value, Judgement)> {
    let (mut at, mut shrunk) = (0, false);
    loop {
        let candidates = moves::smaller(&scenario);
        if at >= candidates.len() {
            if !shrunk {
                return Ok((scenario, judgement));
            }
            // After a removal, objects that were needed before may be removable.
            (at, shrunk) = (0, false);
            continue;
        }
        let batch = &candidates[at..candidates.len().min(at + AT_ONCE)];
        let differs = |judged: &Judgement| matches!(judged, Judgement::Differs { .. });
        let mut judged = judge(batch)?;
        match judged.iter().position(differs) {
            Some(found) => {
                (scenario, judgement) = (batch[found].clone(), judged.swap_remove(found));
                (at, shrunk) = (at + found, true);
                eprintln!("      {} bytes", scenario.to_string().len());
            }
            None => at += batch.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Judgement, smallest};

    fn workload(name: &str, priority: i32) -> Value {
        let pods = json!({ "name": "p", "count": 3, "minCount": 1, "template": { "spec": { "containers": [] } } });
        let metadata = json!({ "name": name, "namespace": "ns" });
        json!({ "metadata": metadata, "spec": { "queueName": "main", "priority": priority, "podSets": [pods] } })
    }

    #[test]
    fn only_what_the_difference_needs_is_left() {
        let queue = |name: &str| json!({ "metadata": { "name": name }, "spec": { "cohortName": "all", "resourceGroups": [] } });
        let local = json!({ "metadata": { "name": "main", "namespace": "ns" }, "spec": { "clusterQueue": "a" } });
        let scenario = json!({
            "name": "some", "cohorts": [{ "metadata": { "name": "all" }, "spec": {} }],
            "clusterQueues": [queue("a"), queue("b")], "localQueues": [local],
            "steps": [
                { "submit": [workload("w1", 5), workload("w2", 7)] },
                { "finish": ["ns/w1"], "submit": [workload("w3", 0)] },
            ],
        });
        let differs = Judgement::Differs {
            expect: Value::Null,
            steps: Value::Null,
            difference: "of w3".to_owned(),
        };
        // It differs while w3 is submitted after w1 has finished.
        let judge = |all: &[Value]| {
            let text = |value: &Value| value.to_string();
            let needed = |s: &Value| {
                text(s).contains("\"w3\"") && text(s).contains("\"finish\":[\"ns/w1\"]")
            };
            let judged =
                all.iter().map(|s| if needed(s) { differs.clone() } else { Judgement::Invalid });
            Ok(judged.collect())
        };
        let (small, _) = smallest(scenario, differs.clone(), judge).unwrap();
        let submitted: Vec<_> =
            small["steps"].as_array().unwrap().iter().map(|step| &step["submit"]).collect();
        assert_eq!(small["cohorts"], json!([]));
        assert_eq!(small["clusterQueues"].as_array().unwrap().len(), 1, "{small:#}");
        assert!(!small.to_string().contains("w2"), "{submitted:?}");
        assert!(!small.to_string().contains("minCount"), "{submitted:?}");
    }
}
