//! 200 jobs through ten queues in cohorts, with random ends. Admitted workloads never hold more than the quota tree allows. A
//! queue shows the sum of its workloads at a moment between its last status and its next. Whenever all is quiet, queues show
//! exactly the sum of their workloads.

mod agreement;
mod observer;
mod tree;

use std::time::Duration;

use crate::bed::{Bed, WAIT};
use crate::common::random;
use futures::future::{join_all, try_join_all};
use kube::{Api, ResourceExt};
use observer::{Observer, holdings};
use switchyard_api::v1beta2::{ClusterQueue, LocalQueue, Workload};
use switchyard_controller::workload;
use switchyard_e2e::random::Random;
use switchyard_e2e::{JobBuilder, fixture, job, queues, wait};
use tree::{Node, Tree};

/// How often all objects are read while things settle.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const ROUNDS: usize = 5;
const JOBS: usize = 40;
/// Jobs of each round that run until the round is over.
const HOLDERS: usize = 8;

/// The tree, by short names: nominal quota, borrowing limit, lending limit, all in CPUs.
fn tree() -> Tree {
    let node = |name: &str, parent: Option<&str>, nominal, borrowing, lending| {
        let (name, parent) = (name.to_owned(), parent.map(str::to_owned));
        Node { name, parent, nominal, borrowing, lending }
    };
    let mut nodes = vec![
        node("root", None, 4, None, None),
        node("x", Some("root"), 2, Some(4), None),
        node("y", Some("root"), 0, None, Some(3)),
    ];
    for (number, (parent, nominal, borrowing, lending)) in [
        (Some("x"), 2, None, None),
        (Some("x"), 2, Some(2), None),
        (Some("x"), 2, Some(1), Some(1)),
        (Some("x"), 0, None, None),
        (Some("y"), 2, None, Some(1)),
        (Some("y"), 2, Some(0), None),
        (Some("y"), 2, None, Some(0)),
        (Some("root"), 1, None, None),
        (Some("root"), 1, Some(3), Some(0)),
        (None, 3, None, None),
    ]
    .into_iter()
    .enumerate()
    {
        nodes.push(node(&format!("q{number}"), parent, nominal, borrowing, lending));
    }
    Tree(nodes)
}

/// The tree's objects on the API.
fn objects(bed: &Bed, tree: &Tree) -> Vec<serde_json::Value> {
    let cpus = |number: Option<i64>| number.map(|number| number.to_string());
    let object = |node: &Node| {
        let (nominal, flavor) = (node.nominal.to_string(), bed.name.as_str());
        let quota = [("cpu", nominal.as_str())];
        let (borrowing, lending) = (cpus(node.borrowing), cpus(node.lending));
        let parent = node.parent.as_ref().map(|name| bed.part(name));
        if node.is_queue() {
            let mut queue = queues::ClusterQueue::new(&bed.part(&node.name)).group(flavor, &quota);
            queue = queue.limits("cpu", borrowing.as_deref(), lending.as_deref());
            if let Some(parent) = &parent {
                queue = queue
                    .cohort(parent)
                    .preemption("Never", if parent.ends_with('x') { "Any" } else { "Never" });
            }
            queue.build()
        } else {
            let mut cohort = queues::Cohort::new(&bed.part(&node.name)).group(flavor, &quota);
            cohort = cohort.limits("cpu", borrowing.as_deref(), lending.as_deref());
            if let Some(parent) = &parent {
                cohort = cohort.parent(parent);
            }
            cohort.build()
        }
    };
    tree.0.iter().map(object).collect()
}

#[test]
fn usage_is_what_admitted_workloads_hold_at_every_moment() {
    fixture::run(async {
        let (seed, mut random) = random::seeded_by("USAGE_SEED");
        // Without this gate, as in Kueue, workloads may get quota that victims still hold.
        let bed =
            Bed::configured("usage", "featureGates: {AdmitIntoReleasedQuotaOnly: true}").await;
        let tree = tree();
        let doors: Vec<String> = tree.queues().map(|node| node.name.clone()).collect();
        bed.set_up(objects(&bed, &tree), &doors.iter().map(String::as_str).collect::<Vec<_>>())
            .await;
        let observer = Observer::start(&bed, tree.clone()).await;

        let (mut ending, mut holding): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (jobs, more_holding, more_ending) = jobs(&bed, &mut random, &doors, round);
            for created in join_all(jobs.into_iter().map(|job| job.create(bed.admin()))).await {
                created.unwrap();
            }
            holding.extend(more_holding);
            ending.extend(more_ending);
            settled(&bed, &doors, &holding).await;
            // Half of those that run for ever go, the others stay for the next round.
            for name in holding.drain(..holding.len() / 2) {
                bed.delete_job(&name).await;
            }
            settled(&bed, &doors, &holding).await;
        }
        for name in holding {
            bed.delete_job(&name).await;
        }
        let complete =
            ending.iter().map(|name| job::complete(bed.admin(), &bed.namespace, name, WAIT));
        try_join_all(complete).await.unwrap();
        settled(&bed, &doors, &[]).await;
        let seen = observer.finish().await;
        println!("{seen}");
        assert!(seen.violations.is_empty(), "seed {seed}:\n{}", seen.violations.join("\n"));
        let (statuses, apart) = seen.agreement.judged();
        println!(
            "{} of {statuses} statuses tell of no moment that the API showed\n{}",
            apart.len(),
            apart.join("\n")
        );
        assert!(apart.len() * 10 <= statuses, "seed {seed}: {} of {statuses}", apart.len());
        assert!(
            seen.workload_events >= 2 * ROUNDS * JOBS && seen.statuses >= doors.len(),
            "{seen}"
        );
    });
}

