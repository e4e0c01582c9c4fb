//! The effect of an attack on a well-meaning tenant: the time from its Jobs' creation to their pods, quiet and attacked.
//!
//! The attack has agents that flood, sessions that come and go, and jobs that wait for the attacker's clusters. It also has
//! objects with forged marks on the hub and on the worker that the well-meaning tenant uses.

mod flood;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::json;
use switchyard_e2e::Progress;
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::{ClusterSpec, NodeSpec, Process, queues};
use switchyard_flags::bench::adversary::Args;
use tokio::sync::watch;

use self::flood::{Agent, Flood, Script, Sent};
use self::report::Report;
use super::document::Document;
use super::timeline::{Step, Timeline, Watches};
use crate::quantiles::Quantiles;

const WORKER: &str = "west";
/// The LocalQueue of jobs that wait.
const QUEUE: &str = "main";
const BRIEF: Duration = Duration::from_millis(200);
/// Between two of the tenant's jobs, and between two of the forger's.
const EVERY: Duration = Duration::from_secs(1);
/// The first jobs are not counted: watches, caches and connections begin.
const WARM: usize = 5;
const LOOK: Duration = Duration::from_millis(20);
/// Creations at once.
const CREATORS: usize = 16;

/// The measurements of one phase.
struct Phase {
    jobs: usize,
    cut: bool,
    took: Duration,
    waits: Quantiles,
    /// CPU of the hub.
    hub: Duration,
    /// By [`Flood::ALL`].
    sent: Vec<u64>,
    forged: usize,
}

/// Both phases.
struct Outcome {
    quiet: Phase,
    attacked: Phase,
}

/// Runs both phases and prints a table.
///
/// # Errors
/// When something does not run, or a session of the worker ended.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let settings = json!({
        "jobs": args.jobs, "waiting": args.waiting, "ratePerSecond": args.rate, "limitSeconds": args.limit,
    });
    let mut document = Document::new("adversary", &settings)?;
    eprintln!("==> adversary: control planes");
    let worker = ClusterSpec::new(WORKER).node(NodeSpec::new("n1").cpu(64));
    let fleet = Fleet::builder("bench-adversary").agent(worker).start().await?;
    let mut clusters = vec![queues::agent_cluster(WORKER)];
    clusters.extend(Flood::ALL.iter().map(|flood| queues::agent_cluster(flood.name())));
    fleet.hub().apply(clusters).await?;
    fleet.connect().await?;
    let outcome = Run::start(&fleet, args).await?.both().await?;
    let report = Report(&outcome);
    println!("\n{report}");
    document.add(report.json(), args.json.as_deref())
}

struct Run<'a> {
    args: &'a Args,
    fleet: &'a Fleet,
    honest: Tenant<'a>,
    forger: Tenant<'a>,
    hub_id: String,
    timeline: Arc<Mutex<Timeline>>,
    watches: Watches,
    sent: Sent,
    floods: watch::Sender<bool>,
    _agents: Vec<Agent>,
}

impl<'a> Run<'a> {
    async fn start(fleet: &'a Fleet, args: &'a Args) -> anyhow::Result<Self> {
        let quota = [("cpu", "32")];
        let honest = fleet.tenant("honest").hub(&quota).worker(WORKER, &quota).make().await?;
        let forger = fleet.tenant("forger").hub(&quota).worker(WORKER, &quota).make().await?;
        let system: Api<Namespace> = Api::all(fleet.hub().admin.clone());
        let hub_id = system.get("kube-system").await?.uid().context("kube-system has no uid")?;
        let timeline = Arc::new(Mutex::new(Timeline::new(2 * (WARM + args.jobs))));
        let watches = Watches::pods_of(fleet.worker(WORKER), honest.name(), &timeline).await?;
        let (floods, on) = watch::channel(false);
        let (sent, mut agents) = (Sent::new(), Vec::new());
        for flood in Flood::ALL {
            let (namespace, queue) = (crowd(flood), QUEUE.to_owned());
            let script = Script { flood, rate: args.rate, namespace, queue, sent: sent.clone() };
            agents.push(
                Agent::start(&fleet.join_token(flood.name()).await?, script, on.clone()).await?,
            );
        }
        for flood in Flood::ALL {
            fleet.connected(flood.name()).await?;
        }
        let run = Self {
            args,
            fleet,
            honest,
            forger,
            hub_id,
            timeline,
            watches,
            sent,
            floods,
            _agents: agents,
        };
        run.crowds().await?;
        Ok(run)
    }

