//! Preemption that frees a domain, where quota alone would suffice.

use std::collections::BTreeMap;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use switchyard_api::conditions;
use switchyard_e2e::{fixture, queues, wait::eventually};

use super::node_of;
use super::racks::{HOSTS, RACK, REQUIRED, Racks};
use crate::bed::WAIT;

#[test]
fn preemption_frees_exactly_one_rack() {
    fixture::run(async {
        let racks =
            Racks::with_queue("frees", |queue| queue.preemption("LowerPriority", "Never")).await;
        let bed = &racks.bed;
        let class = bed.part("high");
        bed.cluster().apply([queues::priority_class(&class, 1000)]).await.unwrap();
        // One on each host leaves one CPU there, so that quota is free and no rack has room.
        let low: Vec<String> = (0..HOSTS).map(|index| format!("low-{index}")).collect();
        for name in &low {
            bed.job(name).run_forever().cpu("3").create(bed.admin()).await.unwrap();
        }
        let mut before: BTreeMap<&str, Pod> = BTreeMap::new();
        for name in &low {
            before.insert(name, racks.running(name, 1).await.remove(0));
        }
        let high = bed.job("high").run_forever().cpu("4").parallelism(2).completions(2);
        let high = high.priority_class(&class).pod_annotation(REQUIRED, RACK);
        high.create(bed.admin()).await.unwrap();
        let rack = racks.one_of(&racks.running("high", 2).await, RACK).await;

        let evicted = async || {
            let mut evicted = Vec::new();
            for name in &low {
                if bed.is_true(name, conditions::PREEMPTED).await {
                    evicted.push(name.as_str());
                }
            }
            ensure!(evicted.len() == 2, "preempted: {evicted:?}");
            Ok(evicted)
        };
        let evicted = eventually(WAIT, "two preempted jobs", evicted).await.unwrap();
        for (name, pod) in &before {
            let here = racks.one_of(std::slice::from_ref(pod), RACK).await == rack;
            assert_eq!(evicted.contains(name), here, "{name} was on {}", node_of(pod));
            if !here {
                let now = racks.running(name, 1).await.remove(0);
                assert_eq!(now.uid(), pod.uid(), "{name} runs on");
            }
        }
        for name in evicted {
            assert!(!bed.is_true(name, conditions::QUOTA_RESERVED).await, "{name} waits");
        }
    });
}
