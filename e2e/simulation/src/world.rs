//! The run: virtual time, scheduled events, and their delivery.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_flags::simulate::Mutation;

use crate::dice::Dice;
use crate::plan::Plan;
use crate::reached::Reached;
use crate::state::{Api, Cluster, Event, Hub, LostStore, Network, Process, World};
use crate::time::Ms;
use crate::violation::{Law, Violation};

/// The longest virtual time after the last fault. A run that is unsettled by then never settles.
const SETTLE_LIMIT: Ms = 30 * 60_000;
/// The most steps of a run.
const MAX_STEPS: u64 = 400_000;

/// The outcome of a run.
#[derive(Debug)]
pub struct Report {
    pub violation: Option<Violation>,
    pub steps: u64,
    /// In virtual time.
    pub took: Ms,
    /// One line per event, if requested.
    pub trace: Vec<String>,
    pub reached: Reached,
}

pub fn run(plan: &Plan, mutation: Option<Mutation>, traced: bool) -> Report {
    let mut world = World::new(plan.clone(), mutation, traced);
    world.run();
    let World { violation, steps, now: took, trace, reached, .. } = world;
    Report { violation, steps, took, trace: trace.unwrap_or_default(), reached }
}

impl World {
    fn new(plan: Plan, mutation: Option<Mutation>, traced: bool) -> Self {
        let streams = 2 + plan.clusters.len() as u64;
        let dice = (0..streams).map(|stream| Dice::new(plan.seed, 100 + stream)).collect();
        let hubs = plan.hubs.iter().map(|_| Hub::default()).collect();
        let clusters = plan.clusters.iter().map(Cluster::new).collect();
        let mut world = Self {
            plan,
            mutation,
            now: 0,
            order: 0,
            queue: BTreeMap::new(),
            dice,
            api: Api::default(),
            hubs,
            clusters,
            network: Network::default(),
            violation: None,
            moved: false,
            faults_open: 0,
            quiet_since: 0,
            released: None,
            lost_store: LostStore::default(),
            settled: false,
            steps: 0,
            reached: Reached::default(),
            needed: BTreeSet::new(),
            trace: traced.then(Vec::new),
        };
        for hub in 0..world.hubs.len() {
            world.hub_boot(hub);
        }
        for cluster in 0..world.clusters.len() {
            world.create_unrelated_object(cluster);
            world.agent_boot(cluster);
        }
        for index in 0..world.plan.workloads.len() {
            world.at(world.plan.workloads[index].at, Event::Submit(index));
        }
        for index in 0..world.plan.faults.len() {
            world.at(world.plan.faults[index].at, Event::Fault(index));
        }
        world.at(world.plan.calm() + 1_000, Event::Probe);
        world
    }

    fn run(&mut self) {
        let end = self.plan.calm() + SETTLE_LIMIT;
        while self.violation.is_none() && !self.settled {
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            if at > end || self.steps > MAX_STEPS {
                break;
            }
            self.now = at;
            self.steps += 1;
            self.take(event);
            if std::mem::take(&mut self.moved) {
                self.check_laws();
            }
        }
        if self.violation.is_none() && !self.settled {
            for cluster in 0..self.clusters.len() {
                let knows =
                    format!("c{cluster}: in the end, {:?}", self.clusters[cluster].agent.ledger());
                self.note(|| knows);
            }
            let mut found: Vec<(Law, String)> = self.unsettled().collect();
            if found.is_empty() {
                found.push((Law::Liveness, "nothing is left to happen".to_owned()));
            }
            for (law, what) in found {
                self.report_violation(law, what);
            }
        }
    }

