//! Workloads that try for several flavors at once: a variant for each, the best that is admitted runs, and the job moves to
//! a better flavor when that has room.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_api::{
    conditions,
    v1beta2::{ClusterQueue, PreemptionGatePosition, Workload},
    variants,
};
use switchyard_config::{self as config, Configuration};
use switchyard_controller::Handle;
use switchyard_e2e::{ClusterSpec, Environment, NodeSpec, fixture, job, queues, wait};

use crate::bed::{self, Bed, WAIT};

const SECTIONS: &str = "featureGates: {ConcurrentAdmission: true}\n\
                        metrics: {enableClusterQueueResources: true}";
/// For what must not happen.
const A_WHILE: Duration = Duration::from_secs(3);

/// A queue whose flavors, the best first, have so many cores; with this migration and more.
async fn apply(
    bed: &Bed,
    flavors: &[(&str, &str)],
    migration: Value,
    more: impl FnOnce(queues::ClusterQueue) -> Value,
) {
    let named: Vec<_> =
        flavors.iter().map(|(flavor, cores)| (bed.part(flavor), [("cpu", *cores)])).collect();
    let quota: Vec<(&str, &[(&str, &str)])> =
        named.iter().map(|(flavor, quota)| (flavor.as_str(), &quota[..])).collect();
    bed.cluster()
        .apply(quota.iter().map(|(flavor, _)| queues::ResourceFlavor::new(flavor).build()))
        .await
        .unwrap();
    let queue = queues::ClusterQueue::new(&bed.name).flavors(&quota);
    bed.apply(more(queue.field("concurrentAdmissionPolicy", json!({"migration": migration}))))
        .await;
    bed.local_queue_condition("queue", "True", "Ready", "Can submit new workloads to localQueue")
        .await;
}

fn prefers() -> Value {
    json!({"mode": "TryPreferredFlavors"})
}

