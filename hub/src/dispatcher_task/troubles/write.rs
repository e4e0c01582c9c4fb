//! The write of the condition.

use kube::Api;
use kube::api::ObjectMeta;
use switchyard_api::conditions::reasons::{events, worker_trouble as reasons};
use switchyard_api::conditions::{TRUE, WORKER_TROUBLE, is_true};
use switchyard_api::v1beta2::Workload;
use switchyard_controller::Context;
use switchyard_controller::events::EventType;
use switchyard_controller::store::Key;
use switchyard_controller::workload::{self as state, Edit, WriteError, patch_status};
use switchyard_dispatcher::{Name, Uid};

use super::{Word, Wrote};
use crate::dispatcher_task::facts::attempt;
use crate::dispatcher_task::writes::owners;

/// Tries after a conflict with another writer.
const CONFLICTS: u32 = 5;

/// One write of one workload's condition.
#[derive(Debug)]
pub(in crate::dispatcher_task) struct TroubleWrite {
    pub(in crate::dispatcher_task) key: Key,
    pub(in crate::dispatcher_task) uid: Uid,
    /// Where it was sent, and with which attempt.
    pub(in crate::dispatcher_task) sent: (Name, u64),
    pub(in crate::dispatcher_task) word: Option<Word>,
}

/// The reason and message of the condition, if it holds.
pub(in crate::dispatcher_task) fn recorded(workload: &Workload) -> Option<(&str, &str)> {
    let condition = state::condition(workload, WORKER_TROUBLE).filter(|it| it.status == TRUE)?;
    Some((&condition.reason, &condition.message))
}

/// An attempt is over, and so is its trouble.
pub(in crate::dispatcher_task) fn settle(edit: &mut Edit) {
    if is_true(&edit.status.conditions, WORKER_TROUBLE) {
        edit.set(WORKER_TROUBLE, false, reasons::RESOLVED, "the attempt is over");
    }
}

impl TroubleWrite {
    pub(in crate::dispatcher_task) async fn perform(&self, ctx: &Context) -> Wrote {
        for _ in 0..CONFLICTS {
            let Some(workload) =
                ctx.stores.workloads.by_key(&self.key).filter(|it| self.concerns(it))
            else {
                return Wrote::Nothing;
            };
            let mut edit = ctx.edit(&workload);
            match &self.word {
                Some(word) => edit.set(WORKER_TROUBLE, true, word.reason, word.message.clone()),
                None if recorded(&workload).is_none() => return Wrote::Nothing,
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
                    return Wrote::Written;
                }
                Ok(None) | Err(WriteError::Gone | WriteError::NotLeading) => return Wrote::Nothing,
                Err(WriteError::Conflict) if self.refresh(ctx).await => {}
                Err(error) => {
                    tracing::warn!(workload = %self.key, %error, "the trouble of a workload was not written");
                    return Wrote::Failed;
                }
            }
        }
        Wrote::Failed
    }

    /// Whether it is still what it was sent as.
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

    /// Reads the object again. Whether the read succeeded.
    async fn refresh(&self, ctx: &Context) -> bool {
        let api: Api<Workload> = Api::namespaced(ctx.client.clone(), &self.key.namespace);
        match tokio::time::timeout(
            switchyard_dispatcher::WriteRetries::CALL_TIMEOUT,
            api.get_opt(&self.key.name),
        )
        .await
        {
            Ok(Ok(Some(fresh))) => {
                ctx.stores.workloads.observe(fresh);
                true
            }
            Ok(Ok(None) | Err(_)) | Err(_) => false,
        }
    }

    /// An event on the job; equal ones are a series.
    fn announce(&self, ctx: &Context, workload: &Workload) {
        let (kind, reason, note) = match &self.word {
            Some(word) => (
                EventType::Warning,
                events::WORKER_TROUBLE,
                format!("{}: {}", word.reason, without_facts(&word.message)),
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

/// Without counts and times in brackets, which would begin a series each time.
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
    fn series_of_events_is_the_same_whatever_the_count() {
        for (message, series) in [
            ("on \"w\": A (count 3, since x): m; B (since y): n (o)", "on \"w\": A: m; B: n (o)"),
            ("nothing was heard", "nothing was heard"),
        ] {
            assert_eq!(without_facts(message), series);
        }
    }
}
