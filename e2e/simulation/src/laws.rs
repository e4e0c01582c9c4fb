//! The laws: properties that hold after every step, and once all faults have ended.

use switchyard_dispatcher::{
    CLUSTER_LOST, LossPolicy, OrphanView, RetriedAttempt, STUCK, Uid, WorkloadFacts,
};
use switchyard_ledger::{Object, ObjectKind};

use crate::loss::CATCH_UP;
use crate::names::{name, number};
use crate::plan::FaultKind;
use crate::state::{Object as HubObject, World, short};
use crate::time::Ms;
use crate::violation::Law;

/// The longest time from submission to end without faults, beside the job's run time. Longer than
/// the wait for a silent cluster, and shorter than its detection.
const USUAL: Ms = 8_000;

/// The longest time for which an offer waits because its cluster keeps taking other workloads.
const LONGEST_TURN: Ms = 30_000;

/// Within this time after the last fault, clusters know the users' changes.
const CHANGES_KNOWN_WITHIN: Ms = 60_000;

/// Within this time, the hub knows that pods are ready, or that it does not hear from their cluster.
const READY_KNOWN_WITHIN: Ms = 60_000;

/// Within this time of a stuck decision, the API server performs its write, or never does. The
/// decision is valid for 15 s, a call takes 30 s, and a late request 30 s more.
const STUCK_WRITTEN_WITHIN: Ms = 80_000;