/// Gives a flavor so many cores.
async fn resize(bed: &Bed, flavor: usize, cores: &str) {
    let api: Api<ClusterQueue> = Api::all(bed.admin().clone());
    let mut queue = serde_json::to_value(api.get(&bed.name).await.unwrap().spec).unwrap();
    queue["resourceGroups"][0]["flavors"][flavor]["resources"][0]["nominalQuota"] = json!(cores);
    let patch = json!({"spec": {"resourceGroups": queue["resourceGroups"]}});
    api.patch(&bed.name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until the controller knows that a flavor has so many cores.
async fn knows_cores(bed: &Bed, flavor: &str, cores: f64) {
    let labels =
        [format!("cluster_queue=\"{}\"", bed.name), format!("flavor=\"{}\"", bed.part(flavor))];
    let shown = async || {
        let page = bed::metrics();
        let line = page.lines().find(|line| {
            line.starts_with("kueue_cluster_queue_nominal_quota{")
                && labels.iter().all(|label| line.contains(label))
        });
        let known = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        ensure!(known == Some(cores), "{known:?}");
        Ok(())
    };
    wait::eventually(WAIT, format!("{cores} cores of {flavor}"), shown).await.unwrap();
}

fn holds(workload: &Workload, condition: &str) -> bool {
    workload
        .status
        .as_ref()
        .is_some_and(|status| conditions::is_true(&status.conditions, condition))
}

/// The flavor that a workload is admitted on.
fn runs_on(bed: &Bed, workload: &Workload) -> Option<String> {
    let status = workload.status.as_ref().filter(|_| holds(workload, conditions::ADMITTED))?;
    let flavor = status.admission.as_ref()?.pod_set_assignments.first()?.flavors.get("cpu")?;
    flavor.strip_prefix(&format!("{}-", bed.name)).map(str::to_owned)
}

/// The variants of a job's workload, by flavor.
async fn variants_of(bed: &Bed, job: &str) -> Vec<(String, Workload)> {
    let parent = bed.workload_of(job).await;
    let all = bed.workloads().await.into_iter();
    let own = all.filter(|it| {
        variants::parent_of(it)
            .is_some_and(|owner| Some(&owner.uid) == parent.metadata.uid.as_ref())
    });
    let flavor = |it: &Workload| {
        variants::flavor_of(it).unwrap_or_default().replacen(&format!("{}-", bed.name), "", 1)
    };
    own.map(|it| (flavor(&it), it)).collect()
}

/// Whether the job runs on this flavor, and its variants are as told: those that are admitted, try, or do not.
async fn is_on(
    bed: &Bed,
    job: &str,
    flavor: &str,
    expected: &[(&str, &str)],
) -> anyhow::Result<()> {
    let parent = bed.workload_of(job).await;
    ensure!(variants::is_parent(&parent), "{:?}", parent.metadata.labels);
    ensure!(
        runs_on(bed, &parent).as_deref() == Some(flavor),
        "it runs on {:?}",
        runs_on(bed, &parent)
    );
    let mut known: Vec<_> = variants_of(bed, job)
        .await
        .iter()
        .map(|(flavor, it)| (flavor.clone(), state(it)))
        .collect();
    known.sort();
    let mut expected: Vec<_> =
        expected.iter().map(|(flavor, state)| ((*flavor).to_owned(), *state)).collect();
    expected.sort();
    ensure!(known == expected, "{known:?}");
    let api: Api<Job> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let active = api.get(job).await?.status.and_then(|status| status.active);
    ensure!(active.unwrap_or(0) > 0, "it has no pods");
    Ok(())
}

/// Waits until it is.
async fn on(bed: &Bed, job: &str, flavor: &str, expected: &[(&str, &str)]) {
    let what = format!("{job} to run on {flavor} with {expected:?}");
    wait::eventually(WAIT, what, async || is_on(bed, job, flavor, expected).await).await.unwrap();
}

/// Sees it stay so for a while.
async fn stays_on(bed: &Bed, job: &str, flavor: &str, expected: &[(&str, &str)]) {
    let what = format!("{job} runs on {flavor} with {expected:?}");
    wait::always(A_WHILE, what, async || is_on(bed, job, flavor, expected).await).await.unwrap();
}

fn state(variant: &Workload) -> &'static str {
    match (
        holds(variant, conditions::FINISHED),
        variant.spec.is_active(),
        holds(variant, conditions::QUOTA_RESERVED),
    ) {
        (true, _, _) => "finished",
        (_, _, true) => "holds",
        (_, true, false) => "tries",
        (_, false, false) => "rests",
    }
}

#[test]
fn job_runs_on_best_flavor_and_its_variants_end() {
    fixture::run(async {
        let bed = Bed::configured("best", SECTIONS).await;
        apply(&bed, &[("reserved", "1"), ("spot", "2")], prefers(), queues::ClusterQueue::build)
            .await;
        bed.job("first").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        on(&bed, "first", "reserved", &[("reserved", "holds"), ("spot", "rests")]).await;
        let parent = bed.workload_of("first").await;
        let said = format!(
            "The variant {} is admitted",
            variants_of(&bed, "first")
                .await
                .iter()
                .find(|it| it.0 == "reserved")
                .unwrap()
                .1
                .name_any()
        );
        bed.expect("first", "Admitted", "True", "Admitted", &said).await;
        for (_, variant) in variants_of(&bed, "first").await {
            assert_eq!(variant.spec.queue_name, parent.spec.queue_name);
            assert!(variant.finalizers().is_empty());
        }
        bed.queue_status(0, 1, 1).await;

        bed.job("second").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        on(&bed, "second", "spot", &[("reserved", "tries"), ("spot", "holds")]).await;
        bed.queue_status(1, 2, 2).await;
        job::ready(bed.admin(), &bed.namespace, "second", WAIT).await.unwrap();
        bed.pods_succeed("second").await;
        job::complete(bed.admin(), &bed.namespace, "second", WAIT).await.unwrap();
        bed.expect_true("second", "Finished").await;
        let check = async || {
            let states: Vec<_> =
                variants_of(&bed, "second").await.iter().map(|(_, it)| state(it)).collect();
            ensure!(states == ["finished"; 2], "{states:?}");
            Ok(())
        };
        wait::eventually(WAIT, "the variants to end with their workload", check).await.unwrap();
        bed.queue_status(0, 1, 1).await;

        for job in ["first", "second"] {
            bed.delete_job(job).await;
        }
        bed.no_workloads().await;
        bed.queue_status(0, 0, 0).await;
    });
}

#[test]
fn job_moves_to_better_flavor_and_back_when_preempted() {
    fixture::run(async {
        let bed = Bed::configured("moves", SECTIONS).await;
        apply(&bed, &[("reserved", "0"), ("spot", "1")], prefers(), queues::ClusterQueue::build)
            .await;
        bed.job("train").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        on(&bed, "train", "spot", &[("reserved", "tries"), ("spot", "holds")]).await;

        resize(&bed, 0, "1").await;
        on(&bed, "train", "reserved", &[("reserved", "holds"), ("spot", "rests")]).await;
        bed.expect(
            "train",
            "Evicted",
            "False",
            "QuotaReserved",
            "Previously: Admitted variant was evicted",
        )
        .await;
        bed.queue_status(0, 1, 1).await;

        // A user stops the better variant: all try again.
        resize(&bed, 0, "0").await;
        knows_cores(&bed, "reserved", 0.0).await;
        let reserved =
            variants_of(&bed, "train").await.into_iter().find(|it| it.0 == "reserved").unwrap().1;
        let api: Api<Workload> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        let stop = json!({"spec": {"active": false}});
        api.patch(&reserved.name_any(), &PatchParams::default(), &Patch::Merge(stop))
            .await
            .unwrap();
        on(&bed, "train", "spot", &[("reserved", "tries"), ("spot", "holds")]).await;

        bed.set_active("train", false).await;
        bed.suspended("train", true).await;
        bed.queue_status(0, 0, 0).await;
        bed.set_active("train", true).await;
        on(&bed, "train", "spot", &[("reserved", "tries"), ("spot", "holds")]).await;
        bed.delete_job("train").await;
        bed.no_workloads().await;
    });
}

#[test]
fn a_job_moves_only_to_flavors_that_are_worth_it() {
    fixture::run(async {
        let bed = Bed::configured("worth", SECTIONS).await;
        let last = bed.part("reserved");
        let migration = json!({"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": last}});
        let flavors = [("reserved", "0"), ("on-demand", "0"), ("spot", "1")];
        apply(&bed, &flavors, migration, queues::ClusterQueue::build).await;
        bed.job("train").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        let on_spot = [("reserved", "tries"), ("on-demand", "rests"), ("spot", "holds")];
        on(&bed, "train", "spot", &on_spot).await;
        resize(&bed, 1, "1").await;
        stays_on(&bed, "train", "spot", &on_spot).await;
        resize(&bed, 0, "1").await;
        on(
            &bed,
            "train",
            "reserved",
            &[("reserved", "holds"), ("on-demand", "rests"), ("spot", "rests")],
        )
        .await;
    });
}

