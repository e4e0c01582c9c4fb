//! Writes of the hub's Workloads that the dispatcher asks for. Each ends with a definite answer: it is in the API, or
//! it is not and cannot come about any more.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use kube::Api;
use switchyard_api::conditions::reasons::{events, finished, quota_reserved};
use switchyard_api::conditions::truncated_message;
use switchyard_api::v1beta2::{Admission, AdmissionCheckState, CheckState, PastAttempt, Workload};
use switchyard_controller::engine::admission::{
    Dispatch, announce, dispatched_status, end_replaced, reservation_status,
};
use switchyard_controller::finished_note;
use switchyard_controller::{Context, Reservation};

use super::facts::{attempt, check_of, facts, known_as, replaced};
use super::payload;
use super::troubles::settle;
use crate::api_objects::is_dispatching;
use crate::dispatch::standing::{Intent, Standing, Verdict, judge};
use crate::dispatch::{Left, Name, Outcome, TIMED_OUT, Tries, Uid, Written};
use crate::metrics::HubMetrics;

/// What is to be written.
#[derive(Debug, Clone)]
pub(super) enum What {
    /// Quota, cluster, attempt: [`dispatched_status`].
    Commit {
        /// The cluster.
        cluster: Name,
        /// The attempt.
        attempt: u64,
        /// It runs there already, and clusters know it by this uid.
        adopts: Option<Uid>,
    },
    /// The name under which the attempt's cluster goes on.
    Rename {
        /// The name that the API has, unless it was taken away already.
        from: Option<Name>,
        /// The cluster's name now.
        cluster: Name,
        /// The attempt.
        attempt: u64,
    },
    /// The reservation, with what it waits for.
    Record {
        /// The check's message.
        message: Option<String>,
        /// `status.nominatedClusterNames`.
        nominated: Option<Vec<Name>>,
    },
    /// The check asks to be tried again; or the workload is deactivated, if its attempt was [`TIMED_OUT`].
    Retry {
        /// Why.
        message: String,
        /// The attempt that ends with it.
        left: Option<Left>,
    },
    /// The eviction is complete: its quota goes back.
    Release,
    /// The end.
    Finish {
        /// Where it ended.
        cluster: Name,
        /// The attempt that ended.
        attempt: u64,
        /// How.
        reason: String,
        /// In words.
        message: String,
    },
}

/// One write of one Workload.
#[derive(Debug, Clone)]
pub(super) struct Write {
    /// Where it lies.
    pub(super) key: Key,
    /// Which it is.
    pub(super) uid: Uid,
    /// The reservation, if it is in memory only.
    pub(super) reservation: Option<Arc<Reservation>>,
    /// What.
    pub(super) what: What,
}

/// Whether a look at the object leads to a write.
enum Plan {
    Write(Box<Edit>),
    /// The name of another cluster is to be taken away first: it cannot be changed.
    TakeAway(Box<Edit>),
    /// It says so already.
    There,
    /// It is not to be written any more.
    Void(&'static str),
}

impl Write {
    /// Performs it.
    pub(super) async fn perform(self, ctx: &Context, metrics: &HubMetrics) -> Written {
        let (outcome, workload) = self.try_until_definite(ctx, metrics).await;
        if let (What::Commit { adopts: Some(_), .. }, Outcome::Done, Some(new)) =
            (&self.what, outcome, &workload)
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
        let facts = workload.map(|workload| facts(ctx, &workload, held));
        Written { uid: self.uid, outcome, facts }
    }

