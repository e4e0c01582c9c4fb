//! Writes the dispatcher's decisions to the hub's Workloads. Each write ends with a definite
//! result: it is in the API, or it is not and cannot take effect later.

mod edits;

use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use switchyard_api::conditions::reasons::{events, evicted, finished};
use switchyard_api::conditions::truncated_message;
use switchyard_api::v1beta2::{OtherFlavor, Workload};
use switchyard_controller::engine::admission::{announce, end_replaced};
use switchyard_controller::finished_note;
use switchyard_controller::stores::dispatching::is_dispatching;
use switchyard_controller::{Context, Reservation};
use switchyard_controller::{context::patch_status, workload as state, workload::Edit};
use switchyard_dispatcher::write_guard::{WriteDecision, check, is_outdated};
use switchyard_dispatcher::{STUCK, Uid, WorkloadWrite, WriteOutcome, WriteResult, WriteRetries};
use switchyard_platform::events::EventType;
use switchyard_platform::log_limit::LogLimit;
use switchyard_platform::store::Key;
use switchyard_platform::write::WriteError;
use tokio::time::Instant;

use super::gather::{charged, facts, replaced};
use super::payload;
use super::workload_view::{WorkloadView, attempt};
use crate::audit::{Actor, AuditOperation, AuditOutcome, AuditRecord};
use crate::metrics::HubMetrics;

/// How a job ended, for the condition `Finished`.
#[derive(Debug, Clone)]
pub(super) struct EndNote {
    pub(super) reason: String,
    pub(super) message: String,
}

/// One write of one Workload.
#[derive(Debug, Clone)]
pub(super) struct PendingWrite {
    pub(super) key: Key,
    pub(super) uid: Uid,
    /// The reservation, if the API does not show it.
    pub(super) reservation: Option<Arc<Reservation>>,
    pub(super) what: Arc<WorkloadWrite>,
    /// With [`WorkloadWrite::Finish`].
    pub(super) end: Option<EndNote>,
    /// With [`WorkloadWrite::Commit`]: flavors on the cluster that differ from the charge.
    pub(super) other_flavors: Vec<OtherFlavor>,
    /// The time of the decision.
    pub(super) decided: Instant,
}

/// The next step for the present object.
enum WritePlan {
    Write(Box<Edit>),
    /// Remove another cluster's name first: the API does not let it change.
    ClearClusterFirst(Box<Edit>),
    /// The object says it already.
    AlreadyApplied,
    /// The decision is out of date.
    Obsolete(&'static str),
}

impl PendingWrite {
    pub(super) async fn perform(self, ctx: &Context, metrics: &HubMetrics) -> WriteResult {
        let (outcome, workload) = self.try_until_definite(ctx, metrics).await;
        if let (WorkloadWrite::Commit { adopts: Some(_), .. }, WriteOutcome::Done, Some(new)) =
            (&*self.what, outcome, &workload)
            && let Some(old) = replaced(ctx, new)
        {
            end_replaced(
                ctx,
                &Key::of(&*old),
                old.metadata.uid.as_deref().unwrap_or_default(),
                new,
            )
            .await;
        }
        let held = self.reservation.as_ref().map(|reservation| &reservation.admission);
        let facts = workload.map(|workload| facts(ctx, &workload, held, None));
        WriteResult { uid: self.uid, outcome, facts }
    }

