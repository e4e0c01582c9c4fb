//! `switchyard evictions`: the circuit breaker, which stops evictions after many clusters were lost
//! at once.

use std::ops::ControlFlow;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::json;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_api::{conditions, names};

use crate::deadline::Deadline;
use crate::{Output, clusters, confirm, operate, wait};

#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Show whether the hub has paused evictions, and why
    #[command(after_help = "Examples:\n  switchyard evictions status")]
    Status(Args),
    /// Resume evictions: what was lost is queued again, by each cluster's policy
    #[command(
        name = "resume",
        alias = "release",
        after_help = "Examples:\n  switchyard evictions resume --dry-run\n  switchyard evictions resume --yes --wait"
    )]
    Release(Release),
}

/// Arguments of `resume`.
#[derive(clap::Args, Debug)]
pub struct Release {
    /// Output format.
    #[command(flatten)]
    pub args: Args,
    /// Confirm that what is lost may run elsewhere. Jobs whose policy is Duplicate may run twice.
    #[arg(long)]
    pub yes: bool,
    /// Print what would happen, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the hub has resumed evictions, with progress on stderr.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Timeout of --wait, such as 30s, 10m or 2h.
    #[arg(long, default_value = "10m", value_parser = crate::wait::timeout, requires = "wait")]
    pub timeout: Duration,
}

#[derive(clap::Args, Debug)]
pub struct Args {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// State of the circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakerStatus {
    /// Whether evictions are stopped.
    pub open: bool,
    /// When it opened.
    pub since: Option<Timestamp>,
    /// Why it opened.
    pub message: String,
    /// Clusters whose workloads are kept.
    pub clusters: Vec<String>,
    /// Whether this command released it.
    pub released: bool,
    /// Nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// `--wait` has ended: the hub evicts again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_resumed: bool,
}

/// Shows the breaker or releases it.
///
/// # Errors
/// If clusters cannot be read or changed, or if the breaker is open and `--yes` is missing.
pub async fn run(client: kube::Client, command: &Command) -> anyhow::Result<String> {
    let deadline = match command {
        Command::Release(release) if release.wait => Some(Deadline::after(release.timeout)),
        _ => None,
    };
    let api: Api<MultiKueueCluster> = Api::all(client);
    let found = clusters::list(&api).await?;
    let mut breaker = breaker(&found);
    let args = match command {
        Command::Status(args) => args,
        Command::Release(Release { args, dry_run: true, .. }) => {
            breaker.dry_run = true;
            args
        }
        Command::Release(release) => {
            let Release { args, .. } = release;
            if breaker.open && !release.yes {
                let plan = render_text(&BreakerStatus { dry_run: true, ..breaker });
                return Err(confirm::needed(&plan, "If jobs on these clusters may run elsewhere"));
            }
            // One cluster that has the new value is enough.
            if let Some(first) = breaker.clusters.first() {
                let value = json!({names::BREAKER_RELEASE: Timestamp::now().to_string()});
                operate::annotate_cluster(&api, first, &value).await?;
                breaker.released = true;
                if let Some(deadline) = deadline {
                    resumed(&api, deadline).await?;
                    breaker.is_resumed = true;
                }
            }
            args
        }
    };
    args.output.render(&breaker, render_text)
}

/// Waits until no cluster has the condition any more.
async fn resumed(api: &Api<MultiKueueCluster>, deadline: Deadline) -> anyhow::Result<()> {
    wait::poll(deadline, "the hub evicts again", async || {
        let now = breaker(&clusters::list(api).await?);
        Ok(match now.open {
            false => ControlFlow::Break(()),
            true => ControlFlow::Continue(format!(
                "the hub has not resumed evictions of {} yet",
                now.clusters.join(", ")
            )),
        })
    })
    .await
}

fn breaker(clusters: &[MultiKueueCluster]) -> BreakerStatus {
    let mut breaker = BreakerStatus {
        open: false,
        since: None,
        message: String::new(),
        clusters: Vec::new(),
        released: false,
        dry_run: false,
        is_resumed: false,
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

fn render_text(breaker: &BreakerStatus) -> String {
    match (breaker.open, breaker.released) {
        (false, _) => {
            let plan = if breaker.dry_run { " Nothing is changed." } else { "" };
            format!("Closed: clusters that are lost are given up by their policy.{plan}\n")
        }
        (true, false) => {
            let plan = match breaker.dry_run {
                true => {
                    "Evictions would be resumed: what ran on them would go elsewhere by their policy. Nothing is changed.\n"
                }
                false => "",
            };
            let clusters = breaker.clusters.join(", ");
            format!("Open: {}. Clusters: {clusters}.\n{plan}", breaker.message)
        }
        (true, true) => {
            let resumed = if breaker.is_resumed { " The hub evicts again." } else { "" };
            format!(
                "Released: what ran on {} goes elsewhere by their policy.{resumed}\n",
                breaker.clusters.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaker_is_open_if_a_cluster_has_the_condition() {
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
        assert_eq!(render_text(&open), "Open: 2 of 3 clusters were lost. Clusters: a, c.\n");
        let planned = render_text(&BreakerStatus { dry_run: true, ..open });
        assert!(planned.ends_with("by their policy. Nothing is changed.\n"), "{planned}");
        assert!(render_text(&breaker(&[cluster("b", "False")])).starts_with("Closed"));
    }
}