#[test]
fn a_job_stays_where_it_is_if_the_queue_says_so() {
    fixture::run(async {
        let bed = Bed::configured("stays", SECTIONS).await;
        let migration = json!({"mode": "RetainFirstAdmission"});
        apply(&bed, &[("reserved", "0"), ("spot", "1")], migration, queues::ClusterQueue::build)
            .await;
        bed.job("train").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        let on_spot = [("reserved", "rests"), ("spot", "holds")];
        on(&bed, "train", "spot", &on_spot).await;
        resize(&bed, 0, "1").await;
        stays_on(&bed, "train", "spot", &on_spot).await;
    });
}

#[test]
fn one_variant_at_a_time_preempts() {
    fixture::run(async {
        let bed = Bed::configured("gates", SECTIONS).await;
        let class = bed.part("high");
        bed.cluster().apply([queues::priority_class(&class, 1000)]).await.unwrap();
        let preempts =
            |queue: queues::ClusterQueue| queue.preemption("LowerPriority", "Never").build();
        apply(&bed, &[("reserved", "1"), ("spot", "1")], prefers(), preempts).await;
        for low in ["low-0", "low-1"] {
            bed.job(low).cpu("1").run_forever().create(bed.admin()).await.unwrap();
            bed.running(low).await;
        }
        bed.job("high")
            .cpu("1")
            .priority_class(&class)
            .run_forever()
            .create(bed.admin())
            .await
            .unwrap();
        on(&bed, "high", "reserved", &[("reserved", "holds"), ("spot", "rests")]).await;
        let opened = |variant: &Workload| {
            let gates = variant.status.iter().flat_map(|status| &status.preemption_gates);
            gates.into_iter().any(|gate| gate.position == PreemptionGatePosition::Open)
        };
        for (flavor, variant) in variants_of(&bed, "high").await {
            assert_eq!(opened(&variant), flavor == "reserved", "{flavor}");
        }
        // No other workload was preempted.
        on(&bed, "low-1", "spot", &[("reserved", "tries"), ("spot", "holds")]).await;
    });
}

async fn controller(bed: &Bed, identity: &str, sections: &str) -> Handle {
    let file =
        format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{sections}\n");
    let config: Configuration = config::load(&file).unwrap();
    bed::configured_controller(bed.cluster(), identity, config).await
}

async fn stop(handle: Handle) {
    handle.shutdown();
    handle.ended().await.unwrap();
}

#[test]
fn restart_keeps_variants_and_gate_off_removes_them() {
    fixture::run(async {
        let one = ClusterSpec::new("one").node(NodeSpec::new("node").cpu(8));
        let environment = Environment::builder("variants").cluster(one).start().await.unwrap();
        let environment: &'static Environment = Box::leak(Box::new(environment));
        environment.cluster("one").install().await.unwrap();
        let bed = Bed::on(environment, "restart").await;
        let handle = controller(&bed, "first", SECTIONS).await;
        apply(&bed, &[("reserved", "0"), ("spot", "1")], prefers(), queues::ClusterQueue::build)
            .await;
        bed.job("train").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        on(&bed, "train", "spot", &[("reserved", "tries"), ("spot", "holds")]).await;
        stop(handle).await;

        // No controller decides in between.
        resize(&bed, 0, "1").await;
        let handle = controller(&bed, "second", SECTIONS).await;
        on(&bed, "train", "reserved", &[("reserved", "holds"), ("spot", "rests")]).await;
        let runs = bed.running("train").await.status.unwrap().start_time;
        stop(handle).await;
        let handle = controller(&bed, "third", SECTIONS).await;
        stays_on(&bed, "train", "reserved", &[("reserved", "holds"), ("spot", "rests")]).await;
        stop(handle).await;

        let handle = controller(&bed, "fourth", "").await;
        let check = async || {
            let workloads = bed.workloads().await;
            ensure!(workloads.len() == 1, "{} workloads", workloads.len());
            ensure!(
                !variants::is_parent(&workloads[0])
                    && runs_on(&bed, &workloads[0]).as_deref() == Some("reserved")
            );
            Ok(())
        };
        wait::eventually(WAIT, "the workload alone", check).await.unwrap();
        bed.queue_status(0, 1, 1).await;
        assert_eq!(
            bed.running("train").await.status.unwrap().start_time,
            runs,
            "it was not restarted"
        );
        stop(handle).await;
    });
}