/// The jobs of one round, and the names of those that run until they are deleted and of those that end.
fn jobs(
    bed: &Bed,
    random: &mut Random,
    doors: &[String],
    round: usize,
) -> (Vec<JobBuilder>, Vec<String>, Vec<String>) {
    let (mut jobs, mut holding, mut ending) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..JOBS {
        let name = format!("r{round}-{number}");
        let (queue, cpus) = (random.pick::<String>(doors), random.pick(&["1", "1", "1", "2"]));
        let job = bed.job_in(queue, &name).cpu(cpus);
        let time = Duration::from_millis(50 + random.below(1500));
        if number < HOLDERS {
            jobs.push(job);
            holding.push(name);
        } else {
            jobs.push(job.run_for(time));
            ending.push(name);
        }
    }
    (jobs, holding, ending)
}

/// Waits until nothing is admitted but what runs for ever, and every ClusterQueue and LocalQueue shows exactly the sum of
/// the workloads.
async fn settled(bed: &Bed, doors: &[String], holders: &[String]) {
    let api: Api<ClusterQueue> = Api::all(bed.admin().clone());
    let local_api: Api<LocalQueue> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let check = async || {
        // To read all workloads is dear: not as often as one object.
        tokio::time::sleep(LOOK_EVERY).await;
        let before =
            (api.list(&Default::default()).await?, local_api.list(&Default::default()).await?);
        let workloads = bed.workloads().await;
        let after =
            (api.list(&Default::default()).await?, local_api.list(&Default::default()).await?);
        for name in doors {
            let expected = sums(bed, name, &workloads);
            // Read before and after the workloads, and the same: it is the status of that moment.
            let queue = unchanged(&bed.part(name), &before.0.items, &after.0.items)?;
            let shown = observer::shown(&queue.status.unwrap_or_default());
            anyhow::ensure!(
                shown == expected,
                "{name} shows {shown:?}, its workloads hold {expected:?}"
            );
            // Each ClusterQueue has one LocalQueue.
            let queue = unchanged(name, &before.1.items, &after.1.items)?;
            let shown = observer::shown_locally(&queue.status.unwrap_or_default());
            anyhow::ensure!(
                shown == expected,
                "LocalQueue {name} shows {shown:?}, its workloads hold {expected:?}"
            );
        }
        let runs = |workload: &&Workload| holdings(workload).is_some() && !is_of(workload, holders);
        let running = workloads.iter().filter(runs).count();
        anyhow::ensure!(running == 0, "{running} still run");
        Ok(())
    };
    wait::eventually(WAIT, "queues to show what their workloads hold", check).await.unwrap();
}

/// The object of this name, if both lists have it alike.
fn unchanged<K: ResourceExt + Clone>(name: &str, before: &[K], after: &[K]) -> anyhow::Result<K> {
    let find = |list: &[K]| list.iter().find(|it| it.name_any() == name).cloned();
    let (first, second) = (find(before), find(after));
    let first = first.ok_or_else(|| anyhow::anyhow!("no {name}"))?;
    let same = second.and_then(|it| it.resource_version()) == first.resource_version();
    anyhow::ensure!(same, "{name} is changing");
    Ok(first)
}

fn is_of(workload: &Workload, jobs: &[String]) -> bool {
    workload.metadata.owner_references.iter().flatten().any(|owner| jobs.contains(&owner.name))
}

fn sums(bed: &Bed, queue: &str, workloads: &[Workload]) -> observer::Shown {
    let mut sums = observer::Shown::default();
    let full = bed.part(queue);
    for one in workloads {
        match holdings(one) {
            Some(held) if held.cluster_queue == full => {
                sums.reserved += held.milli;
                sums.reserving += 1;
                if held.admitted {
                    sums.used += held.milli;
                    sums.admitted += 1;
                }
            }
            Some(_) => {}
            None if workload::queue_name(one) == queue && !workload::is_finished(one) => {
                sums.pending += 1
            }
            None => {}
        }
    }
    sums
}