    async fn try_until_definite(
        &self,
        ctx: &Context,
        metrics: &HubMetrics,
    ) -> (Outcome, Option<Arc<Workload>>) {
        let stored = ctx.stores.workloads.by_key(&self.key);
        let Some(mut current) =
            stored.filter(|workload| workload.metadata.uid.as_deref() == Some(&*self.uid))
        else {
            return (Outcome::Superseded, None);
        };
        let (mut tries, mut taken_away) = (Tries::default(), false);
        loop {
            let (edit, is_all) = match self.plan(ctx, &current) {
                Plan::Write(edit) => (edit, true),
                Plan::TakeAway(edit) if !taken_away => (edit, false),
                Plan::TakeAway(_) => {
                    tracing::warn!(workload = %self.key, what = self.label(), "status.clusterName comes back");
                    return (Outcome::Failed, Some(current));
                }
                Plan::There => return (Outcome::Done, Some(current)),
                Plan::Void(why) => {
                    tracing::debug!(workload = %self.key, why, what = self.label(), "write is void");
                    return (Outcome::Superseded, Some(current));
                }
            };
            let written = tokio::time::timeout(
                Tries::CALL,
                patch_status(ctx, &current, &edit.status, self.label()),
            )
            .await;
            let unknown = match written {
                Ok(Ok(Some(after))) => {
                    let after = Arc::new(after);
                    if !is_all {
                        (current, taken_away) = (after, true);
                        continue;
                    }
                    if self.is_void_commit(&after) {
                        tracing::warn!(workload = %self.key, "the API server drops status.clusterName; is its CRD an old one?");
                        return (Outcome::Failed, Some(after));
                    }
                    self.announce(ctx, metrics, &current, &after);
                    return (Outcome::Done, Some(after));
                }
                Ok(Ok(None)) => return (Outcome::Done, Some(current)),
                Ok(Err(WriteError::Gone)) => return (Outcome::Superseded, None),
                Ok(Err(WriteError::NotLeading)) => return (Outcome::Superseded, Some(current)),
                Ok(Err(WriteError::Conflict)) => {
                    if !tries.conflict() {
                        return (Outcome::Superseded, Some(current));
                    }
                    "somebody wrote first".to_owned()
                }
                Ok(Err(error)) if refused(&error) => {
                    tracing::warn!(workload = %self.key, %error, what = self.label(), "write refused");
                    return (Outcome::Failed, Some(current));
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {:?}", Tries::CALL),
            };
            // It may have happened all the same: only a fresh look tells.
            current = loop {
                if !ctx.leading() {
                    return (Outcome::Superseded, Some(current));
                }
                tokio::time::sleep(tries.pause()).await;
                match self.read(ctx).await {
                    Ok(Some(fresh)) => break fresh,
                    Ok(None) => return (Outcome::Superseded, None),
                    Err(error) => {
                        tries.unseen();
                        tracing::warn!(workload = %self.key, %error, write = unknown, "reading a workload failed");
                    }
                }
            };
        }
    }

    /// A commit whose cluster the API server has not kept.
    fn is_void_commit(&self, after: &Workload) -> bool {
        let cluster = after.status.as_ref().and_then(|status| status.cluster_name.as_deref());
        matches!(self.what, What::Commit { .. } | What::Rename { .. }) && cluster.is_none()
    }

    /// The object as the server has it; none if it is gone or another.
    async fn read(&self, ctx: &Context) -> anyhow::Result<Option<Arc<Workload>>> {
        let api: Api<Workload> = Api::namespaced(ctx.client.clone(), &self.key.namespace);
        let found = tokio::time::timeout(Tries::CALL, api.get_opt(&self.key.name)).await??;
        let found = found.filter(|workload| workload.metadata.uid.as_deref() == Some(&*self.uid));
        if let Some(workload) = &found {
            ctx.stores.workloads.observe(workload.clone());
        }
        Ok(found.map(Arc::new))
    }

    /// What is wanted, as far as it matters whether it still is.
    fn intent(&self) -> Intent<'_> {
        match &self.what {
            What::Commit { cluster, attempt, adopts } => {
                let copy = adopts.as_ref().is_some_and(|theirs| *theirs != self.uid);
                Intent::Commit { cluster, attempt: *attempt, adopts: adopts.is_some(), copy }
            }
            What::Rename { from, cluster, attempt } => {
                Intent::Rename { from: from.as_ref(), to: cluster, attempt: *attempt }
            }
            What::Record { .. } => Intent::Record,
            What::Retry { .. } => Intent::Retry,
            What::Release => Intent::Release,
            What::Finish { cluster, attempt, .. } => Intent::Finish { cluster, attempt: *attempt },
        }
    }

    fn plan(&self, ctx: &Context, current: &Workload) -> Plan {
        match judge(self.intent(), &standing(ctx, current, self.reservation.is_some())) {
            Verdict::Write => self.edit(ctx, current),
            Verdict::TakeAway => {
                let mut edit = ctx.edit(current);
                edit.status.cluster_name = None;
                Plan::TakeAway(Box::new(edit))
            }
            Verdict::There => Plan::There,
            Verdict::Void(why) => Plan::Void(why),
        }
    }

