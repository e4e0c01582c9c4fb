//! `switchyard why` on a cluster that stock Kueue runs.

use anyhow::ensure;
use clap::Parser as _;
use serde_json::Value;
use switchyard_e2e::wait::eventually;

use super::site::{Site, WAIT, job_of};

async fn explain(site: &Site<'_>, words: &[&str]) -> anyhow::Result<String> {
    let kubeconfig = site.cluster.kubeconfig().to_str().unwrap();
    let command = ["switchyard", "--kubeconfig", kubeconfig, "explain", "-n", &site.namespace];
    let mut out = Vec::new();
    switchyard::run(switchyard::Args::try_parse_from(command.iter().chain(words))?, &mut out)
        .await?;
    Ok(String::from_utf8(out)?)
}

/// The explanation of a job as programs read it, once it says what is `right`.
async fn explained(
    site: &Site<'_>,
    job: &str,
    what: &str,
    right: impl Fn(&Value) -> bool,
) -> Value {
    let name = format!("job/{job}");
    let look = async || {
        let value: Value = serde_json::from_str(&explain(site, &[&name, "-o", "json"]).await?)?;
        ensure!(right(&value), "{value:#}");
        Ok(value)
    };
    eventually(WAIT, format!("the explanation of {job} to say {what}"), look).await.unwrap()
}

/// Waiting jobs are explained in Kueue's own words, with their position; running ones with their quota. Unknown facts are named
/// as unknown.
pub(crate) async fn by_what_kueue_wrote(site: &Site<'_>) {
    let order = site.order().await.unwrap();
    let (head, last) = (order["a"].first().unwrap(), order["a"].last().unwrap());
    let same = |value: &Value| {
        value["outlook"] == "Blocked"
            && value["recorded"]["reason"] == "Pending"
            && value["recorded"]["message"] == value["reason"]["message"]
    };
    let first = explained(site, head, "what Kueue wrote", same).await;
    let unknown = first["unknown"][0].as_str().unwrap();
    assert!(unknown.contains("--config") && unknown.contains("fair sharing off"), "{unknown}");

    let value =
        explained(site, last, "behind whom it waits", |value| value["place"]["head"].is_object())
            .await;
    let workloads = site.workloads().await.unwrap();
    let workload = workloads.iter().find(|workload| job_of(workload) == head).unwrap();
    let name = format!("{}/{}", site.namespace, workload.metadata.name.as_deref().unwrap());
    assert_eq!(value["place"]["head"]["workload"], name.as_str(), "{value:#}");
    assert_eq!(value["place"]["positionInClusterQueue"], order["a"].len() - 1, "{value:#}");
    assert_eq!(
        value["place"]["head"]["reason"]["message"], first["recorded"]["message"],
        "{value:#}"
    );
    let text = explain(site, &[&format!("job/{last}")]).await.unwrap();
    assert!(
        text.contains("blocks all behind it (StrictFIFO)") && text.contains("cannot be seen"),
        "{text}"
    );
    println!("{text}");

    explained(site, "held-0", "that its LocalQueue is stopped", |value| {
        value["outlook"] == "NotTried"
    })
    .await;
    explained(site, "off", "that it is deactivated", |value| value["outlook"] == "NotTried").await;
    let held =
        explained(site, "run-a-12", "what it holds", |value| value["outlook"] == "Admitted").await;
    assert_eq!(held["admission"]["podSets"][0]["flavors"]["cpu"], "reserved", "{held:#}");
}
