//! Charges beside what pods request, and how they differ.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::server::{Admitted, Amounts, Server};
use super::world::{Namespace, World};

/// Dry runs to make one failing template smaller.
const MOST_ATTEMPTS: usize = 300;

/// A pod's spec in a namespace.
pub(super) struct Template<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) spec: Value,
}

/// The number of results of each class.
#[derive(Default)]
pub(super) struct Tally {
    counts: BTreeMap<String, usize>,
    /// The first answer of the API server that has no class of its own.
    another: Option<String>,
}

impl Tally {
    pub(super) fn add(&mut self, class: impl Into<String>) {
        *self.counts.entry(class.into()).or_default() += 1;
    }

    /// Adds what [`judge`] said of a pod.
    pub(super) fn add_judged(&mut self, class: String, pod: &Result<Admitted, String>) {
        if class.ends_with(ANOTHER) && self.another.is_none() {
            self.another = pod.as_ref().err().cloned();
        }
        self.add(class);
    }

    /// How many are of classes that begin so.
    pub(super) fn count(&self, class: &str) -> usize {
        self.counts.iter().filter(|(name, _)| name.starts_with(class)).map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.iter().try_for_each(|(class, count)| writeln!(f, "{count:>7} {class}"))?;
        self.another.iter().try_for_each(|answer| writeln!(f, "        {ANOTHER}: {answer}"))
    }
}

/// A reason that [`reason`] does not know.
const ANOTHER: &str = "another reason";

/// A pod that requests something else than is charged.
pub(super) struct Difference {
    pub(super) class: String,
    pub(super) charge: Result<Amounts, String>,
    pub(super) requests: Amounts,
}

/// The class, or a difference.
fn judge(
    world: &World,
    template: &Template<'_>,
    pod: &Result<Admitted, String>,
) -> Result<String, Difference> {
    let charge = world.charge(template.namespace, &template.spec);
    let admitted = match (&charge, pod) {
        (Err(_), Err(_)) => return Ok("refused by both".to_owned()),
        (Ok(_), Err(why)) => {
            return Ok(format!("refused by the API server alone: {}", reason(why)));
        }
        (_, Ok(admitted)) => admitted,
    };
    let requests = &admitted.requests;
    let differs = |class: &str, charge| {
        Err(Difference { class: class.to_owned(), charge, requests: requests.clone() })
    };
    match charge {
        Err(why) => return differs(REFUSED_ALONE, Err(why)),
        Ok(charge) if charge == *requests => {}
        Ok(charge) if template.namespace.is_ambiguous && covers(&charge, requests) => {
            return Ok(
                "LimitRanges that contradict each other, charged the larger default".to_owned()
            );
        }
        Ok(charge) => {
            let resources = charge.keys().chain(requests.keys());
            let mut apart: Vec<&str> = resources
                .filter(|name| charge.get(*name) != requests.get(*name))
                .map(String::as_str)
                .collect();
            apart.sort_unstable();
            apart.dedup();
            let class = format!("amounts of {}", apart.join(", "));
            return differs(&class, Ok(charge));
        }
    }
    // A pod that is queued itself has been admitted before.
    let again = world.charge(template.namespace, &admitted.spec);
    if again.as_ref() == Ok(requests) {
        Ok("equal".to_owned())
    } else {
        differs("the admitted pod", again)
    }
}

/// The class of pods that Switchyard refuses and the API server admits.
const REFUSED_ALONE: &str = "refused by Switchyard alone";

/// How often a pod is created to see whether the API server refuses it in another order of LimitRanges.
const ORDERS: usize = 30;

/// As [`judge`]. Where LimitRanges contradict each other, Switchyard may refuse a pod that the API server refuses in one of their
/// orders. `spec` is what the pod was made of.
pub(super) async fn judge_in_all_orders(
    server: &Server<'_>,
    world: &World,
    template: &Template<'_>,
    spec: &Value,
    pod: &Result<Admitted, String>,
) -> Result<String, Difference> {
    let judged = judge(world, template, pod);
    let may_differ =
        |found: &Difference| template.namespace.is_ambiguous && found.class == REFUSED_ALONE;
    if judged.as_ref().err().is_none_or(|found| !may_differ(found)) {
        return judged;
    }
    let again = vec![(template.namespace.name.as_str(), spec); ORDERS];
    let answers = server.pods(&again).await.unwrap_or_default();
    if answers.iter().any(|answer| answer.admitted().is_none()) {
        return Ok(
            "LimitRanges that contradict each other, refused in one of their orders".to_owned()
        );
    }
    judged
}

