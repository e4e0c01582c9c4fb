//! `switchyard explain` on a real cluster, with the rights of the viewer's role and no others.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod bed;

use bed::Bed;
use clap::Parser as _;
use serde_json::{Value, json};
use switchyard_e2e::{queues, wait};
use tokio::sync::OnceCell;

/// A kubeconfig of an account that holds the role `switchyard-viewer` and nothing else.
async fn viewer(bed: &Bed) -> &'static str {
    static PATH: OnceCell<String> = OnceCell::const_new();
    let make = async || {
        let cluster = bed.cluster();
        let group = "rbac.authorization.k8s.io";
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer", "namespace": "default"}});
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "viewer"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "switchyard-viewer"},
            "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}],
        });
        cluster.apply([account, binding]).await.unwrap();
        let (_, kubeconfig) = cluster.service_account("default", "viewer").await.unwrap();
        let path = cluster.state_dir().join("explain.kubeconfig");
        std::fs::write(&path, kubeconfig).unwrap();
        path.to_str().unwrap().to_owned()
    };
    PATH.get_or_init(make).await
}

async fn explain(bed: &Bed, words: &[&str]) -> anyhow::Result<String> {
    let command = ["switchyard", "--kubeconfig", viewer(bed).await, "explain", "-n", &bed.namespace];
    let mut out = Vec::new();
    switchyard::run(switchyard::Args::try_parse_from(command.iter().chain(words))?, &mut out).await?;
    Ok(String::from_utf8(out)?)
}

/// The explanation as programs read it, once it says what is `expected` of it. The role that was bound a moment ago takes
/// effect when the API server has seen it.
async fn explained(bed: &Bed, job: &str, outlook: &str) -> Value {
    let look = async || {
        let value: Value = serde_json::from_str(&explain(bed, &[job, "-o", "json"]).await?)?;
        anyhow::ensure!(value["outlook"] == outlook, "{value:#}");
        Ok(value)
    };
    wait::eventually(bed::WAIT, format!("{job} to be explained as {outlook}"), look).await.unwrap()
}

#[test]
fn pending_behind_a_head() {
    switchyard_e2e::fixture::run(async {
        let bed = Bed::new("behind").await;
        bed.apply(queues::ClusterQueue::new(&bed.name).group(&bed.name, &[("cpu", "4")]).strict_fifo().build()).await;
        bed.job("runs").cpu("3").run_forever().create(bed.admin()).await.unwrap();
        bed.expect_true("runs", "Admitted").await;
        bed.job("head").cpu("2").create(bed.admin()).await.unwrap();
        bed.workload_of("head").await;
        bed.next_second().await;
        bed.job("last").cpu("1").create(bed.admin()).await.unwrap();
        bed.workload_of("last").await;

        let value = explained(&bed, "job/last", "Fits").await;
        assert_eq!(value["place"]["positionInClusterQueue"], 1);
        assert_eq!(value["place"]["queueingStrategy"], "StrictFIFO");
        let head = &value["place"]["head"];
        assert!(head["workload"].as_str().unwrap().starts_with(&format!("{}/job-head-", bed.namespace)));
        assert_eq!(head["reason"]["reason"], "WaitingForQuota");
        // What the controller itself says of the head is what the explanation says.
        let message = head["reason"]["message"].as_str().unwrap();
        bed.expect("head", "QuotaReserved", "False", "WaitingForQuota", message).await;
        let text = explain(&bed, &["last"]).await.unwrap();
        assert!(
            text.contains("2 of 2 in the ClusterQueue") && text.contains("blocks all behind it (StrictFIFO)"),
            "{text}"
        );

        let held = explained(&bed, "job/runs", "Admitted").await;
        assert_eq!(held["admission"]["podSets"][0]["usage"]["cpu"], "3");
    });
}

#[test]
fn more_than_there_is() {
    switchyard_e2e::fixture::run(async {
        let bed = Bed::new("nofit").await;
        bed.simple(&[("cpu", "2")]).await;
        bed.job("big").cpu("3").create(bed.admin()).await.unwrap();
        bed.workload_of("big").await;
        let value = explained(&bed, "big", "Blocked").await;
        assert_eq!(value["reason"]["reason"], "ExceedsMaxQuota");
        let resource = &value["podSets"][0]["flavors"][0]["resources"][0];
        assert_eq!((resource["asked"].as_str(), resource["max"].as_str()), (Some("3"), Some("2")));
        let message = value["reason"]["message"].as_str().unwrap();
        bed.expect("big", "QuotaReserved", "False", "ExceedsMaxQuota", message).await;
    });
}

#[test]
fn preemption_that_is_not_allowed() {
    switchyard_e2e::fixture::run(async {
        let bed = Bed::new("stays").await;
        let queue = queues::ClusterQueue::new(&bed.name).group(&bed.name, &[("cpu", "2")]);
        bed.apply(queue.preemption("LowerPriority", "Never").build()).await;
        let high = format!("{}-high", bed.name);
        bed.cluster().apply([queues::priority_class(&high, 100)]).await.unwrap();
        bed.job("important").priority_class(&high).cpu("2").run_forever().create(bed.admin()).await.unwrap();
        bed.expect_true("important", "Admitted").await;
        bed.job("waits").cpu("1").create(bed.admin()).await.unwrap();
        bed.workload_of("waits").await;
        let value = explained(&bed, "waits", "Blocked").await;
        let resource = &value["podSets"][0]["flavors"][0]["resources"][0];
        assert_eq!(resource["verdict"], "NoCandidates");
        let refused = &resource["preemption"]["refused"][0];
        assert_eq!((refused["obstacle"].as_str(), refused["workloads"].as_u64()), (Some("Priority"), Some(1)));
        let told = "preemption.withinClusterQueue is LowerPriority: priority 100 or more is not lower than 0";
        assert_eq!(refused["message"], told);
        let text = explain(&bed, &["waits"]).await.unwrap();
        assert!(text.contains(told), "{text}");
    });
}
