//! `switchyard debug replay` decides a recording of a controller again.

use std::path::PathBuf;

use crate::bed::{Bed, WAIT};
use clap::Parser as _;
use serde_json::json;
use switchyard_controller::engine::recording::RecordingOptions;
use switchyard_e2e::{Cluster, fixture, queues, wait};

/// Past use orders workloads, and is computed every second.
const SHARING: &str = "admissionFairSharing: {usageHalfLifeTime: 20s, usageSamplingInterval: 1s}";

fn file(cluster: &Cluster) -> PathBuf {
    cluster.state_dir().join("engine.jsonl")
}

async fn replay(file: &std::path::Path) -> anyhow::Result<String> {
    let mut out = Vec::new();
    let args = switchyard::Args::try_parse_from([
        "switchyard".as_ref(),
        "replay".as_ref(),
        file.as_os_str(),
    ])?;
    switchyard::run(args, &mut out).await?;
    Ok(String::from_utf8(out)?)
}

/// The number after a name in a summary.
fn count(summary: &str, name: &str) -> u64 {
    let line = summary.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_default()
}

#[test]
fn what_was_admitted_queued_and_preempted_is_decided_again() {
    fixture::run(async {
        let bed = Bed::with_options("recorded", SHARING, |cluster, options| {
            options.recording = Some(RecordingOptions { file: file(cluster), max_bytes: 1 << 28 });
        })
        .await;
        let queue = queues::ClusterQueue::new(&bed.part("q"))
            .group(&bed.name, &[("cpu", "2")])
            .preemption("LowerPriority", "Never")
            .field("admissionScope", json!({"admissionMode": "UsageBasedAdmissionFairSharing"}));
        let high = queues::priority_class(&bed.part("high"), 1000);
        let other = queues::local_queue(&bed.namespace, "other", &bed.part("q"));
        bed.set_up([high, queue.build(), other], &["q"]).await;

        let jobs = bed.fill("q", 3).await;
        let running = bed.admitted(&jobs, 2).await;
        // Another LocalQueue, which used nothing, preempts one of them.
        let job = bed.job_in("other", "important").priority_class(&bed.part("high"));
        job.create(bed.admin()).await.unwrap();
        bed.expect_true("important", "Admitted").await;
        let left = bed.admitted(&jobs, 1).await;
        assert!(running.contains(&left[0]), "{left:?} of {running:?}");
        // When all have gone the one that waited is admitted, and the one that was preempted.
        bed.delete_job("important").await;
        bed.delete_job(&left[0]).await;
        let rest: Vec<String> = jobs.iter().filter(|job| **job != left[0]).cloned().collect();
        bed.admitted(&rest, 2).await;

        let recording = file(bed.cluster());
        let whole = async || {
            let summary = replay(&recording).await?;
            anyhow::ensure!(
                count(&summary, "admissions") >= 5 && count(&summary, "preemptions") >= 1,
                "{summary}"
            );
            Ok(summary)
        };
        let summary = wait::eventually(WAIT, "all of it to be recorded", whole).await.unwrap();
        assert!(summary.starts_with("identical: "), "{summary}");

        // A decision that was another one is found.
        let text = std::fs::read_to_string(&recording).unwrap();
        let changed = text.replacen("\"InClusterQueue\"", "\"InCohortReclamation\"", 1);
        assert_ne!(changed, text);
        let changed_file = recording.with_extension("changed");
        std::fs::write(&changed_file, changed).unwrap();
        let error = replay(&changed_file).await.unwrap_err().to_string();
        assert!(
            error.contains("decides otherwise") && error.contains("InCohortReclamation"),
            "{error}"
        );
    });
}
