//! What clusters tell, on its way to the dispatcher: which session of each counts, and what has to be kept of it until it may
//! be written. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use switchyard_proto::v1 as proto;

use super::{
    Dispatcher, Event, Facts, Gate, Name, Observation, Origin, Reason, State, Uid, terminal,
};

/// The session of each cluster that counts: the newest.
#[derive(Debug, Default)]
pub struct Sessions {
    live: BTreeMap<Name, u64>,
}

impl Sessions {
    /// One has begun. What the dispatcher is to be told; nothing if there is a newer one.
    pub fn up(&mut self, cluster: &Name, session_id: u64) -> Vec<Event> {
        if self.live.get(cluster).is_some_and(|live| *live >= session_id) {
            return Vec::new();
        }
        let before = self.live.insert(cluster.clone(), session_id);
        let down = before.map(|_| Event::ClusterDown { name: cluster.clone() });
        down.into_iter().chain([Event::ClusterUp { name: cluster.clone() }]).collect()
    }

    /// One has ended. What the dispatcher is to be told; nothing if it was not the one that counts.
    pub fn down(&mut self, cluster: &Name, session_id: u64) -> Option<Event> {
        if !self.counts(cluster, session_id) {
            return None;
        }
        self.live.remove(cluster);
        Some(Event::ClusterDown { name: cluster.clone() })
    }

    /// Whether what is said in a session counts.
    pub fn counts(&self, cluster: &str, session_id: u64) -> bool {
        self.live.get(cluster) == Some(&session_id)
    }

    /// The connected clusters.
    pub fn clusters(&self) -> impl Iterator<Item = &Name> {
        self.live.keys()
    }

    /// Whether a cluster is connected.
    pub fn is_up(&self, cluster: &str) -> bool {
        self.live.contains_key(cluster)
    }
}

/// What a cluster last told of a workload.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Of which attempt.
    pub attempt: u64,
    /// The job's status.
    pub job_status: Option<Arc<Value>>,
    /// Why it ended as it did.
    pub reason: Option<Reason>,
    /// Troubles that keep its job from starting, within the bounds of the protocol.
    pub troubles: Vec<proto::JobTrouble>,
}

/// What clusters last told, as far as it may have to be written. By the hub's own uids.
#[derive(Debug, Default)]
pub struct Memory {
    told: BTreeMap<(Name, Uid), Told>,
    /// Clusters may have what the hub has forgotten: what they tell of workloads that it does not know is kept as well.
    forgetful: bool,
    /// A job's status that could not be read has come.
    unreadable: bool,
}

impl Memory {
    /// `forgetful`: the hub may have forgotten what clusters have.
    pub fn new(forgetful: bool) -> Self {
        Self { told: BTreeMap::new(), forgetful, unreadable: false }
    }

    /// Takes in what a cluster tells, and gives it as the dispatcher wants it. [`Self::forget_useless`] follows once the
    /// dispatcher has it.
    pub fn take_in(
        &mut self,
        dispatcher: &Dispatcher,
        cluster: &Name,
        told: &proto::Observation,
    ) -> Observation {
        let theirs = Uid::from(told.workload_uid.as_str());
        let uid = dispatcher.our_uid(&theirs);
        let reasons: Vec<Reason> = told
            .reasons
            .iter()
            .map(|reason| Reason::new(reason.code.clone(), reason.message.clone()))
            .collect();
        // What is not known may be a copy; what goes by the own uid of one that has adopted a copy tells nothing of its job.
        let wanted =
            (self.forgetful || dispatcher.knows(&uid)) && !dispatcher.is_superseded(&theirs);
        let job_status = wanted && self.remember(cluster, &uid, told, &reasons);
        Observation {
            uid: theirs,
            namespace: told.namespace.as_str().into(),
            name: told.name.as_str().into(),
            attempt: told.attempt,
            state: told.state(),
            reasons,
            job_status,
            origin: told.origin.as_ref().map(Origin::from),
            gate: told.preemption_gate.as_ref().map(Gate::from),
        }
    }

    /// Whether a job's status that could not be read has come since this was last asked.
    pub fn take_unreadable(&mut self) -> bool {
        std::mem::take(&mut self.unreadable)
    }

    /// Keeps what may have to be written. Returns whether the job's status is news.
    fn remember(
        &mut self,
        cluster: &Name,
        uid: &Uid,
        observation: &proto::Observation,
        reasons: &[Reason],
    ) -> bool {
        let key = (cluster.clone(), uid.clone());
        if observation.state() == State::Gone {
            self.told.remove(&key);
            return false;
        }
        let told = self.told.entry(key).or_default();
        if told.attempt != observation.attempt {
            *told = Told { attempt: observation.attempt, ..Told::default() };
        }
        told.troubles.clone_from(&observation.troubles);
        if terminal(observation.state()) {
            told.reason = reasons.first().cloned();
        }
        let status = parse_status(&observation.job_status);
        self.unreadable |= status.is_none() && !observation.job_status.is_empty();
        let news = status.is_some();
        if let Some(status) = status {
            told.job_status = Some(Arc::new(status));
        }
        news
    }