    fn take(&mut self, event: Event) {
        if let Some(process) = event.process(&self.network) {
            let frozen = match process {
                Process::Hub(hub) => self.hubs[hub].frozen.as_mut(),
                Process::Agent(cluster) => self.clusters[cluster].agent.frozen.as_mut(),
            };
            if let Some(waiting) = frozen {
                waiting.push(event);
                return;
            }
        }
        self.handle(event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Fault(index) => self.fault(index),
            Event::FaultEnds(index) => self.fault_ends(index),
            Event::Submit(index) => self.submit(index),
            Event::Probe => self.probe(),
            Event::Flood { cluster, until } => self.flood(cluster, until),
            Event::Dial { cluster, boot } => self.dial(cluster, boot),
            Event::AgentTick { cluster, boot } => self.agent_tick(cluster, boot),
            Event::List { cluster, boot, kind } => self.list(cluster, boot, kind),
            Event::Watch { cluster, boot, seen } => self.agent_sees(cluster, boot, *seen),
            Event::CapacityChanged { cluster, boot } => self.capacity_changed(cluster, boot),
            Event::Examine { cluster, boot } => self.examine(cluster, boot),
            Event::Act { cluster, id } => self.act(cluster, id),
            Event::ActLate { cluster, boot, action } => self.act_late(cluster, boot, &action),
            Event::Done { cluster, boot, id, outcome } => {
                self.agent_done(cluster, boot, id, outcome)
            }
            Event::Controllers { cluster } => self.controllers(cluster),
            Event::PodsStart { cluster, workload, object } => {
                self.pods_start(cluster, workload, &object)
            }
            Event::PodsStop { cluster, workload, object } => {
                self.pods_stop(cluster, workload, &object)
            }
            Event::JobEnds { cluster, workload, object, run } => {
                self.job_ends(cluster, workload, &object, run)
            }
            Event::JobExpires { cluster, workload, object } => {
                self.job_expires(cluster, workload, &object)
            }
            Event::Packet { link, up } => self.packet(link, up),
            Event::Elect { hub, boot } => self.elect(hub, boot),
            Event::LeaseRead { hub, boot, round } => self.lease_read(hub, boot, round),
            Event::LeaseWrite { hub, boot, round, next, sent } => {
                self.lease_write(hub, boot, round, next, sent)
            }
            Event::LeaseAnswer { hub, boot, round, won, sent } => {
                self.lease_answer(hub, boot, round, won, sent)
            }
            Event::LeaseTimeout { hub, boot, round } => self.lease_timeout(hub, boot, round),
            Event::HubWatch { hub, boot, lists, change } => {
                if self.hubs[hub].lists == lists {
                    self.hub_sees(hub, boot, *change);
                }
            }
            Event::HubTick { hub, boot } => self.hub_tick(hub, boot),
            Event::SessionTick { hub, boot, link } => self.session_tick(hub, boot, link),
            Event::News { hub, boot, epoch, news } => self.news(hub, boot, epoch, *news),
            Event::Rules { hub, boot, cluster } => self.read_rules(hub, boot, cluster),
            Event::Statuses { hub, boot } => self.write_statuses(hub, boot),
            Event::Engine { hub, boot } => self.engine(hub, boot),
            Event::WriteArrives(job) => self.write_arrives(*job),
            Event::WriteAnswered(job, reply) => self.write_answered(*job, reply),
            Event::WriteLate(job) => self.write_late(&job),
            Event::WriteReads(job) => self.write_reads(*job),
            Event::ShowDue { hub, boot, epoch, uid } => self.show_due(hub, boot, epoch, &uid),
            Event::ShowArrives { hub, boot, epoch, losses, uid, show } => {
                self.show_arrives((hub, boot, epoch), losses, uid, show)
            }
            Event::ShowAnswered { hub, boot, epoch, uid, failed } => {
                self.show_answered(hub, boot, epoch, &uid, failed)
            }
            Event::Lifecycle { uid } => self.lifecycle(&uid),
        }
    }

    /// Checks whether the run has settled.
    fn probe(&mut self) {
        if self.faults_open > 0 {
            return self.after(1_000, Event::Probe);
        }
        if self.unsettled().next().is_some() {
            return self.after(1_000, Event::Probe);
        }
        self.settled = true;
        self.check_isolation();
    }
}
