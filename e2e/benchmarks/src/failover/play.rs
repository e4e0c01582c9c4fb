//! One fault on one system, from its jobs' beginning to their end.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use switchyard_api::conditions;
use switchyard_api::v1beta2::Workload;
use switchyard_e2e::job;
use switchyard_e2e::wait::eventually;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Fault;
use super::observer::{LOOK, Observer};
use super::queues::{self, NAMESPACE};
use super::row::Row;
use super::site::{EAST, Group, Site, WEST};
use super::track::{Look, Track};

const SOON: Duration = Duration::from_secs(180);
/// A fault lasts for so long after the last job that may go elsewhere runs there.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// A fault that the hub has not seen for so long will not be seen.
const UNSEEN: Duration = Duration::from_secs(60);
/// All is well when it has been so for this long.
const CALM: Duration = Duration::from_secs(5);
/// How often progress is printed.
const TELL: Duration = Duration::from_secs(10);
/// An answer of the hub that takes longer is given up.
const ANSWER: Duration = Duration::from_secs(5);

/// How long each part may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Length of a fault that lasts until all jobs run elsewhere, at most.
    pub(super) outage: Duration,
    /// Until all is well after a fault.
    pub(super) heal: Duration,
}

/// Plays a fault on a system whose workers are empty, and leaves them empty.
///
/// # Errors
/// When the jobs do not begin, or something cannot be killed or started.
pub(super) async fn play(
    site: &mut Site,
    fault: Fault,
    turn: usize,
    limits: Limits,
) -> anyhow::Result<Vec<Row>> {
    fill(site, turn).await?;
    site.seasoned().await;
    let mut scene = Scene::new(site, turn);
    eventually(SOON, format!("all jobs to be on {WEST} alone"), async || {
        scene.look(site).await?;
        ensure!(scene.on_west(), "they are not");
        Ok(())
    })
    .await?;
    eprintln!("    {} jobs run on {WEST}; {}", scene.jobs(), fault.name());
    scene.begin();
    site.strike(fault)?;
    scene.during(site, fault, limits).await?;
    let lasted = scene.seconds();
    scene.end();
    site.restore().await?;
    eprintln!("    over after {lasted:.1} s");
    let probe = tokio::spawn(probe(site.hub().admin.clone(), format!("probe-{turn}")));
    scene.after(site, &probe, limits).await?;
    probe.abort();
    let rows = scene.rows(site, fault, lasted);
    for row in &rows {
        eprintln!("    {}", row.cells().join(" | "));
    }
    // After a cut, the next fault gets a fresh system.
    if rows.iter().all(|row| !row.cut) {
        clear(site).await?;
    }
    Ok(rows)
}

/// Puts all jobs on west.
async fn fill(site: &Site, turn: usize) -> anyhow::Result<()> {
    let (west, east) = (site.cluster(WEST), site.cluster(EAST));
    queues::admits(west, true).await?;
    queues::admits(east, false).await?;
    let mut names = BTreeSet::new();
    for group in site.groups() {
        for index in 0..site.count {
            let name = queues::name(group, turn, index);
            queues::job(group, &name).create(&site.hub().admin).await?;
            names.insert(name);
        }
    }
    let observer = Observer::start([west]);
    eventually(SOON, format!("all jobs to run on {WEST}"), async || {
        let running = observer.of(WEST).running;
        ensure!(running == names, "{} of {} run", running.len(), names.len());
        Ok(())
    })
    .await?;
    let workloads: Api<Workload> = Api::namespaced(site.hub().admin.clone(), NAMESPACE);
    eventually(SOON, "all jobs to be admitted on the hub", async || {
        let all = workloads.list(&ListParams::default()).await?.items;
        let admitted = |workload: &&Workload| {
            let known = workload
                .status
                .as_ref()
                .map(|status| status.conditions.as_slice())
                .unwrap_or_default();
            conditions::is_true(known, conditions::ADMITTED)
        };
        let count = all.iter().filter(admitted).count();
        ensure!(count == names.len(), "{count} of {}", names.len());
        Ok(())
    })
    .await?;
    queues::admits(east, true).await
}

