//! `switchyard why` on a real cluster, with the rights of the viewer's role and no others.

use crate::bed::{Bed, WAIT};
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
    let command =
        ["switchyard", "--kubeconfig", viewer(bed).await, "explain", "-n", &bed.namespace];
    let mut out = Vec::new();
    switchyard::run(switchyard::Args::try_parse_from(command.iter().chain(words))?, &mut out)
        .await?;
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
    wait::eventually(WAIT, format!("{job} to be explained as {outlook}"), look).await.unwrap()
}

#[test]
fn pending_behind_a_head() {
    switchyard_e2e::fixture::run(async {
        let bed = Bed::new("behind").await;
        bed.apply(
            queues::ClusterQueue::new(&bed.name)
                .group(&bed.name, &[("cpu", "4")])
                .strict_fifo()
                .build(),
        )
        .await;
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
        assert!(
            head["workload"].as_str().unwrap().starts_with(&format!("{}/job-head-", bed.namespace))
        );
        assert_eq!(head["reason"]["reason"], "WaitingForQuota");
        // The explanation of the head equals the controller's message.
        let message = head["reason"]["message"].as_str().unwrap();
        bed.expect("head", "QuotaReserved", "False", "WaitingForQuota", message).await;
        let text = explain(&bed, &["last"]).await.unwrap();
        assert!(
            text.contains("2 of 2 in the ClusterQueue")
                && text.contains("blocks all behind it (StrictFIFO)"),
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
        bed.job("important")
            .priority_class(&high)
            .cpu("2")
            .run_forever()
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect_true("important", "Admitted").await;
        bed.job("waits").cpu("1").create(bed.admin()).await.unwrap();
        bed.workload_of("waits").await;
        let value = explained(&bed, "waits", "Blocked").await;
        let resource = &value["podSets"][0]["flavors"][0]["resources"][0];
        assert_eq!(resource["verdict"], "NoCandidates");
        let refused = &resource["preemption"]["refused"][0];
        assert_eq!(
            (refused["obstacle"].as_str(), refused["workloads"].as_u64()),
            (Some("Priority"), Some(1))
        );
        let told = "preemption.withinClusterQueue is LowerPriority: priority 100 or more is not lower than 0";
        assert_eq!(refused["message"], told);
        let text = explain(&bed, &["waits"]).await.unwrap();
        assert!(text.contains(told), "{text}");
    });
}

/// A job in a queue of its own, and its expected explanation.
struct Told {
    job: &'static str,
    outlook: &'static str,
    reason: &'static str,
    /// Parts of the text for users.
    text: Vec<String>,
}

/// Waits until a job is explained so, to programs and to users, in the words of its own condition.
async fn expect(bed: &Bed, told: Told) {
    let look = async || {
        let value: Value = serde_json::from_str(&explain(bed, &[told.job, "-o", "json"]).await?)?;
        anyhow::ensure!(
            value["outlook"] == told.outlook && value["reason"]["reason"] == told.reason,
            "{value:#}"
        );
        let written =
            ["reason", "message"].map(|field| value["recorded"][field] == value["reason"][field]);
        anyhow::ensure!(written == [true; 2], "the condition says something else: {value:#}");
        // A job that is deactivated here borrows until its pods have ended.
        let text = explain(bed, &[told.job]).await?;
        for part in &told.text {
            anyhow::ensure!(text.contains(part), "no {part:?} in\n{text}");
        }
        Ok(text)
    };
    let text = wait::eventually(WAIT, format!("what is said of {}", told.job), look).await.unwrap();
    println!("--- {}\n{text}", told.job);
}

#[test]
fn each_cause_has_its_words() {
    switchyard_e2e::fixture::run(async {
        let bed = Bed::new("causes").await;
        let queue = |name: &str| queues::ClusterQueue::new(&bed.part(name));
        let held = |name: &str, target: &str| {
            let mut door = queues::local_queue(&bed.namespace, name, &bed.part(target));
            door["spec"]["stopPolicy"] = json!("Hold");
            door
        };
        let limited = bed.member("limited", "2").limits("cpu", Some("1"), None);
        let modest = bed.member("modest", "2").preemption("Never", "Any");
        let objects = [limited.build(), modest.build(), bed.member("lender", "5").build()];
        bed.set_up(objects, &["limited", "modest", "lender"]).await;
        let others = [
            queue("stopped").group(&bed.name, &[("cpu", "2")]).stop_policy("Hold").build(),
            queue("absent").group("no-such-flavor", &[("cpu", "2")]).build(),
            queues::local_queue(&bed.namespace, "stopped", &bed.part("stopped")),
            queues::local_queue(&bed.namespace, "absent", &bed.part("absent")),
            queues::local_queue(&bed.namespace, "nowhere", &bed.part("nowhere")),
            held("held", "limited"),
        ];
        bed.cluster().apply(others).await.unwrap();

        // Two of its own and one borrowed is all that `limited` can have; the lender uses its own alone.
        bed.job_in("limited", "runs").cpu("2").create(bed.admin()).await.unwrap();
        bed.job_in("lender", "lends").cpu("5").create(bed.admin()).await.unwrap();
        for name in ["runs", "lends"] {
            bed.expect_true(name, "Admitted").await;
        }
        bed.job_in("limited", "borrows").cpu("2").create(bed.admin()).await.unwrap();
        bed.job_in("modest", "reclaims").cpu("3").create(bed.admin()).await.unwrap();
        for name in ["stopped", "absent", "nowhere", "held", "nosuch"] {
            bed.job_in(name, name).create(bed.admin()).await.unwrap();
        }
        let gate = "kueue.x-k8s.io/admission-gated-by";
        bed.job_in("lender", "gated")
            .annotation(gate, "example.com/wait")
            .create(bed.admin())
            .await
            .unwrap();
        bed.job_in("lender", "off").create(bed.admin()).await.unwrap();
        bed.set_active("off", false).await;

        let told = |job, outlook, reason, text: &[&str]| Told {
            job,
            outlook,
            reason,
            text: text.iter().map(|part| (*part).to_owned()).collect(),
        };
        let limit =
            format!("no more than 1 may be borrowed: borrowingLimit of {}", bed.part("limited"));
        let lender = format!("{} uses no more than its own quota", bed.part("lender"));
        let cases = [
            told("borrows", "Blocked", "WaitingForQuota", &[&limit]),
            told("reclaims", "Blocked", "WaitingForQuota", &[&lender]),
            told("stopped", "NotTried", "Suspended", &["is inactive (Stopped: is stopped)"]),
            told(
                "absent",
                "NotTried",
                "Suspended",
                &["FlavorNotFound: references missing ResourceFlavor(s): no-such"],
            ),
            told("nowhere", "NotTried", "Misconfigured", &["doesn't exist"]),
            told("nosuch", "NotTried", "Misconfigured", &["LocalQueue nosuch doesn't exist"]),
            told(
                "held",
                "NotTried",
                "Suspended",
                &[
                    "LocalQueue held is inactive (Stopped: its stopPolicy is Hold)",
                    "If it were tried:",
                ],
            ),
            told(
                "gated",
                "NotTried",
                "AdmissionGated",
                &["Admission is gated by: example.com/wait"],
            ),
            told("off", "NotTried", "Deactivated", &["The workload is deactivated"]),
        ];
        for case in cases {
            expect(&bed, case).await;
        }
    });
}

#[test]
fn a_check_that_has_not_answered_is_named() {
    switchyard_e2e::fixture::run(async {
        let bed = Bed::new("asked").await;
        bed.cluster().apply([queues::admission_check(&bed.name)]).await.unwrap();
        let queue = queues::ClusterQueue::new(&bed.name)
            .group(&bed.name, &[("cpu", "2")])
            .admission_check(&bed.name);
        bed.apply(queue.build()).await;
        bed.job("waits").create(bed.admin()).await.unwrap();
        bed.workload_of("waits").await;
        let value = explained(&bed, "waits", "NotTried").await;
        assert_eq!(
            value["clusterQueueInactive"][0]["reason"], "AdmissionCheckInactive",
            "{value:#}"
        );
        bed.activate_check().await;
        let value = explained(&bed, "waits", "QuotaReserved").await;
        assert_eq!(
            (&value["admissionChecks"][0]["name"], &value["admissionChecks"][0]["state"]),
            (&json!(bed.name), &json!("Pending"))
        );
        let text = explain(&bed, &["waits"]).await.unwrap();
        println!("{text}");
        assert!(text.contains("it has quota, and waits for its admission checks"), "{text}");
        let row = text.lines().find(|line| line.starts_with(&bed.name)).unwrap_or_default();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            [bed.name.as_str(), "Pending"],
            "{text}"
        );
        bed.answer_check("waits", "Ready").await;
        explained(&bed, "waits", "Admitted").await;
    });
}
