//! A stock MultiKueue manager with two workers in full use moves to Switchyard and back, by the
//! commands of the migration guide. Jobs run, wait on the workers, and wait on the manager. No job
//! restarts or runs twice, and waiting jobs go on.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use clap::Parser as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use switchyard_api::conditions;
use switchyard_api::v1beta2::Workload;
use switchyard_e2e::fleet::{Fleet, HUB, NAMESPACE, Tenant};
use switchyard_e2e::single::Single;
use switchyard_e2e::stock::{self, Kueue, Options};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, JobBuilder, NodeSpec, fixture, job, queues};

use crate::common::kueue_chart;
use crate::common::shell::{self, Shell};

const SOON: Duration = Duration::from_secs(180);
const PAGE: &str = "docs/migrate.md";
const WORKERS: [&str; 2] = ["west", "east"];

/// A job as the manager's webhook would make it.
fn sent(namespace: &str, name: &str) -> JobBuilder {
    let managed_by = json!("kueue.x-k8s.io/multikueue");
    JobBuilder::new(namespace, name)
        .queue("queue")
        .suspended()
        .cpu("1")
        .field("managedBy", managed_by)
}

/// The running pods of each job, as `cluster/uid`.
async fn places(fleet: &Fleet, namespace: &str) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for worker in WORKERS {
        let pods: Api<Pod> = Api::namespaced(fleet.worker(worker).admin.clone(), namespace);
        for pod in pods.list(&ListParams::default()).await?.items {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase != Some("Running") {
                continue;
            }
            let job = pod.metadata.labels.as_ref().and_then(|labels| labels.get("job-name"));
            let uid = pod.metadata.uid.unwrap_or_default();
            places
                .entry(job.cloned().unwrap_or_default())
                .or_default()
                .push(format!("{worker}/{uid}"));
        }
    }
    Ok(places)
}

/// Waits until so many jobs run, these among them. Each has one pod.
async fn run(
    fleet: &Fleet,
    namespace: &str,
    number: usize,
    jobs: &[&str],
) -> BTreeMap<String, Vec<String>> {
    eventually(SOON, format!("{number} jobs to run, {jobs:?} among them"), async || {
        let places = places(fleet, namespace).await?;
        let are_there = jobs.iter().all(|job| places.contains_key(*job));
        ensure!(are_there && places.len() == number, "{places:?}");
        ensure!(places.values().all(|pods| pods.len() == 1), "one runs twice: {places:?}");
        Ok(places)
    })
    .await
    .unwrap()
}

