//! Outcomes of steps, and the first difference between two.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde_json::Value;
use switchyard_scheduler::{Admission, AssignedDomain, Name, PodSetAssignment, Time};

use crate::{objects, quantity};

/// The outcome of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// The cycles with decisions.
    pub(crate) cycles: Vec<CycleOutcome>,
    pub(crate) pending: BTreeMap<String, BTreeSet<String>>,
    pub(crate) inadmissible: BTreeMap<String, BTreeSet<String>>,
    pub(crate) second_pass: BTreeSet<String>,
    pub(crate) messages: BTreeMap<String, String>,
}

impl Outcome {
    /// Compares only expected messages.
    fn with_expected_messages_only(&self, expected: &Self) -> Self {
        let asked = |(name, _): &(&String, &String)| expected.messages.contains_key(*name);
        let messages =
            self.messages.iter().filter(asked).map(|(name, text)| (name.clone(), text.clone()));
        Self { messages: messages.collect(), ..self.clone() }
    }
}

/// The decisions of a cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CycleOutcome {
    pub(crate) time: Time,
    pub(crate) admitted: BTreeMap<String, Admitted>,
    pub(crate) preempted: BTreeMap<String, String>,
    pub(crate) reassigned: BTreeMap<String, Admitted>,
    pub(crate) evicted: BTreeMap<String, String>,
}

impl CycleOutcome {
    pub(crate) fn decides(&self) -> bool {
        !self.admitted.is_empty()
            || !self.preempted.is_empty()
            || !self.reassigned.is_empty()
            || !self.evicted.is_empty()
    }
}

/// An admission as text.
#[derive(Clone, PartialEq)]
pub(crate) struct Admitted(String);

impl Debug for Admitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Admitted {
    pub(crate) fn of(admission: &Admission, checks: &[Name]) -> Self {
        let pod_sets: Vec<_> = admission.pod_sets.iter().map(Given::of).collect();
        Self::text(
            &admission.cluster_queue,
            &pod_sets,
            &checks.iter().map(ToString::to_string).collect(),
        )
    }

    /// The admission of a workload that already had quota.
    pub(crate) fn second_pass(admission: &Admission) -> Self {
        let pod_sets: Vec<_> = admission.pod_sets.iter().map(Given::of).collect();
        Self::text("", &pod_sets, &BTreeSet::new())
    }

    fn read(value: &Value) -> Result<Self, String> {
        let pod_sets = read_pod_sets(&value["podSets"])?;
        let checks = objects::list(&value["checks"])
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        Ok(Self::text(value["clusterQueue"].as_str().unwrap_or_default(), &pod_sets, &checks))
    }

    fn text(queue: &str, pod_sets: &[Given], checks: &BTreeSet<String>) -> Self {
        let pod_sets: Vec<_> = pod_sets.iter().map(Given::text).collect();
        let awaits = if checks.is_empty() { String::new() } else { format!(", checks {checks:?}") };
        Self(format!("admitted by {queue}: {}{awaits}", pod_sets.join("; ")))
    }
}

/// The assignment of a pod set.
struct Given {
    name: String,
    count: i64,
    flavors: BTreeMap<String, String>,
    places: Option<Vec<(Vec<String>, i64)>>,
    delayed: Option<String>,
}

impl Given {
    fn of(pod_set: &PodSetAssignment) -> Self {
        let flavors = pod_set
            .flavors
            .iter()
            .map(|(resource, flavor)| (resource.to_string(), flavor.to_string()));
        let place = |domain: &AssignedDomain| {
            (domain.values.iter().map(ToString::to_string).collect(), i64::from(domain.count))
        };
        Self {
            name: pod_set.name.to_string(),
            count: i64::from(pod_set.count),
            flavors: flavors.collect(),
            places: pod_set
                .topology
                .as_ref()
                .map(|topology| topology.domains.iter().map(place).collect()),
            delayed: pod_set.delayed.map(|delayed| format!("{delayed:?}")),
        }
    }

