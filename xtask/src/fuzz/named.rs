//! Differences that docs/conformance.md and docs/compatibility.md name: without their cause, both decide alike.

use serde_json::{Value, json};

/// Removes a cause from a scenario.
type Change = fn(&mut Value) -> Option<()>;

/// The scenario without the causes that it has. If Kueue decides one of these as the engine does, the difference is named.
pub(super) fn without_causes(scenario: &Value) -> impl Iterator<Item = Value> {
    const CAUSES: [&[Change]; 4] = [
        &[ask_for_cpu],
        &[leave_out_recoveries],
        &[vary_order_of_resources],
        &[ask_for_cpu, vary_order_of_resources],
    ];
    let topologies = scenario["topologies"].is_array();
    CAUSES.into_iter().filter(move |_| topologies).filter_map(|changes| {
        let mut changed = scenario.clone();
        for change in changes {
            let before = changed.clone();
            change(&mut changed)?;
            if changed == before {
                return None;
            }
        }
        Some(changed)
    })
}

/// Makes Kueue go through resources in the order of a Go map, instead of that of a hash of their names.
fn vary_order_of_resources(scenario: &mut Value) -> Option<()> {
    scenario["gates"]["VectorizedResourceRequests"] = false.into();
    Some(())
}

/// Gives pods without requests a small cpu request. Kueue places such pods and then finds that they do not fit.
fn ask_for_cpu(scenario: &mut Value) -> Option<()> {
    let workloads = scenario["steps"].as_array_mut()?.iter_mut();
    let workloads = workloads.filter_map(|step| step.get_mut("submit")?.as_array_mut()).flatten();
    for pod_set in workloads.filter_map(|it| it["spec"]["podSets"].as_array_mut()).flatten() {
        for container in pod_set["template"]["spec"]["containers"].as_array_mut()? {
            if container["resources"]["requests"].as_object().is_none_or(serde_json::Map::is_empty)
            {
                container["resources"] = json!({"requests": {"cpu": "1m"}});
            }
        }
    }
    Some(())
}

/// Leaves out nodes that recover, and checks that become Pending. The second pass of Kueue 0.19.2 does not see either.
fn leave_out_recoveries(scenario: &mut Value) -> Option<()> {
    let is_pending = |check: &Value| check == "Pending" || check["state"] == "Pending";
    for step in scenario["steps"].as_array_mut()? {
        if let Some(unhealthy) = step.get_mut("unhealthy").and_then(Value::as_object_mut) {
            unhealthy.retain(|_, nodes| nodes.as_array().is_none_or(|nodes| !nodes.is_empty()));
        }
        let workloads = step.get_mut("checks").and_then(Value::as_object_mut);
        for checks in workloads.into_iter().flat_map(|it| it.values_mut()) {
            if let Some(checks) = checks.as_object_mut() {
                checks.retain(|_, check| !is_pending(check));
            }
        }
    }
    Some(())
}

/// Kueue's decisions, where workloads that it preempts in the step of a node failure are evicted for that instead. Kueue does
/// both in one cycle, and the second reason stays. `None` without such workloads.
pub(super) fn evicted_for_nodes(expect: &Value, steps: &Value) -> Option<Value> {
    let mut changed = expect.clone();
    for (outcome, step) in changed.as_array_mut()?.iter_mut().zip(steps.as_array()?) {
        let cycle = outcome.get_mut("cycles").and_then(|cycles| cycles.get_mut(0));
        let Some(cycle) = cycle else { continue };
        for workload in step["unhealthy"].as_object().into_iter().flat_map(serde_json::Map::keys) {
            let preempted = cycle.get_mut("preempted").and_then(Value::as_object_mut);
            if preempted.is_some_and(|all| all.remove(workload).is_some()) {
                cycle["evicted"][workload] = "NodeFailures".into();
            }
        }
    }
    (changed != *expect).then_some(changed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{evicted_for_nodes, without_causes};

    /// The scenarios with resources in the usual order.
    fn changed(scenario: &Value) -> Vec<Value> {
        without_causes(scenario).filter(|changed| changed["gates"].is_null()).collect()
    }

    #[test]
    fn order_of_resources_varies_where_no_gate_fixes_it() {
        let scenario = |gates: Value| json!({"topologies": [], "steps": [], "gates": gates});
        let varied = scenario(json!({"VectorizedResourceRequests": false}));
        let found: Vec<Value> = without_causes(&scenario(json!({}))).collect();
        assert_eq!(found, std::slice::from_ref(&varied));
        assert_eq!(without_causes(&varied).count(), 0);
    }

    #[test]
    fn pods_that_ask_for_nothing_get_a_request() {
        let scenario = |containers: Value| {
            let pod_set = json!({"template": {"spec": {"containers": containers}}});
            json!({"topologies": [], "steps": [{"submit": [{"spec": {"podSets": [pod_set]}}]}]})
        };
        let asks = |cpu: &str| json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        let nothing = scenario(json!([{"name": "c"}]));
        assert_eq!(changed(&nothing), [scenario(asks("1m"))]);
        assert_eq!(changed(&scenario(asks("1"))), [Value::Null; 0]);
        let mut plain = nothing;
        plain["topologies"] = Value::Null;
        assert_eq!(changed(&plain), [Value::Null; 0], "without topologies");
    }

    #[test]
    fn recoveries_are_left_out() {
        let step = |unhealthy: Value, checks: Value| {
            let steps = [json!({"unhealthy": unhealthy, "checks": checks}), json!({})];
            json!({"topologies": [], "steps": steps})
        };
        let ready = json!({"state": "Ready"});
        let before = step(
            json!({"*": [], "a": ["x0"]}),
            json!({"b": {"one": "Pending", "two": ready}, "c": {"one": {"state": "Pending"}}}),
        );
        let after = step(json!({"a": ["x0"]}), json!({"b": {"two": ready}, "c": {}}));
        assert_eq!(changed(&before), std::slice::from_ref(&after));
        assert_eq!(changed(&after), [Value::Null; 0]);
    }

    #[test]
    fn victims_on_failed_nodes_are_evicted_for_them() {
        let steps = json!([{"unhealthy": {"a": ["x0"]}}, {}]);
        let expect = |first: Value| {
            let second = json!({"preempted": {"a": "InClusterQueue"}});
            json!([{"cycles": [first]}, {"cycles": [second]}])
        };
        let preempted =
            expect(json!({"preempted": {"a": "InClusterQueue", "b": "InClusterQueue"}}));
        let evicted =
            expect(json!({"preempted": {"b": "InClusterQueue"}, "evicted": {"a": "NodeFailures"}}));
        assert_eq!(evicted_for_nodes(&preempted, &steps), Some(evicted.clone()));
        assert_eq!(evicted_for_nodes(&evicted, &steps), None);
    }
}
