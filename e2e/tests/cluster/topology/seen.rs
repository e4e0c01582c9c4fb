//! Placement as users see it: `switchyard why`, `switchyard describe queue`, metrics.

use anyhow::ensure;
use clap::Parser as _;
use serde_json::Value;
use switchyard_e2e::{fixture, wait::eventually};

use super::racks::{RACK, REQUIRED, Racks};
use crate::bed::{WAIT, metrics};

async fn run(racks: &Racks, args: &[&str]) -> anyhow::Result<String> {
    let kubeconfig = racks.bed.cluster().kubeconfig().to_str().unwrap();
    let args = ["switchyard", "--kubeconfig", kubeconfig].into_iter().chain(args.iter().copied());
    let mut out = Vec::new();
    switchyard::run(switchyard::Args::try_parse_from(args)?, &mut out).await?;
    Ok(String::from_utf8(out)?)
}

#[test]
fn waiting_and_running_placement_is_explained() {
    fixture::run(async {
        let racks = Racks::new("seen").await;
        let bed = &racks.bed;
        let job = |name: &str, pods: u32| {
            let job = bed.job(name).run_forever().cpu("3").parallelism(pods).completions(pods);
            job.pod_annotation(REQUIRED, RACK)
        };
        job("runs", 2).create(bed.admin()).await.unwrap();
        let rack = racks.one_of(&racks.running("runs", 2).await, RACK).await;
        racks.cordon(&racks.host(7), true).await;
        racks.taint(&racks.host(6), Some(("gpu", "NoSchedule"))).await;
        job("waits", 3).create(bed.admin()).await.unwrap();
        bed.expect("waits", "QuotaReserved", "False", "TopologyPlacementFailed", "").await;

        let namespace = bed.namespace.as_str();
        let waits = run(&racks, &["why", "job/waits", "-n", namespace]).await.unwrap();
        for text in [
            format!("3 pods in one domain of {RACK}"),
            "the node is cordoned".to_owned(),
            "the pods do not tolerate taint gpu:NoSchedule".to_owned(),
            format!("one domain of {RACK} takes 3 pods"),
        ] {
            assert!(waits.contains(&text), "no {text:?} in {waits}");
        }
        let json = run(&racks, &["why", "job/waits", "-n", namespace, "-o", "json"]).await.unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        let best: Vec<_> = json["placement"]["best"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["missing"].clone())
            .collect();
        assert_eq!(best, [1, 1, 2], "{json}");

        let runs = run(&racks, &["why", "job/runs", "-n", namespace]).await.unwrap();
        for host in racks.assigned("runs").await {
            assert!(runs.contains(&host), "no {host} in {runs}");
        }

        let queue = run(&racks, &["describe", "queue", &bed.name]).await.unwrap();
        let line =
            queue.lines().find(|line| line.trim_start().starts_with(&rack)).unwrap_or_default();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells, [rack.as_str(), "cpu", "2", "8", "6", "0"], "{queue}");
    });
}

#[test]
fn metrics_show_the_largest_free_domain_of_each_level() {
    fixture::run(async {
        let racks = Racks::new("metrics").await;
        let bed = &racks.bed;
        let value = |name: &str, level: &str| {
            let flavor = format!("flavor=\"{}\"", bed.name);
            let level = format!("level=\"{level}\"");
            let page = metrics();
            let line = page.lines().find(|line| {
                line.starts_with(&format!("{name}{{"))
                    && line.contains(&flavor)
                    && line.contains(&level)
                    && line.contains("resource=\"cpu\"")
            });
            line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        };
        let shows = async |free: f64, block: f64, rack: f64, host: f64| {
            let check = async || {
                let levels = [super::racks::BLOCK, RACK, super::racks::HOST];
                let largest =
                    levels.map(|level| value("switchyard_topology_largest_free_domain", level));
                let total = value("switchyard_topology_free", RACK);
                ensure!(
                    largest == [block, rack, host].map(Some) && total == Some(free),
                    "{largest:?} {total:?}"
                );
                Ok(())
            };
            eventually(WAIT, "the largest free domains", check).await.unwrap();
        };
        shows(32.0, 16.0, 8.0, 4.0).await;
        // One pod of others on each host: much is free, and no host has more than one CPU.
        let others = racks.fill(3).await;
        shows(8.0, 4.0, 2.0, 1.0).await;
        racks.delete_pods(&others).await;
        shows(32.0, 16.0, 8.0, 4.0).await;
        bed.job("a")
            .run_forever()
            .cpu("4")
            .parallelism(4)
            .completions(4)
            .create(bed.admin())
            .await
            .unwrap();
        shows(16.0, 16.0, 8.0, 4.0).await;
    });
}
