//! The periodic audit: the leader compares charges in memory with the cluster's pods.
//!
//! [`switchyard_audit`] has the rules. Findings that last appear as metrics. The audit writes
//! nothing, and nothing waits for it.
//!
//! # Bounds
//!
//! - Pods are listed page by page, and only the fields that count are kept.
//! - A run ends after [`DEADLINE`] and fails with more than [`MAX_PODS`] pods.
//! - Runs take at most a twentieth of the time: a slow run delays the next.

mod seen;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use seen::see;
use switchyard_audit::{Finding, FindingKind, audit};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use switchyard_platform::log_limit::LogLimit;

/// Deadline of a run.
const DEADLINE: Duration = Duration::from_secs(60);
/// Maximum number of compared pods.
const MAX_PODS: usize = 50_000;
/// Upper bound of the delay before a new leader's first run.
const FIRST: Duration = Duration::from_secs(10);
/// The pause between two runs is at least this many times the last run's duration.
const REST: u32 = 20;
/// How long a finding must last to be shown. Pods of an evicted job take this long to end by
/// default.
const GRACE: Duration = Duration::from_secs(30);

/// The kinds that one cluster's objects can show. A hub does not see its workers' Workloads.
const KINDS: [FindingKind; 4] = [
    FindingKind::RunsWithoutAdmission,
    FindingKind::RunsAboveCharge,
    FindingKind::UsageDiffers,
    FindingKind::ChargedAboveQuota,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// The audit's metrics.
#[derive(Debug, Clone, Default)]
struct AuditMetrics {
    findings: Family<KindLabel, Gauge>,
    looks: Family<ResultLabel, Counter>,
}

impl AuditMetrics {
    fn register(ctx: &Context) -> Self {
        let shown = Self::default();
        let registered = shown.clone();
        ctx.metrics.register(|registry| {
            let ours = registry.sub_registry_with_prefix("switchyard");
            ours.register(
                "audit_findings",
                "Findings of the periodic audit that have lasted for 30 s, by kind; leader only",
                registered.findings,
            );
            ours.register(
                "audit_looks",
                "Runs of the audit by result: ok or failed",
                registered.looks,
            );
        });
        shown
    }

    fn count_run(&self, result: &'static str) {
        self.looks.get_or_create(&ResultLabel { result }).inc();
    }

    fn show(&self, lasting: &[Lasting]) {
        for kind in KINDS {
            let count = lasting.iter().filter(|it| it.finding.kind == kind).count();
            self.findings
                .get_or_create(&KindLabel { kind: kind.name() })
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// A finding that has lasted for [`GRACE`].
struct Lasting {
    finding: Finding,
    /// Whether no earlier run has shown it.
    is_new: bool,
}

/// By finding: since when it exists, and whether it was shown.
#[derive(Default)]
struct FindingMemory(BTreeMap<String, (Instant, bool)>);

impl FindingMemory {
    /// The findings that each run had for at least [`GRACE`].
    fn lasting(&mut self, found: Vec<Finding>, now: Instant) -> Vec<Lasting> {
        let mut before = std::mem::take(&mut self.0);
        let mut lasting = Vec::new();
        for finding in found {
            let key = finding.key();
            let (since, was_shown) = before.remove(&key).unwrap_or((now, false));
            let lasts = now.duration_since(since) >= GRACE;
            self.0.insert(key, (since, was_shown || lasts));
            if lasts {
                lasting.push(Lasting { finding, is_new: !was_shown });
            }
        }
        lasting
    }
}

/// Audits at an interval until shutdown.
pub(crate) async fn run(ctx: Arc<Context>, every: Duration, shutdown: CancellationToken) {
    let (shown, log) = (AuditMetrics::register(&ctx), LogLimit::default());
    let (mut memory, mut wait) = (FindingMemory::default(), every.min(FIRST));
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(wait) => {}
        }
        if !ctx.leading() {
            // Only the leader shows findings.
            (memory, wait) = (FindingMemory::default(), every.min(FIRST));
            shown.findings.clear();
            continue;
        }
        let began = Instant::now();
        let finished = tokio::select! {
            () = shutdown.cancelled() => return,
            finished = timeout(DEADLINE, run_once(&ctx)) => finished,
        };
        match finished.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {DEADLINE:?}"))) {
            Ok(found) => {
                shown.count_run("ok");
                let lasting = memory.lasting(found, began);
                shown.show(&lasting);
                lasting.iter().filter(|it| it.is_new).for_each(|it| tell(&it.finding, &log));
            }
            Err(error) => {
                shown.count_run("failed");
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the audit could not look at the cluster"
                );
            }
        }
        wait = every.max(began.elapsed().saturating_mul(REST));
    }
}

async fn run_once(ctx: &Arc<Context>) -> anyhow::Result<Vec<Finding>> {
    let pods = seen::pods(&ctx.client, MAX_PODS).await?;
    let ctx = ctx.clone();
    // On a blocking thread: it takes milliseconds for thousands of pods.
    Ok(tokio::task::spawn_blocking(move || audit(&see(&ctx.stores, pods))).await?)
}

fn tell(finding: &Finding, log: &LogLimit) {
    if let Some(left_out) = log.admit(Instant::now()) {
        tracing::warn!(
            kind = finding.kind.name(),
            finding = finding.message,
            left_out,
            "found by the audit"
        );
    }
}

#[cfg(test)]
mod tests;
