//! A hub with many clusters: their queues, their agents, and what the hub uses.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use switchyard_api::conditions;
use switchyard_api::v1beta2::{ClusterQueue, LocalQueue, MultiKueueCluster};
use switchyard_e2e::Progress;
use switchyard_e2e::fleet::{Fleet, HUB};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{JobBuilder, Process, queues};

use super::agent::{Agent, Board, QUEUE, Room};

/// Clusters that one MultiKueueConfig may list.
const GROUP: usize = 20;
/// Jobs created at once.
const CREATORS: usize = 16;
const SOON: Duration = Duration::from_secs(300);

/// Some clusters with one ClusterQueue on the hub. All have the group's name.
pub(crate) struct Group {
    pub(crate) name: String,
    clusters: Vec<(String, i64)>,
}

impl Group {
    /// Jobs that fit into all its clusters.
    pub(crate) fn room(&self) -> i64 {
        self.clusters.iter().map(|(_, jobs)| jobs).sum()
    }
}

/// A hub without workers of its own, and clusters that only exist as agents.
pub(crate) struct Many {
    pub(crate) fleet: Fleet,
    pub(crate) groups: Vec<Group>,
    pub(crate) board: Board,
    agents: Vec<Agent>,
}

impl Many {
    /// The hub and the objects of clusters with room for so many jobs each. No agent is connected yet. Held queues admit
    /// nothing until [`Many::release`].
    ///
    /// # Errors
    /// When a component does not come up.
    pub(crate) async fn start(name: &str, rooms: &[i64], held: bool) -> anyhow::Result<Self> {
        let fleet = Fleet::builder(name).start().await?;
        let clusters: Vec<(String, i64)> = rooms
            .iter()
            .enumerate()
            .map(|(number, room)| (format!("c{number:04}"), *room))
            .collect();
        for chunk in clusters.chunks(50) {
            fleet.hub().apply(chunk.iter().map(|(name, _)| queues::agent_cluster(name))).await?;
        }
        let mut groups = Vec::new();
        for (number, clusters) in clusters.chunks(GROUP).enumerate() {
            let group = Group { name: format!("group-{number:03}"), clusters: clusters.to_vec() };
            make(&fleet, &group, held).await?;
            groups.push(group);
        }
        Ok(Self { fleet, groups, board: Board::default(), agents: Vec::new() })
    }

    /// Enrols and connects the agents. Gives how long that took.
    ///
    /// # Errors
    /// When one does not connect.
    pub(crate) async fn connect(&mut self) -> anyhow::Result<Duration> {
        let count = self.clusters();
        let (mut progress, start) = (Progress::new("agents", count), Instant::now());
        for group in &self.groups {
            for (name, jobs) in &group.clusters {
                progress.at(self.agents.len());
                let token = self.fleet.join_token(name).await?;
                let room = Room { namespace: group.name.clone(), jobs: *jobs };
                self.agents.push(Agent::start(&token, room, self.board.clone()).await?);
            }
        }
        self.connected().await?;
        let took = start.elapsed();
        for group in &self.groups {
            self.active(group).await?;
        }
        Ok(took)
    }

    /// How many clusters there are.
    pub(crate) fn clusters(&self) -> usize {
        self.groups.iter().map(|group| group.clusters.len()).sum()
    }

    /// Waits until the hub says that all are connected.
    pub(crate) async fn connected(&self) -> anyhow::Result<()> {
        let count = self.clusters();
        let clusters: Api<MultiKueueCluster> = Api::all(self.fleet.hub().admin.clone());
        eventually(SOON, format!("{count} clusters to be connected"), async || {
            let all = clusters.list(&ListParams::default()).await?.items;
            let active = |it: &&MultiKueueCluster| {
                it.status.as_ref().is_some_and(|status| {
                    conditions::is_true(&status.conditions, conditions::ACTIVE)
                })
            };
            let connected = all.iter().filter(active).count();
            ensure!(connected == count, "{connected} are");
            Ok(())
        })
        .await
    }