/// Deletes all jobs, and waits until nothing of them is left anywhere.
async fn clear(site: &Site) -> anyhow::Result<()> {
    queues::jobs(site.hub())
        .delete_collection(&DeleteParams::background(), &ListParams::default())
        .await?;
    for cluster in [site.hub(), site.cluster(WEST), site.cluster(EAST)] {
        let workloads: Api<Workload> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
        eventually(SOON, format!("nothing to be left on {}", cluster.name()), async || {
            let jobs = queues::jobs(cluster).list_metadata(&ListParams::default()).await?.items;
            let left: Vec<String> = jobs.iter().map(ResourceExt::name_any).collect();
            let workloads = workloads.list_metadata(&ListParams::default()).await?.items.len();
            ensure!(left.is_empty() && workloads == 0, "jobs {left:?}, {workloads} Workloads");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// A new job, which completes when the system works. Tried again until it is taken: the hub's webhooks may be away.
async fn probe(hub: Client, name: String) {
    let jobs: Api<Job> = Api::namespaced(hub.clone(), NAMESPACE);
    loop {
        match jobs.get_opt(&name).await {
            Ok(Some(found)) if job::has_condition(&found, "Complete") => return,
            // Refused or not answered, it is made again.
            Ok(None) => drop(queues::probe(&name).create(&hub).await),
            Ok(Some(_)) | Err(_) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The watched parts.
struct Scene {
    observer: Observer,
    groups: Vec<(Group, Track)>,
    start: Instant,
    told: Duration,
    seen: Option<f64>,
    active: bool,
}

impl Scene {
    fn new(site: &Site, turn: usize) -> Self {
        let of = |group: &Group| {
            let names = (0..site.count).map(|index| queues::name(group, turn, index));
            (*group, Track::new(names))
        };
        let groups = site.groups().iter().map(of).collect();
        let observer = Observer::start([site.cluster(WEST), site.cluster(EAST)]);
        Self {
            observer,
            groups,
            start: Instant::now(),
            told: Duration::ZERO,
            seen: None,
            active: true,
        }
    }

    fn jobs(&self) -> usize {
        self.groups.iter().map(|(_, track)| track.len()).sum()
    }

    fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn on_west(&self) -> bool {
        self.groups.iter().all(|(_, track)| track.on_west())
    }

    /// The fault begins now.
    fn begin(&mut self) {
        (self.start, self.told, self.seen, self.active) =
            (Instant::now(), Duration::ZERO, None, true);
        self.groups.iter_mut().for_each(|(_, track)| track.begin());
    }

    /// The fault ends now.
    fn end(&mut self) {
        (self.start, self.told) = (Instant::now(), Duration::ZERO);
        self.groups.iter_mut().for_each(|(_, track)| track.end());
    }

    /// Looks once.
    async fn look(&mut self, site: &Site) -> anyhow::Result<()> {
        let active = tokio::time::timeout(ANSWER, site.active(WEST))
            .await
            .context("the hub does not answer")??;
        if self.active && !active {
            self.seen.get_or_insert(self.start.elapsed().as_secs_f64());
        }
        self.active = active;
        let look = Look { west: self.observer.of(WEST), east: self.observer.of(EAST) };
        for (_, track) in &mut self.groups {
            track.take(&look, self.start.elapsed());
        }
        if self.start.elapsed() >= self.told + TELL {
            self.told = self.start.elapsed();
            let told = self.groups.iter().map(|(group, track)| format!("{}: {track}", group.stem));
            let told: Vec<String> = told.collect();
            let active = if self.active { "active" } else { "not active" };
            eprintln!("    {:>4} s: {WEST} {active}; {}", self.told.as_secs(), told.join("; "));
        }
        Ok(())
    }

    /// Looks until the fault is to end.
    async fn during(
        &mut self,
        site: &mut Site,
        fault: Fault,
        limits: Limits,
    ) -> anyhow::Result<()> {
        let mut gone = None;
        loop {
            tokio::time::sleep(LOOK).await;
            site.tend()?;
            self.look(site).await?;
            let elapsed = self.start.elapsed();
            let moving = self.groups.iter().filter(|(group, _)| group.moves);
            let all = moving.map(|(_, track)| track.moved()).collect::<Option<Vec<f64>>>();
            if all.is_some() {
                gone.get_or_insert(elapsed);
            }
            let over = match fault.lasts() {
                Some(time) => elapsed >= time,
                None => {
                    let unseen = self.seen.is_none() && elapsed >= UNSEEN;
                    unseen
                        || elapsed >= limits.outage
                        || gone.is_some_and(|gone| elapsed >= gone + AFTERWARDS)
                }
            };
            if over {
                return Ok(());
            }
        }
    }

    /// Looks until all has been well for a while, or the time is over.
    async fn after(
        &mut self,
        site: &mut Site,
        probe: &JoinHandle<()>,
        limits: Limits,
    ) -> anyhow::Result<()> {
        loop {
            tokio::time::sleep(LOOK).await;
            site.tend()?;
            self.look(site).await?;
            let works = self.active && probe.is_finished();
            let elapsed = self.start.elapsed();
            self.groups.iter_mut().for_each(|(_, track)| track.well(works, elapsed));
            let calm = |track: &Track| track.healed().is_some_and(|at| elapsed >= at + CALM);
            if self.groups.iter().all(|(_, track)| calm(track)) || elapsed >= limits.heal {
                return Ok(());
            }
        }
    }

    fn rows(&self, site: &Site, fault: Fault, lasted: f64) -> Vec<Row> {
        let row = |(group, track): &(Group, Track)| Row {
            system: site.system,
            policy: group.policy,
            fault,
            jobs: track.len(),
            lasted,
            seen: self.seen,
            moved: track.moved(),
            healed: track.healed().map(|at| at.as_secs_f64()),
            twice: track.twice(),
            anew: track.anew(),
            lost: track.lost(),
            still: track.still(),
            cut: track.healed().is_none(),
            failed: false,
        };
        self.groups.iter().map(row).collect()
    }
}
