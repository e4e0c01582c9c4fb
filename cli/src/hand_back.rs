//! `switchyard migrate hand-back`: prepares a cluster's Workloads for stock Kueue.
//!
//! Kueue writes a Workload's status by server-side apply and removes a field by leaving it out,
//! which works only for a field with a single owner. Switchyard writes merge patches, which are
//! cheaper but make it a second owner. If Switchyard admitted a Workload and Kueue evicts it,
//! `status.admission` would stay, and Kueue could not admit it to another flavor. This command
//! makes Kueue the owner of such fields. Only `metadata.managedFields` changes.

mod copies;

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Map, Value, json};
use switchyard_api::names::ADMISSION_MANAGER;
use switchyard_api::v1beta2::Workload;

use crate::output::counted;
use crate::{Output, confirm};

/// Fields of `status` that Kueue removes by leaving them out. Conditions must not be among them:
/// Kueue always applies its own, and would remove those it does not know.
const FIELDS: [&str; 7] = [
    "f:admission",
    "f:clusterName",
    "f:nominatedClusterNames",
    "f:preemptionGates",
    "f:requeueState",
    "f:resourceRequests",
    "f:unhealthyNodes",
];
/// Workloads per list request.
const PAGE: u32 = 500;
/// Attempts for a Workload that changes meanwhile.
const MAX_ATTEMPTS: usize = 4;

#[derive(clap::Args, Debug, Default)]
pub struct Args {
    /// On a worker: also release the jobs that a Switchyard hub created or took over there. Then a
    /// MultiKueue manager can delete them, and a hub can take them over again. Jobs of external
    /// frameworks are among them. Workloads that an agent suspended resume. No Switchyard hub may
    /// follow them any more.
    #[arg(long)]
    pub copies: bool,
    /// With --copies: confirm that no Switchyard hub follows them any more. A hub that does would
    /// run their jobs elsewhere, too.
    #[arg(long)]
    pub yes: bool,
    /// Count the Workloads that would change, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandedBack {
    /// Workloads in the cluster.
    pub workloads: usize,
    /// Workloads with fields that changed their owner.
    pub changed: usize,
    /// Jobs of a hub that were released, with `--copies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<usize>,
    /// Kinds and API groups that `--copies` could not read, each with the cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// Nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Runs the command.
///
/// # Errors
/// As [`hand_back`], and with `--copies` but without `--yes`.
pub async fn run(client: kube::Client, args: &Args) -> anyhow::Result<String> {
    let is_unconfirmed = args.copies && !args.yes && !args.dry_run;
    let is_planned = args.dry_run || is_unconfirmed;
    let mut done = hand_back(client.clone(), is_planned).await?;
    if args.copies {
        let released = copies::release(&client, is_planned).await?;
        done.copies = Some(released.jobs);
        done.unread = released.unread;
    }
    if is_unconfirmed {
        let condition = "If no Switchyard hub follows these jobs any more";
        return Err(confirm::needed(&render_text(&done), condition));
    }
    args.output.render(&done, render_text)
}

fn render_text(done: &HandedBack) -> String {
    let HandedBack { workloads, changed, copies, unread, dry_run } = done;
    let would = if *dry_run { "would be " } else { "" };
    let mut out =
        format!("{changed} of {workloads} Workloads {would}handed back to stock Kueue.\n");
    if let Some(copies) = copies {
        out.push_str(&format!("{} of a hub {would}released.\n", counted(*copies, "job")));
    }
    for kind in unread {
        out.push_str(&format!("Not searched for jobs of a hub: {kind}\n"));
    }
    if *dry_run {
        out.push_str("Nothing is changed.\n");
    }
    out
}

/// Hands all Workloads back, or only counts them. A second run changes nothing.
///
/// # Errors
/// If the caller may not patch Workloads, or if Switchyard still runs and keeps changing one.
pub async fn hand_back(client: kube::Client, dry_run: bool) -> anyhow::Result<HandedBack> {
    let all: Api<Workload> = Api::all(client.clone());
    let mut done =
        HandedBack { workloads: 0, changed: 0, copies: None, unread: Vec::new(), dry_run };
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = all
            .list_metadata(&page)
            .await
            .map_err(|error| crate::with_hint(&error, "reading Workloads"))?;
        for workload in list.items {
            done.workloads += 1;
            if dry_run {
                done.changed += usize::from(handed_back(workload.managed_fields()).is_some());
                continue;
            }
            let api: Api<Workload> =
                Api::namespaced(client.clone(), &workload.namespace().unwrap_or_default());
            done.changed += usize::from(hand_back_one(&api, workload).await?);
        }
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => return Ok(done),
        }
    }
}

async fn hand_back_one(
    api: &Api<Workload>,
    mut workload: PartialObjectMeta<Workload>,
) -> anyhow::Result<bool> {
    let name = workload.name_any();
    for _ in 0..MAX_ATTEMPTS {
        let Some(entries) = handed_back(workload.managed_fields()) else { return Ok(false) };
        let ObjectMeta { uid, resource_version, .. } = &workload.metadata;
        let metadata =
            json!({"uid": uid, "resourceVersion": resource_version, "managedFields": entries});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match api.patch_metadata(&name, &PatchParams::default(), &patch).await {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(error) => {
                return Err(error).with_context(|| format!("handing back Workload {name}"));
            }
        }
        let Some(current) = api.get_metadata_opt(&name).await? else { return Ok(false) };
        workload = current;
    }
    bail!("Workload {name} keeps changing: stop Switchyard before its Workloads are handed back")
}

