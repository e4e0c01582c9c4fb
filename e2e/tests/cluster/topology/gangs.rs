//! Gangs of random shape: at every moment, the pods of no node request more than it has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::ListParams,
    runtime::watcher::{self, Event, watcher},
};
use serde_json::json;
use switchyard_api::quantity::amount_of;
use switchyard_e2e::{JobBuilder, fixture, job::has_condition, wait::eventually};

use super::racks::{BLOCK, HOST, PREFERRED, RACK, REQUIRED, Racks, SLICE_LEVEL, SLICE_SIZE};
use crate::common::random;
use switchyard_e2e::random::Random;

/// Jobs of the test.
const GANGS: usize = 200;
/// Longer than they take on a busy machine.
const ALL: Duration = Duration::from_secs(600);
/// Milli-CPUs of a host.
const HOST_CPU: i64 = 4000;
/// The annotation of pods that go anywhere.
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";

/// The requested CPU of each host by pod, from the moment when a pod's host is selected.
#[derive(Default)]
struct Load {
    pods: BTreeMap<String, (String, i64)>,
    /// States in which the pods of a host requested more than it has.
    overcommitted: Vec<String>,
    /// The highest request of all hosts together.
    most: i64,
}

impl Load {
    fn apply(&mut self, event: Event<Pod>) {
        match event {
            Event::Delete(pod) => drop(self.pods.remove(&pod.name_any())),
            Event::Apply(pod) => self.put(&pod),
            // A repeated list has no pods that were deleted meanwhile. It is checked once it is whole.
            Event::Init => return self.pods.clear(),
            Event::InitApply(pod) => return self.put(&pod),
            Event::InitDone => {}
        }
        let mut by_host: BTreeMap<&str, i64> = BTreeMap::new();
        for (host, cpu) in self.pods.values() {
            *by_host.entry(host).or_default() += cpu;
        }
        self.most = self.most.max(by_host.values().sum());
        let over = by_host.iter().filter(|(_, cpu)| **cpu > HOST_CPU);
        self.overcommitted.extend(over.map(|(host, cpu)| format!("{host}: {cpu}m")));
    }

    fn put(&mut self, pod: &Pod) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let spec = pod.spec.clone().unwrap_or_default();
        let selected = spec.node_selector.as_ref().and_then(|it| it.get(HOST).cloned());
        match spec.node_name.or(selected).filter(|_| !matches!(phase, Some("Succeeded" | "Failed")))
        {
            None => drop(self.pods.remove(&pod.name_any())),
            Some(host) => {
                let requests = spec
                    .containers
                    .iter()
                    .filter_map(|it| it.resources.as_ref()?.requests.as_ref());
                let cpu =
                    requests.filter_map(|it| it.get("cpu")).map(|it| amount_of("cpu", it)).sum();
                self.pods.insert(pod.name_any(), (host, cpu));
            }
        }
    }
}

/// A gang of up to eight pods with any request that the empty topology can place.
fn gang(racks: &Racks, name: &str, random: &mut Random) -> JobBuilder {
    let slice = 1 + random.below(2);
    // Pods of two CPUs: a host takes two, a rack four, a block eight.
    let (level, most) = *random.pick(&[(HOST, 2), (RACK, 4), (BLOCK, 8)]);
    let pods = u32::try_from(slice * (1 + random.below(most / slice))).unwrap();
    let cpu = random.pick(&["500m", "1", "1500m", "2"]);
    let job = racks.bed.job(name).parallelism(pods).completions(pods).cpu(cpu).backoff_limit(6);
    let mut job = job.run_for(Duration::from_millis(200 + 100 * random.below(8)));
    if random.percent(50) {
        job = job.field("completionMode", json!("Indexed"));
    }
    match random.below(5) {
        0 => job.pod_annotation(REQUIRED, level),
        1 => job.pod_annotation(PREFERRED, level),
        2 => job.pod_annotation(UNCONSTRAINED, "true"),
        3 => {
            let job = job.pod_annotation(PREFERRED, BLOCK).pod_annotation(SLICE_LEVEL, RACK);
            job.pod_annotation(SLICE_SIZE, &slice.to_string())
        }
        _ => job,
    }
}

#[test]
fn pods_of_random_gangs_overcommit_no_node() {
    fixture::run(async {
        let racks = Racks::new("gangs").await;
        let load = Arc::new(Mutex::new(Load::default()));
        let watched = load.clone();
        let pods = watcher(racks.pods(), watcher::Config::default());
        let watch = tokio::spawn(pods.for_each(move |event| {
            // The watcher repeats its list after an error.
            if let Ok(event) = event {
                watched.lock().unwrap().apply(event);
            }
            std::future::ready(())
        }));
        let (_, mut random) = random::seeded_by("GANGS_SEED");
        let jobs: Vec<JobBuilder> =
            (0..GANGS).map(|at| gang(&racks, &format!("gang-{at}"), &mut random)).collect();
        let admin = racks.bed.admin();
        let created = stream::iter(jobs).map(|job| job.create(admin)).buffered(4);
        created.try_for_each(async |_| Ok(())).await.unwrap();
        let api: Api<Job> = Api::namespaced(admin.clone(), &racks.bed.namespace);
        // All jobs together are a megabyte: as long as one has no ended pod, ask for one.
        let unended = ListParams::default().fields("status.successful=0").limit(1);
        let ended = async || {
            let each_has_ended_pod = api.list(&unended).await?.items.is_empty();
            ensure!(each_has_ended_pod, "some have no ended pod");
            let jobs = api.list(&ListParams::default()).await?.items;
            let (ended, others): (Vec<_>, Vec<_>) =
                jobs.iter().partition(|job| has_condition(job, "Complete"));
            ensure!(others.is_empty(), "{} of {} have ended", ended.len(), jobs.len());
            Ok(())
        };
        eventually(ALL, format!("{GANGS} gangs to end"), ended).await.unwrap();
        watch.abort();
        let load = load.lock().unwrap();
        println!("at most {}m of {}m CPU were requested at once", load.most, 8 * HOST_CPU);
        assert!(load.overcommitted.is_empty(), "{:?}", load.overcommitted);
        assert!(load.most > HOST_CPU, "gangs ran beside each other: {}m", load.most);
    });
}