    /// Waits until the hub has a group's queue under its care.
    async fn active(&self, group: &Group) -> anyhow::Result<()> {
        let queues: Api<LocalQueue> = Api::namespaced(self.fleet.hub().admin.clone(), &group.name);
        eventually(SOON, format!("the LocalQueue of {}", group.name), async || {
            let status = queues.get(QUEUE).await?.status.unwrap_or_default();
            let active = conditions::find(&status.conditions, conditions::ACTIVE);
            // A held queue says why it is not active, which is as good.
            ensure!(active.is_some(), "{:?}", status.conditions);
            Ok(())
        })
        .await
    }

    /// Creates so many jobs for each that fits, some at a time. Their names are unique in the fleet.
    ///
    /// # Errors
    /// When the hub refuses one.
    pub(crate) async fn submit(&self, per_room: impl Fn(i64) -> i64) -> anyhow::Result<usize> {
        let jobs: Vec<(&str, i64)> = self
            .groups
            .iter()
            .flat_map(|group| {
                (0..per_room(group.room())).map(|number| (group.name.as_str(), number))
            })
            .collect();
        let mut progress = Progress::new("jobs created", jobs.len());
        let client = &self.fleet.hub().admin;
        let mut creating = futures::stream::iter(jobs.iter().enumerate())
            .map(async |(index, (group, number))| {
                let job =
                    JobBuilder::new(group, &format!("{group}-{number}")).queue(QUEUE).cpu("1");
                job.create(client).await.with_context(|| format!("job {index}"))?;
                anyhow::Ok(index)
            })
            .buffer_unordered(CREATORS);
        while let Some(index) = creating.try_next().await? {
            progress.at(index);
        }
        Ok(jobs.len())
    }

    /// Lets held queues admit.
    ///
    /// # Errors
    /// When an API server refuses.
    pub(crate) async fn release(&self) -> anyhow::Result<()> {
        let queues: Api<ClusterQueue> = Api::all(self.fleet.hub().admin.clone());
        let patch = Patch::Merge(json!({"spec": {"stopPolicy": "None"}}));
        let patches = self.groups.iter().map(async |group| {
            queues.patch(&group.name, &PatchParams::default(), &patch).await.map(drop)
        });
        futures::future::try_join_all(patches).await?;
        Ok(())
    }

    /// CPU time of the hub so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        self.fleet.with(HUB, Process::cpu_time)?
    }

    /// How often the hub stopped leading because its API server did not answer in time, as its log says. Each time all
    /// sessions start again: figures of that time show how busy the machine was.
    pub(crate) fn leadership_lost(&self) -> anyhow::Result<usize> {
        self.fleet.with(HUB, |hub| hub.log().matches("leadership lost").count())
    }

    /// Resident memory of the hub in bytes: now, and the most that there was.
    pub(crate) fn memory(&self) -> anyhow::Result<(u64, u64)> {
        Ok((self.fleet.with(HUB, Process::rss)??, self.fleet.with(HUB, Process::peak_rss)??))
    }
}

async fn make(fleet: &Fleet, group: &Group, held: bool) -> anyhow::Result<()> {
    let name = group.name.as_str();
    let clusters: Vec<&str> = group.clusters.iter().map(|(name, _)| name.as_str()).collect();
    let quota = group.room().to_string();
    let queue =
        queues::ClusterQueue::new(name).group(name, &[("cpu", &quota)]).admission_check(name);
    let queue = if held { queue.stop_policy("Hold") } else { queue };
    let mut objects =
        vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})];
    objects.extend(queues::multikueue(name, &clusters));
    objects.extend([
        queues::ResourceFlavor::new(name).build(),
        queue.build(),
        queues::local_queue(name, QUEUE, name),
    ]);
    fleet.hub().apply(objects).await.map(drop)
}