/// The entries as after Kueue's own writes. `None` if they are so already.
#[must_use]
pub fn handed_back(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let mut moved = Map::new();
    let mut kept = Vec::new();
    let mut from = None;
    for entry in entries {
        let mut entry = entry.clone();
        if is_own(&entry, "Update") {
            from = Some(entry.clone());
            take(&mut entry, &mut moved);
        }
        if !owns_nothing(&entry) {
            kept.push(entry);
        }
    }
    let from = from.filter(|_| !moved.is_empty())?;
    let moved = json!({"f:status": moved});
    match kept
        .iter_mut()
        .find(|entry| is_own(entry, "Apply") && entry.api_version == from.api_version)
    {
        Some(ManagedFieldsEntry { fields_v1: Some(FieldsV1(known)), .. }) => unite(known, &moved),
        _ => {
            let entry = ManagedFieldsEntry {
                operation: Some("Apply".into()),
                fields_v1: Some(FieldsV1(moved)),
                ..from
            };
            kept.push(entry);
        }
    }
    Some(kept)
}

fn is_own(entry: &ManagedFieldsEntry, operation: &str) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    (text(&entry.manager), text(&entry.operation), text(&entry.subresource))
        == (ADMISSION_MANAGER.to_owned(), operation.to_owned(), "status".to_owned())
}

fn take(entry: &mut ManagedFieldsEntry, moved: &mut Map<String, Value>) {
    let Some(FieldsV1(fields)) = &mut entry.fields_v1 else { return };
    let Some(status) = fields.get_mut("f:status").and_then(Value::as_object_mut) else { return };
    let wanted: BTreeSet<&str> = FIELDS.into();
    let names: Vec<String> =
        status.keys().filter(|name| wanted.contains(name.as_str())).cloned().collect();
    for name in names {
        if let Some(field) = status.remove(&name) {
            moved.insert(name, field);
        }
    }
    // Only the object itself is left, without a field.
    if status.keys().all(|name| name == ".") {
        entry.fields_v1 = None;
    }
}

fn owns_nothing(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.is_none()
}

fn unite(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, field) in more {
                unite(into.entry(name.clone()).or_insert_with(|| json!({})), field);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn entry(
        manager: &str,
        operation: &str,
        subresource: Option<&str>,
        fields: Value,
    ) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            api_version: Some("kueue.x-k8s.io/v1beta2".into()),
            fields_type: Some("FieldsV1".into()),
            fields_v1: Some(FieldsV1(fields)),
            manager: Some(manager.into()),
            operation: Some(operation.into()),
            subresource: subresource.map(str::to_owned),
            time: None,
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "the table below reads better without references"
    )]
    fn own_entry(operation: &str, fields: Value) -> ManagedFieldsEntry {
        entry("kueue-admission", operation, Some("status"), json!({"f:status": fields}))
    }

    #[test]
    fn dry_run_says_that_nothing_is_changed() {
        let done = HandedBack {
            workloads: 3,
            changed: 2,
            copies: Some(1),
            unread: vec!["things.example.com: forbidden".to_owned()],
            dry_run: true,
        };
        insta::assert_snapshot!(render_text(&done), @r"
        2 of 3 Workloads would be handed back to stock Kueue.
        1 job of a hub would be released.
        Not searched for jobs of a hub: things.example.com: forbidden
        Nothing is changed.
        ");
        assert_eq!(
            render_text(&HandedBack { copies: None, unread: Vec::new(), dry_run: false, ..done }),
            "2 of 3 Workloads handed back to stock Kueue.\n"
        );
    }

    #[rstest]
    #[case::admission_moves_and_conditions_stay(
        vec![own_entry("Update", json!({"f:admission": {".": {}, "f:clusterQueue": {}}, "f:conditions": {".": {}}}))],
        Some(vec![
            own_entry("Update", json!({"f:conditions": {".": {}}})),
            own_entry("Apply", json!({"f:admission": {".": {}, "f:clusterQueue": {}}})),
        ])
    )]
    #[case::fields_applied_before_are_merged(
        vec![
            own_entry("Apply", json!({"f:conditions": {"k:{}": {}}, "f:requeueState": {"f:count": {}}})),
            own_entry("Update", json!({".": {}, "f:admission": {}, "f:requeueState": {"f:requeueAt": {}}})),
        ],
        Some(vec![own_entry("Apply", json!({
            "f:admission": {},
            "f:conditions": {"k:{}": {}},
            "f:requeueState": {"f:count": {}, "f:requeueAt": {}},
        }))])
    )]
    #[case::other_managers_stay(
        vec![
            entry("kubectl", "Update", Some("status"), json!({"f:status": {"f:admission": {}}})),
            entry("kueue-admission", "Update", None, json!({"f:spec": {"f:active": {}}})),
            own_entry("Apply", json!({"f:admission": {}})),
        ],
        None
    )]
    #[case::no_such_fields(vec![own_entry("Update", json!({"f:conditions": {}}))], None)]
    fn fields_that_kueue_omits_become_its_own(
        #[case] before: Vec<ManagedFieldsEntry>,
        #[case] after: Option<Vec<ManagedFieldsEntry>>,
    ) {
        assert_eq!(handed_back(&before), after);
        assert_eq!(after.and_then(|after| handed_back(&after)), None);
    }
}