/// Jobs that ran before and run on have kept their pods.
fn kept(before: &BTreeMap<String, Vec<String>>, after: &BTreeMap<String, Vec<String>>) {
    for (job, pods) in before.iter().filter(|(job, _)| after.contains_key(*job)) {
        assert_eq!(after[job], *pods, "{job} was restarted");
    }
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

/// The Workload of a job on a cluster, if there is one.
async fn workload(
    cluster: &Cluster,
    namespace: &str,
    job: &str,
) -> anyhow::Result<Option<Workload>> {
    let workloads: Api<Workload> = Api::namespaced(cluster.admin.clone(), namespace);
    let named = |workload: &Workload| {
        workload.metadata.name.as_ref().is_some_and(|name| name.starts_with(&format!("job-{job}-")))
    };
    Ok(workloads.list(&ListParams::default()).await?.items.into_iter().find(named))
}

/// `switchyard migrate preflight` with the manager's own kubeconfigs of the workers.
async fn preflight_reads_the_workers(hub: &Cluster) {
    let kubeconfig = hub.kubeconfig().to_str().unwrap();
    let words = ["switchyard", "--kubeconfig", kubeconfig, "migrate", "preflight"];
    let words = words.into_iter().chain(["--kueue-version", "v0.19.2", "-o", "json"]);
    let args = switchyard::Args::try_parse_from(words).unwrap();
    let mut out = Vec::new();
    let verdict = switchyard::run(args, &mut out).await.unwrap();
    let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(verdict, switchyard::ExitStatus::Clean, "{report:#}");
    assert_eq!((&report["mode"], &report["waiting"]), (&"hub".into(), &2.into()), "{report:#}");
    let findings = report["findings"].as_array().unwrap();
    let mut read = Vec::new();
    for finding in findings.iter().filter(|it| it["subject"] == "worker") {
        let message = finding["message"].as_str().unwrap();
        assert!(message.starts_with("it keeps its Kueue"), "{report:#}");
        read.extend(finding["objects"].as_array().unwrap().iter().filter_map(|it| it.as_str()));
    }
    read.sort_unstable();
    assert_eq!(read, ["east", "west"], "{report:#}");
    let steps: Vec<_> = report["steps"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert!(steps.contains(&&"Copy 2 kubeconfig Secrets to switchyard-system".into()), "{steps:?}");
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

/// The commands under a heading. Nothing pulls images here, and Helm waits as Helm 3 does.
fn commands(heading: &str) -> Vec<String> {
    let local = |line: String| {
        let line = line.replace("REGISTRY", "registry.example").replace("NAME...", "all");
        kueue_chart::from_module(&line.replace("=ClusterIP --wait", "=ClusterIP --wait=legacy"))
    };
    shell::commands(PAGE, heading).into_iter().map(local).collect()
}

/// The manager as its pods would run it.
async fn start_manager(hub: &Cluster) -> Kueue {
    Kueue::start(hub, &Options { webhooks: true, ..Options::default() }).await.unwrap()
}

/// The way back, as docs/migrate.md has it.
async fn back_to_kueue(fleet: &Fleet, shell: &Shell) -> Kueue {
    let commands = commands("### Back with Helm");
    let [stop, uninstall, convert, hand_back, hold, start, held, open] = &commands[..] else {
        panic!("eight commands: {commands:#?}")
    };
    shell.run(stop);
    fleet.kill(HUB);
    for command in [uninstall, convert, hand_back] {
        shell.run(command);
    }
    for worker in WORKERS {
        let worker = fleet.worker(worker);
        let released = switchyard(worker, &["migrate", "hand-back", "--copies", "--yes"]).await;
        println!("{}: {released}", worker.name());
    }
    shell.run(hold);
    shell.run(start);
    let manager = start_manager(fleet.hub()).await;
    shell.run(held);
    shell.run(open);
    for worker in WORKERS {
        shell.run(&format!("kubectl -n {NAMESPACE} delete secret {worker}"));
    }
    manager
}

/// Waits until a job that waits has a copy on a worker.
async fn one_waits_on_a_worker(fleet: &Fleet, namespace: &str) {
    eventually(SOON, "a copy that waits", async || {
        for worker in WORKERS {
            let workloads: Api<Workload> =
                Api::namespaced(fleet.worker(worker).admin.clone(), namespace);
            for copy in workloads.list(&ListParams::default()).await?.items {
                let conditions = copy.status.unwrap_or_default().conditions;
                if !conditions::is_true(&conditions, conditions::QUOTA_RESERVED) {
                    return Ok(());
                }
            }
        }
        anyhow::bail!("there is none")
    })
    .await
    .unwrap();
}

/// Waits until no worker has these jobs.
async fn gone(fleet: &Fleet, namespace: &str, names: &[&str]) {
    eventually(SOON, format!("no copy of {names:?} to be left"), async || {
        for worker in WORKERS {
            let jobs: Api<Job> = Api::namespaced(fleet.worker(worker).admin.clone(), namespace);
            for name in names {
                ensure!(jobs.get_opt(name).await?.is_none(), "{name} is on {worker}");
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// The manager has recorded where these jobs run.
async fn admitted(hub: &Cluster, namespace: &str, jobs: &[&str]) {
    for job in jobs {
        eventually(SOON, format!("{job} to be admitted"), async || {
            let found = workload(hub, namespace, job).await?.and_then(|workload| workload.status);
            let conditions = found.map(|status| status.conditions).unwrap_or_default();
            ensure!(conditions::is_true(&conditions, conditions::ADMITTED), "{conditions:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

/// The commands up to the installation of Switchyard, whose pods are played.
async fn install(fleet: &Fleet, shell: &Shell, manager: Kueue) {
    let commands = commands("## A MultiKueue manager");
    let [_preflight, config, stop, unhook, namespace, secret, install, change] = &commands[..]
    else {
        panic!("eight commands: {commands:#?}")
    };
    shell.run(config);
    shell.run(stop);
    manager.stop().await;
    kueue_chart::converts_behind_a_service(fleet.hub()).await;
    shell.run(unhook);
    // The harness has made it.
    assert_eq!(namespace, &format!("kubectl create namespace {NAMESPACE}"));
    let hub = &fleet.hub().admin;
    for worker in WORKERS {
        shell.run(&secret.replace("NAME", worker));
        let of = async |namespace| {
            let secrets: Api<Secret> = Api::namespaced(hub.clone(), namespace);
            secrets.get(worker).await.unwrap().data
        };
        assert_eq!(of(NAMESPACE).await, of(stock::NAMESPACE).await, "{worker}");
    }
    shell.run(install);
    let services: Api<Service> = Api::namespaced(hub.clone(), NAMESPACE);
    let kind = async || services.get("switchyard-hub").await.unwrap().spec.unwrap().type_;
    assert_eq!(kind().await.as_deref(), Some("ClusterIP"));
    shell.run(change);
    assert_eq!(kind().await.as_deref(), Some("LoadBalancer"));
}

/// The way to Switchyard: the commands, new tokens for the same workers, the hub.
async fn to_switchyard(fleet: &Fleet, shell: &Shell, manager: Kueue) {
    install(fleet, shell, manager).await;
    let hub = fleet.hub();
    for worker in WORKERS {
        let (_, kubeconfig) =
            fleet.worker(worker).service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
        hub.apply([queues::kubeconfig_secret(NAMESPACE, worker, &kubeconfig)]).await.unwrap();
    }
    fleet.renew_hub_account().await.unwrap();
    fleet.start_hub().await.unwrap();
    for worker in WORKERS {
        fleet.connected(worker).await.unwrap();
    }
}

#[test]
fn manager_with_two_workers_moves_to_switchyard_and_back() {
    fixture::run(async {
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(16));
        let [west, east] = WORKERS.map(worker);
        // Helm waits for the pods of Deployments on the hub.
        let controllers =
            ["deployment-controller", "replicaset-controller", "endpointslice-controller"];
        let fleet = Fleet::builder("both-ways").hub_controllers(controllers);
        let fleet = fleet.hub_node(NodeSpec::new("pods").cpu(8)).bare(west).bare(east);
        let fleet = fleet.start().await.unwrap();
        let hub = fleet.hub();
        // At first there is none of Switchyard.
        fleet.kill(HUB);
        Single::unregister(hub).await.unwrap();
        let shell = Shell::new(&[hub]).await;
        kueue_chart::install(&shell);
        let options = Options::default();
        let (manager, west, east) = tokio::join!(
            start_manager(hub),
            Kueue::start(fleet.worker("west"), &options),
            Kueue::start(fleet.worker("east"), &options),
        );
        let _workers = (west.unwrap(), east.unwrap());
        let namespace = &hub.namespace("both").await.unwrap();
        objects(&fleet, namespace).await;

        // Four run, of which one ends soon. One waits on the workers, two on the manager.
        for name in ["a", "b", "c"] {
            sent(namespace, name).run_forever().create(&hub.admin).await.unwrap();
        }
        run(&fleet, namespace, 3, &["a", "b", "c"]).await;
        let ends = sent(namespace, "d").run_for(Duration::from_secs(8));
        ends.create(&hub.admin).await.unwrap();
        let with_kueue = run(&fleet, namespace, 4, &["a", "b", "c", "d"]).await;
        sent(namespace, "e").run_forever().create(&hub.admin).await.unwrap();
        one_waits_on_a_worker(&fleet, namespace).await;
        for name in ["f", "g"] {
            sent(namespace, name).run_forever().create(&hub.admin).await.unwrap();
        }
        admitted(hub, namespace, &["a", "b", "c", "d"]).await;
        preflight_reads_the_workers(hub).await;

        // Aborted before the hub has connected.
        install(&fleet, &shell, manager).await;
        let manager = back_to_kueue(&fleet, &shell).await;
        kept(&with_kueue, &places(&fleet, namespace).await.unwrap());

        to_switchyard(&fleet, &shell, manager).await;
        // The end of d, during the gap or after it, makes room for one that waits.
        job::complete(&hub.admin, namespace, "d", SOON).await.unwrap();
        let started = run(&fleet, namespace, 4, &["a", "b", "c"]).await;
        kept(&with_kueue, &started);
        delete(hub, namespace, "a").await;
        gone(&fleet, namespace, &["a"]).await;
        let with_switchyard = run(&fleet, namespace, 4, &["b", "c"]).await;
        kept(&started, &with_switchyard);
        for job in ["b", "c"] {
            let workload = workload(hub, namespace, job).await.unwrap().unwrap();
            let status = workload.status.clone().unwrap_or_default();
            let evicted = conditions::find(&status.conditions, "Evicted");
            assert!(evicted.is_none(), "{job}: {}", Tenant::told(&workload));
            assert_eq!(status.dispatch.map(|dispatch| dispatch.attempt), Some(1), "{job}");
        }
        one_waits_on_a_worker(&fleet, namespace).await;

        let _manager = back_to_kueue(&fleet, &shell).await;
        delete(hub, namespace, "b").await;
        let back = run(&fleet, namespace, 4, &["c", "e", "f", "g"]).await;
        kept(&with_switchyard, &back);
        gone(&fleet, namespace, &["a", "b", "d"]).await;
    });
}
