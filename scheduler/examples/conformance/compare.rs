//! Outcomes of steps, and the first difference between two.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde_json::Value;
use switchyard_scheduler::{Admission, Name, Time};

use crate::{objects, quantity};

/// What a step came to.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// The cycles that decided something.
    pub(crate) cycles: Vec<CycleOutcome>,
    pub(crate) pending: BTreeMap<String, BTreeSet<String>>,
    pub(crate) inadmissible: BTreeMap<String, BTreeSet<String>>,
}

/// What a cycle decided.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CycleOutcome {
    pub(crate) time: Time,
    pub(crate) admitted: BTreeMap<String, Admitted>,
    pub(crate) preempted: BTreeMap<String, String>,
}

/// An admission, as a person reads it.
#[derive(PartialEq)]
pub(crate) struct Admitted(String);

impl Debug for Admitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Admitted {
    pub(crate) fn of(admission: &Admission, checks: &[Name]) -> Self {
        let pod_sets = admission.pod_sets.iter().map(|pod_set| {
            let flavors = pod_set.flavors.iter().map(|(resource, flavor)| (resource.to_string(), flavor.to_string()));
            (pod_set.name.to_string(), i64::from(pod_set.count), flavors.collect())
        });
        Self::text(&admission.cluster_queue, pod_sets, &checks.iter().map(ToString::to_string).collect())
    }

    fn read(value: &Value) -> Result<Self, String> {
        let pod_sets = objects::list(&value["podSets"]).iter().map(|pod_set| {
            let name = pod_set["name"].as_str().unwrap_or_default().to_owned();
            Ok((name, pod_set["count"].as_i64().unwrap_or(0), objects::labels(&pod_set["flavors"])?))
        });
        let pod_sets = pod_sets.collect::<Result<Vec<_>, String>>()?;
        let checks = objects::list(&value["checks"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(Self::text(value["clusterQueue"].as_str().unwrap_or_default(), pod_sets.into_iter(), &checks))
    }

    fn text(
        queue: &str,
        pod_sets: impl Iterator<Item = (String, i64, BTreeMap<String, String>)>,
        checks: &BTreeSet<String>,
    ) -> Self {
        let pod_sets: Vec<_> = pod_sets
            .map(|(name, count, flavors)| {
                let flavors: Vec<_> =
                    flavors.iter().map(|(resource, flavor)| format!("{resource} on {flavor}")).collect();
                format!("{name} x {count} ({})", flavors.join(", "))
            })
            .collect();
        let awaits = if checks.is_empty() { String::new() } else { format!(", checks {checks:?}") };
        Self(format!("admitted by {queue}: {}{awaits}", pod_sets.join("; ")))
    }
}

/// The `expect` of a scenario.
pub(crate) fn read(expect: &Value) -> Result<Vec<Outcome>, String> {
    let queued = |value: &Value| -> BTreeMap<String, BTreeSet<String>> {
        let queues = value.as_object().into_iter().flatten();
        let names = |list: &Value| objects::list(list).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        queues
            .map(|(queue, list)| (queue.clone(), names(list)))
            .filter(|(_, list): &(_, BTreeSet<_>)| !list.is_empty())
            .collect()
    };
    objects::list(expect)
        .iter()
        .map(|step| {
            let cycles = objects::list(&step["cycles"]).iter().map(read_cycle).collect::<Result<Vec<_>, _>>()?;
            let decided = |cycle: &CycleOutcome| !cycle.admitted.is_empty() || !cycle.preempted.is_empty();
            Ok(Outcome {
                cycles: cycles.into_iter().filter(decided).collect(),
                pending: queued(&step["pending"]),
                inadmissible: queued(&step["inadmissible"]),
            })
        })
        .collect()
}

fn read_cycle(cycle: &Value) -> Result<CycleOutcome, String> {
    let admitted = cycle["admitted"].as_object().into_iter().flatten();
    Ok(CycleOutcome {
        time: quantity::time(cycle["time"].as_str().unwrap_or_default())?,
        admitted: admitted
            .map(|(name, value)| Ok((name.clone(), Admitted::read(value)?)))
            .collect::<Result<_, String>>()?,
        preempted: objects::labels(&cycle["preempted"])?,
    })
}

/// The first thing that differs, in words.
pub(crate) fn first_difference(expected: &[Outcome], got: &[Outcome]) -> Option<String> {
    let pairs = expected.iter().zip(got).enumerate();
    let Some((number, (expected, got))) = pairs.into_iter().find(|(_, (expected, got))| expected != got) else {
        let lengths = (expected.len(), got.len());
        return (lengths.0 != lengths.1)
            .then(|| format!("  {} steps are expected, {} were played", lengths.0, lengths.1));
    };
    let cycle = (0..expected.cycles.len().max(got.cycles.len()))
        .map(|at| (expected.cycles.get(at), got.cycles.get(at)))
        .find(|(expected, got)| expected != got);
    let difference = match cycle {
        Some((expected, got)) => cycle_difference(expected, got),
        None => map_difference("left in the heap", &expected.pending, &got.pending)
            .or_else(|| map_difference("parked", &expected.inadmissible, &got.inadmissible))
            .unwrap_or_default(),
    };
    Some(format!("  step {number}{difference}"))
}

fn cycle_difference(expected: Option<&CycleOutcome>, got: Option<&CycleOutcome>) -> String {
    let seconds = |time: Time| time.0 / 1_000_000_000 % 1000;
    let nothing = CycleOutcome::default();
    let (wanted, have) = (expected.unwrap_or(&nothing), got.unwrap_or(&nothing));
    match (expected, got) {
        (Some(expected), Some(got)) if expected.time != got.time => format!(
            ": the next decision was expected in cycle {}, came in cycle {}\n    expected {:?} {:?}\n    got      {:?} {:?}",
            seconds(expected.time),
            seconds(got.time),
            expected.admitted,
            expected.preempted,
            got.admitted,
            got.preempted
        ),
        _ => {
            let time = expected.or(got).map_or(0, |cycle| seconds(cycle.time));
            let difference = map_difference("", &wanted.admitted, &have.admitted)
                .or_else(|| map_difference("preempted", &wanted.preempted, &have.preempted))
                .unwrap_or_default();
            format!(", cycle {time}{difference}")
        }
    }
}

fn map_difference<T: Debug + PartialEq>(
    what: &str,
    expected: &BTreeMap<String, T>,
    got: &BTreeMap<String, T>,
) -> Option<String> {
    let key = expected.keys().chain(got.keys()).find(|key| expected.get(*key) != got.get(*key))?;
    let show = |value: Option<&T>| value.map_or("nothing".to_owned(), |value| format!("{value:?}"));
    let (expected, got) = (show(expected.get(key)), show(got.get(key)));
    Some(format!(", {key} {what}\n    expected {expected}\n    got      {got}"))
}
