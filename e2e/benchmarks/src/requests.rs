//! Requests to API servers, for readers and for programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use switchyard_e2e::table::Table;
use switchyard_e2e::{Request, Requests};

use super::measure::Usage;

/// Requests that fewer jobs than one in a hundred cause are in the JSON only.
const RARE: f64 = 0.01;

/// All requests in full, by cluster.
pub(super) fn json(usage: &Usage) -> Value {
    let row = |(request, count): (&Request, &u64)| {
        json!({
            "verb": request.verb, "group": request.group, "resource": request.resource,
            "subresource": request.subresource, "code": request.code, "count": count,
        })
    };
    let cluster = |(name, requests): (&String, &Requests)| -> (String, Value) {
        (name.clone(), requests.0.iter().map(row).collect())
    };
    Value::Object(usage.requests.iter().map(cluster).collect())
}

/// Requests for each job to the API servers of the hub and of the workers. Each system has its name, the requests of both
/// sides, and the number of jobs.
pub(super) fn table<'a>(
    systems: impl IntoIterator<Item = (&'a str, ((Requests, Requests), usize))>,
) -> Table {
    let systems: Vec<_> = systems.into_iter().collect();
    let mut rows: BTreeMap<(usize, String), Vec<f64>> = BTreeMap::new();
    for (column, (_, (sides, jobs))) in systems.iter().enumerate() {
        for (side, requests) in [&sides.0, &sides.1].into_iter().enumerate() {
            for (request, count) in &requests.0 {
                let cells =
                    rows.entry((side, name(request))).or_insert_with(|| vec![0.0; systems.len()]);
                if let Some(cell) = cells.get_mut(column) {
                    *cell += *count as f64 / (*jobs).max(1) as f64;
                }
            }
        }
    }
    let mut rows: Vec<_> =
        rows.into_iter().filter(|(_, cells)| cells.iter().any(|cell| *cell >= RARE)).collect();
    let most = |cells: &[f64]| cells.iter().copied().fold(0.0, f64::max);
    rows.sort_by(|(a, left), (b, right)| {
        a.0.cmp(&b.0).then_with(|| most(right).total_cmp(&most(left)))
    });
    let mut table = Table::new(
        "requests per job, of all clients",
        systems.iter().map(|(name, _)| (*name).to_owned()),
    );
    for ((side, name), cells) in rows {
        let side = if side == 0 { "hub" } else { "workers" };
        let cell = |value: f64| if value == 0.0 { "-".to_owned() } else { format!("{value:.2}") };
        table.row(format!("{side} {name}"), cells.into_iter().map(cell));
    }
    table
}

/// Verb and resource, as `PATCH workloads.kueue.x-k8s.io/status`.
fn name(request: &Request) -> String {
    let Request { verb, group, resource, subresource, .. } = request;
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{verb} {resource}{dot}{group}{slash}{subresource}")
}