    /// Forgets what a cluster told of a workload if it will never have to be written.
    pub fn forget_useless(&mut self, dispatcher: &Dispatcher, cluster: &Name, uid: &Uid) {
        if !is_of_use(dispatcher, cluster, uid) {
            self.forget(cluster, uid);
        }
    }

    /// Forgets what a cluster told of workloads that the dispatcher has forgotten. Looks at what that cluster told alone.
    pub fn forget_useless_of(&mut self, dispatcher: &Dispatcher, cluster: &Name) {
        let from = (cluster.clone(), Uid::from(""));
        let there = self.told.range(from..).map(|(key, _)| key).take_while(|(at, _)| at == cluster);
        let useless: Vec<_> =
            there.filter(|(at, uid)| !is_of_use(dispatcher, at, uid)).cloned().collect();
        for key in useless {
            self.told.remove(&key);
        }
    }

    /// Forgets what a cluster told of a workload.
    pub fn forget(&mut self, cluster: &Name, uid: &Uid) {
        self.told.remove(&(cluster.clone(), uid.clone()));
    }

    /// What was told of a copy is told of the workload that has adopted it. What was told of that one itself is newer.
    pub fn rename(&mut self, facts: &Facts) {
        let (Some(theirs), Some(cluster)) = (&facts.known_as, &facts.cluster) else { return };
        for before in facts.replaces.iter().chain([theirs]) {
            if let Some(told) = self.told.remove(&(cluster.clone(), before.clone())) {
                self.told.entry((cluster.clone(), facts.uid.clone())).or_insert(told);
            }
        }
    }

    /// What a cluster last told of an attempt.
    pub fn of(&self, cluster: &Name, uid: &Uid, attempt: u64) -> Option<&Told> {
        self.told.get(&(cluster.clone(), uid.clone())).filter(|told| told.attempt == attempt)
    }
}

fn is_of_use(dispatcher: &Dispatcher, cluster: &Name, uid: &Uid) -> bool {
    dispatcher.knows(uid) || dispatcher.has_orphan(cluster, uid)
}

/// A job's status as the agent sent it. What cannot be read is not shown.
fn parse_status(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(bytes).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    #[test]
    fn only_the_newest_session_of_a_cluster_counts() {
        let (mut sessions, west) = (Sessions::default(), Name::from("west"));
        let told = |events: Vec<Event>| {
            events.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(sessions.up(&west, 7)), r#"ClusterUp { name: "west" }"#);
        assert_eq!(told(sessions.up(&west, 6)), "", "an older one comes late");
        assert_eq!(
            told(sessions.up(&west, 8)),
            r#"ClusterDown { name: "west" } ClusterUp { name: "west" }"#
        );
        assert!(sessions.down(&west, 7).is_none(), "it has not counted any more");
        assert!(sessions.is_up("west") && sessions.counts("west", 8));
        assert!(sessions.down(&west, 8).is_some() && !sessions.is_up("west"));
    }

    #[test]
    fn what_was_told_of_a_copy_is_told_of_who_has_it_unless_there_is_newer() {
        let (west, old, new) = (Name::from("west"), Uid::from("w"), Uid::from("x"));
        let taken = || Facts {
            replaces: Some(old.clone()),
            known_as: Some(old.clone()),
            ..super::super::tests::committed("x", "west", 1)
        };
        let told =
            |memory: &Memory| memory.of(&west, &new, 1).and_then(|told| told.job_status.clone());
        let status = |active: i32| Some(Arc::new(serde_json::json!({"active": active})));
        let tell = |memory: &mut Memory, uid: &Uid, active: i32| {
            let told = Told { attempt: 1, job_status: status(active), ..Told::default() };
            memory.told.insert((west.clone(), uid.clone()), told);
        };
        let mut memory = Memory::new(false);
        tell(&mut memory, &old, 1);
        memory.rename(&taken());
        assert_eq!(told(&memory), status(1));
        tell(&mut memory, &new, 2);
        tell(&mut memory, &old, 1);
        memory.rename(&taken());
        assert_eq!(told(&memory), status(2));
        assert!(memory.of(&west, &old, 1).is_none());
    }

    #[test]
    fn of_a_job_that_nobody_knows_nothing_is_kept_unless_the_hub_has_forgotten_some() {
        let told = proto::Observation {
            workload_uid: "u".into(),
            attempt: 1,
            state: State::Running.into(),
            job_status: br#"{"active": 1}"#.to_vec(),
            ..proto::Observation::default()
        };
        let (west, uid) = (Name::from("west"), Uid::from("u"));
        for forgetful in [false, true] {
            let dispatcher = Dispatcher::new(Settings::default(), 0);
            let mut memory = Memory::new(forgetful);
            assert_eq!(memory.take_in(&dispatcher, &west, &told).job_status, forgetful);
            assert_eq!(memory.of(&west, &uid, 1).is_some(), forgetful);
            assert!(memory.of(&west, &uid, 2).is_none(), "of another attempt nothing was told");
            memory.forget_useless(&dispatcher, &west, &uid);
            assert!(memory.of(&west, &uid, 1).is_none(), "the dispatcher has no use for it");
        }
    }
}
