//! Metrics of a live single mode, a live hub and a live agent, family by family, beside the reference: names, help texts, types,
//! labels, buckets.

mod page;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::bed::{Bed, WAIT};
use crate::common::events;
use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use switchyard::status::{JobRow, JobState};
use switchyard_api::conditions;
use switchyard_api::v1beta2::{ClusterQueue, LocalQueue};
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, http, job, queues, wait};
use switchyard_pages::metrics::{BUILD, FAMILIES, Family, LATER, OWN, ShownBy};

const SECTIONS: &str = "integrations: {frameworks: [batch/job, pod]}\n\
    metrics: {enableClusterQueueResources: true}\n\
    fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}\n\
    admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1h}\n\
    waitForPodsReady: {timeout: 10m}";

/// Parts of the names of families that need something that does not happen here, and what.
const UNSEEN: &[(&str, &str)] = &[
    ("kueue_replaced_workload_slices_total", "an elastic job that grows"),
    ("kueue_admission_cycle_preemption_skips", "two that would preempt in one cycle"),
    ("switchyard_topology_", "a flavor with a topology"),
    ("switchyard_audit_", "the periodic audit, which this program runs without"),
];

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
        options.webhook =
            Some(WebhookOptions::new(webhooks, Advertise::Url(format!("https://127.0.0.1:{at}"))));
    })
    .await
}

/// The program that shows a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Single,
    Hub,
    Agent,
}

impl Program {
    /// Whether the documentation names it for a family.
    fn shows(self, family: &Family) -> bool {
        match family.shown_by() {
            ShownBy::All => true,
            ShownBy::Hub => self == Self::Hub,
            ShownBy::Agent => self == Self::Agent,
            ShownBy::HubAndAgent => self != Self::Single,
        }
    }
}