impl World {
    /// Called after each step that started, stopped or charged something.
    pub(crate) fn check_laws(&mut self) {
        for cluster in 0..self.clusters.len() {
            self.update_excuses(cluster);
        }
        for index in 0..self.plan.workloads.len() {
            let uid = self.uid(index);
            let all: Vec<(usize, u64)> = (0..self.clusters.len())
                .flat_map(|cluster| {
                    self.clusters[cluster].running(index).map(move |attempt| (cluster, attempt))
                })
                .collect();
            let excused =
                |(cluster, attempt): &(usize, u64)| self.excuse(*cluster, index, *attempt);
            let running: Vec<(usize, u64)> =
                all.iter().filter(|it| excused(it).is_none()).copied().collect();
            if running.len() > 1 {
                self.report_violation(
                    Law::OneRuns,
                    format!("{uid} runs on clusters, as attempts {running:?}"),
                );
            } else if all.len() > 1 {
                let needed: Vec<_> =
                    all.iter().filter_map(|it| Some((excused(it)?, *it))).collect();
                for (excuse, (cluster, attempt)) in needed {
                    self.count_excuse(excuse, cluster, index, attempt);
                }
            }
            // A forgotten workload is charged once its job is applied again and has quota.
            let (forgotten, known): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|(cluster, _)| self.is_forgotten(*cluster, index));
            for (cluster, attempt) in forgotten {
                self.count_excuse(
                    "excuse: quota of what the hub has forgotten",
                    cluster,
                    index,
                    attempt,
                );
            }
            if !known.is_empty() {
                self.check_quota(index, &uid, &known);
            }
        }
    }

    /// The requests of running pods must not exceed the Workload's charge.
    fn check_quota(&mut self, index: usize, uid: &Uid, running: &[(usize, u64)]) {
        let Some(object) = self.api.objects.get(uid) else { return };
        // A deleted workload releases its quota at once; the law makes no claim about the moment
        // until it has stopped.
        if object.owner_gone || object.deleted {
            for (cluster, attempt) in running {
                self.count_excuse(
                    "excuse: quota of what its owner has deleted",
                    *cluster,
                    index,
                    *attempt,
                );
            }
            return;
        }
        // A deposed leader reserves nothing, whatever its memory says.
        let in_memory = self.leading_terms().any(|term| term.memory.contains_key(uid));
        let in_api = object.facts.state.reserved && !object.facts.state.finished;
        let charged = if in_api || in_memory { amount(&object.facts) } else { 0 };
        let used = self.plan.workloads[index].need * running.len() as u64;
        if used <= charged {
            return;
        }
        if self.was_committed_as_its_job_ended(object) {
            for (cluster, attempt) in running {
                let excuse = "excuse: quota of a copy that was committed as its job ended";
                self.count_excuse(excuse, *cluster, index, *attempt);
            }
            return;
        }
        self.report_violation(
            Law::Quota,
            format!("{uid} runs on {running:?} with {used}, and {charged} is charged"),
        );
    }

    /// Whether the job of a Workload that just finished shows the end of another attempt, and the
    /// hub could not know that when it decided to commit the present one.
    fn was_committed_as_its_job_ended(&self, object: &HubObject) -> bool {
        let (Some(ended), Some(finished)) = (object.job_ended, object.finished_at) else {
            return false;
        };
        let is_known = object.commit_decided > ended + self.plan.noise.stale;
        let last = object.committed.last();
        !is_known
            && self.now < finished + CATCH_UP
            && last.is_some_and(|last| !object.ended.contains(last))
    }

    /// Pods of a job started.
    pub(crate) fn check_start(&mut self, cluster: usize, index: usize, attempt: u64) {
        let uid = self.uid(index);
        for cluster in 0..self.clusters.len() {
            self.update_excuses(cluster);
        }
        // A cluster that was wrongly declared lost continues until it receives other assignments.
        if self.excused(cluster, index, attempt) {
            return;
        }
        let Some(object) = self.law_of(&uid) else { return };
        // A rightly given up cluster is excused.
        let (lost, known): (Vec<_>, Vec<_>) =
            object.ended.iter().partition(|(at, ended)| self.is_end_lost(*at, index, *ended));
        for (at, ended) in lost {
            self.count_excuse("excuse: an end that nobody could tell", at, index, ended);
        }
        if let Some((at, ended)) = known.first().copied() {
            self.report_violation(
                Law::EndedOnce,
                format!(
                    "{uid} starts on {cluster} as attempt {attempt}; attempt {ended} ended on {at}"
                ),
            );
        }
    }

    /// Pods start: their flavor must be the one that the hub charges. A hub that lost its store
    /// charges again for what it adopts.
    pub(crate) fn check_flavor(&mut self, cluster: usize, index: usize, attempt: u64) {
        let lost = |fault: &crate::plan::Fault| {
            matches!(fault.kind, FaultKind::StoreLost { .. } | FaultKind::StoreRestored)
        };
        if !self.plan.pinned
            || self.plan.clusters[cluster].adopts
            || self.plan.faults.iter().any(lost)
        {
            return;
        }
        let uid = self.uid(index);
        let Some(stored) = self.clusters[cluster].objects.get(&(ObjectKind::Workload, index))
        else {
            // The hub removes the copy, and the job started at the last moment.
            return;
        };
        let pin = stored.pin.clone();
        let Some(object) = self.api.objects.get(&uid) else { return };
        let state = &object.facts.state;
        let is_here = state.cluster.as_ref().is_some_and(|it| number(it) == cluster);
        let current = is_here && state.attempt == attempt && state.reserved && !state.evicted;
        let charged = object.facts.charged.get("main", "cpu");
        if current && charged != pin.as_deref() {
            let what = format!(
                "{uid} is charged to {charged:?}, and cluster {cluster} runs attempt {attempt} in {pin:?}"
            );
            self.report_violation(Law::Pinned, what);
        }
    }

    /// A job was created.
    pub(crate) fn check_made(&mut self, cluster: usize, index: usize, attempt: u64) {
        let uid = self.uid(index);
        let written =
            self.law_of(&uid).is_some_and(|object| object.committed.contains(&(cluster, attempt)));
        if !written {
            self.report_violation(
                Law::WrittenFirst,
                format!("cluster {cluster} makes the job of {uid} for attempt {attempt}, which was never written"),
            );
        }
    }

    /// The hub opened the preemption gate of a cluster at `at`, in seconds.
    pub(crate) fn check_opened(&mut self, cluster: usize, index: usize, at: i64) {
        let timeout = self
            .plan
            .preemption_timeout
            .and_then(|it| i64::try_from(it / 1_000).ok())
            .unwrap_or_default();
        let opened = |other: &usize| match self.clusters[*other]
            .objects
            .get(&(ObjectKind::Workload, index))?
            .object
        {
            Object::Workload(ref it) => it.gate?.opened_at(),
            Object::Job(_) => None,
        };
        let others = (0..self.clusters.len()).filter(|other| *other != cluster);
        // Times are whole seconds.
        let others = others.filter_map(|other| Some((other, opened(&other)?)));
        // The hub's clock may have jumped back since.
        let was_just_opened = |other: usize| {
            let opened = self.clusters[other].gates_opened.get(&index);
            let timeout = self.plan.preemption_timeout.unwrap_or_default();
            opened.is_none_or(|since| self.now - since < timeout)
        };
        let found: Vec<_> = others
            .filter(|(other, of)| (at - of).abs() + 1 < timeout && was_just_opened(*other))
            .collect();
        // The hub does not know a gate that opened before its store was lost, unless it adopted the
        // copy.
        let (forgotten, known): (Vec<_>, Vec<_>) = found.into_iter().partition(|(other, _)| {
            self.lost_store.at.is_some() && self.is_forgotten(*other, index)
        });
        for (other, _) in forgotten {
            self.count_excuse("excuse: a gate that the hub has forgotten", other, index, 0);
        }
        if let Some((other, of)) = known.first().copied() {
            let uid = self.uid(index);
            let what =
                format!("{uid} may preempt on {cluster} since {at} s and on {other} since {of} s");
            self.report_violation(Law::OnePreempts, what);
        }
        self.clusters[cluster].gates_opened.insert(index, self.now);
    }

    /// An attempt is about to be withdrawn from its cluster.
    pub(crate) fn check_left(
        &mut self,
        term: (usize, u64),
        decided: Ms,
        uid: &Uid,
        left: &RetriedAttempt,
    ) {
        let cluster = number(&left.cluster);
        if left.reason == CLUSTER_LOST {
            self.count_given_up(cluster, number(uid));
            self.check_careful(term, decided, cluster);
        }
        if left.reason == STUCK {
            self.check_stuck(decided, uid, left);
        }
        let (index, at) = (number(uid), &self.clusters[cluster]);
        // The lost store may have removed an attempt that is wanted again.
        let theirs = self
            .law_of(uid)
            .and_then(|object| object.facts.state.cluster_uid.as_ref())
            .unwrap_or(uid);
        let by_forgotten =
            at.removed_before.get(theirs).is_some_and(|attempt| left.attempt <= *attempt);
        if left.reason == "EvictedOnWorker" && !at.evicted.contains(&index) && !by_forgotten {
            let what = format!(
                "{uid}, attempt {} on {cluster}, goes as evicted there; nobody has",
                left.attempt
            );
            self.report_violation(Law::InPlace, what);
        }
    }

    /// An attempt is withdrawn for lack of a ready pod. Its decision is not old, even if the request
    /// is performed after its sender's timeout.
    fn check_stuck(&mut self, decided: Ms, uid: &Uid, left: &RetriedAttempt) {
        self.reached("withdrawn: no ready pod");
        let (cluster, index) = (number(&left.cluster), number(uid));
        let decided = decided.max(self.now.saturating_sub(STUCK_WRITTEN_WITHIN));
        let ready_since = self.clusters[cluster]
            .pods
            .values()
            .filter(|pods| pods.workload == index && pods.attempt == left.attempt)
            .find_map(|pods| pods.ready);
        if let Some(since) = ready_since.filter(|since| since + READY_KNOWN_WITHIN < decided) {
            let what = format!(
                "{uid}, attempt {} on {cluster}, is withdrawn as stuck; its pods are ready since {since} ms",
                left.attempt
            );
            self.report_violation(Law::Stuck, what);
        }
        let allowed = self.plan.workloads[index].stuck.map_or(0, |policy| policy.times);
        let Some(object) = self.api.objects.get_mut(uid) else { return };
        object.stuck_moves += 1;
        let moves = object.stuck_moves;
        if moves > allowed {
            let what = format!("{uid} is withdrawn as stuck for the time {moves} of {allowed}");
            self.report_violation(Law::Stuck, what);
        }
    }

    fn count_given_up(&mut self, cluster: usize, index: usize) {
        let own =
            self.api.objects.get(&self.uid(index)).and_then(|object| object.facts.on_disconnect);
        let loss = own.unwrap_or(self.clusters[cluster].loss);
        self.reached(match loss {
            _ if self.clusters[cluster].declared => "given up: declared lost",
            LossPolicy::Hold => "given up: Hold, by a policy that has changed",
            LossPolicy::Fence { .. } => "given up: Fence",
            LossPolicy::Duplicate { .. } => "given up: Duplicate",
            LossPolicy::GiveUp => "given up: GiveUp",
        });
    }

    /// A job ended: without recent faults, its Workload there must have the hub's priority.
    pub(crate) fn check_priority(&mut self, cluster: usize, index: usize, attempt: u64) {
        let uid = self.uid(index);
        let led =
            self.hubs.iter().any(|hub| hub.term.as_ref().is_some_and(|term| term.is_live(cluster)));
        if !led || self.faults_open > 0 || self.now < self.quiet_since + CHANGES_KNOWN_WITHIN {
            return;
        }
        let Some(facts) = self
            .api
            .objects
            .get(&uid)
            .filter(|object| !object.owner_gone)
            .map(|object| &object.facts)
        else {
            return;
        };
        let current = facts.state.attempt == attempt
            && facts.state.cluster.as_deref() == Some(name(cluster).as_str());
        let wanted = facts.priority;
        let Some(Object::Workload(workload)) = self.clusters[cluster]
            .objects
            .get(&(ObjectKind::Workload, index))
            .map(|stored| &stored.object)
        else {
            return;
        };
        let has = workload.priority.as_ref().map(|priority| priority.value);
        if current && !workload.meta.deleting && has != Some(wanted) {
            self.report_violation(
                Law::InStep,
                format!("{uid} ended on {cluster} with priority {has:?}; it is to have {wanted}"),
            );
        }
    }

    /// If only the first cluster failed, jobs of the others took the usual time at most.
    pub(crate) fn check_isolation(&mut self) {
        if !self.plan.is_isolated() {
            return;
        }
        for (index, workload) in self.plan.workloads.clone().into_iter().enumerate() {
            let Some(object) = self.api.objects.get(&self.uid(index)) else { continue };
            let elsewhere = !object.committed.is_empty()
                && object.committed.iter().all(|(cluster, _)| *cluster != 0);
            let took = object.finished_at.unwrap_or(self.now) - workload.at;
            // An open offer waits while its cluster keeps taking others.
            let waited = object.first_progressed.saturating_sub(workload.at).min(LONGEST_TURN);
            if elsewhere && took > workload.runs + waited + USUAL {
                let what = format!(
                    "w{index} took {took} ms for {} ms of work on a healthy cluster",
                    workload.runs
                );
                self.report_violation(Law::Isolation, what);
            }
        }
    }

    /// All unsettled states, with the laws that forbid them at the end. Causes come before their
    /// consequences.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = (Law, String)> {
        let live = |what| (Law::Liveness, what);
        let unfinished = self.unfinished().map(live);
        let left_behind = self.left_behind().map(|what| (Law::NoOrphans, what));
        unfinished.into_iter().chain(left_behind).chain(self.unreleased().map(live))
    }

    /// An object of the hub on a worker whose workload has ended or is gone on the hub. Copies that
    /// a hub with a lost store has forgotten, and shows, may remain.
    fn left_behind(&self) -> Option<String> {
        for (cluster, it) in self.clusters.iter().enumerate() {
            let left = |((_, index), stored): &(&(ObjectKind, usize), &crate::state::Stored)| {
                let object = self.api.objects.get(&self.uid(*index));
                let over = object.is_none_or(|it| it.deleted || it.facts.state.finished);
                over && !stored.foreign && !self.is_shown_as_forgotten(cluster, *index)
            };
            if let Some((_, stored)) = it.objects.iter().find(left) {
                return Some(format!("left behind on {cluster}: {}", short(&stored.object)));
            }
        }
        None
    }

    /// A workload that has not ended, or whose end the hub does not know.
    fn unfinished(&self) -> Option<String> {
        for (uid, object) in &self.api.objects {
            if !object.deleted && !object.facts.state.finished {
                return Some(format!("{uid} has not ended: {:?}", object.facts));
            }
            if let (Some((cluster, attempt)), false, 0) =
                (object.ended.first(), object.owner_gone, object.ends)
            {
                return Some(format!(
                    "the end of {uid}, attempt {attempt} on {cluster}, never reached the hub"
                ));
            }
        }
        None
    }

    /// A charge or a cluster's workload that the leading hub still has in memory.
    fn unreleased(&self) -> Option<String> {
        let term = self.hubs.iter().find_map(|hub| hub.term.as_ref())?;
        if let Some((uid, _)) = term.memory.first_key_value() {
            return Some(format!("{uid} is still charged in memory"));
        }
        (0..self.clusters.len()).find_map(|cluster| {
            let view = term.dispatcher.cluster_view(&name(cluster));
            let shown = term.dispatcher.orphans_of(&name(cluster), usize::MAX);
            let clean = view.workloads == 0 && shown.iter().all(OrphanView::is_kept);
            (!clean).then(|| format!("the hub still thinks of cluster {cluster}: {view:?}"))
        })
    }
}

/// The charge of a workload.
fn amount(facts: &WorkloadFacts) -> u64 {
    let of = |pod_set: &switchyard_scheduler::PodSet| {
        let each = pod_set.requests.get("cpu").map_or(0, |amount| amount.get());
        u64::try_from(each.saturating_mul(i64::from(pod_set.count))).unwrap_or(0)
    };
    facts.pod_sets.iter().map(of).sum()
}
