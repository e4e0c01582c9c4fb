//! What a live single mode and a live hub show, family by family, beside what Kueue v0.19.2 shows: names, types, labels,
//! buckets.

mod page;
mod table;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::bed::{Bed, WAIT};
use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use switchyard::status::State;
use switchyard_api::v1beta2::ClusterQueue;
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_e2e::fleet::{Fleet, HUB};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, http, job, queues, wait};
use table::{BUILD, FAMILIES, Family, LATER, UNSEEN};

const SECTIONS: &str = "integrations: {frameworks: [batch/job, pod]}\n\
    metrics: {enableClusterQueueResources: true}\n\
    fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}\n\
    admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1h}\n\
    waitForPodsReady: {timeout: 10m}";

/// Where `/metrics` of the controller in this process is.
static PORT: AtomicU16 = AtomicU16::new(0);

fn loopback() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn single() -> Bed {
    Bed::with_options("metrics", SECTIONS, |_, options| {
        let ((health, port), (webhooks, at)) = (loopback(), loopback());
        PORT.store(port, Ordering::SeqCst);
        options.health = Some(health);
        options.webhook = Some(WebhookOptions::new(webhooks, Advertise::Url(format!("https://127.0.0.1:{at}"))));
    })
    .await
}

/// Everything that is shown is as Kueue shows it, and all that is expected is there.
fn compare(text: &str, expected: impl Fn(&Family) -> bool) -> anyhow::Result<()> {
    let shown = page::families(text);
    let mut problems = Vec::new();
    for family in FAMILIES.iter().chain(LATER) {
        let Some(found) = shown.get(family.name) else {
            if expected(family) {
                problems.push(format!("{} is not shown", family.name));
            }
            continue;
        };
        let role = (family.name != BUILD).then_some("replica_role");
        let labels: BTreeSet<String> = family.labels.iter().copied().chain(role).map(str::to_owned).collect();
        if found.labels != labels {
            problems.push(format!("{} has the labels {:?}, not {labels:?}", family.name, found.labels));
        }
        problems.extend(found.differs(family.kind).map(|problem| format!("{}: {problem}", family.name)));
    }
    let known = |name: &str| FAMILIES.iter().chain(LATER).any(|family| family.name == name);
    let of_kueue = |name: &&String| name.starts_with("kueue_") || name.starts_with("multikueue_");
    let foreign = shown.keys().filter(of_kueue).filter(|name| !known(name));
    problems.extend(foreign.map(|name| format!("{name} is none of Kueue's")));
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// One job finishes, one is preempted by another once its pods are ready, one passes a check, a pod is let go, one waits.
async fn work(bed: &Bed) {
    let classes = [("low", 1), ("high", 1000)].map(|(name, value)| queues::priority_class(&bed.part(name), value));
    let scope = json!({"admissionMode": "UsageBasedAdmissionFairSharing"});
    let queue = bed.member("q", "2").limits("cpu", Some("0"), None).preemption("LowerPriority", "Never");
    let queue = queue.field("admissionScope", scope);
    let checked = bed.member("checked", "2").admission_check(&bed.name);
    let cohorts = [
        queues::Cohort::new(&bed.part("top")).build(),
        queues::Cohort::new(&bed.part("all")).parent(&bed.part("top")).group(&bed.name, &[("cpu", "0")]).build(),
    ];
    bed.cluster().apply([queues::admission_check(&bed.name)]).await.unwrap();
    bed.activate_check().await;
    let objects = classes.into_iter().chain(cohorts).chain([queue.build(), checked.build()]);
    bed.set_up(objects, &["q", "checked"]).await;

    let second = Duration::from_secs(1);
    bed.job_in("q", "short").run_for(second).create(bed.admin()).await.unwrap();
    job::complete(bed.admin(), &bed.namespace, "short", WAIT).await.unwrap();

    bed.job_in("checked", "checked").run_for(second).create(bed.admin()).await.unwrap();
    bed.answer_check("checked", "Ready").await;
    job::complete(bed.admin(), &bed.namespace, "checked", WAIT).await.unwrap();

    let victim = bed.job_in("q", "victim").cpu("2").priority_class(&bed.part("low"));
    victim.create(bed.admin()).await.unwrap();
    bed.expect_true("victim", "PodsReady").await;
    let winner = bed.job_in("q", "winner").priority_class(&bed.part("high"));
    winner.create(bed.admin()).await.unwrap();
    bed.expect_true("winner", "PodsReady").await;
    let waits = async || {
        ensure!(!bed.is_true("victim", "QuotaReserved").await, "it has quota");
        Ok(())
    };
    wait::eventually(WAIT, "the victim to give its quota back", waits).await.unwrap();

    let pod = json!({
        "metadata": {"name": "alone", "labels": {"kueue.x-k8s.io/queue-name": "q"}, "annotations": {job::RUN_FOR: "1s"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    });
    let pods: Api<Pod> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let ended = async || {
        let phase = pods.get("alone").await?.status.and_then(|status| status.phase).unwrap_or_default();
        ensure!(phase == "Succeeded", "{phase}");
        Ok(())
    };
    wait::eventually(WAIT, "the pod to end", ended).await.unwrap();
}

/// What [`work`] comes to.
fn counts(text: &str, bed: &Bed) -> anyhow::Result<()> {
    let (shown, q, checked) = (page::families(text), bed.part("q"), bed.part("checked"));
    for (family, series, labels, expected) in [
        ("kueue_finished_workloads_total", "", vec![("cluster_queue", &*q)], 2.0),
        ("kueue_finished_workloads_total", "", vec![("cluster_queue", &*checked)], 1.0),
        ("kueue_quota_reserved_workloads_total", "", vec![("cluster_queue", &*checked)], 1.0),
        ("kueue_admitted_workloads_total", "", vec![("cluster_queue", &*checked)], 1.0),
        ("kueue_admission_checks_wait_time_seconds", "_count", vec![("cluster_queue", &*checked)], 1.0),
        ("kueue_admitted_workloads_total", "", vec![("cluster_queue", &*q)], 4.0),
        ("kueue_evicted_workloads_total", "", vec![("cluster_queue", &*q), ("reason", "Preempted")], 1.0),
        ("kueue_evicted_workloads_once_total", "", vec![("cluster_queue", &*q), ("reason", "Preempted")], 1.0),
        (
            "kueue_preempted_workloads_total",
            "",
            vec![("preempting_cluster_queue", &*q), ("reason", "InClusterQueue")],
            1.0,
        ),
        ("kueue_reserving_active_workloads", "", vec![("cluster_queue", &*q)], 1.0),
        ("kueue_admitted_active_workloads", "", vec![("cluster_queue", &*q)], 1.0),
        ("kueue_cluster_queue_resource_usage", "", vec![("cluster_queue", &*q), ("resource", "cpu")], 1.0),
        ("kueue_cluster_queue_nominal_quota", "", vec![("cluster_queue", &*q), ("resource", "cpu")], 2.0),
    ] {
        let found = shown.get(family).map(|shown| shown.sum(&format!("{family}{series}"), &labels));
        ensure!(found == Some(expected), "{family}{series} {labels:?} is {found:?}, not {expected}");
    }
    Ok(())
}

#[test]
fn single_mode_shows_what_kueue_shows() {
    fixture::run(async {
        let bed = single().await;
        work(&bed).await;
        let of_hubs = |family: &Family| family.name.starts_with("multikueue_");
        let unseen = |family: &Family| UNSEEN.iter().any(|(name, _)| *name == family.name);
        let check = async || {
            let text = http::get(PORT.load(Ordering::SeqCst), "/metrics").await?;
            compare(&text, |family| !of_hubs(family) && !unseen(family))
        };
        wait::eventually(WAIT, "all families", check).await.unwrap();

        let counted = async || counts(&http::get(PORT.load(Ordering::SeqCst), "/metrics").await?, &bed);
        wait::eventually(WAIT, "what was done to be counted", counted).await.unwrap();

        // Of a queue that is stopped nothing is tried.
        let name = bed.part("q");
        let queues: Api<ClusterQueue> = Api::all(bed.admin().clone());
        let hold = Patch::Merge(json!({"spec": {"stopPolicy": "Hold"}}));
        queues.patch(&name, &PatchParams::default(), &hold).await.unwrap();
        let pending = async || {
            let text = http::get(PORT.load(Ordering::SeqCst), "/metrics").await?;
            let shown = page::families(&text);
            let of_queue = |line: &&String| line.contains(&format!("cluster_queue=\"{name}\""));
            let lines: Vec<&String> = shown["kueue_pending_workloads"].lines.iter().filter(of_queue).collect();
            let counts = |status: &str, count: &str| {
                lines.iter().any(|line| line.contains(&format!("\"{status}\"")) && line.ends_with(count))
            };
            ensure!(counts("active", "} 0.0") && !counts("inadmissible", "} 0.0"), "{lines:?}");
            Ok(())
        };
        wait::eventually(WAIT, "all pending workloads to be inadmissible", pending).await.unwrap();
    });
}

#[test]
fn a_hub_shows_what_kueue_shows_and_counts_what_it_sends() {
    fixture::run(async {
        let east = ClusterSpec::new("east").node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("metrics-hub").agent(east).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("east")]).await.unwrap();
        fleet.connect().await.unwrap();
        let tenant = fleet.tenant("seen").hub(&[("cpu", "3")]).worker("east", &[("cpu", "3")]).make().await.unwrap();
        tenant.submit(tenant.job("short").cpu("1").run_for(Duration::from_secs(1))).await.unwrap();
        tenant.await_status("short", "finished", WAIT, |row| row.state == State::Succeeded).await.unwrap();
        let port = fleet.metrics_ports()[HUB];
        let of_hubs = ["multikueue_", "kueue_admitted_workloads", "kueue_pending_workloads", "kueue_workload_creation"];
        let check = async || {
            let text = http::get(port, "/metrics").await?;
            compare(&text, |family| of_hubs.iter().any(|prefix| family.name.starts_with(prefix)))
        };
        wait::eventually(WAIT, "the hub's families", check).await.unwrap();
    });
}