    fn edit(&self, ctx: &Context, current: &Workload) -> Plan {
        let now = ctx.clock.now();
        match &self.what {
            What::Commit { cluster, attempt, adopts } => {
                let theirs = adopts.as_ref().filter(|theirs| **theirs != self.uid);
                let adopts = theirs.map(|theirs| theirs.to_string());
                self.with_admission(ctx, current, |admission, checks, check| {
                    let dispatch = Dispatch {
                        check,
                        cluster: cluster.to_string(),
                        attempt: signed(*attempt),
                        adopts,
                    };
                    dispatched_status(
                        ctx.edit_of_quota(current),
                        admission,
                        &checks,
                        &dispatch,
                        now,
                    )
                })
            }
            What::Rename { cluster, attempt, .. } => {
                self.with_admission(ctx, current, |admission, checks, check| {
                    let (cluster, attempt) = (cluster.to_string(), signed(*attempt));
                    let dispatch =
                        Dispatch { check: check.clone(), cluster, attempt, adopts: None };
                    let mut edit = dispatched_status(
                        ctx.edit_of_quota(current),
                        admission,
                        &checks,
                        &dispatch,
                        now,
                    );
                    say(&mut edit, &check, &self.renamed_note(current));
                    edit
                })
            }
            What::Record { message, nominated } => {
                self.with_admission(ctx, current, |admission, mut checks, check| {
                    checks.push(check.clone());
                    let mut edit =
                        reservation_status(ctx.edit_of_quota(current), admission, &checks);
                    if let Some(message) = message {
                        say(&mut edit, &check, message);
                    }
                    if let Some(nominated) = nominated {
                        edit.status.nominated_cluster_names =
                            nominated.iter().map(ToString::to_string).collect();
                    }
                    edit
                })
            }
            What::Retry { message, left } => {
                let mut edit = ctx.edit(current);
                if left.as_ref().is_some_and(|left| left.reason == TIMED_OUT) {
                    edit.execution_time_exceeded();
                } else {
                    retry(ctx, &mut edit, message, now);
                }
                if let Some(left) = left {
                    remember(&mut edit, left, now);
                }
                settle(&mut edit);
                Plan::Write(Box::new(edit))
            }
            What::Release => {
                let mut edit = ctx.edit(current);
                let deleting = current.metadata.deletion_timestamp.is_some();
                let released = edit.release_quota()
                    || deleting
                        && edit.unreserve(
                            quota_reserved::PENDING_EVALUATION,
                            "The workload is deleted",
                        );
                settle(&mut edit);
                if released { Plan::Write(Box::new(edit)) } else { Plan::There }
            }
            What::Finish { reason, message, .. } => {
                let mut edit = ctx.edit(current);
                edit.finish(reason, truncated_message(message.clone()));
                settle(&mut edit);
                Plan::Write(Box::new(edit))
            }
        }
    }

    /// That the workload goes on under the cluster's other name. Before the name was taken away the status had it twice.
    fn renamed_note(&self, current: &Workload) -> String {
        let What::Rename { from, cluster, .. } = &self.what else { return String::new() };
        let dispatch = current.status.as_ref().and_then(|status| status.dispatch.as_ref());
        let known = from
            .as_deref()
            .or_else(|| dispatch.and_then(|dispatch| dispatch.cluster_name.as_deref()));
        let from = known.unwrap_or_default();
        format!(
            "The workload goes on on \"{cluster}\", which leads to the same cluster as \"{from}\" did: MultiKueueCluster \
             \"{from}\" is deleted"
        )
    }

    /// Builds with the admission in memory, or the one that is in the API.
    fn with_admission(
        &self,
        ctx: &Context,
        current: &Workload,
        build: impl FnOnce(Admission, Vec<String>, String) -> Edit,
    ) -> Plan {
        let status = current.status.clone().unwrap_or_default();
        let listed = |names: &[AdmissionCheckState]| {
            names.iter().map(|check| check.name.clone()).collect::<Vec<_>>()
        };
        let mut checks = listed(&status.admission_checks);
        let (admission, check) = match (&self.reservation, status.admission) {
            (_, Some(admission)) if state::has_reservation(current) => {
                let Some(check) =
                    checks.iter().find(|check| is_dispatching(&ctx.stores, check)).cloned()
                else {
                    return Plan::Void("it has no MultiKueue check");
                };
                (admission, check)
            }
            (Some(reservation), _) => {
                if reservation.workload.metadata.generation != current.metadata.generation {
                    return Plan::Void("its spec has changed");
                }
                (reservation.admission.clone(), reservation.check.clone())
            }
            (None, _) => return Plan::Void("its reservation is gone"),
        };
        checks.retain(|name| *name != check);
        Plan::Write(Box::new(build(admission, checks, check)))
    }