    fn text(&self) -> String {
        let flavors: Vec<_> = self
            .flavors
            .iter()
            .map(|(resource, flavor)| format!("{resource} on {flavor}"))
            .collect();
        let mut text = format!("{} x {} ({})", self.name, self.count, flavors.join(", "));
        if let Some(places) = &self.places {
            let places: Vec<_> = places
                .iter()
                .map(|(values, count)| format!("{}*{count}", values.join("/")))
                .collect();
            text += &format!(" at {}", places.join(" "));
        }
        self.delayed.iter().for_each(|delayed| text += &format!(" delayed {delayed}"));
        text
    }
}

fn read_pod_sets(value: &Value) -> Result<Vec<Given>, String> {
    let place = |place: &Value| {
        let values =
            objects::list(&place[0]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        (values, place[1].as_i64().unwrap_or(0))
    };
    let given = |pod_set: &Value| {
        Ok(Given {
            name: pod_set["name"].as_str().unwrap_or_default().to_owned(),
            count: pod_set["count"].as_i64().unwrap_or(0),
            flavors: objects::labels(&pod_set["flavors"])?,
            places: pod_set["topology"].as_array().map(|places| places.iter().map(place).collect()),
            delayed: pod_set["delayed"].as_str().map(str::to_owned),
        })
    };
    objects::list(value).iter().map(given).collect()
}

/// The `expect` of a scenario.
pub(crate) fn read(expect: &Value) -> Result<Vec<Outcome>, String> {
    let queued = |value: &Value| -> BTreeMap<String, BTreeSet<String>> {
        let queues = value.as_object().into_iter().flatten();
        let names = |list: &Value| {
            objects::list(list).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        queues
            .map(|(queue, list)| (queue.clone(), names(list)))
            .filter(|(_, list): &(_, BTreeSet<_>)| !list.is_empty())
            .collect()
    };
    objects::list(expect)
        .iter()
        .map(|step| {
            let cycles = objects::list(&step["cycles"])
                .iter()
                .map(read_cycle)
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Outcome {
                cycles: cycles.into_iter().filter(CycleOutcome::decides).collect(),
                pending: queued(&step["pending"]),
                inadmissible: queued(&step["inadmissible"]),
                second_pass: (objects::list(&step["secondPass"]).iter())
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
                messages: objects::labels(&step["messages"])?,
            })
        })
        .collect()
}

fn read_cycle(cycle: &Value) -> Result<CycleOutcome, String> {
    let admitted = cycle["admitted"].as_object().into_iter().flatten();
    let reassigned = cycle["reassigned"].as_object().into_iter().flatten();
    Ok(CycleOutcome {
        time: quantity::time(cycle["time"].as_str().unwrap_or_default())?,
        admitted: admitted
            .map(|(name, value)| Ok((name.clone(), Admitted::read(value)?)))
            .collect::<Result<_, String>>()?,
        preempted: objects::labels(&cycle["preempted"])?,
        reassigned: reassigned
            .map(|(name, value)| {
                Ok((name.clone(), Admitted::text("", &read_pod_sets(value)?, &BTreeSet::new())))
            })
            .collect::<Result<_, String>>()?,
        evicted: objects::labels(&cycle["evicted"])?,
    })
}

/// The first difference as text.
pub(crate) fn first_difference(expected: &[Outcome], got: &[Outcome]) -> Option<String> {
    let got: Vec<_> = expected
        .iter()
        .zip(got)
        .map(|(expected, got)| got.with_expected_messages_only(expected))
        .collect();
    let got = &got[..];
    let pairs = expected.iter().zip(got).enumerate();
    let Some((number, (expected, got))) =
        pairs.into_iter().find(|(_, (expected, got))| expected != got)
    else {
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
            .or_else(|| {
                (expected.second_pass != got.second_pass).then(|| {
                    format!(
                        ", second pass\n    expected {:?}\n    got      {:?}",
                        expected.second_pass, got.second_pass
                    )
                })
            })
            .or_else(|| map_difference("says", &expected.messages, &got.messages))
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
                .or_else(|| map_difference("reassigned", &wanted.reassigned, &have.reassigned))
                .or_else(|| map_difference("evicted", &wanted.evicted, &have.evicted))
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
