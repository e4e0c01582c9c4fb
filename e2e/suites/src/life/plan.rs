//! Which actions there are and when: a pure function of the seed.
//!
//! The plan knows what it has asked for, and nothing of what came of it. An action that meets nothing, or is refused, is no fault.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use switchyard_e2e::random::Random;

use super::action::{Action, Deletion, PodEnd, Policy, Scheduling};
use super::subject::{Kind, Subject};

/// The names that jobs have: few, so that each comes again and again.
pub(crate) const NAMES: [&str; 14] =
    ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12", "n13"];
pub(crate) const WORKERS: [&str; 2] = ["west", "east"];
/// The LocalQueues. `d` leads to `a` or to `b`, the others to the ClusterQueue of their name.
pub(crate) const QUEUES: [&str; 4] = ["a", "b", "c", "d"];
pub(crate) const CLUSTER_QUEUES: [&str; 3] = ["a", "b", "c"];
pub(crate) const CLASSES: [&str; 3] = ["low", "middle", "high"];
/// The most that a job asks for, so that it fits on some cluster when nothing else runs.
pub(crate) const LARGEST: u32 = 4000;

/// The quota of a ClusterQueue, in CPUs.
pub(crate) fn quota(cluster: &str, queue: &str) -> u32 {
    match (cluster == switchyard_e2e::fleet::HUB, queue) {
        (true, "a") => 10,
        (true, "b") => 6,
        (true, _) | (false, "a") => 6,
        (false, _) => 4,
    }
}

/// An action and its time since the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) action: Action,
}

/// The actions, one after the other, without end.
#[derive(Clone, Debug)]
pub(crate) struct LifePlan {
    random: Random,
    now: Duration,
    /// The jobs that it has made and not deleted.
    live: BTreeMap<&'static str, Subject>,
    /// The actions that end earlier ones, by their time.
    ends: VecDeque<Step>,
}