    /// Tells people.
    fn announce(&self, ctx: &Context, metrics: &HubMetrics, before: &Workload, after: &Workload) {
        match &self.what {
            What::Commit { cluster, .. } => {
                announce(ctx, before, after, self.flavors());
                let note = format!("The workload was admitted on \"{cluster}\"");
                ctx.events.normal(after, events::MULTIKUEUE, note);
                metrics.admitted(state::admitted_by(after).unwrap_or_default(), cluster);
            }
            What::Rename { .. } => {
                ctx.events.normal(after, events::MULTIKUEUE, self.renamed_note(before))
            }
            What::Record { .. } => announce(ctx, before, after, self.flavors()),
            What::Retry { message, left, .. } => {
                ctx.events.normal(after, events::MULTIKUEUE, message.clone());
                if let Some(left) = left {
                    metrics.taken_back(&left.cluster, left.reason);
                    if let Some(reason) = left.evicted_for {
                        metrics.evicted(
                            state::admitted_by(before).unwrap_or_default(),
                            &left.cluster,
                            reason,
                        );
                    }
                }
            }
            What::Finish { .. } => {
                for job in owners(after) {
                    ctx.events.publish(
                        job,
                        EventType::Normal,
                        events::FINISHED_WORKLOAD,
                        finished_note(after),
                    );
                }
            }
            What::Release => {}
        }
    }

    /// The flavors that were considered for the reservation.
    fn flavors(&self) -> &str {
        self.reservation.as_deref().map_or("", |reservation| &reservation.note)
    }

    fn label(&self) -> &'static str {
        match self.what {
            What::Commit { .. } => "dispatch",
            What::Rename { .. } => "dispatch_rename",
            What::Record { .. } => "dispatch_record",
            What::Retry { .. } => "dispatch_retry",
            What::Release => "dispatch_release",
            What::Finish { .. } => "dispatch_finish",
        }
    }
}

/// The job of a workload, or the pods of its group.
pub(super) fn owners(workload: &Workload) -> impl Iterator<Item = ObjectReference> {
    let owners = payload::owner(workload).map(|owned| owned.owners).unwrap_or_default();
    owners.into_iter().map(|owner| ObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: Some(owner.kind.clone()),
        namespace: workload.metadata.namespace.clone(),
        name: Some(owner.name.clone()),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    })
}

/// What the API says of a Workload, as far as it matters for a write.
fn standing<'a>(ctx: &Context, workload: &'a Workload, in_memory: bool) -> Standing<'a> {
    let status = workload.status.as_ref();
    let checks = status.map(|status| status.admission_checks.as_slice()).unwrap_or_default();
    Standing {
        finished: state::is_finished(workload),
        deleting: workload.metadata.deletion_timestamp.is_some(),
        active: state::stays_active(workload),
        reserved: state::has_reservation(workload),
        evicted: state::is_evicted(workload),
        cluster: status.and_then(|status| status.cluster_name.as_deref()),
        attempt: attempt(workload),
        adopted: known_as(workload).is_some(),
        check: checks
            .iter()
            .find(|check| is_dispatching(&ctx.stores, &check.name))
            .map(|check| check_of(check.state)),
        in_memory,
    }
}

/// Past attempts that a Workload shows: its schema's limit.
const HISTORY: usize = 8;

/// Our check asks for another try.
fn retry(ctx: &Context, edit: &mut Edit, message: &str, now: Timestamp) {
    let checks = &mut edit.status.admission_checks;
    if let Some(check) = checks.iter_mut().find(|it| is_dispatching(&ctx.stores, &it.name)) {
        check.state = CheckState::Retry;
        check.message = truncated_message(message.to_owned());
        check.last_transition_time = ApiTime(whole_seconds(now));
        check.requeue_after_seconds = None;
    }
}

fn remember(edit: &mut Edit, left: &Left, now: Timestamp) {
    let history = &mut edit.status.dispatch.get_or_insert_default().history;
    history.push(PastAttempt {
        attempt: signed(left.attempt),
        cluster_name: left.cluster.to_string(),
        reason: left.reason.to_owned(),
        at: ApiTime(whole_seconds(now)),
    });
    let surplus = history.len().saturating_sub(HISTORY);
    history.drain(..surplus);
}

fn say(edit: &mut Edit, check: &str, message: &str) {
    for known in edit.status.admission_checks.iter_mut().filter(|known| known.name == check) {
        known.message = truncated_message(message.to_owned());
    }
}

/// Whether the server said no, so that the write has not happened and will not by itself.
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

fn signed(attempt: u64) -> i64 {
    i64::try_from(attempt).unwrap_or(i64::MAX)
}

/// Kueue's reason and message of a terminal state: the job's own, where the cluster told it.
pub(super) fn finish_reason(success: bool, code: Option<&str>) -> &'static str {
    match code {
        Some(finished::FAILED_TO_START) => finished::FAILED_TO_START,
        _ if success => finished::SUCCEEDED,
        _ => finished::FAILED,
    }
}
