//! Fair sharing, switched on in the configuration file: shares even out by weight, and are shown.

use crate::bed::{Bed, WAIT, metrics};
use kube::Api;
use switchyard_api::v1beta2::Cohort;
use switchyard_e2e::{fixture, queues, wait};

const FAIR: &str =
    "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}";

/// Waits until a ClusterQueue shows this share.
async fn share(bed: &Bed, queue: &str, expected: i64) {
    let check = async || {
        let shown = bed.status_of(queue).await.fair_sharing.map(|sharing| sharing.weighted_share);
        anyhow::ensure!(shown == Some(expected), "it shows {shown:?}");
        Ok(())
    };
    wait::eventually(WAIT, format!("share {expected} of {queue}"), check).await.unwrap();
}

#[test]
fn three_queues_under_load_share_by_their_weights() {
    fixture::run(async {
        let bed = Bed::configured("fair", FAIR).await;
        // Twelve CPUs: two for each, six for all.
        let cohort =
            queues::Cohort::new(&bed.part("all")).group(&bed.name, &[("cpu", "6")]).build();
        let member = |name: &str, weight| {
            bed.member(name, "2").preemption("LowerPriority", "Any").weight(weight).build()
        };
        bed.set_up(
            [cohort, member("a", "1"), member("b", "1"), member("c", "2")],
            &["a", "b", "c"],
        )
        .await;

        let a = bed.fill("a", 12).await;
        bed.admitted(&a, 12).await;
        // Ten borrowed of the twelve that could be lent, in thousandths.
        share(&bed, "a", 834).await;

        let b = bed.fill("b", 12).await;
        bed.admitted(&b, 6).await;
        bed.admitted(&a, 6).await;
        share(&bed, "a", 334).await;
        share(&bed, "b", 334).await;

        let c = bed.fill("c", 12).await;
        // Six are borrowed: three by the queue that weighs two, three by the others.
        bed.admitted(&c, 5).await;
        let settled = async || {
            let (a, b) = (bed.admitted_now(&a).await.len(), bed.admitted_now(&b).await.len());
            anyhow::ensure!(a + b == 7 && a.min(b) == 3, "a has {a}, b has {b}");
            Ok(())
        };
        wait::eventually(WAIT, "seven for a and b", settled).await.unwrap();
        share(&bed, "c", 125).await;
        let line = format!(
            "kueue_cluster_queue_info{{cluster_queue=\"{}\",replica_role=\"standalone\",parent_cohort=\"{1}\",root_cohort=\"{1}\"}} 1",
            bed.part("c"),
            bed.part("all")
        );
        assert!(metrics().contains(&line), "no {line} in\n{}", metrics());
        // No job is moved back and forth: a settled state stays.
        let (before, evictions) = (bed.admitted_now(&c).await, evictions(&bed).await);
        let steady = async || {
            anyhow::ensure!(bed.admitted_now(&c).await == before);
            Ok(())
        };
        wait::always(std::time::Duration::from_secs(1), "nobody is preempted", steady)
            .await
            .unwrap();
        assert_eq!(evictions, self::evictions(&bed).await);

        let reasons = reasons(&bed).await;
        assert!(
            reasons.contains(&"InCohortReclamation".to_owned()),
            "within its nominal quota: {reasons:?}"
        );
        assert!(reasons.contains(&"InCohortFairSharing".to_owned()), "beyond it: {reasons:?}");

        // The others share the unused quota of a queue.
        for job in &c {
            bed.delete_job(job).await;
        }
        bed.admitted(&a, 6).await;
        bed.admitted(&b, 6).await;
        share(&bed, "c", 0).await;
    });
}

/// How often workloads of this test were evicted.
async fn evictions(bed: &Bed) -> i32 {
    let stats =
        bed.workloads().await.into_iter().filter_map(|workload| workload.status?.scheduling_stats);
    stats.flat_map(|stats| stats.evictions).map(|eviction| eviction.count).sum()
}

