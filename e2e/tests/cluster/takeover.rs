//! A cluster in full use moves from stock Kueue to Switchyard and back, as `docs/migrate.md` says it.
mod explained;
mod figures;
mod site;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use clap::Parser as _;
use site::{FULL, STRICT, Site, WAIT, has};
use snapshot::Snapshot;
use switchyard_api::conditions::QUOTA_RESERVED;
use switchyard_e2e::single::Single;
use switchyard_e2e::stock::{Kueue, Options};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, NodeSpec, fixture};

#[test]
fn a_cluster_moves_from_stock_kueue_to_switchyard_and_back() {
    fixture::run(async {
        let nodes = [
            NodeSpec::new("reserved").cpu(128).memory("512Gi").label("pool", "reserved"),
            NodeSpec::new("spot").cpu(32).label("pool", "spot").taint("spot", "true", "NoSchedule"),
        ];
        let environment =
            Environment::builder("takeover").cluster(ClusterSpec::new("one").nodes(nodes));
        let environment = environment.start().await.unwrap();
        let cluster = environment.cluster("one");

        let kueue = start_kueue(cluster).await;
        let site = Site::make(cluster).await.unwrap();
        explained::by_what_kueue_wrote(&site).await;
        let first = goes_on(&site, "first").await;

        let before = Snapshot::take(&site).await.unwrap();
        stop_kueue(cluster, kueue).await;
        let switchyard = start_switchyard(cluster).await;
        unchanged(&site, &before, "to-switchyard").await;
        gives_back(&site, "second", first.last().unwrap()).await;
        let second = goes_on(&site, "second").await;

        let before = Snapshot::take(&site).await.unwrap();
        stop_switchyard(cluster, switchyard).await;
        // Kueue decides while it still reads its queues: a cohort of which it has seen a part may have room that there is not.
        site.stop_policy("Hold").await.unwrap();
        let _kueue = start_kueue(cluster).await;
        site.active(false).await.unwrap();
        site.stop_policy("None").await.unwrap();
        site.active(true).await.unwrap();
        unchanged(&site, &before, "to-kueue").await;
        gives_back(&site, "third", second.last().unwrap()).await;
        goes_on(&site, "third").await;
    });
}

pub(crate) async fn start_kueue(cluster: &Cluster) -> Kueue {
    Kueue::start(cluster, &Options { webhooks: true, ..Options::default() }).await.unwrap()
}

pub(crate) async fn stop_kueue(cluster: &Cluster, kueue: Kueue) {
    kueue.stop().await;
    Kueue::unregister(cluster).await.unwrap();
}

pub(crate) async fn start_switchyard(cluster: &Cluster) -> Single {
    cluster.install().await.unwrap();
    Single::start(cluster).await.unwrap()
}

pub(crate) async fn stop_switchyard(cluster: &Cluster, switchyard: Single) {
    assert_eq!(switchyard.stop().await, Some(0));
    Single::unregister(cluster).await.unwrap();
    let kubeconfig = cluster.kubeconfig().to_str().unwrap();
    let args = ["switchyard", "--kubeconfig", kubeconfig, "hand-back"];
    let mut out = Vec::new();
    switchyard::run(switchyard::Args::try_parse_from(args).unwrap(), &mut out).await.unwrap();
    println!("{}", String::from_utf8(out).unwrap());
}

/// The new controller has seen everything, admits jobs that fit, queues others, and has changed nothing else.
async fn unchanged(site: &Site<'_>, before: &Snapshot, stem: &str) {
    let names = FULL.map(|queue| (format!("{stem}-{queue}"), queue));
    let fits = (format!("{stem}-fits"), "roomy");
    site.create(names.iter().chain([&fits]).map(|(name, queue)| site.job(name, queue)))
        .await
        .unwrap();
    site.runs(&fits.0).await.unwrap();
    for (name, _) in &names {
        site.waits(name).await.unwrap();
    }
    site.settled().await.unwrap();
    for (name, _) in names.iter().chain([&fits]) {
        site.delete(name).await.unwrap();
    }
    site.settled().await.unwrap();
    let changes = before.changes(&Snapshot::take(site).await.unwrap());
    assert!(changes.is_empty(), "{stem}: {} changes:\n{}", changes.len(), changes.join("\n"));
}

/// Running jobs end, one of each queue and then several at once: as many start, in the order of each queue. Gives the
/// jobs that started.
async fn goes_on(site: &Site<'_>, stage: &str) -> BTreeSet<String> {
    let mut started = BTreeSet::new();
    for queue in FULL {
        started.extend(ends_and_starts(site, stage, &BTreeMap::from([(queue, 1)])).await);
    }
    started.extend(ends_and_starts(site, stage, &FULL.map(|queue| (queue, 2)).into()).await);
    site.settled().await.unwrap();
    site.steady().await.unwrap();
    started
}

async fn ends_and_starts(
    site: &Site<'_>,
    stage: &str,
    ends: &BTreeMap<&str, usize>,
) -> BTreeSet<String> {
    let moment = Moment::of(site).await;
    let ended =
        ends.iter().flat_map(|(queue, count)| moment.holders[*queue].iter().take(*count).cloned());
    let ended: BTreeSet<String> = ended.collect();
    site.finish(&ended).await.unwrap();
    moment.starts(site, stage, ended.len()).await
}

/// A job that another program admitted is evicted when it is deactivated: its quota goes to the next, and it waits again
/// once it is active, before all others.
async fn gives_back(site: &Site<'_>, stage: &str, job: &str) {
    println!("{stage}: {job} gives its quota back");
    let moment = Moment::of(site).await;
    site.set_active(job, false).await.unwrap();
    eventually(WAIT, format!("{stage}: {job} to have no quota"), async || {
        let workload = site.workload(job).await?;
        let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
        ensure!(!has(&workload, QUOTA_RESERVED) && admission.is_none(), "{:?}", workload.status);
        Ok(())
    })
    .await
    .unwrap();
    moment.starts(site, stage, 1).await;
    site.set_active(job, true).await.unwrap();
    site.settled().await.unwrap();
}

/// Jobs with quota, and jobs that wait for it.
struct Moment {
    order: BTreeMap<String, Vec<String>>,
    holders: BTreeMap<String, BTreeSet<String>>,
}

impl Moment {
    async fn of(site: &Site<'_>) -> Self {
        Self { order: site.order().await.unwrap(), holders: site.holders().await.unwrap() }
    }

    /// Waits until so many jobs have started since, and checks that each was next in its queue.
    async fn starts(&self, site: &Site<'_>, stage: &str, count: usize) -> BTreeSet<String> {
        let started = eventually(WAIT, format!("{stage}: {count} jobs to start"), async || {
            let mut started = site.holders().await?;
            for (queue, holders) in &mut started {
                holders.retain(|job| !self.holders[queue].contains(job));
            }
            let number = started.values().map(BTreeSet::len).sum::<usize>();
            ensure!(number == count, "{number}: {started:?}");
            Ok(started)
        });
        let started = started.await.unwrap();
        for queue in STRICT {
            let order = &self.order[queue];
            let first: BTreeSet<String> =
                order.iter().take(started[queue].len()).cloned().collect();
            assert_eq!(
                started[queue], first,
                "{stage}: started in {queue}, whose order is {order:?}"
            );
        }
        started.into_values().flatten().collect()
    }
}
