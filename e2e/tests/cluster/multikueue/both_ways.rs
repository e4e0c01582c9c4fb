//! A stock MultiKueue manager with two workers moves to Switchyard and back, with jobs that run, wait on the workers, and
//! wait on the manager.

use std::collections::BTreeMap;

use anyhow::ensure;
use clap::Parser as _;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use switchyard_api::conditions;
use switchyard_api::v1beta2::ClusterQueue;
use switchyard_e2e::fleet::{Fleet, HUB, NAMESPACE};
use switchyard_e2e::single::Single;
use switchyard_e2e::stock::{self, Kueue, Options};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, fixture, queues};

use super::{SOON, pods, sent};

const WORKERS: [&str; 2] = ["west", "east"];

/// The pods of each job that run, as `cluster/uid`.
async fn places(fleet: &Fleet, namespace: &str) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for worker in WORKERS {
        for (job, pods) in pods(fleet.worker(worker), namespace).await? {
            let running = pods.into_iter().filter(|(_, runs)| *runs);
            let place = running.map(|(uid, _)| format!("{worker}/{uid}"));
            places.entry(job).or_default().extend(place);
        }
    }
    places.retain(|_, pods| !pods.is_empty());
    Ok(places)
}

/// Waits until these jobs run, and no others. Each has one pod.
async fn run_only(fleet: &Fleet, namespace: &str, jobs: &[&str]) -> BTreeMap<String, Vec<String>> {
    eventually(SOON, format!("{jobs:?} to run"), async || {
        let places = places(fleet, namespace).await?;
        let names: Vec<&str> = places.keys().map(String::as_str).collect();
        ensure!(names == jobs, "{places:?}");
        ensure!(places.values().all(|pods| pods.len() == 1), "one runs twice: {places:?}");
        Ok(places)
    })
    .await
    .unwrap()
}

async fn delete(hub: &Cluster, namespace: &str, job: &str) {
    let jobs: Api<Job> = Api::namespaced(hub.admin.clone(), namespace);
    jobs.delete(job, &DeleteParams::background()).await.unwrap();
}

async fn switchyard(cluster: &Cluster, words: &[&str]) -> String {
    let command = ["switchyard", "--kubeconfig", cluster.kubeconfig().to_str().unwrap()];
    let args = switchyard::Args::try_parse_from(command.iter().chain(words)).unwrap();
    let mut out = Vec::new();
    switchyard::run(args, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

/// Quota for two jobs on each worker, and for five on the hub.
async fn objects(fleet: &Fleet, namespace: &str) {
    let hub = fleet.hub();
    let mut objects = vec![queues::ResourceFlavor::new("all").build()];
    for name in WORKERS {
        let worker = fleet.worker(name);
        worker.apply_dir(switchyard_e2e::paths::root().join("deploy/rbac")).await.unwrap();
        let same =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        worker.apply([same]).await.unwrap();
        worker.apply(queues::simple(namespace, "all", &[("cpu", "2")])).await.unwrap();
        let admin = std::fs::read_to_string(worker.kubeconfig()).unwrap();
        objects.push(queues::kubeconfig_secret(stock::NAMESPACE, name, &admin));
        objects.push(queues::kubeconfig_cluster(name, name));
    }
    objects.extend(queues::multikueue("mk", &WORKERS));
    let quota = [("cpu", "5")];
    objects
        .push(queues::ClusterQueue::new("all").group("all", &quota).admission_check("mk").build());
    objects.push(queues::local_queue(namespace, "queue", "all"));
    hub.apply(objects).await.unwrap();
}

async fn set_stop_policy(hub: &Cluster, policy: &str) {
    let queues: Api<ClusterQueue> = Api::all(hub.admin.clone());
    let patch = Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
    queues.patch("all", &PatchParams::default(), &patch).await.unwrap();
}

/// The way back, as docs/migrate.md has it.
async fn back_to_kueue(fleet: &Fleet) -> Kueue {
    let hub = fleet.hub();
    fleet.kill(HUB);
    Single::unregister(hub).await.unwrap();
    println!("hub: {}", switchyard(hub, &["migrate", "hand-back"]).await);
    for worker in WORKERS {
        let worker = fleet.worker(worker);
        let released = switchyard(worker, &["migrate", "hand-back", "--copies"]).await;
        println!("{}: {released}", worker.name());
    }
    set_stop_policy(hub, "Hold").await;
    let manager = Kueue::start(hub, &Options::default()).await.unwrap();
    let queues: Api<ClusterQueue> = Api::all(hub.admin.clone());
    eventually(SOON, "the queue to be stopped", async || {
        let status = queues.get("all").await?.status.unwrap_or_default();
        ensure!(conditions::is_false(&status.conditions, conditions::ACTIVE), "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
    set_stop_policy(hub, "None").await;
    manager
}

#[test]
fn manager_with_two_workers_moves_to_switchyard_and_back() {
    fixture::run(async {
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(16));
        let [west, east] = WORKERS.map(worker);
        let fleet = Fleet::builder("both-ways").bare(west).bare(east).start().await.unwrap();
        let hub = fleet.hub();
        fleet.kill(HUB);
        Single::unregister(hub).await.unwrap();
        let options = Options::default();
        let manager = Kueue::start(hub, &options).await.unwrap();
        let _west = Kueue::start(fleet.worker("west"), &options).await.unwrap();
        let _east = Kueue::start(fleet.worker("east"), &options).await.unwrap();
        let namespace = hub.namespace("both").await.unwrap();
        objects(&fleet, &namespace).await;

        // Four run, one waits on the workers, one on the manager.
        for name in ["a", "b", "c", "d", "e", "f"] {
            sent(&namespace, name).run_forever().create(&hub.admin).await.unwrap();
            let running: Vec<&str> =
                ["a", "b", "c", "d"].into_iter().filter(|it| *it <= name).collect();
            run_only(&fleet, &namespace, &running).await;
        }
        let with_kueue = places(&fleet, &namespace).await.unwrap();

        manager.stop().await;
        hub.install().await.unwrap();
        for worker in WORKERS {
            let (_, kubeconfig) = fleet
                .worker(worker)
                .service_account(NAMESPACE, "switchyard-remote-hub")
                .await
                .unwrap();
            hub.apply([queues::kubeconfig_secret(NAMESPACE, worker, &kubeconfig)]).await.unwrap();
        }
        fleet.start_hub().await.unwrap();
        for worker in WORKERS {
            fleet.connected(worker).await.unwrap();
        }
        delete(hub, &namespace, "a").await;
        let with_switchyard = run_only(&fleet, &namespace, &["b", "c", "d", "e"]).await;
        for job in ["b", "c", "d"] {
            assert_eq!(with_switchyard[job], with_kueue[job], "{job} was restarted");
        }

        let _manager = back_to_kueue(&fleet).await;
        delete(hub, &namespace, "b").await;
        let back = run_only(&fleet, &namespace, &["c", "d", "e", "f"]).await;
        for job in ["c", "d", "e"] {
            assert_eq!(back[job], with_switchyard[job], "{job} was restarted on the way back");
        }
        // Deleted jobs are gone from the workers too.
        eventually(SOON, "no copy of a and b to be left", async || {
            for worker in WORKERS {
                let jobs: Api<Job> =
                    Api::namespaced(fleet.worker(worker).admin.clone(), &namespace);
                for job in ["a", "b"] {
                    ensure!(jobs.get_opt(job).await?.is_none(), "{job} is on {worker}");
                }
            }
            Ok(())
        })
        .await
        .unwrap();
    });
}