/// The reasons of their preemptions, those of earlier times in what the conditions say of them.
async fn reasons(bed: &Bed) -> Vec<String> {
    let conditions = bed
        .workloads()
        .await
        .into_iter()
        .flat_map(|workload| workload.status.unwrap_or_default().conditions);
    conditions
        .filter(|condition| condition.type_ == "Preempted")
        .map(|condition| condition.reason)
        .collect()
}

#[test]
fn a_cohort_below_another_shows_its_share() {
    fixture::run(async {
        let bed = Bed::configured("cohort-share", FAIR).await;
        let objects = [
            queues::Cohort::new(&bed.part("org")).group(&bed.name, &[("cpu", "3")]).build(),
            queues::Cohort::new(&bed.part("all")).parent(&bed.part("org")).build(),
            bed.member("q", "1").build(),
        ];
        bed.set_up(objects, &["q"]).await;
        // An admission counts below the Cohorts that are above its queue by then.
        let (all, org) = (bed.part("all"), bed.part("org"));
        let edge = format!("parent_cohort=\"{org}\",root_cohort=\"{org}\"}} 1");
        let below = async || {
            let page = metrics();
            let queue = page.lines().any(|line| {
                line.starts_with("kueue_cluster_queue_info")
                    && line.contains(&format!("root_cohort=\"{org}\""))
            });
            anyhow::ensure!(queue && page.contains(&edge), "{page}");
            Ok(())
        };
        wait::eventually(WAIT, "the queue to be below both Cohorts", below).await.unwrap();
        let jobs = bed.fill("q", 3).await;
        bed.admitted(&jobs, 3).await;
        // Two borrowed of the four that the root could lend.
        share(&bed, "q", 500).await;
        let api: Api<Cohort> = Api::all(bed.admin().clone());
        let shown = async |name: &str, expected: i64| {
            let check = async || {
                let status =
                    api.get(&bed.part(name)).await?.status.and_then(|status| status.fair_sharing);
                anyhow::ensure!(
                    status.as_ref().map(|sharing| sharing.weighted_share) == Some(expected),
                    "{status:?}"
                );
                Ok(())
            };
            wait::eventually(WAIT, format!("share {expected} of {name}"), check).await.unwrap();
        };
        shown("all", 500).await;
        shown("org", 0).await;
        for line in [
            format!(
                "kueue_cohort_weighted_share{{cohort=\"{all}\",replica_role=\"standalone\"}} 500"
            ),
            format!(
                "kueue_cohort_info{{cohort=\"{all}\",replica_role=\"standalone\",parent_cohort=\"{org}\",root_cohort=\"{org}\"}} 1"
            ),
            format!(
                "kueue_cohort_subtree_quota{{cohort=\"{org}\",flavor=\"{0}\",resource=\"cpu\",replica_role=\"standalone\"}} 4",
                bed.name
            ),
            format!(
                "kueue_cohort_subtree_resource_reservations{{cohort=\"{org}\",flavor=\"{0}\",resource=\"cpu\",replica_role=\"standalone\"}} 3",
                bed.name
            ),
            format!(
                "kueue_cohort_subtree_admitted_workloads_total{{cohort=\"{org}\",priority_class=\"\",replica_role=\"standalone\"}} 3"
            ),
        ] {
            let page = async || {
                let page = metrics();
                anyhow::ensure!(page.contains(&line), "{page}");
                Ok(())
            };
            wait::eventually(WAIT, &line, page).await.unwrap();
        }
        bed.delete("ClusterQueue", &bed.part("q")).await;
        for job in &jobs {
            bed.delete_job(job).await;
        }
        bed.gone("ClusterQueue", &bed.part("q")).await;
        let name = format!("\"{}\"", bed.part("q"));
        let gone = async || {
            let page = metrics();
            let left: Vec<&str> = page.lines().filter(|line| line.contains(&name)).collect();
            anyhow::ensure!(left.is_empty(), "{left:?}");
            Ok(())
        };
        wait::eventually(WAIT, "no series of a queue that is gone", gone).await.unwrap();
        shown("all", 0).await;
    });
}
