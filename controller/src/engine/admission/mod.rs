//! Writes the engine's decisions: one status patch per admission, and one when a workload's reason
//! for waiting changes.
//!
//! # Guarantees
//!
//! - A workload has at most one write in flight, and a newer decision replaces an older one that
//!   waits.
//! - A reservation is either shown by the API or given back to the engine.
//! - A reservation is written only over the spec that the engine decided upon.

mod announce;
mod build;
mod reasons;
mod reassignment;
mod replaced;
mod reserve;
mod write;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

pub(crate) use announce::admitted_note;
pub use announce::announce;
pub use build::{
    Dispatch, admission, dispatched_status, pending_status, preempted_status, preemption_message,
    preemption_priorities, reservation_status,
};
use jiff::Timestamp;
use parking_lot::Mutex;
pub use replaced::end_replaced;
use switchyard_api::{conditions::reasons::events, names, v1beta2};
use switchyard_scheduler::{
    Admission, Decision, Name, PodSetRequests, Reason, RefusedReason, WorkloadKey,
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    convert::time::wall_time,
    inbox::Inbox,
    placement::{Placement, Reservation},
};
use crate::{
    context::Context,
    workload::{is_admissible_but_for_gates, queue_name},
};
use switchyard_platform::{
    store::Key,
    work_queue::{self, Outcome, Queue},
};

/// Concurrent writes. The API server's priority and fairness does the rest.
const WRITERS: usize = 64;

/// A decision that is not written yet.
#[derive(Debug, Clone)]
enum PendingWrite {
    Reserve(Box<Reserve>),
    Pending { uid: Name, reason: Reason, requests: Vec<PodSetRequests> },
    Preempt(Box<Preempt>),
    Migrate { uid: Name, to_uid: Name },
    Reassign { uid: Name, admission: v1beta2::Admission },
    Evict { uid: Name, nodes: Vec<Name> },
}

#[derive(Debug, Clone)]
struct Preempt {
    uid: Name,
    reason: &'static str,
    message: String,
    preemptor: Preemptor,
}

/// The workload that preempts. Fields are empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preemptor {
    pub key: Key,
    pub uid: String,
    pub job_uid: String,
    pub cluster_queue: String,
}

#[derive(Debug, Clone)]
struct Reserve {
    uid: Name,
    /// The engine's cycle that decided it.
    cycle: u64,
    /// Generation of the spec that the engine decided upon.
    generation: Option<i64>,
    admission: v1beta2::Admission,
    checks: Vec<String>,
    note: String,
    /// The workload slice that it replaces, with its uid.
    replaces: Option<(Key, Name)>,
}

/// A decision with its number, which tells a newer one from the one that is being written.
#[derive(Debug, Clone)]
struct Numbered {
    number: u64,
    job: PendingWrite,
    /// The cycle of the reservation that is not written yet: its own, or the one that it ends.
    unwritten_cycle: Option<u64>,
}

/// The unwritten decisions, at most one for each workload.
#[derive(Debug, Default)]
struct PendingWrites {
    by_key: BTreeMap<Key, Numbered>,
    reserves: usize,
}

impl PendingWrites {
    fn insert(&mut self, key: Key, number: u64, job: PendingWrite) {
        let unwritten_cycle = match &job {
            PendingWrite::Reserve(reserve) => {
                self.reserves += 1;
                Some(reserve.cycle)
            }
            PendingWrite::Preempt(_) | PendingWrite::Migrate { .. } => {
                self.by_key.get(&key).and_then(|earlier| earlier.unwritten_cycle)
            }
            PendingWrite::Pending { .. }
            | PendingWrite::Reassign { .. }
            | PendingWrite::Evict { .. } => None,
        };
        let old = self.by_key.insert(key, Numbered { number, job, unwritten_cycle });
        self.uncount(old.as_ref());
    }

    fn remove(&mut self, key: &Key, number: u64) {
        // A newer decision has queued the key again, so it stays.
        if self.by_key.get(key).is_some_and(|newest| newest.number == number) {
            let old = self.by_key.remove(key);
            self.uncount(old.as_ref());
        }
    }

    /// Forgets the decisions that a reservation replaces which is not written here.
    fn forget(&mut self, key: &Key) {
        let old = self.by_key.remove(key);
        self.uncount(old.as_ref());
    }

    fn uncount(&mut self, old: Option<&Numbered>) {
        let is_reserve = |old: &Numbered| matches!(old.job, PendingWrite::Reserve(_));
        self.reserves -= usize::from(old.is_some_and(is_reserve));
    }
}