/// Compares the metrics of a program with the families of `docs/metric-families.md`, both ways. The
/// program shows each documented family, unless a part of its name is among `unseen`. The page
/// documents each shown family, with its help text, type, labels and buckets. The configuration adds
/// the labels `custom` to families of ClusterQueues.
fn compare(
    program: Program,
    text: &str,
    custom: &[&str],
    unseen: &[(&str, &str)],
) -> anyhow::Result<()> {
    let (shown, meanings) = (page::families(text), page::meanings()?);
    let own: BTreeSet<&str> = OWN.iter().map(|(family, _)| family.name).collect();
    let documented = || FAMILIES.iter().chain(LATER).chain(OWN.iter().map(|(family, _)| family));
    let mut problems = Vec::new();
    for family in documented() {
        let is_excused = unseen.iter().any(|(part, _)| family.name.contains(part));
        let Some(found) = shown.get(family.name) else {
            if program.shows(family) && !is_excused {
                problems.push(format!("{} is not shown", family.name));
            }
            continue;
        };
        if !program.shows(family) {
            let by = family.shown_by().as_str();
            problems.push(format!("{} is documented for {by} alone", family.name));
        }
        let has_role = family.name != BUILD && !own.contains(family.name);
        let custom = if family.is_of_cluster_queue() { custom } else { &[] };
        let labels = family
            .labels
            .iter()
            .chain(custom)
            .copied()
            .chain(has_role.then_some("replica_role"))
            .map(str::to_owned)
            .collect::<BTreeSet<_>>();
        if found.labels != labels {
            problems
                .push(format!("{} has the labels {:?}, not {labels:?}", family.name, found.labels));
        }
        let meaning = meanings.get(family.name);
        if meaning != Some(&found.help) {
            problems.push(format!("{}: HELP is {:?}, not {meaning:?}", family.name, found.help));
        }
        problems.extend(
            found.differs(family.kind).map(|problem| format!("{}: {problem}", family.name)),
        );
    }
    let unknown = shown.keys().filter(|name| !documented().any(|family| family.name == **name));
    problems.extend(unknown.map(|name| format!("{name} is not in xtask/pages/src/metrics.rs")));
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// One job finishes, one is preempted by another once its pods are ready, one passes a check, a pod is ungated, one waits.
async fn work(bed: &Bed) {
    let classes = [("low", 1), ("high", 1000)]
        .map(|(name, value)| queues::priority_class(&bed.part(name), value));
    let scope = json!({"admissionMode": "UsageBasedAdmissionFairSharing"});
    let queue =
        bed.member("q", "2").limits("cpu", Some("0"), None).preemption("LowerPriority", "Never");
    let queue = queue.field("admissionScope", scope);
    let checked = bed.member("checked", "2").admission_check(&bed.name);
    let cohorts = [
        queues::Cohort::new(&bed.part("top")).build(),
        queues::Cohort::new(&bed.part("all"))
            .parent(&bed.part("top"))
            .group(&bed.name, &[("cpu", "0")])
            .build(),
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
        let phase =
            pods.get("alone").await?.status.and_then(|status| status.phase).unwrap_or_default();
        ensure!(phase == "Succeeded", "{phase}");
        Ok(())
    };
    wait::eventually(WAIT, "the pod to end", ended).await.unwrap();
}

/// The result of [`work`].
fn counts(text: &str, bed: &Bed) -> anyhow::Result<()> {
    let (shown, q, checked) = (page::families(text), bed.part("q"), bed.part("checked"));
    for (family, series, labels, expected) in [
        ("kueue_finished_workloads_total", "", vec![("cluster_queue", &*q)], 2.0),
        ("kueue_finished_workloads_total", "", vec![("cluster_queue", &*checked)], 1.0),
        ("kueue_quota_reserved_workloads_total", "", vec![("cluster_queue", &*checked)], 1.0),
        ("kueue_admitted_workloads_total", "", vec![("cluster_queue", &*checked)], 1.0),
        (
            "kueue_admission_checks_wait_time_seconds",
            "_count",
            vec![("cluster_queue", &*checked)],
            1.0,
        ),
        ("kueue_admitted_workloads_total", "", vec![("cluster_queue", &*q)], 4.0),
        (
            "kueue_evicted_workloads_total",
            "",
            vec![("cluster_queue", &*q), ("reason", "Preempted")],
            1.0,
        ),
        (
            "kueue_evicted_workloads_once_total",
            "",
            vec![("cluster_queue", &*q), ("reason", "Preempted")],
            1.0,
        ),
        (
            "kueue_preempted_workloads_total",
            "",
            vec![("preempting_cluster_queue", &*q), ("reason", "InClusterQueue")],
            1.0,
        ),
        ("kueue_reserving_active_workloads", "", vec![("cluster_queue", &*q)], 1.0),
        ("kueue_admitted_active_workloads", "", vec![("cluster_queue", &*q)], 1.0),
        (
            "kueue_cluster_queue_resource_usage",
            "",
            vec![("cluster_queue", &*q), ("resource", "cpu")],
            1.0,
        ),
        (
            "kueue_cluster_queue_nominal_quota",
            "",
            vec![("cluster_queue", &*q), ("resource", "cpu")],
            2.0,
        ),
    ] {
        let found = shown.get(family).map(|shown| shown.sum(&format!("{family}{series}"), &labels));
        ensure!(
            found == Some(expected),
            "{family}{series} {labels:?} is {found:?}, not {expected}"
        );
    }
    Ok(())
}

#[test]
fn single_mode_shows_the_documented_families() {
    fixture::run(async {
        let bed = single().await;
        work(&bed).await;
        let check = async || {
            let text = http::get(PORT.load(Ordering::SeqCst), "/metrics").await?;
            compare(Program::Single, &text, &[], UNSEEN)
        };
        wait::eventually(WAIT, "all families", check).await.unwrap();

        let counted =
            async || counts(&http::get(PORT.load(Ordering::SeqCst), "/metrics").await?, &bed);
        wait::eventually(WAIT, "what was done to be counted", counted).await.unwrap();

        // A stopped queue tries no workload.
        let name = bed.part("q");
        let queues: Api<ClusterQueue> = Api::all(bed.admin().clone());
        let hold = Patch::Merge(json!({"spec": {"stopPolicy": "Hold"}}));
        queues.patch(&name, &PatchParams::default(), &hold).await.unwrap();
        let pending = async || {
            let text = http::get(PORT.load(Ordering::SeqCst), "/metrics").await?;
            let shown = page::families(&text);
            let of_queue = |line: &&String| line.contains(&format!("cluster_queue=\"{name}\""));
            let lines: Vec<&String> =
                shown["kueue_pending_workloads"].lines.iter().filter(of_queue).collect();
            let counts = |status: &str, count: &str| {
                lines
                    .iter()
                    .any(|line| line.contains(&format!("\"{status}\"")) && line.ends_with(count))
            };
            ensure!(counts("active", "} 0.0") && !counts("inadmissible", "} 0.0"), "{lines:?}");
            Ok(())
        };
        wait::eventually(WAIT, "all pending workloads to be inadmissible", pending).await.unwrap();

        // In a LocalQueue that is stopped nothing is queued.
        let locals: Api<LocalQueue> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        let of_local = || format!("name=\"q\",namespace=\"{}\"", bed.namespace);
        let told = async |expected: bool| {
            let text = http::get(PORT.load(Ordering::SeqCst), "/metrics").await?;
            let shown = page::families(&text);
            let pending = shown.get("kueue_local_queue_pending_workloads");
            let told = pending
                .is_some_and(|shown| shown.lines.iter().any(|line| line.contains(&of_local())));
            ensure!(told == expected, "{pending:?}");
            Ok(())
        };
        wait::eventually(WAIT, "a LocalQueue to have pending workloads", || told(true))
            .await
            .unwrap();
        locals.patch("q", &PatchParams::default(), &hold).await.unwrap();
        wait::eventually(WAIT, "a stopped LocalQueue to have no pending workloads", || told(false))
            .await
            .unwrap();
    });
}

/// Parts of the names of families that need something that a hub has not, or that does not happen here, and what.
const NOT_ON_THE_HUB: &[(&str, &str)] = &[
    ("evict", "an eviction"),
    ("preempt", "a preemption"),
    ("slices", "an elastic job that grows"),
    ("kueue_cohort_", "Cohorts"),
    ("unadmitted", "the feature gate"),
    ("weighted_share", "fair sharing"),
    ("fair_sharing", "use in the past that counts"),
    ("scheduling_gate", "a pod"),
    ("ready_wait_time", "pods that run for a while"),
    ("switchyard_topology_", "a flavor with a topology"),
    ("switchyard_node_room_out_of_bounds", "a faulty report"),
    ("switchyard_observations_dropped", "a faulty report"),
    ("switchyard_workloads_taken_back", "an attempt that is given up"),
    ("switchyard_workloads_in_trouble", "pods that cannot start"),
    ("switchyard_foreign_marks", "a worker without an agent"),
    ("switchyard_dry_runs", "a worker without an agent"),
];

/// The same for the agent.
const NOT_ON_THE_AGENT: &[(&str, &str)] = &[
    ("evict", "an eviction"),
    ("finished_workloads", "a finished Workload that stays: the hub removes its copies"),
    ("preempt", "a preemption"),
    ("slices", "an elastic job that grows"),
    ("checks_wait_time", "an admission check"),
    ("kueue_cohort_", "Cohorts"),
    ("unadmitted", "the feature gate"),
    ("weighted_share", "fair sharing"),
    ("fair_sharing", "use in the past that counts"),
    ("cluster_queue_resource_", "the configuration"),
    ("borrowing_limit", "the configuration"),
    ("lending_limit", "the configuration"),
    ("nominal_quota", "the configuration"),
    ("scheduling_gate", "a pod"),
    ("ready_wait_time", "pods that run for a while"),
    ("workload_creation_latency", "a job of the worker's own users"),
    ("switchyard_topology_", "a flavor with a topology"),
];

const HUBS: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
    metrics: {enableClusterQueueResources: true, customLabels: [{name: team, sourceLabelKey: example.com/team}]}\n\
    featureGates: {CustomMetricLabels: true}";

/// One job runs until it is deleted, another waits for the worker meanwhile.
async fn wait_for_a_worker(fleet: &Fleet, tenant: &Tenant<'_>) {
    tenant.submit(tenant.job("long").cpu("2").run_for(Duration::from_secs(3600))).await.unwrap();
    let runs = |row: &JobRow| matches!(row.state, JobState::Admitted | JobState::Running);
    tenant.await_status("long", "running", WAIT, runs).await.unwrap();
    tenant.submit(tenant.job("waits").cpu("2").run_for(Duration::from_secs(1))).await.unwrap();
    let reserved = async || {
        let workload = tenant.workload_of("waits").await?;
        let conditions = workload.status.clone().unwrap_or_default().conditions;
        let reserved = conditions::find(&conditions, conditions::QUOTA_RESERVED)
            .filter(|it| it.status == "True");
        let since = reserved.context("it has no quota")?.last_transition_time.0;
        ensure!(
            Timestamp::now().duration_since(since).as_secs() >= 2,
            "it has quota since {since}"
        );
        Ok(workload.name_any())
    };
    let workload = wait::eventually(WAIT, "a reservation that lasts", reserved).await.unwrap();
    let reserved =
        format!("Quota reserved in ClusterQueue {}, wait time since queued was ", tenant.name());
    events::told(&fleet.hub().admin, &workload, "QuotaReserved", &reserved).await;
    tenant.hub_jobs().delete("long", &DeleteParams::background()).await.unwrap();
    tenant
        .await_status("waits", "finished", WAIT, |row| row.state == JobState::Succeeded)
        .await
        .unwrap();
    let admitted =
        format!("Admitted by ClusterQueue {}, wait time since reservation was ", tenant.name());
    let told = events::told(&fleet.hub().admin, &workload, "Admitted", &admitted).await;
    assert!(!told.note.unwrap().ends_with(" 0s"), "it has waited");
}

#[test]
fn hub_and_agent_show_the_documented_families() {
    fixture::run(async {
        let east = ClusterSpec::new("east").node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("metrics-hub").agent(east).config(HUBS).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("east")]).await.unwrap();
        fleet.connect().await.unwrap();
        let tenant = fleet
            .tenant("seen")
            .hub(&[("cpu", "4")])
            .worker("east", &[("cpu", "3")])
            .make()
            .await
            .unwrap();
        let labels = Patch::Merge(json!({"metadata": {"labels": {"example.com/team": "red"}}}));
        let cluster_queues: Api<ClusterQueue> = Api::all(fleet.hub().admin.clone());
        cluster_queues.patch(tenant.name(), &PatchParams::default(), &labels).await.unwrap();

        tenant.submit(tenant.job("short").cpu("1").run_for(Duration::from_secs(1))).await.unwrap();
        tenant
            .await_status("short", "finished", WAIT, |row| row.state == JobState::Succeeded)
            .await
            .unwrap();
        let workload = tenant.workload_of("short").await.unwrap().name_any();
        let admin = &fleet.hub().admin;
        events::told(
            admin,
            &workload,
            "Admitted",
            &format!("Admitted by ClusterQueue {}, ", tenant.name()),
        )
        .await;
        wait_for_a_worker(&fleet, &tenant).await;

        let port = fleet.metrics_ports()[HUB];
        let check = async || {
            let text = http::get(port, "/metrics").await?;
            compare(Program::Hub, &text, &["custom_team"], NOT_ON_THE_HUB)?;
            let shown = page::families(&text);
            let of_queue = [("cluster_queue", tenant.name()), ("custom_team", "red")];
            let local = [("name", "main"), ("namespace", tenant.name())];
            for (prefix, labels) in [("kueue_", &of_queue), ("kueue_local_queue_", &local)] {
                let value = |family: &str, series: &str| {
                    let name = format!("{prefix}{family}");
                    shown
                        .get(&name)
                        .map_or(0.0, |shown| shown.sum(&format!("{name}{series}"), labels))
                };
                // Each of the three once at least: one that its worker evicts on a slow machine counts again.
                for (counted, waited) in [
                    ("quota_reserved_workloads_total", "quota_reserved_wait_time_seconds"),
                    ("admitted_workloads_total", "admission_wait_time_seconds"),
                    ("admitted_workloads_total", "admission_checks_wait_time_seconds"),
                ] {
                    let (times, waits) = (value(counted, ""), value(waited, "_count"));
                    let same = (times - waits).abs() < 0.5;
                    ensure!(
                        times > 2.5 && same,
                        "{prefix}{counted} is {times}, {waited} has {waits}"
                    );
                }
                let waited = value("admission_checks_wait_time_seconds", "_sum");
                ensure!(waited >= 1.0, "{prefix}: {waited} s for checks");
            }
            Ok(())
        };
        wait::eventually(WAIT, "the hub's families", check).await.unwrap();

        let port = fleet.metrics_ports()["east"];
        let check = async || {
            let text = http::get(port, "/metrics").await?;
            compare(Program::Agent, &text, &[], NOT_ON_THE_AGENT)
        };
        wait::eventually(WAIT, "the agent's families", check).await.unwrap();
    });
}
