//! Writes the condition `WorkerTrouble`.

use kube::Api;
use kube::api::ObjectMeta;
use switchyard_api::conditions::reasons::{events, worker_trouble as reasons};
use switchyard_api::conditions::{TRUE, WORKER_TROUBLE, is_true};
use switchyard_api::v1beta2::Workload;
use switchyard_controller::Context;
use switchyard_controller::{context::patch_status, workload as state, workload::Edit};
use switchyard_dispatcher::{Name, Uid, WriteRetries};
use switchyard_platform::events::EventType;
use switchyard_platform::store::Key;
use switchyard_platform::write::WriteError;

use super::{TroubleDescription, TroubleOutcome};
use crate::dispatcher_task::workload_view::attempt;
use crate::dispatcher_task::workload_writes::owners;

/// Attempts after conflicts with other writers.
const CONFLICTS: u32 = 5;

/// One write of one workload's condition.
#[derive(Debug)]
pub(in crate::dispatcher_task) struct TroubleWrite {
    pub(in crate::dispatcher_task) key: Key,
    pub(in crate::dispatcher_task) uid: Uid,
    /// The cluster and the attempt that the trouble belongs to.
    pub(in crate::dispatcher_task) sent: (Name, u64),
    pub(in crate::dispatcher_task) description: Option<TroubleDescription>,
}

/// Reason and message of the condition, if it is True.
pub(in crate::dispatcher_task) fn recorded_trouble(workload: &Workload) -> Option<(&str, &str)> {
    let condition = state::condition(workload, WORKER_TROUBLE).filter(|it| it.status == TRUE)?;
    Some((&condition.reason, &condition.message))
}

/// Resolves the condition at the end of an attempt.
pub(in crate::dispatcher_task) fn resolve_trouble(edit: &mut Edit) {
    if is_true(&edit.status.conditions, WORKER_TROUBLE) {
        edit.set(WORKER_TROUBLE, false, reasons::RESOLVED, "the attempt is over");
    }
}

impl TroubleWrite {
    pub(in crate::dispatcher_task) async fn perform(&self, ctx: &Context) -> TroubleOutcome {
        for _ in 0..CONFLICTS {
            let Some(workload) =
                ctx.stores.workloads.by_key(&self.key).filter(|it| self.concerns(it))
            else {
                return TroubleOutcome::Nothing;
            };
            let mut edit = ctx.edit(&workload);
            match &self.description {
                Some(description) => {
                    edit.set(WORKER_TROUBLE, true, description.reason, description.message.clone())
                }
                None if recorded_trouble(&workload).is_none() => return TroubleOutcome::Nothing,
                None => edit.set(
                    WORKER_TROUBLE,
                    false,
                    reasons::RESOLVED,
                    "nothing is wrong there any more",
                ),
            };
            match patch_status(ctx, &workload, &edit.status, "worker_trouble").await {
                Ok(Some(after)) => {
                    self.announce(ctx, &after);
                    return TroubleOutcome::Written;
                }
                Ok(None) | Err(WriteError::Gone | WriteError::NotLeading) => {
                    return TroubleOutcome::Nothing;
                }
                Err(WriteError::Conflict) if self.refresh(ctx).await => {}
                Err(error) => {
                    tracing::warn!(workload = %self.key, %error, "the trouble of a workload was not written");
                    return TroubleOutcome::Failed;
                }
            }
        }
        TroubleOutcome::Failed
    }

    /// Whether the workload still runs that attempt on that cluster.
    fn concerns(&self, workload: &Workload) -> bool {
        let cluster = workload.status.as_ref().and_then(|status| status.cluster_name.as_deref());
        let ObjectMeta { uid, deletion_timestamp, .. } = &workload.metadata;
        uid.as_deref() == Some(&*self.uid)
            && deletion_timestamp.is_none()
            && !state::is_finished(workload)
            && !state::is_evicted(workload)
            && cluster == Some(&*self.sent.0)
            && attempt(workload) == self.sent.1
    }

    /// Reads the object again. Returns whether that succeeded.
    async fn refresh(&self, ctx: &Context) -> bool {
        let api: Api<Workload> = Api::namespaced(ctx.client.clone(), &self.key.namespace);
        match tokio::time::timeout(WriteRetries::CALL_TIMEOUT, api.get_opt(&self.key.name)).await {
            Ok(Ok(Some(fresh))) => {
                ctx.stores.workloads.observe(fresh);
                true
            }
            Ok(Ok(None) | Err(_)) | Err(_) => false,
        }
    }

    /// Publishes an event on the job. Equal events form a series.
    fn announce(&self, ctx: &Context, workload: &Workload) {
        let (kind, reason, note) = match &self.description {
            Some(description) => (
                EventType::Warning,
                events::WORKER_TROUBLE,
                format!("{}: {}", description.reason, without_facts(&description.message)),
            ),
            None => {
                let note = format!("nothing is wrong any more on \"{}\"", self.sent.0);
                (EventType::Normal, events::WORKER_TROUBLE_RESOLVED, note)
            }
        };
        for job in owners(workload) {
            ctx.events.publish(job, kind, reason, note.clone());
        }
    }
}

/// Removes counts and times in parentheses: each would start a new series.
fn without_facts(message: &str) -> String {
    let mut rest = message;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once(" (").filter(|(_, after)| is_fact(after)) {
        out.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    out
}

fn is_fact(text: &str) -> bool {
    text.starts_with("count ") || text.starts_with("since ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_note_omits_counts_and_times() {
        for (message, series) in [
            ("on \"w\": A (count 3, since x): m; B (since y): n (o)", "on \"w\": A: m; B: n (o)"),
            ("nothing was heard", "nothing was heard"),
        ] {
            assert_eq!(without_facts(message), series);
        }
    }
}
