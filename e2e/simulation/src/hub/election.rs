//! Leadership: the production election against a Lease that answers late or never.

use switchyard_platform::lease::step::{LeaseAction, ObservedLease, Timing};

use crate::state::{Event, Term, World};
use crate::time::{LATE, Ms};

impl World {
    /// The chart's times, or the program's defaults.
    fn timing(&self) -> Timing {
        let ms = std::time::Duration::from_millis;
        match self.plan.charted {
            true => Timing { lease: ms(3_000), renew: ms(2_000), retry: ms(500) },
            false => Timing::default(),
        }
    }

    /// The term that the lease names. A deposed leader may not know yet.
    pub(crate) fn leading_terms(&self) -> impl Iterator<Item = &Term> {
        let leads = |hub: &usize| self.holds_lease(*hub);
        (0..self.hubs.len()).filter(leads).filter_map(|hub| self.hubs[hub].term.as_ref())
    }

    /// Whether the API server's Lease names this replica. A deposed leader may not know yet.
    fn holds_lease(&self, hub: usize) -> bool {
        let epoch = self.hubs[hub].term.as_ref().map(|term| term.epoch);
        let lease = self.api.lease.as_ref();
        lease.is_some_and(|lease| {
            lease.holder == self.identity(hub) && Some(lease.transitions) == epoch
        })
    }

    fn identity(&self, hub: usize) -> String {
        format!("hub-{hub}")
    }

    /// A round begins: read, decide, write.
    pub(crate) fn elect(&mut self, hub: usize, boot: u32) {
        if !self.hub_is(hub, boot) {
            return;
        }
        let (instant, timing) = (self.hub_instant(hub), self.timing());
        let it = &mut self.hubs[hub];
        it.round += 1;
        let round = it.round;
        let patience = it.election.attempt_timeout(timing, instant);
        let wait = patience.as_millis() as u64 * 1000 / self.plan.hubs[hub];
        self.after(wait, Event::LeaseTimeout { hub, boot, round });
        let delay = self.dice(0).between(1, 30);
        self.after(delay, Event::LeaseRead { hub, boot, round });
    }

    fn in_round(&self, hub: usize, boot: u32, round: u64) -> bool {
        self.hub_is(hub, boot) && self.hubs[hub].round == round
    }

    pub(crate) fn lease_read(&mut self, hub: usize, boot: u32, round: u64) {
        if !self.in_round(hub, boot, round)
            || self.hubs[hub].cut > 0
            || self.hubs[hub].frozen.is_some()
        {
            return;
        }
        let (instant, identity, timing) =
            (self.hub_instant(hub), self.identity(hub), self.timing());
        let observed = self.api.lease.clone();
        let sent = self.now;
        let action = self.hubs[hub].election.step(observed.clone(), &identity, timing, instant);
        let transitions = observed.as_ref().map_or(0, |observed| observed.transitions);
        let version = observed.map(|observed| observed.version).unwrap_or_default();
        if action == LeaseAction::Wait {
            return self.round_over(hub, boot);
        }
        let transitions = action.transitions(transitions, self.hubs[hub].floor);
        // The replaced version; the server assigns a new one.
        let next =
            ObservedLease { version, holder: identity, duration: Some(timing.lease), transitions };
        // The chart writes four times as often and gives up five times as soon. The smaller chance
        // keeps terms equally long.
        let chance = self.plan.noise.late / if self.plan.charted { 10 } else { 1 };
        let late = self.dice(0).chance(chance);
        let delay = self.dice(0).between(1, if late { LATE } else { 30 });
        self.after(delay, Event::LeaseWrite { hub, boot, round, next, sent });
    }

    /// The write arrives, even if its sender crashed.
    pub(crate) fn lease_write(
        &mut self,
        hub: usize,
        boot: u32,
        round: u64,
        next: ObservedLease,
        sent: Ms,
    ) {
        if self.hubs[hub].cut > 0 {
            return;
        }
        let there = self.api.lease.as_ref().map(|lease| lease.version.clone()).unwrap_or_default();
        let won = (there == next.version).then(|| {
            self.api.lease_version += 1;
            let written = ObservedLease { version: self.api.lease_version.to_string(), ..next };
            self.api.lease = Some(written.clone());
            written
        });
        let delay = self.dice(0).between(1, 30);
        self.after(delay, Event::LeaseAnswer { hub, boot, round, won, sent });
    }

    pub(crate) fn lease_answer(
        &mut self,
        hub: usize,
        boot: u32,
        round: u64,
        won: Option<ObservedLease>,
        sent: Ms,
    ) {
        if !self.in_round(hub, boot, round) {
            return;
        }
        let ago = (self.now - sent) * self.plan.hubs[hub] / 1000;
        let sent = self.hub_instant(hub) - std::time::Duration::from_millis(ago);
        let election = &mut self.hubs[hub].election;
        match won {
            Some(observed) => drop(election.won(observed, sent)),
            None => drop(election.lost()),
        }
        self.round_over(hub, boot);
    }

    pub(crate) fn lease_timeout(&mut self, hub: usize, boot: u32, round: u64) {
        if self.in_round(hub, boot, round) {
            self.round_over(hub, boot);
        }
    }

    /// Publishes the result of a round and schedules the next one.
    fn round_over(&mut self, hub: usize, boot: u32) {
        let (instant, timing) = (self.hub_instant(hub), self.timing());
        let it = &mut self.hubs[hub];
        it.round += 1;
        it.election.expire(timing, instant);
        let leadership = it.election.leadership();
        let pause = it.election.pause(timing, instant);
        let wait = 1 + pause.as_millis() as u64 * 1000 / self.plan.hubs[hub];
        self.after(wait, Event::Elect { hub, boot });
        let held = self.hubs[hub].term.as_ref().map(|term| term.epoch);
        if held.is_some() && (!leadership.leading || held != Some(leadership.epoch)) {
            self.term_ends(hub);
        }
        if leadership.leading && self.hubs[hub].term.is_none() {
            self.term_begins(hub, leadership.epoch);
        }
    }
}