/// Takes decisions from the engine's task and writes them.
pub(crate) struct Admitter {
    ctx: Arc<Context>,
    inbox: Arc<Inbox>,
    placement: Option<Arc<dyn Placement>>,
    queue: Queue<Key>,
    // Workloads that only have a new reason for waiting, before they enter `queue`.
    reasons: Queue<Key>,
    pending_writes: Mutex<PendingWrites>,
    // When the last reason for waiting was written, and the engine's name of it. A change of the
    // message alone is written less often. The condition's reason cannot tell the two apart:
    // without Kueue's gate it has only two values.
    last_reasons: Mutex<BTreeMap<Key, (Instant, &'static str)>>,
    // Duration of the last such write in milliseconds.
    reason_took: AtomicU64,
    count: AtomicU64,
    drained: Notify,
}

impl Admitter {
    pub(crate) fn new(
        ctx: Arc<Context>,
        inbox: Arc<Inbox>,
        placement: Option<Arc<dyn Placement>>,
    ) -> Arc<Self> {
        let admitter = Arc::new(Self {
            ctx,
            inbox,
            placement,
            queue: Queue::default(),
            reasons: Queue::default(),
            pending_writes: Mutex::default(),
            last_reasons: Mutex::default(),
            reason_took: AtomicU64::new(0),
            count: AtomicU64::new(0),
            drained: Notify::new(),
        });
        let forget = Arc::downgrade(&admitter);
        admitter.ctx.stores.workloads.subscribe(move |change| {
            // Only workloads without gates get a written reason, and gates are never added later.
            let waits =
                change.new.as_ref().is_some_and(|workload| is_admissible_but_for_gates(workload));
            if let (false, Some(admitter)) = (waits, forget.upgrade()) {
                admitter.last_reasons.lock().remove(&change.key);
            }
        });
        admitter
    }

    /// Takes the decisions of a cycle. The engine's task calls it, so it does not block.
    pub(crate) fn submit(&self, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                Decision::Reserve {
                    key,
                    uid,
                    cycle,
                    admission,
                    checks,
                    waited_since,
                    note,
                    replaces,
                } => {
                    let admission = self.written(&admission);
                    let checks = checks.iter().map(ToString::to_string).collect();
                    let replaces = replaces.map(|(key, uid)| (object_key(&key), uid));
                    let reserve =
                        Reserve { uid, cycle, generation: None, admission, checks, note, replaces };
                    self.reserve(&key, reserve, wall_time(waited_since));
                }
                Decision::Pending { key, uid, reason, requests } => {
                    self.add(object_key(&key), PendingWrite::Pending { uid, reason, requests });
                }
                Decision::Reassign { key, uid, admission } => {
                    let admission = self.written(&admission);
                    self.add(object_key(&key), PendingWrite::Reassign { uid, admission });
                }
                Decision::SecondPassFailed { key, uid, reason } => {
                    self.publish_second_pass_failure(&object_key(&key), &uid, &reason)
                }
                Decision::Evict { key, uid, nodes } => {
                    self.add(object_key(&key), PendingWrite::Evict { uid, nodes })
                }
                Decision::Migrate { key, uid, to_uid } => {
                    self.add(object_key(&key), PendingWrite::Migrate { uid, to_uid })
                }
                Decision::Preempt {
                    key,
                    uid,
                    reason,
                    preemptor,
                    preemptor_uid,
                    preemptor_path,
                    preemptee_path,
                } => {
                    let preemptor = self.preemptor(&preemptor, &preemptor_uid);
                    let message = build::preemption_message(
                        reason,
                        &preemptor,
                        [&preemptor_path, &preemptee_path],
                    );
                    let preempt = Preempt { uid, reason, message, preemptor };
                    self.add(object_key(&key), PendingWrite::Preempt(Box::new(preempt)));
                }
            }
        }
    }

    fn written(&self, admission: &Admission) -> v1beta2::Admission {
        build::admission(
            admission,
            self.ctx.config.enabled("TASAssignmentsEncodingByHostnamePrefix"),
        )
    }

    fn publish_second_pass_failure(&self, key: &Key, uid: &str, reason: &Reason) {
        let workload = self.ctx.stores.workloads.by_key(key);
        if let Some(workload) =
            workload.filter(|workload| workload.metadata.uid.as_deref() == Some(uid))
        {
            self.ctx.events.warning(&*workload, events::SECOND_PASS_FAILED, reason.message());
        }
    }

    fn reserve(&self, key: &WorkloadKey, mut reserve: Reserve, waited_since: Timestamp) {
        let object = object_key(key);
        let workload = self.ctx.stores.workloads.by_key(&object);
        let workload =
            workload.filter(|workload| workload.metadata.uid.as_deref() == Some(&*reserve.uid));
        let Some(workload) = workload else {
            return self.refuse(key.clone(), reserve.cycle, "the workload is gone");
        };
        // A change that the engine has not read may be one of the spec.
        if self.inbox.holds_workload(&object) {
            return self.refuse(
                key.clone(),
                reserve.cycle,
                "the workload changed while it was looked at",
            );
        }
        reserve.generation = workload.metadata.generation;
        if let Some(placement) = &self.placement
            && let Some(check) = self.dispatch_check(&reserve.checks)
        {
            let reservation = Reservation {
                workload,
                cycle: reserve.cycle,
                admission: reserve.admission.clone(),
                other_checks: reserve.checks.len() > 1,
                check,
                waited_since,
                note: reserve.note.clone(),
            };
            if placement.reserved(reservation) {
                self.pending_writes.lock().forget(&object);
                return;
            }
        }
        self.add(object, PendingWrite::Reserve(Box::new(reserve)));
    }

    /// The MultiKueue check among `checks`, on a hub.
    fn dispatch_check(&self, checks: &[String]) -> Option<String> {
        checks.iter().find(|check| self.ctx.is_dispatching(check)).cloned()
    }

    fn preemptor(&self, key: &WorkloadKey, uid: &str) -> Preemptor {
        let stores = &self.ctx.stores;
        let workload = stores.workloads.by_key(&object_key(key));
        let label = workload
            .as_ref()
            .and_then(|workload| workload.metadata.labels.as_ref()?.get(names::JOB_UID).cloned());
        let queue = workload
            .as_ref()
            .and_then(|workload| stores.local_queues.get(&key.namespace, queue_name(workload)));
        Preemptor {
            key: object_key(key),
            uid: uid.to_owned(),
            job_uid: label.unwrap_or_default(),
            cluster_queue: queue
                .and_then(|queue| queue.spec.cluster_queue.clone())
                .unwrap_or_default(),
        }
    }

    fn add(&self, key: Key, job: PendingWrite) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let patient = matches!(job, PendingWrite::Pending { .. });
        self.pending_writes.lock().insert(key.clone(), number, job);
        if patient {
            self.reasons.add_after(key, reasons::AFTER);
        } else {
            self.queue.add(key);
        }
    }

    fn refuse(&self, key: WorkloadKey, cycle: u64, message: &str) {
        self.inbox.refuse(key, cycle, RefusedReason::WriteFailed { message: message.into() });
    }

    /// Number of unwritten reservations.
    pub(crate) fn backlog(&self) -> usize {
        self.pending_writes.lock().reserves
    }

    /// Returns when the backlog has shrunk.
    pub(crate) async fn drained(&self) {
        self.drained.notified().await;
    }

    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let this = &self;
        let write =
            work_queue::run(self.queue.clone(), WRITERS, shutdown.clone(), |key| async move {
                this.write(key).await
            });
        let pass = work_queue::run(self.reasons.clone(), 1, shutdown, |key| async move {
            this.pass(key).await
        });
        tokio::join!(write, pass);
    }

    /// Moves one workload from `reasons` to `queue`, and pauses before the next. A workload whose
    /// message may not change yet causes no pause.
    async fn pass(&self, key: Key) -> Outcome {
        let waits = matches!(
            self.pending_writes.lock().by_key.get(&key).map(|it| &it.job),
            Some(PendingWrite::Pending { .. })
        );
        if waits {
            let takes_turn = self.too_soon(&key).is_none();
            self.queue.add(key);
            if takes_turn {
                let took = Duration::from_millis(self.reason_took.load(Ordering::Relaxed));
                tokio::time::sleep(reasons::gap(self.backlog(), took)).await;
            }
        }
        Outcome::Done
    }
}

