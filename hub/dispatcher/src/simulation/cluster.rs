//! A model cluster with the agent's rules.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{Observation, Phase, PreemptionGate, State, Uid, is_terminal};

/// One workload on the cluster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Remote {
    pub(super) attempt: u64,
    pub(super) phase: Phase,
    pub(super) state: State,
    pub(super) acked: bool,
    /// Its preemption gate, if it has one.
    pub(super) gate: Option<PreemptionGate>,
    /// The flavor that it was created with.
    pub(super) pin: Option<String>,
}

impl Remote {
    /// The flavor of its quota.
    fn flavor(&self) -> Option<&str> {
        (self.state == State::Reserved).then(|| self.pin.as_deref().unwrap_or("default"))
    }
}

/// An assignment on its way.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) attempt: u64,
    pub(super) phase: Phase,
    pub(super) gate: Option<PreemptionGate>,
    pub(super) pin: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) connected: bool,
    pub(super) remotes: BTreeMap<Uid, Remote>,
    /// Attempts that ever ran here.
    pub(super) ran: BTreeSet<(Uid, u64)>,
    pub(super) up: VecDeque<Observation>,
    pub(super) down: VecDeque<(Uid, Sent)>,
    /// The outbox: assignments, kept over sessions but not over restarts of the hub.
    pub(super) outbox: BTreeMap<Uid, Sent>,
    /// Workloads whose pods are not ready.
    pub(super) unready: BTreeSet<Uid>,
    /// Attempts of which the last examination found no ready pod.
    pub(super) without_ready_pod: BTreeSet<(Uid, u64)>,
}

impl Cluster {
    /// The agent's rules: never a lower attempt, and within one only from Reserve over Run to
    /// Absent.
    pub(super) fn take(&mut self, uid: &Uid, sent: Sent) {
        let Sent { attempt, phase, gate, pin } = sent;
        let there = self.remotes.get(uid);
        let step = |phase| match phase {
            Phase::Reserve => 1,
            Phase::Run => 2,
            _ => 3,
        };
        if there.is_some_and(|r| {
            r.attempt > attempt || (r.attempt == attempt && step(r.phase) > step(phase))
        }) {
            return;
        }
        if phase == Phase::Absent {
            let held =
                there.is_some_and(|r| is_terminal(r.state) && !r.acked && r.attempt == attempt);
            if held {
                // The end is reported again until it is acknowledged.
                self.say(uid);
                let again = Sent { attempt, phase, gate: None, pin: None };
                self.down.push_back((uid.clone(), again));
                return;
            }
            self.remotes.remove(uid);
            let state = State::Gone;
            let gone = Remote { attempt, phase, state, acked: false, gate: None, pin: None };
            self.up.push_back(observation(uid, &gone));
            return;
        }
        match self.remotes.get_mut(uid) {
            Some(remote) if remote.attempt == attempt => {
                remote.phase = phase;
                if let (Some(own), Some(said)) = (&mut remote.gate, gate) {
                    own.opened = own.opened.max(said.opened);
                }
                if phase == Phase::Run && remote.state == State::Reserved {
                    remote.state = State::Running;
                    self.ran.insert((uid.clone(), attempt));
                }
            }
            _ => {
                self.remotes.insert(
                    uid.clone(),
                    Remote { attempt, phase, state: State::Waiting, acked: false, gate, pin },
                );
            }
        }
        self.say(uid);
    }

    /// Whether the copy of that uid runs here.
    pub(super) fn runs(&self, uid: &Uid) -> bool {
        let runs = |remote: &Remote| remote.phase == Phase::Run && remote.state == State::Running;
        self.remotes.get(uid).is_some_and(runs)
    }

    pub(super) fn say(&mut self, uid: &Uid) {
        if self.connected
            && let Some(remote) = self.remotes.get(uid)
        {
            self.up.push_back(self.observation(uid, remote));
        }
    }

    pub(super) fn observation(&self, uid: &Uid, remote: &Remote) -> Observation {
        let is_unready = self.without_ready_pod.contains(&(uid.clone(), remote.attempt));
        let no_ready_pod = is_unready && remote.state == State::Running;
        Observation { no_ready_pod, ..observation(uid, remote) }
    }
}

fn observation(uid: &Uid, remote: &Remote) -> Observation {
    Observation {
        uid: uid.clone(),
        namespace: "ns".into(),
        name: format!("job-{uid}").into(),
        attempt: remote.attempt,
        state: remote.state,
        reasons: Vec::new(),
        job_status: false,
        no_ready_pod: false,
        origin: None,
        gate: remote.gate,
        flavors: remote.flavor().map(crate::tests::charge),
    }
}
