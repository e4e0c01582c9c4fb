//! The periodic audit. The leader compares the charges that it has in memory with the pods of its cluster, by the rules of
//! [`switchyard_audit`], and shows the findings that last as metrics. It writes nothing, and nothing waits for it.
//!
//! # Bounds
//! - The pods are listed page by page, and of each only what counts is kept.
//! - A look ends after [`DEADLINE`], and one with more than [`MAX_PODS`] pods fails.
//! - A twentieth of the time goes into looks at most: a slow one delays the next.

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

/// How long a look may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Pods that are compared at most.
const MAX_PODS: usize = 50_000;
/// How long after it began to lead a leader looks for the first time, at most.
const FIRST: Duration = Duration::from_secs(10);
/// The time between two looks is at least so many times that of the last one.
const REST: u32 = 20;
/// How long a finding has to last to be shown: pods of an evicted job take this long to end by default.
const GRACE: Duration = Duration::from_secs(30);

/// The kinds that one cluster by itself can show. A hub does not see the Workloads of its workers.
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

/// The metrics of the audit.
#[derive(Debug, Clone, Default)]
struct Shown {
    findings: Family<KindLabel, Gauge>,
    looks: Family<ResultLabel, Counter>,
}

impl Shown {
    fn register(ctx: &Context) -> Self {
        let shown = Self::default();
        let registered = shown.clone();
        ctx.metrics.register(|registry| {
            let ours = registry.sub_registry_with_prefix("switchyard");
            ours.register(
                "audit_findings",
                "Findings of the audit that last, by kind",
                registered.findings,
            );
            ours.register("audit_looks", "Looks of the audit at the cluster", registered.looks);
        });
        shown
    }

    fn look(&self, result: &'static str) {
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
    /// Whether no earlier look has shown it.
    is_new: bool,
}

/// Since when findings are there, and whether they were shown.
#[derive(Default)]
struct Memory(BTreeMap<String, (Instant, bool)>);

impl Memory {
    /// The findings that each look has had for so long.
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

/// Audits every so often until shutdown.
pub(crate) async fn run(ctx: Arc<Context>, every: Duration, shutdown: CancellationToken) {
    let (shown, log) = (Shown::register(&ctx), LogLimit::default());
    let (mut memory, mut wait) = (Memory::default(), every.min(FIRST));
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(wait) => {}
        }
        if !ctx.leading() {
            // The leader shows what it finds.
            (memory, wait) = (Memory::default(), every.min(FIRST));
            shown.findings.clear();
            continue;
        }
        let began = Instant::now();
        let looked = tokio::select! {
            () = shutdown.cancelled() => return,
            looked = timeout(DEADLINE, look(&ctx)) => looked,
        };
        match looked.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {DEADLINE:?}"))) {
            Ok(found) => {
                shown.look("ok");
                let lasting = memory.lasting(found, began);
                shown.show(&lasting);
                lasting.iter().filter(|it| it.is_new).for_each(|it| tell(&it.finding, &log));
            }
            Err(error) => {
                shown.look("failed");
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the audit could not look at the cluster"
                );
            }
        }
        wait = every.max(began.elapsed().saturating_mul(REST));
    }
}

async fn look(ctx: &Arc<Context>) -> anyhow::Result<Vec<Finding>> {
    let pods = seen::pods(&ctx.client, MAX_PODS).await?;
    let ctx = ctx.clone();
    // Beside the threads that schedule: it takes milliseconds for thousands of pods.
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