impl LifePlan {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            now: Duration::ZERO,
            live: BTreeMap::new(),
            ends: VecDeque::new(),
        }
    }

    /// Has `action` come later.
    fn end_after(&mut self, low: u32, high: u32, action: Action) {
        let at = self.now + self.random.millis(low * 1000, high * 1000);
        let place = self.ends.partition_point(|step| step.at <= at);
        self.ends.insert(place, Step { at, action });
    }

    fn choose(&mut self) -> Action {
        let fill = u32::try_from(self.live.len() * 100 / NAMES.len()).unwrap_or(100);
        match self.random.between(0, 99) {
            0..25 if fill < 85 => self.create(),
            0..12 => self.delete(),
            12..25 => self.recreate(),
            25..78 => self.disturb(),
            78..97 => self.administer(),
            _ => self.restart(),
        }
    }

    fn subject(&mut self, name: &'static str) -> Subject {
        let random = &mut self.random;
        let kind = random.of(&Kind::ALL);
        let size = match kind {
            Kind::Pod => 1,
            // The minimum has to be less.
            Kind::PartialJob => random.between(2, 4),
            _ => random.between(1, 4),
        };
        let runs = random.percent(75).then(|| random.millis(500, 30_000));
        Subject {
            name,
            kind,
            queue: random.of(&QUEUES),
            size,
            millicpu: (LARGEST / size).min(random.of(&[250, 500, 1000, 1000, 2000, 3000])),
            // A new one comes each minute, so each has to end.
            runs: if kind == Kind::CronJob {
                Some(runs.unwrap_or(Duration::from_secs(20)))
            } else {
                runs
            },
            stops: random.of(&[
                Duration::ZERO,
                Duration::ZERO,
                Duration::from_secs(2),
                Duration::from_secs(8),
            ]),
            fails: random.percent(15) && !kind.serves(),
            backoff: random.between(0, 3),
            class: random.of(&CLASSES),
            max_seconds: (kind.is_job() && random.percent(10)).then(|| random.between(5, 25)),
        }
    }

    fn create(&mut self) -> Action {
        let free: Vec<&'static str> =
            NAMES.into_iter().filter(|name| !self.live.contains_key(name)).collect();
        let name = self.random.of(&free);
        let subject = self.subject(name);
        self.live.insert(name, subject.clone());
        Action::Create(subject)
    }

    /// One of the jobs, or the first name where there is none.
    fn any(&mut self) -> (&'static str, Kind) {
        let all: Vec<(&'static str, Kind)> =
            self.live.iter().map(|(name, it)| (*name, it.kind)).collect();
        if all.is_empty() { (NAMES[0], Kind::Job) } else { self.random.of(&all) }
    }

    fn delete(&mut self) -> Action {
        let (name, kind) = self.any();
        self.live.remove(name);
        Action::Delete { name, kind, how: self.deletion() }
    }

    fn recreate(&mut self) -> Action {
        let (name, kind) = self.any();
        let subject = self.subject(name);
        self.live.insert(name, subject.clone());
        Action::Recreate { kind, how: self.deletion(), subject }
    }

    fn deletion(&mut self) -> Deletion {
        if self.random.percent(60) { Deletion::Background } else { Deletion::Foreground }
    }

    /// Actions of users on jobs, and ends of pods.
    fn disturb(&mut self) -> Action {
        let (name, kind) = self.any();
        let pick = self.random.between(0, 99) as usize;
        let per_pod = self.live.get(name).map_or(LARGEST, |it| it.millicpu.max(1));
        match self.random.between(0, 99) {
            0..20 => {
                let least = if kind.serves() { 0 } else { 1 };
                Action::Resize {
                    name,
                    kind,
                    size: self.random.between(least, (LARGEST / per_pod).min(5)),
                }
            }
            20..34 => Action::Move { name, pick, to: self.random.of(&WORKERS) },
            34..44 => {
                self.end_after(2, 25, Action::Activate { name });
                Action::Deactivate { name, pick }
            }
            44..50 => Action::DeleteWorkload { name, pick },
            50..58 => Action::EvictOnWorker { name, pick },
            58..62 => Action::Suspend { name, kind },
            62..68 => Action::ChangeQueue { name, kind, queue: self.random.of(&QUEUES) },
            68..74 => Action::ChangePriority { name, kind, class: self.random.of(&CLASSES) },
            _ => {
                let ends = [PodEnd::Deleted, PodEnd::Failed, PodEnd::Succeeded];
                let end = self.random.of(if kind.serves() { &ends[..2] } else { &ends });
                Action::EndPod { name, pick, end }
            }
        }
    }

    /// Actions of administrators on queues and clusters.
    fn administer(&mut self) -> Action {
        let cluster = self.random.of(&[switchyard_e2e::fleet::HUB, WORKERS[0], WORKERS[1]]);
        let queue = self.random.of(&CLUSTER_QUEUES);
        match self.random.between(0, 99) {
            0..25 => {
                let policy = self.random.of(&[Policy::Hold, Policy::HoldAndDrain]);
                self.end_after(4, 20, Action::StopQueue { cluster, queue, policy: Policy::None });
                Action::StopQueue { cluster, queue, policy }
            }
            25..40 => {
                let queue = self.random.of(&QUEUES);
                let policy = self.random.of(&[Policy::Hold, Policy::HoldAndDrain]);
                self.end_after(
                    4,
                    20,
                    Action::StopLocalQueue { cluster, queue, policy: Policy::None },
                );
                Action::StopLocalQueue { cluster, queue, policy }
            }
            40..70 => {
                let usual = quota(cluster, queue);
                self.end_after(10, 60, Action::SetQuota { cluster, queue, cpu: usual });
                Action::SetQuota { cluster, queue, cpu: self.random.between(0, usual * 2) }
            }
            70..80 => Action::LeadQueue { to: self.random.of(&["a", "b"]) },
            _ => {
                let cluster = self.random.of(&WORKERS);
                let how =
                    self.random.of(&[Scheduling::Cordon, Scheduling::Drain, Scheduling::Drain]);
                self.end_after(6, 25, Action::Schedule { cluster, how: Scheduling::Uncordon });
                Action::Schedule { cluster, how }
            }
        }
    }

    fn restart(&mut self) -> Action {
        let program = self.random.of(&[switchyard_e2e::fleet::HUB, WORKERS[0], WORKERS[1]]);
        Action::Restart { program, away: self.random.millis(100, 6000) }
    }
}

