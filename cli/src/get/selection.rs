//! Filters of `get jobs`.

use std::collections::BTreeSet;

use anyhow::bail;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use switchyard_api::v1beta2::Workload;
use switchyard_jobs::kind_of_owner;

use crate::status::{JobRow, JobState};

/// The uids of jobs whose labels were read.
#[derive(Debug, Default)]
pub(super) struct Labelled {
    /// Jobs with the labels of `--selector`.
    matching: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl Labelled {
    /// Whether one of the workload's jobs has the labels.
    pub(super) fn has(&self, workload: &Workload) -> bool {
        workload.owner_references().iter().any(|owner| self.matching.contains(&owner.uid))
    }

    /// The owners whose labels were not read yet.
    pub(super) fn unread(&self, workload: &Workload) -> Vec<OwnerReference> {
        let is_unread = |owner: &&OwnerReference| {
            !self.matching.contains(&owner.uid) && !self.others.contains(&owner.uid)
        };
        workload.owner_references().iter().filter(is_unread).cloned().collect()
    }

    pub(super) fn record(&mut self, uid: String, has_labels: bool) {
        let uids = if has_labels { &mut self.matching } else { &mut self.others };
        uids.insert(uid);
    }
}

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
    #[arg(long, value_name = "CLUSTER", value_parser = crate::find::cluster)]
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

    /// The jobs with the labels of `--selector`; none without it. Workloads do not carry their
    /// jobs' labels, so this lists the jobs themselves, kind by kind.
    pub(super) async fn labelled(
        &self,
        client: &Client,
        namespace: Option<&str>,
        workloads: &[Workload],
    ) -> anyhow::Result<Option<Labelled>> {
        let Some(selector) = &self.selector else { return Ok(None) };
        let owners = workloads.iter().flat_map(ResourceExt::owner_references);
        let kinds: BTreeSet<(&str, &str)> =
            owners.map(|owner| (&*owner.api_version, &*owner.kind)).collect();
        let mut labelled = Labelled::default();
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
            labelled.matching.extend(found.items.into_iter().filter_map(|job| job.metadata.uid));
        }
        let seen: Vec<String> = workloads
            .iter()
            .flat_map(|workload| labelled.unread(workload))
            .map(|owner| owner.uid)
            .collect();
        labelled.others.extend(seen);
        Ok(Some(labelled))
    }

    /// Whether a job has the labels of `--selector`. None if that cannot be read now.
    pub(super) async fn has_labels(
        &self,
        client: &Client,
        namespace: &str,
        job: &OwnerReference,
    ) -> Option<bool> {
        let selector = self.selector.as_deref()?;
        let Some(resource) = resource(&job.api_version, &job.kind) else { return Some(false) };
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::namespaced_with(client.clone(), namespace, &resource);
        let params =
            ListParams::default().labels(selector).fields(&format!("metadata.name={}", job.name));
        match api.list(&params).await {
            Ok(found) => {
                Some(found.items.iter().any(|it| it.metadata.uid.as_ref() == Some(&job.uid)))
            }
            Err(error) => {
                eprintln!("the labels of {} {} were not read: {error}", job.kind, job.name);
                None
            }
        }
    }
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