    async fn try_until_definite(
        &self,
        ctx: &Context,
        metrics: &HubMetrics,
    ) -> (WriteOutcome, Option<Arc<Workload>>) {
        let stored = ctx.stores.workloads.by_key(&self.key);
        let Some(mut current) =
            stored.filter(|workload| workload.metadata.uid.as_deref() == Some(&*self.uid))
        else {
            return (WriteOutcome::Superseded, None);
        };
        let (mut tries, mut is_cleared) = (WriteRetries::default(), false);
        loop {
            let (edit, is_all) = match self.plan(ctx, &current) {
                WritePlan::Write(_) if is_outdated(&self.what, self.decided.elapsed()) => {
                    tracing::debug!(workload = %self.key, what = self.label(), "decided too long ago");
                    return (WriteOutcome::Superseded, Some(current));
                }
                WritePlan::Write(edit) => (edit, true),
                WritePlan::ClearClusterFirst(edit) if !is_cleared => (edit, false),
                WritePlan::ClearClusterFirst(_) => {
                    tracing::warn!(workload = %self.key, what = self.label(), "status.clusterName comes back");
                    return (WriteOutcome::Failed, Some(current));
                }
                WritePlan::AlreadyApplied => return (WriteOutcome::Done, Some(current)),
                WritePlan::Obsolete(why) => {
                    tracing::debug!(workload = %self.key, why, what = self.label(), "write is void");
                    return (WriteOutcome::Superseded, Some(current));
                }
            };
            let written = tokio::time::timeout(
                WriteRetries::CALL_TIMEOUT,
                patch_status(ctx, &current, &edit.status, self.label()),
            )
            .await;
            let unknown = match written {
                Ok(Ok(Some(after))) => {
                    let after = Arc::new(after);
                    if !is_all {
                        (current, is_cleared) = (after, true);
                        continue;
                    }
                    if self.is_dropped(&after) {
                        static LIMIT: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);
                        if let Some(left_out) = LIMIT.admit(Instant::now()) {
                            tracing::warn!(
                                workload = %self.key,
                                left_out,
                                "the API server drops status.clusterName or status.dispatch; apply Switchyard's CRDs again"
                            );
                        }
                        return (WriteOutcome::Failed, Some(after));
                    }
                    self.announce(ctx, metrics, &current, &after);
                    return (WriteOutcome::Done, Some(after));
                }
                Ok(Ok(None)) => return (WriteOutcome::Done, Some(current)),
                Ok(Err(WriteError::Gone)) => return (WriteOutcome::Superseded, None),
                Ok(Err(WriteError::NotLeading)) => {
                    return (WriteOutcome::Superseded, Some(current));
                }
                Ok(Err(WriteError::Conflict)) => {
                    if !tries.may_retry_conflict() {
                        return (WriteOutcome::Superseded, Some(current));
                    }
                    "somebody wrote first".to_owned()
                }
                Ok(Err(error)) if refused(&error) => {
                    tracing::warn!(workload = %self.key, %error, what = self.label(), "write refused");
                    return (WriteOutcome::Failed, Some(current));
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {:?}", WriteRetries::CALL_TIMEOUT),
            };
            // The write may have taken effect. Only a fresh read tells.
            current = loop {
                if !ctx.leading() {
                    return (WriteOutcome::Superseded, Some(current));
                }
                tokio::time::sleep(tries.pause()).await;
                match self.read(ctx).await {
                    Ok(Some(fresh)) => break fresh,
                    Ok(None) => return (WriteOutcome::Superseded, None),
                    Err(error) => {
                        tries.lengthen_pause();
                        tracing::warn!(workload = %self.key, %error, write = unknown, "reading a workload failed");
                    }
                }
            };
        }
    }

    /// Whether the API server dropped the cluster's name or the attempt from a commit.
    fn is_dropped(&self, after: &Workload) -> bool {
        let Some((_, written)) = self.what.committed() else { return false };
        let cluster = after.status.as_ref().and_then(|status| status.cluster_name.as_deref());
        cluster.is_none() || attempt(after) < written
    }

    /// The present object. None if it is gone or has another uid.
    async fn read(&self, ctx: &Context) -> anyhow::Result<Option<Arc<Workload>>> {
        let api: Api<Workload> = Api::namespaced(ctx.client.clone(), &self.key.namespace);
        let found =
            tokio::time::timeout(WriteRetries::CALL_TIMEOUT, api.get_opt(&self.key.name)).await??;
        let found = found.filter(|workload| workload.metadata.uid.as_deref() == Some(&*self.uid));
        if let Some(workload) = &found {
            ctx.stores.workloads.observe(workload.clone());
        }
        Ok(found.map(Arc::new))
    }

    fn plan(&self, ctx: &Context, current: &Workload) -> WritePlan {
        let view = WorkloadView::of(current, &|check| is_dispatching(&ctx.stores, check));
        let held = self.reservation.as_ref().map(|reservation| &reservation.admission);
        let flavors = charged(current, held);
        match check(&self.what, &self.uid, &view.state, &flavors, held.is_some()) {
            WriteDecision::Write => self.edit(ctx, current),
            WriteDecision::ClearClusterFirst => {
                let mut edit = ctx.edit(current);
                edit.status.cluster_name = None;
                WritePlan::ClearClusterFirst(Box::new(edit))
            }
            WriteDecision::AlreadyApplied => WritePlan::AlreadyApplied,
            WriteDecision::Obsolete(why) => WritePlan::Obsolete(why),
        }
    }

