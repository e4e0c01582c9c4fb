//! Filters of `get jobs`.

use std::collections::BTreeSet;

use anyhow::bail;
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use switchyard_api::v1beta2::Workload;
use switchyard_jobs::kind_of_owner;

use crate::status::{JobRow, JobState};

/// The filters of `get jobs`. All must hold.
#[derive(clap::Args, Debug, Default, Clone)]
pub struct Selection {
    /// Only jobs with these labels, such as team=vision,stage!=test.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Only jobs of this LocalQueue.
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Only jobs on this worker cluster.
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Only jobs in these states.
    #[arg(long, value_enum, value_name = "STATE", value_delimiter = ',', ignore_case = true)]
    pub state: Vec<JobState>,
}

impl Selection {
    /// Whether a row passes the filters that need the row alone.
    pub(super) fn takes(&self, row: &JobRow) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == row.queue)
            && self.cluster.as_ref().is_none_or(|cluster| row.cluster.as_ref() == Some(cluster))
            && (self.state.is_empty() || self.state.contains(&row.state))
    }

    /// The uids of the jobs with the labels of `--selector`; none without it. Workloads do not
    /// carry their jobs' labels, so this lists the jobs themselves, kind by kind.
    pub(super) async fn labelled(
        &self,
        client: &Client,
        namespace: Option<&str>,
        workloads: &[Workload],
    ) -> anyhow::Result<Option<BTreeSet<String>>> {
        let Some(selector) = &self.selector else { return Ok(None) };
        let owners = workloads.iter().flat_map(ResourceExt::owner_references);
        let kinds: BTreeSet<(&str, &str)> =
            owners.map(|owner| (&*owner.api_version, &*owner.kind)).collect();
        let mut uids = BTreeSet::new();
        for (api_version, kind) in kinds {
            let Some(resource) = resource(api_version, kind) else {
                eprintln!("-l leaves out jobs of the kind {kind}, whose resource is not known");
                continue;
            };
            let api: Api<PartialObjectMeta<DynamicObject>> = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            let found = api.list(&ListParams::default().labels(selector)).await;
            let found = found
                .map_err(|error| crate::with_hint(&error, &format!("listing {kind} objects")))?;
            uids.extend(found.items.into_iter().filter_map(|job| job.metadata.uid));
        }
        Ok(Some(uids))
    }
}

/// Whether a Workload's job is among these.
pub(super) fn is_labelled(workload: &Workload, uids: Option<&BTreeSet<String>>) -> bool {
    let Some(uids) = uids else { return true };
    workload.owner_references().iter().any(|owner| uids.contains(&owner.uid))
}

fn resource(api_version: &str, kind: &str) -> Option<ApiResource> {
    kind_of_owner(api_version, kind).map(|found| found.id().api_resource())
}

/// Checks that each requested name has a row.
///
/// # Errors
/// Names the missing ones, because a misspelt name must not look like an empty list.
pub(super) fn all_found(names: &[String], has: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let missing: Vec<&str> = names.iter().map(String::as_str).filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        bail!("not found: {}", missing.join(", "));
    }
    Ok(())
}