impl Iterator for LifePlan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let at = self.now + self.random.millis(100, 1700);
        if self.ends.front().is_some_and(|end| end.at <= at)
            && let Some(end) = self.ends.pop_front()
        {
            self.now = self.now.max(end.at);
            return Some(end);
        }
        self.now = at;
        Some(Step { at, action: self.choose() })
    }
}

/// The actions that restore queues and clusters at the end of a run.
pub(crate) fn restore() -> Vec<Action> {
    let mut actions = vec![Action::LeadQueue { to: "a" }];
    for cluster in [switchyard_e2e::fleet::HUB, WORKERS[0], WORKERS[1]] {
        for queue in CLUSTER_QUEUES {
            actions.push(Action::SetQuota { cluster, queue, cpu: quota(cluster, queue) });
            actions.push(Action::StopQueue { cluster, queue, policy: Policy::None });
        }
        actions.extend(QUEUES.map(|queue| Action::StopLocalQueue {
            cluster,
            queue,
            policy: Policy::None,
        }));
    }
    actions.extend(WORKERS.map(|cluster| Action::Schedule { cluster, how: Scheduling::Uncordon }));
    actions.extend(NAMES.map(|name| Action::Activate { name }));
    actions
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn steps(seed: u64, count: usize) -> Vec<Step> {
        LifePlan::new(seed).take(count).collect()
    }

    #[test]
    fn a_seed_gives_the_same_plan_each_time() {
        assert_eq!(steps(7, 3000), steps(7, 3000));
        assert_ne!(steps(7, 50), steps(8, 50));
    }

    #[test]
    fn times_only_grow() {
        let steps = steps(1, 3000);
        assert!(steps.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let minutes = steps[2999].at.as_secs() / 60;
        assert!((20..60).contains(&minutes), "{minutes} minutes");
    }

    #[test]
    fn every_action_and_every_kind_comes() {
        let steps = steps(2, 2000);
        let actions: BTreeSet<&str> = steps.iter().map(|step| step.action.name()).collect();
        assert_eq!(actions.into_iter().collect::<Vec<_>>(), Action::NAMES);
        let created = steps.iter().filter_map(|step| match &step.action {
            Action::Create(subject) | Action::Recreate { subject, .. } => Some(subject.kind),
            _ => None,
        });
        assert_eq!(created.collect::<BTreeSet<_>>().len(), Kind::ALL.len());
    }

    #[test]
    fn a_job_fits_a_cluster_where_nothing_else_runs() {
        for step in steps(3, 3000) {
            if let Action::Create(subject) | Action::Recreate { subject, .. } = step.action {
                assert!(subject.size * subject.millicpu <= LARGEST, "{subject}");
            }
        }
        for queue in CLUSTER_QUEUES {
            assert!(LARGEST <= 1000 * quota("west", queue).min(quota("hub", queue)));
        }
    }

    #[test]
    fn a_job_is_created_where_there_is_none_of_its_name() {
        let mut live = BTreeSet::new();
        for step in steps(4, 3000) {
            match step.action {
                Action::Create(subject) => assert!(live.insert(subject.name), "{subject} is there"),
                Action::Delete { name, .. } => _ = live.remove(name),
                Action::Recreate { subject, .. } => _ = live.insert(subject.name),
                _ => {}
            }
        }
    }

    #[test]
    fn what_is_stopped_is_resumed_within_half_a_minute() {
        let mut stopped: BTreeMap<String, Duration> = BTreeMap::new();
        for step in steps(5, 3000) {
            let (key, stops) = match step.action {
                Action::StopQueue { cluster, queue, policy } => {
                    (format!("{cluster}/{queue}"), policy != Policy::None)
                }
                Action::StopLocalQueue { cluster, queue, policy } => {
                    (format!("{cluster}/local/{queue}"), policy != Policy::None)
                }
                Action::Schedule { cluster, how } => {
                    (cluster.to_owned(), how != Scheduling::Uncordon)
                }
                _ => continue,
            };
            if stops {
                stopped.insert(key, step.at);
            } else {
                let since = stopped.remove(&key).unwrap_or(step.at);
                assert!(
                    step.at - since <= Duration::from_secs(30),
                    "{key} stopped at {since:?} until {:?}",
                    step.at
                );
            }
        }
    }
}