fn object_key(key: &WorkloadKey) -> Key {
    Key { namespace: key.namespace.clone(), name: key.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve() -> PendingWrite {
        let reserve = Reserve {
            uid: "u".into(),
            cycle: 7,
            generation: None,
            admission: v1beta2::Admission::default(),
            checks: Vec::new(),
            note: String::new(),
            replaces: None,
        };
        PendingWrite::Reserve(Box::new(reserve))
    }

    fn preempt() -> PendingWrite {
        let (message, preemptor) = (String::new(), Preemptor::default());
        let preempt = Preempt { uid: "u".into(), reason: "InClusterQueue", message, preemptor };
        PendingWrite::Preempt(Box::new(preempt))
    }

    fn migrate() -> PendingWrite {
        PendingWrite::Migrate { uid: "u".into(), to_uid: "v".into() }
    }

    #[rstest::rstest]
    #[case::written_reservation(vec![preempt()], None)]
    #[case::unwritten_reservation(vec![reserve(), preempt()], Some(7))]
    #[case::migrates(vec![reserve(), migrate()], Some(7))]
    #[case::preempted_twice_before_any_write(vec![reserve(), preempt(), preempt()], Some(7))]
    #[case::preempted_and_migrates(vec![reserve(), preempt(), migrate()], Some(7))]
    fn eviction_knows_the_unwritten_reservation_that_it_replaced(
        #[case] decided: Vec<PendingWrite>,
        #[case] expected: Option<u64>,
    ) {
        let (mut writes, key) = (PendingWrites::default(), Key::new("ns", "a"));
        for (number, job) in (0..).zip(decided) {
            writes.insert(key.clone(), number, job);
        }
        assert_eq!(writes.reserves, 0);
        let last = writes.by_key.get(&key).expect("the last decision stays");
        assert_eq!(last.unwritten_cycle, expected);
    }
}
