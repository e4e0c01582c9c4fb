//! `switchyard breaker`: the hub has stopped giving up workloads because much was lost at once; it goes on when told so.

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::json;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_api::{conditions, names};

use crate::{Output, clusters, operate};

/// What to do with the circuit breaker.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Whether it is open, and why.
    Status(Args),
    /// Give up what was lost after all, by each cluster's policy.
    Release(Args),
}

/// Arguments of both.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// The breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// Nothing is given up.
    pub open: bool,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Why.
    pub message: String,
    /// The clusters whose workloads are kept.
    pub clusters: Vec<String>,
    /// It was released just now.
    pub released: bool,
}

/// Shows it, or releases it.
///
/// # Errors
/// When the clusters cannot be read, or the caller may not change them.
pub async fn run(client: kube::Client, command: &Command) -> anyhow::Result<String> {
    let api: Api<MultiKueueCluster> = Api::all(client);
    let found = clusters::list(&api).await?;
    let mut breaker = breaker(&found);
    let args = match command {
        Command::Status(args) => args,
        Command::Release(args) => {
            // One cluster that has the new value is enough.
            if let Some(first) = breaker.clusters.first() {
                let value = json!({names::BREAKER_RELEASE: Timestamp::now().to_string()});
                operate::annotate(&api, first, &value).await?;
                breaker.released = true;
            }
            args
        }
    };
    args.output.render(&breaker, text)
}

fn breaker(clusters: &[MultiKueueCluster]) -> Breaker {
    let mut breaker = Breaker {
        open: false,
        since: None,
        message: String::new(),
        clusters: Vec::new(),
        released: false,
    };
    for cluster in clusters {
        let known =
            cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let Some(held) = conditions::find(known, conditions::EVICTIONS_STOPPED) else { continue };
        if held.status == conditions::TRUE {
            breaker.open = true;
            breaker.since = breaker.since.into_iter().chain([held.last_transition_time.0]).min();
            breaker.message.clone_from(&held.message);
            breaker.clusters.push(cluster.name_any());
        }
    }
    breaker
}

fn text(breaker: &Breaker) -> String {
    match (breaker.open, breaker.released) {
        (false, _) => "Closed: clusters that are lost are given up by their policy.\n".to_owned(),
        (true, false) => {
            format!("Open: {}. Clusters: {}.\n", breaker.message, breaker.clusters.join(", "))
        }
        (true, true) => {
            format!(
                "Released: what ran on {} goes elsewhere by their policy.\n",
                breaker.clusters.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_open_where_a_cluster_says_so() {
        let cluster = |name: &str, status: &str| -> MultiKueueCluster {
            serde_json::from_value(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": name},
                "spec": {"clusterSource": {"agent": {}}},
                "status": {"conditions": [{"type": "EvictionsStopped", "status": status, "reason": "ManyLostAtOnce",
                    "message": "2 of 3 clusters were lost", "lastTransitionTime": "2026-11-21T10:00:00Z"}]},
            }))
            .unwrap()
        };
        let open = breaker(&[cluster("a", "True"), cluster("b", "False"), cluster("c", "True")]);
        assert_eq!(text(&open), "Open: 2 of 3 clusters were lost. Clusters: a, c.\n");
        assert!(text(&breaker(&[cluster("b", "False")])).starts_with("Closed"));
    }
}
