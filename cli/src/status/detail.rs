//! Details of one job.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use switchyard_api::v1beta2::{Admission, AdmissionCheckState, PastAttempt, Workload};

use crate::job_row::{JobRow, row};
use crate::table;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// The line of the list.
    #[serde(flatten)]
    pub row: JobRow,
    pub admission: Option<Admission>,
    pub admission_checks: Vec<AdmissionCheckState>,
    /// Clusters that are being tried.
    pub nominated_clusters: Vec<String>,
    /// The last attempts that were taken from their cluster before the job had ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<PastAttempt>,
    /// How often it was evicted.
    pub evictions: i64,
    /// Oldest first.
    pub conditions: Vec<Condition>,
}

#[must_use]
pub fn detail(workload: &Workload) -> Detail {
    let status = workload.status.clone().unwrap_or_default();
    let mut conditions = status.conditions;
    conditions.sort_by_key(|condition| condition.last_transition_time.0);
    let evictions = status.scheduling_stats.unwrap_or_default().evictions;
    Detail {
        row: row(workload),
        admission: status.admission,
        admission_checks: status.admission_checks,
        nominated_clusters: status.nominated_cluster_names,
        attempts: status.dispatch.map(|dispatch| dispatch.history).unwrap_or_default(),
        evictions: evictions.iter().map(|eviction| i64::from(eviction.count)).sum(),
        conditions,
    }
}

/// Lines of `Name: value`, with tables of quota, checks and conditions.
#[must_use]
pub(crate) fn render_text(detail: &Detail, now: Timestamp) -> String {
    let row = &detail.row;
    let mut facts = vec![
        ("Job", format!("{}/{} ({})", row.namespace, row.job, row.kind)),
        ("Workload", row.workload.clone()),
        ("Queue", row.queue.clone()),
        ("Priority", row.priority.to_string()),
        ("State", row.state.to_string()),
    ];
    if let Some(ready) = row.ready {
        facts.push(("Ready", ready.to_string()));
    }
    if !row.reason.is_empty() {
        facts.push(("Reason", row.reason.clone()));
    }
    if let Some(cluster) = &row.cluster {
        facts.push(("Cluster", format!("{cluster} (attempt {})", row.attempt)));
    }
    if !detail.nominated_clusters.is_empty() {
        facts.push(("Trying", detail.nominated_clusters.join(", ")));
    }
    if detail.evictions > 0 {
        facts.push(("Evictions", detail.evictions.to_string()));
    }
    let mut out: String =
        facts.iter().map(|(name, value)| format!("{:<10} {value}\n", format!("{name}:"))).collect();
    out.push_str(&attempts(detail, now));
    out.push_str(&quota(detail));
    out.push_str(&checks(detail));
    out.push_str(&render_conditions(&detail.conditions, now));
    out
}

fn quota(detail: &Detail) -> String {
    let Some(admission) = &detail.admission else { return String::new() };
    let mut rows = Vec::new();
    for pod_set in &admission.pod_set_assignments {
        for (resource, usage) in &pod_set.resource_usage {
            let flavor = pod_set.flavors.get(resource).cloned().unwrap_or_default();
            rows.push([
                admission.cluster_queue.clone(),
                pod_set.name.clone(),
                resource.clone(),
                flavor,
                usage.0.clone(),
            ]);
        }
    }
    format!("\n{}", table::render(["CLUSTERQUEUE", "PODSET", "RESOURCE", "FLAVOR", "HELD"], &rows))
}

fn checks(detail: &Detail) -> String {
    if detail.admission_checks.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 3]> = detail
        .admission_checks
        .iter()
        .map(|check| [check.name.clone(), format!("{:?}", check.state), check.message.clone()])
        .collect();
    format!("\n{}", table::render(["CHECK", "STATE", "MESSAGE"], &rows))
}

/// The earlier clusters of the job, and why it left them.
fn attempts(detail: &Detail, now: Timestamp) -> String {
    if detail.attempts.is_empty() {
        return String::new();
    }
    let past = detail.attempts.iter().map(|past| {
        let age = table::age(now.as_second() - past.at.0.as_second());
        [past.attempt.to_string(), past.cluster_name.clone(), format!("{}, {age} ago", past.reason)]
    });
    let row = &detail.row;
    let last = row
        .cluster
        .iter()
        .map(|cluster| [row.attempt.to_string(), cluster.clone(), row.state.to_string()]);
    let rows: Vec<[String; 3]> = past.chain(last).collect();
    format!("\n{}", table::render(["ATTEMPT", "CLUSTER", "OUTCOME"], &rows))
}

/// Conditions as a table.
pub(crate) fn render_conditions(conditions: &[Condition], now: Timestamp) -> String {
    if conditions.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 5]> = conditions
        .iter()
        .map(|condition| {
            let age = table::age(now.as_second() - condition.last_transition_time.0.as_second());
            let Condition { type_, status, reason, message, .. } = condition.clone();
            [age, type_, status, reason, message]
        })
        .collect();
    format!("\n{}", table::render(["AGE", "CONDITION", "STATUS", "REASON", "MESSAGE"], &rows))
}