    /// Jobs that wait for the attacker's clusters, as many for each.
    async fn crowds(&self) -> anyhow::Result<()> {
        let each = self.args.waiting / Flood::ALL.len();
        eprintln!(
            "==> adversary: {} jobs that wait for the attacker's clusters",
            each * Flood::ALL.len()
        );
        for flood in Flood::ALL {
            let (name, hub) = (crowd(flood), self.fleet.hub());
            hub.apply([
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            ])
            .await?;
            hub.apply(queues::multikueue(&name, &[flood.name()])).await?;
            let quota = [("cpu", "100000")];
            let queue = queues::ClusterQueue::new(&name)
                .group(&name, &quota)
                .admission_check(&name)
                .build();
            let flavor = queues::ResourceFlavor::new(&name).build();
            hub.apply([flavor, queue, queues::local_queue(&name, QUEUE, &name)]).await?;
        }
        let jobs = Flood::ALL
            .into_iter()
            .flat_map(|flood| (0..each).map(move |number| (crowd(flood), number)));
        futures::stream::iter(jobs)
            .map(async |(namespace, number)| {
                let job = switchyard_e2e::JobBuilder::new(&namespace, &format!("waits-{number}"))
                    .queue(QUEUE)
                    .cpu("1");
                self.fleet.hub().apply([job.suspended().build()]).await
            })
            .buffer_unordered(CREATORS)
            .try_collect::<Vec<_>>()
            .await?;
        Ok(())
    }

    async fn both(self) -> anyhow::Result<Outcome> {
        self.timeline.lock().begin();
        let before = self.session().await?;
        let quiet = self.phase("quiet", 0, false).await?;
        self.floods.send_replace(true);
        let attacked = self.phase("attacked", WARM + self.args.jobs, true).await?;
        self.floods.send_replace(false);
        ensure!(self.session().await? == before, "the session of {WORKER} ended");
        Ok(Outcome { quiet, attacked })
    }

    async fn session(&self) -> anyhow::Result<String> {
        let clusters: Api<switchyard_api::v1beta2::MultiKueueCluster> =
            Api::all(self.fleet.hub().admin.clone());
        let agent =
            clusters.get(WORKER).await?.status.and_then(|status| status.agent).unwrap_or_default();
        agent.session_id.with_context(|| format!("{WORKER} has no session"))
    }

    fn sent(&self) -> Vec<u64> {
        Flood::ALL.iter().map(|flood| self.sent.of(*flood)).collect()
    }

    async fn phase(&self, title: &str, first: usize, attacked: bool) -> anyhow::Result<Phase> {
        let (jobs, counted) = (WARM + self.args.jobs, first + WARM..first + WARM + self.args.jobs);
        eprintln!("==> adversary, {title}: a job each second, {jobs} of them");
        let mut progress = Progress::new("jobs with a pod", jobs);
        let (start, sent) = (tokio::time::Instant::now(), self.sent());
        let cpu = self.fleet.with(HUB, Process::cpu_time)??;
        for number in 0..jobs {
            tokio::time::sleep_until(start + EVERY * u32::try_from(number)?).await;
            let job =
                self.honest.job(&format!("job-{:05}", first + number)).cpu("100m").run_for(BRIEF);
            self.timeline.lock().created(first + number, Instant::now());
            self.honest.submit(job).await?;
            if attacked {
                self.forge(number).await?;
            }
            progress.at(self.pods(first..first + number + 1));
            self.watches.check()?;
        }
        let mut cut = false;
        while self.pods(first..first + jobs) < jobs && !cut {
            self.watches.check()?;
            cut = start.elapsed() >= self.args.limit_duration();
            tokio::time::sleep(LOOK).await;
        }
        let (took, hub) =
            (start.elapsed(), self.fleet.with(HUB, Process::cpu_time)??.saturating_sub(cpu));
        let waits = Quantiles::of(self.timeline.lock().waits_of(Step::Pod, counted));
        let sent =
            self.sent().iter().zip(sent).map(|(now, before)| now.saturating_sub(before)).collect();
        let forged = if attacked { 2 * jobs } else { 0 };
        Ok(Phase { jobs: self.args.jobs, cut, took, waits, hub, sent, forged })
    }

    fn pods(&self, jobs: std::ops::Range<usize>) -> usize {
        self.timeline.lock().waits_of(Step::Pod, jobs).len()
    }

    /// A job whose template has forged marks, and a pod on the worker that has them.
    async fn forge(&self, number: usize) -> anyhow::Result<()> {
        let uids = ["x".to_owned(), String::new(), "x".repeat(130), "ж".to_owned()];
        let (uid, highest) = (&uids[number % uids.len()], u64::MAX.to_string());
        let job = self.forger.job(&format!("template-{number}")).cpu("100m").run_for(BRIEF);
        let job = job.pod_label("switchyard.dev/hub-id", &self.hub_id);
        let job = job.pod_annotation("switchyard.dev/workload-uid", uid);
        self.forger.submit(job.pod_annotation("switchyard.dev/attempt", &highest)).await?;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("bare-{number}"), "namespace": self.forger.name(),
                "labels": {"switchyard.dev/hub-id": self.hub_id},
                "annotations": {"switchyard.dev/workload-uid": uid, "switchyard.dev/attempt": highest},
            },
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        self.fleet.worker(WORKER).apply([pod]).await.map(drop)
    }
}

/// The namespace, and the name of the queues, of jobs for an attacker's cluster.
fn crowd(flood: Flood) -> String {
    format!("crowd-{}", flood.name())
}
