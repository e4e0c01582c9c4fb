use serde_json::{Value, json};

use super::picture::Picture;

fn document(benchmark: &str, settings: &Value, reports: &Value) -> Value {
    json!({
        "benchmark": benchmark, "unixSeconds": 1_795_305_600, "debugBuild": false, "settings": settings,
        "machine": {"processors": 2, "model": "", "memoryKiB": 16_777_216},
        "versions": {"switchyard": "0.1.0 (abc)", "kueue": "v0.19.2", "kubernetes": "v1.36.3", "etcd": "v3.7.3"},
        "reports": reports,
    })
}

/// The texts of a picture.
fn texts(svg: &str) -> Vec<&str> {
    svg.lines().filter(|line| !line.starts_with('<')).collect()
}

#[test]
fn a_burst_is_drawn_with_its_date_versions_and_machine() {
    let system = |name: &str, rate: f64, cut: bool| json!({"system": name, "cut": cut, "jobsPerSecond": {"clock": rate}, "cpuMillisecondsPerJob": {"controllers": 5.5}});
    let systems = [
        system("floor", 80.0, false),
        system("ours", 60.0, false),
        system("stock as shipped", 0.6, true),
    ];
    let reports = json!([{"form": "dispatch", "jobs": 1000, "systems": systems}]);
    let svg = Picture::of(&document("burst", &json!({}), &reports)).unwrap().svg().unwrap();
    let texts = texts(&svg);
    for text in [
        "1,000 jobs until each is on a worker",
        "80.0",
        "0.60 (cut)",
        "5.5 ms",
        "Measured 2026-11-22 on 2 CPUs, 16 GiB, all of it on one machine",
        "switchyard 0.1.0 (abc), Kueue v0.19.2, Kubernetes v1.36.3, etcd v3.7.3",
    ] {
        assert!(texts.contains(&text), "{text:?} is not in {texts:?}");
    }
    assert_eq!(
        texts.iter().filter(|text| **text == "floor").count(),
        1,
        "no CPU of a dispatcher without one"
    );
}

#[test]
fn growth_is_drawn_from_the_fewest_clusters_to_the_most() {
    let report = |clusters: u32| {
        json!({
            "clusters": clusters, "hubCores": {"idle": 0.01, "quiet": 0.02, "changes": 0.1},
            "hubBytes": {"idle": 3e7, "quiet": 5e7, "peak": 6e7}, "jobsPerSecond": {"dispatched": 90.0},
            "statusLag": {"p50Seconds": 0.02, "p99Seconds": 0.2},
        })
    };
    let settings = json!({"running": 5000, "queued": 10_000, "changesPerSecond": 50});
    let svg = Picture::of(&document("scale", &settings, &json!([report(300), report(3)])))
        .unwrap()
        .svg()
        .unwrap();
    let texts = texts(&svg);
    for text in [
        "CPU of the hub",
        "50 changes/s",
        "percent of one core; 5,000 jobs run, 10,000 wait",
        "300",
    ] {
        assert!(texts.contains(&text), "{text:?} is not in {texts:?}");
    }
}

#[test]
fn cycles_are_drawn_by_size_and_system() {
    let system = |name: &str, p99: f64| json!({"system": name, "p50Ms": 1.0, "p99Ms": p99});
    let alone = json!({"nodes": 10_000, "queues": 100, "pending": 10_000, "systems": [system("ours", 41.25)]});
    let both = json!({
        "nodes": 320, "queues": 10, "pending": 300, "systems": [system("ours", 0.5), system("stock", 85.0)],
    });
    let document = document("topology", &json!({"seed": 1}), &json!([both, alone]));
    let svg = Picture::of(&document).unwrap().svg().unwrap();
    let texts = texts(&svg);
    for text in [
        "320 nodes: 99 in 100 of the cycles within",
        "10 queues, 300 gangs; less is better",
        "85.00 ms",
        "10,000 nodes: half of the cycles within",
        "41.25 ms",
    ] {
        assert!(texts.contains(&text), "{text:?} is not in {texts:?}");
    }
}

#[test]
fn what_no_benchmark_wrote_is_refused_with_what_is_missing() {
    let refused = |document: &Value| {
        Picture::of(document).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused(&json!({})).contains("/benchmark: no text"));
    assert!(refused(&json!({"benchmark": "x"})).contains("no picture is known of \"x\""));
    assert!(
        refused(&document("burst", &json!({}), &json!([{"form": "finish"}])))
            .contains("/jobs: no number")
    );
}