/// Whether a charge is at least what a pod requests.
fn covers(charge: &Amounts, requests: &Amounts) -> bool {
    requests.iter().all(|(name, amount)| charge.get(name).is_some_and(|charged| charged >= amount))
}

/// Why the API server refuses, without what differs from pod to pod.
fn reason(message: &str) -> &'static str {
    const REASONS: [(&str, &str); 12] = [
        ("RuntimeClass \"", "no such RuntimeClass"),
        ("Overhead", "overhead other than the RuntimeClass's"),
        ("usage per Pod", "LimitRange of pods"),
        ("ratio per", "LimitRange, ratio"),
        ("usage per Container", "LimitRange of containers"),
        ("aggregate container requests", "containers ask for more than the pod"),
        ("aggregate container limits", "containers ask for more huge pages than the pod"),
        ("pod limits of", "a container's limit above the pod's"),
        ("HugePages require", "huge pages without cpu and memory"),
        ("must be less than or equal to", "request above limit"),
        ("Limit must be set", "no limit of what cannot be overcommitted"),
        ("must be an integer", "parts of a device"),
    ];
    REASONS.iter().find(|(text, _)| message.contains(text)).map_or(ANOTHER, |(_, reason)| reason)
}

/// Makes a template that differs smaller, as long as it differs, and tells of it.
pub(super) async fn report(server: &Server<'_>, world: &World, template: &Template<'_>) -> String {
    let mut smallest = Template { namespace: template.namespace, spec: template.spec.clone() };
    if difference(server, world, &smallest).await.is_none() {
        return "it is charged what its pod requests".to_owned();
    }
    let mut attempts = 0;
    'smaller: while attempts < MOST_ATTEMPTS {
        for spec in smaller(&smallest.spec) {
            attempts += 1;
            let candidate = Template { namespace: template.namespace, spec };
            if difference(server, world, &candidate).await.is_some() {
                smallest = candidate;
                continue 'smaller;
            }
        }
        break;
    }
    let Some(found) = difference(server, world, &smallest).await else {
        return "it differed once, and not again".to_owned();
    };
    let ranges: Vec<Value> =
        smallest.namespace.limit_ranges.iter().map(|range| json!(range.spec)).collect();
    let told = json!({"limitRanges": ranges, "spec": smallest.spec});
    let charge = found
        .charge
        .map_or_else(|why| format!("none: {why}"), |amounts| json!(amounts).to_string());
    let yaml = serde_saphyr::to_string(&told).unwrap_or_default();
    format!(
        "{}\n{yaml}\n  charged:   {charge}\n  requested: {}",
        found.class,
        json!(found.requests)
    )
}

async fn difference(
    server: &Server<'_>,
    world: &World,
    template: &Template<'_>,
) -> Option<Difference> {
    let pods = server.admitted(&[(&template.namespace.name, &template.spec)]).await.ok()?;
    judge_in_all_orders(server, world, template, &template.spec, pods.first()?).await.err()
}

/// The same spec with one thing less, the largest first.
fn smaller(spec: &Value) -> Vec<Value> {
    let mut candidates = Vec::new();
    let mut without = |pointer: &str, key: &str| {
        let mut spec = spec.clone();
        let removed = match spec.pointer_mut(pointer) {
            Some(Value::Object(fields)) => fields.remove(key).is_some(),
            Some(Value::Array(items)) => {
                let index: usize = key.parse().unwrap_or(usize::MAX);
                index < items.len() && (items.remove(index), true).1
            }
            _ => false,
        };
        if removed {
            candidates.push(spec);
        }
    };
    for key in ["initContainers", "resources", "runtimeClassName", "overhead"] {
        without("", key);
    }
    let count = |field: &str| spec[field].as_array().map_or(0, Vec::len);
    for field in ["initContainers", "containers"] {
        // The last container stays.
        let least = usize::from(field == "containers");
        for index in (0..count(field)).filter(|_| count(field) > least) {
            without(&format!("/{field}"), &index.to_string());
        }
    }
    let mut holders = vec![String::new()];
    for field in ["initContainers", "containers"] {
        holders.extend((0..count(field)).map(|index| format!("/{field}/{index}")));
    }
    for holder in &holders {
        if !holder.is_empty() {
            without(holder, "resources");
            without(holder, "restartPolicy");
        }
        for side in ["requests", "limits"] {
            without(&format!("{holder}/resources"), side);
            let pointer = format!("{holder}/resources/{side}");
            let names = spec.pointer(&pointer).and_then(Value::as_object).into_iter().flatten();
            for (name, _) in names {
                without(&pointer, name);
            }
        }
    }
    candidates
}