    /// Publishes events and counts metrics of a successful write.
    fn announce(&self, ctx: &Context, metrics: &HubMetrics, before: &Workload, after: &Workload) {
        match &*self.what {
            WorkloadWrite::Commit { cluster, .. } => {
                announce(ctx, before, after, self.flavors());
                let others: Vec<String> = self.other_flavors.iter().map(flavor_note).collect();
                let mut note = format!("The workload was admitted on \"{cluster}\"");
                if !others.is_empty() {
                    note = format!("{note}, in other flavors than charged: {}", others.join(", "));
                }
                ctx.events.normal(after, events::MULTIKUEUE, truncated_message(note));
                metrics.admitted(state::admitted_by(after).unwrap_or_default(), cluster);
            }
            WorkloadWrite::Rename { .. } => {
                ctx.events.normal(after, events::MULTIKUEUE, self.renamed_note(before))
            }
            WorkloadWrite::Record { .. } => announce(ctx, before, after, self.flavors()),
            WorkloadWrite::Retry { message, retried } => {
                ctx.events.normal(after, events::MULTIKUEUE, message.clone());
                if retried.as_ref().is_some_and(|retried| retried.reason == STUCK) {
                    self.announce_stuck(ctx, after, message);
                }
                if let Some(retried) = retried {
                    metrics.taken_back(&retried.cluster, retried.reason);
                    if let Some(reason) = &retried.evicted_for {
                        metrics.evicted(
                            state::admitted_by(before).unwrap_or_default(),
                            &retried.cluster,
                            evicted::known(reason),
                        );
                    }
                }
            }
            WorkloadWrite::Finish { .. } => {
                for job in owners(after) {
                    ctx.events.publish(
                        job,
                        EventType::Normal,
                        events::FINISHED_WORKLOAD,
                        finished_note(after),
                    );
                }
            }
            WorkloadWrite::Release => {}
        }
    }

    /// A policy, and no person, moves the job: tell its owner and the audit stream.
    fn announce_stuck(&self, ctx: &Context, workload: &Workload, message: &str) {
        for job in owners(workload) {
            ctx.events.publish(job, EventType::Warning, events::STUCK, message.to_owned());
        }
        let record = AuditRecord {
            operation: AuditOperation::MoveStuck,
            who: Actor::Policy("onStuck"),
            object: format!("Workload/{}/{}", self.key.namespace, self.key.name),
            why: message.to_owned(),
            result: AuditOutcome::Accepted,
        };
        record.write();
    }

    /// The flavors considered for the reservation.
    fn flavors(&self) -> &str {
        self.reservation.as_deref().map_or("", |reservation| &reservation.note)
    }

    fn label(&self) -> &'static str {
        match &*self.what {
            WorkloadWrite::Commit { .. } => "dispatch",
            WorkloadWrite::Rename { .. } => "dispatch_rename",
            WorkloadWrite::Record { .. } => "dispatch_record",
            WorkloadWrite::Retry { .. } => "dispatch_retry",
            WorkloadWrite::Release => "dispatch_release",
            WorkloadWrite::Finish { .. } => "dispatch_finish",
        }
    }
}

fn flavor_note(other: &OtherFlavor) -> String {
    let OtherFlavor { pod_set, resource, charged, used } = other;
    format!("{resource} of pod set {pod_set} in {used}, not {charged}")
}

/// The job of a workload, or the pods of its group.
pub(super) fn owners(workload: &Workload) -> impl Iterator<Item = ObjectReference> {
    let owners = payload::sent_owner(workload).map(|owned| owned.owners).unwrap_or_default();
    owners.into_iter().map(|owner| ObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: Some(owner.kind.clone()),
        namespace: workload.metadata.namespace.clone(),
        name: Some(owner.name.clone()),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    })
}

/// Whether the server rejected the write, so that it cannot take effect later.
fn refused(error: &WriteError) -> bool {
    match error {
        WriteError::Api(kube::Error::Api(status)) => {
            (400..500).contains(&status.code) && status.code != 429
        }
        WriteError::Serialize(_) => true,
        WriteError::Api(_) | WriteError::NotLeading | WriteError::Conflict | WriteError::Gone => {
            false
        }
    }
}

/// Kueue's reason for a terminal state, or the job's own if the cluster reported it.
pub(super) fn finish_reason(success: bool, code: Option<&str>) -> &'static str {
    match code {
        Some(finished::FAILED_TO_START) => finished::FAILED_TO_START,
        _ if success => finished::SUCCEEDED,
        _ => finished::FAILED,
    }
}
