//! Generates steps: edits of objects, and submitted workloads.

use rand::Rng;
use serde_json::{Value, json};

use super::{About, Draft, objects};

/// Adds to a list of a step.
pub(super) fn push(step: &mut Value, field: &str, value: Value) {
    match step[field].as_array_mut() {
        Some(list) => list.push(value),
        None => step[field] = json!([value]),
    }
}

impl Draft {
    pub(super) fn make_step(&mut self, number: usize) -> Value {
        let mut step = json!({});
        if number > 0 {
            self.edit_workloads(&mut step);
            match self.about {
                About::Checks => self.answer_checks(&mut step),
                About::Stops => {
                    self.stop(&mut step);
                    self.answer_checks(&mut step);
                }
                About::LocalQueues => {
                    self.close(&mut step);
                    self.answer_checks(&mut step);
                }
                About::Use => {}
                About::Moves => self.rearrange(&mut step),
                About::Shapes => self.change_quota(&mut step),
            }
        }
        let count = self.rng.random_range(2..=7);
        let submitted: Vec<_> = (0..count).map(|_| self.make_workload()).collect();
        step["submit"] = json!(submitted);
        step
    }

    /// Finishes or deletes workloads, releases their pods, or changes their priority.
    fn edit_workloads(&mut self, step: &mut Value) {
        if self.chance(0.6) {
            step["finish"] = json!(self.some_workloads(4));
        }
        if self.chance(0.3) {
            step["delete"] = json!(self.some_workloads(2));
        }
        if self.chance(0.3) {
            let chosen = self.some_workloads(2);
            step["priority"] = chosen
                .into_iter()
                .map(|name| (name, json!(self.rng.random_range(0..=6) * 50)))
                .collect();
        }
        if self.chance(0.3)
            && let Some(workload) = self.pick(&self.workloads.clone())
        {
            let sets = workload["spec"]["podSets"].as_array().into_iter().flatten();
            let released: Vec<_> = sets
                .map(|set| json!({ "name": set["name"], "count": self.rng.random_range(0..=set["count"].as_i64().unwrap_or(1)) }))
                .collect();
            step["reclaim"] = json!({ objects::key(&workload): released });
        }
    }

    /// Creates, activates or deactivates checks, answers them, and lets evicted workloads be queued again.
    fn answer_checks(&mut self, step: &mut Value) {
        if self.chance(0.3)
            && let Some(name) = self.pick(&self.checks.clone())
        {
            let active = self.chance(0.8);
            push(step, "apply", objects::check(&name, active));
        }
        let workloads = self.some_workloads(8);
        let answers = workloads.into_iter().map(|workload| {
            let checks: Vec<_> =
                self.checks.clone().into_iter().filter(|_| self.chance(0.9)).collect();
            let all = [
                "Ready", "Ready", "Ready", "Ready", "Ready", "Ready", "Retry", "Retry", "Rejected",
                "Pending",
            ];
            (workload, checks.into_iter().map(|check| (check, json!(self.word(&all)))).collect())
        });
        step["checks"] = Value::Object(answers.collect());
        if self.chance(0.6) {
            step["requeue"] = json!(self.some_workloads(8));
        }
    }

    /// Changes a ClusterQueue's stop policy.
    fn stop(&mut self, step: &mut Value) {
        for _ in 0..self.rng.random_range(0..=2) {
            let policy = self.word(&["Hold", "HoldAndDrain", "HoldAndDrain", "None", "None"]);
            self.edit_queue(step, |_, spec| spec["stopPolicy"] = json!(policy));
        }
    }

    /// Changes a LocalQueue's stop policy.
    fn close(&mut self, step: &mut Value) {
        for _ in 0..self.rng.random_range(0..=2) {
            let at = self.rng.random_range(0..self.local_queues.len());
            let policy = self.word(&["Hold", "HoldAndDrain", "HoldAndDrain", "None", "None"]);
            self.local_queues[at]["spec"]["stopPolicy"] = json!(policy);
            push(step, "apply", self.local_queues[at].clone());
        }
    }

    /// Moves queues and cohorts, deletes cohorts, and changes labels of namespaces and flavors.
    fn rearrange(&mut self, step: &mut Value) {
        for _ in 0..self.rng.random_range(1..=3) {
            match self.rng.random_range(0..7) {
                0 | 1 => self.edit_queue(step, |draft, spec| {
                    let fields = spec.as_object_mut();
                    if draft.chance(0.15) {
                        fields.map(|fields| fields.remove("cohortName"));
                    } else {
                        spec["cohortName"] = json!(draft.any_cohort());
                    }
                }),
                2 | 3 => self.move_cohort(step),
                4 => {
                    let name = self.any_cohort();
                    push(step, "remove", json!(name));
                }
                5 => {
                    let flavor = self.pick(&self.flavors.clone());
                    if let Some(name) =
                        flavor.as_ref().and_then(|flavor| flavor["metadata"]["name"].as_str())
                    {
                        let changed = self.flavor(name);
                        push(step, "apply", changed);
                    }
                }
                _ => {
                    let (at, mine) =
                        (self.rng.random_range(0..self.queues.len()), self.chance(0.6));
                    push(step, "apply", objects::namespace(at, mine));
                }
            }
        }
    }

    /// Gives a cohort another parent, and sometimes other quota. The parent has a lower number, so that there is no cycle.
    fn move_cohort(&mut self, step: &mut Value) {
        let at = self.rng.random_range(0..self.cohorts.len());
        let mut spec = self.cohorts[at]["spec"].clone();
        if at > 0 && self.chance(0.8) {
            spec["parentName"] = json!(format!("co{}", self.rng.random_range(0..at)));
        } else if let Some(fields) = spec.as_object_mut() {
            fields.remove("parentName");
        }
        if self.chance(0.3) {
            spec["resourceGroups"] = self.groups(spec["parentName"].is_string());
        }
        without_limits_at_the_root(&mut spec);
        self.cohorts[at] = objects::cohort(&format!("co{at}"), &spec);
        push(step, "apply", self.cohorts[at].clone());
    }

    /// Changes quota, preemption or fungibility of a queue.
    fn change_quota(&mut self, step: &mut Value) {
        if self.chance(0.5) {
            self.edit_queue(step, |draft, spec| match draft.rng.random_range(0..3) {
                0 => spec["resourceGroups"] = draft.groups(spec["cohortName"].is_string()),
                1 => spec["preemption"] = draft.preemption(spec["cohortName"].is_string()),
                _ => spec["flavorFungibility"] = draft.fungibility(),
            });
        }
    }

    fn edit_queue(&mut self, step: &mut Value, edit: impl FnOnce(&mut Self, &mut Value)) {
        let at = self.rng.random_range(0..self.queues.len());
        let mut spec = self.queues[at]["spec"].clone();
        edit(self, &mut spec);
        if !spec["cohortName"].is_string() {
            without_limits_at_the_root(&mut spec);
        }
        self.queues[at]["spec"] = spec;
        push(step, "apply", self.queues[at].clone());
    }
}

/// Removes the limits of a node without parent, because Kueue rejects limits there.
fn without_limits_at_the_root(spec: &mut Value) {
    if spec["parentName"].is_string() || spec["cohortName"].is_string() {
        return;
    }
    for group in spec["resourceGroups"].as_array_mut().into_iter().flatten() {
        for flavor in group["flavors"].as_array_mut().into_iter().flatten() {
            for quota in flavor["resources"].as_array_mut().into_iter().flatten() {
                if let Some(fields) = quota.as_object_mut() {
                    fields.remove("borrowingLimit");
                    fields.remove("lendingLimit");
                }
            }
        }
    }
}
